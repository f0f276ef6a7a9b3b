"""Order: what comes out differently, or never, by how calls are ordered (SPEC R6.1, R6.4-R6.6).

Four questions to the `worlds` of each view: which calls run in none of them; whose result is read in none; which calls
write one place while neither waits for the other; and which read what another may or may not have written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain, zip_longest
from operator import or_
from typing import Final, NamedTuple

from protocol.graph.readers import Reads, places_read_first, places_seen
from protocol.language.paths import MISSING, strings
from protocol.language.references import Reference, expression_in
from protocol.submission.layout import Layout

from .algebra import Algebra
from .finding import Finding
from .order_effects import Effect, How, Key, changes, commute, effects_of
from .order_switches import refusals_of
from .worlds import FAILURES, Bits, View, Worlds, choices_of, views_of

_MOST_CALLS: Final = 50_000
"""So many calls are looked at, over all views."""
_MOST_PASSES: Final = 64
"""In so many worlds of a view it is found who waits for whom."""
_MOST_STEPS: Final = 1_000_000
"""So many calls are gone through for that in one view."""
_MOST_ABOVE: Final = 20
"""Of the writers above a place so many are held against those at it."""
_MOST_PROVED: Final = 20
"""Of calls that run in none of the worlds that were tried so many are looked at by themselves."""
_MOST_WAITS: Final = 16
_NAMED: Final = 3
_MOST_LISTED: Final = 10

Order = Mapping[int, Bits]
"""Call -> the calls that have ended before it starts, in one world."""


def order_findings(layout: Layout) -> Iterator[Finding]:
    """The findings about the order of calls, with the instances that they hold in where that is not all of them."""
    algebra = Algebra()
    holders: dict[Finding, list[str | None]] = {}
    running: dict[int, int] = defaultdict(int)
    left = _MOST_CALLS
    for number, view in enumerate(views_of(layout)):
        left -= len(view.calls)
        if left < 0 and number:
            yield Finding("ACT299", "the order of calls is looked at in the first instances only: there are too many")
            break
        for index in view.own:
            running[index] += len(view.lanes)
        for finding in _Order(view, layout, algebra).findings():
            holders.setdefault(finding, []).extend(lane.instance for lane in view.lanes)
    for finding, instances in holders.items():
        is_everywhere = len(instances) >= min(running[index] for index in finding.calls)
        yield finding if is_everywhere else replace(finding, message=f"{_where(instances)}: {finding.message}")


class _Write(NamedTuple):
    """What one call does at one place, and the worlds in which it does."""

    call: int
    effect: Effect
    worlds: Bits


class _Read(NamedTuple):
    """A place that a call reads, a call that may write there, and the worlds in which both happen."""

    call: int
    place: Reference
    writer: int
    worlds: Bits


class _Order:
    """One view, and what its worlds say."""

    def __init__(self, view: View, layout: Layout, algebra: Algebra) -> None:
        self._view = view
        self._layout = layout
        self._refusals, self._is_exact = refusals_of(view, layout.tools, algebra)
        self._worlds = Worlds(view, choices_of(view, self._refusals, is_exact=self._is_exact))
        self._effects = {index: effects_of(call, layout.tools, view.fold) for index, call in view.calls.items()}
        self._read_by_own = Reads(
            place for lane in view.lanes[:1] for call in lane.calls for place in places_seen(call)
        )
        self._known = self._known_results()
        self._needed = {
            index: {place.key for each in call.expressions if len(each.alternatives) == 1 for place in each.references}
            for index, call in view.calls.items()
        }

    def findings(self) -> Iterator[Finding]:
        """What is found, calls that never run first."""
        yield from self._unreachable()
        if self._worlds.is_exhaustive and not self._view.is_template and self._view.lanes[0].instance is None:
            yield from self._unread()
        yield from self._by_chance()

    # Calls that never run

    def _unreachable(self) -> Iterator[Finding]:
        never = {missing.call for missing in self._view.lanes[0].unsatisfiable}
        position = self._view.position
        idle = [
            index for index in self._view.own if not self._worlds.ran[index] and self._view.calls[index].expressions
        ]
        for index in sorted(set(idle) - never, key=position.__getitem__)[
            : _MOST_PROVED if not self._worlds.is_exhaustive else None
        ]:
            graph = self._view.graph_of[index]
            if never.isdisjoint(graph.before(index)) and self._is_proved(index):
                call = self._view.calls[index]
                read = ", ".join(dict.fromkeys(str(place) for place in places_read_first(call)))
                yield Finding(
                    "ACT101",
                    f"call {index} ({call.tool}) can never run: what it reads never exists together in one run: {read}",
                    (index,),
                    remedy="join with || what excludes each other, or split the call",
                )
            never.add(index)

    def _is_proved(self, index: int) -> bool:
        """Whether a call that ran in no world can run in none at all: whatever it hangs on has been gone through."""
        view, alone = self._view, self._view.behind(index)
        for reader, call in alone.calls.items():
            for place in chain.from_iterable(each.references for each in call.expressions):
                if not view.holds(reader, place) and (place.kind == FAILURES or view.strays(reader, place)):
                    return False
        if self._worlds.is_exhaustive:
            return True
        refusals = [tuple(dict.fromkeys(way & alone.calls.keys() for way in ways)) for ways in self._refusals]
        worlds = Worlds(alone, choices_of(alone, refusals, is_exact=self._is_exact))
        return worlds.is_exhaustive and not worlds.ran[index]

    # Results that are never read

    def _unread(self) -> Iterator[Finding]:
        view, idle = self._view, dict[tuple[int, Reference], Reference]()
        for index, call in view.calls.items():
            for expression in call.expressions if not call.is_thought and not view.graphs[-1].promises else ():
                if self._worlds.taken(index, expression)[0] == self._worlds.all:
                    first = expression.alternatives[0]
                    others = (place for group in expression.alternatives[1:] for place in group)
                    idle.update(((index, place), first[0]) for place in others if place not in first)
        if not idle:
            return
        output = (each for _, text in strings(self._layout.submission.output) if (each := expression_in(text)))
        seen = [(call.index, place) for call in self._layout.calls for place in places_seen(call)]
        seen += [(-1, place) for each in output for place in each.references]
        used = Reads(place for index, place in seen if (index, place) not in idle)
        for index, call in view.calls.items():
            if not call.written or any(map(used.overlap, call.written)) or not self._worlds.ran[index]:
                continue
            for (reader, place), preferred in idle.items():
                if reader != index and any(map(place.overlaps, call.written)):
                    yield Finding(
                        "ACT105",
                        f"call {reader} never reads {place}, which call {index} writes and no other call reads: "
                        f"{preferred} comes first and is always there",
                        tuple(sorted((index, reader))),
                        remedy=f"leave call {index} out, or put {place} first",
                    )
                    break

    # What depends on who ends first

    def _by_chance(self) -> Iterator[Finding]:
        groups, reads = list(self._groups()), list(self._open_reads())
        rivals: dict[int, set[int]] = {}
        told: set[tuple[int, int]] = set()
        timed: dict[tuple[int, Reference], dict[int, None]] = {}
        sets = [reduce(or_, (write.worlds for write in group)) for group in groups] + [read.worlds for read in reads]
        met = {write.call for group in groups for write in group} | {each for r in reads for each in (r.call, r.writer)}
        for world, order in self._orders(sets, met):
            for number, group in enumerate(groups):
                if racing := self._racing(group, world, order, told):
                    rivals.setdefault(number, set()).update(racing)
            for read in reads:
                if read.worlds >> world & 1 and self._is_open(read, order):
                    timed.setdefault((read.call, read.place), {})[read.writer] = None
        for number, calls in rivals.items():
            place = max((write.effect.place for write in groups[number]), key=lambda place: len(place.key))
            yield _race(place, sorted(calls))
        for (index, place), writers in timed.items():
            yield _timing(index, place, sorted(writers))

    def _orders(self, sets: Sequence[Bits], met: Iterable[int]) -> Iterator[tuple[int, Order]]:
        """Worlds of these sets, the first and the last of each first, and who has ended before whom in them."""
        waits = {each for index in met for each in self._known.get(index) or ()}
        self._bit = {index: 1 << number for number, index in enumerate(sorted({*met, *waits}))}
        turns = zip_longest(*(_outermost(bits) for bits in sets))
        worlds = dict.fromkeys(world for turn in turns for world in turn if world is not None)
        most = max(1, min(_MOST_PASSES, _MOST_STEPS // (len(self._view.calls) + 1)))
        for world, _ in zip(worlds, range(most), strict=False):
            yield world, self._worlds.before(world, self._bit)

    def _groups(self) -> Iterator[list[_Write]]:
        """For each place the writes there and above it, if any two may race, in the order of the graph."""
        at: dict[tuple[str, ...], list[_Write]] = defaultdict(list)
        turns = {index: (self._turn(index), index) for index in self._view.calls}
        for index in sorted(turns, key=turns.__getitem__):
            for effect in self._effects[index]:
                if effect.place.kind != FAILURES:
                    at[effect.place.key].append(_Write(index, effect, self._worlds.chose(index, effect.alternative)))
        for key, writes in at.items():
            above = [write for length in range(1, len(key)) for write in at.get(key[:length], ())[:_MOST_ABOVE]]
            above = [write for write in above if write.effect.how is not How.JOIN]
            hows = {write.effect.how for write in writes}
            group = writes if not above else sorted(writes + above, key=lambda write: turns[write.call])
            if (above or hows not in ({How.ADD}, {How.JOIN})) and _twice(group) and not self._is_settled(group, key):
                yield group

    def _turn(self, index: int) -> int:
        """Where a call stands in an order in which each stands behind those that surely write before it."""
        waits, position = self._known.get(index), self._view.position
        return 2 * position[index] if waits is None else 1 + max((2 * position[each] for each in waits), default=-2)

    def _is_settled(self, group: Iterable[_Write], key: Key) -> bool:
        """Whether each call of a group waits for those listed before it; what is global is looked at for itself."""
        calls = sorted({write.call for write in group})
        if self._view.own.isdisjoint(calls):
            return True
        return self._view.own.issuperset(calls) and all(self._needs(index, key) for index in calls[1:])

    def _needs(self, index: int, key: Key) -> bool:
        """Whether a call cannot run before those listed before it that write at a place have ended."""
        return any(key[:length] in self._needed[index] for length in range(1, len(key) + 1))

    def _racing(self, group: Iterable[_Write], world: int, order: Order, told: set[tuple[int, int]]) -> set[int]:
        """The calls of a group that race in a world: each is held against the last before it that it can race with."""
        last: dict[tuple[How, int], _Write] = {}
        found: set[int] = set()
        for write in group:
            if not write.worlds >> world & 1:
                continue
            for other in last.values():
                pair = (other.call, write.call)
                if pair not in told and self._is_race(other, write, order):
                    told.add(pair)
                    found.update(pair)
            last[write.effect.how, len(write.effect.place.key)] = write
        return found

    def _is_race(self, one: _Write, other: _Write, order: Order) -> bool:
        if one.call == other.call or commute(one.effect, other.effect, self._view.fold):
            return False
        if self._precedes(one.call, other.call, order) or self._precedes(other.call, one.call, order):
            return False
        mine = [write for write in (one, other) if write.call in self._view.own]
        if len(mine) == 2:
            return True
        own, key = (mine[0].effect, mine[0].effect.place.key) if mine else (None, ())
        shared = (other if mine and mine[0] is one else one).effect.place
        if own is None or (own.how is How.SET and shared.key[: len(key)] == key):
            return False  # what the instance sets lies on top, whichever ends first (SPEC R3.6)
        return self._read_by_own.overlap(own.place)

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
            is_plain = all(len(each.alternatives) == 1 for each in call.expressions)
            if (
                not is_plain
                or len(nodes) > _MOST_WAITS
                or any(node < 0 or found.get(node, ()) is None for node in nodes)
            ):
                found[index] = None
                continue
            found[index] = tuple(sorted({each for node in nodes for each in found.get(node, (node,)) or ()}))
        return found

    def _is_open(self, read: _Read, order: Order) -> bool:
        """Whether a call may start before or after the other has written."""
        bit = self._bit
        return not (order[read.call] & bit[read.writer] or order[read.writer] & bit[read.call])

    def _open_reads(self) -> Iterator[_Read]:
        """What calls read while another, listed after them and not waited for, writes it."""
        view, worlds = self._view, self._worlds
        for index in view.own:
            call = view.calls[index]
            if call.given is not MISSING:
                continue
            taken = [
                pair for e in call.expressions for pair in zip(e.alternatives, worlds.taken(index, e), strict=True)
            ]
            taken += [((scope,), worlds.all) for scope in call.slices]
            for place, bits in dict.fromkeys(
                (place, bits & worlds.ran[index]) for group, bits in taken for place in group
            ):
                for writer in view.strays(index, place) if place.kind != FAILURES and bits & worlds.calm else ():
                    if self._known.get(writer) == () or (writer not in view.own and view.fold.has_own(place)):
                        continue
                    if writer in view.own and any(self._needs(writer, each.key) for each in call.written):
                        continue
                    changing = [each for each in self._effects[writer] if changes(each, place, view.fold)]
                    wrote = reduce(or_, (worlds.chose(writer, each.alternative) for each in changing), 0)
                    if both := bits & wrote & worlds.calm:
                        yield _Read(index, place, writer, both)


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
    if len(calls) == 2:
        one, other = calls
        said = f"calls {one} and {other} both write {place} and neither waits for the other"
        remedy = f"let call {other} read what call {one} writes"
    else:
        said = f"{_listed(calls)} write {place} and do not wait for each other"
        remedy = "let each read what the one before it writes"
    return Finding(
        "ACT103",
        f"race: {said}; the last to finish wins",
        tuple(calls[:_MOST_LISTED]),
        remedy=f"{remedy}, or write to different places, or use _outputMethod push",
    )


def _timing(index: int, place: Reference, writers: Sequence[int]) -> Finding:
    return Finding(
        "ACT104",
        f"call {index} reads {place} and does not wait for {_listed(writers)}, listed after it, that may or may not "
        "have written there",
        tuple(sorted((index, *writers[:_MOST_LISTED]))),
        remedy=f"list call {index} after the writer to wait for it, or let the writer read what call {index} writes",
    )


def _listed(calls: Sequence[int]) -> str:
    shown = ", ".join(map(str, calls[:_NAMED]))
    more = f" and {len(calls) - _NAMED} more" if len(calls) > _NAMED else ""
    return f"call{'s' * (len(calls) > 1)} {shown}{more}"


def _where(instances: Sequence[str | None]) -> str:
    more = f" and {len(instances) - _NAMED} more" if len(instances) > _NAMED else ""
    return f"in instance{'s' * (len(instances) > 1)} {', '.join(map(str, instances[:_NAMED]))}{more}"
