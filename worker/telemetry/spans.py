"""A span, as plain values. Names and attributes are those of OpenTelemetry's semantic conventions for generative AI.

What the conventions have no name for is `acts.…`. Attributes that show what models and tools are given, and what they
answer, are there only where content is asked for.
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
from ..store.definition import Definition, unpack_lane
from ..store.entries import LOOP, Entry, RunStatusChanged, moment_ms
from ..store.keys import ENDED_STATUSES
from ..store.run_list import DELEGATE, PARENT, TRACE
from ..store.scripts import Code

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
    """Why what a span is about has failed."""

    type: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """Something that was done, from when to when. Times are those of the log's server, in ms."""

    operation: str
    about: str | None
    """What the operation is done to: the name of a tool, an agent, a model."""
    place: TracePlace
    above: str | None
    """The span that it is part of; None for the root of a trace."""
    start_ms: int
    end_ms: int
    fault: Fault | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """Those that are None are left out."""

    @property
    def name(self) -> str:
        """As the conventions form it."""
        return self.operation if self.about is None else f"{self.operation} {self.about}"

    @property
    def all_attributes(self) -> dict[str, Any]:
        """The attributes, with those that every span has."""
        fault = {ERROR_TYPE: self.fault.type} if self.fault is not None else {}
        own = {key: value for key, value in self.attributes.items() if value is not None}
        return {OPERATION: self.operation, **own, **fault}


def fault_of(error: Mapping[str, Any] | None) -> Fault:
    """Of a call's error, as the log has it."""
    message = (error or {}).get("message")
    return Fault(
        str((error or {}).get("type") or "_OTHER"),
        str(message)[: limits.SPANS_LONGEST] if message is not None else None,
    )


def usage_attributes(usage: Any) -> dict[str, int]:
    """The tokens that a request has used, where its provider has reported them."""
    if (counts := reported(usage)) is None:
        return {}
    names = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens")
    return {name: count for name, count in zip(names, counts, strict=True) if count or name != names[2]}


def request_attributes(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a model was sent."""
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
    """Chat messages as the conventions write them."""
    return as_json([{"role": each.get("role", "user"), "parts": _parts(each.get("content"))} for each in messages])


def _parts(content: Any) -> list[Any]:
    if isinstance(content, list):
        return [_part(each) for each in content]
    return [{"type": "text", "content": content if isinstance(content, str) else as_json(content)}]


def _part(part: Any) -> Any:
    is_text = isinstance(part, Mapping) and isinstance(part.get("text"), str)
    return {"type": "text", "content": part["text"]} if is_text else part


def as_json(value: Any) -> str:
    """A value as an attribute has it."""
    return json.dumps(value, ensure_ascii=False)


# The spans of calls: each call and each element that was carried out, and what a model was asked for it.
#
# A call is known by its lane's record, and ends with an entry of its own. Of those in between only what has begun is
# kept, so memory grows with the lanes and with what is at work, and not with what has ended.

_Where = tuple[str | None, int | None]


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
        if entry.undone is not None:
            undone = {(entry.instance, call) for call in entry.undone.calls}
            self._again.update(undone)
            self._failed -= undone
        elif entry.status is Status.RUNNING:
            self._begun[entry.instance, entry.call] = _Begun(moment_ms(entry.id), entry.child)
        yield from self._ended(entry)

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

    def _ended(self, entry: Entry) -> Iterator[Span]:
        end, element = entry.end or entry.element_end, entry.element_end
        if end is None or end.status is Status.SKIPPED:
            return
        index = element.element if element is not None else end.call
        known = self._lanes[entry.instance][call_of(index)]
        begun = self._begun.pop((entry.instance, index), None)
        id_, again = CallId(self._run, entry.instance, index), self._again[entry.instance, call_of(index)]
        place = self._place.at(call_span(self._run, id_.member, again))
        end_ms = moment_ms(entry.id)
        took_ms = entry.spent.took_ms if entry.spent is not None else None
        start_ms = end_ms - took_ms if took_ms is not None else begun.since_ms if begun is not None else end_ms
        fault = fault_of(end.error) if end.status is Status.FAILED else None
        if fault is not None and element is None:
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
                STATUS: end.status.value,
            },
        )
        if not has_child and (cost := end.cost) is not None and cost.get("model"):
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


# The spans of a loop: each tick's plan, and what a model was asked for it.

TICK: Final = "acts.tick"


class _Open(NamedTuple):
    """A request that was asked and not answered."""

    since_ms: int
    request: int
    """Its index among the calls of the loop's lane."""
    asked: RequestRecorded


class LoopSpans:
    """The spans of one run's loop; fed in order."""

    def __init__(self, place: TracePlace, run: str, agent: str | None, *, shows_content: bool) -> None:
        """`place` is the span of the loop."""
        self.end: LoopEnded | None = None
        """How the loop has ended."""
        self.used = Counter[str]()
        """The tokens of its requests, as `usage`."""
        self._place = place
        self._run = run
        self._agent = agent
        self._shows_content = shows_content
        self._model: Any = None
        """Which model was asked before: a request that was not answered goes to the same."""
        self._open: _Open | None = None
        self._plan_since_ms: int | None = None
        self._times = Counter[int]()
        """How often the request of an index has ended."""
        self._plans = Counter[int]()
        """How often the plan of a tick has."""

    def take(self, entry: Entry) -> Iterator[Span]:
        """The spans that end with an entry of the loop's lane."""
        now_ms, tick = moment_ms(entry.id), entry.tick or 0
        for event in entry.loop:
            match event:
                case RequestRecorded():
                    self._open = _Open(now_ms, tick, event)
                    self._plan_since_ms = now_ms if self._plan_since_ms is None else self._plan_since_ms
                case Answered(message):
                    usage = (event.cost or {}).get("usage") or message.get("usage")
                    fault = next((Fault(each.type, each.message) for each in event.errors if each.call is None), None)
                    yield from self._answered(tick, now_ms, message.get("model"), usage, message.get("solution"), fault)
                    yield from self._planned(tick, now_ms, fault)
                case LoopEnded():
                    self.end = event
                    fault = Fault("_OTHER", event.reason)
                    yield from self._answered(tick, now_ms, None, None, None, fault)
                    yield from self._planned(tick, now_ms, fault)

    def _answered(
        self, tick: int, now_ms: int, model: Any, usage: Any, answer: Any, fault: Fault | None = None
    ) -> Iterator[Span]:
        """The request that is under way, where one is."""
        if (open_ := self._open) is None:
            return
        self._open = None
        member = CallId(self._run, LOOP, open_.request).member
        place = self._place.at(call_span(self._run, member, self._times[open_.request]))
        sent = request_attributes(open_.asked.config)
        content = {}
        if self._shows_content:
            said = [{"role": "assistant", "content": as_json(answer)}] if answer is not None else []
            content = {
                "gen_ai.input.messages": shown_messages(open_.asked.messages),
                "gen_ai.output.messages": shown_messages(said),
            }
        if (counts := reported(usage)) is not None:
            self.used.update(dict(zip(("input", "output", "cached"), counts, strict=True)))
        name = self._model = sent.get("gen_ai.request.model") or model or self._model
        attributes = {
            **self._own(tick),
            "gen_ai.request.model": name,
            **sent,
            "gen_ai.response.model": model,
            **usage_attributes(usage),
            **content,
        }
        yield Span(CHAT, name, place, self._plan(tick), open_.since_ms, now_ms, fault, attributes)
        self._times[open_.request] += 1

    def _planned(self, tick: int, now_ms: int, fault: Fault | None) -> Iterator[Span]:
        """The plan that is being made, where one is: it has ended."""
        if self._plan_since_ms is None:
            return
        since_ms, self._plan_since_ms = self._plan_since_ms, None
        place = self._place.at(self._plan(tick))
        self._plans[tick] += 1
        own = {**self._own(tick), AGENT_NAME: self._agent}
        yield Span(PLAN, self._agent, place, self._place.span, since_ms, now_ms, fault, own)

    def _plan(self, tick: int) -> str:
        """The span of a tick's plan. A loop that goes on after it had failed while asking plans the tick once more."""
        return part_span(self._place.span, f"{PLAN} {tick} {self._plans[tick]}")

    def _own(self, tick: int) -> Mapping[str, Any]:
        return {RUN: self._run, CONVERSATION: self._run, TICK: tick}


# A run's log as spans, entry by entry: nothing of it is kept but what later entries need.
#
# run            invoke_workflow; a child run is an invoke_agent below the call that it answers
# its loop       invoke_agent, below it
# a tick         plan, and below it what a model was asked: chat
# a call         execute_tool; what a delegate without tools has carried out is invoke_agent
# an element     execute_tool, below its call


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
            is_end = entry.event.status in ENDED_STATUSES
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
