"""`acts trace`, `acts traces`: runs as traces, to whatever takes OpenTelemetry's."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from .failures import COMPLETED, REJECTED, Failed
from .inspect import found_run
from .options import Common, common_options
from .output import print_either, tell

if TYPE_CHECKING:
    from acts_celery.broker_config import Settings
    from acts_celery.worker.traces.exporting import Exported, TraceExport


@click.command(short_help="Export a run as a trace.")
@click.argument("run", metavar="RUN")
@common_options
def trace(run: str, *, common: Common) -> int:
    """Export RUN and its child runs as a trace, by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT …).

    Of a run that is under way the calls that have ended are exported, and not yet the run itself.

    Exit codes: 0 exported, 2 bad settings, 3 no server, or the spans are not taken, 4 no such run.
    """
    with found_run(run, common) as found:
        id_ = found.id
    settings = common.settings()
    with _exporting(settings) as export:
        runs = deque([id_])
        while runs:
            exported = export.export(runs.popleft())
            runs += exported.children
            _print(exported, common)
    return COMPLETED


@click.command(short_help="Export runs as traces, each once it has ended.")
@click.option("--follow", is_flag=True, help="Go on, and export each run as it ends.")
@common_options
def traces(follow: bool, *, common: Common) -> int:
    """Export every run that has ended and was not exported yet, by OpenTelemetry's own variables.

    With --follow it goes on until it is stopped. One that is started again goes on where it was. Run one of them.

    Exit codes: 0 exported, or stopped, 2 bad settings, 3 no server, or the spans are not taken.
    """
    with _exporting(common.settings()) as export:
        if follow:
            _follow(export, common)
        for exported in export.export_ended():
            _print(exported, common)
    return COMPLETED


def _follow(export: TraceExport, common: Common) -> None:
    """Export runs until SIGTERM or Ctrl-C, which are raised here."""
    from redis.exceptions import RedisError

    from acts_celery.worker.errors import InfrastructureError
    from acts_celery.worker.traces.sending import delay_seconds

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
        from acts_celery.worker.traces.sending import NothingToExport, SpanSender
    except ImportError as error:
        text = f"the package {error.name} is missing: pip install 'acts-celery[otel]'"
        raise Failed(text, REJECTED) from None
    from acts_celery.worker.storage.connections import connect
    from acts_celery.worker.traces.exporting import TraceExport

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
    print_either(document, [line], as_json=common.json)
