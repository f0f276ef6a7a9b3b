"""`acts worker`: Celery's own worker, on the right queues and with the right pool.

`celery -A worker worker …` does the same with Celery's options; this command only chooses them.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

import click

from worker.cli.failures import COMPLETED, UNAVAILABLE
from worker.cli.options import Common, common_options, load_registry
from worker.cli.output import write_error

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
POOLS: Final = ("threads", "prefork", "solo")


@click.command(short_help="Run a Celery worker on the right queues.")
@click.option("--queues", "-Q", metavar="A,B", help="Serve these; default: all that settings and activities name.")
@click.option(
    "--concurrency", "-c", type=click.IntRange(min=1), metavar="N", help="Tasks at a time [ACTS_CONCURRENCY]."
)
@click.option("--name", "-n", metavar="NAME", help="NAME or NAME@HOST; default: acts@<host>-<pid>.")
@click.option("--log-level", "-l", type=click.Choice(LEVELS, case_sensitive=False), default="INFO", show_default=True)
@click.option("--pool", "-P", type=click.Choice(POOLS), default="threads", show_default=True, help="How tasks run.")
@common_options
def worker(
    queues: str | None, concurrency: int | None, name: str | None, log_level: str, pool: str, *, common: Common
) -> int:
    """Run a worker until SIGTERM or Ctrl-C; tasks under way are finished first.

    With --json it prints one line once it is ready: {"worker": …, "queues": […], "pid": …}. Its log goes to stderr.

    Exit codes: 0 stopped, 2 bad settings or activities, 3 it could not go on.
    """
    settings = common.settings()
    # `worker.celery` reads the settings when it is imported, and so does whatever the activities start.
    os.environ.update(settings.to_environment())
    load_registry(settings)
    from celery.signals import worker_ready

    from broker_config import queue_names
    from worker.activities import registry
    from worker.celery import app

    served = _names(queues) or list(dict.fromkeys((*queue_names(settings), *registry.queues())))
    host = _nodename(name)

    def announce(**_: Any) -> None:
        _announce(host, served, as_json=common.json)

    worker_ready.connect(announce, weak=False)
    celery_worker = app.Worker(
        hostname=host,
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
    return UNAVAILABLE if celery_worker.exitcode else COMPLETED


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


def _announce(name: str, queues: list[str], *, as_json: bool) -> None:
    """Say that tasks are taken from now on. Celery has put its log in the place of both streams."""
    from worker.embedding import READY

    write_error(f"acts: worker {name} {READY}, on {', '.join(queues)}\n")
    if as_json and sys.__stdout__ is not None:
        import json

        line = {"worker": name, "queues": queues, "pid": os.getpid()}
        sys.__stdout__.write(json.dumps(line) + "\n")
        sys.__stdout__.flush()
