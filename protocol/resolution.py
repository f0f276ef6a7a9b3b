"""Resolution: the value of a path is folded from the log (SPEC R3).

Every data message is one operation (see `operations`). A `Fold` applies them in log order, once each, and keeps the
values it has got so far, so reading a path costs the length of the path and not of the log.

A reader in an instance sees the instance's operations on top of the global ones, whatever the order of arrival
(SPEC R3.6): the fold of an instance has the global fold as its `base`, and is applied anew when that has changed.

Values are shared with the messages they came from until an operation changes them: a container is copied when it is
first written to (`_own`), so folding is linear in the number of operations and no message is ever modified.
"""

from __future__ import annotations

from typing import Any

from .errors import Conflict, Unresolved
from .messages import Message
from .operations import Method, Operation, read_operation, replaces, verify
from .paths import MISSING, copied, lookup
from .references import Expression, Reference


class Fold:
    """The values of one reader's kinds: those of an instance on top of its `base`, or the global ones (SPEC R3.6)."""

    def __init__(self, base: Fold | None = None) -> None:
        self._base = base
        self._operations: list[Operation] = []
        self._version = 0
        self._applied = 0
        self._base_version = -1
        self._roots: dict[str, Any] = {}
        self._conflicts: dict[tuple[str, ...], Conflict] = {}
        self._owned: dict[int, Any] = {}
        self._schemas: dict[str, Any] = {}
        self._descriptions: dict[str, str] = {}

    def append(self, message: Message, source: str) -> None:
        """Take in the next message of the log; one that carries no data changes nothing."""
        operation = read_operation(message, source)
        if operation is None:
            return
        self.apply(operation)
        if "_call" not in message:
            kind = operation.place.kind
            if "schema" in message:
                self._schemas[kind] = message["schema"]
            if isinstance(message.get("description"), str):
                self._descriptions[kind] = message["description"]

    def apply(self, operation: Operation) -> None:
        """Take in one operation."""
        self._operations.append(operation)
        self._version += 1

    def value(self, reference: Reference) -> Any:
        """The folded value, or `MISSING`. To be read, not changed. Raises `Conflict` (SPEC R3.4)."""
        self._refresh()
        if self._conflicts:
            self._raise_conflict(reference)
        return lookup(self._roots.get(reference.kind, MISSING), reference.path)

    def exists(self, reference: Reference) -> bool:
        """Whether the reference exists (SPEC R2.3). A path in conflict does: reading it tells what is wrong."""
        try:
            return self.value(reference) is not MISSING
        except Conflict:
            return True

    def read(self, expression: Expression) -> Any:
        """What an expression reads (SPEC R2.3), as a copy. Raises `Unresolved` or `Conflict`."""
        for group in expression.alternatives:
            values = [self.value(reference) for reference in group]
            if MISSING not in values:
                return copied(values[-1])
        raise Unresolved(f"{expression} is not there")

    def kinds(self) -> tuple[str, ...]:
        """The kinds that have a value, in the order they came."""
        self._refresh()
        return tuple(self._roots)

    def conflicts(self) -> tuple[Conflict, ...]:
        """The operations that could not be applied and were not replaced since (SPEC R3.4)."""
        self._refresh()
        return tuple(self._conflicts.values())

    def snapshot(self) -> dict[str, Any]:
        """Every kind's value, as a copy; at a place in conflict, what was there before it."""
        self._refresh()
        return {kind: copied(value) for kind, value in self._roots.items()}

    def schema(self, kind: str) -> Any:
        """The schema declared for a kind by the last message that has one, or `MISSING` (SPEC R4.6)."""
        if kind in self._schemas or self._base is None:
            return self._schemas.get(kind, MISSING)
        return self._base.schema(kind)

    def description(self, kind: str) -> str | None:
        """The description declared for a kind by the last message that has one."""
        if kind in self._descriptions or self._base is None:
            return self._descriptions.get(kind)
        return self._base.description(kind)

    def verify(self, operation: Operation) -> None:
        """Raise the `Conflict` that applying the operation now would give; change nothing (SPEC R3.4)."""
        self._refresh()
        self._verify(operation)

    def _refresh(self) -> None:
        """Apply what has arrived since the last look."""
        base = self._base
        if base is not None and base.version != self._base_version:
            base._refresh()
            self._base_version = base.version
            self._roots = dict(base._roots)
            self._conflicts = dict(base._conflicts)
            self._owned = {}
            self._applied = 0
        while self._applied < len(self._operations):
            operation = self._operations[self._applied]
            self._applied += 1
            self._apply(operation)

    @property
    def version(self) -> int:
        """A number that grows with every operation seen, the base's included."""
        return self._version + (self._base.version if self._base is not None else 0)

    def _apply(self, operation: Operation) -> None:
        try:
            self._verify(operation)
        except Conflict as conflict:
            self._conflicts[operation.place.key] = conflict
            return
        if self._conflicts:
            self._settle_conflicts(operation)
        kind = operation.place.kind
        self._roots[kind] = self._written(self._roots.get(kind, MISSING), operation, 0)

    def _written(self, container: Any, operation: Operation, depth: int) -> Any:
        """The container with the operation applied below it."""
        path = operation.place.path
        if depth == len(path):
            return self._combined(container, operation.method, operation.value)
        segment = path[depth]
        if container is MISSING:
            container = self._keep([] if isinstance(segment, int) else {})
        container = self._own(container)
        if isinstance(container, dict):
            key = str(segment)
            container[key] = self._written(container.get(key, MISSING), operation, depth + 1)
        else:
            assert isinstance(segment, int)
            below = container[segment] if segment < len(container) else MISSING
            container[segment : segment + 1] = [self._written(below, operation, depth + 1)]
        return container

    def _combined(self, base: Any, method: Method, value: Any) -> Any:
        """What a method makes of what is there and a value (SPEC R3.2); `verify` has accepted the types."""
        match method:
            case Method.SET:
                return value
            case Method.PUSH:
                items = self._own([] if base is MISSING else base)
                items.append(value)
                return items
            case Method.CONCAT if base is MISSING:
                return value
            case Method.CONCAT if isinstance(base, str):
                return base + value
            case Method.CONCAT:
                items = self._own(base)
                items.extend(value)
                return items
            case Method.ASSIGN:
                target = self._own({} if base is MISSING else base)
                target.update(value)
                return target
            case Method.MERGE:
                return self._merged(base, value)

    def _merged(self, base: Any, value: Any) -> Any:
        """Objects deeply; lists and scalars replace."""
        if not isinstance(value, dict) or not isinstance(base, dict):
            return value
        target = self._own(base)
        for key, item in value.items():
            target[key] = self._merged(target.get(key, MISSING), item)
        return target

    def _own(self, container: Any) -> Any:
        """The container itself where this fold made it, else a copy of its own that may be changed in place."""
        return container if id(container) in self._owned else self._keep(container.copy())

    def _keep(self, container: Any) -> Any:
        """Remember a container as this fold's own; holding it keeps its identity from being used again."""
        self._owned[id(container)] = container
        return container

    def _raise_conflict(self, reference: Reference) -> None:
        key = reference.key
        for place, conflict in self._conflicts.items():
            shorter = min(len(place), len(key))
            if place[:shorter] == key[:shorter]:
                raise conflict

    def _settle_conflicts(self, operation: Operation) -> None:
        """Forget the conflicts at places that the operation replaces."""
        key = operation.place.key
        for place in list(self._conflicts):
            if place[: len(key)] == key and replaces(operation.method, operation.value, place[len(key) :]):
                del self._conflicts[place]

    def _verify(self, operation: Operation) -> None:
        """An operation at or below a conflict is one too, unless it replaces what is there."""
        key = operation.place.key
        for place, conflict in self._conflicts.items():
            if place == key[: len(place)] and (place != key or operation.method is not Method.SET):
                raise conflict
        verify(operation, self._roots.get(operation.place.kind, MISSING))
