"""The log of a run as spans, which are plain values here. Names and attributes come from OpenTelemetry's semantic
conventions for generative AI; those that the conventions lack begin with `acts.`.

Attributes that show what models and tools are given, and what they answer, are there only where content is asked for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Any, Final, NamedTuple, Self

from ...protocol.calls.call import Call, call_of, element_of
from ...protocol.calls.tools import Executor
from ...protocol.engine.costs import reported
from ...protocol.engine.events import Status
from ...protocol.engine.loop import Answered, LoopEnded, RequestRecorded
from .. import limits
from ..broker.attempts import CallId, TracePlace, call_span, part_span, place_of_run
from ..store.definition import StoredPlan, unpack_lane
from ..store.entries import Entry, RunStatusChanged, moment_ms
from ..store.keys import ENDED_STATUSES, LOOP
from ..store.run_list import DELEGATE, PARENT, TRACE
from ..store.scripts import ExecutedBy

OPERATION: Final = "gen_ai.operation.name"
WORKFLOW: Final = "invoke_workflow"
AGENT: Final = "invoke_agent"
PLAN: Final = "plan"
TOOL: Final = "execute_tool"
CHAT: Final = "chat"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
ERROR_TYPE: Final = "error.type"
RUN: Final = "acts.run.id"
STATUS: Final = "acts.status"


@dataclass(frozen=True, slots=True)
class Fault:
    """The error of a span."""

    type: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Something that was done, from when to when. Times are those of the log's server, in ms."""

    operation: str
    about: str | None
    """The object of the operation: the name of a tool, an agent, a model."""
    place: TracePlace
    above: str | None
    """The span that it is part of; None for the root of a trace."""
    start_ms: int
    end_ms: int
    fault: Fault | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """The attributes; those that are None are left out."""

    @property
    def name(self) -> str:
        """The name that the conventions form."""
        return self.operation if self.about is None else f"{self.operation} {self.about}"

    @property
    def all_attributes(self) -> dict[str, Any]:
        """The attributes, with those that every span has."""
        fault = {ERROR_TYPE: self.fault.type} if self.fault is not None else {}
        own = {key: value for key, value in self.attributes.items() if value is not None}
        return {OPERATION: self.operation, **own, **fault}


def fault_of(error: Mapping[str, Any] | None) -> Fault:
    """Make the fault of a call's error, as the log has it."""
    found = error or {}
    message = found.get("message")
    text = str(message)[: limits.SPANS_LONGEST] if message is not None else None
    return Fault(str(found.get("type") or "_OTHER"), text)


def usage_attributes(usage: Any) -> dict[str, int]:
    """Make the attributes of the tokens that a request has used, where its provider has reported them."""
    if (counts := reported(usage)) is None:
        return {}
    names = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens")
    return {name: count for name, count in zip(names, counts, strict=True) if count or name != names[2]}


def request_attributes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Make the attributes of the settings that a model was sent."""
    names = {
        "model": "gen_ai.request.model",
        "max_output_tokens": "gen_ai.request.max_tokens",
        "temperature": "gen_ai.request.temperature",
        "top_p": "gen_ai.request.top_p",
        "seed": "gen_ai.request.seed",
        "reasoning_effort": "gen_ai.request.reasoning.level",
    }
    found = {name: config[key] for key, name in names.items() if config.get(key) is not None}
    provider, colon, model = str(config.get("model") or "").partition(":")
    if colon:  # a model by its address, and not by a name that the operator has given it
        found |= {"gen_ai.provider.name": provider, names["model"]: model}
    if (stop := config.get("stop")) is not None:
        found["gen_ai.request.stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return found


def shown_messages(messages: Iterable[Mapping[str, Any]]) -> str:
    """Write chat messages as the conventions have them."""
    return as_json([{"role": each.get("role", "user"), "parts": _parts(each.get("content"))} for each in messages])


def _parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return [_part(each) for each in content]
    return [{"type": "text", "content": content if isinstance(content, str) else as_json(content)}]


def _part(part: Any) -> Any:
    is_text = isinstance(part, Mapping) and isinstance(part.get("text"), str)
    return {"type": "text", "content": part["text"]} if is_text else part


def as_json(value: Any) -> str:
    """Write a value as an attribute has it."""
    return json.dumps(value, ensure_ascii=False)


# The spans of calls: each call and each element that has run, and what a model was asked for it.
#
# A call is known by its lane's record, and ends with an entry of its own. Of those in between only what has begun is
# kept, so memory grows with the lanes and with what is at work, and not with what has ended.

_Where = tuple[str | None, int | None]


class _Known(NamedTuple):
    """The facts in a span of a call."""

    tool: str
    executor: Executor
    runner: str
    parameters: str | None
    """The parameters as they were written, where content is asked for."""


@dataclass(slots=True)
class CallSpans:
    """The spans of one run's calls; fed in order."""

    place: TracePlace
    """The span that the calls are part of."""
    run: str
    definition: StoredPlan
    read_codes: Callable[[], Mapping[int, ExecutedBy]]
    shows_content: bool
    failed: set[_Where] = field(default_factory=set)
    """The calls that have failed."""
    codes: Mapping[int, ExecutedBy] = field(default_factory=dict)
    _lanes: dict[str | None, Mapping[int, _Known]] = field(default_factory=dict)
    _shared: dict[tuple[bytes, bool], Mapping[int, _Known]] = field(default_factory=dict)
    """The calls of records that many lanes share."""
    _begun: dict[_Where, tuple[int, str | None]] = field(default_factory=dict)
    """When each call that is at work began, and the child run that answers it."""
    _again: Counter[_Where] = field(default_factory=Counter)
    """How often each call was undone, and run again."""

    def take(self, entry: Entry) -> Iterator[Span]:
        """Yield the spans that end with an entry of a lane of calls."""
        if entry.amendment is not None:
            self.definition = self.definition.amended(entry.amendment)
        if entry.record is not None:
            self._lay_out(entry.instance, entry.record)
        if entry.undone is not None:
            undone = {(entry.instance, call) for call in entry.undone.calls}
            self._again.update(undone)
            self.failed -= undone
        elif entry.status is Status.RUNNING:
            self._begun[entry.instance, entry.call] = moment_ms(entry.id), entry.child
        yield from self._ended(entry)

    def _lay_out(self, instance: str | None, data: bytes) -> None:
        found = self._shared.get((data, instance is None))
        if found is None:
            record = unpack_lane(data, self.definition.tools)
            calls = self.definition.lane_calls(record, instance)
            found = {call.index: self._known(call) for call in calls}
            if self.definition.are_same_everywhere(record):
                self._shared[data, instance is None] = found
        before = self._lanes.get(instance)
        self._lanes[instance] = {**before, **found} if before else found

    def _known(self, call: Call) -> _Known:
        written = {key: value for key, value in call.raw.items() if not key.startswith("_")}
        shown = as_json(written) if self.shows_content else None
        return _Known(intern(call.tool), call.runner.executor, intern(call.runner.name), shown)

    def _ended(self, entry: Entry) -> Iterator[Span]:
        end, element = entry.end or entry.element_end, entry.element_end
        if end is None or end.status is Status.SKIPPED:
            return
        index = element.element if element is not None else end.call
        known = self._lanes[entry.instance][call_of(index)]
        end_ms = moment_ms(entry.id)
        since_ms, child = self._begun.pop((entry.instance, index), (end_ms, None))
        took_ms = entry.spent.took_ms if entry.spent is not None else None
        start_ms = end_ms - took_ms if took_ms is not None else since_ms
        place = self.place.at(self._span(entry.instance, index))
        above = self.place.span if element is None else self._span(entry.instance, call_of(index))
        fault = fault_of(end.error) if end.status is Status.FAILED else None
        if fault is not None and element is None:
            self.failed.add((entry.instance, index))
        is_agent = known.executor is Executor.DELEGATE and child is None
        agent = (known.runner or None) if is_agent else None
        about = {AGENT_NAME: agent, STATUS: end.status.value, **self._attributes(entry, index, known)}
        yield Span(AGENT if is_agent else TOOL, agent or known.tool, place, above, start_ms, end_ms, fault, about)
        if child is None and (cost := end.cost) is not None and cost.get("model"):
            model = str(cost["model"])
            request = {"gen_ai.request.model": model, "gen_ai.response.model": model, RUN: self.run}
            asked, attributes = place.at(part_span(place.span, CHAT)), request | usage_attributes(cost.get("usage"))
            yield Span(CHAT, model, asked, place.span, start_ms, end_ms, None, attributes)

    def _span(self, instance: str | None, index: int) -> str:
        """The id of the span of a call, or of an element."""
        return call_span(self.run, CallId(self.run, instance, index).member, self._again[instance, call_of(index)])

    def _attributes(self, entry: Entry, index: int, known: _Known) -> dict[str, Any]:
        if entry.code is not None and entry.code not in self.codes:
            self.codes = self.read_codes()
        code = self.codes.get(entry.code) if entry.code is not None else None
        content = {}
        if self.shows_content:
            message = entry.message
            result = as_json(message.get("data", message)) if message is not None else None
            content = {"gen_ai.tool.call.arguments": known.parameters, "gen_ai.tool.call.result": result}
        return {
            "gen_ai.tool.name": known.tool,
            "gen_ai.tool.call.id": CallId(self.run, entry.instance, index).idempotency_key,
            RUN: self.run,
            "acts.instance": entry.instance,
            "acts.call.index": call_of(index),
            "acts.element": element_of(index),
            "acts.attempts": entry.spent.attempts if entry.spent is not None else None,
            "acts.worker": code.worker if code is not None else None,
            "acts.code.version": code.version if code is not None else None,
            **content,
        }


# The spans of a loop: each tick's plan, and what a model was asked for it.

TICK: Final = "acts.tick"


@dataclass(slots=True)
class LoopSpans:
    """The spans of one run's loop; fed in order."""

    place: TracePlace
    """The span of the loop."""
    run: str
    agent: str | None
    shows_content: bool
    end: LoopEnded | None = None
    """How the loop has ended."""
    used: Counter[str] = field(default_factory=Counter)
    """The tokens of its requests, as `usage`."""
    _model: Any = None
    """The model that was asked before: a request that was not answered goes to the same."""
    _asked: tuple[int, int, RequestRecorded] | None = None
    """When the request that is under way was asked, in which tick, and what."""
    _plan_since_ms: int | None = None
    _times: Counter[int] = field(default_factory=Counter)
    """How often the request of each tick has ended."""
    _plans: Counter[int] = field(default_factory=Counter)
    """How often the plan of each tick has ended: a loop that goes on after a failure plans its tick once more."""

    def take(self, entry: Entry) -> Iterator[Span]:
        """Yield the spans that end with an entry of the loop's lane."""
        now_ms, tick = moment_ms(entry.id), entry.tick or 0
        for event in entry.loop:
            match event:
                case RequestRecorded():
                    self._asked = now_ms, tick, event
                    self._plan_since_ms = now_ms if self._plan_since_ms is None else self._plan_since_ms
                case Answered(message):
                    usage = (event.cost or {}).get("usage") or message.get("usage")
                    fault = next((Fault(each.type, each.message) for each in event.errors if each.call is None), None)
                    yield from self._ended(tick, now_ms, {**message, "usage": usage}, fault)
                case LoopEnded():
                    self.end = event
                    yield from self._ended(tick, now_ms, {}, Fault("_OTHER", event.reason))

    def _ended(self, tick: int, now_ms: int, answer: Mapping[str, Any], fault: Fault | None) -> Iterator[Span]:
        """Yield the request and the plan that are under way, where they are."""
        plan = part_span(self.place.span, f"{PLAN} {tick} {self._plans[tick]}")
        own = {RUN: self.run, CONVERSATION: self.run, TICK: tick}
        if self._asked is not None:
            (since_ms, request, asked), self._asked = self._asked, None
            place = self.place.at(call_span(self.run, CallId(self.run, LOOP, request).member, self._times[request]))
            self._times[request] += 1
            attributes = {**own, **self._request(asked, answer)}
            yield Span(CHAT, self._model, place, plan, since_ms, now_ms, fault, attributes)
        if self._plan_since_ms is not None:
            since_ms, self._plan_since_ms = self._plan_since_ms, None
            self._plans[tick] += 1
            own[AGENT_NAME] = self.agent
            yield Span(PLAN, self.agent, self.place.at(plan), self.place.span, since_ms, now_ms, fault, own)

    def _request(self, asked: RequestRecorded, answer: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes of a request and its answer, which is empty where none came."""
        model, usage, solution = (answer.get(name) for name in ("model", "usage", "solution"))
        sent, content = request_attributes(asked.config), {}
        if self.shows_content:
            said = [{"role": "assistant", "content": as_json(solution)}] if solution is not None else []
            content = {
                "gen_ai.input.messages": shown_messages(asked.messages),
                "gen_ai.output.messages": shown_messages(said),
            }
        if (counts := reported(usage)) is not None:
            self.used.update(dict(zip(("input", "output", "cached"), counts, strict=True)))
        self._model = sent.get("gen_ai.request.model") or model or self._model
        names = {"gen_ai.request.model": self._model, **sent, "gen_ai.response.model": model}
        return names | usage_attributes(usage) | content


# A run's log as spans, entry by entry: nothing of it is kept but what later entries need.
#
# run            invoke_workflow; a child run is an invoke_agent below the call that it answers
# its loop       invoke_agent, below it
# a tick         plan, and below it what a model was asked: chat
# a call         execute_tool; for a delegate without tools invoke_agent
# an element     execute_tool, below its call


@dataclass(frozen=True, slots=True)
class TracedRun:
    """The fields of a run's state that its spans need."""

    id: str
    name: str | None
    submitted_ms: int
    above: TracePlace | None
    """The span that it was submitted under."""
    is_child: bool
    delegate: str | None
    """The name of the delegate that a child run is."""

    @classmethod
    def read(cls, run: str, state: Mapping[str, str]) -> Self:
        """Read the fields of a state."""
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
        """The run's own span."""
        return place_of_run(self.id, self.above)


class RunSpans:
    """The spans of one run; fed with its log in order."""

    def __init__(
        self,
        run: TracedRun,
        definition: StoredPlan,
        codes: Callable[[], Mapping[int, ExecutedBy]],
        *,
        shows_content: bool,
    ) -> None:
        self._run = run
        self._agent = run.delegate if run.is_child else run.name
        is_loop, place = definition.request is not None, run.place
        if is_loop and not run.is_child:
            place = place.at(part_span(place.span, "loop"))
        self._loop = LoopSpans(place, run.id, self._agent, shows_content) if is_loop else None
        self._calls = CallSpans(place, run.id, definition, codes, shows_content)
        self._end: tuple[int, RunStatusChanged] | None = None

    def take(self, entry: Entry) -> Iterator[Span]:
        """Yield the spans that end with an entry."""
        if isinstance(entry.event, RunStatusChanged):
            is_end = entry.event.status in ENDED_STATUSES
            self._end = (moment_ms(entry.id), entry.event) if is_end else None
        elif entry.tick is not None and self._loop is not None:
            yield from self._loop.take(entry)
        elif entry.is_of_lane:
            yield from self._calls.take(entry)

    def close(self) -> Iterator[Span]:
        """Yield the spans of the run itself, where it has ended with the entries so far."""
        if self._end is None:
            return
        end_ms, event = self._end
        run, loop, times = self._run, self._loop, (self._run.submitted_ms, end_ms, self._fault(event))
        shared = {RUN: run.id, STATUS: event.status}
        above = run.above.span if run.above is not None else None
        used = usage_attributes(loop.used or None) if loop is not None else {}
        agent = {AGENT_NAME: self._agent, CONVERSATION: run.id, **shared, **used}
        if run.is_child:
            yield Span(AGENT, self._agent, run.place, above, *times, agent)
            return
        if loop is not None:
            yield Span(AGENT, self._agent, loop.place, run.place.span, *times, agent)
        yield Span(WORKFLOW, run.name, run.place, above, *times, {AGENT_NAME: run.name, **shared})

    def _fault(self, event: RunStatusChanged) -> Fault | None:
        if event.status == "completed":
            return None
        loop = self._loop.end if self._loop is not None else None
        reason = event.reason or (loop.reason if loop is not None else None)
        if reason is None and (failed := len(self._calls.failed)):
            reason = "a call failed" if failed == 1 else f"{failed} calls failed"
        return Fault(event.status, reason)
