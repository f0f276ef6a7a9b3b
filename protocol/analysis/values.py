"""Values: what a call reads and its tool never takes, or writes and a kind never admits (SPEC R4.1, R3, R4.6).

A reference reads what the writers of its place promise. Where no value is both promised by them and admitted by the
tool, the call is sure to fail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from .. import limits
from ..calls.built_in import CASES, VALUE, chooses
from ..calls.call import Call, place_in, written_place
from ..calls.declarations import input_schema
from ..calls.tools import Executor
from ..errors import Speller, pointer
from ..messages import ERROR
from ..paths import MISSING, parts_of, type_name
from ..plan.checked_plan import CheckedPlan
from ..plan.graph import Writers
from ..plan.lanes import Lane
from ..references import Expression, Path, Reference
from ..schemas import CompiledSchema, Schema, compiled, excerpt
from ..schemas.algebra import EVERYTHING, NOTHING, TYPES, Algebra, Values, described, is_empty, of_types, types_of
from ..schemas.walk import DEFINITIONS, REFERENCES, rewritten
from ..state.operations import Method
from .findings import Finding, listed, on_call
from .type_flow import Fields, TypeFlow, ValueSource, flows, path_of

_SCALARS: Final = frozenset({"string", "number", "integer", "boolean"})
_KEPT: Final = (
    *("$ref", "required", "allOf", "anyOf", "oneOf", "items", "prefixItems", "properties", "additionalProperties"),
    *DEFINITIONS,
)
"""Keywords that hold before a conversion as after it; the others say nothing of what is converted."""
_TAKEN: Final = {Method.ASSIGN: of_types(["object"]), Method.CONCAT: of_types(["array", "string"])}
"""The results that a method takes; the others take any (SPEC R3.2)."""
_ADDED_TO: Final = {Method.ASSIGN: {"object"}, Method.MERGE: {"object"}, Method.CONCAT: {"array", "string"}}
"""The types that a method adds to and does not replace: only the type of such a value is known."""


def value_findings(plan: CheckedPlan) -> Iterator[Finding]:
    """Everything that follows from schemas and values."""
    algebra = Algebra()
    flow = TypeFlow(plan, algebra)
    yield from _Reads(plan, algebra, flow).findings()
    kinds = _KindSchemas(plan, algebra, flow)
    for lane in {id(lane.calls): lane for lane in plan.lanes.values()}.values():
        for call in lane.calls:
            yield from kinds.refused(lane, call)
    yield from _dead_branches(plan, algebra, flow)
    yield from _signature_findings(plan)
    if not algebra.is_complete:
        yield Finding(
            "ACT299",
            "the schemas are too large or too many: not all of them were compared",
            remedy="check the submission in parts",
        )


@dataclass(frozen=True, slots=True)
class _Demand:
    """The values that are admitted in place of an expression, and who says so."""

    code: str
    whose: str
    values: Values
    is_of_elements: bool = False
    """True where each element of a list has to be one of the values (SPEC R4.10)."""


def _merged(alike: Sequence[tuple[Finding, str | None]]) -> Finding:
    """One finding for several that say the same, of the calls of two tools or of many instances."""
    first, calls = alike[0][0], {finding.calls for finding, _ in alike}
    names = dict.fromkeys(instance for _, instance in alike if instance is not None)
    more = f"; the same for {len(calls) - 1} more calls of these tools" if len(calls) > 1 else ""
    if len(calls) == 1 and len(names) > 1:
        more = f" (in {len(names)} instances: {listed(map(repr, names))})"
    return replace(first, message=first.message + more)


class _Reads:
    """Finds what is wrong with the references that calls read."""

    def __init__(self, plan: CheckedPlan, algebra: Algebra, flow: TypeFlow) -> None:
        self._plan = plan
        self._algebra = algebra
        self._flow = flow
        self._fields = Fields(plan, algebra, flow)
        self._signatures = {name: convertible(dict(tool.declaration)) for name, tool in plan.signatures.items()}
        self._demanded: dict[tuple[str, str, Path, bool], list[_Demand]] = {}
        self._groups = defaultdict[tuple[Any, ...], list[tuple[Finding, str | None]]](list)

    def findings(self) -> Iterator[Finding]:
        """One finding for each pair of tools and parameter that do not fit."""
        for lanes, writers in flows(self._plan):
            for call in lanes[0].calls:
                if call.gather:
                    continue  # it reads objects of instances, or plain values (SPEC R10.4)
                for at, expression in call.reads if not call.is_thought else ():
                    self._look(lanes, writers, call, at, expression)
        yield from map(_merged, self._groups.values())

    def _look(self, lanes: Sequence[Lane], writers: Writers, call: Call, at: str, expression: Expression) -> None:
        for group in expression.alternatives:
            for place in group:
                # Of several places joined by && the last gives the value; the others need only be there. In a text any
                # value can be put.
                wanted = self._demands(call, at) if place == group[-1] and at not in call.templates else []
                for lane in lanes:
                    sources = self._flow.sources(lane, writers, call, place)
                    self._judge(lane, call, at, place, sources, wanted)
                    if all(source.value is MISSING for source in sources):
                        break  # it is the same in all of them

    def _judge(
        self, lane: Lane, call: Call, at: str, place: Reference, sources: Sequence[ValueSource], wanted: list[_Demand]
    ) -> None:
        reads = f"call {call.index} ({call.tool}) reads {place} at {at}"
        faults = [self._fields.fault(call, place, source) for source in sources]
        if faults and all(fault is not None for fault in faults):
            fault = faults[0]
            assert fault is not None
            why = f"{reads}, and {fault.why}"
            self._note(fault.code, why, fault.instead, lane, call, at, sources)
            return
        for demand in wanted:
            if sources and not any(self._fits(source, demand) for source in sources):
                given, takes = sources[0], f"{demand.whose} {described(demand.values)}"
                who = f"call {given.writer.index} ({given.writer.tool})" if given.writer is not None else "the input"
                gives = "returns" if given.writer is not None else "promises"
                code, why = demand.code, f"{who} {gives} {described(given.values)}, and {takes}"
                advice = f"read another field, or change what {who} {gives} or what {demand.whose}"
                if lane.instance is not None and types_of(demand.values) == {"object"}:
                    advice = f'give call {call.index} "_gather": true if it is for all instances together, or {advice}'
                if given.value is not MISSING:
                    code, advice = "ACT202", "change the value, or read another place"
                    why = f"the context holds a {type_name(given.value)} that does not fit: {takes}"
                self._note(code, f"{reads}, where {why}", advice, lane, call, at, sources)
                return

    def _note(
        self, code: str, why: str, remedy: str, lane: Lane, call: Call, at: str, sources: Sequence[ValueSource]
    ) -> None:
        writers = [source.writer for source in sources if source.writer is not None]
        calls = tuple(sorted({call.index, *(writer.index for writer in writers)}))
        same = (writers[0].tool, call.tool, at) if writers else (None, call.tool, at)
        where = pointer(*self._plan.submission.place(call.index)) + written_place(call.raw, at)
        finding = Finding(code, why, calls, where, remedy)
        self._groups[code, *same].append((finding, lane.instance))

    def _fits(self, source: ValueSource, demand: _Demand) -> bool:
        if demand.is_of_elements and isinstance(source.value, list):
            return not source.value or any(
                self._algebra.fit(self._algebra.only(one), demand.values)
                for one in source.value[: limits.MOST_ELEMENTS]
            )
        given = source.values if source.value is MISSING else self._algebra.only(source.value)
        if demand.is_of_elements:
            given = self._algebra.at(given, 0)
        return is_empty(given) or self._algebra.fit(given, demand.values)  # the former is a fault of the path

    def _demands(self, call: Call, at: str) -> list[_Demand]:
        """The values that the tool, its activity's signature and its delegate admit in place of an expression."""
        path = path_of(call, at)
        is_list = path[0] in call.each
        key = (call.tool, call.runner.name, path, is_list)
        if key not in self._demanded:
            found = [_Demand("ACT201", f"the _each of {call.tool} takes", of_types(["array"]))] if is_list else []
            for each in self._whole(call):
                whose = f"for each element {each.whose}" if is_list else each.whose
                if (part := self._algebra.along(each.values, path)) != EVERYTHING:
                    found.append(_Demand(each.code, whose, part, is_list))
            self._demanded[key] = found
        return self._demanded[key]

    def _whole(self, call: Call) -> Iterator[_Demand]:
        submission, name = self._plan.submission, call.runner.name
        if (tool := self._plan.tools.get(call.tool)) is not None:
            yield _Demand("ACT201", f"{call.tool} takes", self._algebra.described_by(tool.of_values))
        if call.runner.executor is Executor.ACTIVITY and name in self._signatures:
            whose = f"the signature of its activity {name} takes"
            yield _Demand("ACT201", whose, self._algebra.described_by(self._signatures[name]))
        if call.runner.executor is Executor.DELEGATE and name in submission.delegates:
            schema = input_schema(submission.delegates[name].get("context", ()))
            schema = True if schema is MISSING else schema
            yield _Demand("ACT207", f"its delegate {name} declares", self._algebra.described_by(schema))


@dataclass(frozen=True)
class _KindSchemas:
    """Finds the results that the schema of their kind refuses."""

    plan: CheckedPlan
    algebra: Algebra
    flow: TypeFlow
    admitted: dict[tuple[CompiledSchema, Path], Values] = field(default_factory=dict)

    def refused(self, lane: Lane, call: Call) -> Iterator[Finding]:
        """A finding where the result of a call can be written nowhere."""
        if call.output is None:
            return
        given = self.flow.result(call)
        at = place_in(call.raw, "_outputPath")
        taken = _TAKEN.get(call.method, EVERYTHING)
        if not is_empty(given) and not self.algebra.fit(given, taken):
            why = f"writes by {call.method}, which takes {described(taken)}, and gives {described(given)}"
            yield on_call(self.plan, "ACT206", call, why, "change the _outputMethod, or the _output of the tool", *at)
            return
        reasons = [self._reason(lane, call.method, group, given) for group in call.output.alternatives]
        if reasons and all(reasons):
            remedy = "change the path, or one of the two schemas"
            yield on_call(self.plan, "ACT203", call, str(reasons[0]), remedy, *at)

    def _reason(self, lane: Lane, method: Method, group: tuple[Reference, ...], given: Values) -> str | None:
        """Why an alternative is never written: the schema of a kind does not admit what one of its places comes to
        hold, whatever is around that place (SPEC R4.6).
        """
        for place in group:
            schema = self.plan.context.fold(lane.instance).schema(place.kind)
            if schema is MISSING or place.kind == ERROR or not place.path or is_empty(given):
                continue
            wanted, left = self._at(compiled(schema), place.path), self.flow.effect(given, method, place, place)
            added_to = types_of(given) & _ADDED_TO.get(method, set())
            if not any(compiled(schema).admits(place.path, each) for each in added_to) and not self.algebra.fit(
                left, wanted
            ):
                admitted = "admits nothing there" if is_empty(wanted) else f"admits {described(wanted)}"
                return f"writes {described(left)} to {place}, and the schema of {place.kind} {admitted}"
        return None

    def _at(self, schema: CompiledSchema, path: Path) -> Values:
        """The values that may be written at a path."""
        key = schema, path
        if key not in self.admitted:
            is_closed = not any(schema.admits(path, type_) for type_ in TYPES)
            parts = {"allOf": schema.parts_at(path)}
            self.admitted[key] = NOTHING if is_closed else self.algebra.made_of(excerpt(parts, schema.document))
        return self.admitted[key]


def _dead_branches(plan: CheckedPlan, algebra: Algebra, flow: TypeFlow) -> Iterator[Finding]:
    """Alternatives of `choose` that no value can take (SPEC R4.12)."""
    for lanes, writers in flows(plan):
        for call in lanes[0].calls:
            cases: list[Any] = call.parameters[CASES] if chooses(call) and not call.gather else []
            given = _given(lanes, writers, call, algebra, flow) if cases else []
            is_known = given and not any(
                isinstance(part, dict) and part.keys() & REFERENCES for part in parts_of(cases)
            )
            for number, group in enumerate(call.alternatives if is_known else ()):
                before: Schema = {"not": {"anyOf": cases[:number]}} if number else True
                own = cases[number] if number < len(call.alternatives) - 1 else True
                taken = algebra.made_of({"allOf": [own, before]})
                if not any(algebra.fit(values, taken) for values in given):
                    place = " && ".join(map(str, group))
                    why = f"never writes to {place}: no value that it can be given is for that case alone"
                    remedy = "change the schemas in cases, or leave the place out"
                    yield on_call(plan, "ACT210", call, why, remedy, CASES, min(number, len(cases) - 1))


def _given(lanes: Sequence[Lane], writers: Writers, call: Call, algebra: Algebra, flow: TypeFlow) -> Sequence[Values]:
    """The values that a call may be given to choose by; none where they are not known."""
    value, at = call.parameters.get(VALUE), pointer(VALUE)
    if not any(place == at or place.startswith(f"{at}/") for place, _ in call.reads):
        return [algebra.only(value)]
    expression = next((one for place, one in call.reads if place == at and at not in call.templates), None)
    found: list[Values] = []
    for group in expression.alternatives if expression is not None else ():
        for lane in lanes:
            sources = flow.sources(lane, writers, call, group[-1])
            if not sources:
                return []
            found += (one.values if one.value is MISSING else algebra.only(one.value) for one in sources)
    return found


def convertible(schema: Schema) -> Schema:
    """The schema of all that may be converted to what a signature says: `"5"` to a number, a number to a date."""
    if not isinstance(schema, dict):
        return schema
    wide: dict[str, Any] = {
        "anyOf" if key == "oneOf" else key: rewritten(key, part, convertible)  # by conversion it may be several of them
        for key, part in schema.items()
        if key in _KEPT
    }
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    if values and all(value is None or isinstance(value, str) for value in values):
        return {"enum": values}  # these are taken as they are
    declared = schema.get("type", [])
    types = {declared} if isinstance(declared, str) else set(declared)
    if types:
        wide["type"] = sorted(types | _SCALARS if types & _SCALARS or "format" in schema else types)
    return wide


def _signature_findings(plan: CheckedPlan) -> Iterator[Finding]:
    """Parameters that activities need and calls leave out, or that calls have and activities do not take."""
    speller = Speller()
    for call in plan.calls:
        tool = plan.signatures.get(call.runner.name)
        if tool is None or call.runner.executor is not Executor.ACTIVITY:
            continue
        signature = tool.declaration
        who = f"does not fit the signature of its activity {call.runner.name!r}"
        for name in signature.get("required", ()):
            if name not in call.parameters:
                remedy = f"add {name}, or give it a default value"
                yield on_call(plan, "ACT209", call, f"{who}, which needs {name!r}", remedy)
        known: Mapping[str, Any] = signature.get("properties", {})
        for name in call.parameters if signature.get("additionalProperties") is False else ():
            if name not in known:
                near = speller.nearest(name, list(known))
                remedy = f"write {near}" if near else "leave it out, or let the function take it"
                yield on_call(plan, "ACT209", call, f"{who}, which takes no {name!r}", remedy, name)
