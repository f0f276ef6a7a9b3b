"""Races: what comes out differently by which call ends first (SPEC R3.6, R6.1, R6.4).

Calls that write one place while neither waits for the other, and calls that read what another may or may not have
written. Whether one has ended before the other starts is asked of the worlds in which both run.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain, islice, zip_longest
from operator import or_
from typing import Final, NamedTuple

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.graph.readers import ReadPlaces, places_seen
from acts_celery.protocol.language.messages import ERROR
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.submission.layout import Layout

from .finding import Finding, listed
from .lane_views import View
from .order_effects import How, WriteEffect, changes, commute, effects_of
from .worlds import Bits, Worlds

_MOST_PASSES: Final = 64
"""In so many worlds of a view it is found who waits for whom."""
_MOST_STEPS: Final = 1_000_000
"""So many calls are gone through for that in one view."""
_MOST_HELD_AGAINST: Final = 4
"""So many writes of each kind before it a write is held against."""
_MOST_ABOVE: Final = 20
"""Of the writers above a place so many are held against those at it."""
_MOST_WAITS: Final = 16
_MOST_LISTED: Final = 10

Order = Mapping[int, Bits]
"""Call -> the calls that have ended before it starts, in one world."""


class _Write(NamedTuple):
    """What one call does at one place, and the worlds in which it does."""

    call: int
    effect: WriteEffect
    worlds: Bits


class _Read(NamedTuple):
    """A place that a call reads, a call that may write there, and the worlds in which both happen."""

    call: int
    place: Reference
    writer: int
    worlds: Bits


class Races:
    """The writes and reads of one view."""

    def __init__(self, view: View, worlds: Worlds, layout: Layout) -> None:
        self._view = view
        self._worlds = worlds
        self._effects = {index: list(effects_of(call, layout.tools, view.fold)) for index, call in view.calls.items()}
        self._read_by_own = ReadPlaces(place for call in view.lanes[0].calls for place in places_seen(call))
        self._known = self._known_results()
        self._needed = {
            index: {place.key for each in call.expressions if len(each.alternatives) == 1 for place in each.references}
            for index, call in view.calls.items()
        }

    def findings(self) -> Iterator[Finding]:
        """Races, one for each place; then reads that depend on timing."""
        groups, reads = list(self._groups()), list(self._open_reads())
        rivals: dict[int, set[int]] = {}
        told: set[tuple[int, int]] = set()
        timed: dict[tuple[int, Reference], dict[int, None]] = {}
        sets = dict.fromkeys([*map(_twice, groups), *(read.worlds for read in reads)])
        met = {write.call for group in groups for write in group} | {each for r in reads for each in (r.call, r.writer)}
        for world, order in self._orders(sets, met):
            for number, group in enumerate(groups):
                if racing := self._racing(group, world, order, told):
                    rivals.setdefault(number, set()).update(racing)
            for read in reads:
                one, other = self._bit[read.call], self._bit[read.writer]
                if read.worlds >> world & 1 and not (order[read.call] & other or order[read.writer] & one):
                    timed.setdefault((read.call, read.place), {})[read.writer] = None
        for number, calls in rivals.items():
            place = max((write.effect.place for write in groups[number]), key=lambda place: len(place.key))
            yield _race(place, sorted(calls))
        for (index, place), writers in timed.items():
            yield _timing(index, place, sorted(writers))

    def _orders(self, sets: Iterable[Bits], met: Iterable[int]) -> Iterator[tuple[int, Order]]:
        """Worlds of these sets, the first and the last of each first, and who has ended before whom in them."""
        waits = {each for index in met for each in self._known.get(index) or ()}
        self._bit = {index: 1 << number for number, index in enumerate(sorted({*met, *waits}))}
        most = max(1, min(_MOST_PASSES, _MOST_STEPS // (len(self._view.calls) + 1)))
        worlds: dict[int, None] = {}
        for turn in zip_longest(*map(_outermost, sets)):
            worlds.update((world, None) for world in turn if world is not None)
            if len(worlds) >= most:
                break
        for world in islice(worlds, most):
            yield world, self._worlds.before(world, self._bit)

    def _groups(self) -> Iterator[list[_Write]]:
        """For each place the writes there and above it, if any two may race, in the order of the graph."""
        at: dict[tuple[str, ...], list[_Write]] = defaultdict(list)
        turns = {index: (self._turn(index), index) for index in self._view.calls}
        for index in sorted(turns, key=turns.__getitem__):
            for effect in self._effects[index]:
                if effect.place.kind != ERROR:
                    at[effect.place.key].append(_Write(index, effect, self._worlds.chose(index, effect.alternative)))
        for key, writes in at.items():
            above = [write for length in range(1, len(key)) for write in at.get(key[:length], ())[:_MOST_ABOVE]]
            above = [write for write in above if write.effect.how is not How.JOIN]
            hows = {write.effect.how for write in writes}
            group = writes if not above else sorted(writes + above, key=lambda write: turns[write.call])
            if (above or hows not in ({How.ADD}, {How.JOIN})) and _twice(group):
                yield group

    def _turn(self, index: int) -> int:
        """Where a call stands in an order in which each stands behind those that surely write before it."""
        waits, position = self._known.get(index), self._view.position
        return 2 * position[index] if waits is None else 1 + max((2 * position[each] for each in waits), default=-2)

    def _racing(self, group: Iterable[_Write], world: int, order: Order, told: set[tuple[int, int]]) -> set[int]:
        """The calls of a group that race in a world: each is held against the last few before it of each kind."""
        last: dict[tuple[How, int], deque[_Write]] = defaultdict(lambda: deque(maxlen=_MOST_HELD_AGAINST))
        found: set[int] = set()
        for write in group:
            if not write.worlds >> world & 1:
                continue
            for other in chain.from_iterable(last.values()):
                pair = (other.call, write.call)
                if pair not in told and self._is_race(other, write, order):
                    told.add(pair)
                    found.update(pair)
            last[write.effect.how, len(write.effect.place.key)].append(write)
        return found

    def _is_race(self, one: _Write, other: _Write, order: Order) -> bool:
        if one.call == other.call or commute(one.effect, other.effect, self._view.fold):
            return False
        if self._precedes(one.call, other.call, order) or self._precedes(other.call, one.call, order):
            return False
        shared = [write for write in (one, other) if write.call not in self._view.own]
        if len(shared) != 1:
            return not shared  # those of global calls are looked at for the global lane
        own, place = (other if shared[0] is one else one).effect, shared[0].effect.place
        is_on_top = own.how is How.SET and place.key[: len(own.place.key)] == own.place.key  # whichever ends first
        return not is_on_top and self._read_by_own.overlap(own.place)

    def _precedes(self, one: int, other: int, order: Order) -> bool:
        """Whether what one call writes is there before the other has ended, whatever happens."""
        if order[other] & self._bit[one]:
            return True
        waits = self._known.get(one, ())
        if waits is None:
            return True  # it may, which is not looked at more closely
        if one not in self._known or any(not order[other] & self._bit[index] for index in waits):
            return False
        if (one in self._view.own) != (other in self._view.own):
            return not waits and self._known.get(other) == () and one < other
        return other not in self._known or one < other or (not waits and self._known[other] != ())

    def _known_results(self) -> dict[int, tuple[int, ...] | None]:
        """Calls whose results models have written: they end at the moment all these others have ended (SPEC R4.8).

        None where that is not so simple.
        """
        found: dict[int, tuple[int, ...] | None] = {}
        for index in sorted(self._view.calls, key=self._view.position.__getitem__):
            call = self._view.calls[index]
            if call.given is MISSING:
                continue
            nodes = set(self._view.graph_of[index].directly_before(index))
            is_plain = all(len(each.alternatives) == 1 for each in call.expressions) and len(nodes) <= _MOST_WAITS
            if is_plain and all(node >= 0 and found.get(node, ()) is not None for node in nodes):
                found[index] = tuple({each for node in nodes for each in found.get(node, (node,)) or ()})
            else:
                found[index] = None
        return found

    def _open_reads(self) -> Iterator[_Read]:
        """What calls read while another, listed after them and not waited for, writes it."""
        view, worlds = self._view, self._worlds
        for call in view.lanes[0].calls:
            for place, bits in dict.fromkeys(self._read(call)) if call.given is MISSING else ():
                for writer in view.late_writers(call.index, place) if bits else ():
                    if self._known.get(writer) == () or (writer not in view.own and view.fold.has_own(place)):
                        continue
                    above = (each.key[:length] for each in call.written for length in range(1, len(each.key) + 1))
                    if writer in view.own and not self._needed[writer].isdisjoint(above):  # it waits for this call
                        continue
                    changing = [each for each in self._effects[writer] if changes(each, place, view.fold)]
                    wrote = reduce(or_, (worlds.chose(writer, each.alternative) for each in changing), 0)
                    if both := bits & wrote:
                        yield _Read(call.index, place, writer, both)

    def _read(self, call: Call) -> Iterator[tuple[Reference, Bits]]:
        """The places that a call reads, and the worlds without failures in which it does."""
        calm = self._worlds.ran[call.index] & self._worlds.calm
        for expression in call.expressions if not call.is_note else ():
            for group, bits in zip(expression.alternatives, self._worlds.taken(call.index, expression), strict=True):
                yield from ((place, bits & calm) for place in group if place.kind != ERROR)
        yield from ((scope, calm) for scope in call.slices)


def _twice(group: Iterable[_Write]) -> Bits:
    """The worlds in which several calls of a group write."""
    by_call: dict[int, Bits] = defaultdict(int)
    for write in group:
        by_call[write.call] |= write.worlds
    once = twice = 0
    for worlds in by_call.values():
        once, twice = once | worlds, twice | once & worlds
    return twice


def _outermost(bits: Bits) -> Iterator[int]:
    """The members of a set: by turns the smallest and the largest that are left."""
    while bits:
        for number in {bits.bit_length() - 1: None, (bits & -bits).bit_length() - 1: None}:
            bits &= ~(1 << number)
            yield number


def _race(place: Reference, calls: Sequence[int]) -> Finding:
    said = f"calls {listed(calls)} write {place} and do not wait for each other"
    each = "each read what the one before it"
    if len(calls) == 2:
        said = f"calls {calls[0]} and {calls[1]} both write {place} and neither waits for the other"
        each = f"call {calls[1]} read what call {calls[0]}"
    remedy = f"let {each} writes, or write to different places, or use _outputMethod push"
    return Finding(
        "ACT103",
        f"race: {said}; the value of the one that ends last counts",
        tuple(calls[:_MOST_LISTED]),
        remedy=remedy,
    )


def _timing(index: int, place: Reference, writers: Sequence[int]) -> Finding:
    them = f"call{'s' * (len(writers) > 1)} {listed(writers)}, listed after it"
    why = f"call {index} reads {place} and does not wait for {them}, which may write there before or after"
    remedy = f"list call {index} after the writer to wait for it, or let the writer read what call {index} writes"
    return Finding("ACT104", why, tuple(sorted((index, *writers[:_MOST_LISTED]))), remedy=remedy)
