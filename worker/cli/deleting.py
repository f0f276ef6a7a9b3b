"""`acts delete`: forgetting one run that has ended, or many."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from .bundles import bundled
from .choosing import SIZE, Chosen, chosen_options, done_with, print_undone
from .erasing import erase, erased_lines
from .failures import COMPLETED
from .inspect import found_run
from .options import Common, common_options
from .output import escaped, print_either
from .rendering import counted, size_words, span, status_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acts_celery.worker.client.client import Client
    from acts_celery.worker.client.deleting import DeletableRun, DeletableRuns


@dataclass(frozen=True, slots=True)
class OfOne:
    """How one run is deleted."""

    instances: tuple[str, ...] = ()
    foreign: bool = False


of_one_options: Final = bundled(
    "of_one",
    OfOne,
    click.option(
        "--instance",
        "instances",
        multiple=True,
        metavar="I",
        help="Only what RUN, or each run, holds of it; repeatable.",
    ),
    click.option("--foreign", is_flag=True, help="RUN is another version's, which is not there any more to end it."),
)


@click.command(short_help="Forget runs that have ended, one or many.")
@click.argument("run", metavar="[RUN]", required=False)
@chosen_options
@of_one_options
@click.option("--free", type=SIZE, metavar="SIZE", help="Only as many as take so much memory: 500MB.")
@click.option("--largest", is_flag=True, help="The largest first, not those that ended first.")
@click.option("--yes", "-y", is_flag=True, help="Delete them. Without it many runs are only listed.")
@common_options
def delete(
    run: str | None, *, chosen: Chosen, of_one: OfOne, free: float | None, largest: bool, yes: bool, common: Common
) -> int:
    """Forget RUN, which has ended: its log, its values, its child runs and dead letters, everything.

    Or all runs that the options choose: without --yes they are only listed, with what deleting them would free. Runs
    under way stay, and so do those with calls that were sent and forgotten and are not done. It is done a few runs at a
    time; if it is interrupted, the same command goes on.

    With --instance only what RUN, which has ended, holds of that instance: its messages, calls, files, child runs and
    dead letters. Without RUN the same of every run that has ended, or of those that the options choose: they are listed
    first, too. It is said what may hold data of it and stays.

    Exit codes: 0 deleted, or listed, 3 no server, 4 no such run, or it is not over.
    """
    if run is None and of_one.instances and not (of_one.foreign or free is not None or largest):
        return erase(of_one.instances, chosen, common, yes=yes)
    if (run is None) != (bool(chosen) or free is not None or largest):
        raise click.UsageError("name a run, or say which: --older-than, --status, --name, --free, --largest")
    if run is not None:
        return _delete_one(run, of_one, common)
    if of_one != OfOne():
        raise click.UsageError("--foreign is for one run: name it; with --instance go no --free and --largest")
    from acts_celery.worker.client.client import Client

    with Client(common.settings()) as client:
        most = int(free) if free is not None else None
        choice = client.deletable_runs(**chosen.criteria(), free_bytes=most, is_largest_first=largest)
        if not yes:
            sums = [f"would delete {_amount(choice.runs)}", *_stay(choice)]
            document = _document(choice.runs, choice, is_deleted=False)
            print_undone(choice.runs, _line, sums, document, as_json=common.json)
            return COMPLETED
        _delete(client, choice, common)
    return COMPLETED


def _delete_one(run: str, of_one: OfOne, common: Common) -> int:
    """Delete a run, or what it holds of some instances."""
    if of_one.instances and of_one.foreign:
        raise click.UsageError("of another version's run no instance can be deleted: leave out --instance or --foreign")
    with found_run(run, common) as found:
        if not of_one.instances:
            gone = found.delete(foreign=of_one.foreign)
            print_either(gone.to_dict() | {"deleted": True}, [_deleted(gone)], as_json=common.json)
            return COMPLETED
        erased = found.delete_instances(*of_one.instances)
    print_either(erased.to_dict() | {"deleted": True}, erased_lines(erased), as_json=common.json)
    return COMPLETED


def _delete(client: Client, choice: DeletableRuns, common: Common) -> None:
    gone = done_with(client.delete_runs(choice.runs), lambda done: f"{_amount(done)} deleted")
    lines = [f"deleted {_amount(gone)}", *_stay(choice)]
    if left := len(choice.runs) - len(gone):
        lines.append(f"stay: {counted(left, 'run')} to which calls were added meanwhile")
    print_either(_document(gone, choice, is_deleted=True), lines, as_json=common.json)


def _document(runs: Sequence[DeletableRun], choice: DeletableRuns, *, is_deleted: bool) -> dict[str, Any]:
    return {
        "deleted": is_deleted,
        "bytes": sum(run.bytes for run in runs),
        "kept": dict(choice.kept),
        "runs": [run.to_dict() for run in runs],
    }


def _amount(runs: Sequence[DeletableRun]) -> str:
    """`3 runs (1 child run, 2 dead letters), 4.5 MB`."""
    children, letters = sum(len(run.children) for run in runs), sum(run.dead_letters for run in runs)
    parts = [counted(children, "child run")] if children else []
    parts += [counted(letters, "dead letter")] if letters else []
    more = f" ({', '.join(parts)})" if parts else ""
    return f"{counted(len(runs), 'run')}{more}, {size_words(sum(run.bytes for run in runs))}"


def _stay(choice: DeletableRuns) -> list[str]:
    kept = ", ".join(f"{number} {why}" for why, number in choice.kept.items())
    return [f"stay: {kept}"] if kept else []


def _line(run: DeletableRun) -> str:
    """One run that would be deleted."""
    ago = f"{span((datetime.now(UTC) - run.finished).total_seconds())} ago" if run.finished is not None else ""
    parts = (run.run, escaped(run.name or ""), status_word(run.status), ago, size_words(run.bytes))
    return "  ".join(part for part in parts if part)


def _deleted(run: DeletableRun) -> str:
    with_it = f", with {counted(len(run.children), 'child run')}" if run.children else ""
    calls = counted(run.outstanding, "call")
    lost = f"; {calls} sent and forgotten, not done, and not sent again now" if run.outstanding else ""
    return f"run {run.run} is deleted{with_it}: {size_words(run.bytes)}{lost}"
