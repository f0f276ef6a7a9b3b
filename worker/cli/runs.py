"""`acts runs`, `acts wait`: which runs there are, and until one ends."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import click

from .failures import COMPLETED, FAILED, Failed
from .inspect import found_run
from .options import Common, common_options
from .output import escaped, print_either, print_text, tell
from .rendering import cost_line, counts_line, span, status_word
from .view import View, print_result, view_options

if TYPE_CHECKING:
    from acts_celery.worker.client.overview import Summary
    from acts_celery.worker.client.progress import Event
    from acts_celery.worker.client.run_status import RunStatus
    from acts_celery.worker.client.runs import Run

STATUSES: Final = ("running", "paused", "completed", "failed", "cancelled")
"""What `--status` may be."""
_MOST: Final = 20


@click.command(short_help="Print the runs that are kept, the newest first.")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs of this status.")
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


def _line(summary: Summary) -> str:
    called = " ".join(escaped(text) for text in (summary.name or "", *(f"#{tag}" for tag in summary.tags)) if text)
    times = f"{span(summary.age_seconds)} ago, {'took' if summary.finished else 'for'} {span(summary.duration_seconds)}"
    stands = (status_word(summary.status), counts_line(summary.calls), times, cost_line(summary.cost))
    parts = (summary.run, called, *stands)
    return "  ".join(part for part in parts if part)


class _TellHeld:
    """Says once that a call waits for a person, however many do."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._is_told = False

    def __call__(self, event: Event) -> None:
        if event.kind == "held" and not self._is_told and self._run.held():
            self._is_told = True
            tell(f"a call waits for a person: acts held {self._run.id}, then acts approve or acts reject")
