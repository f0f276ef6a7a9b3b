"""Elements: list elements that are written before the list is that long (SPEC R3.5).

An element can be replaced or appended; a write beyond the end fails. Where neither the context nor the calls that a
call waits for make a list long enough, its write hangs on calls that it does not wait for, or can never succeed.
Counted is the most that may be there: whoever writes the whole list, or above it, may leave one of any length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from protocol.calls.call import Call
from protocol.graph.writers import Line, Writers
from protocol.language.paths import MISSING, lookup
from protocol.language.references import Reference
from protocol.state.fold import Fold
from protocol.state.operations import Method

from .finding import FAILURES, Finding
from .order import MOST_CALLS, Calls, indexes
from .sight import Sight

_TOLD: Final = 10
_LOOKED_AT: Final = 50
"""Of so many calls that may lengthen a list it is found out by how much; more are taken to make it long enough."""


@dataclass(frozen=True, slots=True)
class _Beyond:
    """A write beyond the end of a list: the list, its length in the context, and the index."""

    call: Call
    place: Reference
    list: Reference
    length: int
    index: int


def element_findings(sight: Sight) -> Iterator[Finding]:
    """The calls of a lane that may find a list too short."""
    calls, order = sight.calls, sight.order
    beyond = list(_beyond(sight.lane.calls, sight.fold))
    if not beyond or len(calls) > MOST_CALLS:
        return
    near = _Near(sight.writers)
    for write in beyond:
        call, bit = write.call, 1 << write.call.index
        others = near.writing(write.list) & ~bit
        if _longest(write, others & order.before(call.index) | bit, calls) >= write.index:
            continue
        unordered = islice(indexes(others & ~order.before(call.index)), _LOOKED_AT)
        near_by = [
            index
            for index in unordered
            if not order.before(index) & bit and not sight.branches.exclude(index, call.index)
        ]
        before = others & order.before(call.index) | bit
        if _longest(write, before | _set(near_by), calls) < write.index:
            if others or len(_places(call)) > 1:  # a path where nobody else writes is told as an obstacle
                yield _never(write)
            continue
        rivals = [index for index in near_by if sight.may_meet(index, call.index)]
        if rivals and _longest(write, before | _set(set(near_by).difference(rivals)), calls) < write.index:
            yield _race(write, [calls[rival] for rival in rivals[:_TOLD]])


def _set(calls: Iterable[int]) -> Calls:
    return sum(1 << index for index in calls)


def _race(write: _Beyond, rivals: list[Call]) -> Finding:
    names = " or ".join(f"call {rival.index} ({rival.tool})" for rival in rivals)
    return Finding(
        "warning",
        f"call {write.call.index} ({write.call.tool}) writes {write.place}, which fails as long as {write.list} has "
        f"fewer than {write.index} elements, and does not wait for {names}: let it read what is written there, or "
        "collect with _outputMethod push",
        tuple(sorted((write.call.index, *(rival.index for rival in rivals)))),
    )


def _never(write: _Beyond) -> Finding:
    return Finding(
        "warning",
        f"call {write.call.index} ({write.call.tool}) can never write {write.place}: no call before it makes "
        f"{write.list} that long; write the next element, or collect with _outputMethod push",
        (write.call.index,),
        lost=write.call.index,
    )


def _beyond(calls: Iterable[Call], fold: Fold) -> Iterator[_Beyond]:
    """The writes for which a list is too short in the context."""
    for call in calls:
        for place in _places(call):
            if place.kind != FAILURES and any(isinstance(segment, int) for segment in place.path):
                found = _too_short(place, fold.root(place.kind))
                if found is not None:
                    yield _Beyond(call, place, *found)


def _too_short(place: Reference, root: Any) -> tuple[Reference, int, int] | None:
    """The first list on the way that ends before the path goes on, its length, and the index."""
    value = root
    for depth, segment in enumerate(place.path):
        length = 0 if value is MISSING else len(value) if isinstance(value, list) else None
        if isinstance(segment, int) and length is not None and segment > length:
            return Reference(place.kind, place.path[:depth]), length, segment
        value = lookup(value, (segment,))
    return None


def _longest(write: _Beyond, others: Calls, calls: Mapping[int, Call]) -> int:
    """How long a list can be at most once some calls have written: long enough where that cannot be told."""
    if others.bit_count() > _LOOKED_AT:
        return write.index
    pushed, elements = 0, set[int]()
    for call in (calls[index] for index in indexes(others)):
        for place in _places(call):
            below = place.path[len(write.list.path) :]
            if not place.overlaps(write.list):
                continue
            if below and isinstance(below[0], int):
                elements.add(below[0])
            elif _is_push(call) and place.key == write.list.key:
                pushed += 1
            else:
                return write.index
    length = write.length
    for element in sorted(elements):
        missing = max(0, element - length)
        if missing > pushed:
            break
        length, pushed = max(length, element + 1), pushed - missing
    return length + pushed


def _is_push(call: Call) -> bool:
    """Whether all that a call ever does is push; an exception may also be written by `set` (SPEC R4.4)."""
    return call.method is Method.PUSH and call.output is not None and len(call.output.alternatives) == 1


def _places(call: Call) -> tuple[Reference, ...]:
    return tuple(dict.fromkeys(call.output.references)) if call.output is not None else ()


class _Near:
    """Who writes at, above or below a place, as sets of call indexes in the bits of a number."""

    def __init__(self, writers: Writers) -> None:
        self._writers = writers
        self._lines: dict[Line, Calls] = {}

    def writing(self, place: Reference) -> Calls:
        found = 0
        for line in self._writers.lines(place):
            if line not in self._lines:
                self._lines[line] = sum(1 << index for index in line.calls)
            found |= self._lines[line]
        return found
