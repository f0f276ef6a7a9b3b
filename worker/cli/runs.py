"""`acts status`, `acts show`, `acts log`: what the log says of a run."""

from __future__ import annotations

import json
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import limits
from ..errors import InstanceDeleted, InstanceNotFound
from ..health_file import health_files, read_health
from .options import COMPLETED, FAILED, REJECTED, RUN, UNAVAILABLE, Common, Failed, command, option, option_group
from .output import (
    call_name,
    calls_lines,
    change_lines,
    cost_line,
    counted,
    counts_line,
    escaped,
    flush,
    heading,
    inline,
    print_json,
    print_lines,
    print_text,
    shortened,
    span,
    status_word,
    tell,
    timing_lines,
    timing_words,
)
from .progress import View, print_result, progress_lines, standing_lines, unanswered_lines, view_options
from .source import write_whole

if TYPE_CHECKING:
    from ...protocol.analysis.provenance import Explanation, Origin
    from ..client.call_results import LogEntry
    from ..client.deployments import Summary
    from ..client.progress import Event
    from ..client.results import RunStatus
    from ..client.run import Run

# `acts show --html`: a run as one page, in a file or on standard output.


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """The options that show a run in another form than its values."""

    mermaid: bool = option(
        "--mermaid", is_flag=True, help="Draw the run as a Mermaid flowchart: ticks, calls, child runs."
    )
    timings: bool = option(
        "--timings", is_flag=True, help="Print when calls began, how long they waited and ran; the slowest first."
    )
    html: str | None = option(
        "--html",
        type=click.Path(dir_okay=False, allow_dash=True),
        metavar="FILE",
        help="Write the run as one page (or - for standard output).",
    )


def write_page(run: str, file: str, common: Common) -> None:
    """Write the page of a run, whole or not at all. Raises `Failed`."""
    from ..store.connections import connect
    from ..ui import Page
    from ..ui.file import document

    if file == "-" and common.json:
        raise Failed("--html - prints the page itself: give a FILE with --json", REJECTED)
    settings = common.settings()
    redis = connect(settings)
    try:
        page = Page(redis, settings, reading_seconds=None)
        id_ = page.find(run)
        html = document(page, id_)
    finally:
        redis.close()
    if file == "-":
        print_text(html)
        flush()
        return
    write_whole(Path(file), [html])
    common.print({"run": id_, "file": file}, [f"run {id_} is in {file}"])


_MESSAGE_ID: Final = re.compile(r"\d{1,19}(-\d{1,19})?\Z", re.ASCII)
_LAST_OF_A_MILLISECOND: Final = 2**63 - 1
_NEWEST: Final = 50
"""Messages of a log that are printed by default."""
_PROVENANCE: Final = frozenset({"_by", "_call", "_date", "_instance"})

at_option = click.option("--at", metavar="MESSAGE_ID", help="As it was at this message of the log (see `acts log`).")


@command("Count the calls of a run by status, now or at a past message.")
@RUN
@at_option
@view_options
def status(run: str, at: str | None, *, view: View, common: Common) -> None:
    """Print the status of RUN and how many calls have which status; with --failed or --tool these calls, with their
    errors.

    Exit codes: 0 found, 3 no server, 4 no such run or instance.
    """
    moment = message_id(at)
    with common.found(run) as found:
        if not view.is_filter:
            print_status(found.status(moment, instances=True), common, is_quiet=view.is_quiet)
            return
        document = found.result(at=moment).to_dict()
    chosen = view.chosen(document)
    counts = Counter(call["status"] for call in chosen["calls"])
    kept = {key: chosen[key] for key in ("run", "status", "instance_status", "background") if chosen.get(key)}
    print_status(kept | {"calls": dict(counts)}, common, len(document["calls"]), is_quiet=view.is_quiet)
    if not common.json and not view.is_quiet:
        for name in counts:
            print_lines(calls_lines(name, chosen["calls"], view.most(), view.cut))


@command("Print the data of a run, now or at a past message.")
@RUN
@click.option("--instance", metavar="I", help="Only this instance's data and calls.")
@option_group("form", ShowOptions)
@at_option
@view_options
def show(run: str, instance: str | None, at: str | None, *, form: ShowOptions, view: View, common: Common) -> None:
    """Print what failed and was skipped in RUN, and its data, now or at a past message.

    A few of many instances are printed, and the beginning of large values; --all and --json print everything.

    With --html the run is written as one page: the plan drawn once, each call with its errors, up to 200 instances. It
    loads nothing, and is at most 5 MB; it says what it leaves out.

    Exit codes: 0 found, 2 --html with an option that it does not take, 3 no server, or the file cannot be written, 4 no
    such run or instance.
    """
    moment = message_id(at)
    if form.html is not None:
        if instance is not None or moment is not None or form.mermaid or form.timings or view != View():
            raise Failed("--html writes the whole run as it is now: give no other option with it", REJECTED)
        write_page(run, form.html, common)
        return
    with common.found(run) as found:
        result = found.result(at=moment, waits=form.timings or common.json)
        if form.mermaid:
            from ..client.archive import draw

            print_text(draw(result, lambda child: found.child(child).result()))
            return
        document = result.to_dict()
    if instance is not None:
        document = _of_instance(document, instance)
    if form.timings and not common.json:
        print_lines(timing_lines(view.chosen(document)["calls"], view.most(_NEWEST)))
        return
    print_result(document, view, as_json=common.json)


@command("Print the messages of a run.")
@RUN
@click.option("--instance", metavar="I", help="Only the messages of this instance.")
@click.option("--follow", "-f", is_flag=True, help="Print new messages until the run ends.")
@click.option("--audit", is_flag=True, help="Print who submitted, cancelled, amended … the run, and from which host.")
@view_options
def log(run: str, instance: str | None, follow: bool, audit: bool, *, view: View, common: Common) -> None:
    """Print the newest messages of RUN in order, one line each; with --follow, at last, the status on stderr.

    The last messages of a long log are printed, and the beginning of large values; --all and --json print everything.
    In a loop, --follow and --all also tell when each tick was asked and has ended.
    --all also lists calls without a message: sent and forgotten, skipped, and notes of a model (latent calls without an
    output path). --failed and --tool choose by the call that wrote a message; --quiet prints how many there are.

    --audit prints who did what to the run instead; actions with a token are marked as authenticated.

    Exit codes: 0 found, also where the run failed, 3 no server, 4 no such run or instance.
    """
    from ..store.entries import id_key

    with common.found(run) as found:
        if audit:
            for entry in found.log(instance=instance, follow=follow, audit=True):
                _print_audit(entry, as_json=common.json)
                flush()
            return
        read = partial(found.log, instance=instance, every=view.is_all, ticks=follow or view.is_all)
        newest = _print_newest(read(), view, as_json=common.json)
        if follow:
            for entry in read(follow=True):
                if id_key(entry.id) > id_key(newest) and _is_asked_for(entry, view):
                    _print_entry(entry, view, as_json=common.json)
                    flush()
            end = found.status()
            tell(f"run {found.id} is {end['status']}, {counts_line(end['calls'])}")


def print_status(
    document: Mapping[str, Any], common: Common, total: int | None = None, *, is_quiet: bool = False
) -> None:
    """Print a run's status and its calls by status; `total` counts all calls, if some are left out."""
    how = f"{status_word(document['status'])}  run {document['run']}, {counts_line(document['calls'], total)}"
    unanswered = (f"  {line}" for line in unanswered_lines(document.get("unanswered", [])))
    standing = () if is_quiet else standing_lines(document)
    reported = (f"  {line}" for line in progress_lines(document.get("progress", [])))
    common.print(document, (how, *standing, *unanswered, *reported))


def message_id(text: str | None) -> str | None:
    """Return a message's id in full; an id without a sequence number means the end of its millisecond."""
    if text is None:
        return None
    if not (match := _MESSAGE_ID.match(text)):
        raise click.BadParameter(f"{text!r} is not a message's id such as 1763683200000-0", param_hint="--at")
    return text if match[1] else f"{text}-{_LAST_OF_A_MILLISECOND}"


def _of_instance(document: dict[str, Any], instance: str) -> dict[str, Any]:
    """Return the part of a run's document about one instance."""
    if document["instance_status"].get(instance) == "deleted":
        raise InstanceDeleted(document["run"], instance)
    if instance not in document["instances"]:
        raise InstanceNotFound(document["run"], instance, list(document["instances"]))
    return document | {
        "instances": {instance: document["instances"][instance]},
        "instance_status": {instance: document["instance_status"][instance]},
        "calls": [call for call in document["calls"] if call["instance"] == instance],
    }


def _print_audit(entry: LogEntry, *, as_json: bool) -> None:
    """Print who did what, if the entry says so."""
    if entry.audit is None:
        return
    if as_json:
        said = entry.to_dict()
        print_json({name: said[name] for name in ("id", "instance", "audit")})
        return
    actor = entry.audit.actor
    about = "".join(f", {name} {value}" for name, value in entry.audit.about.items() if value is not None)
    shown = " (authenticated)" if actor.is_authenticated else ""
    text = escaped(f"{entry.audit.did} by {actor.name}{shown} from {actor.host}{about}")
    print_text(f"{_stamp(entry)}  {text}")
    print_lines(f"  {line}" for line in change_lines(entry.changes))


def _stamp(entry: LogEntry) -> str:
    moment = datetime.fromtimestamp(int(entry.id.partition("-")[0]) / 1000, UTC).astimezone()
    return click.style(f"{entry.id}  {moment:%H:%M:%S}", dim=True)


def _print_newest(entries: Iterator[LogEntry], view: View, *, as_json: bool) -> str:
    """Print the newest of the chosen messages, as many as the view says; returns the id of the last message read."""
    is_quiet = view.is_quiet and not as_json
    most = view.limit if as_json or is_quiet else view.most(_NEWEST)
    newest: deque[LogEntry] = deque(maxlen=most)
    count, last = 0, "0-0"
    tools = set[str]()
    for entry in entries:
        last = entry.id
        tools.update(filter(None, [_tool(entry)]))
        if not _is_asked_for(entry, view):
            continue
        count += 1
        if most is None and not is_quiet:
            _print_entry(entry, view, as_json=as_json)
        elif not is_quiet:
            newest.append(entry)
    if not count:
        view.tell_of_unknown(tools)
    if is_quiet:
        print_text(counted(count, "message"))
    elif not as_json and count > len(newest) and most is not None:
        print_text(f"… {counted(count - len(newest), 'message')} before these: --all, --limit")
    for entry in newest:
        _print_entry(entry, view, as_json=as_json)
    flush()
    return last


def _is_asked_for(entry: LogEntry, view: View) -> bool:
    if view.is_failed and entry.message.get("type") != "error":
        return False
    return view.tool in (None, _tool(entry))


def _print_entry(entry: LogEntry, view: View, *, as_json: bool) -> None:
    if as_json:
        print_json(entry.to_dict())
        return
    _print_audit(entry, as_json=False)
    if entry.message:
        shown = {key: value for key, value in entry.message.items() if key not in _PROVENANCE}
    elif entry.end is not None and entry.end.call is not None:
        shown = {key: value for key, value in entry.end.call.items() if key != "_tool"}
    elif entry.tick is not None:
        print_text(f"{_stamp(entry)}  {_tick_words(entry.tick)}")
        return
    else:
        return
    where = heading(entry.instance) if entry.instance is not None else click.style("global", dim=True)
    print_text(f"{_stamp(entry)}  {where}  {escaped(_line(shown, view))}{_origin(entry)}")


def _tick_words(tick: Event) -> str:
    """Return `tick 2 ended, 1 error`; an answer is shown by its message."""
    why = f"; its output does not count: {escaped(tick.reason)}" if tick.reason is not None else ""
    errors = f", {counted(tick.errors, 'error')}" if tick.errors else ""
    return f"tick {tick.tick} {tick.status}{errors}{why}"


def _origin(entry: LogEntry) -> str:
    """Return the call of an entry, how it has ended, and how long it took."""
    tool, end = _tool(entry), entry.end
    parts = [f"← {escaped(tool)}"] if tool is not None else []
    if "_by" in entry.message:
        parts.append(f"given by {escaped(str(entry.message['_by']))}")
    if end is not None and not entry.message:
        parts.append(end.status if end.reason is None else f"{end.status}: {escaped(end.reason)}")
    if end is not None:
        parts += timing_words(end.timing.to_dict())
    return "  " + ", ".join(parts) if parts else ""


def _tool(entry: LogEntry) -> str | None:
    """Return the tool of the call that wrote the message, or has ended with the entry."""
    call = entry.message.get("_call") or (entry.end.call if entry.end is not None else None)
    if entry.message.get("type") == "error" and isinstance(data := entry.message.get("data"), dict):
        call = data.get("call")
    return str(call.get("_tool")) if isinstance(call, Mapping) else None


def _line(message: Mapping[str, Any], view: View) -> str:
    text = json.dumps(message, ensure_ascii=False)
    if view.is_all or len(text) <= limits.INSPECT_WIDTH:
        return text
    return f"{text[: limits.INSPECT_WIDTH]}… ({len(text):,} characters)"


# `acts runs`, `acts wait`: which runs there are, and until one ends.

STATUSES: Final = ("scheduled", "running", "paused", "completed", "failed", "cancelled")
"""Values of `--status`."""


@command("Print the runs that are kept, the newest first.")
@click.option("--status", type=click.Choice(STATUSES), help="Only runs of this status.")
@click.option("--name", metavar="TEXT", help="Only runs of this name or with this tag.")
@click.option(
    "--tag", "tags", metavar="TEXT", multiple=True, help="Only runs with this tag, such as customer=42; repeatable."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=limits.RUNS_MOST,
    show_default=True,
    metavar="N",
    help="Print at most this many.",
)
def runs(status: RunStatus | None, name: str | None, tags: tuple[str, ...], limit: int, *, common: Common) -> None:
    """Print the newest runs: id, name and tags, status, calls, age, duration, cost. With --json one document a line.

    Runs that have ended are listed for as long as they are kept. With several --tag a run has all of them.

    Exit codes: 0 also where there are none, 3 no server.
    """

    with common.client() as client:
        found = list(islice(client.runs(status=status, name=name, tags=tags, left_out=tell), limit))
    for summary in found:
        common.print(summary.to_dict(), [_run_line(summary)])
    if not found and not common.json:
        print_text("no runs")


@command("Block until a run ends.")
@RUN
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Stop waiting after this time."
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
    """Return a function that reports once that a call waits for a person."""
    is_reported = False

    def take(event: Event) -> None:
        nonlocal is_reported
        if event.kind == "held" and not is_reported and run.held():
            is_reported = True
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

    moment = message_id(at)
    with common.found(run) as found:
        try:
            explanation = found.explain(path, instance=instance, at=moment)
            document = _document(explanation) | {"run": found.id, "instance": instance}
            if "value" not in document and explanation.conflict is None:
                document["absence"] = found.explain_absence(path, instance=instance, at=moment).to_dict()
            rules = {call: {"rule": rule} for rule in found.rules() for call in rule["calls"]}
        except ExpressionError as error:
            raise click.BadParameter(str(error), param_hint="PATH") from error
    for message in document["messages"]:
        where = "" if message["instance"] is None else f":{message['instance']}"
        message.update(rules.get(f"{message['index']}{where}", {}))
    common.print(document, _lines(document))


def _document(explanation: Explanation) -> dict[str, Any]:
    """Return what `--json` prints; without a `value` there is none."""
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
            {
                "path": read.reference,
                **_valued(read.value),
                **({"gathered": True} if is_gathered else {}),
                "sources": sorted(read.sources),
            }
            for read in origin.reads
        ],
        "sources": sorted(origin.sources),
        "unasked": [waiver.to_dict() for waiver in origin.unasked],
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
        yield f"{click.style(message['id'], dim=True)}  {effect}  {_writer(message)}: {what}{_sources(message)}"
        if (rule := message.get("rule")) is not None:
            yield escaped(f"    nobody was asked: rule {rule['rule']}, given by {rule['by']}: {rule['text']}")
        yield from (escaped(f"    nobody was asked: {one['text']}") for one in message["unasked"])
        for read in message["reads"]:
            what = "from every instance that has it" if "gathered" in read else _value(read)
            yield f"    had read {escaped(read['path'])} {what}{_sources(read)}"
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
    if "priority" in absence:
        yield f"the run has priority {absence['priority']}"
    if absence["near"] is not None:
        yield f"did you mean {escaped(absence['near'])}?"
    if absence["instances"]:
        yield f"it is there in {escaped(', '.join(absence['instances']))}"


def _sources(holder: Mapping[str, Any]) -> str:
    return f" (others wrote to it: {escaped(', '.join(holder['sources']))})" if holder["sources"] else ""


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
# Each worker writes its state into `ACTS_HEALTH_FOLDER` (`worker/runner/runtime.py`); one that has not written for long
# does not work.


@command("Say whether the workers of this machine are well.")
def health(*, common: Common) -> int:
    """Say of each worker that writes into ACTS_HEALTH_FOLDER whether it takes messages and looks for lost calls.

    No server is asked, so it needs no permission on one.

    Exit codes: 0 all are healthy, 2 no folder is set, 3 one is unhealthy, or there is none.
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
        problems = "; ".join(f"{what} {problem}" for what, problem in worker["problems"].items())
        print_text(escaped(f"{worker['worker']}: {problems or 'ok'}"))
    if not workers:
        print_text(escaped(f"no worker has written into {folder}"))
    return COMPLETED if is_well else UNAVAILABLE


def _examine(file: Path) -> dict[str, Any]:
    """Read the state that a worker has written, and check its age."""
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
