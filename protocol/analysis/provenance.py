"""Origins: which messages of the log a value came from, and what of each is still there (SPEC R3, R11.2).

Beside the values a tree is folded that says of every part who made it. A message *contributes* as long as some part of
the value is its own; else it was *overwritten*, or it *removes* the value, being the last to say that there is none; or
it is a *conflict* and never counted (R3.4).

What a call had read is told as of the moment before its result was appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from protocol.calls.call import places_read_by
from protocol.language.errors import Conflict
from protocol.language.messages import Message, is_written
from protocol.language.paths import MISSING, copied
from protocol.language.references import Expression, Path, Reference
from protocol.state.fold import Fold
from protocol.state.operations import Method, Operation, read_operation, touched

Writer = tuple[str | None, int | None]
"""A call: its instance and its index."""


class Effect(StrEnum):
    """What became of what a message did to a place."""

    CONTRIBUTES = "contributes"
    OVERWRITTEN = "overwritten"
    REMOVES = "removes"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Logged:
    """A message of the log; `call` is the index of the call that wrote it."""

    id: str
    message: Message
    call: int | None = None

    @property
    def instance(self) -> str | None:
        """The instance whose message it is."""
        return self.message.get("_instance")

    @property
    def writer(self) -> Writer:
        """Which call wrote it."""
        return self.instance, self.call


@dataclass(frozen=True, slots=True)
class Read:
    """What a parameter of a call had read: the reference, and its value then (`MISSING` where there was none)."""

    reference: str
    value: Any


@dataclass(frozen=True, slots=True)
class Origin:
    """One message that did something to the place."""

    logged: Logged
    operation: Operation
    effect: Effect
    reads: tuple[Read, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """A value and where it came from, in the order in which the messages are folded: the global ones first (R3.6)."""

    reference: Reference
    value: Any
    """`MISSING` where there is none, or where a conflict stands."""
    conflict: str | None
    origins: tuple[Origin, ...]


def explain(reference: Reference, log: Sequence[Logged], *, instance: str | None = None) -> Explanation:
    """Where the value at a place came from, as a reader in the instance sees it; `log` is in log order."""
    visible = [logged for logged in log if logged.instance in (None, instance)]
    folded = sorted(visible, key=lambda logged: logged.instance is not None)
    history = _History(reference)
    for logged in folded:
        history.append(logged)
    value, conflict = history.value()
    reads = _reads(visible, history.writers, instance)
    origins = tuple(
        Origin(logged, operation, effect, reads.get(logged.writer, ())) for logged, operation, effect in history.steps()
    )
    return Explanation(reference, value, conflict, origins)


class _History:
    """The operations that made a difference to one place, and the tree of who made what."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._fold = Fold()
        self._root: _Node | None = None
        self._steps: list[tuple[int, Logged, Operation]] = []
        self._conflicts: set[int] = set()
        self._seen = 0

    def append(self, logged: Logged) -> None:
        """The next message."""
        operation = read_operation(logged.message, f"message {logged.id}")
        if operation is None or operation.place.kind != self._reference.kind:
            return
        number = self._seen = self._seen + 1
        try:
            self._fold.verify(operation)
        except Conflict:
            if self._is_near(operation):
                self._conflicts.add(number)
                self._steps.append((number, logged, operation))
        else:
            before = self._node()
            self._root = _applied(self._root, operation, number, operation.place.path)
            if self._is_at_or_below(operation) or self._node() is not before:
                self._steps.append((number, logged, operation))
        self._fold.apply(operation)

    def value(self) -> tuple[Any, str | None]:
        """The value, or the conflict that stands in its way."""
        try:
            return copied(self._fold.value(self._reference)), None
        except Conflict as conflict:
            return MISSING, str(conflict)

    def steps(self) -> Iterator[tuple[Logged, Operation, Effect]]:
        """What made a difference, and what is left of it."""
        node = self._node()
        alive = node.makers_of_all() if node is not None else set()
        for number, logged, operation in self._steps:
            if number in alive:
                effect = Effect.CONTRIBUTES
            elif number in self._conflicts:
                effect = Effect.CONFLICT
            elif node is None and number == self._steps[-1][0]:
                effect = Effect.REMOVES
            else:
                effect = Effect.OVERWRITTEN
            yield logged, operation, effect

    @property
    def writers(self) -> set[Writer]:
        """The calls that made a difference."""
        return {logged.writer for _, logged, _ in self._steps if logged.call is not None}

    def _node(self) -> _Node | None:
        node = self._root
        for segment in self._reference.path:
            node = node.part(segment) if node is not None else None
        return node

    def _is_at_or_below(self, operation: Operation) -> bool:
        key = self._reference.key
        return any(place[: len(key)] == key for place in touched(operation))

    def _is_near(self, operation: Operation) -> bool:
        key = self._reference.key
        return any(place[: len(key)] == key[: len(place)] for place in touched(operation))


@dataclass(slots=True, eq=False)
class _Node:
    """A value's makers, and those of its parts: an object's by key, a list's in order, a scalar's none."""

    makers: set[int]
    parts: dict[str, _Node] | list[_Node] | None = None

    def part(self, segment: str | int) -> _Node | None:
        """The part at one segment of a path."""
        if isinstance(self.parts, dict):
            return self.parts.get(str(segment))
        if isinstance(self.parts, list) and isinstance(segment, int) and segment < len(self.parts):
            return self.parts[segment]
        return None

    def makers_of_all(self) -> set[int]:
        """Who made some part of it. Of an object that has entries, only these count; a list's order is its maker's."""
        found: set[int] = set()
        left = [self]
        while left:
            node = left.pop()
            parts = list(node.parts.values()) if isinstance(node.parts, dict) else node.parts or []
            if not isinstance(node.parts, dict) or not parts:
                found |= node.makers
            left += parts
        return found


def _made(value: Any, maker: int) -> _Node:
    if isinstance(value, dict):
        return _Node({maker}, {key: _made(item, maker) for key, item in value.items()})
    if isinstance(value, list):
        return _Node({maker}, [_made(item, maker) for item in value])
    return _Node({maker})


def _applied(node: _Node | None, operation: Operation, maker: int, path: Path) -> _Node:
    """The tree with an operation applied, as `kinds` applies it to the values."""
    if not path:
        return _combined(node, operation.method, operation.value, maker)
    segment, *rest = path
    if node is None:
        node = _Node({maker}, [] if isinstance(segment, int) else {})
    changed = _applied(node.part(segment), operation, maker, tuple(rest))
    if isinstance(node.parts, dict):
        node.parts[str(segment)] = changed
    elif isinstance(node.parts, list):
        assert isinstance(segment, int)
        node.parts[segment : segment + 1] = [changed]
    return node


def _combined(base: _Node | None, method: Method, value: Any, maker: int) -> _Node:
    """What a method makes of what is there (SPEC R3.2)."""
    if base is None:
        return _made([value] if method is Method.PUSH else value, maker)
    match method, base.parts:
        case Method.PUSH, list(items):
            items.append(_made(value, maker))
        case Method.CONCAT, list(items):
            items.extend(_made(item, maker) for item in value)
        case Method.CONCAT, _:
            base.makers.add(maker)
        case Method.ASSIGN, dict(parts):
            parts.update({key: _made(item, maker) for key, item in value.items()})
        case Method.MERGE, dict(parts) if isinstance(value, dict):
            for key, item in value.items():
                parts[key] = _combined(parts.get(key), Method.MERGE, item, maker)
        case _:
            return _made(value, maker)
    return base


def _reads(log: Iterable[Logged], writers: set[Writer], instance: str | None) -> dict[Writer, tuple[Read, ...]]:
    """What these calls had read: the values of the moment before the first message of each."""
    shared = Fold()
    folds: Mapping[str | None, Fold] = {None: shared} | ({instance: Fold(shared)} if instance is not None else {})
    found: dict[Writer, tuple[Read, ...]] = {}
    for logged in log:
        fold = folds[logged.instance]
        if logged.writer in writers and logged.writer not in found and is_written(logged.message):
            found[logged.writer] = tuple(_values(logged.message["_call"], fold))
        fold.append(logged.message, f"message {logged.id}")
    return found


def _values(call: Mapping[str, Any], fold: Fold) -> Iterator[Read]:
    places = (place for expression in places_read_by(call) for place in _taken(expression, fold))
    for place in dict.fromkeys(places):
        try:
            yield Read(str(place), copied(fold.value(place)))
        except Conflict:
            yield Read(str(place), MISSING)


def _taken(expression: Expression, fold: Fold) -> Sequence[Reference]:
    """The references of the first alternative that exists (SPEC R2.3)."""
    there = (group for group in expression.alternatives if all(map(fold.exists, group)))
    return next(there, expression.references)
