"""Work: an upper bound for the time of a validation, found from the schema and the size of the value (SPEC R7.1).

Schemas come with submissions, and so do the values they are applied to. `$ref` may double the work with each step, a
pattern may be slow on a long text, and a number of a thousand digits is divided digit by digit. The estimate is never
too low by more than a factor of ten (`tests/protocol/test_hostile_schemas.py` compares it with the clock). One unit is
one keyword's look at one value, about ten nanoseconds.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import accumulate, chain, repeat
from math import frexp
from typing import Any, Final, NamedTuple

from .. import limits
from ..limits import Limits
from ..paths import parts_of
from ..references import Path
from .walk import IN_PLACE, LISTED, NAMED, SINGLE, SchemaError, cost_of, in_place, subschemas

MOST_WORK_AT_SUBMISSION: Final = Limits().schema_work
"""Units that one schema may take for one value of a submission: some seconds."""
MOST_WORK: Final = MOST_WORK_AT_SUBMISSION // 10
"""Units that one schema may take for one value during a run: half a second, in which a process does nothing else."""
STEP_WORK: Final = MOST_WORK // 25
"""Units of schema work after which a step ends, so that other lanes have their turn: twenty milliseconds."""
EXCEEDED: Final = "the schemas exceed the validation budget (ACTS_LIMIT_SCHEMA_WORK)"
HEAVY_WORK: Final = STEP_WORK // 2
"""Units from which on a check is made in another process where there is one."""
_NAMING: Final = frozenset({"properties", "prefixItems"})
"""Keywords with several schemas, at most one of which applies to a part of a value."""
_LEFT_OVER: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
_INSIDE: Final = (NAMED | LISTED | SINGLE) - {*_NAMING, *IN_PLACE}
"""The others that speak of the parts of a value."""
_UNITS_PER_OBJECT, _BYTES_PER_OBJECT = 2_500, 2_600
"""To compile an object of a schema."""
_UNITS_PER_PATTERN, _BYTES_PER_PATTERN = 3_500, 10_000
_NUMERIC: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LISTING: Final = ("required", "dependentRequired", "enum", "const")


@dataclass(slots=True)
class Meter:
    """Counts the units that schemas take while it is in `METER`."""

    units: int = 0

    def read(self) -> int:
        """The units since the last reading."""
        units, self.units = self.units, 0
        return units


METER: Final[ContextVar[Meter | None]] = ContextVar("METER", default=None)


@dataclass(frozen=True, slots=True)
class Work:
    """An upper bound for the work of a schema."""

    levels: tuple[int, ...]
    """Depth in a value -> how often the schema looks at one part of the value there, at most."""
    units_per_text: int
    """The units for every few characters of a text, each time a schema looks at it."""
    patterns_going_back: int
    digits: int = -1
    """The digits of the longest number that numbers are compared with, or -1."""
    listed: Sequence[int] = ()
    """Depth in a value -> how many numbers of `const` and `enum` one part is compared with, at most."""

    @property
    def applications(self) -> int:
        """How often the schema looks at any part of a value, at most."""
        return max(self.levels)

    def listing(self, value: Any) -> int:
        """The units that listing the errors of a value can take."""
        return max(
            self.of(value), sum(limits.UNITS_PER_ERROR * often * len(parts) for often, parts in self._looks(value))
        )

    def of(self, value: Any) -> int:
        """The units that applying the schema to a value can take; 0 where that is too little to count."""
        is_free = self.applications <= limits.COSTS_FREE and self.units_per_text == 1 and not self.patterns_going_back
        units = 0 if self.digits < 0 else self._on_numbers(value)
        if is_free:
            return units if units > limits.COSTS_FREE * limits.UNITS_PER_NUMBER else 0
        for often, parts in self._looks(value):
            texts = (text for part in parts for text in (part if isinstance(part, dict) else (part,)))
            sizes = [len(text) for text in texts if isinstance(text, str)]
            units += often * (len(parts) + self.units_per_text * -(-sum(sizes) // limits.COSTS_CHARACTERS))
            units += self.patterns_going_back * sum(
                2 * min(2 ** min(size, 20), limits.MOST_STEPS_BACK) for size in sizes
            )
        return units

    def _on_numbers(self, value: Any) -> int:
        """The units for numbers of many digits (their square counts), and for numbers with a fraction."""
        long = sum(
            often * (self.digits + digits) ** 2 // 100
            for often, parts in self._looks(value)
            for digits in map(digits_of, parts)
            if digits
        )
        return long + sum(
            limits.UNITS_PER_NUMBER
            * self.listed[min(depth, len(self.listed) - 1)]
            * sum(type(part) is float for part in parts)
            for depth, (_, parts) in enumerate(self._looks(value) if self.listed else ())
        )

    def _looks(self, value: Any) -> Iterator[tuple[int, list[Any]]]:
        """The parts of a value level by level, and how often each is visited."""
        depth, parts = 0, [value]
        while parts:
            yield self.levels[depth] if depth < len(self.levels) else self.applications, parts
            inside = (
                part.values() if isinstance(part, dict) else part for part in parts if isinstance(part, (dict, list))
            )
            depth, parts = depth + 1, [*chain.from_iterable(inside)]


class Reading(NamedTuple):
    """The cost of compiling schemas: units of work, and bytes of memory."""

    units: int
    bytes: int

    def is_too_large(self, most_units: int = MOST_WORK_AT_SUBMISSION) -> bool:
        """Whether a process should not compile so much for one submission."""
        return self.bytes > limits.MOST_COMPILED_BYTES or self.units > most_units


def reading(*schemas: Any) -> Reading:
    """The cost of compiling schemas, by their size and the size of their patterns."""
    parts, objects, patterns, states = 0, 0, 0, 0
    for part in chain.from_iterable(map(parts_of, schemas)):
        parts += 1
        if isinstance(part, dict):
            objects += 1
            for pattern in _patterns(part):
                patterns += 1
                states += cost_of(pattern).states
    return Reading(
        100 * parts + _UNITS_PER_OBJECT * objects + _UNITS_PER_PATTERN * patterns + 10 * states,
        limits.BYTES_PER_PART * parts
        + _BYTES_PER_OBJECT * objects
        + _BYTES_PER_PATTERN * patterns
        + limits.BYTES_PER_STATE * states,
    )


def work_of(reached: Iterable[tuple[Path, dict[str, Any]]], root: Any) -> Work:
    """The work of a schema that applies these parts of a document, of which it is the first.

    Raises `SchemaError` where the schema refers to itself without end, or applies too many schemas to one value.
    """
    parts = {id(part): part for _, part in reached}
    if not parts:
        return Work((1,), 1, 0)
    beside = {at: _known(in_place(part, root, *IN_PLACE), parts) for at, part in parts.items()}
    try:
        inner_first = [*TopologicalSorter(beside).static_order()]
    except CycleError as error:
        place = next(place for place, part in reached if id(part) == error.args[1][0])
        raise SchemaError("the schema refers to itself without end", place) from None

    def summed(own: Mapping[int, int], twice: Container[int] = ()) -> dict[int, int]:
        """Schema -> its units with those of the schemas that it applies to the same value, some of them twice."""
        units: dict[int, int] = {}
        for at in inner_first:
            units[at] = min(
                limits.COSTS_MOST, own[at] + (1 + (at in twice)) * sum(units[below] for below in beside[at])
            )
        return units

    left_over = {at for at, part in parts.items() if part.keys() & _LEFT_OVER}
    widest = max(summed(dict.fromkeys(parts, 1)).values())
    if left_over and widest > limits.COSTS_WIDEST:
        raise SchemaError(f"{EXCEEDED}: {widest} schemas apply to one and the same value")
    named = {at: _known((below for _, below in subschemas(part, _NAMING)), parts) for at, part in parts.items()}
    others = {at: _known((below for _, below in subschemas(part, _INSIDE)), parts) for at, part in parts.items()}
    first = next(iter(parts))

    def by_level(own: Mapping[int, int]) -> Iterator[int]:
        """The units of the first schema with all that it applies to one part of a value, by the depth of the part."""
        units = summed(own, left_over)
        for _ in range(limits.COSTS_LEVELS):
            yield units[first]
            deepest = {at: max((units[below] for below in named[at]), default=0) for at in parts}
            deeper = summed({at: deepest[at] + sum(units[below] for below in others[at]) for at in parts}, left_over)
            if deeper == units:
                return
            units = deeper

    levels = [*by_level({at: _own(part) for at, part in parts.items()})]
    if any(part.get("uniqueItems") is True for part in parts.values()):
        levels = _with_distinct(
            levels, [*by_level({at: int(part.get("uniqueItems") is True) for at, part in parts.items()})]
        )
    patterns = [cost_of(pattern) for part in parts.values() for pattern in _patterns(part)]
    widest = max((cost.ways for cost in patterns), default=0)
    going_back = sum(cost.goes_back for cost in patterns)
    digits = max((digits for part in parts.values() for digits in _compared(part)), default=-1)
    numbers = {at: sum(1 for _ in _listed_numbers(part)) for at, part in parts.items()}
    listed = [*by_level(numbers)] if any(numbers.values()) else ()
    factor = widest * limits.UNITS_PER_WAY if widest > limits.COSTS_NARROW else 1
    return Work(tuple(levels), factor, going_back, digits, tuple(listed))


def _with_distinct(levels: Sequence[int], lists: Sequence[int]) -> list[int]:
    """Units by level, with the work to find equal elements in `lists`, the number of such lists by level.

    Such a list is gone through with all that is in it: each part once for each list around it.
    """
    depth = limits.COSTS_LEVELS if lists[-1] else max(len(levels), len(lists) + 1)
    own, wanted = ([*chain(given, repeat(given[-1], depth - len(given)))] for given in (levels, lists))
    around = accumulate(wanted, initial=0)
    return [
        min(limits.COSTS_MOST, units + limits.UNITS_PER_DISTINCT * many)
        for units, many in zip(own, around, strict=False)
    ]


def _known(schemas: Iterable[Any], parts: Mapping[int, Any]) -> list[int]:
    """The identities of the objects among some schemas."""
    return [id(schema) for schema in schemas if id(schema) in parts]


def _own(part: Mapping[str, Any]) -> int:
    """The units of a schema's own keywords."""
    listed = (one for keyword in _LISTING if keyword in part for one in parts_of(part[keyword]))
    units = sum(limits.UNITS_PER_STRUCTURE if isinstance(one, (dict, list)) else 1 for one in listed)
    return len(part) + units + sum(limits.UNITS_PER_NUMBER + digits**2 // 100 for digits in _compared(part) if digits)


def _compared(part: Mapping[str, Any]) -> Iterator[int]:
    """The digits of each number that a schema's own keywords compare with; 0 for a plain integer."""
    for keyword in _NUMERIC:
        if keyword in part:
            yield digits_of(part[keyword], of_schema=True)
    for one in _listed_numbers(part):
        yield digits_of(one, of_schema=True)
    if part.get("uniqueItems") is True:
        yield 0


def _listed_numbers(part: Mapping[str, Any]) -> Iterator[float]:
    for keyword in ("enum", "const"):
        for one in parts_of(part[keyword]) if keyword in part else ():
            if isinstance(one, (int, float)):
                yield one


def digits_of(value: Any, *, of_schema: bool = False) -> int:
    """The digits of a number that a processor cannot hold; 0 for anything else.

    With `of_schema` each number that is no plain integer has some.
    """
    if type(value) is int:
        return 0 if -limits.COSTS_PLAIN <= value < limits.COSTS_PLAIN else value.bit_length() * 3 // 10
    if type(value) is float:
        digits = abs(frexp(value)[1]) * 3 // 10
        return digits + 1 if of_schema else digits * (digits > limits.FEW_DIGITS)
    return 0


def _patterns(part: Mapping[str, Any]) -> Iterator[str]:
    named = part.get("patternProperties")
    patterns = (part.get("pattern"), *(named if isinstance(named, dict) else ()))
    return (pattern for pattern in patterns if isinstance(pattern, str))
