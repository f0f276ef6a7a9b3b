"""Promises: where what a call gives can never be what its reader takes (SPEC R4.1, R4.6).

The result of a call, and what its method makes of it, is held against the parameter that reads it: `_output` of the one
tool against what the other, and the activity behind it, admit there. Spoken of is only a reader that can get its value
from nowhere else: everybody who writes there comes before it, and whoever of them is the last, what is there then
misfits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from protocol.calls.call import Call
from protocol.language.references import Expression, Reference

from .cases import Shape
from .demands import Demand, Parameter, parameter_at
from .effects import Effect, effect_on, result_schema, shapes_left
from .finding import FAILURES, Finding
from .sight import Sight

_MOST_WRITERS: Final = 8


def promise_findings(sight: Sight) -> Iterator[Finding]:
    """What the calls of a lane read and can never use."""
    promises = _Promises(sight)
    for call in sight.lane.calls:
        for at, expression in call.reads if not call.is_thought else ():
            for group in _reached(expression, sight):
                for place in group:
                    # Of several places joined by && the last gives the value; the others need only be there.
                    found = promises.findings(call, at, place, is_taken=place is group[-1])
                    lost = call.index if len(expression.alternatives) == 1 else None
                    yield from (replace(finding, lost=lost) for finding in found)


def _reached(expression: Expression, sight: Sight) -> Iterator[tuple[Reference, ...]]:
    """The alternatives of an expression, up to one that is there before anything runs and that nobody writes."""
    for group in expression.alternatives:
        yield group
        if all(sight.fold.exists(place) and not any(sight.writers.lines(place)) for place in group):
            return


class _Promises:
    """Who reads what in one lane."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight

    def findings(self, call: Call, at: str, place: Reference, *, is_taken: bool) -> Iterator[Finding]:
        """What is wrong with what a call reads at a place, if all that can be there is."""
        producers = self._producers(call, place) if place.kind != FAILURES else ()
        parameter = parameter_at(call, at) if is_taken else None
        told = []
        is_held = self._sight.fold.exists(place)
        for producer in producers:
            effect = effect_on(place, producer, producers, self._sight.fold)
            fault = self._fault(effect, producer, parameter) if effect is not None else None
            if fault is None or (is_held and self._may_leave(producer)):
                return
            told.append((producer, fault))
        for producer, fault in told:
            name = f"call {producer.index} ({producer.tool})"
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) reads {place} at {at}, where"
                f"{f', once {name} has succeeded,' if is_held else ''} {fault.format(call=name)}; change the path, or "
                "one of the schemas",
                tuple(sorted((producer.index, call.index))),
            )

    def _producers(self, call: Call, place: Reference) -> Sequence[Call]:
        """Everybody who writes there, if the call waits for all of them; else nobody."""
        found: set[int] = set()
        for line in self._sight.writers.lines(place):
            found.update(line.calls[: _MOST_WRITERS + 2])
        found.discard(call.index)
        waited_for = self._sight.lane.graph.writers(call.index, place) if len(found) <= _MOST_WRITERS else ()
        return [self._sight.calls[index] for index in sorted(found)] if found == set(waited_for) else []

    def _may_leave(self, producer: Call) -> bool:
        """Whether a call that succeeds may leave what is there as it is, at least for the instance that reads it."""
        is_below = self._sight.lane.instance is not None and producer.index not in self._sight.own
        return is_below or (producer.output is not None and len(producer.output.references) > 1)

    def _fault(self, effect: Effect, producer: Call, parameter: Parameter | None) -> str | None:
        """What is wrong with all that a call can leave, as a text about the call."""
        whose = self._sight.lane.instance if effect.onto is not None else None  # each may hold a list of its own
        return self._sight.memory.once(
            ("fault", whose, effect, parameter), self._found, whose, effect, producer, parameter
        )

    def _found(self, whose: str | None, effect: Effect, producer: Call, parameter: Parameter | None) -> str | None:
        memory = self._sight.memory
        wanted = memory.demands(parameter) if parameter is not None else ()
        left = memory.once(("left", whose, replace(effect, inside=())), self._left, effect, producer)
        faults = [_fault_of(shape.at(effect.inside), wanted) for shape in left]
        return faults[0] if None not in faults else None

    def _left(self, effect: Effect, producer: Call) -> tuple[Shape, ...]:
        result = result_schema(producer, self._sight.tools, self._sight.delegates)
        return tuple(shapes_left(effect, result, self._sight.fold))


def _fault_of(given: Shape, wanted: Iterable[Demand]) -> str | None:
    if given.is_impossible:
        return "nothing is ever there: what {call} gives has no such place"
    for demand in wanted:
        if (why := demand.misfit(given)) is not None:
            return "{call} gives what does not fit" + f"{demand.whose}: {why}".replace("{", "{{").replace("}", "}}")
    return None
