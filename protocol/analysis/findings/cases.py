"""Cases: the ways in which a value can be what a schema admits, told without a value (SPEC R4.1, R4.6).

A schema is read as *cases*, one for each way through its `anyOf` and `oneOf`; of each it is known which types, values
and ranges are left. It may admit less than that, never more: keywords that are not looked at only take away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Final

from protocol.language.errors import Problem
from protocol.language.paths import MISSING, lookup
from protocol.language.references import Path
from protocol.schemas import Schema, compiled, joined
from protocol.schemas.compilation import CompiledSchema
from protocol.schemas.patterns import matches

from .effort import count, is_spent
from .ranges import ANY, Range, ranges
from .types import ALL_TYPES, types_of

_MOST_VALUES: Final = 100
_MOST_CASES: Final = 16
_MOST_OPENED: Final = 32
"""So many `anyOf` and `oneOf` are looked into at one place; the others are taken to admit anything."""
_STEPS_PER_CASE: Final = 10
_STEPS_PER_PART: Final = 2
_STEPS_PER_VALUE: Final = 10
_CHARACTERS_PER_STEP: Final = 200
"""How much work it is to read a schema, in steps: one is what a keyword takes for a value (see `effort`)."""


@dataclass(frozen=True)
class Document:
    """A schema with all that its references can lead to."""

    root: Schema

    @cached_property
    def has_names(self) -> bool:
        """Whether parts of it may have names of their own: then a reference means what is in the part it stands in."""
        text = json.dumps(self.root)
        count(len(text) // _CHARACTERS_PER_STEP)
        return '"$id"' in text

    @cached_property
    def compiled(self) -> CompiledSchema:
        """The schema, ready to be applied."""
        return compiled(self.root)

    def joined(self, schemas: Iterable[Any]) -> tuple[Schema, ...]:
        """Schemas of one place, with those that they join there; where there are names, references are left alone."""
        parts = joined(schemas, {})
        if any(isinstance(part, dict) and "$ref" in part for part in parts) and not self.has_names:
            return joined(parts, self.root)
        return parts


@dataclass(frozen=True)
class Case:
    """One way in which a value can be what a schema admits: it satisfies all the `parts`."""

    parts: tuple[Schema, ...]

    @property
    def is_impossible(self) -> bool:
        """Whether nothing can be so."""
        return any(part is False for part in self.parts) or not self.types

    @cached_property
    def types(self) -> frozenset[str]:
        """The types the value can have."""
        count(_STEPS_PER_CASE + _STEPS_PER_PART * sum(map(_size, self.parts)))
        types = reduce(frozenset.intersection, map(types_of, self.parts), ALL_TYPES)
        return frozenset(type_ for type_ in types if not self._excludes(type_))

    def _excludes(self, type_: str) -> bool:
        """Whether bounds contradict each other, or an object must have a property that nothing can be."""
        if self.range(type_).is_empty:
            return True
        return type_ == "object" and any(part is False for key in self.required for part in self.below(key))

    @property
    def values(self) -> tuple[Any, ...] | None:
        """All values that come into question, where a `const` or an `enum` lists them."""
        for part in self._keywords:
            if "const" in part:
                return (part["const"],)
            if isinstance(part.get("enum"), list) and len(part["enum"]) <= _MOST_VALUES:
                return tuple(part["enum"])
        return None

    @cached_property
    def required(self) -> frozenset[str]:
        """The properties that are there whenever the value is an object."""
        named = (key for part in self._keywords for key in _listed(part, "required") if isinstance(key, str))
        return frozenset(named).union(*(_named(part, "const") for part in self._keywords))

    def range(self, type_: str) -> Range:
        """The numbers it can be; of a text, a list or an object: how many characters, elements or properties."""
        found = reduce(Range.within, (end for part in self._keywords for end in ranges(part, type_)), ANY)
        return found.within(Range(low=len(self.required))) if type_ == "object" and self.required else found

    def below(self, segment: str | int) -> list[Any]:
        """The schemas of a property, or of an element where the value is sure to be a list."""
        return [below for part in self._keywords for below in _below(part, segment)]

    @property
    def _keywords(self) -> Iterator[dict[str, Any]]:
        return (part for part in self.parts if isinstance(part, dict))


@dataclass(frozen=True, slots=True)
class Shape:
    """What a schema says of the value at a path: it is one of the `cases`."""

    document: Document
    path: Path
    cases: tuple[Case, ...]
    is_exact: bool = True
    """Whether it is certain which keywords speak of the path: below what may be a list or an object it is not."""

    @property
    def is_impossible(self) -> bool:
        """Whether there can be no value at the path at all."""
        return not self.cases

    @property
    def is_open(self) -> bool:
        """Whether nothing at all is said of the value, in one case at least."""
        return any(not any(isinstance(part, dict) and part for part in case.parts) for case in self.cases)

    @property
    def types(self) -> frozenset[str]:
        """The types the value can have."""
        return frozenset[str]().union(*(case.types for case in self.cases))

    @property
    def values(self) -> tuple[Any, ...] | None:
        """All values that come into question, where each case lists its own."""
        found: list[Any] = []
        for case in self.cases:
            if (values := case.values) is None:
                return None
            found += values
        return tuple(found)

    @property
    def required(self) -> frozenset[str]:
        """The properties that are there whenever the value is an object."""
        return reduce(frozenset.intersection, (case.required for case in self.cases)) if self.cases else frozenset()

    def says(self, *keywords: str) -> bool:
        """Whether one of some keywords occurs in any of the cases."""
        return any(isinstance(part, dict) and key in part for c in self.cases for part in c.parts for key in keywords)

    def admits(self, value: Any) -> bool:
        """Whether the whole of the schema has nothing against the value at the path."""
        return not self.problems(value)

    def problems(self, value: Any) -> list[Problem]:
        """What the whole of the schema has against the value at the path.

        Nothing, where that is not known, or too much effort was spent (see `effort`).
        """
        if not self.is_exact or is_spent() or (self.path and self.document.has_names):
            return []
        count(_STEPS_PER_VALUE)
        return self.document.compiled.problems_at(self.path, value)

    def below(self, segment: str | int) -> Shape:
        """What is said of one property or element, given that it is there."""
        cases = [case for case in self.cases if case.types & _containers(segment)]
        found = [below for case in cases for below in _cases(_parts_below(case, segment), self.document)]
        if len(found) > _MOST_CASES:
            found = [Case(())]
        is_exact = self.is_exact and all(_is_told(case, segment) for case in cases)
        return Shape(self.document, (*self.path, segment), tuple(found), is_exact)

    def at(self, path: Path, *, in_lists: bool = False) -> Shape:
        """What is said of the value at a path; with `in_lists`, its indexes are known to lead into lists."""
        shape = self
        for segment in path:
            is_element = in_lists and isinstance(segment, int)
            shape = (shape.only("array") if is_element else shape).below(segment)
        return shape

    def only(self, type_: str, *cases: Case) -> Shape:
        """The same, given that the value has a type, and is one of some of the cases."""
        typed = (Case((*case.parts, {"type": type_})) for case in cases or self.cases)
        return replace(self, cases=tuple(case for case in typed if not case.is_impossible))


def shape_at(schema: Schema, path: Path = (), *, in_lists: bool = False) -> Shape:
    """What a schema says of the value at a path: see `Shape.at`."""
    document = Document(schema)
    return Shape(document, (), tuple(_cases([schema], document))).at(path, in_lists=in_lists)


def _cases(schemas: Iterable[Any], document: Document) -> list[Case]:
    """The ways through the `anyOf` and `oneOf` of schemas that a value satisfies together."""
    left: list[tuple[tuple[Schema, ...], frozenset[int]]] = [(document.joined(schemas), frozenset())]
    found: list[Case] = []
    opened = 0
    while left:
        if is_spent():
            return [Case(())]
        parts, seen = left.pop()
        if Case(parts).is_impossible:
            continue
        choice = next((choice for choice in _choices(parts) if id(choice) not in seen), None)
        if choice is None or opened >= _MOST_OPENED or len(found) + len(left) + len(choice) > _MOST_CASES:
            found.append(Case(parts))
            continue
        opened += 1
        left += [(document.joined((*parts, branch)), seen | {id(choice)}) for branch in reversed(choice)]
    return found


def _choices(parts: Iterable[Schema]) -> Iterator[list[Any]]:
    for part in parts:
        if isinstance(part, dict):
            yield from (choice for key in ("anyOf", "oneOf") if (choice := _listed(part, key)))


def _containers(segment: str | int) -> frozenset[str]:
    return frozenset({"object"}) if isinstance(segment, str) else frozenset({"object", "array"})


def _parts_below(case: Case, segment: str | int) -> list[Any]:
    if isinstance(segment, int) and "object" in case.types:
        if "array" in case.types:
            return []  # an element or a property: nobody can tell
        segment = str(segment)
    if isinstance(segment, int) and case.range("array").high <= segment:
        return [False]
    return case.below(segment)


def _is_told(case: Case, segment: str | int) -> bool:
    """Whether a path that goes on with an index is sure to lead into a list, and to nothing said of objects."""
    named = {"properties", "patternProperties", "additionalProperties"}
    return isinstance(segment, str) or (
        "object" not in case.types and not any(isinstance(part, dict) and named & set(part) for part in case.parts)
    )


def _below(schema: dict[str, Any], segment: str | int) -> list[Any]:
    if "const" in schema or isinstance(schema.get("enum"), list):
        values = [schema["const"]] if "const" in schema else schema["enum"]
        found = [below for value in values if (below := lookup(value, (segment,))) is not MISSING]
        return [{"enum": found} if found else False, *_below_keywords(schema, segment)]
    return _below_keywords(schema, segment)


def _below_keywords(schema: dict[str, Any], segment: str | int) -> list[Any]:
    if isinstance(segment, int):
        prefix = _listed(schema, "prefixItems")
        if segment < len(prefix):
            return [prefix[segment]]
        return [schema["items"]] if "items" in schema else []
    properties = _named(schema, "properties")
    named = [properties[segment]] if segment in properties else []
    patterns = _named(schema, "patternProperties")
    named += [below for pattern, below in patterns.items() if matches(pattern, segment)]
    return named or ([schema["additionalProperties"]] if "additionalProperties" in schema else [])


def _size(schema: Schema) -> int:
    """How much there is to be read in one part of a case, beside what is below it."""
    return 1 + (len(_listed(schema, "enum")) + len(_listed(schema, "required"))) // 8 if isinstance(schema, dict) else 1


def _listed(schema: dict[str, Any], keyword: str) -> list[Any]:
    """A keyword's list; a `$ref` can make a schema of anything, and then a keyword have a value of any type."""
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _named(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}
