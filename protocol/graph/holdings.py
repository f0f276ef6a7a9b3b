"""Holdings: which of many places the context holds, found for one instance after another (SPEC R3.6, R6.1).

To look up each place in each instance takes the product of their numbers. But an instance holds what all see, and
beside that only what its own messages say. So its values are followed into the tree of the places that are asked for:
what is one and the same object as in the global values is left as it is there. What is noted on the way, the
differences, says all; instances with the same ones hold the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import Any

from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.overlay import Overlay


class _Is(Enum):
    """How it is with a node of the tree, and what is below it."""

    HELD = auto()
    """There is a value; it says nothing of what is below."""
    AS_SHARED = auto()
    """As in the global values, it and all below."""
    WITHOUT = auto()
    """Not there, nor anything below, whatever was noted before."""
    IN_CONFLICT = auto()
    """All of it counts as there: reading it raises the conflict (SPEC R3.4)."""


class _Node:
    """A place that is asked for, or one above it."""

    def __init__(self, segment: str | int) -> None:
        self.segment = segment
        self.places: list[Reference] = []
        """The references that lead here."""
        self.below: list[Reference] = []
        """Those that lead here or below."""
        self.children: dict[str, list[_Node]] = {}
        """By segment as a text: `.0` and `["0"]` are two, that may be one place."""

    def child(self, segment: str | int) -> _Node:
        """The node one segment further, made where there is none."""
        alike = self.children.setdefault(str(segment), [])
        found = next((node for node in alike if type(node.segment) is type(segment)), None)
        if found is None:
            found = _Node(segment)
            alike.append(found)
        return found


_Difference = tuple[_Is, _Node]


class Holdings:
    """Which of some places readers hold. `shared` is what a reader without an instance sees."""

    def __init__(self, places: Iterable[Reference], shared: Fold) -> None:
        self._places = tuple(places)
        self._shared = shared
        self._tree = _Node("")
        for place in self._places:
            node = self._tree
            for segment in (place.kind, *place.path):
                node = node.child(segment)
                node.below.append(place)
            node.places.append(place)
        self._held_by_all = frozenset(filter(shared.exists, self._places))
        self._known: dict[tuple[_Difference, ...], frozenset[Reference]] = {}

    def of(self, fold: Fold) -> frozenset[Reference]:
        """Those of the places that a reader holds."""
        if fold is self._shared:
            return self._held_by_all
        differences = tuple(self._differences(fold))
        if differences not in self._known:
            self._known[differences] = self._held(differences)
        return self._known[differences]

    def _held(self, differences: Iterable[_Difference]) -> frozenset[Reference]:
        held: set[Reference] = set()
        for what, node in differences:
            match what:
                case _Is.HELD:
                    held.update(node.places)
                case _Is.AS_SHARED:
                    held.update(self._held_by_all.intersection(node.below))
                case _Is.WITHOUT:
                    held.difference_update(node.below)
                case _Is.IN_CONFLICT:
                    held.update(node.below)
        return frozenset(held)

    def _differences(self, fold: Fold) -> Iterator[_Difference]:
        for kind, (node,) in self._tree.children.items():
            value, conflicts = fold.root(kind), fold.conflicted(kind)
            shared, shared_conflicts = self._shared.root(kind), self._shared.conflicted(kind)
            if value is shared and conflicts == shared_conflicts:
                yield _Is.AS_SHARED, node
                continue
            if value is not MISSING:  # a conflict that is settled here may leave the very same value
                yield from _compared(node, value, MISSING if shared_conflicts else shared)
            for key in conflicts:
                yield from _conflicting([node], key)


def _compared(node: _Node, value: Any, shared: Any) -> Iterator[_Difference]:
    """How a value, and what is in it, differs from the global one."""
    if value is shared:
        yield _Is.AS_SHARED, node
        return
    yield _Is.HELD, node
    if not node.children:
        return
    if isinstance(value, Overlay) and value.below is shared:
        yield _Is.AS_SHARED, node
        for child, item in _followed(node, value.own()):
            yield _Is.WITHOUT, child
            yield from _compared(child, item, shared.get(str(child.segment), MISSING))
    elif isinstance(value, dict):
        there = shared if isinstance(shared, dict) else {}
        for child, item in _followed(node, value):
            yield from _compared(child, item, there.get(str(child.segment), MISSING))
    elif isinstance(value, list):
        elements = shared if isinstance(shared, list) else []
        for children in node.children.values():
            for child in children:
                if isinstance(child.segment, int) and child.segment < len(value):
                    element = elements[child.segment] if child.segment < len(elements) else MISSING
                    yield from _compared(child, value[child.segment], element)


def _followed(node: _Node, value: Mapping[str, Any]) -> Iterator[tuple[_Node, Any]]:
    """The nodes below one that an object has a value for, found by way of whichever are fewer."""
    for name in value if len(value) < len(node.children) else node.children:
        if name in value and name in node.children:
            yield from ((child, value[name]) for child in node.children[name])


def _conflicting(nodes: list[_Node], key: tuple[str, ...]) -> Iterator[_Difference]:
    """What is in conflict with one at a place: what is above it, and all at or below it."""
    for name in key[1:]:
        yield from ((_Is.HELD, node) for node in nodes)
        nodes = [child for node in nodes for child in node.children.get(name, ())]
    yield from ((_Is.IN_CONFLICT, node) for node in nodes)
