"""Resolution: the value of a path is folded from the log (SPEC R3).

Every data message is one operation (see `operations`). A `Fold` applies them in log order, once each, and keeps the
values it has got so far, so reading a path costs the length of the path and not of the log.

A reader in an instance sees the instance's operations on top of the global ones, whatever the order of arrival
(SPEC R3.6): the fold of an instance has the global fold as its `base`. A kind that has operations of both is applied
anew when the global part has changed; kinds have nothing to do with each other.

Values are shared with the messages they came from until an operation changes them: a container is copied when it is
first written to (`_own`), so folding is linear in the number of operations and no message is ever modified.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from .conflicts import Conflicts
from .errors import Conflict, Unresolved
from .messages import Message, is_written
from .operations import Method, Operation, read_operation, replaced, verify
from .paths import MISSING, copied, lookup
from .references import Expression, Reference


class Fold:
    """The values of one reader's kinds: those of an instance on top of its `base`, or the global ones (SPEC R3.6)."""

    def __init__(self, base: Fold | None = None) -> None:
        self._base = base
        self._kinds: dict[str, _Kind] = {}
        self._schemas: dict[str, Any] = {}
        self._descriptions: dict[str, str] = {}

    def append(self, message: Message, source: str) -> None:
        """Take in the next message of the log; one that carries no data changes nothing."""
        operation = read_operation(message, source)
        if operation is None:
            return
        self.apply(operation)
        if not is_written(message):
            kind = operation.place.kind
            if "schema" in message:
                self._schemas[kind] = message["schema"]
            if isinstance(message.get("description"), str):
                self._descriptions[kind] = message["description"]

    def apply(self, operation: Operation) -> None:
        """Take in one operation."""
        name = operation.place.kind
        if name not in self._kinds:
            self._kinds[name] = _Kind(name, self._base)
        self._kinds[name].operations.append(operation)

    def value(self, reference: Reference) -> Any:
        """The folded value, or `MISSING`. To be read, not changed. Raises `Conflict` (SPEC R3.4)."""
        kind = self._kind(reference.kind)
        return kind.value(reference) if kind is not None else MISSING

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
            if not any(value is MISSING for value in values):
                return copied(values[-1])
        raise Unresolved(f"{expression} is not there")

    def kinds(self) -> tuple[str, ...]:
        """The kinds that have a value, in the order they came: the base's first."""
        return tuple(name for name, kind in self._all() if kind.root() is not MISSING)

    def conflicts(self) -> tuple[Conflict, ...]:
        """The operations that could not be applied and were not replaced since (SPEC R3.4)."""
        return tuple(conflict for _, kind in self._all() for conflict in kind.conflicts())

    def snapshot(self) -> dict[str, Any]:
        """Every kind's value, as a copy; at a place in conflict, what was there before it."""
        return {name: copied(kind.root()) for name, kind in self._all() if kind.root() is not MISSING}

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
        kind = self._kind(operation.place.kind)
        if kind is not None:
            kind.verify(operation)
        else:
            verify(operation, MISSING)

    def _all(self) -> Iterator[tuple[str, _Kind]]:
        base = dict(self._base._all()) if self._base is not None else {}
        yield from (base | self._kinds).items()

    def _kind(self, name: str) -> _Kind | None:
        """The kind as the reader sees it: the base's own where nothing is on top of it."""
        if name in self._kinds or self._base is None:
            return self._kinds.get(name)
        return self._base._kind(name)


_MOST_OWNED: Final = 65_536


class _Kind:
    """The value of one kind: its operations on top of those of the base's kind of that name."""

    def __init__(self, name: str, base: Fold | None) -> None:
        self.operations: list[Operation] = []
        self._name = name
        self._base = base
        self._base_version = 0
        self._applied = 0
        self._root: Any = MISSING
        self._conflicts = Conflicts()
        self._owned: dict[int, Any] = {}

    @property
    def version(self) -> int:
        """How many operations there are, the base's included."""
        base = self._below()
        return len(self.operations) + (base.version if base is not None else 0)

    def root(self) -> Any:
        """The whole value, without regard to conflicts."""
        self._refresh()
        return self._root

    def conflicts(self) -> tuple[Conflict, ...]:
        """The conflicts that stand."""
        self._refresh()
        return tuple(self._conflicts)

    def value(self, reference: Reference) -> Any:
        """The value at a place, or `MISSING`. Raises `Conflict`."""
        self._refresh()
        if self._conflicts and (conflict := self._conflicts.touching(reference.key)) is not None:
            raise conflict
        return lookup(self._root, reference.path)

    def verify(self, operation: Operation) -> None:
        """Raise the `Conflict` that applying the operation now would give."""
        self._refresh()
        self._verify(operation)

    def _below(self) -> _Kind | None:
        return self._base._kind(self._name) if self._base is not None else None

    def _refresh(self) -> None:
        """Apply what has arrived since the last look."""
        base = self._below()
        if base is not None and base.version != self._base_version:
            self._base_version = base.version
            self._root = base.root()
            self._conflicts = base._conflicts.copy()
            self._owned = {}
            self._applied = 0
        while self._applied < len(self.operations):
            operation = self.operations[self._applied]
            self._applied += 1
            self._apply(operation)

    def _apply(self, operation: Operation) -> None:
        try:
            self._verify(operation)
        except Conflict as conflict:
            self._conflicts.add(operation.place.key, conflict)
            return
        if self._conflicts:
            self._conflicts.settle(operation)
        self._root = self._written(self._root, operation, 0)

    def _verify(self, operation: Operation) -> None:
        """An operation at or below a conflict is one too, unless it replaces what is there."""
        key = operation.place.key
        covering = self._conflicts.covering(key) if self._conflicts else None
        if covering is not None:
            place, conflict = covering
            if place != key or key not in replaced(operation):
                raise conflict
        verify(operation, self._root)

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
        """Remember a container as this fold's own; holding it keeps its identity from being used again.

        To forget them all costs no more than copying again what is written to again.
        """
        if len(self._owned) >= _MOST_OWNED:
            self._owned.clear()
        self._owned[id(container)] = container
        return container
