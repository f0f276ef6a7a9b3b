"""Work: how much a schema can take at most, read off the schema and the size of a value alone (SPEC R7.1).

Schemas come with submissions, and so do the values they are applied to. `$ref` may double the work with each step, and
a pattern may be slow on a long text. The estimate is never too low by more than a small factor. One unit is one
keyword's look at one value, about ten nanoseconds.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Any, Final

from acts_celery.protocol.language.limits import Limits
from acts_celery.protocol.language.paths import parts_of
from acts_celery.protocol.language.references import Path

from .parts import IN_PLACE, LISTED, NAMED, SINGLE, SchemaError, held, in_place
from .patterns import MOST_STEPS_BACK, cost_of

MOST_WORK_AT_SUBMISSION: Final = Limits().schema_work
"""Units that one schema may take for one value of a submission: some seconds."""
MOST_WORK: Final = MOST_WORK_AT_SUBMISSION // 10
"""Units that it may take while a run is under way: half a second, in which a process does nothing else."""
STEP_WORK: Final = MOST_WORK // 25
"""Units of schema work after which a step ends, so that other lanes have their turn: twenty milliseconds."""
EXCEEDED: Final = "the schemas exceed the validation budget (ACTS_LIMIT_SCHEMA_WORK)"
HEAVY_WORK: Final = STEP_WORK // 2
"""Units from which on a check is made in another process where there is one."""
_FREE: Final = 100
"""A schema that looks at each part of a value no more often than this is not worth counting the parts."""
_UNITS_PER_ERROR: Final = 10
_NARROW: Final = 1_000
_UNITS_PER_WAY: Final = 30
_WIDEST: Final = 5_000
"""So many schemas may be applied to one value where `unevaluatedProperties` looks at each: that is written out."""
_CHARACTERS: Final = 5
_MOST: Final = 10**12
_LEVELS: Final = 64
_NAMING: Final = frozenset({"properties", "prefixItems"})
"""Keywords of which at most one schema applies to a part of a value."""
_LEFT_OVER: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
_INSIDE: Final = (NAMED | LISTED | SINGLE) - {*_NAMING, *IN_PLACE}
"""The others that speak of the parts of a value."""


@dataclass(slots=True)
class Meter:
    """What the schemas applied in a context (`METER`) take, in units."""

    units: int = 0

    def read(self) -> int:
        """What they have taken since it was read last."""
        units, self.units = self.units, 0
        return units


METER: Final[ContextVar[Meter | None]] = ContextVar("METER", default=None)


@dataclass(frozen=True, slots=True)
class Work:
    """What a schema can take: how often it looks at a part of a value, at most, by how deep that is in the value."""

    levels: tuple[int, ...]
    units_per_text: int
    """For every few characters of a text, each time a schema looks at it."""
    patterns_going_back: int

    @property
    def applications(self) -> int:
        """How often it looks at any part, at most."""
        return max(self.levels)

    def listing(self, value: Any) -> int:
        """The units that it can take to list what is wrong with a value."""
        return max(self.of(value), sum(_UNITS_PER_ERROR * often * len(parts) for often, parts in self._looks(value)))

    def of(self, value: Any) -> int:
        """The units that it can take to apply the schema to a value; none where that is too little to count."""
        if self.applications <= _FREE and self.units_per_text == 1 and not self.patterns_going_back:
            return 0
        units = 0
        for often, parts in self._looks(value):
            texts = (text for part in parts for text in (part if isinstance(part, dict) else (part,)))
            sizes = [len(text) for text in texts if isinstance(text, str)]
            units += often * (len(parts) + self.units_per_text * -(-sum(sizes) // _CHARACTERS))
            units += self.patterns_going_back * sum(2 * min(2 ** min(size, 20), MOST_STEPS_BACK) for size in sizes)
        return units

    def _looks(self, value: Any) -> Iterator[tuple[int, list[Any]]]:
        """The parts of a value level by level, and how often each is looked at."""
        depth, parts = 0, [value]
        while parts:
            yield self.levels[depth] if depth < len(self.levels) else self.applications, parts
            inside = (
                part.values() if isinstance(part, dict) else part for part in parts if isinstance(part, (dict, list))
            )
            depth, parts = depth + 1, [*chain.from_iterable(inside)]


def reading(schema: Any) -> int:
    """The units that it takes to read a schema: its size, and its patterns' written out."""
    parts = list(parts_of(schema))
    patterns = (pattern for part in parts if isinstance(part, dict) for pattern in _patterns(part))
    return 100 * len(parts) + sum(10 * cost_of(pattern).states for pattern in patterns)


def work_of(reached: Iterable[tuple[Path, dict[str, Any]]], root: Any) -> Work:
    """What a schema can take that applies these parts of a document, first of all itself.

    Raises `SchemaError` where that has no end, or is written out.
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
        """Units of each schema with those of what it applies to the same value, some of it twice."""
        units: dict[int, int] = {}
        for at in inner_first:
            units[at] = min(_MOST, own[at] + (1 + (at in twice)) * sum(units[below] for below in beside[at]))
        return units

    left_over = {at for at, part in parts.items() if part.keys() & _LEFT_OVER}
    widest = max(summed(dict.fromkeys(parts, 1)).values())
    if left_over and widest > _WIDEST:
        raise SchemaError(f"{EXCEEDED}: it says of one value what {widest} schemas say")
    named = {at: _known((below for _, below in held(part, _NAMING)), parts) for at, part in parts.items()}
    others = {at: _known((below for _, below in held(part, _INSIDE)), parts) for at, part in parts.items()}
    units = summed({at: _own(part) for at, part in parts.items()}, left_over)
    levels = [units[first := next(iter(parts))]]
    while len(levels) < _LEVELS:
        deepest = {at: max((units[below] for below in named[at]), default=0) for at in parts}
        deeper = summed({at: deepest[at] + sum(units[below] for below in others[at]) for at in parts}, left_over)
        if deeper == units:
            break
        units = deeper
        levels.append(units[first])
    patterns = [cost_of(pattern) for part in parts.values() for pattern in _patterns(part)]
    widest = max((cost.ways for cost in patterns), default=0)
    going_back = sum(cost.goes_back for cost in patterns)
    return Work(tuple(levels), widest * _UNITS_PER_WAY if widest > _NARROW else 1, going_back)


def _known(schemas: Iterable[Any], parts: Mapping[int, Any]) -> list[int]:
    """The identities of the objects among some schemas."""
    return [id(schema) for schema in schemas if id(schema) in parts]


def _own(part: Mapping[str, Any]) -> int:
    """What a schema's own keywords look at."""
    listed = ("required", "enum", "const", "dependentRequired")
    return len(part) + sum(1 for keyword in listed if keyword in part for _ in parts_of(part[keyword]))


def _patterns(part: Mapping[str, Any]) -> Iterator[str]:
    named = part.get("patternProperties")
    patterns = (part.get("pattern"), *(named if isinstance(named, dict) else ()))
    return (pattern for pattern in patterns if isinstance(pattern, str))
