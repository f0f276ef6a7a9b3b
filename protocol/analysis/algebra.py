"""Schema algebra: sets of JSON values, as schemas describe them (SPEC R4.1, R4.6).

The one module between the rest and `jsonschema_rs.canonical`, whose interface is young. That two sets have nothing in
common is only said where it is proved. What the library cannot decide, what it refuses and what is too large counts as
"may have": then no finding follows.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from typing import Any, Final

from jsonschema_rs import CanonicalSchema, canonicalize
from jsonschema_rs import canonical as c

from protocol.language.errors import shortened
from protocol.language.paths import MISSING
from protocol.language.references import Path
from protocol.schemas import Schema, referred

_MOST_NODES: Final = 20_000
"""A larger schema counts as one that admits everything."""
_MOST_CASES: Final = 4_096
"""So many pairs of alternatives are gone through for one intersection."""
_MOST_LEVELS: Final = 200
_PER_CASE: Final = 12
_BUDGET: Final = 600_000
"""What one analysis may cost. A unit is one node of a schema, some 5 microseconds; see `Algebra.fit`."""

_TYPES: Final = {
    c.StringView: "string",
    c.NumberView: "number",
    c.IntegerView: "integer",
    c.ArrayView: "array",
    c.ObjectView: "object",
}
_CONSTANTS: Final = {
    type(None): "null", bool: "boolean", int: "integer", str: "string", list: "array", dict: "object",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Values:
    """A set of JSON values; equal where the library finds their schemas to be the same."""

    schema: CanonicalSchema
    nodes: int = field(default=1, compare=False)
    cases: int = field(default=1, compare=False)


EVERYTHING: Final = Values(canonicalize(True))
NOTHING: Final = Values(canonicalize(False))


class Algebra:
    """Compares sets of values, within one budget for all that it is asked."""

    def __init__(self, budget: int = _BUDGET) -> None:
        self._left = budget
        self._fits: dict[tuple[Values, Values], bool] = {}
        self._made: dict[Hashable, tuple[object, Values]] = {}
        self.is_complete = True
        """Whether all that was asked has been looked at."""

    def described_by(self, schema: Schema) -> Values:
        """The values that a schema admits which is there as long as this is: it is read once, by its identity."""
        if id(schema) not in self._made:
            self._made[id(schema)] = (schema, self.made_of(schema))
        return self._made[id(schema)][1]

    def made_of(self, schema: Schema) -> Values:
        """The values that a schema admits which is made for the moment."""
        nodes, cases = _size(schema)
        if nodes > _MOST_NODES or cases > _MOST_CASES or not self._lasts(nodes + _PER_CASE * cases):
            self.is_complete = False
            return EVERYTHING
        found = _tried(lambda: canonicalize(schema))
        return EVERYTHING if found is None else Values(found, nodes, cases)

    def only(self, value: Any) -> Values:
        """A single value."""
        return self.made_of({"const": value})

    def fit(self, given: Values, wanted: Values) -> bool:
        """Whether a value may be in both; False is a proof."""
        pair = (given, wanted)
        if pair not in self._fits:
            self._fits[pair] = self._may_fit(given, wanted)
        return self._fits[pair]

    def both(self, some: Values, others: Values) -> Values:
        """The values that are in both, as far as that can be said: else some more."""
        if EVERYTHING in (some, others):
            return others if some == EVERYTHING else some
        cost = self._cost(some, others)
        found = _tried(lambda: some.schema.intersect(others.schema)) if self._lasts(cost) else None
        return some if found is None else Values(found, some.nodes + others.nodes, some.cases * others.cases)

    def at(self, values: Values, segment: str | int) -> Values:
        """What may stand at a key or an index of these values; `NOTHING` where nothing ever does."""
        if not self._lasts(1):
            return EVERYTHING
        found = _tried(lambda: _at(values.schema, segment, 0))
        return EVERYTHING if found is None else Values(found, values.nodes, values.cases)

    def along(self, values: Values, path: Path) -> Values:
        """What may stand at a path of these values."""
        return reduce(self.at, path, values)

    def around(self, values: Values, key: str) -> Values:
        """The objects that have one of these values at a key."""
        return self.made_of({"type": "object", "properties": {key: values.schema.to_json_schema()}, "required": [key]})

    def _may_fit(self, given: Values, wanted: Values) -> bool:
        if EVERYTHING in (given, wanted):
            return True
        if given.cases * wanted.cases > _MOST_CASES or not self._lasts(self._cost(given, wanted)):
            self.is_complete = False
            return True
        met = _tried(lambda: given.schema.intersect(wanted.schema).satisfiability())
        return bool(met != c.Satisfiability.NO)

    def _cost(self, some: Values, others: Values) -> int:
        return some.nodes + others.nodes + _PER_CASE * some.cases * others.cases

    def _lasts(self, cost: int) -> bool:
        self._left -= cost
        self.is_complete = self.is_complete and self._left >= 0
        return self._left >= 0


def is_empty(values: Values) -> bool:
    """Whether there is provably no such value."""
    return values.schema.satisfiability() == c.Satisfiability.NO


def types_of(values: Values) -> frozenset[str]:
    """The JSON types that occur among these values, or more: a `number` may be an integer, too."""
    return _types(values.schema, 0)


def told(values: Values) -> str:
    """The values in a few words: `string`, `"a" or "b"`, `list of number`."""
    return shortened(_told(values.schema, 0))


_ALL: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_DEEPEST: Final = 8


def _types(schema: CanonicalSchema, depth: int) -> frozenset[str]:
    view = schema.view()
    match view:
        case c.MultiTypeView():
            return frozenset(view.types)
        case c.TypedGroupView():
            return frozenset({view.type_name})
        case c.ConstView() | c.EnumView():
            return frozenset(_CONSTANTS.get(type(value), "number") for value in _constants(view))
        case c.AnyOfView() | c.OneOfView():
            return frozenset().union(*(_types(branch, depth + 1) for branch in view.branches))
        case c.ReferenceView() if depth < _DEEPEST and (target := schema.definition(view.uri)) is not None:
            return _types(target, depth + 1)
        case c.FalseView():
            return frozenset()
    own = _TYPES.get(type(view))
    return frozenset({own}) if own is not None else _ALL


def _at(schema: CanonicalSchema, segment: str | int, depth: int) -> CanonicalSchema:
    """What stands at a segment of the values of a schema."""
    view = schema.view()
    if depth > _DEEPEST:
        return EVERYTHING.schema
    match view:
        case c.MultiTypeView():
            return _if(bool({"object", *_lists(segment)} & set(view.types)))
        case c.TypedGroupView():
            return _if(view.type_name in ("object", *_lists(segment)))
        case c.StringView() | c.NumberView() | c.IntegerView() | c.FalseView():
            return NOTHING.schema
        case c.ConstView() | c.EnumView():
            found = [part for value in _constants(view) if (part := _part(value, segment)) is not MISSING]
            return canonicalize({"enum": found}) if found else NOTHING.schema
        case c.AnyOfView() | c.OneOfView():
            parts = (_at(branch, segment, depth + 1) for branch in view.branches)
            return reduce(CanonicalSchema.union, parts, NOTHING.schema)
        case c.AllOfView():
            parts = (_at(branch, segment, depth + 1) for branch in view.branches)
            return reduce(CanonicalSchema.intersect, parts, EVERYTHING.schema)
        case c.ReferenceView():
            target = schema.definition(view.uri)
            return _at(target, segment, depth + 1) if target is not None else EVERYTHING.schema
        case c.ArrayView():
            return _element(view, segment) if _lists(segment) else NOTHING.schema
        case c.ObjectView():
            return _property(view, str(segment))
    return EVERYTHING.schema


def _element(view: c.ArrayView, segment: str | int) -> CanonicalSchema:
    index = int(segment)
    if view.max_items is not None and index >= view.max_items:
        return NOTHING.schema
    if index < len(view.prefix_items):
        return view.prefix_items[index]
    return view.items if view.items is not None else EVERYTHING.schema


def _property(view: c.ObjectView, key: str) -> CanonicalSchema:
    names = view.property_names
    if names is not None and names.intersect(canonicalize({"const": key})).satisfiability() == c.Satisfiability.NO:
        return NOTHING.schema
    if key in view.properties:
        return view.properties[key]
    if view.pattern_properties or view.additional_properties is None:
        return EVERYTHING.schema
    return view.additional_properties


def _lists(segment: str | int) -> tuple[str, ...]:
    return ("array",) if isinstance(segment, int) else ()


def _if(may_be: bool) -> CanonicalSchema:
    return EVERYTHING.schema if may_be else NOTHING.schema


def _part(value: Any, segment: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(str(segment), MISSING)
    if isinstance(value, list) and isinstance(segment, int) and segment < len(value):
        return value[segment]
    return MISSING


def _constants(view: c.ConstView | c.EnumView) -> list[Any]:
    return [view.value] if isinstance(view, c.ConstView) else list(view.values)


_SHOWN: Final = 4


def _told(schema: CanonicalSchema, depth: int) -> str:
    view = schema.view()
    match view:
        case c.ConstView() | c.EnumView():
            values = _constants(view)
            if values == [False, True]:
                return "boolean"
            shown = [shortened(json.dumps(value, ensure_ascii=False, default=str)) for value in values[:_SHOWN]]
            return _or([*shown, "…"] if len(values) > _SHOWN else shown)
        case c.ArrayView() if view.items is not None and depth < 2 and not view.prefix_items:
            return f"list of {_told(view.items, depth + 1)}"
        case c.StringView() if view.patterns:
            return f"string that matches {view.patterns[0]}"
        case c.StringView():
            return "string" + _range("length", view.min_length, view.max_length)
        case c.NumberView() | c.IntegerView():
            return _TYPES[type(view)] + _range("value", view.minimum, view.maximum)
        case c.AnyOfView() | c.OneOfView() if depth < 2:
            return _or(dict.fromkeys(_told(branch, depth + 1) for branch in view.branches[:_SHOWN]))
    types = sorted(_types(schema, 0))
    return "any value" if set(types) >= _ALL - {"integer"} else _or(types).replace("array", "list") or "nothing"


def _range(what: str, least: object, most: object) -> str:
    bounds = [f"{word} {bound}" for word, bound in (("at least", least), ("at most", most)) if bound is not None]
    return f" ({what} {' and '.join(bounds)})" if bounds else ""


def _or(words: Iterable[str]) -> str:
    return " or ".join(words)


def _tried(find: Any) -> Any:
    """What the library answers, or None where it refuses: its errors are many, a panic among them."""
    try:
        return find()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException:
        return None


def _size(schema: Schema) -> tuple[int, int]:
    """How many parts a schema has, and an upper bound of the alternatives that come of them.

    Alternatives below a part are gone through anew for each of its own.
    """
    nodes, targets = 0, dict[str, int]()

    def cases(part: Any, depth: int) -> int:
        nonlocal nodes
        nodes += 1
        if nodes > _MOST_NODES or depth > _MOST_LEVELS:
            return _MOST_CASES + 1
        if isinstance(part, list):
            return max((cases(each, depth + 1) for each in part), default=1)
        found = most = 1
        for keyword, below in part.items() if isinstance(part, dict) else ():
            match keyword, below:
                case (("anyOf" | "oneOf"), list()):
                    found *= max(1, sum(cases(each, depth + 1) for each in below))
                case "allOf", list():
                    found *= prod(cases(each, depth + 1) for each in below)
                case "dependentSchemas", dict():
                    found *= prod(1 + cases(each, depth + 1) for each in below.values())
                case (("if" | "then" | "else" | "not"), _):
                    found *= 1 + cases(below, depth + 1)
                case "$ref", str():
                    if below not in targets:
                        targets[below] = 1  # while it is walked: a cycle adds nothing
                        targets[below] = cases(referred(below, schema), depth + 1)
                    found *= targets[below]
                case (("const" | "enum"), _):
                    nodes += _parts(below)
                case (("default" | "examples" | "$defs" | "definitions"), _):
                    pass
                case _:
                    most = max(most, cases(below, depth + 1))
            found = min(found, _MOST_CASES + 1)
        return min(found * most, _MOST_CASES + 1)

    number = cases(schema, 0)
    return nodes, number


def _parts(value: Any) -> int:
    """How many values are in a value, counted no further than matters."""
    stack, count = [value], 0
    while stack and count <= _MOST_NODES:
        part = stack.pop()
        count += 1
        stack.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
    return count
