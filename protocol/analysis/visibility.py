"""Visibility: which calls can ever see a value, proven from the submission alone (SPEC R8).

A call gets its parameters and its scopes, and nothing else; the model of a latent call sees all of its instance. A call
*sees* a place directly where a parameter reads at, above or below it, or a scope covers any of it. The results and
errors of such a call may tell about the value, so calls that read these, and theirs in turn, are listed apart as
*derived*. That includes calls whose results a model has written already, and calls that fail because their results do
not fit the value at a place.

A delegate gets its own messages, those scopes and those parameters (`delegates.delegate_context`), and a call inside it
reads nothing else. So the answers of this module about a call hold for everything that the delegate does.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

from .. import limits
from ..calls.call import Call, read_approvals
from ..calls.declarations import declares_tools, has_own_run, input_schema, is_workflow
from ..calls.tools import ANONYMOUS, Executor, Tool
from ..calls.trust import NOTHING, ToolTrust, tool_trust_of
from ..engine.loop import LoopLimits
from ..errors import ExpressionError
from ..messages import DATA_TYPES, Message, read_data
from ..near_misses import KnownPlaces
from ..paths import MISSING
from ..plan.checked_plan import CheckedPlan, Promised
from ..plan.graph import Audience
from ..references import DAGGER, Reference, parse, parse_output_path
from ..requests import Request, compose, render
from ..requests.tool_texts import first_schema
from ..schemas.walk import Walk, referred
from ..state.scopes import read_scope
from .findings import Finding


@dataclass(frozen=True, slots=True)
class Sight:
    """A call that can see a value by the parameters and scopes (or, derived, the results) named in `how`."""

    index: int
    tool: str
    executor: Executor
    name: str
    """The name under which the executor is registered."""
    how: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The sight as data."""
        return asdict(self) | {"how": list(self.how)}


@dataclass(frozen=True, slots=True)
class Visibility:
    """Who can see a place: `direct` its value itself, `derived` what was made from it."""

    place: Reference
    direct: tuple[Sight, ...]
    derived: tuple[Sight, ...]
    note: str | None = None
    """A warning where nothing is ever at the place, which explains that no call sees it."""

    def to_dict(self) -> dict[str, Any]:
        """The visibility as data."""
        return {
            "path": str(self.place),
            "note": self.note,
            "direct": [sight.to_dict() for sight in self.direct],
            "derived": [sight.to_dict() for sight in self.derived],
        }


_ERRORS: Final = Reference("error")
"""Where a failed call writes why, in words that may contain what it was given (SPEC R7.2)."""


def who_sees(plan: CheckedPlan, path: str) -> Visibility:
    """The calls that can ever see a value at, above or below a place. Raises `ExpressionError` for other paths.

    A path may lack its `†` where it begins with a known kind.
    """
    places = KnownPlaces(plan, most_instances=100_000)
    place = _place(path, {*places.kinds(), *DATA_TYPES})
    note = None if place.kind == _ERRORS.kind or places.has(place) else _nothing_there(place, plan)
    found = sights(place, plan.calls, judged_kinds(plan.context.messages), is_template=plan.submission.is_template)
    return replace(found, note=note)


def sights(place: Reference, calls: Iterable[Call], judged: Container[str], *, is_template: bool) -> Visibility:
    """The calls, among some, that can ever see a value at, above or below a place.

    `judged` are the kinds with schemas (see `judged_kinds`).
    """
    known = {call.index: call for call in calls if not call.is_thought}
    direct = {
        index: how
        for index, call in known.items()
        if _is_handed(call) and (how := tuple(dict.fromkeys(_ways(call, place))))
    }
    derived = _Derivation(known, judged, is_template=is_template).readers(place)
    return Visibility(place, _accesses(known, direct), _accesses(known, derived))


def judged_kinds(messages: Iterable[Message]) -> set[str]:
    """The kinds for which the context has a schema, which results of calls have to fit."""
    return {data.kind for message in messages if "schema" in message and (data := read_data(message))}


def _place(path: str, kinds: Container[str]) -> Reference:
    """The one place that a path names.

    A path with neither dagger nor known kind might mean one inside `state` (SPEC R2.5), so it is refused.
    """
    expression = parse(path if path.startswith(DAGGER) else DAGGER + path)
    if len(expression.references) != 1:
        raise ExpressionError(path, 0, "one reference")
    place = expression.references[0]
    if not path.startswith(DAGGER) and place.kind not in kinds:
        inside = Reference("state", (place.kind, *place.path))
        raise ExpressionError(path, 0, f"a place that begins with † (did you mean {inside}?)")
    return place


def _nothing_there(place: Reference, plan: CheckedPlan) -> str:
    """The warning that nothing is ever at a place, with the place that is named nearly so."""
    near = KnownPlaces(plan).nearest(place)
    hint = f", did you mean {near}?" if near is not None else ""
    return f"nothing is ever at {place}: the context does not hold it and no call writes it{hint}"


def _is_handed(call: Call) -> bool:
    """Whether any code gets what the call reads: none does where a model has written the result."""
    return call.given is MISSING


def _ways(call: Call, place: Reference) -> Iterator[str]:
    """The parameters and scopes by which a call sees a place: its value, or (before `&&`) whether it exists."""
    for at, expression in call.reads:
        if any(group[-1].overlaps(place) for group in expression.alternatives):
            yield f"parameter {at}"
        elif any(reference.overlaps(place) for reference in expression.references):
            yield f"parameter {at} (only whether it is there)"
    for scope in call.scopes:
        if scope.overlaps(place):
            yield f"scope {scope}" if scope.path else f"scope {scope.kind}"
    if call.runner.executor is Executor.LATENT and _is_handed(call):
        yield "the whole context"


class _Derivation:
    """Finds who reads what is made from a value. A step is a call, and a place where it may tell about the value."""

    def __init__(self, calls: Mapping[int, Call], judged: Container[str], *, is_template: bool) -> None:
        self._calls = calls
        self._judged = judged
        self._readers = Audience(calls.values(), is_template=is_template)
        self._writers = Audience(calls.values(), is_template=is_template, places=attrgetter("written"))

    def readers(self, place: Reference) -> dict[int, tuple[str, ...]]:
        """The calls that read what is made from a value, one through another, each with the first result it reads."""
        found: dict[int, tuple[str, ...]] = {}
        reading = {index for index, call in self._calls.items() if any(_ways(call, place))}
        queue = deque(self._first_steps(place, sorted(reading)))
        done: set[tuple[str | None, Reference]] = set()
        hindering: set[tuple[str | None, Reference]] = set()
        while queue:
            index, there = queue.popleft()
            writer = self._calls[index]
            if (writer.instance, there) in done:
                continue
            done.add((writer.instance, there))
            for reader in sorted({*self._readers.of(writer, there)} - reading):
                reading.add(reader)
                if _is_handed(self._calls[reader]):
                    found[reader] = (self._how(writer, there),)
                queue.extend(self._steps(reader))
            if (writer.instance, near := self._judged_with(there)) not in hindering:
                hindering.add((writer.instance, near))
                queue.extend((other, _ERRORS) for other in self._writers.of(writer, near))
        return found

    def _first_steps(self, place: Reference, reading: Iterable[int]) -> Iterator[tuple[int, Reference]]:
        for index in reading:
            yield from self._steps(index)
        near = self._judged_with(place)
        for index, call in self._calls.items():
            if any(map(near.overlaps, call.written)):
                yield index, _ERRORS

    def _steps(self, index: int) -> Iterator[tuple[int, Reference]]:
        """The steps by which a call that reads a value may tell about it."""
        return ((index, place) for place in (*self._calls[index].written, _ERRORS))

    def _judged_with(self, place: Reference) -> Reference:
        """The place in which a result may be refused because of the value at another place.

        It is the whole kind, where that has a schema. The error tells about the value.
        """
        return Reference(place.kind) if place.kind in self._judged else place

    def _how(self, writer: Call, place: Reference) -> str:
        is_value = place.kind == _ERRORS.kind or _is_handed(writer)
        return f"{place} of call {writer.index}" + ("" if is_value else " (only whether it is there)")


def _accesses(calls: Mapping[int, Call], found: Mapping[int, tuple[str, ...]]) -> tuple[Sight, ...]:
    return tuple(
        Sight(index, calls[index].tool, calls[index].runner.executor, calls[index].runner.name, found[index])
        for index in sorted(found)
    )


# Reach: what a model can do by a request, proven for every answer that the composed schema admits (SPEC R12.8).
#
# A tool that the request does not declare cannot be called, a place that no call schema admits cannot be written, and
# no tool sees a scope that its schema does not admit. All of this is an upper bound: a run may do less.

ANYTHING: Final = None
"""Stands for all places, or all scopes."""


@dataclass(frozen=True, slots=True)
class ToolReach:
    """All that calls of one tool can do."""

    tool: str
    code: tuple[tuple[Executor, str], ...]
    """The activities and delegates that may run them."""
    writes: tuple[str, ...] | None
    """The places that they can write to, None for any place."""
    sees: tuple[str, ...] | None
    """The widest scopes that they can be given, None for any."""
    takes: bool
    """True where they have parameters, so that a value can be passed to them."""

    def to_dict(self) -> dict[str, Any]:
        """The tool's reach as data."""
        code = [{"executor": executor.value, "name": name} for executor, name in self.code]
        writes = list(self.writes) if self.writes is not None else None
        sees = list(self.sees) if self.sees is not None else None
        return {"tool": self.tool, "code": code, "writes": writes, "sees": sees, "takes_parameters": self.takes}


@dataclass(frozen=True, slots=True)
class RequestReach:
    """All that a request can lead to."""

    model: str | None
    """The model that `config` names."""
    tools: tuple[ToolReach, ...]
    calls: int
    """The most calls, over all ticks."""
    requests: int
    """The most requests to models, attempts at one of them counted once."""
    tokens: int | None
    """The most tokens of all requests and answers, where `config` limits them."""
    money: float | None
    """The most US dollars for all requests, where `config` limits them."""
    first_bytes: int
    """The bytes of the first request: messages and schema."""
    shows_values: bool = True
    """Whether the model is shown values, and not their paths, schemas and sizes alone (SPEC R12.5)."""
    unenforced: str | None = None
    """Why the model's provider cannot enforce the composed schema, where that is known: answers are only validated."""
    findings: tuple[Finding, ...] = ()
    """The parts of the schema that the provider cannot enforce, where it enforces the rest."""

    def to_dict(self) -> dict[str, Any]:
        """The request's reach as data."""
        fields = {name: getattr(self, name) for name in ("model", "calls", "requests", "tokens", "money", "unenforced")}
        return {**fields, "tools": [tool.to_dict() for tool in self.tools], "first_request_bytes": self.first_bytes}

    def shows(self, place: Reference) -> bool:
        """Whether the model is shown the value at a place; errors are always shown."""
        return self.shows_values or place.kind == _ERRORS.kind

    def passed(self, place: Reference) -> tuple[str, ...]:
        """The tools to which a model may pass a value, or a reference to it, as a parameter or by a scope."""
        return tuple(tool.tool for tool in self.tools if tool.takes or _covers(tool.sees, place))


def reach_of(request: Request, code: Container[str] = ()) -> RequestReach:
    """All that a model can do by a request; `code` are the delegates that are code, and ask no model."""
    composed = compose(request)
    calls = composed["properties"]["calls"].get("items", {}).get("anyOf", ())
    tools = tuple(
        _tool_reach(request, tool, schema, composed) for tool, schema in zip(request.tools.values(), calls, strict=True)
    )
    most = LoopLimits.of(request.config)
    asking = _asking(request, tools, code)
    most_calls = most.calls if tools else 0
    first = json.dumps([render(request), first_schema(request)], ensure_ascii=False, separators=(",", ":"))
    return RequestReach(
        model=request.config.get("model"),
        tools=tools,
        calls=most_calls,
        requests=most.ticks + most_calls * asking,
        tokens=most.tokens,
        money=request.config.get("money"),
        first_bytes=len(first.encode()),
        shows_values=not request.shows_no_values,
    )


def _tool_reach(request: Request, tool: Tool, schema: Mapping[str, Any], composed: Mapping[str, Any]) -> ToolReach:
    shown = schema["properties"]
    scopes = _texts(shown.get("_scopes", False), composed, tool.constants.get("_scopes"))
    code = tuple(dict.fromkeys(_code(request, tool, schema)))
    is_latent = any(executor is Executor.LATENT for executor, _ in code)  # a model that is shown everything
    is_closed = schema["additionalProperties"] is False and "patternProperties" not in schema
    return ToolReach(
        tool=tool.name,
        code=code,
        writes=_places(_texts(shown.get("_outputPath", False), composed, tool.constants.get("_outputPath"))),
        sees=ANYTHING if scopes is None or is_latent else tuple(dict.fromkeys(scopes)),
        takes=any(not name.startswith("_") for name in shown) or not is_closed,
    )


def _code(request: Request, tool: Tool, schema: Mapping[str, Any]) -> Iterator[tuple[Executor, str]]:
    """The code that may run a call: what the call can choose, and what runs it where it chooses nothing."""
    chosen = {key: schema["properties"].get(key, {}).get("enum", ()) for key in ("_delegate", "_activity")}
    if not any(chosen[key] and key in schema["required"] for key in chosen):
        runner = request.runner(tool)
        yield runner.executor, runner.name
    yield from ((Executor.DELEGATE, name) for name in chosen["_delegate"])
    yield from ((Executor.ACTIVITY, name) for name in chosen["_activity"])


def _texts(schema: Any, composed: Any, pinned: Any) -> list[str] | None:
    """The texts that a schema of one text, or of a list of texts, admits besides the pinned ones; None for any."""
    named = _listing(composed)(schema)
    return named if named is None else [*([pinned] if isinstance(pinned, str) else pinned or ()), *named]


def _listing(composed: Any) -> Walk[list[str] | None]:
    """A walk that finds the texts that a part of a schema admits, where it plainly lists all of them."""

    def listed(schema: Any) -> list[str] | None:
        if not isinstance(schema, dict):
            return [] if schema is False else None
        if "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else schema["enum"]
            texts = (text for value in values for text in (value if isinstance(value, list) else [value]))
            return [text for text in texts if text is not None]
        for keyword in filter(schema.__contains__, ("anyOf", "oneOf")):
            branches = list(map(walk, schema[keyword]))
            if None not in branches:
                return [text for branch in branches for text in branch or ()]
        closer = [*schema.get("allOf", ()), schema.get("items"), referred(schema.get("$ref"), composed)]
        return next((named for part in closer if (named := walk(part)) is not None), None)

    walk = Walk(listed, cyclic=None)
    return walk


def _places(texts: list[str] | None) -> tuple[str, ...] | None:
    """Each place that output paths lead to."""
    if texts is None:
        return ANYTHING
    return tuple(dict.fromkeys(str(place) for text in texts for place in parse_output_path(text).references))


def _asking(request: Request, tools: Iterable[ToolReach], code: Container[str]) -> int:
    """The most requests to models that one call can lead to.

    Where a run of its own answers the call, the calls of that run count as those of this one (SPEC R13.3).
    """
    delegates = request.submission.delegates
    elements = request.known.limits.elements
    most, has_children = 0, False
    for tool in tools:
        times = elements if request.tools[tool.tool].lists else 1
        most = max([most, *(times * _requests(request, runner, code) for runner in tool.code)])
        has_children = has_children or any(_has_own_run(delegates.get(name)) for _, name in tool.code)
    if not has_children:
        return most
    below = max(_requests(request, (Executor.DELEGATE, name), code) for name in delegates)
    return max(most, below * (elements if "_each" in json.dumps(delegates, default=str) else 1))


def _has_own_run(definition: Any) -> bool:
    """Whether a delegate is answered by a run of its own (SPEC R9.3)."""
    return isinstance(definition, Mapping) and has_own_run(definition)


def _requests(request: Request, runner: tuple[Executor, str], code: Container[str]) -> int:
    """The most requests to models that one call can lead to when one runner runs it."""
    executor, name = runner
    if executor is Executor.ACTIVITY or (executor is Executor.DELEGATE and name in code):
        return 0
    definition = request.submission.delegates.get(name) if executor is Executor.DELEGATE else {}
    if name == ANONYMOUS or executor is Executor.LATENT:
        return 1
    if not isinstance(definition, Mapping):
        return LoopLimits.of(request.config).ticks  # a file: it may have tools of its own
    if is_workflow(definition):
        return 0  # its calls count as those of a run below
    own = LoopLimits.of({**request.config, **(definition.get("config") or {})})
    most = min(own.ticks, LoopLimits.of(request.config).ticks)
    return most if declares_tools(definition) else 1


def _covers(scopes: tuple[str, ...] | None, place: Reference) -> bool:
    return scopes is ANYTHING or any(read_scope(scope).overlaps(place) for scope in scopes)


# What a workflow needs, gives, costs and can reach, before it runs (SPEC R9.4).


@dataclass(frozen=True, slots=True)
class ReachedCode:
    """Code, a model or a workflow that runs calls of a workflow, or of one below it."""

    name: str
    """The name of the code; of what no code runs, the tool."""
    by: str
    """Its sort: `activity`, `delegate` (code), `model`, `loop`, or `workflow`."""
    calls: int
    """How many calls it runs; one with `_each` counts once."""
    trust: ToolTrust
    resources: tuple[str, ...]
    """The servers, and other things outside, that it reads or changes."""
    is_held: bool
    """Whether any of these calls waits for a person."""

    def to_dict(self) -> dict[str, Any]:
        """The code as data."""
        own = {"name": self.name, "by": self.by, "calls": self.calls, "held": self.is_held}
        return {
            **own,
            "effects": self.trust.effects,
            "untrusted": sorted(self.trust.result),
            "servers": list(self.resources),
        }


@dataclass(frozen=True, slots=True)
class WorkflowReach:
    """All that a workflow needs, gives, costs and can reach."""

    needs: Any
    """The schema of its input; None where it declares none."""
    promised: tuple[Promised, ...]
    output: Any
    """The template of its result; None where the result is the state that its calls leave."""
    schema: Any
    """The schema of its result, where it has one."""
    places: tuple[str, ...]
    """The places that its own calls can write to."""
    code: tuple[ReachedCode, ...]
    requests: int
    """The most requests to models, but for those that the calls of a loop make."""
    is_per_element: bool
    """Whether a call with `_each` counts once, and runs as often as its list has elements."""
    is_recursive: bool
    """Whether a workflow calls itself, also through others: that is counted once."""
    levels: int
    """How deep child runs are nested in its run, as far as they are counted."""
    limits: Mapping[str, Any]
    """The limits of its `config`."""

    @property
    def calls(self) -> int:
        """How many calls run at most, but for elements and the calls of loops."""
        return sum(one.calls for one in self.code)

    def to_dict(self) -> dict[str, Any]:
        """The workflow's reach as data."""
        costs = {"calls": self.calls, "requests": self.requests, "levels": self.levels, "limits": dict(self.limits)}
        return {
            "needs": {"schema": self.needs, "promised": [one.to_dict() for one in self.promised]},
            "gives": {"output": self.output, "schema": self.schema, "places": list(self.places)},
            "costs": costs | {"per_element": self.is_per_element, "recursive": self.is_recursive},
            "reaches": [one.to_dict() for one in self.code],
        }


_Key = tuple[str, str]
"""The name of code, and what it is."""


@dataclass
class _Count:
    """The calls and requests of one workflow, including the workflows below it."""

    calls: Counter[_Key] = field(default_factory=Counter)
    requests: int = 0
    below: set[str] = field(default_factory=set)
    """The workflows that its calls can reach."""
    levels: int = 0
    """How deep child runs are nested in it."""


class _Counting:
    """Counts the calls of workflows, each of them once: of `plans`, by their names, as far as they can be checked."""

    def __init__(self, plans: Mapping[str, CheckedPlan], code: Container[str]) -> None:
        self._plans = plans
        self._code = code
        self._counts: dict[str, _Count] = {}
        self._under_way = set[str]()
        self.trust: dict[_Key, ToolTrust] = {}
        self.resources: dict[_Key, set[str]] = {}
        self.is_per_element = self.is_recursive = False

    def count(self, name: str) -> _Count:
        """Count the calls of a workflow; one that is being counted already has none."""
        if name in self._under_way:
            self.is_recursive = True
            return _Count()
        if (known := self._counts.get(name)) is not None:
            return known
        self._under_way.add(name)
        found = self._counts[name] = _Count(below={name})
        for call, times in self._calls(name):
            key = self._key(self._plans[name], call)
            found.calls[key] += times
            found.requests += times * self._requests(self._plans[name], call, key)
            self.is_per_element |= bool(call.each)
            if key[1] == "workflow" and key[0] in self._plans:
                under = self.count(key[0])
                found.calls.update({one: times * number for one, number in under.calls.items()})
                found.requests += times * under.requests
                found.below |= under.below
                found.levels = max(found.levels, 1 + under.levels)
        self._under_way.remove(name)
        return found

    def held(self) -> Iterator[_Key]:
        """List what waits for a person: approvals hold in the workflows below, too (SPEC R14.1)."""
        for name, count in self._counts.items():
            approvals = read_approvals(self._plans[name].submission.config)
            for one in count.below:
                yield from (self._key(self._plans[one], call) for call, _ in self._calls(one) if approvals.hold(call))

    def _calls(self, name: str) -> Iterator[tuple[Call, int]]:
        """The calls of a workflow, and how often each runs."""
        plan = self._plans[name]
        often = Counter(call.index for lane in plan.lanes.values() for call in lane.calls)
        return ((call, often[call.index]) for call in plan.calls if often[call.index] and not call.is_thought)

    def _key(self, plan: CheckedPlan, call: Call) -> _Key:
        executor, name = call.runner.executor, call.runner.name
        definition = plan.submission.delegates.get(name) if executor is Executor.DELEGATE else None
        by = _sort(executor, definition, is_code=name in self._code)
        key = (call.tool if executor is Executor.LATENT else name, by)
        if key not in self.trust:
            self.trust[key], self.resources[key] = NOTHING, set()
        trust = tool_trust_of(plan.trust, call.tool, name)
        self.trust[key] = ToolTrust.together([self.trust[key], trust])
        self.resources[key] |= plan.resources_of(call)
        return key

    @staticmethod
    def _requests(plan: CheckedPlan, call: Call, key: _Key) -> int:
        """The most requests to models that one call itself makes."""
        if key[1] not in ("model", "loop") or call.given is not MISSING:
            return 0
        own = (plan.submission.delegates.get(call.runner.name) or {}).get("config") or {}
        return LoopLimits.of({**plan.submission.config, **own}).ticks if key[1] == "loop" else 1


def _sort(executor: Executor, definition: Mapping[str, Any] | None, *, is_code: bool) -> str:
    """Name what runs a call: code, a model, a loop or a workflow."""
    if executor is Executor.ACTIVITY:
        return "activity"
    if executor is Executor.LATENT or definition is None:
        return "delegate" if is_code else "model"
    return "workflow" if is_workflow(definition) else "loop" if declares_tools(definition) else "model"


def workflow_reach(
    name: str, plan: CheckedPlan, below: Mapping[str, CheckedPlan], code: Container[str] = ()
) -> WorkflowReach:
    """All that the workflow of that name and plan can do; `below` are the workflows that its calls can reach, and
    `code` the delegates that are code.
    """
    submission, counting = plan.submission, _Counting({**below, name: plan}, code)
    count, needs = counting.count(name), input_schema(plan.submission.context)
    held = set(counting.held())
    found = [
        ReachedCode(
            *key,
            min(number, limits.CALLS_COUNTED),
            counting.trust[key],
            tuple(sorted(counting.resources[key])),
            key in held,
        )
        for key, number in count.calls.items()
    ]
    return WorkflowReach(
        needs=None if needs is MISSING else needs,
        promised=tuple(plan.promised),
        output=submission.output,
        schema=submission.schema,
        places=tuple(sorted({str(place) for call in plan.calls for place in call.written})),
        code=tuple(sorted(found, key=lambda one: (not one.trust.effects, one.name, one.by))),
        requests=min(count.requests, limits.CALLS_COUNTED),
        is_per_element=counting.is_per_element,
        is_recursive=counting.is_recursive,
        levels=count.levels,
        limits={key: submission.config[key] for key in _LIMITS if submission.config.get(key) is not None},
    )


_LIMITS: Final = ("calls", "ticks", "tokens", "money", "seconds", "max_concurrency", "promise_seconds")
"""The keys of `config` that limit what a run takes."""
