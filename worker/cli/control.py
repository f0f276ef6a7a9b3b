"""Commands that control a run (SPEC R11.1), delete runs, and send dead letters again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import limits
from ..actions import ACTIONS
from .options import (
    REJECTED,
    RUN,
    SIZE,
    ChosenRuns,
    Common,
    Decorator,
    Failed,
    chosen_options,
    command,
    done_with,
    load_registry,
    option,
    option_group,
    print_undone,
)
from .output import confirmed, counted, escaped, print_text, size_words, span, status_word, tell, value_lines
from .runs import at_option, message_id, print_status
from .source import read_amendment, read_submission

if TYPE_CHECKING:
    from ..client.run import Run
    from ..store.waiting import DeadLetter, DeadLetters

Parameters = dict[str, Any]
"""Values of options by name, or the parameters of an action."""


def action_command(
    name: str,
    *options: Decorator,
    read: Callable[[Common, Parameters], Parameters] = lambda _, given: given,
    ask: Callable[[Run, Parameters], None] = lambda found, given: None,
    show: Callable[[Parameters, Parameters, Common], None] = lambda document, _, common: print_status(document, common),
    is_documented: bool = False,
) -> click.Command:
    """Make the command of an action.

    `read` makes the action's parameters of the options, `ask` may ask for confirmation, `show` prints the result. With
    `is_documented`, --json prints an error as a document too.
    """
    action = ACTIONS[name]

    def order(run: str, *, common: Common, yes: bool = False, **given: Any) -> None:
        with common.documented() if is_documented else nullcontext():
            given = read(common, given)
            with common.found(run) as found:
                if not yes:
                    ask(found, given)
                done = action.do(found, **given)
                document = done if "run" in done else found.status() | done
        show(document, given, common)

    decorators: list[Any] = [RUN, *options]
    function: Any = order
    for add in reversed(decorators):
        function = add(function)
    return command(action)(function)


_yes_option = click.option(
    "--yes", "-y", is_flag=True, help="Do not ask. On a terminal it asks first if much would end."
)


def _ask_to_cancel(found: Run, _: Parameters) -> None:
    counts = found.status()["calls"]
    left = sum(counts.get(status, 0) for status in ("waiting", "running", "held", "unknown"))
    if left >= limits.CONTROL_MANY:
        confirmed(f"end run {found.id} with {counted(left, 'call')} that have not ended?")


def _read_amendment(common: Common, given: Parameters) -> Parameters:
    settings = common.settings()
    amendment = read_amendment(given.pop("file"), settings)
    load_registry(settings)
    return given | {"amendment": amendment}


def _ask_to_amend(found: Run, given: Parameters) -> None:
    if given["amendment"].get("calls") == [] and not given["add"]:
        confirmed(f"put nothing in place of the calls of run {found.id} that have not begun?")


def _print_fork(document: Parameters, _: Parameters, common: Common) -> None:
    if failed := document["calls"].get("failed", 0):
        tell(f"failed calls: {failed}; `acts retry {document['run']}` runs them again")
    common.print(document, [document["run"]])


pause = action_command("pause")
resume = action_command(
    "resume",
    click.option(
        "--ticks", type=click.IntRange(min=1), metavar="N", help="Let its loop ask N more times, also if it has failed."
    ),
)


def _read_moment(_: Common, given: Parameters) -> Parameters:
    text: str = given["until"]
    try:
        return given | {"until": float(text)}
    except ValueError:
        return given


move = action_command("move", click.argument("call"), click.argument("until"), read=_read_moment)


def _print_cancelled(document: Parameters, given: Parameters, common: Common) -> None:
    for line in document.get("not_undone", ()):
        tell(f"not undone: {line}")
    if given["undo"]:
        undoing = document["undo"]
        tell(f"run {undoing} undoes {counted(document['undone'], 'call')}" if undoing else "there is nothing to undo")
    print_status(document, common)


cancel = action_command(
    "cancel",
    click.option("--undo", is_flag=True, help="Run the activities that undo its finished calls."),
    _yes_option,
    ask=_ask_to_cancel,
    show=_print_cancelled,
)
fork = action_command(
    "fork",
    at_option,
    click.option("--paused", is_flag=True, help="Do not begin yet: amend or resume it first."),
    read=lambda _, given: given | {"at": message_id(given["at"])},
    show=_print_fork,
)
amend = action_command(
    "amend",
    click.argument("file"),
    click.option(
        "--add", is_flag=True, help="Add the calls and replace none, also in a run that has completed or failed."
    ),
    _yes_option,
    read=_read_amendment,
    ask=_ask_to_amend,
    is_documented=True,
)
say = action_command(
    "say",
    click.argument("text", metavar="TEXT"),
    click.option("--file", "files", multiple=True, metavar="PATH", help="Also a picture, PDF or text; repeatable."),
    read=lambda _, given: {"message": [given["text"], *map(Path, given["files"])]},
)
send = action_command(
    "send",
    click.argument("file"),
    read=lambda common, given: {"messages": read_submission(given["file"], common.settings())},
    is_documented=True,
)


# `acts retry`: failed calls run again in the same run, or count as done with a value.


def _read_retry(_: Common, given: Parameters) -> Parameters:
    if given["effects"] and not given["downstream"]:
        raise Failed("--effects says what --downstream does again: give both", REJECTED)
    text = given.pop("skip")
    return given if text is None else given | {"skip": True, "value": _value(text)}


def _print_retry(document: Parameters, given: Parameters, common: Common) -> None:
    from ...protocol.errors import some_of

    again = "taken as done" if "skip" in given else "tried again"
    behind = counted(len(document["downstream"]), "call")
    more = f", {behind} behind them done again" if given["downstream"] else ""
    skipped = counted(len(document["reconsidered"]), "skipped call")
    tell(f"{counted(len(document['retried']), 'failed call')} {again}, {skipped} decided anew{more}")
    if stale := document["stale"]:
        remedy = "--downstream runs them again"
        if given["downstream"]:
            remedy = "not done again" if given["effects"] else "with effects (--effects), or sent (--effects)"
            remedy = f"at work, {remedy}"
        tell(f"{counted(len(stale), 'call')} stale (call {some_of(stale, limits.MOST_TOLD)}); {remedy}")
    print_status(document, common)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        hint = f"""a text is written as '"{text}"'""" if text.isprintable() and '"' not in text else "see `--help`"
        raise Failed(f"--skip: {text!r} is not JSON ({error}); {hint}", REJECTED) from None


retry = action_command(
    "retry",
    click.option("--call", type=click.IntRange(min=0), metavar="INDEX", help="Only this call, in all instances."),
    click.option("--instance", metavar="I", help="Only calls of this instance."),
    click.option(
        "--skip",
        is_flag=False,
        flag_value="null",
        metavar="[JSON]",
        help="Do not run them: they count as done with this value (null without one).",
    ),
    click.option(
        "--downstream", is_flag=True, help="Also do again what has used their results, and what was stale before."
    ),
    click.option(
        "--effects", is_flag=True, help="With --downstream: also calls with effects, and fire-and-forget calls."
    ),
    read=_read_retry,
    show=_print_retry,
)


# `acts dead`: fire-and-forget calls that failed for good (SPEC R5.3).


@click.group(
    no_args_is_help=False, short_help="List, show, resend and drop fire-and-forget calls that failed for good."
)
def dead() -> None:
    """Fire-and-forget calls that failed after their retries, or whose workers died again and again."""


@command("Print them, the oldest first.", "list", into=dead)
@click.option("--run", metavar="RUN", help="Only those of this run.")
def list_(run: str | None, *, common: Common) -> None:
    """Print all dead letters, or those of one run, the oldest first, one line each.

    Exit codes: 0 also where there are none, 3 no server, 4 no such run.
    """
    with common.client() as client:
        found = client.dead_letters().list(client.find(run).id if run is not None else None)
    for letter in found:
        common.print(letter.to_dict(), [_line(letter)])
    if not found and not common.json:
        print_text("no dead letters")


@command("Print one, with the parameters and scopes that were sent.", into=dead)
@click.argument("id_", metavar="ID")
def show(id_: str, *, common: Common) -> None:
    """Print the dead letter ID, with the parameters and scopes its call was sent with.

    Exit codes: 0 found, 3 no server, 4 no such call.
    """
    with common.client() as client:
        letter = client.dead_letters().get(id_)
    document = letter.to_dict() | {"body": letter.body}
    common.print(document, (_line(letter), *value_lines(letter.body, 2)))


@command("Send calls again, with all their attempts.", into=dead)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All dead letters.")
def resend(ids: tuple[str, ...], is_all: bool, *, common: Common) -> None:
    """Send calls again, with all their attempts. A running instance worker does so within a second or two.

    Exit codes: 0 done, 3 no server, 4 one of them is not there (then none is sent).
    """
    _act(ids, is_all, common, "resent", lambda letters, chosen: letters.resend(chosen))


@command("Delete dead letters for good.", into=dead)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All dead letters.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask. On a terminal --all asks first.")
def drop(ids: tuple[str, ...], is_all: bool, yes: bool, *, common: Common) -> None:
    """Delete dead letters for good.

    Exit codes: 0 done, 3 no server, 4 one of them is not there (then none is dropped).
    """

    def forget(letters: DeadLetters, chosen: tuple[str, ...]) -> None:
        if is_all and not yes:
            confirmed(f"forget {counted(len(chosen), 'call')} for ever?")
        letters.drop(chosen)

    _act(ids, is_all, common, "dropped", forget)


def _act(
    ids: tuple[str, ...], is_all: bool, common: Common, done: str, act: Callable[[DeadLetters, tuple[str, ...]], None]
) -> None:
    if bool(ids) == is_all:
        raise click.UsageError("name the calls by their ids, or give --all")
    with common.client() as client:
        letters = client.dead_letters()
        chosen = tuple(letter.id for letter in letters.list()) if is_all else ids
        act(letters, chosen)
    common.print({done: list(chosen)}, [f"{counted(len(chosen), 'call')} {done}"])


def _line(letter: DeadLetter) -> str:
    document = letter.to_dict()
    name = document["activity"] or document["delegate"] or "?"
    where = f"{escaped(name)} on {letter.task.queue}, {counted(letter.attempts, 'attempt')}"
    error = escaped(f"{letter.error_type}: {letter.error_message}")
    return f"{letter.date}  {escaped(letter.id)}  {where}  {error}"


# `acts delete --instance I`: the data of one instance, such as one person, in all runs.

ELSEWHERE: Final = (
    "the names of the instances in the runs and their audit trails",
    "exported files, backups and the append-only file until it is rewritten",
    "logs and traces of workers, and what calls have written elsewhere",
)
"""Places of data that no command of ours deletes."""


def _erase(instances: Sequence[str], chosen: ChosenRuns, common: Common, *, yes: bool) -> None:
    """List the runs that have data of instances; with `yes` delete it."""
    with common.client() as client:
        found = client.erasable_runs(instances, **chosen.criteria())
        kept = [f"{counted(number, 'run')} {why}" for why, number in found.kept.items()]
        left = [f"nothing is deleted of {', '.join(kept)}: end or cancel them first"] if kept else []
        more = {"kept": dict(found.kept), "elsewhere": list(ELSEWHERE)}
        if not yes:
            sums = [f"would delete of {counted(len(found.runs), 'run')}", *left]
            document = {"deleted": False, "runs": [run.to_dict() for run in found.runs], **more}
            print_undone(document, _erased_line, sums, common)
            return
        done = done_with(client.erase_instances(found.runs), lambda done: f"deleted of {counted(len(done), 'run')}")
    documents = [erased.to_dict() for erased in done]
    lines = [line for erased in documents for line in erased_lines(erased)]
    if gone := len(found.runs) - len(done):
        lines.append(f"nothing of {counted(gone, 'run')}: gone, or something was added meanwhile")
    lines += [f"deleted of {counted(len(done), 'run')}", *left, *(f"stays: {place}" for place in ELSEWHERE)]
    common.print({"deleted": True, "runs": documents, **more}, lines)


def erased_lines(erased: Parameters) -> Iterator[str]:
    """Yield what was deleted of one run, and what stays."""
    counts = (("dead_letters", "dead letter"), ("files", "file"))
    parts = [f"{erased['entries']} entries of the log", counted(len(erased["children"]), "child run")]
    parts += [counted(erased[name], noun) for name, noun in counts]
    yield f"deleted of run {erased['run']}, {escaped(', '.join(erased['instances']))}: {', '.join(parts)}"
    yield from (f"stays: {escaped(what)}" for what in erased["remains"])


def _erased_line(run: Parameters) -> str:
    called = ", ".join(map(escaped, run["instances"]))
    return "  ".join(part for part in (run["run"], escaped(run["name"] or ""), called) if part)


# `acts delete`: deleting one run that has ended, or many.


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options for deleting one run."""

    instances: tuple[str, ...] = option(
        "--instance", multiple=True, metavar="I", help="Only what RUN, or each run, holds of it; repeatable."
    )
    foreign: bool = option(
        "--foreign", is_flag=True, help="RUN belongs to another version, of which no worker is left to end it."
    )


@command(ACTIONS["delete"])
@click.argument("run", metavar="[RUN]", required=False)
@chosen_options
@option_group("of_one", DeleteOptions)
@click.option("--free", type=SIZE, metavar="SIZE", help="Only as many as hold this much memory: 500MB.")
@click.option("--largest", is_flag=True, help="The largest first, not those that ended first.")
@click.option("--yes", "-y", is_flag=True, help="Delete them. Without it many runs are only listed.")
def delete(
    run: str | None,
    *,
    chosen: ChosenRuns,
    of_one: DeleteOptions,
    free: float | None,
    largest: bool,
    yes: bool,
    common: Common,
) -> None:
    """Delete one run, or what it holds of some instances; or many."""
    is_sized = free is not None or largest
    if run is None and of_one.instances and not (of_one.foreign or is_sized):
        _erase(of_one.instances, chosen, common, yes=yes)
        return
    if (run is None) != (bool(chosen) or is_sized):
        raise click.UsageError("name a run, or say which: --older-than, --status, --name, --free, --largest")
    if run is not None:
        _delete_one(run, of_one, common)
        return
    if of_one != DeleteOptions():
        raise click.UsageError("--foreign is for one run: name it; with --instance go no --free and --largest")
    with common.client() as client:
        most = int(free) if free is not None else None
        choice = client.deletable_runs(**chosen.criteria(), free_bytes=most, is_largest_first=largest)
        kept = ", ".join(f"{number} {why}" for why, number in choice.kept.items())
        stay = [f"stay: {kept}"] if kept else []
        found = [one.to_dict() for one in choice.runs]
        if not yes:
            sums = [f"would delete {_amount(found)}", *stay]
            print_undone(_document(found, choice.kept, is_deleted=False), _deleted_line, sums, common)
            return
        gone = (one.to_dict() for one in client.delete_runs(choice.runs))
        deleted = done_with(gone, lambda done: f"{_amount(done)} deleted")
    lines = [f"deleted {_amount(deleted)}", *stay]
    if left := len(found) - len(deleted):
        lines.append(f"stay: {counted(left, 'run')} to which calls were added meanwhile")
    common.print(_document(deleted, choice.kept, is_deleted=True), lines)


def _delete_one(run: str, of_one: DeleteOptions, common: Common) -> None:
    """Delete a run, or its data of some instances."""
    if of_one.instances and of_one.foreign:
        raise click.UsageError("of another version's run no instance can be deleted: leave out --instance or --foreign")
    with common.found(run) as found:
        done = ACTIONS["delete"].do(found, instances=of_one.instances or None, foreign=of_one.foreign)
    common.print(done | {"deleted": True}, erased_lines(done) if of_one.instances else [_deleted(done)])


def _document(runs: Sequence[Parameters], kept: Mapping[str, int], *, is_deleted: bool) -> Parameters:
    return {"deleted": is_deleted, "bytes": sum(run["bytes"] for run in runs), "kept": dict(kept), "runs": runs}


def _amount(runs: Sequence[Parameters]) -> str:
    """`3 runs (1 child run, 2 dead letters), 4.5 MB`."""
    children, letters = sum(len(run["children"]) for run in runs), sum(run["dead_letters"] for run in runs)
    numbers = (children, "child run"), (letters, "dead letter")
    parts = ", ".join(counted(number, noun) for number, noun in numbers if number)
    more = f" ({parts})" if parts else ""
    return f"{counted(len(runs), 'run')}{more}, {size_words(sum(run['bytes'] for run in runs))}"


def _deleted_line(run: Parameters) -> str:
    """Return a run that would be deleted, on one line."""
    finished = datetime.fromisoformat(run["finished"]) if run["finished"] is not None else None
    ago = f"{span((datetime.now(UTC) - finished).total_seconds())} ago" if finished is not None else ""
    parts = (run["run"], escaped(run["name"] or ""), status_word(run["status"]), ago, size_words(run["bytes"]))
    return "  ".join(part for part in parts if part)


def _deleted(run: Parameters) -> str:
    with_it = f", with {counted(len(run['children']), 'child run')}" if run["children"] else ""
    calls = counted(run["outstanding"], "fire-and-forget call")
    lost = f"; {calls} not done, and not sent again now" if run["outstanding"] else ""
    return f"run {run['run']} is deleted{with_it}: {size_words(run['bytes'])}{lost}"
