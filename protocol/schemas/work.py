"""Work: how much a schema can take at most, read off the schema and the size of a value alone (SPEC R7.1).

Schemas come with submissions, and so do the values they are applied to. `$ref` may double the work with each step, and
a pattern may be slow on a long text. The estimate is never too low by more than a small factor. One unit is one
keyword's look at one value, about ten nanoseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from protocol.language.limits import Limits
from protocol.language.paths import parts_of

from .parts import IN_PLACE, held, in_place, reachable
from .patterns import MOST_STEPS_BACK, cost_of

MOST_WORK: Final = Limits().schema_work
"""Units that one schema may take for one value while a run is under way: some seconds."""
EXCEEDED: Final = "the schemas exceed the validation budget (ACTS_LIMIT_SCHEMA_WORK)"
_FREE: Final = 1_000
"""A schema that looks at each part of a value no more often than this is not worth counting the parts."""
_UNITS_PER_ERROR: Final = 10
_NARROW: Final = 1_000
_UNITS_PER_WAY: Final = 30
_WIDEST: Final = 5_000
"""So many schemas may be applied to one value where `unevaluatedProperties` looks at each: that is written out."""
_CHARACTERS: Final = 5
_MOST: Final = 10**12
_LEVELS: Final = 64
_NAMING: Final = ("properties", "prefixItems")
"""Keywords of which at most one schema applies to a part of a value."""


class Unbounded(Exception):
    """A schema applies itself to the same value again, or too many others; `part` is the one to blame."""

    def __init__(self, message: str, part: Any) -> None:
        super().__init__(message)
        self.part = part


@dataclass(frozen=True, slots=True)
class Work:
    """What a schema can take: `applications` for each part of a value, at most."""

    applications: int
    units_per_text: int
    """For every few characters of a text, each time a schema looks at it."""
    patterns_going_back: int

    def listing(self, value: Any) -> int:
        """The units that it can take to list what is wrong with a value."""
        return max(self.of(value), _UNITS_PER_ERROR * self.applications * sum(1 for _ in parts_of(value)))

    def of(self, value: Any) -> int:
        """The units that it can take to apply the schema to a value; none where that is too little to count."""
        if self.applications <= _FREE and self.units_per_text == 1 and not self.patterns_going_back:
            return 0
        parts, characters, attempts = _size(value)
        units = self.applications * (parts + self.units_per_text * (characters // _CHARACTERS))
        return units + self.patterns_going_back * attempts


def reading(schema: Any) -> int:
    """The units that it takes to read a schema: its size, and its patterns' written out."""
    units = 0
    for part in parts_of(schema):
        units += 100
        if isinstance(part, dict):
            units += sum(10 * cost_of(pattern).states for pattern in _patterns(part))
    return units


def work_of(root: Any, entry: Any) -> Work:
    """What a part of a schema can take. Raises `Unbounded`."""
    if not isinstance(root, dict) or not isinstance(entry, dict):
        return Work(1, 1, 0)
    order = _inner_first(root)
    position = {id(part): number for number, part in enumerate(order)}
    top = position[id(entry)]
    own = [_own(part) for part in order]
    twice = [2 if part.keys() & {"unevaluatedItems", "unevaluatedProperties"} else 1 for part in order]
    beside = [[position[id(below)] for below in _in_place(part, root)] for part in order]
    inside = [_inside(part, position) for part in order]
    spread: list[int] = []
    for below in beside:
        spread.append(min(_MOST, 1 + sum(spread[number] for number in below)))
    if max(spread) > _WIDEST and max(twice) > 1:
        raise Unbounded(f"{EXCEEDED}: it says of one value what {max(spread)} schemas say", order[-1])
    level: list[int] = []
    for number in range(len(order)):
        level.append(min(_MOST, own[number] + twice[number] * sum(level[below] for below in beside[number])))
    most = level[top]
    for _ in range(_LEVELS):
        deeper: list[int] = []
        for number, (named, others) in enumerate(inside):
            here = max((level[below] for below in named), default=0) + sum(level[below] for below in others)
            deeper.append(min(_MOST, here + twice[number] * sum(deeper[below] for below in beside[number])))
        if deeper == level or not any(deeper):
            break
        level, most = deeper, max(most, deeper[top])
    patterns = [cost_of(pattern) for part in order for pattern in _patterns(part)]
    widest = max((cost.ways for cost in patterns), default=0)
    going_back = sum(cost.goes_back for cost in patterns)
    return Work(most, widest * _UNITS_PER_WAY if widest > _NARROW else 1, going_back)


def _size(value: Any) -> tuple[int, int, int]:
    """The parts of a value, its characters, and the units that going back in each of its texts may take."""
    parts = characters = attempts = 0
    for part in parts_of(value):
        parts += 1
        for text in part if isinstance(part, dict) else (part,):
            if isinstance(text, str):
                characters += len(text)
                attempts += 2 * min(2 ** min(len(text), 20), MOST_STEPS_BACK)
    return parts, characters, attempts


def _inner_first(root: dict[str, Any]) -> list[dict[str, Any]]:
    """Every schema that can be applied, behind those that it applies to the same value."""
    parts = {id(part): part for _, part in reachable(root)}
    try:
        order = TopologicalSorter({at: map(id, _in_place(part, root)) for at, part in parts.items()}).static_order()
        return [parts[at] for at in order]
    except CycleError as error:
        raise Unbounded("the schema refers to itself without end", parts[error.args[1][0]]) from None


def _in_place(part: dict[str, Any], root: Any) -> list[dict[str, Any]]:
    """The schemas that one applies to the same value."""
    return [below for below in in_place(part, root, *IN_PLACE) if isinstance(below, dict)]


def _inside(part: dict[str, Any], position: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """The schemas of what is in a value: those of which a part gets one, and those that it may get as well."""
    inside = [(way[0], position[id(below)]) for way, below in held(part) if isinstance(below, dict)]
    named = [number for keyword, number in inside if keyword in _NAMING]
    return named, [number for keyword, number in inside if keyword not in (*_NAMING, *IN_PLACE, "$defs")]


def _own(part: Mapping[str, Any]) -> int:
    """What a schema's own keywords look at."""
    lists = [part.get("required"), part.get("enum"), part.get("const"), part.get("dependentRequired")]
    return len(part) + sum(sum(1 for _ in parts_of(one)) for one in lists if isinstance(one, (list, dict)))


def _patterns(part: Mapping[str, Any]) -> Iterator[str]:
    named = part.get("patternProperties")
    patterns = (part.get("pattern"), *(named if isinstance(named, dict) else ()))
    return (pattern for pattern in patterns if isinstance(pattern, str))
