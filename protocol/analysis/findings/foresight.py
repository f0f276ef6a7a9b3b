"""Foresight: calls that are tried out because all that decides about them is known (SPEC R3.4, R4.1, R4.6, R6.5).

What the context holds is known, and so is what models have written already. Where nobody else has a hand in what a
call reads and in the place it writes, its part of the run is gone through as the run will do it; those it comes after
are tried first. What is not known may be anything: a call is told of only if it fails whatever that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from protocol.calls.call import Call
from protocol.calls.outputs import Write, verify_result, verify_writes
from protocol.calls.tools import Tool
from protocol.language.errors import Conflict, OutputError
from protocol.language.paths import MISSING
from protocol.language.references import Expression, Reference
from protocol.state.fold import Fold
from protocol.state.operations import Operation

from .effort import is_spent
from .finding import Finding
from .sight import Sight

_MOST_BEFORE: Final = 8
_SAMPLES: Final[Mapping[str, Any]] = {
    "null": None,
    "boolean": True,
    "integer": 0,
    "fraction": 0.5,
    "string": "",
    "array": [],
    "object": {},
}
"""Of each type the value that a method takes wherever it takes any."""


@dataclass(frozen=True, slots=True)
class _Fate:
    """What becomes of a call: whether it is certain to succeed, or never to; and which calls decided about it."""

    succeeds: bool = False
    why_not: str | None = None
    behind: frozenset[int] = frozenset()


_OPEN: Final = _Fate()


def foresight_findings(sight: Sight) -> Iterator[Finding]:
    """The calls of a lane that are certain to fail."""
    trials = _Trials(sight)
    for call, fate in trials.fates():
        if fate.why_not is not None:
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) {fate.why_not}{trials.told(fate.behind)}; change what is there, "
                "the path, or the schema",
                tuple(sorted({call.index, *fate.behind})),
                lost=call.index,
            )


class _Trials:
    """The calls of one lane, tried out in an order in which they may run."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._fates: dict[int, _Fate] = {}
        self._turns: dict[int, int] = {}
        self._indexed = {key for call in sight.calls.values() for key in _indexed(call)}

    def fates(self) -> Iterator[tuple[Call, _Fate]]:
        """Each call with what becomes of it, until too many steps were taken."""
        for index in self._sight.lane.graph.in_order():
            if is_spent():
                return
            if index in self._sight.own:
                call = self._sight.calls[index]
                self._fates[index] = _OPEN if call.is_thought else self._fate(call)
                self._turns[index] = len(self._turns)
                yield call, self._fates[index]

    def told(self, behind: Iterable[int]) -> str:
        """The calls that decided about another one, as the end of a sentence."""
        names = [f"call {index} ({self._sight.calls[index].tool})" for index in sorted(behind)]
        return f", once {' and '.join(names)} {'have' if len(names) > 1 else 'has'} written" if names else ""

    def _fate(self, call: Call) -> _Fate:
        before = {place: self._before(call, place) for place in _places(call)}
        behind = frozenset[int]().union(*(found for found in before.values() if found is not None))
        if len(behind) > _MOST_BEFORE:
            return _OPEN
        trial = _Trial(call, self._left_by(behind), {place for place, found in before.items() if found is not None})
        tool = self._sight.tools.get(call.tool)
        why_not = trial.parameters_fault(tool) or trial.result_fault(tool, self._sight.memory.result(call).types)
        return _Fate(why_not is None and trial.is_decided, why_not, behind)

    def _before(self, call: Call, place: Reference) -> frozenset[int] | None:
        """The calls that make what another one finds at a place; None where not all of that is known."""
        decisive: list[int] = []
        for line in self._sight.writers.lines(self._hinge(place)):
            if len(line.calls) > _MOST_BEFORE + 1:
                return None
            for index in line.calls:
                fate = self._fates.get(index)
                if index == call.index or index in decisive:
                    continue
                if fate is not None and fate.succeeds and self._precedes(index, call.index):
                    decisive.append(index)
                elif fate is not None or not self._precedes(call.index, index):
                    return None  # of what follows from a failure nothing is told
        if place.kind == "error":  # whoever fails writes there
            return None
        order = self._in_turn(decisive)
        if not all(map(self._precedes, order, order[1:])):
            return None
        return frozenset(decisive).union(*(self._fates[index].behind for index in decisive))

    def _hinge(self, place: Reference) -> Reference:
        """The place, or the first above it where somebody writes by an index: what is one there hangs on the others."""
        for length in range(len(place.path)):
            if place.key[: length + 1] in self._indexed:
                return Reference(place.kind, place.path[:length])
        return place

    def _precedes(self, one: int, other: int) -> bool:
        return bool(self._sight.order.before(other) >> one & 1)

    def _in_turn(self, calls: Iterable[int]) -> list[int]:
        """Some of the calls that were tried, in the order in which they were."""
        return sorted(calls, key=self._turns.__getitem__)

    def _left_by(self, behind: Iterable[int]) -> Fold:
        """What is there once some calls have succeeded."""
        here = Fold(self._sight.fold)
        for index in self._in_turn(behind):
            call = self._sight.calls[index]
            for place in call.written:
                here.apply(Operation(place, call.method, call.given, f"result of {call.tool}, call {index}"))
        return here


@dataclass(frozen=True)
class _Trial:
    """One call, what it finds, and the places of which that is known."""

    call: Call
    here: Fold
    known: set[Reference]

    @property
    def is_decided(self) -> bool:
        """Whether nothing that it does hangs on what is not known."""
        call = self.call
        return (
            call.given is not MISSING
            and not call.scopes
            and len(call.output.alternatives if call.output is not None else ()) == 1
            and self.known.issuperset(_places(call))
        )

    def parameters_fault(self, tool: Tool | None) -> str | None:
        """Why it cannot be started (SPEC R4.1, R6.5)."""
        values: dict[Expression, Any] = {}
        for at, expression in self.call.reads:
            try:
                values[expression] = self._read(expression)
            except Conflict as conflict:
                return f"reads {expression} at {at}: {conflict}"
            if values[expression] is MISSING:
                return f"reads {expression} at {at}, where nothing will be"
        if tool is None or all(expression is value for expression, value in values.items()):
            return None
        properties = {
            key: _put_in(value, values)
            for key, value in self.call.standing_in().items()
            if key.startswith("_") or key in self.call.raw
        }
        problems = tool.problems(properties, lenient=True)
        return f"reads what does not fit at {problems[0]}" if problems else None

    def result_fault(self, tool: Tool | None, types: Iterable[str]) -> str | None:
        """Why what it gives cannot be written (SPEC R3.4, R4.6)."""
        output = self.call.output
        if output is None or len(output.alternatives) > 1 or not self.known.issuperset(output.references):
            return None
        if self.call.given is not MISSING:
            writes = [Write(place, self.call.given) for place in output.references]
            try:
                verify_result(tool, writes)
                verify_writes(self.call, writes, self.here)
            except (OutputError, Conflict) as problem:
                return f"can never write its result: {problem}"
            return None
        if len(output.references) > 1:
            return None
        return self._type_fault(output.references[0], types)

    def _type_fault(self, place: Reference, types: Iterable[str]) -> str | None:
        """Why no value of some types can be written."""
        conflict = None
        for type_ in sorted(types):
            try:
                self.here.verify(Operation(place, self.call.method, _SAMPLES[type_], f"result of {self.call.tool}"))
            except Conflict as found:
                conflict = found
            else:
                return None
        return f"can never write its result: {conflict}" if conflict is not None else None

    def _read(self, expression: Expression) -> Any:
        """What an expression gives: itself where that is not known, `MISSING` where it gives nothing."""
        for group in expression.alternatives:
            if all(place not in self.known or self.here.exists(place) for place in group):
                return self.here.value(group[-1]) if self.known.issuperset(group) else expression
        return MISSING


def _places(call: Call) -> tuple[Reference, ...]:
    """The places that a call reads by its parameters, and those it writes."""
    output = call.written
    return tuple(dict.fromkeys((*(place for read in call.expressions for place in read.references), *output)))


def _indexed(call: Call) -> Iterator[tuple[str, ...]]:
    """What a call writes into by an index."""
    for place in call.written:
        for depth, segment in enumerate(place.path):
            if isinstance(segment, int):
                yield place.key[: depth + 1]


def _put_in(value: Any, values: Mapping[Expression, Any]) -> Any:
    match value:
        case Expression():
            return values[value]
        case dict():
            return {key: _put_in(item, values) for key, item in value.items()}
        case list():
            return [_put_in(item, values) for item in value]
    return value
