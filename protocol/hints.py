"""Hints: what to do about an error, added to its message (SPEC R7.1)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from typing import Any, Final

from . import errors, limits
from .analysis.findings import Finding
from .analysis.lint_rules import near_misses_of, unwrapping
from .calls.call import Call, completed
from .calls.declarations import NoSchema
from .messages import DATA_TYPES, ERROR, EVERYWHERE, TRUST
from .near_misses import KnownPlaces, instead
from .plan.checked_plan import CheckedPlan
from .plan.checking import RejectedCalls
from .plan.graph import Writers
from .plan.lanes import Unresolvable
from .plan.places import KIND, Places, WrittenPlaces
from .plan.submission import plan_calls
from .references import Expression, Reference, parse_output_path

# Remedies: what to add where no value comes to a place that a call reads (SPEC R6.3).
#
# The first choice is an output path for the call that should write it; then the call of a plan that does not run,
# because there is a solution; then, for an input, a promise.


@dataclass(frozen=True)
class Remedies:
    """Finds what would bring a missing value, from the calls and plans of a submission."""

    plan: CheckedPlan

    def pathless(self, cause: Unresolvable, *, is_certain: bool) -> str | None:
        """The advice about the call without an output path that was to write what is read.

        It is certain where the call's tool admits the place or has its name. Otherwise the name of the place is a part
        of the tool's, or the result has a field of that name.
        """
        seen = _seen(cause)
        calls = [call for call in self._pathless if call.index != cause.call and call.instance in seen]
        meant = self._certain if is_certain else self._likely
        for place, call in product(_read(cause), calls):
            if (path := meant(place, call)) is not None:
                return f'call {call.index} ({call.tool}) has no _outputPath: give it "_outputPath": "{path}"'
        return None

    def only_pathless(self, cause: Unresolvable) -> str | None:
        """The advice about the call without an output path, where only one is listed before the reader."""
        seen = _seen(cause)
        calls = [call for call in self._pathless if call.index < cause.call and call.instance in seen]
        names = [f"call {call.index} ({call.tool})" for call in calls]
        return f"{names[0]} has no _outputPath: add one if its result is meant" if len(names) == 1 else None

    def planned(self, cause: Unresolvable) -> str | None:
        """The advice about a plan message whose call writes what is read, and does not run (SPEC R10.2)."""
        for at, place in self._planned:
            if any(map(place.overlaps, _read(cause))):
                gather = ', with "_gather": true where it reads in all instances' if self.plan.context.instances else ""
                return (
                    f"the plan at {at} writes it, and beside a solution a plan is context and does not run: "
                    f"write this call into the plan{gather}, and leave the solution out"
                )
        return None

    def promise(self, cause: Unresolvable) -> str | None:
        """The advice to promise an input that comes later."""
        for place in _read(cause):
            if place.kind == KIND and place.path:
                schema: dict[str, Any] = {}
                for name in reversed(place.path):
                    schema = {"properties": {str(name): schema}} if isinstance(name, str) else {"items": schema}
                shown = json.dumps({"type": KIND, "schema": schema}, ensure_ascii=False)
                return f"if it comes later, promise it by a message {shown}"
        return None

    def _certain(self, place: Reference, call: Call) -> Reference | None:
        admitted = (one for one in self._admitted.get(call.tool, ()) if one.overlaps(place))
        return next(admitted, None) or self._named(place, call, 1)

    def _likely(self, place: Reference, call: Call) -> Reference | None:
        if (named := self._named(place, call, limits.HINTS_LIKENESS)) is not None:
            return named
        tool = self.plan.tools.get(call.tool)
        result = tool.output_schema if tool is not None else None
        fields = result.get("properties", {}) if isinstance(result, dict) else {}
        return Reference(place.kind, place.path[:-1]) if len(place.path) > 1 and place.path[-1] in fields else None

    def _named(self, place: Reference, call: Call, likeness: float) -> Reference | None:
        """The place, or one above it, whose name makes up that share of the tool's name."""
        tool = errors.squeezed(call.tool)
        for length, segment in enumerate(place.path, start=1):
            name = errors.squeezed(str(segment))
            if name and name in tool and len(name) >= likeness * len(tool):
                return Reference(place.kind, place.path[:length])
        return None

    @cached_property
    def _admitted(self) -> dict[str, list[Reference]]:
        """Tool of a call without an output path -> the places that it admits."""
        tools = {call.tool: self.plan.tools[call.tool] for call in self._pathless if call.tool in self.plan.tools}
        return {
            name: [
                place
                for text in tool.choices("_outputPath")[: limits.MOST_READ]
                for place in places_of(text)[: limits.MOST_READ]
            ]
            for name, tool in tools.items()
        }

    @cached_property
    def _pathless(self) -> list[Call]:
        return list(islice((call for call in self.plan.calls if call.output is None), limits.HINTS_MOST_CALLS))

    @cached_property
    def _planned(self) -> list[tuple[str, Reference]]:
        if self.plan.submission.is_template:
            return []
        calls, _ = plan_calls(self.plan.submission.context)
        return list(islice(_written(calls), limits.HINTS_MOST_CALLS))


def _read(cause: Unresolvable) -> tuple[Reference, ...]:
    return cause.expression.references[: limits.MOST_READ]


def _seen(cause: Unresolvable) -> tuple[str | None, ...]:
    """The instances whose calls the reader sees."""
    return (None,) if cause.instance is None else (None, cause.instance, EVERYWHERE)


def _written(calls: Any) -> Iterator[tuple[str, Reference]]:
    for at, raw in calls:
        path = completed(raw, {}).get("_outputPath") if isinstance(raw, dict) else None
        yield from ((errors.pointer(*at), place) for place in places_of(path))


def places_of(path: Any) -> tuple[Reference, ...]:
    """The places of an output path, as far as it can be read."""
    try:
        return parse_output_path(path).references if isinstance(path, str) else ()
    except errors.ExpressionError:
        return ()


# Explanations: the hint for each problem of a rejection (SPEC R7.1).
#
# An unknown name gets the nearest known one. A tool declared as in another system gets the declaration of this one. A
# parameter that its tool does not admit, because it is another system's template or lacks its dagger, gets the
# reference that was meant; a template that does not parse gets the one that does. An unresolvable reference gets the
# path that only lacks its dagger, the instance that holds it, the call that writes it in another instance or has a
# misspelt output path or none, the nearest place that its reader sees, or what to add for it (see `Remedies`).


_MISSING: Final = "is a required property"
_OF_PROPERTIES: Final = frozenset({"ACT303", "ACT304", "ACT310"})
"""Near misses in the name of a property: an error at the call itself is often about one."""


def explained(rejected: errors.Rejected) -> Iterator[errors.Problem]:
    """The problems of a rejection, the first of them with hints."""
    hints = _Hints(rejected.plan if isinstance(rejected, RejectedCalls) else None)
    for number, problem in enumerate(rejected.errors):
        hint = hints.of(problem) if number < limits.MOST_EXPLAINED else ""
        yield replace(problem, message=problem.message + hint) if hint else problem


class _Hints:
    """Finds the hint to add to a problem's message."""

    def __init__(self, plan: CheckedPlan | None) -> None:
        self._plan = plan
        self._speller = errors.Speller()
        self._written: dict[int, WrittenPlaces] = {}
        self._seen: dict[str | None, Places] = {}
        self._remedies = Remedies(plan) if plan is not None else None

    def of(self, problem: errors.Problem) -> str:
        """The hint for a problem; empty for no hint."""
        match problem.cause:
            case errors.UnknownName(name, known, remedy):
                return self._speller.hint(name, known) or (f"; {remedy}" if remedy else "")
            case NoSchema(declaration):
                return "".join(f"; {hint}" for hint in unwrapping(declaration))
            case errors.Unparsed(text, position) if hint := instead(text, position, self._meant):
                return f"; {hint}"
            case Unresolvable() as cause if self._plan is not None:
                hint = self._of_failure(cause, self._plan) or self._of_unresolvable(cause, self._plan)
                there = self._plan.context.fold(cause.instance).beside(cause.expression)
                return f"{hint}; {there}" if there and not hint.endswith("?") else hint
        if (hint := self._of_scope(problem)) is not None:
            return f"; {hint}"
        return f"; {slip.remedy}" if (slip := self._slip_at(problem)) is not None else ""

    def _of_scope(self, problem: errors.Problem) -> str | None:
        """The hint about a parameter that is missing and has the name of a kind: it was to get the call's scope."""
        if self._plan is None or _MISSING not in problem.message:
            return None
        called = (one for one in self._plan.calls if self._at(one) == problem.pointer)
        scopes = {scope.kind for call in called for scope in call.scopes}
        kinds = sorted(scopes | DATA_TYPES)
        kind = next((kind for kind in kinds if f'"{kind}" {_MISSING}' in problem.message), None)
        if kind is None:
            return None
        how = f'write "{kind}": "†{kind}", or'
        if kind in scopes:
            why = f"{kind} is in _scopes, which give no parameter of that name"
            return f"{why}: {how} let the function take (call, context)"
        return f"{how} `*, {kind}` in the function: keyword-only, it gets the scope"

    def _at(self, call: Call) -> str:
        return errors.pointer(*self._plan.submission.place(call.index)) if self._plan is not None else ""

    def _meant(self, name: str) -> Reference | None:
        """The place that a text names without a dagger."""
        return self._known.meant(name) if self._known is not None else None

    @cached_property
    def _known(self) -> KnownPlaces | None:
        return KnownPlaces(self._plan) if self._plan is not None else None

    def _slip_at(self, problem: errors.Problem) -> Finding | None:
        """The finding about the place of a problem, or about the name of a property there."""
        slip = self._slips.get(problem.pointer)
        if slip is not None and slip.code != "ACT307" and (slip.remedy or "") not in problem.message:
            return slip
        properties = (slip for at, slip in self._slips.items() if at.rpartition("/")[0] == problem.pointer)
        return next((slip for slip in properties if slip.code in _OF_PROPERTIES), None)

    def _of_unresolvable(self, cause: Unresolvable, plan: CheckedPlan) -> str:
        expression, instance = cause.expression, cause.instance
        if (unwritten := self._unwritten(expression, cause)) is not None:
            return unwritten
        remedies = self._remedies
        assert remedies is not None
        if (missing := remedies.pathless(cause, is_certain=True) or remedies.planned(cause)) is not None:
            return f"; {missing}"
        if instance is None and (holder := self._holder(expression, plan)) is not None:
            if cause.call < 0:
                return f"; instance {holder!r} holds it, and the output reads only what all instances share"
            remedy = f'write that one, or "{EVERYWHERE}" for a call in each instance'
            return f"; instance {holder!r} holds it, and the call has no _instance: {remedy}"
        if (elsewhere := self._written_elsewhere(cause)) is not None:
            return f"; {elsewhere}, " + (
                "and the call has no _instance" if instance is None else "whose data the call does not see"
            )
        places = self._places(instance, plan)
        near = next(filter(None, (places.nearest(place, cause.call) for place in expression.references)), None)
        if near is not None:
            return f", did you mean {near}?"
        likely = remedies.pathless(cause, is_certain=False)
        missing = likely or remedies.promise(cause) or remedies.only_pathless(cause)
        return f"; {missing}" if missing is not None else ""

    def _of_failure(self, cause: Unresolvable, plan: CheckedPlan) -> str:
        """The hint about the last failed call that was to write what is read."""
        for message in reversed(plan.submission.context):
            error = message.get("data") if message.get("type") == ERROR else None
            call = error.get("call") if isinstance(error, dict) else None
            if (
                isinstance(error, dict)
                and isinstance(call, dict)
                and any(
                    place.overlaps(read)
                    for place in places_of(call.get("_outputPath"))
                    for read in cause.expression.references
                )
            ):
                cause_ = error.get("error")
                why = cause_.get("message") if isinstance(cause_, dict) and not message.get(TRUST) else None
                why_it_failed = f": {errors.shortened(str(why))}" if why is not None else ""
                return f"; {call.get('_tool')}, which was to write it, failed{why_it_failed}"
        return ""

    def _holder(self, expression: Expression, plan: CheckedPlan) -> str | None:
        """The first instance that holds all that one of the alternatives reads."""
        for instance in islice(plan.context.instances, limits.PLACES_MOST_NAMES):
            if not self._speller.lasts(limits.PER_READER * len(expression.references)):
                break
            fold = plan.context.fold(instance)
            if any(all(map(fold.exists, group)) for group in expression.alternatives):
                return instance
        return None

    def _written_elsewhere(self, cause: Unresolvable) -> str | None:
        """The hint about a call that writes in another instance what is read in this one."""
        for place in cause.expression.references:
            for line in self._writers.lines(place):
                for index in line.calls:
                    home = self._calls[index].instance
                    if index != cause.call and home not in (None, cause.instance):
                        where = "in every instance" if home == EVERYWHERE else f"in instance {home!r}"
                        return f"call {index} writes {place} {where}"
        return None

    def _unwritten(self, expression: Expression, cause: Unresolvable) -> str | None:
        """The hint about a misspelt output path of another call that was to write what is read."""
        for read, (slip, place) in product(expression.references, self._misspelt):
            is_seen = self._calls[slip.calls[0]].instance in (None, cause.instance) and slip.calls != (cause.call,)
            if is_seen and place.overlaps(read):
                ending = f", did you mean {place}?" if slip.code == "ACT307" else f": {slip.remedy}"
                return f"; {slip.message}{ending}"
        return None

    @cached_property
    def _misspelt(self) -> list[tuple[Finding, Reference]]:
        """The places that calls were meant to write, where their `_outputPath` or its name is misspelt."""
        found = []
        for at, slip in self._slips.items():
            text = slip.remedy.removeprefix("write ") if slip.remedy and slip.code == "ACT307" else ""
            if slip.remedy == "write _outputPath":
                text = str(self._calls[slip.calls[0]].raw[errors.segments(at)[-1]])
            with suppress(errors.ExpressionError):
                found += [(slip, place) for place in parse_output_path(text).references if text]
        return found

    @cached_property
    def _slips(self) -> dict[str, Finding]:
        """Pointer -> what is misspelt there."""
        findings = near_misses_of(self._plan) if self._plan is not None else ()
        found: dict[str, Finding] = {}
        for slip in findings:
            if slip.pointer is not None:
                found.setdefault(slip.pointer, slip)
        return found

    def _places(self, instance: str | None, plan: CheckedPlan) -> Places:
        """The places that calls of an instance, or the global ones, see. Lanes of the same calls share an index."""
        lanes = [plan.lanes[name] for name in dict.fromkeys((None, instance)) if name in plan.lanes]
        for lane in lanes:
            if id(lane.calls) not in self._written:
                self._written[id(lane.calls)] = WrittenPlaces(lane.calls)
        if instance not in self._seen:
            written = [self._written[id(lane.calls)] for lane in lanes]
            self._seen[instance] = Places([plan.context.fold(instance)], written, self._speller)
        return self._seen[instance]

    @cached_property
    def _calls(self) -> dict[int, Call]:
        lanes = self._plan.lanes.values() if self._plan is not None else ()
        return {call.index: call for lane in lanes for call in lane.calls}

    @cached_property
    def _writers(self) -> Writers:
        """Who writes where, in whatever instance."""
        return Writers(call for call in self._calls.values() if call.instance is not None)
