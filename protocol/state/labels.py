"""Labels: which sources the values at a place came from (SPEC R16.1, R16.2).

A label names a source that others write to: a mailbox, a page. Values without any are trusted. Messages say their
labels (`_trust`), the engine says those of what calls write.

Labels of a place only grow: an earlier value may have been read by a call that has not ended yet. So they do not
depend on which of two calls without an order ended first, and every reader of the log comes to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .. import limits
from ..errors import Problem, pointer
from ..limits import CONTROL, has_control_characters
from ..messages import CHOSEN, TRUST, Message, is_promise, is_written
from ..references import Reference
from .operations import Operation, touched

Labels = frozenset[str]
"""Names of sources."""
TRUSTED: Final[Labels] = frozenset()
"""Labels of a value that nobody else wrote."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Marks of a value, or of several: `labels` are its sources, `chosen` those of them that had a say in whether it is
    there, because whatever wrote it chose among alternatives or was itself chosen (SPEC R16.2).
    """

    labels: Labels = TRUSTED
    chosen: Labels = TRUSTED

    def __or__(self, other: Marks) -> Marks:
        return Marks(self.labels | other.labels, self.chosen | other.chosen) if other else self

    def __bool__(self) -> bool:
        return bool(self.labels or self.chosen)


UNMARKED: Final = Marks()


@dataclass(slots=True)
class _Place:
    """Marks of one place in a kind; they apply to everything below it."""

    own: Marks = UNMARKED
    all: Marks = UNMARKED
    """Marks of the place and everything below it."""
    untrusted: Labels = TRUSTED
    """Sources of a value written there whose names and elements are theirs, too."""
    below: dict[str, _Place] = field(default_factory=dict)


class MarkedPlaces:
    """Marks of the places of a reader's kinds."""

    def __init__(self) -> None:
        self._root = _Place()

    @property
    def all(self) -> Marks:
        """Marks of all places together."""
        return self._root.all

    def note(self, message: Message, operation: Operation) -> None:
        """Add the marks of a message to the places that it changes."""
        if not (marks := marks_of(message)):
            return
        for key in places_marked(message, operation):
            place = self._root
            place.all |= marks
            for name in key:
                place = place.below.setdefault(name, _Place())
                place.all |= marks
            place.own |= marks
        for key in places_untrusted(message, operation):
            self._at(key).untrusted |= marks.labels

    def at(self, reference: Reference) -> Marks:
        """Marks of everything that can affect a place: at it, above it or below it; for an element, those of the whole
        list.
        """
        place, found = self._root, UNMARKED
        for name in whole_list(reference):
            found |= place.own
            if (next_ := place.below.get(name)) is None:
                return found
            place = next_
        return found | place.all

    def _at(self, key: Iterable[str]) -> _Place:
        place = self._root
        for name in key:
            place = place.below.setdefault(name, _Place())
        return place

    def untrusted(self, reference: Reference) -> Labels:
        """Sources that chose the names below a place, if others did."""
        place, found = self._root, TRUSTED
        for name in whole_list(reference):
            if (next_ := place.below.get(name)) is None:
                break
            place = next_
            found |= place.untrusted
        return found

    def untrusted_below(self, kind: str) -> Iterator[tuple[tuple[str, ...], Labels]]:
        """Uppermost places of a kind whose names others chose, each as its path, with all who wrote there or below."""
        left: list[tuple[tuple[str, ...], _Place]] = []
        if (top := self._root.below.get(kind)) is not None:
            left.append(((), top))
        while left:
            path, place = left.pop()
            if place.untrusted:
                yield path, place.all.labels
            else:
                left += [((*path, name), below) for name, below in place.below.items()]


def marks_of(message: Message) -> Marks:
    """Marks that a message names for its own data."""
    return Marks(frozenset(message.get(TRUST) or ()), frozenset(message.get(CHOSEN) or ()))


def label_problems(labels: Any, *at: str | int) -> Iterator[Problem]:
    """Problems of a list of labels (SPEC R16.1)."""
    if not isinstance(labels, list | tuple) or not all(isinstance(label, str) and label for label in labels):
        yield Problem(pointer(*at), 'must be a list of names of sources, such as ["mail"]')
    elif len(labels) > limits.MOST_LABELS:
        yield Problem(pointer(*at), f"names {len(labels)} sources, where {limits.MOST_LABELS} are allowed")
    elif any(len(label) > limits.LABELS_LONGEST for label in labels):
        yield Problem(pointer(*at), f"names a source with more than {limits.LABELS_LONGEST} characters")
    elif any(map(has_control_characters, labels)):
        yield Problem(pointer(*at), CONTROL)


def places_marked(message: Message, operation: Operation) -> Iterator[tuple[str, ...]]:
    """The keys of the places that an operation can make a difference to, and that a promise speaks of."""
    kept = whole_list(operation.place)
    if len(kept) < len(operation.place.key):
        yield kept
    elif is_promise(message):
        names = _named(message["schema"])
        yield from ((*kept, name) for name in names) if names else (kept,)
    else:
        yield from touched(operation)


def places_untrusted(message: Message, operation: Operation) -> Iterator[tuple[str, ...]]:
    """Keys of the places where untrusted data begins, names included. The submitter chooses top-level names, as a
    schema does for what it promises.
    """
    kept = whole_list(operation.place)
    if is_promise(message):
        yield from places_marked(message, operation)
    elif not is_written(message) and kept == (operation.place.kind,) and isinstance(operation.value, Mapping):
        yield from ((*kept, name) for name in operation.value)
    else:
        yield kept


def _named(schema: Any) -> Mapping[str, Any]:
    """The properties that a promise names; none where it says no more than that something comes."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def whole_list(reference: Reference) -> tuple[str, ...]:
    """The key of a place, or of the list that it is an element of: what is done to one moves the others."""
    at = next((at for at, segment in enumerate(reference.path) if isinstance(segment, int)), len(reference.path))
    return reference.key[: at + 1]
