"""Kinds: the value of one kind, as a log's operations make it (SPEC R3.2, R3.4, R3.6).

Values are shared with the messages they came from until an operation changes them: a container is copied when it is
first written to (`_own`), so folding is linear in the number of operations and no message is ever modified. What is
joined to a text is put aside until the value is read, and then joined at once.

An instance's operations come on top of the global ones, whatever the order of arrival. Of a large object that they
write into, only what they write is stored (`Overlay`). Where the global value changes at places that the instance has
nothing to do with, the instance takes them over; else its operations are applied anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from .. import limits
from ..errors import Conflict
from ..paths import MISSING, lookup
from ..references import Reference
from .operations import Method, Operation, applied, replaced, touched, verify

# Conflicts: places that have no value, because an operation there did not fit what it found (SPEC R3.4).
#
# Reading such a place, one above it or one below it raises the conflict; everything else stays readable. An operation
# that replaces what is there, whatever it was, settles it.

ConflictKey = tuple[str, ...]


class Conflicts:
    """The conflicts of a fold by place; looking one up costs the length of the path, however many there are."""

    def __init__(self) -> None:
        self._at: dict[ConflictKey, Conflict] = {}
        self._at_or_below: dict[ConflictKey, dict[ConflictKey, Conflict]] = defaultdict(dict)

    def __bool__(self) -> bool:
        return bool(self._at)

    def by_place(self) -> dict[ConflictKey, Conflict]:
        """The conflicts that are not settled, each under its place."""
        return dict(self._at)

    def copy(self) -> Conflicts:
        """A copy in which conflicts can be settled without a change to this one."""
        copy = Conflicts()
        for key, conflict in self._at.items():
            copy.add(key, conflict)
        return copy

    def add(self, key: ConflictKey, conflict: Conflict) -> None:
        """Note a conflict at a place; below one that is noted already it says nothing new."""
        if self.covering(key) is None:
            self._at[key] = conflict
            for length in range(1, len(key) + 1):
                self._at_or_below[key[:length]][key] = conflict

    def covering(self, key: ConflictKey) -> tuple[ConflictKey, Conflict] | None:
        """The conflict at a place or above it, and where it is."""
        for length in range(1, len(key) + 1):
            if key[:length] in self._at:
                return key[:length], self._at[key[:length]]
        return None

    def touching(self, key: ConflictKey) -> Conflict | None:
        """The conflict that keeps a place from being read: at it, above it or below it."""
        covering = self.covering(key)
        if covering is not None:
            return covering[1]
        return next(iter(self._at_or_below[key].values()), None) if key in self._at_or_below else None

    def settle(self, operation: Operation) -> None:
        """Forget the conflicts at places that an operation replaces."""
        for place in replaced(operation):
            for key in list(self._at_or_below.get(place, ())):
                self._remove(key)

    def _remove(self, key: ConflictKey) -> None:
        del self._at[key]
        for length in range(1, len(key) + 1):
            del self._at_or_below[key[:length]][key]


# Overlay: an own object on top of a shared one (SPEC R3.6).


class Overlay(dict[str, Any]):
    """An object on top of another, which is neither changed nor copied; keys are added and replaced, never removed."""

    def __init__(self, below: Mapping[str, Any]) -> None:
        super().__init__()
        self.below = below
        """The shared object below."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key) if super().__contains__(key) else self.below[key]

    def get(self, key: str, default: Any = None) -> Any:
        """See `dict`."""
        return super().__getitem__(key) if super().__contains__(key) else self.below.get(key, default)

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.below

    def __iter__(self) -> Iterator[str]:
        yield from self.below
        yield from (key for key in super().__iter__() if key not in self.below)

    def __len__(self) -> int:
        return len(self.below) + sum(1 for key in super().__iter__() if key not in self.below)

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # a dict's own views see only what it stores itself
        """See `dict`."""
        return KeysView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]  # as above
        """See `dict`."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # as above
        """See `dict`."""
        return ItemsView(self)

    def own(self) -> dict[str, Any]:
        """Entries that the overlay stores itself."""
        return dict(super().items())

    def beside(self) -> Overlay:
        """An overlay with the same entries on top of the same object."""
        overlay = Overlay(self.below)
        overlay.update(self.own())
        return overlay

    def copy(self) -> dict[str, Any]:
        """A plain object with all entries, which does not change with the one below."""
        return dict(self.items())

    def __eq__(self, other: object) -> bool:
        return self.copy() == (other.copy() if isinstance(other, Overlay) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None


Key = tuple[str, ...]


class Kind:
    """The value of one kind: its operations on top of those of the kind `below` gives, if any."""

    def __init__(self, below: Callable[[], Kind | None] | None) -> None:
        self.operations: list[Operation] = []
        self._is_lowest = below is None
        self._below = below or _nothing
        self._withdrawals = 0
        self._below_version = 0, 0
        self._own_places = _TouchedPlaces()
        self._noted = 0
        self._forget()

    def _forget(self) -> None:
        self._applied = 0
        self._root: Any = MISSING
        self._conflicts = Conflicts()
        self._owned: dict[int, Any] = {}
        self._texts: dict[Key, list[Operation]] = {}
        self._above_texts: set[Key] = set()

    def copy(self, below: Callable[[], Kind | None] | None) -> Kind:
        """A kind of the same value, on top of one that is now as that below this one. It shares all containers, so each
        of the two copies what it writes to from now on.
        """
        copy = Kind(below)
        copy._root = self.root()
        copy.operations, copy._applied = [*self.operations], self._applied
        copy._withdrawals, copy._below_version = self._withdrawals, self._below_version
        copy._conflicts = self._conflicts.copy()
        self._owned = {}
        return copy

    @property
    def version(self) -> tuple[int, int]:
        """How often something was withdrawn, and how many operations there are, those below included."""
        below = self._below()
        withdrawals, count = below.version if below is not None else (0, 0)
        return self._withdrawals + withdrawals, len(self.operations) + count

    def withdraw(self, writers: Container[int | None]) -> None:
        """Forget the operations of some calls: what is there is folded without them (SPEC R11.8)."""
        kept = [operation for operation in self.operations if operation.writer not in writers]
        if len(kept) < len(self.operations):
            self.operations = kept
            self._withdrawals += 1
            self._own_places, self._noted = _TouchedPlaces(), 0
            self._forget()
            self._below_version = -1, 0

    def root(self) -> Any:
        """The whole value, without regard to conflicts."""
        if not self._is_lowest or self._applied < len(self.operations):  # else there is no news
            self._refresh()
        if self._texts:
            self._join_texts()
        return self._root

    def conflicts(self) -> dict[Key, Conflict]:
        """The conflicts that no later operation has settled, each under its place."""
        self._refresh()
        return self._conflicts.by_place()

    def value(self, reference: Reference) -> Any:
        """The value at a place, or `MISSING`. Raises `Conflict`."""
        root = self.root()
        if self._conflicts and (conflict := self._conflicts.touching(reference.key)) is not None:
            raise conflict
        return lookup(root, reference.path)

    def verify(self, operation: Operation) -> None:
        """Raise the `Conflict` that applying the operation now would give."""
        self._refresh()
        self._verify(operation)

    def has_own(self, reference: Reference) -> bool:
        """Whether one of its own operations, and not of those below, makes a difference at, above or below a place."""
        self._note()
        return self._own_places.overlap(reference.key)

    def _refresh(self) -> None:
        """Apply what has arrived since the last look."""
        below = self._below()
        if below is not None and (version := below.version) != self._below_version:
            if not self._taken_over(below):
                self._forget()
                self._root = below.root()
                self._conflicts = below._conflicts.copy()
            self._below_version = version
        while self._applied < len(self.operations):
            operation = self.operations[self._applied]
            self._applied += 1
            self._apply(operation)

    def _note(self) -> None:
        for operation in self.operations[self._noted :]:
            self._own_places.add(operation)
        self._noted = len(self.operations)

    def _taken_over(self, below: Kind) -> bool:
        """Take over what is new below, unless it could make a difference to our own operations: says whether."""
        withdrawals, seen = self._below_version
        if not self._applied or below._below() is not None or below.version[0] != withdrawals:
            return False
        root = below.root()
        if self._conflicts or below._conflicts:
            return False
        self._note()
        new = below.operations[seen:]
        places = [place for operation in new for place in touched(operation)]
        if any(self._own_places.overlap(place) for place in places):
            return False
        return all(self._take_over(place, root) for place in places)

    def _take_over(self, place: Key, root: Any) -> bool:
        """Make a place the same as below; not if a list is above it, or was until one of our own operations
        replaced it: for then its index could mean another, or a key.
        """
        if any(place[:length] in self._own_places.indexed for length in range(1, len(place))):
            return False
        mine, theirs, depth = self._root, root, 1
        while place[: depth + 1] in self._own_places.above:
            segment = place[depth]
            if not isinstance(mine, dict) or not isinstance(theirs, dict):
                return False
            mine, theirs, depth = mine.get(segment, MISSING), theirs.get(segment, MISSING), depth + 1
        if not isinstance(mine, dict) or not isinstance(theirs, dict) or place[depth] not in theirs:
            return False
        reference, value = Reference(place[0], place[1 : depth + 1]), theirs[place[depth]]
        self._root = applied(self._root, Operation(reference, Method.SET, value, ""), self._own)
        return True

    def _apply(self, operation: Operation) -> None:
        try:
            self._verify(operation)
        except Conflict as conflict:
            self._conflicts.add(operation.place.key, conflict)
            return
        if self._conflicts:
            self._conflicts.settle(operation)
        if not self._put_aside(operation):
            self._root = applied(self._root, operation, self._own)

    def _verify(self, operation: Operation) -> None:
        """An operation at or below a conflict is one too, unless it replaces what is there."""
        key = operation.place.key
        covering = self._conflicts.covering(key) if self._conflicts else None
        if covering is not None:
            place, conflict = covering
            if place != key or key not in replaced(operation):
                raise conflict
        verify(operation, self._root)

    def _put_aside(self, operation: Operation) -> bool:
        """Whether this is a text to be joined to one that is there; anything else near those put aside joins them."""
        key = operation.place.key
        if operation.method is Method.CONCAT and isinstance(operation.value, str):
            if key not in self._texts and lookup(self._root, operation.place.path) is MISSING:
                return False
            self._texts.setdefault(key, []).append(operation)
            self._above_texts.update(key[:length] for length in range(1, len(key) + 1))
            return True
        if key in self._above_texts:  # below a text nothing fits
            self._join_texts()
        return False

    def _join_texts(self) -> None:
        if self._texts:
            texts, self._texts = self._texts, {}
            self._above_texts.clear()
            for operations in texts.values():
                text = "".join(operation.value for operation in operations)
                whole = Operation(operations[0].place, Method.CONCAT, text, operations[-1].source)
                self._root = applied(self._root, whole, self._own)

    def _own(self, container: Any) -> Any:
        """The container itself where this kind made it, else one of its own that may be changed in place."""
        if id(container) in self._owned:
            return container
        if isinstance(container, Overlay):
            return self._keep(container.beside())
        if isinstance(container, dict) and len(container) > limits.MOST_COPIED and self._below() is not None:
            return self._keep(Overlay(container))
        return self._keep(container.copy())

    def _keep(self, container: Any) -> Any:
        """Remember a container as our own; holding it keeps its identity from being used again.

        To forget them all costs no more than copying again what is written to again.
        """
        if len(self._owned) >= limits.MOST_OWNED:
            self._owned.clear()
        self._owned[id(container)] = container
        return container


def _nothing() -> None:
    """Below a global kind there is nothing."""


class _TouchedPlaces:
    """The places that some operations make a difference to."""

    def __init__(self) -> None:
        self.above: set[Key] = set()
        """The places, and all above them."""
        self.indexed: set[Key] = set()
        """Places that an index leads to: as an element of a list, or as a key of an object."""
        self._at: set[Key] = set()

    def add(self, operation: Operation) -> None:
        key = operation.place.key
        self.indexed.update(
            key[: depth + 1] for depth, part in enumerate(operation.place.path) if isinstance(part, int)
        )
        for place in touched(operation):
            self._at.add(place)
            self.above.update(place[:length] for length in range(1, len(place) + 1))

    def overlap(self, place: Key) -> bool:
        """Whether one of the places is this one, above it or below it."""
        return place in self.above or any(place[:length] in self._at for length in range(1, len(place)))
