"""Order: what comes out differently, or never, by how calls are ordered (SPEC R6.1, R6.4-R6.6).

Asked of the `worlds` of each view: which calls run in none of them, whose result is read in none, and what depends on
which call ends first (`order_races`).
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import reduce
from itertools import chain, combinations, islice, zip_longest
from operator import or_
from typing import Any, Final, NamedTuple

from ..calls.call import Call
from ..calls.tools import Tool
from ..messages import ERROR
from ..paths import MISSING, lookup
from ..plan.graph import ReadPlaces, places_read_first, places_seen
from ..plan.layout import Layout
from ..references import Expression, Path, Reference
from ..schemas.algebra import EVERYTHING, Algebra, Values
from ..slips import is_promised
from ..state.fold import Fold
from ..state.operations import Method
from .findings import Finding, listed
from .type_flow import path_of
from .worlds import Bits, View, Worlds, choices_of, views_of

# Effects: what a call's write does to its place, and which of them come out the same in either order (SPEC R3.2).


class How(Enum):
    """What is done at a place."""

    SET = auto()
    """What was there is replaced."""
    ADD = auto()
    """A list gets more elements."""
    CONCAT = auto()
    """A list or a text gets longer; which of the two is not known, or a text."""
    JOIN = auto()
    """An object gets keys; which ones is not known."""


class WriteEffect(NamedTuple):
    """What one alternative of a call does at one place."""

    place: Reference
    how: How
    alternative: int
    value: str | None = None
    """The new value as JSON, where it is known."""


_COMMUTING: Final = (frozenset({How.ADD}), frozenset({How.ADD, How.CONCAT}), frozenset({How.JOIN}))
_DEPTH: Final = 4


def commute(one: WriteEffect, other: WriteEffect, fold: Fold) -> bool:
    """Whether two effects at overlapping places leave the same in either order; the order of elements is no matter."""
    upper, lower = (one, other) if len(one.place.key) <= len(other.place.key) else (other, one)
    if upper.place.key == lower.place.key:
        same = one.how is other.how is How.SET and one.value is not None and one.value == other.value
        return same or frozenset({one.how, other.how}) in _COMMUTING
    if upper.how is How.JOIN:
        return True  # as far as is known by other keys
    return upper.how is not How.SET and _is_element(lower.place, len(upper.place.path), fold)


def changes(effect: WriteEffect, place: Reference, fold: Fold) -> bool:
    """Whether what is read at a place may be another thing after an effect."""
    depth = len(effect.place.path)
    if not effect.place.overlaps(place) or effect.how is How.SET or depth >= len(place.path):
        return effect.place.overlaps(place)
    return effect.how is not How.JOIN and not _is_element(place, depth, fold)


def effects_of(call: Call, tools: Mapping[str, Tool], fold: Fold) -> Iterator[WriteEffect]:
    """What a call does at each place that it may write."""
    for number, group in enumerate(call.alternatives):
        for place in group:
            match call.method:
                case Method.SET:
                    yield WriteEffect(place, How.SET, number, _text(call.given))
                case Method.PUSH:
                    yield WriteEffect(place, How.ADD, number)
                case Method.CONCAT:
                    tool = tools.get(call.tool)
                    yield WriteEffect(
                        place, _concatenated(call.given, tool and tool.output_schema, fold, place), number
                    )
                case Method.MERGE | Method.ASSIGN:
                    yield from _joined(place, number, call.given, _DEPTH if call.method is Method.MERGE else 1)


def _joined(place: Reference, number: int, value: Any, depth: int) -> Iterator[WriteEffect]:
    """The keys that joining an object replaces, as far as they are known."""
    if value is not MISSING and (not isinstance(value, dict) or not depth):
        yield WriteEffect(place, How.SET, number, _text(value))
        return
    yield WriteEffect(place, How.JOIN, number)
    for key, part in value.items() if value is not MISSING else ():
        yield from _joined(Reference(place.kind, (*place.path, key)), number, part, depth - 1)


def _concatenated(value: Any, schema: Any, fold: Fold, place: Reference) -> How:
    """What is joined end to end, a list or not: by the value, what the tool declares, or what the context holds."""
    held = lookup(fold.root(place.kind), place.path)
    declared = schema.get("type") if isinstance(schema, Mapping) else None
    return How.ADD if isinstance(value, list) or declared == "array" or isinstance(held, list) else How.CONCAT


def _is_element(place: Reference, depth: int, fold: Fold) -> bool:
    """Whether a path leads through an element that a list of the context has, wherever more are added to it."""
    held, index = lookup(fold.root(place.kind), place.path[:depth]), place.path[depth]
    return isinstance(held, list) and isinstance(index, int) and index < len(held)


def _text(value: Any) -> str | None:
    return json.dumps(value, sort_keys=True) if value is not MISSING else None


# Races: what comes out differently by which call ends first (SPEC R3.6, R6.1, R6.4).
#
# Calls that write one place while neither waits for the other, and calls that read what another may or may not have
# written. Whether one has ended before the other starts is asked of the worlds in which both run.

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


# Switches: values of which each reader takes others, so that they decide which of these can run (SPEC R4.1).
#
# That is how a model writes `switch`: a call says which it is, and of several others each takes some of the answers, by
# what its tool admits: an `enum`, a type, a range.

_MOST_KINDS: Final = 32
"""A value with more kinds of readers decides nothing, as far as is looked."""
_MOST_WAYS: Final = 64


class _Kind(NamedTuple):
    """Readers of a value that take the same of it."""

    expression: Expression
    tool: str
    path: Path

    @property
    def place(self) -> Reference:
        """What is read if it is there."""
        return self.expression.alternatives[0][-1]


def refusals_of(
    view: View, tools: Mapping[str, Tool], algebra: Algebra
) -> tuple[list[tuple[frozenset[int], ...]], bool]:
    """For each value that decides the ways it can: the readers that are refused; and whether these are all ways."""
    values: dict[Hashable, dict[_Kind, list[int]]] = {}
    for call in view.calls.values():
        for at, expression in call.reads if not call.is_note and call.tool in tools else ():
            if at not in call.templates and _is_settled(view, call, expression):
                near = values.setdefault((id(view.graph_of[call.index]), expression.alternatives[0][-1].key[:2]), {})
                near.setdefault(_Kind(expression, call.tool, path_of(call, at)), []).append(call.index)
    found, is_exact = [], True
    for kinds in values.values():
        taken = {kind: algebra.along(algebra.described_by(tools[kind.tool].document), kind.path) for kind in kinds}
        picky = [kind for kind in kinds if taken[kind] != EVERYTHING] if len(kinds) > 1 else []
        apart = [pair for pair in combinations(picky[:_MOST_KINDS], 2) if _are_apart(*pair, taken, algebra)]
        ways = _ways(kinds, apart) if apart else []
        is_exact = is_exact and len(picky) <= _MOST_KINDS and len(ways) <= _MOST_WAYS
        if ways:
            found.append(tuple(dict.fromkeys(ways[:_MOST_WAYS])))
    return found, is_exact


def _is_settled(view: View, call: Call, expression: Expression) -> bool:
    """Whether a call waits for all who write what it reads, so that another call that does so reads the same."""
    for place in expression.references:
        lines = list(view.writers.lines(place))
        are_earlier = all(line.calls[-1] < call.index for line in lines)
        are_later = all(line.calls[0] > call.index for line in lines) and not view.holds(call.index, place)
        if place.kind == ERROR or not (are_earlier or are_later):
            return False
    return True


def _are_apart(one: _Kind, other: _Kind, taken: Mapping[_Kind, Values], algebra: Algebra) -> bool:
    """Whether no value is taken by both. A part of a value is there only where the value itself is."""
    several = {kind: len(kind.expression.alternatives) > 1 for kind in (one, other)}  # another is read where it is not
    upper, lower = sorted((one, other), key=lambda kind: (len(kind.place.path), not several[kind]))
    if lower.place.path[: len(upper.place.path)] != upper.place.path:
        return False
    is_alone = not several[lower] and (not several[upper] or len(upper.expression.alternatives[0]) == 1)
    if not is_alone and one.expression != other.expression:
        return False
    return not algebra.fit(algebra.along(taken[upper], lower.place.path[len(upper.place.path) :]), taken[lower])


def _ways(kinds: Mapping[_Kind, list[int]], apart: list[tuple[_Kind, _Kind]]) -> list[frozenset[int]]:
    """The readers that are refused where as many kinds as possible take the value, for each set of such kinds."""
    excluded: dict[_Kind, set[_Kind]] = {kind: set() for pair in apart for kind in pair}
    for one, other in apart:
        excluded[one].add(other)
        excluded[other].add(one)
    found = []
    for taking in _together(set(), list(excluded), set(), excluded):
        refused = excluded.keys() - taking
        found.append(frozenset(index for kind in refused for index in kinds[kind]))
        if len(found) > _MOST_WAYS:
            break
    return found


def _together(
    taking: set[_Kind], left: list[_Kind], done: set[_Kind], apart: Mapping[_Kind, set[_Kind]]
) -> Iterator[set[_Kind]]:
    """Every largest set of kinds of which no two are apart (the algorithm of Bron and Kerbosch)."""
    if not left and not done:
        yield taking
    for number, kind in enumerate(left):
        others = left[number + 1 :]
        passed = done | set(left[:number])
        away = apart[kind]
        yield from _together({*taking, kind}, [k for k in others if k not in away], passed - away, apart)


_MOST_CALLS: Final = 50_000
"""So many calls are looked at, over all views."""
_MOST_PROVED: Final = 20
"""Of calls that run in none of the worlds that were tried so many are looked at by themselves."""


def order_findings(layout: Layout) -> Iterator[Finding]:
    """The findings about the order of calls, with the instances that they hold in where that is not all of them."""
    algebra = Algebra()
    holders: dict[Finding, list[str | None]] = {}
    running: dict[int, int] = defaultdict(int)
    left = _MOST_CALLS
    for number, view in enumerate(views_of(layout)):
        left -= len(view.calls)
        if left < 0 and number:
            yield Finding(
                "ACT299", "there are too many instances: the order of calls was examined in the first ones only"
            )
            break
        for index in view.own:
            running[index] += len(view.lanes)
        for finding in _Order(view, layout, algebra).findings():
            holders.setdefault(finding, []).extend(lane.instance for lane in view.lanes)
    for finding, instances in holders.items():
        is_everywhere = len(instances) >= min(running[index] for index in finding.calls)
        where = f"in instance{'s' * (len(instances) > 1)} {listed(instances)}: "
        yield finding if is_everywhere else replace(finding, message=where + finding.message)


class _Order:
    """One view, and what its worlds say."""

    def __init__(self, view: View, layout: Layout, algebra: Algebra) -> None:
        self._view = view
        self._layout = layout
        self._refusals, self._is_exact = refusals_of(view, layout.tools, algebra)
        self._worlds = Worlds(view, choices_of(view, self._refusals, is_exact=self._is_exact))

    def findings(self) -> Iterator[Finding]:
        """What is found, calls that never run first."""
        yield from self._unreachable()
        if not any(call.gather for call in self._view.calls.values()):  # which waits for calls that are not in view
            yield from Races(self._view, self._worlds, self._layout).findings()

    def _unreachable(self) -> Iterator[Finding]:
        never = {missing.call for missing in self._view.lanes[0].unsatisfiable}
        position = self._view.position
        own = (self._view.calls[index] for index in self._view.own)
        idle = {
            call.index for call in own if call.expressions and not call.is_note and not self._worlds.ran[call.index]
        }
        for index in sorted(idle - never, key=position.__getitem__)[:_MOST_PROVED]:
            graph = self._view.graph_of[index]
            if never.isdisjoint(graph.before(index)) and self._is_proved(index):
                call = self._view.calls[index]
                read = ", ".join(dict.fromkeys(str(place) for place in places_read_first(call)))
                yield Finding(
                    "ACT101",
                    f"call {index} ({call.tool}) can never run: the values that it reads never exist in one and the "
                    f"same run: {read}",
                    (index,),
                    remedy="write || between values that exclude each other, or make two calls of it",
                )
            never.add(index)

    def _is_proved(self, index: int) -> bool:
        """Whether a call that ran in no world can run in none at all: whatever it hangs on has been gone through."""
        view, alone = self._view, self._view.behind(index)
        for reader, call in alone.calls.items():
            for place in chain.from_iterable(each.references for each in call.expressions):
                is_open = place.kind == ERROR or view.late_writers(reader, place) or is_promised(self._layout, place)
                if is_open and not view.holds(reader, place):
                    return False
        if self._worlds.is_exhaustive:
            return True
        refusals = [tuple(dict.fromkeys(way & alone.calls.keys() for way in ways)) for ways in self._refusals]
        worlds = Worlds(alone, choices_of(alone, refusals, is_exact=self._is_exact))
        return worlds.is_exhaustive and not worlds.ran[index]
