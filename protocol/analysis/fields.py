"""Fields: what is read of a result that has no such part, by what its writer promises (SPEC R3.5, R4.6)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final

from protocol.calls.call import Call
from protocol.language.references import Path, Reference
from protocol.language.spelling import Patience
from protocol.schemas.parts import applied
from protocol.submission.layout import Layout

from .algebra import EVERYTHING, Algebra, is_empty, told, types_of
from .type_flow import Source, TypeFlow

_MOST_NAMES: Final = 12
_MOST_KNOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Fault:
    """Why nothing is at a place, and what to write instead."""

    code: str
    why: str
    instead: str


class Fields:
    """What results have, and what is read of them."""

    def __init__(self, layout: Layout, algebra: Algebra, flow: TypeFlow) -> None:
        self._layout = layout
        self._algebra = algebra
        self._flow = flow
        self._patience = Patience(likeness=0.6)

    def fault(self, reader: Call, place: Reference, source: Source) -> Fault | None:
        """Why a source never has anything at a place, or hardly means to."""
        values, above = source.promised, len(place.path) - len(source.inside)
        if source.writer is None or source.promised == EVERYTHING:
            return None
        if above and is_empty(source.values) and not source.inside:
            return self._of_list(place, above - 1)
        for position, segment in enumerate(source.inside):
            types = types_of(values)
            below = self._algebra.at(values, segment)
            names = self._listed(source, source.inside[:position])
            if is_empty(below) or (types == {"object"} and below == EVERYTHING and names):
                depth = above + position
                if isinstance(segment, int) and "array" not in types and str(segment) not in names:
                    return self._of_object(place, depth, types)
                if types == {"array"} and not isinstance(segment, int):
                    return self._of_list(place, depth)
                if "object" not in types:
                    what = f"{Reference(place.kind, place.path[:depth])} is {told(values)} and has no parts"
                    return Fault("ACT205", what, f"read {Reference(place.kind, place.path[:depth])}")
                if str(segment) not in names and (is_empty(below) or self._is_slip(reader, place, depth, names)):
                    return self._unknown(place, depth, names)
            values = below
        return None

    def _of_list(self, place: Reference, depth: int) -> Fault:
        inside = Reference(place.kind, (*place.path[:depth], 0, *place.path[depth:]))
        return Fault(
            "ACT205",
            f"{Reference(place.kind, place.path[:depth])} is a list, and {place.path[depth]!r} is a key",
            f"write {inside} to read the first element",
        )

    def _of_object(self, place: Reference, depth: int, types: frozenset[str]) -> Fault:
        what = Reference(place.kind, place.path[:depth])
        without = Reference(place.kind, (*place.path[:depth], *place.path[depth + 1 :]))
        if types != {"object"}:
            why = f"{what} is {' or '.join(sorted(types))}, and {place.path[depth]} is an index"
            return Fault("ACT205", why, f"write {without}" if depth == len(place.path) - 1 else f"read {what}")
        return Fault("ACT205", f"{what} is an object, and {place.path[depth]} is an index", f"write {without}")

    def _unknown(self, place: Reference, depth: int, names: list[str]) -> Fault:
        what = Reference(place.kind, place.path[:depth])
        near = self._nearest(str(place.path[depth]), names)
        why = f"{what} has no field {str(place.path[depth])!r}; it has {_some(names) or 'none'}"
        if near is None:
            return Fault("ACT204", why, f"name one of its fields: {_some(names)}" if names else f"read {what}")
        return Fault(
            "ACT204", why, f"write {Reference(place.kind, (*place.path[:depth], near, *place.path[depth + 1 :]))}"
        )

    def _is_slip(self, reader: Call, place: Reference, depth: int, names: list[str]) -> bool:
        """Whether a field that an open object does not list is probably none of it: its name is nearly one that is
        listed, or whatever else is read there is listed.
        """
        key = str(place.path[depth])
        read = self._read[reader.instance, place.key[: depth + 1]]
        return self._nearest(key, names) is not None or read.issubset({key, *names})

    @cached_property
    def _read(self) -> dict[tuple[str | None, tuple[str, ...]], set[str]]:
        """The keys that calls read below each place, in each instance."""
        found = defaultdict[tuple[str | None, tuple[str, ...]], set[str]](set)
        for call in self._layout.calls:
            for place in (place for expression in call.expressions for place in expression.references):
                for depth in range(1, len(place.key)):
                    found[call.instance, place.key[:depth]].add(place.key[depth])
        return found

    def _listed(self, source: Source, path: Path) -> list[str]:
        """The fields that a promise lists at a path; none where others have a name by a pattern."""
        found: dict[str, None] = {}
        for schema in self._flow.schemas(source.writer) if source.writer is not None else ():
            parts = applied([schema], schema)
            for segment in path:
                parts = applied(_below(parts, segment), schema)
            for each in parts:
                if "patternProperties" in each:
                    return []
                constant = each.get("const")
                found.update(dict.fromkeys(each.get("properties", ())))
                found.update(dict.fromkeys(constant if isinstance(constant, dict) else ()))
        return list(islice(found, _MOST_KNOWN))

    def _nearest(self, key: str, names: list[str]) -> str | None:
        """The field that was probably meant: the same but for case and underscores, or nearly the same."""
        plain = {name.replace("_", "").lower(): name for name in reversed(names)}
        return plain.get(key.replace("_", "").lower()) or self._patience.nearest(key, names)


def _below(parts: Iterable[Any], segment: str | int) -> Iterator[Any]:
    """The parts of a schema that speak of a key or an element of its values."""
    for each in (part for part in parts if isinstance(part, dict)):
        named = each.get("properties", {})
        if str(segment) in named:
            yield named[str(segment)]
        elif isinstance(segment, int) and "items" in each:
            yield each["items"]


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
