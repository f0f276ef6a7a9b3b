"""The spans of calls: each call and each element that was carried out, and what a model was asked for it.

A call is known by its lane's record, and ends with an entry of its own. Of those in between only what has begun is
kept, so memory grows with the lanes and with what is at work, and not with what has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from sys import intern
from typing import Any, NamedTuple

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.elements import call_of, element_of
from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.engine.events import CallEnded, CallsUndone, ChildStarted, ElementEnded, FanOutBegun
from acts_celery.protocol.engine.statuses import Status
from acts_celery.worker.storage.codes import Code
from acts_celery.worker.storage.definition import Definition, unpack_lane
from acts_celery.worker.storage.entries import Entry, moment_ms
from acts_celery.worker.wire.attempts import CallId
from acts_celery.worker.wire.traces import TracePlace, call_span, part_span

from .spans import AGENT, AGENT_NAME, CHAT, RUN, STATUS, TOOL, Span, as_json, fault_of, usage_attributes

_Where = tuple[str | None, int]


class _Known(NamedTuple):
    """What a span says of a call."""

    tool: str
    executor: Executor
    runner: str
    parameters: str | None
    """As they were written, where content is asked for."""


class _Begun(NamedTuple):
    """What is known of a call before it ends, where the end does not say it."""

    since_ms: int
    child: str | None = None


class CallSpans:
    """The spans of one run's calls; fed in order."""

    def __init__(
        self,
        place: TracePlace,
        run: str,
        definition: Definition,
        codes: Callable[[], Mapping[int, Code]],
        *,
        shows_content: bool,
    ) -> None:
        """`place` is the span that the calls are part of."""
        self._place = place
        self._run = run
        self._definition = definition
        self._read_codes = codes
        self._codes: Mapping[int, Code] = {}
        self._shows_content = shows_content
        self._lanes: dict[str | None, Mapping[int, _Known]] = {}
        self._shared: dict[tuple[bytes, bool], Mapping[int, _Known]] = {}
        """Those of the records that many lanes share."""
        self._begun: dict[_Where, _Begun] = {}
        self._again = Counter[_Where]()
        self._failed: set[_Where] = set()

    @property
    def failed(self) -> int:
        """How many calls have failed."""
        return len(self._failed)

    def take(self, entry: Entry) -> Iterator[Span]:
        """The spans that end with an entry of a lane of calls."""
        if entry.amendment is not None:
            self._definition = self._definition.amended(entry.amendment)
        if entry.record is not None:
            self._lay_out(entry.instance, entry.record)
        match entry.event:
            case FanOutBegun(call):
                self._begun[entry.instance, call] = _Begun(moment_ms(entry.id))
            case ChildStarted(call, child):
                self._begun[entry.instance, call] = _Begun(moment_ms(entry.id), child)
            case CallsUndone(calls):
                undone = {(entry.instance, call) for call in calls}
                self._again.update(undone)
                self._failed -= undone
            case CallEnded() | ElementEnded() as event if event.status is not Status.SKIPPED:
                yield from self._ended(entry, event)

    def _lay_out(self, instance: str | None, data: bytes) -> None:
        found = self._shared.get((data, instance is None))
        if found is None:
            record = unpack_lane(data, self._definition.tools)
            calls = self._definition.lane_calls(record, instance)
            found = {call.index: self._known(call) for call in calls}
            if self._definition.are_same_everywhere(record):
                self._shared[data, instance is None] = found
        before = self._lanes.get(instance)
        self._lanes[instance] = {**before, **found} if before else found

    def _known(self, call: Call) -> _Known:
        written = {key: value for key, value in call.raw.items() if not key.startswith("_")}
        shown = as_json(written) if self._shows_content else None
        return _Known(intern(call.tool), call.runner.executor, intern(call.runner.name), shown)

    def _ended(self, entry: Entry, event: CallEnded | ElementEnded) -> Iterator[Span]:
        index = event.element if isinstance(event, ElementEnded) else event.call
        known = self._lanes[entry.instance][call_of(index)]
        begun = self._begun.pop((entry.instance, index), None)
        id_, again = CallId(self._run, entry.instance, index), self._again[entry.instance, call_of(index)]
        place = self._place.at(call_span(self._run, id_.member, again))
        end_ms = moment_ms(entry.id)
        took_ms = entry.spent.took_ms if entry.spent is not None else None
        start_ms = end_ms - took_ms if took_ms is not None else begun.since_ms if begun is not None else end_ms
        fault = fault_of(event.error) if event.status is Status.FAILED else None
        if fault is not None and isinstance(event, CallEnded):
            self._failed.add((entry.instance, index))
        has_child = begun is not None and begun.child is not None
        is_agent = known.executor is Executor.DELEGATE and not has_child
        yield Span(
            AGENT if is_agent else TOOL,
            known.runner or known.tool if is_agent else known.tool,
            place,
            self._above(entry.instance, index, again),
            start_ms,
            end_ms,
            fault,
            {
                **self._attributes(entry, id_, known),
                AGENT_NAME: (known.runner or None) if is_agent else None,
                STATUS: event.status.value,
            },
        )
        if not has_child and (cost := event.cost) is not None and cost.get("model"):
            yield self._asked(place, start_ms, end_ms, cost)

    def _above(self, instance: str | None, index: int, again: int) -> str:
        """The span that one is part of: an element is part of its call's."""
        if element_of(index) is None:
            return self._place.span
        return call_span(self._run, CallId(self._run, instance, call_of(index)).member, again)

    def _attributes(self, entry: Entry, id_: CallId, known: _Known) -> dict[str, Any]:
        code = self._code(entry.code)
        content = {}
        if self._shows_content:
            message = entry.message
            result = as_json(message.get("data", message)) if message is not None else None
            content = {"gen_ai.tool.call.arguments": known.parameters, "gen_ai.tool.call.result": result}
        return {
            "gen_ai.tool.name": known.tool,
            "gen_ai.tool.call.id": id_.idempotency_key,
            RUN: self._run,
            "acts.instance": id_.instance,
            "acts.call.index": call_of(id_.index),
            "acts.element": element_of(id_.index),
            "acts.attempts": entry.spent.attempts if entry.spent is not None else None,
            "acts.worker": code.worker if code is not None else None,
            "acts.code.version": code.version if code is not None else None,
            **content,
        }

    def _code(self, number: int | None) -> Code | None:
        if number is not None and number not in self._codes:
            self._codes = self._read_codes()
        return self._codes.get(number) if number is not None else None

    def _asked(self, call: TracePlace, start_ms: int, end_ms: int, cost: Mapping[str, Any]) -> Span:
        """What a model was asked for a call."""
        model = str(cost["model"])
        place = call.at(part_span(call.span, CHAT))
        attributes = {
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            RUN: self._run,
            **usage_attributes(cost.get("usage")),
        }
        return Span(CHAT, model, place, call.span, start_ms, end_ms, None, attributes)
