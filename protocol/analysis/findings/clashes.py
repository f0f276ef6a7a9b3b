"""Clashes: calls that write at one place what does not go together, so that one of them fails (SPEC R3.2, R3.4).

What a method leaves is of certain types, and what it takes is too: `push` finds a list and leaves one. Of two calls in
no certain order of which neither takes what the other leaves, the second fails. What an instance writes lies on top of
the global values, whatever the order (SPEC R3.6): there it fails, or cannot be read, where it does not take what the
global calls leave. Where one of the two replaces what is there, it is a race (see `races`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from protocol.calls.call import Call
from protocol.language.references import Reference
from protocol.state.operations import Method

from .finding import FAILURES, Finding
from .memory import Memory
from .order import MOST_CALLS, Calls, indexes
from .sight import Sight
from .types import ALL_TYPES, json_types

Key = tuple[str, ...]

_TOLD: Final = 10
_LOOKED_AT: Final = 200
"""Of so many unordered writers before a call it is found out whether they can run together with it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What a call has to do with a place: the types that it finds there if it succeeds, and those that it leaves."""

    takes: frozenset[str]
    leaves: frozenset[str]

    def follows(self, other: _Part) -> bool:
        """Whether it may succeed where another has written just before."""
        return bool(self.takes & other.leaves)

    def goes_with(self, other: _Part) -> bool:
        """Whether both may succeed, in one order at least."""
        return self.follows(other) or other.follows(self)


_OBJECT: Final = frozenset({"object"})
_LIST: Final = frozenset({"array"})
_JOINABLE: Final = frozenset({"array", "string"})
_ANYTHING: Final = _Part(ALL_TYPES, ALL_TYPES)


def clash_findings(sight: Sight) -> Iterator[Finding]:
    """The clashes of one lane's calls with each other and with global ones."""
    if len(sight.calls) <= MOST_CALLS:
        parts = _Parts(sight.memory)
        yield from _unordered(sight, parts)
        yield from _unlike_siblings(sight)
        yield from _overlaid(sight, parts)


def _unordered(sight: Sight, parts: _Parts) -> Iterator[Finding]:
    """Calls of one lane; each is told at the one that comes later in the order of the graph."""
    seen: defaultdict[Key, dict[_Part, Calls]] = defaultdict(dict)
    for index in sight.lane.graph.in_order():
        if index not in sight.own or sight.calls[index].method is Method.SET:
            continue
        call = sight.calls[index]
        for place, part in parts.of(call):
            against = sum(calls for other, calls in seen[place.key].items() if not part.goes_with(other))
            unordered = islice(indexes(against & ~sight.order.before(index)), _LOOKED_AT)
            rivals = [sight.calls[rival] for rival in unordered if sight.may_meet(rival, index)]
            if rivals:
                yield _clash(call, place, part, rivals[:_TOLD])
                break
        for place, part in parts.of(call):
            seen[place.key][part] = seen[place.key].get(part, 0) | 1 << index


def _clash(call: Call, place: Reference, part: _Part, rivals: list[Call]) -> Finding:
    return Finding(
        "warning",
        f"call {call.index} ({call.tool}) makes {_types(part.leaves)} of {place}, and {_names(rivals)} something else, "
        "in no certain order: whoever comes second fails; write to different places, or by methods that go together",
        tuple(sorted((call.index, *(rival.index for rival in rivals)))),
    )


def _unlike_siblings(sight: Sight) -> Iterator[Finding]:
    """Calls of which one writes a key and one an element of what is not there yet: if the element is first, no key can
    be written (SPEC R3.5).
    """
    seen: defaultdict[tuple[Key, type], Calls] = defaultdict(int)
    for index in sight.lane.graph.in_order():
        steps = list(_steps(sight.calls[index])) if index in sight.own else ()
        for container, segment in steps:
            other = int if isinstance(segment, str) else str
            against = seen[container.key, other] & ~sight.order.before(index)
            rivals = [rival for rival in islice(indexes(against), _LOOKED_AT) if sight.may_meet(rival, index)]
            if rivals and not sight.fold.exists(container):
                yield _sibling(sight.calls[index], container, [sight.calls[rival] for rival in rivals[:_TOLD]], segment)
                break
        for container, segment in steps:
            seen[container.key, type(segment)] |= 1 << index


def _steps(call: Call) -> Iterator[tuple[Reference, str | int]]:
    """The containers on the way to what a call writes, each with the key or index inside it."""
    for place in call.written:
        for depth, segment in enumerate(place.path):
            yield Reference(place.kind, place.path[:depth]), segment


def _sibling(call: Call, container: Reference, rivals: list[Call], segment: str | int) -> Finding:
    mine, theirs = ("a key", "an element") if isinstance(segment, str) else ("an element", "a key")
    return Finding(
        "warning",
        f"call {call.index} ({call.tool}) writes {mine} of {container}, and {_names(rivals)} {theirs}, in no certain "
        "order: if the element is first, there is a list, and no key can be written; use keys, or write elsewhere",
        tuple(sorted((call.index, *(rival.index for rival in rivals)))),
    )


def _overlaid(sight: Sight, parts: _Parts) -> Iterator[Finding]:
    """What an instance writes onto what global calls leave, where it has nothing of its own there to write onto."""
    beside = _by_place((call for index, call in sight.calls.items() if index not in sight.own), parts)
    own = _by_place(sight.lane.calls, parts) if beside else {}
    above = {place.key for call in sight.lane.calls for place in call.written} if beside else set()
    for call in sight.lane.calls if beside else ():
        for place, part in parts.of(call):
            left = beside.get(place.key, {})
            makers = own[place.key].values()
            if (
                left
                and not any(maker.follows(other) for maker in makers for other in left.values())
                and not any(place.key[:length] in above for length in range(1, len(place.key)))
                and not sight.fold.has_own(place)
            ):
                yield _overlay(call, place, part, [sight.calls[index] for index in islice(left, _TOLD)])
                break


def _overlay(call: Call, place: Reference, part: _Part, below: list[Call]) -> Finding:
    return Finding(
        "warning",
        f"call {call.index} ({call.tool}) writes in its instance onto what {_names(below)} "
        f"{'leaves' if len(below) == 1 else 'leave'} globally at {place}, and fails or cannot be read, as it takes "
        f"nothing but {_types(part.takes)} there; write to another place, or replace what is there",
        tuple(sorted((call.index, *(other.index for other in below)))),
    )


def _by_place(calls: Iterable[Call], parts: _Parts) -> dict[Key, dict[int, _Part]]:
    found: dict[Key, dict[int, _Part]] = {}
    for call in calls:
        for place, part in parts.of(call):
            found.setdefault(place.key, {})[call.index] = part
    return found


class _Parts:
    """What each call has to do with the places that it writes and with those above them."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def of(self, call: Call) -> list[tuple[Reference, _Part]]:
        return self._memory.once(("parts", call.index), lambda: list(self._found(call)))

    def _found(self, call: Call) -> Iterator[tuple[Reference, _Part]]:
        is_certain = call.output is not None and len(call.output.alternatives) == 1
        for place in call.written:
            for depth, segment in enumerate(place.path if is_certain else ()):
                types = _OBJECT if isinstance(segment, str) else _OBJECT | _LIST
                yield Reference(place.kind, place.path[:depth]), _Part(types, types)
            yield place, self._part(call) if is_certain and place.kind != FAILURES else _ANYTHING

    def _part(self, call: Call) -> _Part:
        """What it has to do with the place it writes: see `operations`."""
        match call.method:
            case Method.SET:
                return _Part(ALL_TYPES, self._given(call))
            case Method.PUSH:
                return _Part(_LIST, _LIST)
            case Method.ASSIGN:
                return _Part(_OBJECT, _OBJECT)
            case Method.CONCAT:
                types = self._given(call) & _JOINABLE
                return _Part(types, types) if types else _ANYTHING  # told as such
            case Method.MERGE:
                types = self._given(call)
                return _Part(_OBJECT if types == _OBJECT else ALL_TYPES, types)

    def _given(self, call: Call) -> frozenset[str]:
        """The types of its result."""
        return self._memory.result(call).types or ALL_TYPES


def _names(calls: list[Call]) -> str:
    return " and ".join(f"call {call.index} ({call.tool})" for call in calls)


def _types(types: frozenset[str]) -> str:
    return " or ".join(json_types(types))
