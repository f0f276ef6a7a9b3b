"""Schema algebra: sets of JSON values, as schemas describe them (SPEC R4.1, R4.6).

No other module uses `jsonschema_rs.canonical`, whose interface is young. Two sets count as disjoint only where that is
proved. Where the library cannot decide, refuses or would take too long, they count as overlapping: no finding follows.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from itertools import islice
from math import prod
from typing import Any, Final

from jsonschema_rs import CanonicalSchema, canonicalize
from jsonschema_rs import canonical as c

from .. import limits
from ..errors import shortened
from ..paths import MISSING, lookup, parts_of
from ..references import Path
from .costs import digits_of
from .walk import IN_PLACE, Schema, Walk, referred, subschemas

TYPES: Final = {name: canonicalize({"type": name}) for name in ("null", "boolean", "string", "array", "object")} | {
    "integer": canonicalize({"type": "integer"}),
    "number": canonicalize({"type": "number", "not": {"type": "integer"}}),
}
"""JSON type -> its values. A `number` is here one that is no integer."""


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of a schema, by which the time of an operation is bounded."""

    nodes: int = 1
    """The number of parts."""
    cases: int = 1
    """The most alternatives into which the parts multiply."""
    constants: int = 0
    """The number of parts of `const` and `enum`."""
    divisions: int = 0
    """The work to divide one number by each `multipleOf`, in hundredths of a unit."""
    digits: int = 0
    """The digits of the longest number in `const` and `enum`."""
    comparisons: int = 0
    """The work to compare constants with each other, in hundredths of a unit."""

    def joined_with(self, other: _Size) -> _Size:
        """The size of two schemas together."""
        digits = max(self.digits, other.digits)
        compared = self.constants * other.constants * (1 + digits // limits.DIGITS_PER_COMPARISON)
        return _Size(
            self.nodes + other.nodes,
            self.cases * other.cases,
            self.constants + other.constants,
            self.divisions + other.divisions,
            digits,
            self.comparisons + other.comparisons + compared,
        )

    @property
    def cost(self) -> int:
        """The work of an operation, in units."""
        return self.nodes + limits.PER_CASE * self.cases + (self.constants * self.divisions + self.comparisons) // 100

    @property
    def is_too_large(self) -> bool:
        """Whether the schema is not analysed."""
        return self.nodes > limits.MOST_NODES or self.cases > limits.MOST_CASES


@dataclass(frozen=True, slots=True)
class Values:
    """A set of JSON values; equal where the library finds their schemas to be the same."""

    schema: CanonicalSchema
    size: _Size = field(default=_Size(), compare=False)


EVERYTHING: Final = Values(canonicalize(True))
NOTHING: Final = Values(canonicalize(False))


class Algebra:
    """Compares sets of values, within one budget for all operations."""

    def __init__(self, budget: int = limits.ALGEBRA_BUDGET) -> None:
        self._left = budget
        self._fits: dict[tuple[Values, Values], bool] = {}
        self._made: dict[int, tuple[Schema, Values]] = {}
        self._around: dict[tuple[Values, str | None], Values] = {}
        self.is_complete = True
        """False once an operation was too large, or the budget was used up."""

    def described_by(self, schema: Schema) -> Values:
        """The values that a lasting schema admits; it is read once, by its identity."""
        if id(schema) not in self._made:
            self._made[id(schema)] = (schema, self.made_of(schema))
        return self._made[id(schema)][1]

    def made_of(self, schema: Schema) -> Values:
        """The values that a temporary schema admits."""
        size = _size(schema)
        if size.is_too_large or not self._lasts(size.cost):
            self.is_complete = False
            return EVERYTHING
        found = _tried(lambda: canonicalize(schema))
        return EVERYTHING if found is None else Values(found, size)

    def only(self, value: Any) -> Values:
        """A single value."""
        return self.made_of({"const": value})

    def fit(self, given: Values, wanted: Values) -> bool:
        """Whether some value may be in both sets; False is a proof."""
        pair = (given, wanted)
        if pair not in self._fits:
            self._fits[pair] = self._may_fit(given, wanted)
        return self._fits[pair]

    def covered(self, given: Values, wanted: Schema) -> bool:
        """Whether a temporary schema admits all of some values; True is a proof."""
        size = _size(wanted)
        together = size.joined_with(given.size)
        if size.is_too_large or together.cases > limits.MOST_CASES or not self._lasts(together.cost):
            self.is_complete = False
            return False
        return bool(_tried(lambda: canonicalize(wanted).covers(given.schema) == c.Containment.YES))

    def both(self, some: Values, others: Values) -> Values:
        """The values that are in both sets, or a larger set where that cannot be decided."""
        if EVERYTHING in (some, others):
            return others if some == EVERYTHING else some
        size = some.size.joined_with(others.size)
        found = _tried(lambda: some.schema.intersect(others.schema)) if self._lasts(size.cost) else None
        return some if found is None else Values(found, size)

    def at(self, values: Values, segment: str | int) -> Values:
        """The values that may be at a key or an index of these values; `NOTHING` where none can be."""
        if not self._lasts(1):
            return EVERYTHING
        found = _tried(lambda: _at(values.schema, segment, 0))
        return EVERYTHING if found is None else Values(found, values.size)

    def along(self, values: Values, path: Path) -> Values:
        """The values that may be at a path of these values."""
        return reduce(self.at, path, values)

    def around(self, values: Values, key: str | None) -> Values:
        """The objects that have one of these values at a key; without a key the lists that hold one."""
        if (values, key) not in self._around:
            part, outer = values.schema.to_json_schema(), of_types(["array" if key is None else "object"])
            schema = {"contains": part} if key is None else {"properties": {key: part}, "required": [key]}
            self._around[values, key] = self.both(outer, self.made_of(schema))
        return self._around[values, key]

    def _may_fit(self, given: Values, wanted: Values) -> bool:
        if EVERYTHING in (given, wanted):
            return True
        size = given.size.joined_with(wanted.size)
        if size.cases > limits.MOST_CASES or not self._lasts(size.cost):
            self.is_complete = False
            return True
        return _meet(given.schema, wanted.schema)

    def _lasts(self, cost: int) -> bool:
        self._left -= cost
        self.is_complete = self.is_complete and self._left >= 0
        return self._left >= 0


def is_empty(values: Values) -> bool:
    """Whether there is provably no such value."""
    return values.schema.satisfiability() == c.Satisfiability.NO


def of_types(types: Iterable[str]) -> Values:
    """All values of some JSON types."""
    return Values(reduce(CanonicalSchema.union, map(TYPES.__getitem__, types), NOTHING.schema))


def types_of(values: Values) -> frozenset[str]:
    """The JSON types that may occur among these values."""
    return _types(values.schema)


def described(values: Values) -> str:
    """The values in a few words: `string`, `"a" or "b"`, `list of number`."""
    return shortened(_described(values.schema, 0))


def _meet(one: CanonicalSchema, other: CanonicalSchema) -> bool:
    """Whether a value may satisfy both."""
    return bool(_tried(lambda: one.intersect(other).satisfiability()) != c.Satisfiability.NO)


@lru_cache(maxsize=1_024)
def _types(schema: CanonicalSchema) -> frozenset[str]:
    return frozenset(name for name, values in TYPES.items() if _meet(schema, values))


def _at(schema: CanonicalSchema, segment: str | int, depth: int) -> CanonicalSchema:
    """The schema of what is at a segment of the values of a schema."""
    view = schema.view()
    match view:
        case c.ConstView() | c.EnumView():
            found = [part for value in _constants(view) if (part := lookup(value, (segment,))) is not MISSING]
            return canonicalize({"enum": found}) if found else NOTHING.schema
        case c.AnyOfView() | c.OneOfView() if depth < limits.DEEPEST:
            parts = (_at(branch, segment, depth + 1) for branch in view.branches)
            return reduce(CanonicalSchema.union, parts, NOTHING.schema)
        case c.ReferenceView() if depth < limits.DEEPEST and (target := schema.definition(view.uri)) is not None:
            return _at(target, segment, depth + 1)
        case c.ArrayView() if isinstance(segment, int):
            if view.max_items is not None and segment >= view.max_items:
                return NOTHING.schema
            prefix = view.prefix_items
            return prefix[segment] if segment < len(prefix) else view.items or EVERYTHING.schema
        case c.ObjectView():
            key, others = str(segment), view.additional_properties
            if view.property_names is not None and not _meet(view.property_names, canonicalize({"const": key})):
                return NOTHING.schema
            if others is None or view.pattern_properties:
                others = EVERYTHING.schema
            return view.properties.get(key, others)
    containers = {"object", "array"} if isinstance(segment, int) else {"object"}
    return EVERYTHING.schema if containers & _types(schema) else NOTHING.schema


def _constants(view: c.ConstView | c.EnumView) -> list[Any]:
    return [view.value] if isinstance(view, c.ConstView) else list(view.values)


def _described(schema: CanonicalSchema, depth: int) -> str:
    view = schema.view()
    match view:
        case c.ConstView() | c.EnumView():
            values = _constants(view)
            shown = [
                shortened(json.dumps(value, ensure_ascii=False, default=str))
                for value in values[: limits.ALGEBRA_SHOWN]
            ]
            more = ["…"] if len(values) > limits.ALGEBRA_SHOWN else []
            return "boolean" if values == [False, True] else " or ".join(shown + more)
        case c.ArrayView() if view.items is not None and depth < 2 and not view.prefix_items:
            return f"list of {_described(view.items, depth + 1)}"
        case c.ArrayView() if view.contains and depth < 2:
            return f"list with {_described(view.contains[0].schema, depth + 1)}"
        case c.StringView() if view.patterns:
            return f"string that matches {view.patterns[0]}"
        case c.StringView():
            return "string" + _range("length", view.min_length, view.max_length)
        case c.NumberView():
            return "number" + _range("value", view.minimum, view.maximum)
        case c.IntegerView():
            return "integer" + _range("value", view.minimum, view.maximum)
        case c.AnyOfView() | c.OneOfView() if depth < 2:
            return " or ".join(
                dict.fromkeys(_described(branch, depth + 1) for branch in view.branches[: limits.ALGEBRA_SHOWN])
            )
    types = _types(schema)
    words = sorted(types - {"integer"} if "number" in types else types)
    return "any value" if types == TYPES.keys() else " or ".join(words).replace("array", "list") or "nothing"


def _range(what: str, least: object, most: object) -> str:
    bounds = [f"{word} {bound}" for word, bound in (("at least", least), ("at most", most)) if bound is not None]
    return f" ({what} {' and '.join(bounds)})" if bounds else ""


def _tried(find: Any) -> Any:
    """The library's answer, or None where it fails: its errors are many, a panic among them."""
    try:
        return find()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException:
        return None


def _size(schema: Schema) -> _Size:
    """The size of a schema.

    The library joins several `multipleOf` into one with the digits of all, which counts as parts. It goes through the
    alternatives below a part once for each alternative of the part itself.
    """
    nodes = depth = constants = longest = 0
    multiples = set[float]()

    def cases(part: Any) -> int:
        nonlocal nodes, depth, constants, longest
        nodes += 1
        if nodes > limits.MOST_NODES or depth > limits.ALGEBRA_MOST_LEVELS:
            return limits.MOST_CASES + 1
        if not isinstance(part, dict):
            return 1
        depth += 1
        factors, most = defaultdict[str, int](int), 1
        for (keyword, *place), below in subschemas(part):
            number = cases(below)
            if keyword not in IN_PLACE:
                most = max(most, number)
            elif keyword in ("anyOf", "oneOf"):
                factors[keyword] += number
            else:
                factors[f"{keyword} {place}"] = number + (keyword != "allOf")
        if isinstance(multiple := part.get("multipleOf"), (int, float)):
            multiples.add(multiple)
        if isinstance(reference := part.get("$ref"), str):
            factors["$ref"] = targets(referred(reference, schema))
        for key in part.keys() & {"const", "enum"}:
            for constant in islice(parts_of(part[key]), limits.MOST_NODES):
                constants, longest = constants + 1, max(longest, digits_of(constant))
        depth -= 1
        return min(prod(factors.values()) * most, limits.MOST_CASES + 1)

    targets = Walk(cases, 1, deepest=limits.ALGEBRA_MOST_LEVELS)
    number = cases(schema)
    digits = [digits_of(one, of_schema=True) for one in multiples]
    divisions = sum(limits.PER_DIVISION + own**2 // limits.DIGITS_PER_UNIT for own in digits)
    nodes += constants * (1 + longest // limits.DIGITS_PER_NODE) + sum(digits) ** 2 // limits.DIGITS_PER_UNIT
    return _Size(nodes, number, constants, divisions, longest)
