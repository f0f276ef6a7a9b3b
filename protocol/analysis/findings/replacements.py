"""Replacements: which places a call writes, and whether it replaces what is there (SPEC R3.2).

`set` does. An object that is joined writes at its keys: `assign` replaces each, `merge` those of them whose value is no
object itself. Where a tool promises an object with certain keys, it may hold others, of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from functools import reduce
from typing import Any, Final

from protocol.calls.call import Call
from protocol.language.paths import MISSING
from protocol.language.references import Path, Reference
from protocol.state.operations import Method

from .cases import Shape
from .effects import source_of
from .memory import Memory

_MOST_PLACES: Final = 100


class Write(Enum):
    """What a call does to a place."""

    SET = auto()
    KEY = auto()
    """Replaces what is there, by an object that is joined."""
    ADD = auto()
    """Goes on with what is there, by `push` or `concat`."""
    NEST = auto()
    """Joins an object that stands inside another one: what is there, but for an object, it replaces."""
    JOIN = auto()
    """Joins an object with keys that are not known."""


AGAINST: Final[Mapping[Write, tuple[Write, ...]]] = {
    Write.SET: tuple(Write),
    Write.KEY: tuple(Write),
    Write.ADD: (Write.SET, Write.KEY, Write.NEST),
    Write.NEST: (Write.SET, Write.KEY, Write.ADD),
    Write.JOIN: (Write.SET, Write.KEY),
}
"""For each write those whose order with it may matter, at one place or one above the other."""
_Found = tuple[Write, Any]
"""What is done to a place, and the value that is there then, or `MISSING` where that is not known."""
_UNKNOWN: Final[_Found] = (Write.JOIN, MISSING)


class Replacements:
    """What calls write, as far as their results are known."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def of(self, call: Call) -> dict[Reference, Write]:
        """What a call does to which place."""
        return {
            Reference(place.kind, (*place.path, *path)): write
            for place in call.written
            for path, (write, _) in self._writes(call).items()
        }

    def agree(self, place: Reference, one: Call, other: Call) -> bool:
        """Whether two calls are sure to leave one and the same value at a place, or one of them never writes there."""
        values = self._value(place, one), self._value(place, other)
        are_same = MISSING not in values and values[0] == values[1] and type(values[0]) is type(values[1])
        return are_same or self.never_has(one, place) or self.never_has(other, place)

    def _value(self, place: Reference, call: Call) -> Any:
        return next((self._writes(call).get(path, _UNKNOWN)[1] for path in _below(call, place)), MISSING)

    def never_has(self, call: Call, place: Reference) -> bool:
        """Whether a call joins objects that are sure not to have the key that leads to a place."""
        if call.method is not Method.MERGE or call.given is not MISSING:
            return False  # what is assigned replaces what is below its keys
        result = self._memory.result(call)
        return any(path and reduce(Shape.below, path, result).is_impossible for path in _below(call, place))

    def _writes(self, call: Call) -> Mapping[Path, _Found]:
        """What a call does below the place where its result goes."""
        key = source_of(call), call.method, call.output is not None and len(call.output.alternatives) == 1
        return self._memory.once(("writes", *key), lambda: dict(self._found(call)))

    def _found(self, call: Call) -> Iterator[tuple[Path, _Found]]:
        if call.method not in (Method.MERGE, Method.ASSIGN):
            yield (), (Write.SET if call.method is Method.SET else Write.ADD, MISSING)
        elif call.given is not MISSING:
            yield from _joined(call.method, call.given)
        else:
            yield (), _UNKNOWN
            if call.output is not None and len(call.output.alternatives) == 1:
                yield from _promised(call.method, self._memory.result(call))


def _below(call: Call, place: Reference) -> Iterator[Path]:
    """The path to a place from one that a call writes, if that is the place or above it."""
    for written in call.written:
        if place.key[: len(written.key)] == written.key:
            yield place.path[len(written.path) :]


def _joined(method: Method, value: Any) -> Iterator[tuple[Path, _Found]]:
    """What joining a value does."""
    stack: list[tuple[Path, Any]] = [((), value)]
    left = _MOST_PLACES
    while stack and (left := left - 1) >= 0:
        path, inner = stack.pop()
        if isinstance(inner, dict) and (method is Method.MERGE or not path):
            stack.extend(((*path, key), item) for key, item in inner.items())
            if path or not inner:
                yield path, (Write.NEST if path else Write.JOIN, MISSING)
        else:
            yield path, (Write.KEY, inner)


def _promised(method: Method, result: Shape) -> Iterator[tuple[Path, _Found]]:
    """What joining a result is sure to replace, of which the schema is known."""
    stack, left = [result], _MOST_PLACES
    while stack and (left := left - 1) >= 0:
        shape = stack.pop()
        values, is_joined = shape.values, method is Method.MERGE or not shape.path
        value = values[0] if values is not None and len(values) == 1 else MISSING
        if is_joined and value is not MISSING:
            yield from (((*shape.path, *path), found) for path, found in _joined(method, value))
        elif is_joined and shape.types == {"object"}:
            stack.extend(shape.below(key) for key in sorted(shape.required))
        elif not is_joined or "object" not in shape.types:
            yield shape.path, (Write.KEY, value)
