"""Labels: which sources the values at a place came from (SPEC R16.1, R16.2).

A label names a source that others write to: a mailbox, a page. Values without any are trusted. Messages say their
labels (`_trust`), the engine says those of what calls write.

Labels of a place only grow: an earlier value may have been read by a call that has not ended yet. So they do not
depend on which of two calls without an order ended first, and every reader of the log comes to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from .. import limits
from ..errors import ExpressionError, Problem, pointer
from ..limits import CONTROL, has_control_characters
from ..messages import CHOSEN, FIELDS, TRUST, Message, is_promise, is_written
from ..references import DAGGER, Reference, parse
from .operations import Method, Operation, read_operation, touched

Labels = frozenset[str]
"""Names of sources."""
TRUSTED: Final[Labels] = frozenset()
"""Labels of a value that nobody else wrote."""

# Fields: labels of a result by the paths of its fields (SPEC R16.8).
#
#     {"reviews.*.text": ["reviews"], "*": []}
#
# A path leads to a field and to all below it. The longest that leads to a field counts; of equally long ones, those
# with the fewest `*`. A field that no path leads to has all the labels, and so has the result as a whole.

_ANY: Final = "*"
"""Any key of an object, or any element of a list."""
_RESULT: Final = f"{DAGGER}result"


@dataclass(frozen=True, slots=True)
class FieldLabels:
    """Labels of a result, or of a part of one, by the paths of its fields."""

    by_path: tuple[tuple[tuple[str, ...], Labels], ...]
    above: tuple[str | int, ...] = ()
    """Path of the part in the result."""

    @classmethod
    def whole(cls, labels: Labels) -> FieldLabels:
        """Labels that are the same for every field."""
        return cls((((), labels),))

    @classmethod
    def read(cls, said: Mapping[str, Iterable[str]]) -> FieldLabels:
        """Read a valid declaration (see `field_problems`), or what `to_dict` gives."""
        return cls(tuple(sorted((_path(text), frozenset(labels)) for text, labels in said.items())))

    @property
    def all(self) -> Labels:
        """Labels of all fields together."""
        return TRUSTED.union(*(labels for _, labels in self.by_path))

    def own(self, path: Sequence[str | int]) -> Labels:
        """Labels of a field, without those of the fields below it."""
        found: dict[tuple[int, int], Labels] = {}
        for pattern, labels in self._along((*self.above, *path)):
            if len(pattern) <= len(self.above) + len(path):
                rank = len(pattern), -pattern.count(_ANY)
                found[rank] = found.get(rank, TRUSTED) | labels
        return found[max(found)] if found else self.all

    def at(self, path: Sequence[str | int]) -> Labels:
        """Labels of a field and of all below it."""
        length = len(self.above) + len(path)
        deeper = (labels for pattern, labels in self._along((*self.above, *path)) if len(pattern) > length)
        return self.own(path).union(*deeper)

    def next_names(self, path: Sequence[str | int]) -> frozenset[str]:
        """Names of fields right below a field that the declaration itself names, and `*` if it names any of them."""
        length = len(self.above) + len(path)
        along = self._along((*self.above, *path))
        return frozenset(pattern[length] for pattern, _ in along if len(pattern) > length)

    def below(self, path: Sequence[str | int]) -> FieldLabels:
        """Labels of the part at a path."""
        return replace(self, above=(*self.above, *path))

    def in_lists(self, depth: int) -> FieldLabels:
        """Labels of a list of such results, or of a list of lists."""
        return replace(self, by_path=tuple(((*(_ANY,) * depth, *path), labels) for path, labels in self.by_path))

    def to_dict(self) -> dict[str, list[str]]:
        """The declaration as it is written."""
        return {_text(path): sorted(labels) for path, labels in self.by_path}

    def _along(self, path: Sequence[str | int]) -> Iterator[tuple[tuple[str, ...], Labels]]:
        """The paths that lead to a field or to one below it."""
        for pattern, labels in self.by_path:
            if all(one in (_ANY, segment) for one, segment in zip(pattern, path, strict=False)):
                yield pattern, labels


Fields = frozenset[FieldLabels]
"""Declarations that all hold for one result; empty where all of it has the same labels."""


def field_problems(said: Mapping[Any, Any], *at: str | int) -> Iterator[Problem]:
    """Problems of labels by field."""
    if len(said) > limits.MOST_FIELDS:
        yield Problem(pointer(*at), f"names {len(said)} fields, where {limits.MOST_FIELDS} are allowed")
        return
    for text, labels in said.items():
        here = pointer(*at, str(text))
        yield from label_problems(labels, *at, str(text))
        try:
            path = _path(text) if isinstance(text, str) else ("0",)
        except ExpressionError as error:
            yield Problem(here, f"is no path such as reviews.*.text: {error}")
            continue
        if any(one.isdecimal() for one in path) or '"*"' in str(text):
            yield Problem(here, "names one element: write * for each element of a list, and each key")
        elif text.startswith(("/", "$")) or any(_ANY in one and one != _ANY for one in path):
            yield Problem(here, "is no path such as reviews.*.text: * alone is any key or element")
    if not any(labels for labels in said.values()):
        yield Problem(pointer(*at), 'names no source: give a field some, such as {"text": ["reviews"], "*": []}')


def _path(text: str) -> tuple[str, ...]:
    """Read the path of a field. Raises `ExpressionError`."""
    if not text:
        return ()
    (reference,) = parse(f"{_RESULT}{'' if text.startswith('[') else '.'}{text}").references
    return tuple(map(str, reference.path))


def _text(path: tuple[str, ...]) -> str:
    return str(Reference("result", path)).removeprefix(_RESULT).removeprefix(".")


def fields_of(message: Message) -> Fields:
    """Labels by field that a message names for its data; only what a call wrote has any."""
    said = message.get(FIELDS) if is_written(message) else None
    return frozenset(map(FieldLabels.read, said)) if said else frozenset()


def with_fields(labels: Labels, fields: Fields) -> Fields:
    """Labels by field, those of a whole result among them."""
    return fields or (frozenset({FieldLabels.whole(labels)}) if labels else frozenset())


def labels_at(message: Message, operation: Operation, place: Reference) -> Labels:
    """Labels that a message names for a place, of its own data there."""
    marked = MarkedPlaces()
    marked.note(message, operation)
    return marked.at(place).labels


def placed(fields: Fields, operation: Operation) -> Fields:
    """Labels by field as they lie at the place of an operation; none if that does not keep them apart there."""
    if operation.method not in KEEPING or len(whole_list(operation.place)) < len(operation.place.key):
        return frozenset()
    depth = 1 if operation.method is Method.PUSH else 0
    return frozenset(one.in_lists(depth) for one in fields)


KEEPING: Final = frozenset({Method.SET, Method.PUSH, Method.CONCAT})
"""Methods that change the place that they are applied at, whatever fields a result has."""


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

    owner: object
    """The marks that may change it; others that share it change a copy."""
    own: Marks = UNMARKED
    fields: Fields = frozenset()
    """Labels by field of values that were written there."""
    all: Marks = UNMARKED
    """Marks of the place and everything below it."""
    deeper: Marks = UNMARKED
    """Marks of everything below it that were noted there."""
    untrusted: Labels = TRUSTED
    """Sources of a value written there whose names and elements are theirs, too."""
    below: dict[str, _Place] = field(default_factory=dict)


class MarkedPlaces:
    """Marks of the places of a reader's kinds."""

    def __init__(self) -> None:
        self._owner = object()
        self._root = _Place(self._owner)

    def copy(self) -> MarkedPlaces:
        """Marks that are the same now: what is noted in one of them is not in the other."""
        copy = MarkedPlaces()
        copy._root, self._owner = self._root, object()
        return copy

    @property
    def all(self) -> Marks:
        """Marks of all places together."""
        return self._root.all

    def note(self, message: Message, operation: Operation) -> None:
        """Add the marks of a message to the places that it changes."""
        if not (marks := marks_of(message)):
            return
        fields = placed(fields_of(message), operation)
        for key in places_marked(message, operation):
            place = self._own_root()
            place.all |= marks
            for name in key:
                place.deeper |= marks
                place = self._own_place(place, name)
                place.all |= marks
            place.own |= Marks(chosen=marks.chosen) if fields else marks
            place.fields |= fields
        for key in places_untrusted(message, operation) if not fields else ():
            self._at(key).untrusted |= marks.labels

    def at(self, reference: Reference) -> Marks:
        """Marks of everything that can affect a place: at it, above it or below it; for an element, those of the whole
        list, but for fields of its other elements.
        """
        place, found, path = self._root, UNMARKED, (reference.kind, *reference.path)
        names = whole_list(reference)
        for depth, name in enumerate(names):
            found |= place.own | of_fields(place.fields, path[depth:])
            if (next_ := place.below.get(name)) is None:
                return found
            place = next_
        return found | place.own | place.deeper | of_fields(place.fields, path[len(names) :])

    def beside_field(self, reference: Reference) -> Labels:
        """Sources of the other fields of a result, where a place is in a field of it that has none."""
        place, found, path = self._root, TRUSTED, (reference.kind, *reference.path)
        for depth, name in enumerate(whole_list(reference), 1):
            if (next_ := place.below.get(name)) is None:
                break
            place = next_
            if not of_fields(place.fields, path[depth:]):
                found |= of_fields(place.fields, ()).labels
        return found

    def _at(self, key: Iterable[str]) -> _Place:
        place = self._own_root()
        for name in key:
            place = self._own_place(place, name)
        return place

    def _own_root(self) -> _Place:
        if self._root.owner is not self._owner:
            self._root = self._owned(self._root)
        return self._root

    def _own_place(self, above: _Place, name: str) -> _Place:
        """A place below one that may be changed, to be changed."""
        found = above.below.get(name)
        if found is None or found.owner is not self._owner:
            found = above.below[name] = self._owned(found) if found is not None else _Place(self._owner)
        return found

    def _owned(self, place: _Place) -> _Place:
        return replace(place, owner=self._owner, below=dict(place.below))

    def untrusted(self, reference: Reference) -> Labels:
        """Sources that chose the names below a place, if others did."""
        place, found, path = self._root, TRUSTED, (reference.kind, *reference.path)
        for depth, name in enumerate(whole_list(reference), 1):
            if (next_ := place.below.get(name)) is None:
                break
            place = next_
            found |= place.untrusted | of_fields(place.fields, path[depth:]).labels
        return found

    def untrusted_below(self, kind: str) -> Iterator[tuple[tuple[str, ...], UntrustedPart]]:
        """Uppermost places of a kind whose names others chose, each as its path, with all who wrote there or below; and
        places where others wrote some fields.
        """
        left: list[tuple[tuple[str, ...], _Place]] = []
        if (top := self._root.below.get(kind)) is not None:
            left.append(((), top))
        while left:
            path, place = left.pop()
            if place.untrusted:
                yield path, UntrustedPart(place.all.labels)
                continue
            if place.fields:
                yield path, UntrustedPart(fields=place.fields)
            left += [((*path, name), below) for name, below in place.below.items()]


@dataclass(frozen=True, slots=True)
class UntrustedPart:
    """What others wrote of a value: all of it, from these sources, or some fields."""

    labels: Labels = TRUSTED
    fields: Fields = frozenset()

    @property
    def all(self) -> Labels:
        """Sources of all of it together."""
        return self.labels.union(*(one.all for one in self.fields))

    def __or__(self, other: UntrustedPart) -> UntrustedPart:
        return UntrustedPart(self.labels | other.labels, self.fields | other.fields)

    def below(self, path: Sequence[str | int]) -> UntrustedPart:
        """What others wrote of the part at a path."""
        return replace(self, fields=frozenset(one.below(path) for one in self.fields))

    def own(self, path: Sequence[str | int]) -> Labels:
        """Sources of a field, without those of the fields below it."""
        return self.labels.union(*(one.own(path) for one in self.fields))

    def next_names(self, path: Sequence[str | int]) -> frozenset[str]:
        """Names of fields right below a field that declarations name, and `*` if they name any of them."""
        return frozenset[str]().union(*(one.next_names(path) for one in self.fields))


def of_fields(fields: Fields, path: Sequence[str | int]) -> Marks:
    """Marks of a field and of all below it."""
    return Marks(TRUSTED.union(*(one.at(path) for one in fields))) if fields else UNMARKED


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


# Messages of a context, before anything runs: the places that they mark, and those that they hold values at.


@dataclass(frozen=True, slots=True)
class MarkedMessage:
    """A message of the context that names sources."""

    position: int
    instance: str | None
    places: tuple[Reference, ...]
    marks: Marks
    fields: Fields = frozenset()

    def at(self, place: Reference) -> Marks:
        """Marks of what it says of a place that overlaps its own."""
        return (
            part_at(self.fields, self.places[0], place) | Marks(chosen=self.marks.chosen) if self.fields else self.marks
        )


def part_at(fields: Fields, written: Reference, place: Reference) -> Marks:
    """Marks of what lies at a place, of a value that was written at another one."""
    length = len(written.path)
    return of_fields(fields, place.path[length:] if place.path[:length] == written.path else ())


def held_places(context: Sequence[Message]) -> Iterator[Reference]:
    """Places that messages of the context hold values at."""
    for position, message in enumerate(context):
        operation = read_operation(message, f"message {position}") if not is_promise(message) else None
        if operation is not None:
            yield from (whole_place(Reference(key[0], key[1:])) for key in touched(operation))


def marked_messages(context: Sequence[Message]) -> Iterator[MarkedMessage]:
    """Messages of a context that name sources."""
    for position, message in enumerate(context):
        marks = marks_of(message)
        operation = read_operation(message, f"message {position}") if marks else None
        if operation is not None:
            places = tuple(Reference(key[0], key[1:]) for key in places_marked(message, operation))
            fields = placed(fields_of(message), operation)
            yield MarkedMessage(position, message.get("_instance"), places, marks, fields)


def whole_place(place: Reference) -> Reference:
    """A place, or the list that it is an element of."""
    key = whole_list(place)
    return Reference(key[0], key[1:])
