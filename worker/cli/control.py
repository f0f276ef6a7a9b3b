"""`acts pause`, `acts resume`, `acts cancel`: orders to a run (SPEC R11.1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .inspect import at_option, found_run, message_id, print_status
from .options import (
    COMPLETED,
    REJECTED,
    SIZE,
    Chosen,
    Common,
    Failed,
    bundled,
    chosen_options,
    common_options,
    documented,
    done_with,
    load_registry,
    print_undone,
)
from .output import (
    confirmed,
    counted,
    escaped,
    print_either,
    print_text,
    size_words,
    span,
    status_word,
    tell,
    value_lines,
)

if TYPE_CHECKING:
    from ..client.client import Client
    from ..client.deleting import DeletableRun, DeletableRuns, ErasableRun, ErasableRuns, Erased
    from ..client.retrying import Retried
    from ..client.run import Run
    from ..store.waiting import DeadLetter, DeadLetters


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


# `acts retry`: failed calls again, in the same run, or taken as done with a value given.

_MOST_NAMED: Final = 20
"""How many stale calls are named at a terminal; --json has all."""


@click.command(short_help="Do failed calls of a run again.")
@click.argument("run", metavar="RUN")
@click.option("--call", type=click.IntRange(min=0), metavar="INDEX", help="Only this call, in all instances.")
@click.option("--instance", metavar="I", help="Only calls of this instance.")
@click.option(
    "--skip",
    is_flag=False,
    flag_value="null",
    metavar="[JSON]",
    help="Do not carry them out: they count as done with this value (null without one).",
)
@click.option(
    "--downstream", is_flag=True, help="Also do again what has used their results, and what was stale before."
)
@click.option(
    "--effects", is_flag=True, help="With --downstream: also calls with effects, and what was sent and forgotten."
)
@common_options
def retry(run: str, call: int | None, instance: str | None, skip: str | None, *, common: Common, **extent: bool) -> int:
    """Do the failed calls of RUN again, in RUN itself, and decide anew on what was skipped for them.

    A run that has ended goes on. Calls that have used what is written anew are stale: they are named, and --downstream
    carries them out again. Calls that were sent and forgotten are sent again by `acts dead resend`.

    Exit codes: 0 under way, 2 the value does not fit, 3 no server, 4 no such run, or nothing to do again.
    """
    if extent["effects"] and not extent["downstream"]:
        raise Failed("--effects says what --downstream does again: give both", REJECTED)
    value = _value(skip) if skip is not None else None
    with found_run(run, common) as found:
        done = found.retry(call=call, instance=instance, skip=skip is not None, value=value, **extent)
        document = found.status()
    for line in _told(done, is_given=skip is not None, **extent):
        tell(line)
    print_status(document | done.to_dict(), common)
    return COMPLETED


def _told(done: Retried, *, is_given: bool, downstream: bool, effects: bool) -> Iterator[str]:
    again = "taken as done" if is_given else "tried again"
    more = f", {counted(len(done.downstream), 'call')} behind them done again" if downstream else ""
    skipped = counted(len(done.skipped), "skipped call")
    yield f"{counted(len(done.calls), 'failed call')} {again}, {skipped} decided anew{more}"
    if done.stale:
        remedy = "--downstream carries them out again"
        if downstream:
            remedy = "at work, not done again" if effects else "at work, with effects (--effects), or sent (--effects)"
        yield f"{counted(len(done.stale), 'call')} stale: {_names(done.stale)}; {remedy}"


def _names(calls: Sequence[str]) -> str:
    more = f" and {len(calls) - _MOST_NAMED} more" if len(calls) > _MOST_NAMED else ""
    return escaped(", ".join(calls[:_MOST_NAMED])) + more


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        hint = f"""a text is written as '"{text}"'""" if text.isprintable() and '"' not in text else "see `--help`"
        raise Failed(f"--skip: {text!r} is not JSON ({error}); {hint}", REJECTED) from None


# `acts dead`: fire-and-forget calls that failed for good (SPEC R5.3).


@click.group(
    no_args_is_help=False, short_help="List, show, resend and drop fire-and-forget calls that failed for good."
)
def dead() -> None:
    """Fire-and-forget calls that failed after their retries, or whose workers died again and again."""


@dead.command("list", short_help="Print them, the oldest first.")
@click.option("--run", metavar="RUN", help="Only those of this run.")
@common_options
def list_(run: str | None, *, common: Common) -> int:
    """Print all dead letters, or those of one run, the oldest first, one line each.

    Exit codes: 0 also where there are none, 3 no server, 4 no such run.
    """
    with _letters(common) as (client, letters):
        found = letters.list(client.find(run).id if run is not None else None)
    for letter in found:
        print_either(letter.to_dict(), [_line(letter)], as_json=common.json)
    if not found and not common.json:
        print_text("no dead letters")
    return COMPLETED


@dead.command(short_help="Print one, with the parameters and scopes that were sent.")
@click.argument("id_", metavar="ID")
@common_options
def show(id_: str, *, common: Common) -> int:
    """Print the dead letter ID, with the parameters and scopes its call was sent with.

    Exit codes: 0 found, 3 no server, 4 no such call.
    """
    with _letters(common) as (_, letters):
        letter = letters.get(id_)
    document = letter.to_dict() | {"body": letter.body}
    print_either(document, (_line(letter), *value_lines(letter.body, 2)), as_json=common.json)
    return COMPLETED


@dead.command(short_help="Send calls again, with all their attempts.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every one there is.")
@common_options
def resend(ids: tuple[str, ...], is_all: bool, *, common: Common) -> int:
    """Send calls again, with all their attempts. A running instance worker does so within a second or two.

    Exit codes: 0 done, 3 no server, 4 one of them is not there (then none is sent).
    """
    return _act(ids, is_all, common, "resent", lambda letters, chosen: letters.resend(chosen))


@dead.command(short_help="Forget calls for ever.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every one there is.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask. On a terminal --all asks first.")
@common_options
def drop(ids: tuple[str, ...], is_all: bool, yes: bool, *, common: Common) -> int:
    """Forget calls for ever.

    Exit codes: 0 done, 3 no server, 4 one of them is not there (then none is dropped).
    """

    def forget(letters: DeadLetters, chosen: tuple[str, ...]) -> None:
        if is_all and not yes:
            confirmed(f"forget {counted(len(chosen), 'call')} for ever?")
        letters.drop(chosen)

    return _act(ids, is_all, common, "dropped", forget)


@contextmanager
def _letters(common: Common) -> Iterator[tuple[Client, DeadLetters]]:
    from ..client.client import Client

    with Client(common.settings()) as client:
        yield client, client.dead_letters()


def _act(
    ids: tuple[str, ...], is_all: bool, common: Common, done: str, act: Callable[[DeadLetters, tuple[str, ...]], None]
) -> int:
    if bool(ids) == is_all:
        raise click.UsageError("name the calls by their ids, or give --all")
    with _letters(common) as (_, letters):
        chosen = tuple(letter.id for letter in letters.list()) if is_all else ids
        act(letters, chosen)
    print_either({done: list(chosen)}, [f"{counted(len(chosen), 'call')} {done}"], as_json=common.json)
    return COMPLETED


def _line(letter: DeadLetter) -> str:
    document = letter.to_dict()
    name = document["activity"] or document["delegate"] or "?"
    where = f"{escaped(name)} on {letter.task.queue}, {counted(letter.attempts, 'attempt')}"
    error = escaped(f"{letter.error_type}: {letter.error_message}")
    return f"{letter.date}  {escaped(letter.id)}  {where}  {error}"


# `acts delete --instance I`: what all runs hold of an instance, such as one person's data.

ELSEWHERE: Final = (
    "the names of the instances in the runs and their audit trails",
    "exported files, backups and the append-only file until it is rewritten",
    "logs and traces of workers, and what calls have written elsewhere",
)
"""Where data may stay that no command of ours deletes."""


def erase(instances: Sequence[str], chosen: Chosen, common: Common, *, yes: bool) -> int:
    """List the runs that hold something of instances; with `yes` delete that of each."""
    from ..client.client import Client

    with Client(common.settings()) as client:
        found = client.erasable_runs(instances, **chosen.criteria())
        if not yes:
            sums = [f"would delete of {counted(len(found.runs), 'run')}", *_kept(found)]
            document = {"deleted": False, "runs": [run.to_dict() for run in found.runs], **_more(found)}
            print_undone(found.runs, _erased_line, sums, document, as_json=common.json)
            return COMPLETED
        done = done_with(client.erase_instances(found.runs), _sum)
    lines = [line for erased in done for line in erased_lines(erased)]
    if left := len(found.runs) - len(done):
        lines.append(f"nothing of {counted(left, 'run')}: gone, or something was added meanwhile")
    lines += [_sum(done), *_kept(found), *(f"stays: {place}" for place in ELSEWHERE)]
    document = {"deleted": True, "runs": [erased.to_dict() for erased in done], **_more(found)}
    print_either(document, lines, as_json=common.json)
    return COMPLETED


def erased_lines(erased: Erased) -> list[str]:
    """What was deleted of one run, and what of it stays."""
    parts = [f"{erased.entries} entries of the log", counted(len(erased.children), "child run")]
    parts += [counted(erased.dead_letters, "dead letter"), counted(erased.files, "file")]
    called = ", ".join(escaped(instance) for instance in erased.instances)
    lines = [f"deleted of run {erased.run}, {called}: {', '.join(parts)}"]
    return [*lines, *(f"stays: {escaped(what)}" for what in erased.remains)]


def _sum(done: Sequence[Erased]) -> str:
    return f"deleted of {counted(len(done), 'run')}"


def _more(found: ErasableRuns) -> dict[str, object]:
    return {"kept": dict(found.kept), "elsewhere": list(ELSEWHERE)}


def _kept(found: ErasableRuns) -> list[str]:
    kept = ", ".join(f"{counted(number, 'run')} {why}" for why, number in found.kept.items())
    return [f"nothing is deleted of {kept}: end or cancel them first"] if kept else []


def _erased_line(run: ErasableRun) -> str:
    called = ", ".join(map(escaped, run.instances))
    return "  ".join(part for part in (run.run, escaped(run.name or ""), called) if part)


# `acts delete`: forgetting one run that has ended, or many.


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
    from ..client.client import Client

    with Client(common.settings()) as client:
        most = int(free) if free is not None else None
        choice = client.deletable_runs(**chosen.criteria(), free_bytes=most, is_largest_first=largest)
        if not yes:
            sums = [f"would delete {_amount(choice.runs)}", *_stay(choice)]
            document = _document(choice.runs, choice, is_deleted=False)
            print_undone(choice.runs, _deleted_line, sums, document, as_json=common.json)
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


def _deleted_line(run: DeletableRun) -> str:
    """One run that would be deleted."""
    ago = f"{span((datetime.now(UTC) - run.finished).total_seconds())} ago" if run.finished is not None else ""
    parts = (run.run, escaped(run.name or ""), status_word(run.status), ago, size_words(run.bytes))
    return "  ".join(part for part in parts if part)


def _deleted(run: DeletableRun) -> str:
    with_it = f", with {counted(len(run.children), 'child run')}" if run.children else ""
    calls = counted(run.outstanding, "call")
    lost = f"; {calls} sent and forgotten, not done, and not sent again now" if run.outstanding else ""
    return f"run {run.run} is deleted{with_it}: {size_words(run.bytes)}{lost}"
