"""`acts runs`, `acts wait`: which runs there are, and until one ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import limits
from ..health_file import health_files, read_health
from .inspect import at_option, message_id
from .options import COMPLETED, FAILED, REJECTED, RUN, UNAVAILABLE, Common, Failed, command
from .output import (
    call_name,
    cost_line,
    counts_line,
    escaped,
    heading,
    inline,
    print_json,
    print_text,
    shortened,
    span,
    status_word,
    tell,
)
from .progress import View, print_result, view_options

if TYPE_CHECKING:
    from ...protocol.analysis.provenance import Explanation, Origin
    from ..client.deployments import Summary
    from ..client.progress import Event
    from ..client.results import RunStatus
    from ..client.run import Run


STATUSES: Final = ("running", "paused", "completed", "failed", "cancelled")
"""What `--status` may be."""


@command("Print the runs that are kept, the newest first.")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs of this status.")
@click.option("--name", metavar="TEXT", help="Only runs of this name or with this tag.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=limits.RUNS_MOST,
    show_default=True,
    metavar="N",
    help="At most so many.",
)
def runs(status: RunStatus | None, name: str | None, limit: int, *, common: Common) -> None:
    """Print the newest runs: id, name and tags, status, calls, age, duration, cost. With --json one document a line.

    Runs that have ended are listed for as long as they are kept.

    Exit codes: 0 also where there are none, 3 no server.
    """

    with common.client() as client:
        found = list(islice(client.runs(status=status, name=name), limit))
    for summary in found:
        common.print(summary.to_dict(), [_run_line(summary)])
    if not found and not common.json:
        print_text("no runs")


@command("Block until a run ends.")
@RUN
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Give up after this long."
)
@view_options
def wait(run: str, timeout: float | None, *, view: View, common: Common) -> int:
    """Block until RUN has ended, and print its result as `acts run` does.

    Exit codes: 0 completed, 1 failed or cancelled, 3 no server, or timeout, 4 no such run.
    """
    from . import progress

    with common.found(run) as found:
        try:
            progress.wait(found, _tell_of_held(found), timeout_seconds=timeout, is_quiet=view.is_quiet)
        except TimeoutError:
            raise Failed(f"run {found.id} is not over in time ({counts_line(found.status()['calls'])})") from None
        document = found.result(waits=common.json).to_dict()
    print_result(document, view, as_json=common.json)
    return COMPLETED if document["status"] == "completed" else FAILED


def _run_line(summary: Summary) -> str:
    called = " ".join(escaped(text) for text in (summary.name or "", *(f"#{tag}" for tag in summary.tags)) if text)
    times = f"{span(summary.age_seconds)} ago, {'took' if summary.finished else 'for'} {span(summary.duration_seconds)}"
    stands = (status_word(summary.status), counts_line(summary.calls), times, cost_line(summary.cost))
    parts = (summary.run, called, *stands)
    return "  ".join(part for part in parts if part)


def _tell_of_held(run: Run) -> Callable[[Event], None]:
    """What says once that a call waits for a person, however many do."""
    is_told = False

    def take(event: Event) -> None:
        nonlocal is_told
        if event.kind == "held" and not is_told and run.held():
            is_told = True
            tell(f"a call waits for a person: acts held {run.id}, then acts approve or acts reject")

    return take


# `acts explain`: which messages of the log a value came from (SPEC R11.2).

_COLOURS: Final = {"contributes": "green", "overwritten": "yellow", "removes": "yellow", "conflict": "red"}


@command("Print where a value came from, or why it is not there.")
@RUN
@click.argument("path", metavar="'†KIND.PATH'")
@click.option("--instance", metavar="I", help="The value as this instance sees it.")
@at_option
def explain(run: str, path: str, instance: str | None, at: str | None, *, common: Common) -> None:
    """Print the messages that the value at a path of RUN came from, what is left of each, and what their calls had
    read. If there is no value: the calls that may write it, and how they ended. The † may be left out.

    Exit codes: 0 found, also where there is no value, 2 not a path, 3 no server, 4 no such run or instance.
    """
    from ...protocol import ExpressionError
    from ...protocol.paths import MISSING

    moment = message_id(at)
    with common.found(run) as found:
        try:
            explanation = found.explain(path, instance=instance, at=moment)
            is_absent = explanation.value is MISSING and explanation.conflict is None
            absence = found.explain_absence(path, instance=instance, at=moment) if is_absent else None
        except ExpressionError as error:
            raise click.BadParameter(str(error), param_hint="PATH") from error
    document = _document(explanation) | {"run": found.id, "instance": instance}
    document |= {"absence": absence.to_dict()} if absence is not None else {}
    common.print(document, _lines(document))


def _document(explanation: Explanation) -> dict[str, Any]:
    """As JSON; `value` is there only where there is one."""
    return {
        "path": str(explanation.reference),
        **_valued(explanation.value),
        "conflict": explanation.conflict,
        "messages": [_origin_lines(origin) for origin in explanation.origins],
    }


def _origin_lines(origin: Origin) -> dict[str, Any]:
    message = origin.logged.message
    is_gathered = (message.get("_call") or {}).get("_gather") is True
    return {
        "id": origin.logged.id,
        "instance": origin.logged.instance,
        "path": str(origin.operation.place),
        "method": origin.operation.method.value,
        "value": origin.operation.value,
        "effect": origin.effect.value,
        "index": origin.logged.call,
        "call": message.get("_call"),
        "date": message.get("_date"),
        "reads": [
            {"path": read.reference, **_valued(read.value), **({"gathered": True} if is_gathered else {})}
            for read in origin.reads
        ],
    }


def _valued(value: Any) -> dict[str, Any]:
    from ...protocol.paths import MISSING

    return {} if value is MISSING else {"value": value}


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    where = "" if document["instance"] is None else f" in {escaped(document['instance'])}"
    yield f"{heading(document['path'])}{where} {_value(document, document['conflict'])}"
    for message in document["messages"]:
        effect = click.style(message["effect"], fg=_COLOURS[message["effect"]])
        what = f"{message['method']} {escaped(message['path'])} {_value(message)}"
        yield f"{click.style(message['id'], dim=True)}  {effect}  {_writer(message)}: {what}"
        for read in message["reads"]:
            what = "from every instance that has it" if "gathered" in read else _value(read)
            yield f"    had read {escaped(read['path'])} {what}"
    if not document["messages"]:
        yield "no message says anything of it" + ("" if where else "; --instance I looks into an instance")
    if "absence" in document:
        yield from _absence_lines(document["absence"])


def _absence_lines(absence: Mapping[str, Any]) -> Iterator[str]:
    for writer in absence["writers"]:
        name = call_name(writer["index"], writer["tool"])
        where = f" in {escaped(writer['instance'])}" if writer["instance"] is not None else ""
        error = writer["error"]
        cause = f"{error.get('type')}: {error.get('message')}" if error is not None else writer["reason"]
        why = f": {escaped(shortened(cause, limits.LONGEST * 3))}" if cause else ""
        whom = f", which call {writer['needed_by']} lacks" if writer["needed_by"] is not None else ""
        places = escaped(", ".join(writer["places"]))
        yield f"  call {name}{where} writes {places}{whom}: {status_word(writer['status'])}{why}"
    if "promised" in absence:
        yield "a schema has promised it and it has not come: `acts send` brings it"
    elif not absence["writers"]:
        yield "no call writes there"
    if absence["near"] is not None:
        yield f"did you mean {escaped(absence['near'])}?"
    if absence["instances"]:
        yield f"it is there in {escaped(', '.join(absence['instances']))}"


def _value(holder: Mapping[str, Any], conflict: str | None = None) -> str:
    if conflict is not None:
        return f"cannot be read: {escaped(conflict)}"
    if "value" not in holder:
        return "is not there"
    return "= " + shortened(inline(holder["value"]), limits.LONGEST)


def _writer(message: Mapping[str, Any]) -> str:
    if message["index"] is None:
        return "given" if message["instance"] is None else f"given to {escaped(message['instance'])}"
    tool = message["call"]["_tool"] if message["call"] is not None else "failed"
    return f"call {call_name(message['index'], tool)}"


# `acts health`: whether the workers of this machine are well, without asking a server: what a container's check runs.
#
# A worker writes how it is into `ACTS_HEALTH_FOLDER` (`worker/runner/runtime.py`); one that has not for long does
# not work.


@command("Say whether the workers of this machine are well.")
def health(*, common: Common) -> int:
    """Say of each worker that writes into ACTS_HEALTH_FOLDER whether it takes messages and looks for lost calls.

    No server is asked, so it needs no permission on one.

    Exit codes: 0 all are well, 2 no folder is set, 3 one is not well, or there is none.
    """
    folder = common.settings().health_folder
    if folder is None:
        raise Failed("set ACTS_HEALTH_FOLDER, for the workers and for this command", REJECTED)
    workers = [_examine(file) for file in health_files(Path(folder))]
    is_well = bool(workers) and not any(worker["problems"] for worker in workers)
    if common.json:
        print_json({"ok": is_well, "workers": workers})
        return COMPLETED if is_well else UNAVAILABLE
    for worker in workers:
        said = "; ".join(f"{what} {problem}" for what, problem in worker["problems"].items())
        print_text(escaped(f"{worker['worker']}: {said or 'ok'}"))
    if not workers:
        print_text(escaped(f"no worker has written into {folder}"))
    return COMPLETED if is_well else UNAVAILABLE


def _examine(file: Path) -> dict[str, Any]:
    """What a worker has written, and whether that was long ago."""
    try:
        found = read_health(file)
        silent_seconds = time.time() - file.stat().st_mtime
    except (OSError, ValueError, RecursionError) as error:
        return {"worker": file.stem, "problems": {"its file": f"cannot be read: {type(error).__name__}"}}
    problems = dict(found.problems)
    if not found.is_alive:
        problems["it"] = f"is dead: there is no process {found.pid}"
    elif silent_seconds > limits.OLD_SECONDS:
        problems["it"] = f"has given no sign of life for {silent_seconds:.0f} s"
    return {"worker": found.worker, "problems": problems}
