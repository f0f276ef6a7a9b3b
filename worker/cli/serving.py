"""What the commands that serve do before that: they see who may enter, ask the log whether it answers, and write their
own to stderr.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import click

from .. import limits
from .options import REJECTED, RUN, Common, Failed, command, load_registry
from .output import flush, print_json, print_text, tell

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from ...broker_config import Settings
    from ...broker_config.tokens import AccessToken, Right
    from ..telemetry.sending import Exported, TraceExport


_DAY_SECONDS: Final = 86_400


def ask_log(settings: Settings) -> None:
    """Raise what `InfrastructureError` says where the log, or the Redis that is read instead, does not answer."""
    from ..store.connections import connect_once, redis_errors

    for each in (settings, settings.for_reading):
        with (
            redis_errors(each),
            connect_once(each, each.require_redis(), timeout_seconds=limits.SERVING_ASKED_SECONDS) as redis,
        ):
            redis.ping()


def made_token(
    settings: Settings,
    tokens: Sequence[AccessToken],
    rights: Iterable[Right],
    host: str,
    *,
    write: bool,
    variable: str,
    example: str,
) -> AccessToken | None:
    """A new token with these rights, for whoever has started the server; None where tokens are named. Raises `Failed`
    where a host that others reach has none, where --write would say something else than the named ones, and where
    their limits cannot be known.
    """
    from ...broker_config.tokens import AccessToken
    from ..store.held_calls import Actor
    from ..ui.server import is_loopback

    if any(token.limits.are_of_a_day for token in tokens) and settings.retention_seconds < _DAY_SECONDS:
        text = (
            f"{variable} has limits of a day, and runs are kept for less: set ACTS_RETENTION_SECONDS to {_DAY_SECONDS}"
        )
        raise Failed(f"{text} or more", REJECTED)
    if tokens:
        if write:
            raise Failed(f"{variable} says who may do what: leave out --write", REJECTED)
        return None
    if not is_loopback(host):
        raise Failed(
            f"others reach {host}: say in {variable} who may enter, as {example} (python -c "
            "'import secrets; print(secrets.token_urlsafe())' makes a TOKEN), or leave out --host",
            REJECTED,
        )
    return AccessToken(Actor.of(settings).name, frozenset(rights), secrets.token_urlsafe(32), is_named=False)


def log_to_stderr(settings: Settings) -> None:
    """The audit trail, and whatever is wrong, as a worker writes its log."""
    from ..logs import JsonFormatter, MaskedFormatter, Masking

    as_json = settings.log_format == "json"
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    inner = JsonFormatter() if as_json else plain
    handler.setFormatter(MaskedFormatter(inner, Masking(settings), as_json=as_json))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("acts").setLevel(logging.INFO)


# `acts metrics`: what is in the log and the queues, for Prometheus (docs/observe.md, "Figures").


@command("Show figures of the log and the queues to Prometheus.")
@click.option("--port", type=click.IntRange(0, 65_535), required=True, help="Where to listen; 0 for any free port.")
@click.option("--host", metavar="ADDRESS", help="On which address. Default: 127.0.0.1 [ACTS_METRICS_HOST].")
def metrics(*, port: int, host: str | None, common: Common) -> int:
    """Show on http://ADDRESS:PORT/metrics what is in the log and the queues, until SIGTERM or Ctrl-C.

    It needs the extra `metrics`. One such process for a backend is enough. It changes nothing. The queues are those of
    settings and activities. Workers show themselves what they do, each process on a port of its own: ACTS_METRICS_PORT.

    With --json it prints one line once it listens: {"url": …}.

    Exit codes: 2 bad settings or activities, 3 it cannot listen there, or has no prometheus-client, 130 interrupted.
    """
    from ..telemetry.process_figures import new_registry, serve

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
    from ...broker_config import queue_names, redis_url_of
    from ...broker_config.configuration import queue_prefix
    from ..registry.activities import registry
    from ..runner.application import make_client_application
    from ..store.connections import connect_once
    from ..telemetry.figures import Collection, LogReader, QueueReader

    log = connect_once(settings, settings.require_redis(), timeout_seconds=limits.SERVING_ANSWER_SECONDS)
    url = redis_url_of(settings.require_broker())
    broker = connect_once(settings, url, timeout_seconds=limits.SERVING_ANSWER_SECONDS) if url is not None else None
    names = dict.fromkeys((*queue_names(settings), *registry.queues()))
    app = make_client_application(settings)
    queues = QueueReader(app, broker, queue_prefix(settings), names, log=log, key_prefix=settings.key_prefix)
    return Collection(LogReader(log, settings), queues)


# `acts ui`: the pages of all runs, live.

_HOST: Final = "127.0.0.1"
_PORT: Final = 5556


@command("Serve the pages of all runs.")
@click.option("--host", default=_HOST, show_default=True, metavar="HOST", help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=_PORT, show_default=True, metavar="N", help="0: a free one."
)
@click.option("--write", is_flag=True, help="The link that is printed may also decide on held calls, and control runs.")
def ui(host: str, port: int, write: bool, *, common: Common) -> None:
    """Serve the pages of all runs until Ctrl-C, and print the link that opens them.

    The link has a new token at each start, which may read. ACTS_UI_TOKENS says instead who may enter with which token
    and with which rights; a host that others reach takes that. With --json it prints one line: {"url": …, "host": …,
    "port": …, "pid": …}.

    Exit codes: 0 stopped, 2 bad settings, 3 no server, the port is in use, or the extra `ui` is missing.
    """
    from ...broker_config.settings import LOCAL_RIGHTS

    try:
        from ..ui import application as serving
        from ..ui import server as listening
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise Failed("the pages take other packages: pip install 'acts-celery[ui]'") from error
    settings = common.settings()
    tokens, rights = settings.read_ui_tokens(), LOCAL_RIGHTS if write else LOCAL_RIGHTS[:1]
    made = made_token(
        settings, tokens, rights, host, write=write, variable="ACTS_UI_TOKENS", example="ann:decide+control:TOKEN"
    )
    ask_log(settings)
    log_to_stderr(settings)
    with listening.listen(host, port) as socket:
        address = settings.ui_url or listening.address_of(socket, host)
        url = serving.link(address, made.text) if made is not None else address

        def announce() -> None:
            place = {"host": host, "port": socket.getsockname()[1], "pid": os.getpid()}
            common.print({"url": url, **place}, [url])
            flush()
            _tell_rights(made)

        asyncio.run(serving.serve(socket, host, settings, tokens or ((made,) if made is not None else ()), announce))


def _tell_rights(made: AccessToken | None) -> None:
    if made is None:
        tell("the pages of all runs, for those whom ACTS_UI_TOKENS names; Ctrl-C ends them")
    elif "control" in made.rights:
        tell("the link reads runs, decides on held calls and controls runs; keep it to yourself; Ctrl-C ends it")
    else:
        tell("the link reads runs (--write: it also decides and controls); Ctrl-C ends it")


# `acts trace`, `acts traces`: runs as traces, to whatever takes OpenTelemetry's.


@command("Export a run as a trace.")
@RUN
def trace(run: str, *, common: Common) -> None:
    """Export RUN and its child runs as a trace, by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT …).

    Of a run that is under way the calls that have ended are exported, and not yet the run itself.

    Exit codes: 0 exported, 2 bad settings, 3 no server, or the spans are not taken, 4 no such run.
    """
    with common.found(run) as found:
        id_ = found.id
    settings = common.settings()
    with _exporting(settings) as export:
        runs = deque([id_])
        while runs:
            exported = export.export(runs.popleft())
            runs += exported.children
            _print(exported, common)


@command("Export runs as traces, each once it has ended.")
@click.option("--follow", is_flag=True, help="Go on, and export each run as it ends.")
def traces(follow: bool, *, common: Common) -> None:
    """Export every run that has ended and was not exported yet, by OpenTelemetry's own variables.

    With --follow it goes on until it is stopped. One that is started again goes on where it was. Run one of them.

    Exit codes: 0 exported, or stopped, 2 bad settings, 3 no server, or the spans are not taken.
    """
    with _exporting(common.settings()) as export:
        if follow:
            _follow(export, common)
        for exported in export.export_ended():
            _print(exported, common)


def _follow(export: TraceExport, common: Common) -> None:
    """Export runs until SIGTERM or Ctrl-C, which are raised here."""
    from redis.exceptions import RedisError

    from ..errors import InfrastructureError
    from ..telemetry.sending import delay_seconds

    fails = False
    while True:
        try:
            for exported in export.export_ended():
                _print(exported, common)
        except (InfrastructureError, RedisError) as error:
            if not fails:
                tell(f"{error}: it is tried again")
            fails = True
        else:
            if fails:
                tell("spans are exported again")
            fails = False
        Event().wait(delay_seconds())


@contextmanager
def _exporting(settings: Settings) -> Iterator[TraceExport]:
    """What exports the runs of a backend. Raises `Failed` without the extra."""
    try:
        from ..telemetry.sending import NothingToExport, SpanSender
    except ImportError as error:
        text = f"the package {error.name} is missing: pip install 'acts-celery[otel]'"
        raise Failed(text, REJECTED) from None
    from ..store.connections import connect
    from ..telemetry.sending import TraceExport

    try:
        sender = SpanSender()
    except NothingToExport as error:
        raise Failed(str(error), REJECTED) from None
    try:
        with connect(settings) as redis:
            yield TraceExport(redis, settings.key_prefix, sender)
    finally:
        sender.close()


def _print(exported: Exported, common: Common) -> None:
    if exported.fault is not None:
        tell(f"run {exported.run} cannot be exported, its log is broken: {exported.fault}")
        return
    document: dict[str, Any] = {
        "run": exported.run,
        "trace": exported.trace,
        "spans": exported.spans,
        "ended": exported.has_ended,
    }
    state = "" if exported.has_ended else ", and it is under way"
    line = f"{exported.run}  trace {exported.trace}  {exported.spans} spans{state}"
    common.print(document, [line])
