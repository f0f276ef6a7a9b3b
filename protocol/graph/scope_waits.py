"""Scope waits: a call waits for the calls listed before it that write in its scopes (SPEC R8.3a).

Scope waits point to calls listed before, so they can close a cycle only together with a parameter that waits for a call
listed after its own. All that such a cycle passes through lies in a *window*: from the waiting call to the one it waits
for, overlapping windows joined. Outside of windows nothing has to be looked at.

In a window, scope waits are added in the order of their readers, then of their writers; one that would close a cycle is
left out. Sets of calls are integers there: bit n stands for the call n places behind the window's first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from acts_celery.protocol.language.references import Reference

from .barriers import Barriers
from .graph import SPELLED_OUT, Graph, LeftOut, Nodes, ScopePlaces, Window
from .writers import Line, Writers

MOST_BITS: Final = 10**9
"""Of memory for one window, and """
MOST_STEPS: Final = 500_000
"""of time: a window of some thousand calls each of which waits for another one listed after it takes more. Where it
does, all scope waits between its calls are left out.
"""


def windows(forward: Iterable[tuple[int, int]]) -> list[Window]:
    """The windows of waits (reader, writer listed after it), those that overlap as one; to come in order."""
    found: list[Window] = []
    for reader, writer in forward:
        if found and reader <= found[-1].end:
            found[-1] = Window(found[-1].start, max(found[-1].end, writer))
        else:
            found.append(Window(reader, writer))
    return found


class ScopeWaits:
    """The scope waits of some calls. `scopes` has what each may see, in the order listed."""

    def __init__(
        self,
        scopes: Iterable[tuple[int, Sequence[Reference]]],
        writers: Writers,
        windows: Sequence[Window],
        barriers: Barriers,
    ) -> None:
        self.waits: dict[int, ScopePlaces] = {}
        """Reader -> what it waits for where none is left out."""
        self._writers = writers
        self._barriers = barriers
        self._inside: dict[Window, list[int]] = {}
        self._outside: dict[tuple[Window, Reference], Nodes] = {}
        starts = [window.start for window in windows]
        for reader, places in scopes:
            at = bisect_left(starts, reader + 1) - 1
            window = windows[at] if at >= 0 and reader <= windows[at].end else None
            if window is not None:
                self._inside.setdefault(window, []).append(reader)
                for place in places:
                    if (window, place) not in self._outside:
                        self._outside[window, place] = barriers.before(place, by=window.start)
            self.waits[reader] = {place: barriers.before(place, by=reader) for place in places}

    def without_cycles(self, parameters: Graph) -> tuple[Mapping[int, ScopePlaces], Mapping[int, Nodes], list[LeftOut]]:
        """The waits beside those for parameters, which have no cycle: with the barriers that stand only here, and what
        is left out.
        """
        if not self._inside:
            return self.waits, {}, []
        waits, left_out = dict(self.waits), list[LeftOut]()
        barriers = _Filtered(self._barriers.count)
        needed = _needed(parameters, list(self._inside))
        for window, readers in self._inside.items():
            masks: dict[Reference, int] = {}
            for place in {place for reader in readers for place in self.waits[reader]}:
                masks[place] = _written(window, self._writers.lines(place))
            seen = {reader: reduce(or_, (masks[place] for place in self.waits[reader]), 0) for reader in readers}
            for reader, closing in _closing(window, seen, needed).items():
                left_out.append(LeftOut(reader, window, closing & seen[reader]))
                rest = window.before(reader) & ~closing
                waits[reader] = {
                    place: (*barriers.nodes(window, place, masks[place] & rest), *self._outside[window, place])
                    for place in self.waits[reader]
                }
        return waits, barriers.made, left_out


def _written(window: Window, lines: Iterable[Line]) -> int:
    """The calls of the window that are in some lines."""
    marks = bytearray((window.end - window.start) // 8 + 1)
    for line in lines:
        for index in line.calls[bisect_left(line.calls, window.start) : bisect_left(line.calls, window.end + 1)]:
            marks[(index - window.start) // 8] |= 1 << (index - window.start) % 8
    return int.from_bytes(marks, "little")


def _needed(parameters: Graph, windows: Sequence[Window]) -> dict[int, int]:
    """Call -> what it waits for by parameters, directly or not, of its own window."""
    starts = [window.start for window in windows]
    needed: dict[int, int] = {}
    at: dict[int, int] = {}
    """Call or barrier -> its window: that of the last call behind a barrier, for no reader after it is in another."""
    last: dict[int, int] = {}
    for node in parameters.in_order():
        before = list(parameters.directly_before(node))
        last[node] = node if node >= 0 else max((last[one] if one < 0 else one for one in before), default=-1)
        number = bisect_left(starts, last[node] + 1) - 1
        if number < 0 or last[node] > windows[number].end:
            continue
        at[node], window, bits = number, windows[number], 0
        if (window.end - window.start) ** 2 > MOST_BITS:
            continue
        for one in before:
            if one >= 0 and window.start <= one <= window.end:
                bits |= window.bit(one)
            if at.get(one) == number:
                bits |= needed.get(one, 0)
        needed[node] = bits
    return needed


def _closing(window: Window, seen: Mapping[int, int], needed: Mapping[int, int]) -> dict[int, int]:
    """Reader -> the calls before it that wait for it, where its scopes have any.

    For each call that is still to come, `waiting` has the calls passed that wait for it; of those with the same ones
    there is one entry for all.
    """
    all_of_them = {reader: mask for reader in seen if (mask := window.before(reader)) & seen[reader]}
    if (window.end - window.start) ** 2 > MOST_BITS:
        return all_of_them
    found: dict[int, int] = {}
    steps = 0
    waiting = {0: window.bit(window.end + 1) - 1}
    for index in range(window.start, window.end + 1):
        bit = window.bit(index)
        mine = next(before for before, calls in waiting.items() if calls & bit)
        if mine & seen.get(index, 0):
            found[index] = mine
        direct = needed.get(index, 0)
        reached = (seen.get(index, 0) & ~mine | direct) & (bit - 1)
        following: dict[int, int] = {}
        steps += len(waiting)
        if steps > MOST_STEPS:
            return all_of_them
        for before, calls in waiting.items():
            calls &= ~bit
            also = calls if reached & before else calls & direct
            for key, part in ((before | mine | bit, also), (before, calls & ~also)):
                if part:
                    following[key] = following.get(key, 0) | part
        waiting = following
    return found


class _Filtered:
    """Barriers behind some of a window's calls; one is built on the one before it where it can be."""

    def __init__(self, count: int) -> None:
        self.made: dict[int, Nodes] = {}
        self._count = count
        self._last: dict[tuple[Window, Reference], tuple[int, int]] = {}

    def nodes(self, window: Window, place: Reference, calls: int) -> Nodes:
        """The calls, or a barrier behind them."""
        if calls.bit_count() <= SPELLED_OUT:
            return tuple(window.calls(calls))
        covered, barrier = self._last.get((window, place), (0, 0))
        if covered == calls:
            return (barrier,)
        is_longer = covered and not covered & ~calls
        new = window.calls(calls & ~covered if is_longer else calls)
        self._count += 1
        self.made[-self._count] = (barrier, *new) if is_longer else tuple(new)
        self._last[window, place] = calls, -self._count
        return (-self._count,)
