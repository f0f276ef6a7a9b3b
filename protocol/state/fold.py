"""Resolution: the value of a path is folded from the log (SPEC R3).

Every data message is one operation (see `operations`). A `Fold` applies them in log order, once each, and keeps the
values it has got so far (see `kinds`), so reading a path costs the length of the path and not of the log.

A reader in an instance sees the instance's operations on top of the global ones, whatever the order of arrival
(SPEC R3.6): the fold of an instance has the global fold as its `base`. Its own errors hide the global ones whole.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from .. import limits
from ..errors import Conflict, Unresolved, shortened, some_of
from ..messages import CHOSEN, ERROR, TEXT_TYPES, TRUST, Message, is_chat, is_promise, is_written
from ..paths import MISSING, copied, lookup, nest, type_name
from ..references import Expression, Reference
from ..templates import as_text
from .kinds import Kind
from .labels import TRUSTED, UNMARKED, Labels, MarkedPlaces, Marks, UntrustedPart
from .operations import Method, Operation, read_operation, verify


class Fold:
    """The values of one reader's kinds: those of an instance on top of its `base`, or the global ones (SPEC R3.6)."""

    def __init__(self, base: Fold | None = None) -> None:
        self._base = base
        self._kinds: dict[str, Kind] = {}
        self._schemas: dict[str, Any] = {}
        self._descriptions: dict[str, str] = {}
        self._texts: list[Message] = []
        self._marked: MarkedPlaces | None = None

    def copy(self, base: Fold | None = None) -> Fold:
        """A fold of the same values: what is appended to one of them is not in the other. It costs a step for each kind
        and not for each message. `base` is a copy of its base, where it is not to share that.
        """
        copy = Fold(base if base is not None else self._base)
        copy._kinds = {name: kind.copy(copy._below(name)) for name, kind in self._kinds.items()}
        copy._schemas, copy._descriptions = dict(self._schemas), dict(self._descriptions)
        copy._texts = [*self._texts]
        copy._marked = self._marked.copy() if self._marked is not None else None
        return copy

    def append(self, message: Message, source: str, writer: int | None = None) -> None:
        """Take in the next message of the log; one that carries no data changes no value. `writer` is the call of the
        lane that wrote it.
        """
        operation = read_operation(message, source, writer)
        if operation is None:
            if message.get("type") in TEXT_TYPES or is_chat(message):
                self._texts.append(message)
            return
        if not is_promise(message):
            self.apply(operation)
        kind = operation.place.kind
        if "schema" in message and not is_written(message):
            self._schemas[kind] = message["schema"]  # what a call returns chooses no schema
        if isinstance(message.get("description"), str):
            self._descriptions[kind] = message["description"]
        if TRUST in message or CHOSEN in message:
            self._marked = self._marked or MarkedPlaces()
            self._marked.note(message, operation)

    def apply(self, operation: Operation) -> None:
        """Take in one operation."""
        name = operation.place.kind
        if name not in self._kinds:
            self._kinds[name] = Kind(self._below(name))
        self._kinds[name].operations.append(operation)

    def _below(self, name: str) -> Callable[[], Kind | None] | None:
        """What gives the kind below one of its own: of errors the own count alone (SPEC R3.1). It holds the base, and
        nothing that leads back to this fold: so a lane is freed when it is left, and not when Python searches for
        garbage.
        """
        return partial(self._base._kind, name) if self._base is not None and name != ERROR else None

    def withdraw(self, writers: Container[int | None]) -> None:
        """Fold from now on without what some calls have written: they run again (SPEC R11.8)."""
        for kind in self._kinds.values():
            kind.withdraw(writers)
        if ERROR in self._kinds and not self._kinds[ERROR].operations:
            del self._kinds[ERROR]  # the global ones count again

    def value(self, reference: Reference) -> Any:
        """The folded value, or `MISSING`. To be read, not changed. Raises `Conflict` (SPEC R3.4)."""
        kind = self._kinds.get(reference.kind) or self._kind(reference.kind)
        return kind.value(reference) if kind is not None else MISSING

    def root(self, kind: str) -> Any:
        """A kind's whole value without regard to conflicts, or `MISSING`. To be read, not changed."""
        found = self._kind(kind)
        return found.root() if found is not None else MISSING

    def marks(self, reference: Reference) -> Marks:
        """Sources of the value at a place (SPEC R16.2)."""
        own = self._marked.at(reference) if self._marked is not None else UNMARKED
        return own | self._base.marks(reference) if self._base is not None else own

    def beside_field(self, reference: Reference) -> Labels:
        """Sources of the other fields of a result, where a place is in a field of it that has none (SPEC R16.8)."""
        own = self._marked.beside_field(reference) if self._marked is not None else TRUSTED
        return own | self._base.beside_field(reference) if self._base is not None else own

    def lacks(self, reference: Reference, *, is_last: bool) -> bool:
        """Whether there is no value at a place, one of the last alternative or of another."""
        return not self.exists(reference)

    def absence(self, reference: Reference) -> Labels:
        """Sources that a missing value might have come from: a promise has named them."""
        return self.marks(reference).labels

    @property
    def is_marked(self) -> bool:
        """Whether anything that the reader sees may have a source."""
        return self._marked is not None or (self._base is not None and self._base.is_marked)

    @property
    def all_marks(self) -> Marks:
        """Sources of everything that the reader sees."""
        own = self._marked.all if self._marked is not None else UNMARKED
        return own | self._base.all_marks if self._base is not None else own

    def untrusted(self, place: Reference) -> Labels:
        """Sources that chose the names below a place, if others did (SPEC R16.3)."""
        own = self._marked.untrusted(place) if self._marked is not None else TRUSTED
        return own | self._base.untrusted(place) if self._base is not None else own

    def untrusted_below(self, kind: str) -> dict[tuple[str, ...], UntrustedPart]:
        """Places of a kind where untrusted data begins, by path, each with its sources."""
        found = dict(self._base.untrusted_below(kind)) if self._base is not None else {}
        for path, part in self._marked.untrusted_below(kind) if self._marked is not None else ():
            found[path] = found[path] | part if path in found else part
        return found

    def exists(self, reference: Reference) -> bool:
        """Whether the reference exists (SPEC R2.3). A path in conflict does: reading it tells what is wrong."""
        try:
            return self.value(reference) is not MISSING
        except Conflict:
            return True

    def has_own(self, reference: Reference) -> bool:
        """Whether an operation of its own, and not of its base, makes a difference at the place, above or below it."""
        kind = self._kinds.get(reference.kind)
        return kind is not None and kind.has_own(reference)

    def read(self, expression: Expression) -> Any:
        """Read an expression (SPEC R2.3), as a copy. Raises `Unresolved` or `Conflict`."""
        return copied(self.peek(expression))

    def text(self, expression: Expression) -> str:
        """Read an expression, as a text (SPEC R2.6). Raises `Unresolved` or `Conflict`."""
        return as_text(self.peek(expression))

    def peek(self, expression: Expression) -> Any:
        """Read an expression (SPEC R2.3) without copying: do not change the value. Raises `Unresolved` or `Conflict`.

        A place in conflict is there: it is an error (SPEC R3.4), and no reason to take the next alternative.
        """
        for group in expression.alternatives:
            if len(group) == 1:
                if (value := self.value(group[0])) is not MISSING:
                    return value
            elif all(map(self.exists, group)):
                return [self.value(reference) for reference in group][-1]
        there = self.beside(expression)
        raise Unresolved(f"{expression} is not there" + (f"; {there}" if there else ""))

    def beside(self, expression: Expression) -> str:
        """Words for the value above a missing place: its fields, or its type. Empty if there is none, or if others
        wrote it, since names of fields may be sentences.
        """
        for place in expression.references:
            for length in reversed(range(1, len(place.path)) if not self.exists(place) else ()):
                above = Reference(place.kind, place.path[:length])
                if self.untrusted(above):
                    break
                with suppress(Conflict):
                    if (value := self.value(above)) is not MISSING:
                        return f"{above} {_described(value)}{_of_elements(value, place, length)}"
        return ""

    def carried(self, kind: str) -> Iterator[dict[str, Any]]:
        """Messages of a kind's value, without their instance: of an instance what it has of its own. What is trusted is
        written at once, and each place with sources by itself, named with them.
        """
        root, value = Reference(kind), self.root(kind)
        if value is MISSING or not self.has_own(root):
            return
        given = self._base.root(kind) if self._base is not None else {}
        if not isinstance(value, dict):
            yield _carrying(root, value, self.marks(root).labels)
            return
        is_replaced = given is not MISSING and not (isinstance(given, dict) and given.keys() <= value.keys())
        if is_replaced:
            yield _carrying(root, {}, TRUSTED)
        places = ((Reference(kind, (key,)), each) for key, each in value.items())
        own = (one for one in places if is_replaced or self._differs(*one))
        parts = [part for at, each in own for part in _parts(at, each, self)]
        trusted = {str(at.path[0]): each for at, each, labels in parts if not labels and len(at.path) == 1}
        if trusted or not parts:
            yield {"type": kind, "data": trusted, "_outputMethod": Method.ASSIGN.value}
        yield from (_carrying(*part) for part in parts if part[2] or len(part[0].path) > 1)

    def _differs(self, place: Reference, value: Any) -> bool:
        """Whether a value, or its sources, may be others than the base's."""
        if self._base is None:
            return True
        given = lookup(self._base.root(place.kind), place.path)
        return self.has_own(place) and not (given is value and self._base.marks(place) == self.marks(place))

    def kinds(self) -> tuple[str, ...]:
        """The kinds that have a value, in the order they came: the base's first."""
        return tuple(name for name, kind in self._all() if kind.root() is not MISSING)

    def conflicts(self) -> tuple[Conflict, ...]:
        """The operations that could not be applied and were not replaced since (SPEC R3.4)."""
        return tuple(conflict for _, conflict in self.conflict_places())

    def conflict_places(self) -> tuple[tuple[tuple[str, ...], Conflict], ...]:
        """The conflicts (see `conflicts`), each with its place as kind and path."""
        return tuple(pair for _, kind in self._all() for pair in kind.conflicts().items())

    def conflicted(self, kind: str) -> tuple[tuple[str, ...], ...]:
        """The places in a kind, as kind and path, of the operations that could not be applied; see `conflicts`."""
        found = self._kind(kind)
        return tuple(found.conflicts()) if found is not None else ()

    def snapshot(self) -> dict[str, Any]:
        """Every kind's value, as a copy; at a place in conflict, what was there before it."""
        return {name: copied(kind.root()) for name, kind in self._all() if kind.root() is not MISSING}

    def schema(self, kind: str) -> Any:
        """The schema that the newest message of the kind which has one carries, or `MISSING` (SPEC R4.6)."""
        if kind in self._schemas or self._base is None:
            return self._schemas.get(kind, MISSING)
        return self._base.schema(kind)

    def description(self, kind: str) -> str | None:
        """The description that the newest message of the kind which has one carries."""
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

    def texts(self) -> list[Message]:
        """The texts, system and chat messages that the reader sees, in the order of the log: the base's first
        (SPEC R8.3).
        """
        return [*(self._base.texts() if self._base is not None else ()), *self._texts]

    def _all(self) -> Iterator[tuple[str, Kind]]:
        base = dict(self._base._all()) if self._base is not None else {}
        yield from (base | self._kinds).items()

    def _kind(self, name: str) -> Kind | None:
        """The kind as the reader sees it: the base's own, unless something is on top of it."""
        if name in self._kinds or self._base is None:
            return self._kinds.get(name)
        return self._base._kind(name)


def _described(value: Any) -> str:
    """Words for a value, in an error about a part of it that is missing."""
    if isinstance(value, dict):
        names = some_of(value, limits.FOLD_MOST_NAMED, lambda name: repr(shortened(name, limits.FOLD_MOST_SHOWN)))
        return f"has {names}" if names else "is an object without fields"
    return f"is a list of {len(value)}" if isinstance(value, list) else f"is a {type_name(value)}"


def _of_elements(value: Any, place: Reference, length: int) -> str:
    """Words for a list, in an error about a path that goes on as if each element were read."""
    if not isinstance(value, list) or isinstance(place.path[length], int):
        return ""
    rest = place.path[length + (place.path[length] == "*") :]
    first = Reference(place.kind, (*place.path[:length], 0, *rest))
    whole = Reference(place.kind, place.path[:length])
    return f": {first} is of its first element, {whole} is the whole list, and no reference reads a part of each"


# Carrying over: messages that give the readers of another log what those of this one see (SPEC R3.6, R16.2).


def _parts(place: Reference, value: Any, fold: Fold) -> Iterator[tuple[Reference, Any, Labels]]:
    """The parts of a value whose sources differ, those above first; names that others chose are not taken apart."""
    labels = fold.marks(place).labels
    if labels and isinstance(value, dict) and not fold.untrusted(place):
        below = [(Reference(place.kind, (*place.path, key)), each) for key, each in value.items()]
        parts = [part for at, each in below for part in _parts(at, each, fold)]
        if any(part[2] != labels for part in parts):
            yield place, {}, TRUSTED
            yield from parts
            return
    yield place, value, labels


def _carrying(place: Reference, value: Any, labels: Labels) -> dict[str, Any]:
    """The message that sets a place; that it names any source keeps effects from starting, so few are enough."""
    trust = {TRUST: sorted(labels)[: limits.MOST_LABELS]} if labels else {}
    how = {"_outputMethod": Method.SET.value, "_path": str(place)}
    return {"type": place.kind, "data": nest(copied(value), place.path), **how, **trust}
