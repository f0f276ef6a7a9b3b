"""`acts status`, `acts show`, `acts log`: what the log says of a run."""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .. import limits
from ..errors import InstanceDeleted, InstanceNotFound
from .options import REJECTED, RUN, Common, Failed, bundled, command, option
from .output import (
    calls_lines,
    change_lines,
    counted,
    counts_line,
    escaped,
    flush,
    heading,
    print_json,
    print_lines,
    print_text,
    status_word,
    tell,
    timing_lines,
    timing_words,
)
from .progress import View, print_result, standing_lines, unanswered_lines, view_options
from .source import write_whole

if TYPE_CHECKING:
    from ..client.call_results import LogEntry
    from ..client.progress import Event


# `acts show --html`: a run as one page, in a file or on standard output.


@dataclass(frozen=True, slots=True)
class PageForm:
    """As what `acts show` shows a run, where not as its values."""

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
    from ..ui.server import document

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
"""Messages of a log that are printed where nothing else is asked for."""
_OF_TICK: Final = ("tick", "status", "model", "usage", "calls", "errors", "reason", "output")
"""What is told of a tick as JSON, where it is known."""
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
@bundled("form", PageForm)
@at_option
@view_options
def show(run: str, instance: str | None, at: str | None, *, form: PageForm, view: View, common: Common) -> None:
    """Print what failed and was skipped in RUN, and its data, now or at a past message.

    A few of many instances are printed, and the beginning of large values; --all and --json print everything.

    With --html the run is written as one page: the plan drawn once, each call with its errors, up to 200 instances. It
    loads nothing, and is at most 5 MB; what it leaves out it says.

    Exit codes: 0 found, 2 --html with an option that it does not take, 3 no server, or the file cannot be written, 4 no
    such run or instance.
    """
    moment = message_id(at)
    if form.html is not None:
        if instance is not None or moment is not None or form.mermaid or form.timings or view != View():
            raise Failed("--html writes the whole run as it is now: give no other option with it", REJECTED)
        write_page(run, form.html, common)
        return
    timings = form.timings
    with common.found(run) as found:
        result = found.result(at=moment, waits=timings or common.json)
        if form.mermaid:
            from ..client.run import draw

            print_text(draw(result, lambda child: found.child(child).result()))
            return
        document = result.to_dict()
    if instance is not None:
        document = _of_instance(document, instance)
    if timings and not common.json:
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

    --audit prints who did what to the run instead; who has shown a token is marked as authenticated.

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
    """Print a run's status and its calls counted by theirs, where those are not all how many there are in `total`."""
    how = f"{status_word(document['status'])}  run {document['run']}, {counts_line(document['calls'], total)}"
    unanswered = (f"  {line}" for line in unanswered_lines(document.get("unanswered", [])))
    standing = () if is_quiet else standing_lines(document)
    common.print(document, (how, *standing, *unanswered))


def message_id(text: str | None) -> str | None:
    """A message's id in full; one without a sequence number stands for its whole millisecond."""
    if text is None:
        return None
    if not (match := _MESSAGE_ID.match(text)):
        raise click.BadParameter(f"{text!r} is not a message's id such as 1763683200000-0", param_hint="--at")
    return text if match[1] else f"{text}-{_LAST_OF_A_MILLISECOND}"


def _of_instance(document: dict[str, Any], instance: str) -> dict[str, Any]:
    """The part of a run's document that one instance is about."""
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
    """Print who did what, where the entry says so."""
    if entry.audit is None:
        return
    if as_json:
        changes = {"changes": dict(entry.changes)} if entry.changes else {}
        print_json({"id": entry.id, "instance": entry.instance, "audit": entry.audit.to_dict() | changes})
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
    """Print those messages that are asked for, as many of the last as are; returns the id of the last there is."""
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
    tool = _tool(entry)
    if view.is_failed and entry.message.get("type") != "error":
        return False
    return view.tool in (None, tool)


def _print_entry(entry: LogEntry, view: View, *, as_json: bool) -> None:
    if as_json:
        message = dict(entry.message) or None
        end = {"end": entry.end.to_dict()} if entry.end is not None else {}
        tick = {"tick": _tick_dict(entry.tick)} if entry.tick is not None else {}
        print_json({"id": entry.id, "instance": entry.instance, "message": message, **end, **tick})
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


def _tick_dict(tick: Event) -> dict[str, Any]:
    told = {name: getattr(tick, name) for name in _OF_TICK}
    return {name: value for name, value in told.items() if value is not None}


def _tick_words(tick: Event) -> str:
    """`tick 2 ended, 1 error`; an answer is shown by its message."""
    why = f"; its output does not count: {escaped(tick.reason)}" if tick.reason is not None else ""
    errors = f", {counted(tick.errors, 'error')}" if tick.errors else ""
    return f"tick {tick.tick} {tick.status}{errors}{why}"


def _origin(entry: LogEntry) -> str:
    """Which call the entry is of, how that has ended, and what it took."""
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
    """The tool of the call that wrote the message, or has ended with the entry."""
    call = entry.message.get("_call") or (entry.end.call if entry.end is not None else None)
    if entry.message.get("type") == "error" and isinstance(data := entry.message.get("data"), dict):
        call = data.get("call")
    return str(call.get("_tool")) if isinstance(call, Mapping) else None


def _line(message: Mapping[str, Any], view: View) -> str:
    text = json.dumps(message, ensure_ascii=False)
    if view.is_all or len(text) <= limits.INSPECT_WIDTH:
        return text
    return f"{text[: limits.INSPECT_WIDTH]}… ({len(text):,} characters)"
