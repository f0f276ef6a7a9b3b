"""`acts pause`, `acts resume`, `acts cancel`: orders to a run (SPEC R11.1)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from .failures import COMPLETED, documented
from .inspect import at_option, found_run, message_id, print_status
from .options import Common, common_options, load_registry
from .output import confirmed, print_either, tell
from .rendering import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from acts_celery.worker.client.runs import Run


_MANY: Final = 100
"""So many calls are not given up on a terminal without a question."""
_yes_option = click.option(
    "--yes", "-y", is_flag=True, help="Do not ask. On a terminal it asks first if much would end."
)


@click.command(short_help="Begin no more calls of a run until it is resumed.")
@click.argument("run", metavar="RUN")
@common_options
def pause(run: str, *, common: Common) -> int:
    """Begin no more calls of RUN. Calls at work end, and their results count. `acts resume` goes on.

    Exit codes: 0 paused, 3 no server, 4 no such run, or it is over.
    """
    return _order(run, common, lambda found: found.pause())


@click.command(short_help="Go on with a paused run.")
@click.argument("run", metavar="RUN")
@click.option(
    "--ticks", type=click.IntRange(min=1), metavar="N", help="Let its loop ask N more times, also if it has failed."
)
@common_options
def resume(run: str, ticks: int | None, *, common: Common) -> int:
    """Go on with RUN, which was paused; with --ticks also with a loop that has reached a limit.

    Exit codes: 0 under way, 3 no server, 4 no such run, or it is over.
    """
    return _order(run, common, lambda found: found.resume(ticks=ticks))


@click.command(short_help="End a run now; results that come later do not count.")
@click.argument("run", metavar="RUN")
@_yes_option
@common_options
def cancel(run: str, yes: bool, *, common: Common) -> int:
    """End RUN now. Calls at work are stopped where that is possible; results that come later do not count.

    Exit codes: 0 cancelled, 3 no server, 4 no such run, or it is over.
    """

    def order(found: Run) -> None:
        counts = found.status()["calls"]
        left = sum(counts.get(status, 0) for status in ("waiting", "running", "held"))
        if left >= _MANY and not yes:
            confirmed(f"end run {found.id} with {counted(left, 'call')} that have not ended?")
        found.cancel()

    return _order(run, common, order)


@click.command(short_help="Begin a new run from a moment of another run.")
@click.argument("run", metavar="RUN")
@at_option
@click.option("--paused", is_flag=True, help="Do not begin yet: amend or resume it first.")
@common_options
def fork(run: str, at: str | None, paused: bool, *, common: Common) -> int:
    """Begin a new run from what RUN is now, or was at a past message, and print its id.

    Calls that had ended then are not carried out again, also those that had failed (use `acts retry`); all others are.
    RUN itself does not change.

    Exit codes: 0 forked, 3 no server, 4 no such run.
    """
    moment = message_id(at)
    with found_run(run, common) as found:
        document = found.fork(moment, paused=paused).status()
    if failed := document["calls"].get("failed", 0):
        tell(f"failed calls: {failed}; `acts retry {document['run']}` carries them out again")
    print_either(document, [document["run"]], as_json=common.json)
    return COMPLETED


@click.command(short_help="Replace the calls of a run that have not begun.")
@click.argument("run", metavar="RUN")
@click.argument("file")
@click.option("--add", is_flag=True, help="Add the calls and replace none, also in a run that has completed or failed.")
@_yes_option
@common_options
def amend(run: str, file: str, add: bool, yes: bool, *, common: Common) -> int:
    """Put the calls of FILE (or - for standard input) in place of those of RUN that have not begun.

    FILE holds {"calls": […]}, and "tools" and "delegates" if they are needed. The new calls see all data of the run.
    Replaced calls end as skipped; calls at work go on. A run that is running is paused meanwhile.

    Exit codes: 0 amended, 2 rejected and nothing changed, 3 no server, 4 no such run, or it is over.
    """
    from .source import read_amendment

    with documented(as_json=common.json, has_status=True):
        settings = common.settings()
        value = read_amendment(file, settings)
        load_registry(settings)
        with found_run(run, common) as found:
            if value.get("calls") == [] and not add and not yes:
                confirmed(f"put nothing in place of the calls of run {found.id} that have not begun?")
            found.amend(value, add=add)
            document = found.status()
    print_status(document, common)
    return COMPLETED


@click.command(short_help="Add a text that the next request of a loop shows.")
@click.argument("run", metavar="RUN")
@click.argument("text", metavar="TEXT")
@click.option("--file", "files", multiple=True, metavar="PATH", help="Also a picture, PDF or text; repeatable.")
@common_options
def say(run: str, text: str, files: tuple[str, ...], *, common: Common) -> int:
    """Add TEXT to the context of RUN's loop, whose next request shows it. A loop that has ended goes on.

    Exit codes: 0 said, 2 a file cannot be taken, 3 no server, 4 no such run, no loop, or it was cancelled.
    """
    return _order(run, common, lambda found: found.say([text, *map(Path, files)]))


@click.command(short_help="Add data messages to a run under way.")
@click.argument("run", metavar="RUN")
@click.argument("file")
@common_options
def send(run: str, file: str, *, common: Common) -> int:
    """Add the data messages of FILE (or - for standard input) to RUN: all of them or none.

    FILE holds a message such as {"type": "input", "input": {…}}, or a list of them; "_instance" names the instance.
    They are validated by the schema of the promise. Calls that wait for it go on.

    Exit codes: 0 added, 2 rejected and nothing added, 3 no server, 4 no such run, or it is over.
    """
    from .source import read_submission

    with documented(as_json=common.json, has_status=True):
        value = read_submission(file, common.settings())
        with found_run(run, common) as found:
            found.send(value)
            document = found.status()
    print_status(document, common)
    return COMPLETED


def _order(run: str, common: Common, order: Callable[[Run], None]) -> int:
    with found_run(run, common) as found:
        order(found)
        document = found.status()
    print_status(document, common)
    return COMPLETED
