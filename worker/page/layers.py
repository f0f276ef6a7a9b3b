"""Layers: each call below all that it waits for, and in an order in which few arrows cross.

This is how layered graphs are drawn since Sugiyama, Tagawa and Toda (1981): calls are put into layers by the longest
way to them; an arrow that passes a layer has a bend there; each layer is put in order by the average place of what its
members are joined with in the layer before, down and up a few times; then members are moved toward these, so that
arrows get straight. Arrows of one call share their bends.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

PASSES: Final = 6
_MOST_BENDS: Final = 3_000
_GAP: Final = 28.0
_BEND_GAP: Final = 8.0
_BEND_WIDTH: Final = 4.0

Member = int | tuple[int, int]
"""A call, or a bend of the arrows from a call: the call and the layer."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where calls and bends stand: the middle of each, across; and the arrows with their bends."""

    across: Mapping[Member, float]
    ways: Mapping[tuple[int, int], tuple[Member, ...]]
    """From an arrow to what it passes, both ends included."""
    width: float


def layers_of(calls: Collection[int], edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The calls in layers. Lanes may differ, so arrows of different lanes may form a circle: one of them goes up."""
    before = defaultdict[int, list[int]](list)
    for writer, reader in edges:
        if writer in calls and reader in calls and writer != reader:
            before[reader].append(writer)
    level: dict[int, int] = {}
    for start in calls:
        stack, open_ = [start], {start}
        while stack:
            call = stack[-1]
            left = [one for one in before[call] if one not in level and one not in open_]
            if left:
                stack.append(left[0])
                open_.add(left[0])
                continue
            level[call] = max((level[one] + 1 for one in before[call] if one in level), default=0)
            open_.discard(stack.pop())
    layers: list[list[int]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
    for call in calls:
        layers[level[call]].append(call)
    return layers


def place(
    layers: Sequence[Sequence[int]], edges: Collection[tuple[int, int]], widths: Mapping[int, float]
) -> tuple[list[list[Member]], Placed]:
    """The layers in order with the bends among their members, and where all of it stands."""
    ways = _ways(layers, edges)
    rows: list[list[Member]] = [list(layer) for layer in layers]
    for bend in dict.fromkeys(member for way in ways.values() for member in way if isinstance(member, tuple)):
        rows[bend[1]].append(bend)
    pairs = {pair for way in ways.values() for pair in pairwise(way)}
    above, below = defaultdict[Member, list[Member]](list), defaultdict[Member, list[Member]](list)
    for upper, lower in sorted(pairs, key=str):
        above[lower].append(upper)
        below[upper].append(lower)
    rows = _ordered(rows, above, below)
    across = _straightened(rows, above, below, widths)
    left = min((across[one] - _width(one, widths) / 2 for row in rows for one in row), default=0.0)
    right = max((across[one] + _width(one, widths) / 2 for row in rows for one in row), default=0.0)
    return rows, Placed({one: x - left for one, x in across.items()}, ways, right - left)


def _ways(
    layers: Sequence[Sequence[int]], edges: Collection[tuple[int, int]]
) -> dict[tuple[int, int], tuple[Member, ...]]:
    level = {call: number for number, layer in enumerate(layers) for call in layer}
    bends = set[Member]()
    ways = {}
    for writer, reader in sorted(edges):
        passed: tuple[Member, ...] = tuple((writer, number) for number in range(level[writer] + 1, level[reader]))
        if len(bends) > _MOST_BENDS:
            passed = ()
        bends.update(passed)
        ways[writer, reader] = (writer, *passed, reader)
    return ways


_Joined = Mapping[Member, Sequence[Member]]


def _ordered(rows: list[list[Member]], above: _Joined, below: _Joined) -> list[list[Member]]:
    """The rows in the order with the fewest crossings that was found."""
    best, fewest = rows, _crossings(rows, below)
    for turn in range(PASSES):
        rows = [list(row) for row in rows]
        joined, order = (above, range(1, len(rows))) if turn % 2 == 0 else (below, range(len(rows) - 2, -1, -1))
        for number in order:
            other = rows[number - 1] if turn % 2 == 0 else rows[number + 1]
            at = {member: place for place, member in enumerate(other)}
            places = {member: place for place, member in enumerate(rows[number])}
            middle = {
                member: sum(found) / len(found) if (found := [at[one] for one in joined[member] if one in at]) else None
                for member in rows[number]
            }
            scale = len(other) / max(len(rows[number]), 1)
            rows[number].sort(key=lambda one: places[one] * scale if (x := middle[one]) is None else x)
        found_now = _crossings(rows, below)
        if found_now < fewest:
            best, fewest = rows, found_now
        if not fewest:
            break
    return best


def _crossings(rows: Sequence[Sequence[Member]], below: _Joined) -> int:
    total = 0
    for row, following in pairwise(rows):
        at = {member: place for place, member in enumerate(following)}
        seen: list[int] = []
        for member in row:
            ends = sorted(at[one] for one in below[member] if one in at)
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _width(member: Member, widths: Mapping[int, float]) -> float:
    return widths[member] if isinstance(member, int) else _BEND_WIDTH


def _distance(one: Member, other: Member, widths: Mapping[int, float]) -> float:
    gap = _GAP if isinstance(one, int) and isinstance(other, int) else _BEND_GAP
    return (_width(one, widths) + _width(other, widths)) / 2 + gap


def _straightened(
    rows: Sequence[Sequence[Member]], above: _Joined, below: _Joined, widths: Mapping[int, float]
) -> dict[Member, float]:
    across: dict[Member, float] = {}
    for row in rows:
        wanted = dict.fromkeys(row, 0.0)
        across |= _apart(row, wanted, widths)
    for turn in range(PASSES):
        down = turn % 2 == 0
        for row in rows if down else reversed(rows):
            joined = above if down else below
            wanted = {}
            for member in row:
                places = sorted(across[one] for one in joined[member])
                middle = len(places) // 2
                wanted[member] = (places[middle] + places[~middle]) / 2 if places else across[member]
            across |= _apart(row, wanted, widths)
    return across


def _apart(row: Sequence[Member], wanted: Mapping[Member, float], widths: Mapping[int, float]) -> dict[Member, float]:
    """The members of a row in its order, as near to where they are wanted as they may be: halfway between the one
    placing in which each is pushed to the right by those before it, and the one in which it is pushed to the left.
    """
    distances = [_distance(one, other, widths) for one, other in pairwise(row)]
    right = [wanted[member] for member in row]
    for at, distance in enumerate(distances):
        right[at + 1] = max(right[at + 1], right[at] + distance)
    left = [wanted[member] for member in row]
    for at in range(len(distances) - 1, -1, -1):
        left[at] = min(left[at], left[at + 1] - distances[at])
    return {member: (left[at] + right[at]) / 2 for at, member in enumerate(row)}
