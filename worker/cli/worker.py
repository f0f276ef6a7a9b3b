"""`acts worker`: Celery's own worker, on the right queues and with the right pool.

`celery -A worker worker …` does the same with Celery's options; this command only chooses them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from worker.cli.failures import COMPLETED, UNAVAILABLE
from worker.cli.options import Common, common_options, load_registry
from worker.cli.output import write_error

if TYPE_CHECKING:
    from celery import Celery

    from broker_config import Settings

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
POOLS: Final = ("threads", "prefork", "solo")

_LOCAL_POLL_SECONDS: Final = 0.02


@click.command(short_help="Run a Celery worker on the right queues.")
@click.option("--queues", "-Q", metavar="A,B", help="Serve these; default: all that settings and activities name.")
@click.option("--activity-queues", is_flag=True, help="Serve also the queues that activities have of their own.")
@click.option(
    "--concurrency", "-c", type=click.IntRange(min=1), metavar="N", help="Tasks at a time [ACTS_CONCURRENCY]."
)
@click.option("--name", "-n", metavar="NAME", help="NAME or NAME@HOST; default: acts@<host>-<pid>.")
@click.option("--log-level", "-l", type=click.Choice(LEVELS, case_sensitive=False), default="INFO", show_default=True)
@click.option("--pool", "-P", type=click.Choice(POOLS), default="threads", show_default=True, help="How tasks run.")
@common_options
def worker(
    queues: str | None,
    activity_queues: bool,
    concurrency: int | None,
    name: str | None,
    log_level: str,
    pool: str,
    *,
    common: Common,
) -> int:
    """Run a worker until SIGTERM or Ctrl-C; tasks under way are finished first.

    With --json it prints one line once it is ready: {"worker": …, "queues": […], "pid": …}. Its log goes to stderr.

    Exit codes: 0 stopped, 2 bad settings or activities, 3 it could not go on.
    """
    stdout = _stdout_of_our_own()
    settings = common.settings()
    # `worker.celery` reads the settings when it is imported, and so does whatever the activities start.
    os.environ.update(settings.to_environment())
    load_registry(settings)
    from broker_config import queue_names
    from worker.celery import app
    from worker.registry.activities import registry

    served = list(dict.fromkeys(_names(queues) or (*queue_names(settings), *registry.queues())))
    if activity_queues:
        served = list(dict.fromkeys((*served, *registry.queues())))
    name = _nodename(name)
    was_interrupted = _watch_signals(name, served, stdout if common.json else None)
    _hasten(app, settings)
    celery_worker = app.Worker(
        hostname=name,
        pool=pool,
        # Threads wait for activities most of their time; processes are there to compute.
        concurrency=concurrency or (settings.concurrency if pool == "threads" else os.cpu_count()),
        loglevel=log_level.upper(),
        queues=served,
        quiet=True,
        # Both tell workers of one another, which ours need not know; mingle would delay the start by a second.
        without_gossip=True,
        without_mingle=True,
    )
    celery_worker.start()
    if was_interrupted():
        return COMPLETED  # it was asked to stop, and did
    return UNAVAILABLE if celery_worker.exitcode else COMPLETED


def _watch_signals(name: str, queues: list[str], machine: TextIO | None) -> Callable[[], bool]:
    """Announce the worker once it takes tasks; return what says whether Ctrl-C has stopped it."""
    from celery.signals import worker_ready, worker_shutting_down

    from worker.client.local_backend import READY

    interrupts: list[str] = []

    def announce(**_: Any) -> None:
        write_error(f"acts: worker {name} {READY}, on {', '.join(queues)}\n")
        if machine is not None:
            machine.write(json.dumps({"worker": name, "queues": queues, "pid": os.getpid()}) + "\n")
            machine.flush()

    def note(sig: str, **_: Any) -> None:
        if sig == "SIGINT":
            interrupts.append(sig)

    worker_ready.connect(announce, weak=False)
    worker_shutting_down.connect(note, weak=False)
    return lambda: bool(interrupts)


def _hasten(app: Celery, settings: Settings) -> None:
    """Let the worker hear signals sooner, where that costs nothing.

    A signal is heard between two looks at the queues, which are a second apart. Over a socket of this machine they may
    be frequent: an embedded worker then ends at once.
    """
    if settings.require_broker().startswith("redis+socket:"):
        options = {**app.conf.broker_transport_options, "polling_interval": _LOCAL_POLL_SECONDS}
        app.conf.broker_transport_options = options


def _names(queues: str | None) -> list[str]:
    """The queues of a comma-separated list, each once."""
    if queues is None:
        return []
    names = [name.strip() for name in queues.split(",") if name.strip()]
    if not names:
        raise click.BadParameter("names no queue", param_hint="--queues")
    return list(dict.fromkeys(names))


def _nodename(name: str | None) -> str:
    """The worker's name for Celery, unique unless one is given."""
    from celery.utils.nodenames import host_format, nodename

    if name is None:
        return str(host_format(nodename("acts", f"%h-{os.getpid()}")))
    return str(host_format(name if "@" in name else nodename(name, "%h")))


def _stdout_of_our_own() -> TextIO:
    """Return stdout, and send to stderr what anybody else writes there: Celery says good-bye on it."""
    try:
        own = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        return Path(os.devnull).open("w", encoding="utf-8")
    return own
