"""Progress: waiting for a run's end, with a live bar on stderr where that is a terminal."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from .. import limits
from .options import bundled, option
from .output import (
    SHORT,
    WHOLE,
    Cut,
    background_line,
    beside,
    calls_lines,
    cost_line,
    counted,
    counts_line,
    data_lines,
    escaped,
    flush,
    heading,
    instances_line,
    print_either,
    status_word,
    tell,
    value_lines,
    version_lines,
)

if TYPE_CHECKING:
    from threading import Event as ThreadEvent

    from ..client.progress import Event
    from ..client.run import Run


# Requests to models that are made again: what `acts status` says of them, and what a command that waits says.


def unanswered_lines(told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of each request, from `Run.status`, what the model has said and when it is asked again; of many the soonest."""
    for one in told[: limits.MOST_SHOWN]:
        what = "the request of the loop" if one["call"] is None else f"call {escaped(one['call'])}"
        yield f"the model has not answered {what} ({escaped(one['type'])}: {escaped(one['message'])}): {_when(one)}"
    if len(told) > limits.MOST_SHOWN:
        yield f"the model has not answered {counted(len(told) - limits.MOST_SHOWN, 'more request')}: --json lists them"


def unanswered_words(told: Sequence[Mapping[str, Any]]) -> str:
    """The soonest in the few words for which a line of 80 columns has room; nothing where there is none."""
    if not told:
        return ""
    again = told[0]["again_in_seconds"]
    when = f" in {again:.0f} s" if again >= 1 else ""
    return f"{escaped(told[0]['type'])}: try {told[0]['tries'] + 1}{when}"


def watching(run: Run, show: Callable[[Sequence[Mapping[str, Any]]], None]) -> AbstractContextManager[None]:
    """While the block lasts, show now and then which requests of a run are made again."""

    def look(is_over: ThreadEvent) -> None:
        while not is_over.wait(limits.LOOK_SECONDS):
            try:
                told = run.status().get("unanswered", [])
            except Exception:  # the command that waits for the run says what is wrong with the server
                return
            if not is_over.is_set():
                show(told)

    return beside(look, "acts-unanswered")


def _when(one: Mapping[str, Any]) -> str:
    again = one["again_in_seconds"]
    when = f"again in {again:.0f} s" if again >= 1 else "it is being asked again"
    return f"asked {counted(one['tries'], 'time')}, {when}"


def wait(
    run: Run,
    on_event: Callable[[Event], None] = lambda event: None,
    *,
    timeout_seconds: float | None = None,
    is_quiet: bool = False,
) -> None:
    """Block until the run has ended; `on_event` is told of each event. Raises `TimeoutError`, and what that raises."""
    if is_live() and not is_quiet:
        _wait_with_bar(run, on_event, timeout_seconds)
    else:
        with nullcontext() if is_quiet else watching(run, _Teller()):
            for event in run.follow(children=True, timeout_seconds=timeout_seconds):
                on_event(event)


class Elements:
    """Counts the elements of the calls with `_each` that are under way, from the events of their run."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str | None, int | None], tuple[int, int]] = {}

    @property
    def text(self) -> str:
        """`3 of 10,000 elements`, nothing where there is no such call."""
        ended, total = (sum(counts) for counts in zip(*self._calls.values(), strict=True)) if self._calls else (0, 0)
        return f"{ended:,} of {total:,} elements" if total else ""

    def take(self, event: Event) -> bool:
        """Take in an event; says whether it has changed anything."""
        call = event.instance, event.index
        if event.run is not None:
            return False
        if event.kind == "each":
            self._calls[call] = 0, event.elements or 0
            return True
        if call not in self._calls or event.kind not in ("element", "call"):
            return False
        ended, total = self._calls.pop(call)
        if event.kind == "element":
            self._calls[call] = ended + 1, total
        return True


class Ticks:
    """What the loop of a run is at, from its events: its tick, and the end of the text that is being written."""

    def __init__(self) -> None:
        self._text = ""
        self.line = ""
        """`tick 2 asked`, `tick 2: … the last words of a text`; nothing where there is no loop."""

    def take(self, event: Event) -> bool:
        """Take in an event; says whether it has changed anything."""
        if event.run is not None:
            return False
        if event.kind == "text":
            self._text = self._text[: event.at] + (event.text or "")
            words = escaped(" ".join(self._text.split())[-limits.PROGRESS_SHOWN :])
            self.line = f"tick {event.tick}: {words}"
        elif event.kind == "tick":
            self._text, self.line = "", f"tick {event.tick} {event.status}"
        return event.kind in ("text", "tick")


class _Teller:
    """Tells of requests to models that are made again, not too often."""

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def __call__(self, told: Sequence[Mapping[str, Any]]) -> None:
        if told and time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + limits.QUIET_SECONDS
            for line in unanswered_lines(told):
                tell(line)


def is_live() -> bool:
    """Whether a bar can be shown."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _wait_with_bar(run: Run, on_event: Callable[[Event], None], timeout_seconds: float | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("calls"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed, {task.fields[skipped]} skipped"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[elements]}"),
        TextColumn("{task.fields[loop]}", markup=False),
        TextColumn("{task.fields[unanswered]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        # How many calls a loop will have is not known when it begins.
        bar = progress.add_task("", total=run.total or None, failed=0, skipped=0, elements="", loop="", unanswered="")
        failed = skipped = 0
        elements, ticks = Elements(), Ticks()
        with watching(run, lambda told: progress.update(bar, unanswered=unanswered_words(told))):
            for event in run.follow(children=True, timeout_seconds=timeout_seconds):
                if event.kind == "held":  # a person may be asked
                    progress.stop()
                    on_event(event)
                    progress.start()
                else:
                    on_event(event)
                if elements.take(event):
                    progress.update(bar, elements=elements.text)
                if ticks.take(event):
                    progress.update(bar, loop=ticks.line)
                if event.kind == "call" and event.run is None:
                    failed += event.status == "failed"
                    skipped += event.status == "skipped"
                    progress.update(bar, advance=1, failed=failed, skipped=skipped)


# The view of a run: how much of it is printed, and which of its calls.
#
# By default it is short: counts, what failed, the values of a few instances, and of each value the beginning. What is
# asked for by an option counts for `--json` too; what is only left out to be short is never left out there.

_INSTANCES: Final = 5
_FAILED: Final = ("failed", "skipped")
_OTHERS: Final = ("waiting", "held", "running", "done", "sent", "latent")


@dataclass(frozen=True, slots=True)
class View:
    """What the options say."""

    is_all: bool = option("--all", is_flag=True, help="Print everything, and every value whole.")
    is_failed: bool = option("--failed", is_flag=True, help="Only what failed.")
    tool: str | None = option("--tool", metavar="NAME", help="Only calls of this tool.")
    limit: int | None = option("--limit", type=click.IntRange(min=0), metavar="N", help="At most so many.")
    is_quiet: bool = option("--quiet", "-q", is_flag=True, help="Print the first line only: the status.")

    @property
    def is_filter(self) -> bool:
        """Whether only some calls are asked for."""
        return self.is_failed or self.tool is not None

    @property
    def cut(self) -> Cut:
        """How much of a value is shown."""
        return WHOLE if self.is_all else SHORT

    def most(self, default: int = limits.PROGRESS_MOST) -> int | None:
        """How many lines of a kind are shown; None is all."""
        return self.limit if self.limit is not None else None if self.is_all else default

    def chosen(self, document: dict[str, Any]) -> dict[str, Any]:
        """The part of a run's document that is asked for."""
        if not self.is_filter:
            return document
        calls = [call for call in document["calls"] if self._shows(call)]
        self.tell_of_unknown({call["tool"] for call in document["calls"]})
        having = {call["instance"] for call in calls}
        return document | {"calls": calls} | _of_instances(document, lambda name: name in having)

    def limited(self, document: dict[str, Any]) -> dict[str, Any]:
        """A document with as many instances as the limit says, and no fewer where there is none."""
        first = set(islice(document["instances"], self.limit))
        return document | _of_instances(document, lambda name: name in first)

    def tell_of_unknown(self, tools: Collection[str]) -> None:
        """Say on stderr that no call is of the tool that is asked for; `tools` are those of all calls."""
        if self.tool is not None and self.tool not in tools:
            from ...protocol.errors import Speller

            tell(f"no call is of the tool {self.tool!r}{Speller().hint(self.tool, tools)}")

    def _shows(self, call: Mapping[str, Any]) -> bool:
        return self.tool in (None, call["tool"]) and (not self.is_failed or call["status"] == "failed")


view_options: Final = bundled("view", View)
"""How much a command prints, as `view`."""


def print_result(document: dict[str, Any], view: View, *, as_json: bool) -> None:
    """Print a run's document, as much of it as is asked for."""
    chosen = view.chosen(document)
    print_either(view.limited(chosen), result_lines(chosen, view, len(document["calls"])), as_json=as_json)
    # What comes after may take a while: tasks sent and not awaited, the end of the backend.
    flush()


def result_lines(document: Mapping[str, Any], view: View, total: int | None = None) -> Iterator[str]:
    """A run as `acts run` and `acts show` print it, from the document that `--json` prints; it has so many calls, where
    those of the document are not all.
    """
    calls = document["calls"]
    counts = Counter(call["status"] for call in calls)
    yield f"{status_word(document['status'])}  run {document['run']}, {counts_line(counts, total)}"
    if document.get("reason") is not None:
        yield f"  {escaped(document['reason'])}"
    if view.is_quiet:
        return
    yield from standing_lines(document)
    if stale := sum(call.get("stale", False) for call in calls):
        yield f"  {counted(stale, 'call')} stale: `acts retry {document['run']} --downstream` carries them out again"
    yield from version_lines(calls)
    for status in (*_FAILED, *(_OTHERS if view.tool is not None else ())):
        yield from calls_lines(status, calls, view.most(), view.cut)
    yield from _child_lines(calls, view)
    if view.tool is None:
        yield from _value_lines(document, view)


def standing_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """How the instances stand, and what was sent and not awaited, below the first line of a run."""
    if document.get("instance_status"):
        yield f"  {instances_line(document['instance_status'])}"
    if below := document.get("held_below"):
        waits = "waits" if below == 1 else "wait"
        yield f"  {counted(below, 'call')} of child runs {waits} for a person: acts held {document['run']}"
    if cost := cost_line(document.get("cost")):
        yield f"  {cost}"
    yield from waiting_lines(document.get("waiting_for", []))
    if document.get("background") is not None:
        yield f"  {background_line(document['background'], document['run'])}"


def waiting_lines(told: Sequence[Mapping[str, str | None]]) -> Iterator[str]:
    """What calls wait for that is no call: a few of them (see `Run.status`)."""
    for one in told[: limits.PROGRESS_MOST_WAITING]:
        who = "the run" if one["call"] is None else f"call {escaped(one['call'])}"
        yield f"  {who} waits: {escaped(one['reason'] or '')}"
    if (left := len(told) - limits.PROGRESS_MOST_WAITING) > 0:
        yield f"  … and {left} more: acts status --json"


def _of_instances(document: Mapping[str, Any], is_one: Callable[[str], bool]) -> dict[str, Any]:
    """What a run's document says of some of its instances."""
    return {
        part: {name: value for name, value in document[part].items() if is_one(name)}
        for part in ("instances", "instance_status")
    }


def _own(seen: Any, shared: Any) -> Any:
    """Of what an instance sees, what is not the same in the global values; whole where it lacks some of those."""
    if not isinstance(seen, dict) or not isinstance(shared, dict) or not shared.keys() <= seen.keys():
        return seen
    both = ((name, value, shared.get(name)) for name, value in seen.items())
    return {name: _own(value, other) for name, value, other in both if name not in shared or value != other}


def _child_lines(calls: Sequence[Mapping[str, Any]], view: View) -> Iterator[str]:
    """The runs that answer calls: each has a log of its own."""
    answered = [call for call in calls if call.get("child") is not None]
    if answered:
        yield heading("child runs")
    for call in answered[: view.most()]:
        where = f" ({call['instance']})" if call["instance"] is not None else ""
        yield f"  {call['index']} {escaped(call['tool'])}{escaped(where)}: {call['child']}"
    if (left := len(answered) - len(answered[: view.most()])) > 0:
        yield f"  … and {left} more: --all"


def _value_lines(document: Mapping[str, Any], view: View) -> Iterator[str]:
    if document["output"] is not None:
        yield from value_lines({"output": document["output"]}, cut=view.cut)
    if not view.is_failed:
        yield from data_lines("global", document["global"], view.cut)
    failed = {call["instance"] for call in document["calls"] if call["status"] == "failed"}
    instances = sorted(document["instances"].items(), key=lambda item: item[0] not in failed)
    shown = instances[: view.most(_INSTANCES)]
    shared = document["global"] if len(instances) > 1 and not view.is_failed else {}
    for instance, kinds in shown:
        yield from data_lines(instance, _own(kinds, shared), view.cut)
    if (left := len(instances) - len(shown)) > 0:
        yield f"… and {counted(left, 'instance')} more: --all, --limit"
