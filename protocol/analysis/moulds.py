"""Moulds: the shape that the readers of a result ask for, and those who write into it (SPEC R6.7).

Where nothing is said of a call's result, what is made up for it has something wherever others read, and of the type
that they take; where others add to it, it is something that can be added to.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Any, Final, NamedTuple

from protocol.calls.call import Call
from protocol.language.errors import segments
from protocol.language.paths import MISSING, copied, lookup, nest
from protocol.language.references import Path, Reference
from protocol.schemas import compiled
from protocol.schemas.excerpts import excerpt_at
from protocol.state.operations import Method
from protocol.submission.layout import Layout

from .samples import PLACEHOLDER, sample
from .variety import Variety


class Need(NamedTuple):
    """A place inside a result where others read or write: the schema of what they need there, if there is one, and a
    value such as they need.
    """

    path: Path
    schema: Any
    example: Any


Mould = list[Need]

Key = tuple[str, ...]

_ADDED_TO: Final = {Method.MERGE: "object", Method.ASSIGN: "object", Method.PUSH: "array"}
"""What has to be at a place for a method to add to it."""
_MOST_ASKED: Final = 32
"""Of the parameters that read something above a place so many are asked what they need of it."""


def moulds_of(plan: Layout, variety: Variety, favoured: Container[int] = ()) -> dict[int, list[Mould]]:
    """What is read of each call's result, for each place it writes to; of several readers it may suit only one: those
    that are favoured before others.
    """
    asked, bases = _Asked(plan), _bases(plan)
    found: dict[int, list[Mould]] = {}
    alike: dict[tuple[Reference, Set[int]], Mould] = {}
    for call in plan.calls:
        readers = frozenset(plan.readers.get(call.index, ()))
        for target in call.written:
            if (target, readers) not in alike:
                turn = sorted(variety.order(asked.in_order(readers)), key=lambda reader: reader not in favoured)
                whole = _resting_on(asked.of(target, turn), bases.get(target.key, {}))
                alike[target, readers] = [_need(path, schema, variety) for path, schema in whole.items()]
            found.setdefault(call.index, []).append(alike[target, readers])
    return found


def of_elements(mould: Mould, variety: Variety) -> Mould:
    """What the mould of a list asks of each of its elements."""
    whole = (excerpt_at((0,), compiled(need.schema)) for need in mould if not need.path and need.schema is not None)
    items = [_need((), schema, variety) for schema in whole if schema is not None]
    return items + [Need(path[1:], *rest) for path, *rest in mould if path and isinstance(path[0], int)]


def cast(value: Any, mould: Mould) -> Any:
    """The value with what is needed at each place of a mould; a value that may be changed in place."""
    for need in sorted(mould, key=lambda need: len(need.path)):
        if not _suits(value, need):
            value = recast(value, need)
    return value


def recast(value: Any, need: Need) -> Any:
    """The value with what is needed at one place, whatever was there; a value that may be changed in place."""
    if need.schema is None and lookup(value, need.path) is not MISSING:
        return value
    return _put(value, need.path, copied(need.example))


def _need(path: Path, schema: Any, variety: Variety) -> Need:
    return Need(path, schema, sample(schema, variety) if schema is not None else PLACEHOLDER)


def _bases(plan: Layout) -> dict[Key, dict[Path, str]]:
    """Place -> where at and below it others add to what is there, and the type that has to be there."""
    found: dict[Key, dict[Path, str]] = {}
    for call in plan.calls:
        for place in call.written:
            for length in range(len(place.key)):
                below, bases = place.path[length:], found.setdefault(place.key[: length + 1], {})
                if below:
                    bases.setdefault(below[:-1], "object")
                if call.method in _ADDED_TO:
                    bases[below] = _ADDED_TO[call.method]
    return found


class _Asked:
    """What the calls of a plan ask of the places that they read."""

    def __init__(self, plan: Layout) -> None:
        self._plan = plan
        self._at: dict[Key, dict[int, list[str]]] = {}
        self._at_or_below: dict[Key, dict[int, list[tuple[Reference, Any]]]] = {}
        self._ordered: dict[Set[int], list[int]] = {}
        for call in plan.calls:
            for at, expression in call.reads:
                wanted = _parameter_schema(plan, call, at)
                for place in dict.fromkeys(expression.references):
                    self._at.setdefault(place.key, {}).setdefault(call.index, []).append(at)
                    self._note(call.index, place, wanted)
            for scope in call.slices:
                self._note(call.index, scope, None)

    def in_order(self, readers: Set[int]) -> list[int]:
        """Some readers, in the order listed."""
        if readers not in self._ordered:
            self._ordered[readers] = sorted(readers)
        return self._ordered[readers]

    def of(self, target: Reference, readers: Sequence[int]) -> dict[Path, Any]:
        """What these readers ask of a place and of those below it, each path once, with the first schema asked for
        there; where none of them reads there, what the first asks of it who reads one above it and says something.
        """
        found: dict[Path, Any] = {}
        below = self._at_or_below.get(target.key, {})
        for reader in (reader for reader in readers if reader in below):
            for place, wanted in below[reader]:
                path = place.path[len(target.path) :]
                if found.get(path) is None:
                    found[path] = wanted
        if found:
            return found
        asked = islice(self._from_above(target, readers), _MOST_ASKED)
        return next(({(): wanted} for wanted in asked if wanted is not None), {})

    def _note(self, reader: int, place: Reference, wanted: Any) -> None:
        for length in range(1, len(place.key) + 1):
            self._at_or_below.setdefault(place.key[:length], {}).setdefault(reader, []).append((place, wanted))

    def _from_above(self, target: Reference, readers: Sequence[int]) -> Iterator[Any]:
        """What each parameter that reads a place above this one asks of it."""
        above = [(length - 1, self._at.get(target.key[:length], {})) for length in range(1, len(target.key))]
        for reader in readers:
            for length, places in above:
                for at in places.get(reader, ()):
                    yield _parameter_schema(self._plan, self._plan.calls[reader], at, target.path[length:])


def _resting_on(mould: dict[Path, Any], bases: Mapping[Path, str]) -> dict[Path, Any]:
    return mould | {path: {"type": type_, **(mould.get(path) or {})} for path, type_ in bases.items()}


def _parameter_schema(plan: Layout, call: Call, at: str, below: Path = ()) -> Any:
    """What the call's tool says of the place of an expression, or of one below it; None where it says nothing that
    stands by itself.
    """
    tool = plan.tools.get(call.tool)
    if tool is None:
        return None
    return excerpt_at((*(int(key) if key.isdecimal() else key for key in segments(at)), *below), tool.compiled)


def _suits(value: Any, need: Need) -> bool:
    """Whether a value has what is needed at a place; a placeholder says nothing, and gives way to what does."""
    part = lookup(value, need.path)
    if need.schema is None:
        return part is not MISSING
    return part is not MISSING and part != PLACEHOLDER and not compiled(need.schema).problems(part)


def _put(value: Any, path: Path, leaf: Any) -> Any:
    """The value with a leaf at a path; what is in the way makes room."""
    if not path:
        return leaf
    segment, rest = path[0], path[1:]
    if isinstance(value, dict):
        value[str(segment)] = _put(value.get(str(segment), MISSING), rest, leaf)
    elif isinstance(value, list) and isinstance(segment, int) and segment <= len(value):
        value[segment : segment + 1] = [_put(value[segment] if segment < len(value) else MISSING, rest, leaf)]
    else:
        return nest(leaf, path)
    return value
