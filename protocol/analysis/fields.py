"""Fields: what is read of a result that has no such part, by what its writer promises (SPEC R3.5, R4.6)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.graph.promises import schemas_at
from acts_celery.protocol.language.references import Path, Reference
from acts_celery.protocol.language.spelling import Speller
from acts_celery.protocol.schemas.algebra import EVERYTHING, Algebra, is_empty, told, types_of
from acts_celery.protocol.submission.layout import Layout

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
        self._speller = Speller(likeness=0.6)

    def fault(self, reader: Call, place: Reference, source: Source) -> Fault | None:
        """Why a source never has anything at a place, or hardly means to."""
        values, above = source.promised, len(place.path) - len(source.inside)
        if source.writer is None or source.promised == EVERYTHING:
            return None
        if above and is_empty(source.values) and not source.inside:
            return _of_list(place, above - 1)
        for position, segment in enumerate(source.inside):
            types, below = types_of(values), self._algebra.at(values, segment)
            names = self._listed(source.writer, source.inside[:position])
            if is_empty(below) or (types == {"object"} and below == EVERYTHING and names):
                depth, what = above + position, Reference(place.kind, place.path[: above + position])
                if "object" not in types and (types != {"array"} or isinstance(segment, int)):
                    instead = f"write {what}" if isinstance(segment, int) else f"read {what}"
                    return Fault("ACT205", f"{what} is {told(values)} and has no part {segment!r}", instead)
                if "object" not in types:
                    return _of_list(place, depth)
                if isinstance(segment, int) and "array" not in types and str(segment) not in names:
                    why = f"{what} is an object, and {segment} is an index"
                    return Fault("ACT205", why, f"write {_with(place, depth)}")
                if str(segment) not in names and (is_empty(below) or self._is_slip(reader, place, depth, names)):
                    near, some = self._nearest(str(segment), names), ", ".join(names[:_MOST_NAMES])
                    some += ", …" * (len(names) > _MOST_NAMES)
                    why = f"{what} has no field {str(segment)!r}; it has {some or 'none'}"
                    instead = f"name one of its fields: {some}" if names else f"read {what}"
                    return Fault("ACT204", why, instead if near is None else f"write {_with(place, depth, near)}")
            values = below
        return None

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
            for place in call.read:
                for depth in range(1, len(place.key)):
                    found[call.instance, place.key[:depth]].add(place.key[depth])
        return found

    def _listed(self, writer: Call, path: Path) -> list[str]:
        """The fields that a promise lists at a path; none where others have a name by a pattern."""
        found: dict[str, None] = {}
        for schema in self._flow.schemas(writer):
            for part in schemas_at(schema, path):
                if "patternProperties" in part:
                    return []
                constant = part.get("const")
                found.update(dict.fromkeys(part.get("properties", ())))
                found.update(dict.fromkeys(constant if isinstance(constant, dict) else ()))
        return list(islice(found, _MOST_KNOWN))

    def _nearest(self, key: str, names: list[str]) -> str | None:
        """The field that was probably meant: the same but for case and underscores, or nearly the same."""
        plain = {name.replace("_", "").lower(): name for name in reversed(names)}
        return plain.get(key.replace("_", "").lower()) or self._speller.nearest(key, names)


def _of_list(place: Reference, depth: int) -> Fault:
    """A list is read by a key."""
    why = f"{Reference(place.kind, place.path[:depth])} is a list, and {place.path[depth]!r} is a key"
    return Fault("ACT205", why, f"write {_with(place, depth, 0, place.path[depth])} to read the first element")


def _with(place: Reference, depth: int, *instead: str | int) -> Reference:
    """A place with other segments, or none, in place of one."""
    return Reference(place.kind, (*place.path[:depth], *instead, *place.path[depth + 1 :]))
