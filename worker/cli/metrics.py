"""`acts metrics`: what is in the log and the queues, for Prometheus (docs/observe.md, "Figures")."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import click

from .options import Common, common_options, load_registry
from .output import flush, print_json, print_text

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from acts_celery.broker_config import Settings

_ANSWER_SECONDS: Final = 5.0
"""How long a server may owe an answer: Prometheus waits ten seconds for all."""


@click.command(short_help="Show figures of the log and the queues to Prometheus.")
@click.option("--port", type=click.IntRange(0, 65_535), required=True, help="Where to listen; 0 for any free port.")
@click.option("--host", metavar="ADDRESS", help="On which address. Default: 127.0.0.1 [ACTS_METRICS_HOST].")
@common_options
def metrics(*, port: int, host: str | None, common: Common) -> int:
    """Show on http://ADDRESS:PORT/metrics what is in the log and the queues, until SIGTERM or Ctrl-C.

    It needs the extra `metrics`. One such process for a backend is enough. It changes nothing. The queues are those of
    settings and activities. Workers show themselves what they do, each process on a port of its own: ACTS_METRICS_PORT.

    With --json it prints one line once it listens: {"url": …}.

    Exit codes: 2 bad settings or activities, 3 it cannot listen there, or has no prometheus-client, 130 interrupted.
    """
    from acts_celery.worker.metrics.serving import new_registry, serve

    settings = common.settings()
    load_registry(settings)
    registry = new_registry()
    registry.register(_collection(settings))
    address = host or settings.metrics_host
    taken, stop = serve(registry, address, port)
    shown = f"[{address}]" if ":" in address else address
    url = f"http://{shown}:{taken}/metrics"
    if common.json:
        print_json({"url": url})
    else:
        print_text(f"figures are shown on {url}")
    flush()  # whoever reads it by a pipe waits for it
    try:
        threading.Event().wait()
    finally:
        stop()
    return 0


def _collection(settings: Settings) -> Collector:
    from acts_celery.broker_config import queue_names, redis_url_of
    from acts_celery.broker_config.configuration import queue_prefix
    from acts_celery.worker.app.application import make_client_application
    from acts_celery.worker.metrics.collection import Collection
    from acts_celery.worker.metrics.log_figures import LogReader
    from acts_celery.worker.metrics.queue_figures import QueueReader
    from acts_celery.worker.registry.activities import registry
    from acts_celery.worker.storage.connections import connect_once

    log = connect_once(settings, settings.require_redis(), timeout_seconds=_ANSWER_SECONDS)
    url = redis_url_of(settings.require_broker())
    broker = connect_once(settings, url, timeout_seconds=_ANSWER_SECONDS) if url is not None else None
    names = dict.fromkeys((*queue_names(settings), *registry.queues()))
    app = make_client_application(settings)
    queues = QueueReader(app, broker, queue_prefix(settings), names, log=log, key_prefix=settings.key_prefix)
    return Collection(LogReader(log, settings), queues)
