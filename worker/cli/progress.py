"""Waiting for a run's end, with a live bar on a terminal; and how much of a run is printed."""

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
from . import output
from .options import option, option_group

if TYPE_CHECKING:
    from threading import Event as ThreadEvent

    from rich.progress import Progress

    from ..client.progress import Event
    from ..client.run import Run
    from .rows import RowBatch


# Requests to models that are made again, as `acts status` and the commands that wait show them.


def unanswered_lines(requests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the failed requests of `Run.status`, each with its error and the time of the next try."""
    for one in requests[: limits.MOST_SHOWN]:
        what = "the request of the loop" if one["call"] is None else f"call {output.escaped(one['call'])}"
        why = f"{output.escaped(one['type'])}: {output.escaped(one['message'])}"
        yield f"the model has not answered {what} ({why}): {_when(one)}"
    if len(requests) > limits.MOST_SHOWN:
        more = output.counted(len(requests) - limits.MOST_SHOWN, "more request")
        yield f"the model has not answered {more}: --json lists them"


def unanswered_words(requests: Sequence[Mapping[str, Any]]) -> str:
    """Return the soonest request in few words, for a line of 80 columns; an empty text if there is none."""
    if not requests:
        return ""
    soonest = requests[0]
    again = soonest["again_in_seconds"]
    when = f" in {again:.0f} s" if again >= 1 else ""
    return f"{output.escaped(soonest['type'])}: try {soonest['tries'] + 1}{when}"


def progress_lines(reported: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what calls at work have reported of their progress, as `Run.status` has it."""
    for one in reported[: limits.MOST_SHOWN]:
        words = progress_words(one.get("done"), one.get("total"), one.get("text"))
        yield f"call {output.escaped(one['call'])}: {words}"
    if len(reported) > limits.MOST_SHOWN:
        yield f"{output.counted(len(reported) - limits.MOST_SHOWN, 'more call')} at work: --json lists them"


def progress_words(done: float | None = None, total: float | None = None, text: str | None = None) -> str:
    """Return a report of progress in words: `3 of 10 (30%): a text`."""
    of = f" of {total:,g}" + (f" ({done / total:.0%})" if done is not None else "") if total else ""
    said = f"{done:,g}{of}" if done is not None else ""
    return ": ".join(filter(None, (said, output.escaped(" ".join((text or "").split())))))


def watching(run: Run, show: Callable[[Sequence[Mapping[str, Any]]], None]) -> AbstractContextManager[None]:
    """Show from time to time which requests of a run are made again, while the block lasts."""

    def look(is_over: ThreadEvent) -> None:
        while not is_over.wait(limits.LOOK_SECONDS):
            try:
                requests = run.status().get("unanswered", [])
            except Exception:  # the command that waits for the run says what is wrong with the server
                return
            if not is_over.is_set():
                show(requests)

    return output.in_background(look, "acts-unanswered")


def _when(one: Mapping[str, Any]) -> str:
    again = one["again_in_seconds"]
    when = f"again in {again:.0f} s" if again >= 1 else "it is being asked again"
    return f"asked {output.counted(one['tries'], 'time')}, {when}"


def wait(
    run: Run,
    on_event: Callable[[Event], None] = lambda event: None,
    *,
    timeout_seconds: float | None = None,
    is_quiet: bool = False,
) -> None:
    """Block until the run has ended; `on_event` gets each event. Raises `TimeoutError`, and what `on_event` raises."""
    if is_live() and not is_quiet:
        _wait_with_bar(run, on_event, timeout_seconds)
    else:
        with nullcontext() if is_quiet else watching(run, _UnansweredReport()):
            for event in run.follow(children=True, timeout_seconds=timeout_seconds):
                on_event(event)


class Elements:
    """Counts the elements of running calls with `_each`, from the events of their run."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str | None, int | None], tuple[int, int]] = {}

    @property
    def text(self) -> str:
        """`3 of 10,000 elements`, or empty without such a call."""
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
    """Follows the loop of a run by its events: its tick, and the end of the text that is being written."""

    def __init__(self) -> None:
        self._text = ""
        self.line = ""
        """`tick 2 asked`, `tick 2: … the last words of a text`, or empty without a loop."""

    def take(self, event: Event) -> bool:
        """Take in an event; says whether it has changed anything."""
        if event.run is not None:
            return False
        if event.kind == "text":
            self._text = self._text[: event.at] + (event.text or "")
            words = output.escaped(" ".join(self._text.split())[-limits.PROGRESS_SHOWN :])
            self.line = f"tick {event.tick}: {words}"
        elif event.kind == "tick":
            self._text, self.line = "", f"tick {event.tick} {event.status}"
        return event.kind in ("text", "tick")


class NewestReport:
    """Follows what the calls of a run report of their progress, by its events."""

    def __init__(self) -> None:
        self._calls: dict[tuple[str | None, int | None, int | None], str] = {}

    @property
    def text(self) -> str:
        """The newest report of a call that is at work, or empty."""
        return next(reversed(self._calls.values()), "")

    def take(self, event: Event) -> bool:
        """Take in an event; says whether it has changed anything."""
        call = event.instance, event.index, event.element
        if event.run is not None or event.kind not in ("progress", "element", "call"):
            return False
        before = self._calls.pop(call, None)
        if event.kind == "progress":
            self._calls[call] = progress_words(event.done, event.total, event.text)[: limits.PROGRESS_SHOWN]
        return before is not None or event.kind == "progress"


class _UnansweredReport:
    """Reports requests to models that are made again, not too often."""

    def __init__(self) -> None:
        self._quiet_until = 0.0

    def __call__(self, requests: Sequence[Mapping[str, Any]]) -> None:
        if requests and time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + limits.QUIET_SECONDS
            for line in unanswered_lines(requests):
                output.tell(line)


def is_live() -> bool:
    """Say whether a bar can be shown."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _wait_with_bar(run: Run, on_event: Callable[[Event], None], timeout_seconds: float | None) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("calls"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} failed"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[elements]}"),
        TextColumn("{task.fields[loop]}", markup=False),
        TextColumn("{task.fields[reported]}", markup=False),
        TextColumn("{task.fields[unanswered]}", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        # How many calls a loop will have is not known when it begins.
        bar = progress.add_task("", total=run.total or None, failed=0, elements="", loop="", reported="", unanswered="")
        failed = 0
        elements, ticks, reported = Elements(), Ticks(), NewestReport()
        with watching(run, lambda requests: progress.update(bar, unanswered=unanswered_words(requests))):
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
                if reported.take(event):
                    progress.update(bar, reported=reported.text)
                if event.kind == "call" and event.run is None:
                    failed += event.status == "failed"
                    progress.update(bar, advance=1, failed=failed)


class RowProgress:
    """Shows how many rows of a batch are done, have failed and are left, while the block lasts: as a bar on a terminal,
    elsewhere as a line from time to time.
    """

    def __init__(self, batch: RowBatch, *, is_quiet: bool) -> None:
        self._batch = batch
        self._is_quiet = is_quiet
        self._bar: Progress | None = None
        self._quiet_until = time.monotonic() + limits.QUIET_SECONDS

    def __enter__(self) -> None:
        if is_live() and not self._is_quiet:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            counts = TextColumn(
                "{task.completed:,.0f} done, {task.fields[failed]:,} failed, {task.fields[left]:,} left"
            )
            columns = (TextColumn("rows"), BarColumn(bar_width=20), counts, TimeElapsedColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("", total=self._batch.rows, failed=0, left=self._batch.rows)
            self._bar.start()

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def wait(self, run: Run, timeout_seconds: float | None, calls: int) -> None:
        """Block until a part has ended whose rows have so many calls each. Raises `TimeoutError`."""
        if self._bar is None:
            run.ended(timeout_seconds)
            return
        begun, failed, done = Counter[str](), set[str](), 0
        for event in run.follow(timeout_seconds=timeout_seconds):
            if event.kind == "call" and event.instance is not None:
                begun[event.instance] += 1
                failed |= {event.instance} if event.status == "failed" else set()
                done += begun[event.instance] == calls
                self._show(self._bar, done, len(failed))

    def note(self) -> None:
        """Show that the rows of a part are back."""
        batch = self._batch
        if self._bar is not None:
            self._show(self._bar, 0, 0)
        elif not self._is_quiet and batch.done < batch.rows and time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + limits.QUIET_SECONDS
            failed = batch.done - batch.statuses["completed"]
            output.tell(
                f"{batch.done:,} of {batch.rows:,} rows done, {failed:,} failed, {batch.rows - batch.done:,} left"
            )

    def _show(self, bar: Progress, done: int, failed: int) -> None:
        done += self._batch.done
        failed += self._batch.done - self._batch.statuses["completed"]
        bar.update(bar.task_ids[0], completed=done, failed=failed, left=self._batch.rows - done)


# The view of a run: how much of it is printed, and which of its calls.
#
# By default it is short: counts, failures, the values of a few instances, and the beginning of each value. A choice by
# an option counts for `--json` too; `--json` leaves nothing out only to be short.

_INSTANCES: Final = 5
_OTHERS: Final = (output.NOT_TAKEN, "waiting", "held", "unknown", "running", "done", "sent", "latent")


@dataclass(frozen=True, slots=True)
class View:
    """The options that say how much of a run is printed."""

    is_all: bool = option("--all", is_flag=True, help="Print everything, and every value whole.")
    is_failed: bool = option("--failed", is_flag=True, help="Only what failed.")
    tool: str | None = option("--tool", metavar="NAME", help="Only calls of this tool.")
    limit: int | None = option("--limit", type=click.IntRange(min=0), metavar="N", help="Print at most this many.")
    is_quiet: bool = option("--quiet", "-q", is_flag=True, help="Print the first line only: the status.")

    @property
    def is_filter(self) -> bool:
        """Whether only some calls are printed."""
        return self.is_failed or self.tool is not None

    @property
    def is_plain(self) -> bool:
        """Whether nothing was chosen."""
        return not (self.is_all or self.is_filter or self.limit is not None)

    @property
    def cut(self) -> output.Cut:
        """How much of a value is printed."""
        return output.WHOLE if self.is_all else output.SHORT

    def most(self, default: int = limits.PROGRESS_MOST) -> int | None:
        """Return how many lines of a kind are printed; None is all."""
        return self.limit if self.limit is not None else None if self.is_all else default

    def chosen(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a run's document with the chosen calls, and their instances."""
        if not self.is_filter:
            return document
        calls = [call for call in document["calls"] if self._shows(call)]
        self.tell_of_unknown({call["tool"] for call in document["calls"]})
        having = {call["instance"] for call in calls}
        return document | {"calls": calls} | _of_instances(document, lambda name: name in having)

    def limited(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return a document with at most `limit` instances."""
        first = set(islice(document["instances"], self.limit))
        return document | _of_instances(document, lambda name: name in first)

    def tell_of_unknown(self, tools: Collection[str]) -> None:
        """Say on stderr that no call is of the chosen tool; `tools` are the tools of all calls."""
        if self.tool is not None and self.tool not in tools:
            from ...protocol.errors import Speller

            output.tell(f"no call is of the tool {self.tool!r}{Speller().hint(self.tool, tools)}")

    def _shows(self, call: Mapping[str, Any]) -> bool:
        return self.tool in (None, call["tool"]) and (not self.is_failed or call["status"] == "failed")


view_options: Final = option_group("view", View)
"""Gives a command the options of `View`, as `view`."""


def print_result(document: dict[str, Any], view: View, *, as_json: bool) -> None:
    """Print as much of a run's document as the view says."""
    chosen = view.chosen(document)
    output.print_either(view.limited(chosen), result_lines(chosen, view, len(document["calls"])), as_json=as_json)
    # The end of the backend may take a while, with tasks that were sent and not awaited.
    output.flush()


def result_lines(document: Mapping[str, Any], view: View, total: int | None = None) -> Iterator[str]:
    """Yield a run as `acts run` and `acts show` print it, from the document that `--json` prints.

    `total` is the number of its calls, if the document has only some of them.
    """
    calls = [{**call, "status": output.NOT_TAKEN} if call.get("not_taken") else call for call in document["calls"]]
    counts = Counter(call["status"] for call in calls)
    yield f"{output.status_word(document['status'])}  run {document['run']}, {output.counts_line(counts, total)}"
    if document.get("simulation"):
        yield "  a simulation: models have answered its calls, and no code has run"
    if document.get("reason") is not None:
        yield f"  {output.escaped(document['reason'])}"
    if view.is_quiet:
        return
    yield from standing_lines(document)
    if stale := sum(call.get("stale", False) for call in calls):
        yield f"  {output.counted(stale, 'call')} stale: `acts retry {document['run']} --downstream` runs them again"
    yield from output.version_lines(calls)
    is_batch = view.is_plain and len(document["instances"]) > limits.PROGRESS_MOST
    if is_batch:
        failures = output.Failures()
        for call in calls:
            if call["status"] == "failed":
                failures.add(call["tool"], call["error"] or {}, call["instance"])
        yield from failures.lines()
    others = _OTHERS if view.tool is not None else (output.NOT_TAKEN,) if view.is_all else ()
    for status in (*(() if is_batch else ("failed",)), "skipped", *others):
        yield from output.calls_lines(status, calls, view.most(), view.cut)
    yield from _child_lines(calls, view)
    if view.tool is None:
        yield from _value_lines(document, view, most_instances=0 if is_batch else _INSTANCES)


def standing_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what follows the first line of a run: its instances, held calls, cost, and calls in the background."""
    if document.get("instance_status"):
        yield f"  {output.instances_line(document['instance_status'])}"
    if priority := document.get("priority"):
        yield f"  priority {priority}"
    if below := document.get("held_below"):
        waits = "waits" if below == 1 else "wait"
        yield f"  {output.counted(below, 'call')} of child runs {waits} for a person: acts held {document['run']}"
    if rules := document.get("rules"):
        yield f"  {output.counted(rules, 'rule')} in force: acts rules {document['run']}"
    if cost := output.cost_line(document.get("cost")):
        yield f"  {cost}"
    yield from waiting_lines(document.get("waiting_for", []))
    if document.get("background") is not None:
        yield f"  {output.background_line(document['background'], document['run'])}"


def waiting_lines(waits: Sequence[Mapping[str, str | None]]) -> Iterator[str]:
    """Yield what calls wait for besides other calls (see `Run.status`), a few of them."""
    for one in waits[: limits.PROGRESS_MOST_WAITING]:
        who = "the run" if one["call"] is None else f"call {output.escaped(one['call'])}"
        yield f"  {who} waits: {output.escaped(one['reason'] or '')}"
    if (left := len(waits) - limits.PROGRESS_MOST_WAITING) > 0:
        yield f"  … and {left} more: acts status --json"


def _of_instances(document: Mapping[str, Any], is_one: Callable[[str], bool]) -> dict[str, Any]:
    """Return the parts of a run's document about some of its instances."""
    return {
        part: {name: value for name, value in document[part].items() if is_one(name)}
        for part in ("instances", "instance_status")
    }


def _own(seen: Any, shared: Any) -> Any:
    """Return the values of an instance that differ from the global ones; all of them if it lacks a global value."""
    if not isinstance(seen, dict) or not isinstance(shared, dict) or not shared.keys() <= seen.keys():
        return seen
    both = ((name, value, shared.get(name)) for name, value in seen.items())
    return {name: _own(value, other) for name, value, other in both if name not in shared or value != other}


def _child_lines(calls: Sequence[Mapping[str, Any]], view: View) -> Iterator[str]:
    """Yield the child runs that answer calls."""
    answered = [call for call in calls if call.get("child") is not None]
    if answered:
        yield output.heading("child runs")
    for call in answered[: view.most()]:
        where = f" ({call['instance']})" if call["instance"] is not None else ""
        yield f"  {call['index']} {output.escaped(call['tool'])}{output.escaped(where)}: {call['child']}"
    if (left := len(answered) - len(answered[: view.most()])) > 0:
        yield f"  … and {left} more: --all"


def _value_lines(document: Mapping[str, Any], view: View, *, most_instances: int) -> Iterator[str]:
    if document["output"] is not None:
        yield from output.value_lines({"output": document["output"]}, cut=view.cut)
    if not view.is_failed:
        yield from output.data_lines("global", document["global"], view.cut)
    failed = {call["instance"] for call in document["calls"] if call["status"] == "failed"}
    instances = sorted(document["instances"].items(), key=lambda item: item[0] not in failed)
    shown = instances[: view.most(most_instances)]
    shared = document["global"] if len(instances) > 1 and not view.is_failed else {}
    for instance, kinds in shown:
        yield from output.data_lines(instance, _own(kinds, shared), view.cut)
    if (left := len(instances) - len(shown)) > 0:
        yield f"… and {output.counted(left, 'instance')}{' more' if shown else ''}: --all, --limit"
