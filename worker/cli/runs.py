"""`acts runs`, `acts wait`, `acts delete`: which runs there are, until one ends, and to forget it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from .failures import COMPLETED, FAILED, Failed
from .inspect import found_run
from .options import Common, common_options
from .output import escaped, print_either, print_text, tell
from .rendering import cost_line, counts_line, status_word
from .view import View, print_result, view_options

if TYPE_CHECKING:
    from acts_celery.worker.client.overview import Summary
    from acts_celery.worker.client.progress import Event
    from acts_celery.worker.client.run_status import RunStatus
    from acts_celery.worker.client.runs import Run

_STATUSES: Final = ("running", "paused", "completed", "failed", "cancelled")
_MOST: Final = 20
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60))


@click.command(short_help="Print the runs that are kept, the newest first.")
@click.option("--status", type=click.Choice(_STATUSES), help="Only runs of this status.")
@click.option("--name", metavar="TEXT", help="Only runs of this name or with this tag.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=_MOST, show_default=True, metavar="N", help="At most so many."
)
@common_options
def runs(status: RunStatus | None, name: str | None, limit: int, *, common: Common) -> int:
    """Print the newest runs: id, name and tags, status, calls, age, duration, cost. With --json one document a line.

    Runs that have ended are listed for as long as they are kept.

    Exit codes: 0 also where there are none, 3 no server.
    """
    from acts_celery.worker.client.client import Client

    with Client(common.settings()) as client:
        found = list(islice(client.runs(status=status, name=name), limit))
    for summary in found:
        print_either(summary.to_dict(), [_line(summary)], as_json=common.json)
    if not found and not common.json:
        print_text("no runs")
    return COMPLETED


@click.command(short_help="Block until a run ends.")
@click.argument("run", metavar="RUN")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Give up after this long."
)
@view_options
@common_options
def wait(run: str, timeout: float | None, *, view: View, common: Common) -> int:
    """Block until RUN has ended, and print its result as `acts run` does.

    Exit codes: 0 completed, 1 failed or cancelled, 3 no server, or timeout, 4 no such run.
    """
    from . import progress

    with found_run(run, common) as found:
        try:
            progress.wait(found, _TellHeld(found), timeout_seconds=timeout, is_quiet=view.is_quiet)
        except TimeoutError:
            raise Failed(f"run {found.id} is not over in time ({counts_line(found.status()['calls'])})") from None
        document = found.result(waits=common.json).to_dict()
    print_result(document, view, as_json=common.json)
    return COMPLETED if document["status"] == "completed" else FAILED


@click.command(short_help="Forget a run that has ended.")
@click.argument("run", metavar="RUN")
@common_options
def delete(run: str, *, common: Common) -> int:
    """Forget RUN, which has ended: its log, its values, everything.

    Exit codes: 0 deleted, 3 no server, 4 no such run, or it is not over.
    """
    with found_run(run, common) as found:
        found.delete()
    print_either({"run": found.id, "deleted": True}, [f"run {found.id} is deleted"], as_json=common.json)
    return COMPLETED


def _line(summary: Summary) -> str:
    called = " ".join(escaped(text) for text in (summary.name or "", *(f"#{tag}" for tag in summary.tags)) if text)
    times = (
        f"{_span(summary.age_seconds)} ago, {'took' if summary.finished else 'for'} {_span(summary.duration_seconds)}"
    )
    stands = (status_word(summary.status), counts_line(summary.calls), times, cost_line(summary.cost))
    parts = (summary.run, called, *stands)
    return "  ".join(part for part in parts if part)


def _span(seconds: float) -> str:
    """`3 s`, `5 m`, `2 h`, `4 d`."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


class _TellHeld:
    """Says once that a call waits for a person, however many do."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._is_told = False

    def __call__(self, event: Event) -> None:
        if event.kind == "held" and not self._is_told and self._run.held():
            self._is_told = True
            tell(f"a call waits for a person: acts held {self._run.id}, then acts approve or acts reject")
