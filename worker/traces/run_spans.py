"""A run's log as spans, entry by entry: nothing of it is kept but what later entries need.

run            invoke_workflow; a child run is an invoke_agent below the call that it answers
its loop       invoke_agent, below it
a tick         plan, and below it what a model was asked: chat
a call         execute_tool; what a delegate without tools has carried out is invoke_agent
an element     execute_tool, below its call
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from acts_celery.worker.storage.child_links import DELEGATE, PARENT, TRACE
from acts_celery.worker.storage.codes import Code
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.entries import Entry, RunStatusChanged, moment_ms
from acts_celery.worker.storage.keys import ENDED
from acts_celery.worker.wire.traces import TracePlace, part_span, place_of_run

from .call_spans import CallSpans
from .loop_spans import LoopSpans
from .spans import AGENT, AGENT_NAME, CONVERSATION, RUN, STATUS, WORKFLOW, Fault, Span, usage_attributes


@dataclass(frozen=True, slots=True)
class TracedRun:
    """What the state of a run says of it."""

    id: str
    name: str | None
    submitted_ms: int
    above: TracePlace | None
    """The span that it was submitted under."""
    is_child: bool
    delegate: str | None
    """Which one it is, of a child run."""

    @classmethod
    def read(cls, run: str, state: Mapping[str, str]) -> Self:
        """From the fields of its state."""
        above = TracePlace.unpack(state.get(TRACE, ""))
        return cls(
            run,
            state.get("name"),
            int(float(state.get("submitted", 0))),
            above,
            PARENT in state and above is not None,
            state.get(DELEGATE),
        )

    @property
    def place(self) -> TracePlace:
        """Its own span."""
        return place_of_run(self.id, self.above)


class RunSpans:
    """The spans of one run; fed with its log in order."""

    def __init__(
        self, run: TracedRun, definition: Definition, codes: Callable[[], Mapping[int, Code]], *, shows_content: bool
    ) -> None:
        self._run = run
        is_loop = definition.request is not None
        self._place = run.place
        self._agent = run.delegate if run.is_child else run.name
        own = part_span(run.place.span, "loop")
        place = run.place.at(own) if is_loop and not run.is_child else run.place
        self._loop = LoopSpans(place, run.id, self._agent, shows_content=shows_content) if is_loop else None
        self._loop_place = place
        self._calls = CallSpans(place, run.id, definition, codes, shows_content=shows_content)
        self._end: tuple[int, RunStatusChanged] | None = None

    def take(self, entry: Entry) -> Iterator[Span]:
        """The spans that end with an entry."""
        if isinstance(entry.event, RunStatusChanged):
            is_end = entry.event.status in ENDED
            self._end = (moment_ms(entry.id), entry.event) if is_end else None
        elif entry.tick is not None and self._loop is not None:
            yield from self._loop.take(entry)
        elif entry.is_of_lane:
            yield from self._calls.take(entry)

    def close(self) -> Iterator[Span]:
        """The spans of the run itself, where it has ended with the entries so far."""
        if self._end is None:
            return
        end_ms, event = self._end
        run, fault = self._run, self._fault(event)
        shared = {RUN: run.id, STATUS: event.status}
        above = run.above.span if run.above is not None else None
        used = self._loop.used if self._loop is not None else None
        agent = {AGENT_NAME: self._agent, CONVERSATION: run.id, **shared, **usage_attributes(used or None)}
        if run.is_child:
            yield Span(AGENT, self._agent, self._place, above, run.submitted_ms, end_ms, fault, agent)
            return
        if self._loop is not None:
            place = self._loop_place
            yield Span(AGENT, self._agent, place, self._place.span, run.submitted_ms, end_ms, fault, agent)
        own: dict[str, Any] = {AGENT_NAME: run.name, **shared}
        yield Span(WORKFLOW, run.name, self._place, above, run.submitted_ms, end_ms, fault, own)

    def _fault(self, event: RunStatusChanged) -> Fault | None:
        if event.status == "completed":
            return None
        loop = self._loop.end if self._loop is not None else None
        reason = event.reason or (loop.reason if loop is not None else None)
        if reason is None and self._calls.failed:
            reason = "a call failed" if self._calls.failed == 1 else f"{self._calls.failed} calls failed"
        return Fault(event.status, reason)
