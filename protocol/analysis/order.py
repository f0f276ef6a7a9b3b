"""Order: calls whose results depend on which ends first, and calls that never run (SPEC R6.1, R6.4-R6.6).

Asked of the `cases` of each view: which calls run in none of them, whose result is read in none, and what depends on
which call ends first (`Races`).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import reduce
from itertools import chain, combinations, islice, zip_longest
from operator import or_
from typing import Final, NamedTuple

from .. import limits
from ..calls.call import Call
from ..calls.tools import Tool
from ..messages import ERROR
from ..near_misses import is_promised
from ..paths import MISSING, lookup
from ..plan.checked_plan import CheckedPlan
from ..plan.graph import ReadPlaces, places_read_first, places_seen
from ..references import Expression, Path, Reference
from ..schemas.algebra import EVERYTHING, Algebra, Values
from ..state.fold import Fold
from ..state.operations import Method
from .findings import Finding, listed
from .order_cases import Bits, OrderCases, Refused, SeenCalls, views_of
from .type_flow import path_of

# Writes: which of them leave the same value in either order (SPEC R3.2).


class How(Enum):
    """The kind of a write."""

    SET = auto()
    """Replaces the value."""
    ADD = auto()
    """Adds elements to a list."""
    CONCAT = auto()
    """Makes a text longer, or a list: which of the two is not known."""
    JOIN = auto()
    """Adds keys to an object, presumably others than another call adds."""


_HOW: Final = {
    Method.SET: How.SET,
    Method.PUSH: How.ADD,
    Method.CONCAT: How.CONCAT,
    Method.MERGE: How.JOIN,
    Method.ASSIGN: How.JOIN,
}
_COMMUTING: Final = (frozenset({How.ADD}), frozenset({How.ADD, How.CONCAT}), frozenset({How.JOIN}))


class PlaceWrite(NamedTuple):
    """A call's write at one place, and the cases in which it happens."""

    call: int
    place: Reference
    how: How
    cases: Bits
    value: str | None
    """The new value as JSON, where a model has written it."""

    def commutes(self, other: PlaceWrite, fold: Fold) -> bool:
        """Whether two writes leave the same value in either order; the order of elements does not matter."""
        upper, lower = (self, other) if len(self.place.key) <= len(other.place.key) else (other, self)
        if upper.place.key == lower.place.key:
            is_same = self.how is other.how is How.SET and self.value is not None and self.value == other.value
            return is_same or frozenset({self.how, other.how}) in _COMMUTING
        return not upper.changes(lower.place, fold)

    def changes(self, place: Reference, fold: Fold) -> bool:
        """Whether the write may change the value at an overlapping place."""
        depth = len(self.place.path)
        if self.how is How.SET or depth >= len(place.path):
            return True
        return self.how is not How.JOIN and not _is_element(place, depth, fold)


def _is_element(place: Reference, depth: int, fold: Fold) -> bool:
    """Whether a path leads through an element that a list of the context has already."""
    held, index = lookup(fold.root(place.kind), place.path[:depth]), place.path[depth]
    return isinstance(held, list) and isinstance(index, int) and index < len(held)


# Races: calls that write one place while neither waits for the other, and calls that read what another may or may not
# have written yet (SPEC R3.6, R6.1, R6.4).
#
# In each case in which both calls run, it is found whether one has ended before the other starts.


Order = Mapping[int, Bits]
"""Call -> the calls that have ended before it starts, in one case."""


class _Meeting(NamedTuple):
    """Two calls at one place: the first reads or writes there; and the cases in which both do."""

    place: Reference
    calls: tuple[int, int]
    cases: Bits
    is_read: bool


class Races:
    """The writes and reads of one view."""

    def __init__(self, view: SeenCalls, cases: OrderCases, plan: CheckedPlan) -> None:
        self._view = view
        self._cases = cases
        self._writes = {index: list(self._writes_of(call, plan)) for index, call in view.calls.items()}
        self._read_by_own = ReadPlaces(place for call in view.lanes[0].calls for place in places_seen(call))

    def findings(self) -> Iterator[Finding]:
        """Races, one for each place; then reads that depend on timing."""
        left = [*self._rivals(), *self._open_reads()]
        self._bit = self._asked({call for meeting in left for call in meeting.calls})
        self._known = sum(bit for index, bit in self._bit.items() if self._is_known(index))
        met, found = left, set[_Meeting]()
        for case in self._tried(dict.fromkeys(meeting.cases for meeting in left)):
            order = self._cases.before(case, self._bit)
            found.update(m for m in left if m.cases >> case & 1 and not self._is_ordered(m, order))
            left = [meeting for meeting in left if meeting not in found]
        named = set[tuple[int, int]]()
        racing, timed = defaultdict[Reference, set[int]](set), defaultdict[tuple[int, Reference], set[int]](set)
        for meeting in filter(found.__contains__, met):
            one, other = meeting.calls
            if meeting.is_read:
                timed[one, meeting.place].add(other)
            elif meeting.calls not in named:
                named.add(meeting.calls)
                racing[meeting.place] |= {one, other}
        for place, calls in racing.items():
            yield _race(place, sorted(calls))
        for (index, place), writers in timed.items():
            yield _timing(index, place, sorted(writers))

    def _writes_of(self, call: Call, plan: CheckedPlan) -> Iterator[PlaceWrite]:
        """The writes of a call."""
        value = json.dumps(call.given, sort_keys=True) if call.given is not MISSING else None
        tool = plan.tools.get(call.tool)
        schema = tool.output_schema if tool is not None else None
        is_list = isinstance(call.given, list) or (isinstance(schema, Mapping) and schema.get("type") == "array")
        for number, group in enumerate(call.alternatives):
            for place in group:
                how = _HOW[call.method]
                if how is How.CONCAT:
                    held = lookup(self._view.fold.root(place.kind), place.path)
                    how = How.ADD if is_list or isinstance(held, list) else how
                yield PlaceWrite(call.index, place, how, self._cases.chose(call.index, number), value)

    def _rivals(self) -> Iterator[_Meeting]:
        """Pairs of writes, at one place or one above the other, that may race."""
        at: dict[tuple[str, ...], list[PlaceWrite]] = defaultdict(list)
        for index in sorted(self._view.calls, key=self._view.position.__getitem__):
            for write in self._writes[index]:
                if write.place.kind != ERROR:
                    at[write.place.key].append(write)
        for key, writes in at.items():
            above = [write for length in range(1, len(key)) for write in at.get(key[:length], ())[: limits.MOST_ABOVE]]
            above = [write for write in above if write.how is not How.JOIN]
            if not above and {write.how for write in writes} in ({How.ADD}, {How.JOIN}):
                continue
            group = sorted(writes + above, key=lambda write: self._view.position[write.call]) if above else writes
            for number, write in enumerate(group):
                near = Counter[Hashable]()
                for other in reversed(group[max(0, number - limits.MOST_LOOKED_AT) : number]):
                    kind = other.how, len(other.place.key)
                    both = write.cases & other.cases
                    if both and other.call != write.call and near[kind] < limits.MOST_HELD_AGAINST:
                        near[kind] += 1
                        if not other.commutes(write, self._view.fold) and self._matters(other, write):
                            yield _Meeting(writes[0].place, (other.call, write.call), both, is_read=False)

    def _matters(self, one: PlaceWrite, other: PlaceWrite) -> bool:
        """Whether an own reader can tell which of two writes came last."""
        shared = [write for write in (one, other) if write.call not in self._view.own]
        if len(shared) != 1:
            return not shared  # those of global calls are looked at for the global lane
        own, place = other if shared[0] is one else one, shared[0].place
        is_on_top = own.how is How.SET and place.key[: len(own.place.key)] == own.place.key  # whichever ends first
        return not is_on_top and self._read_by_own.overlap(own.place)

    def _open_reads(self) -> Iterator[_Meeting]:
        """Pairs of a reader and a writer that is listed after it, for which the reader does not wait."""
        view = self._view
        for call in view.lanes[0].calls:
            for place, bits in dict.fromkeys(self._read(call)) if call.given is MISSING else ():
                for writer in view.late_writers(call.index, place) if bits else ():
                    is_hidden = writer not in view.own and view.fold.has_own(place)
                    if is_hidden or (self._is_known(writer) and not view.graph_of[writer].waits[writer]):
                        continue
                    changing = (w for w in self._writes[writer] if w.place.overlaps(place))
                    wrote = reduce(or_, (w.cases for w in changing if w.changes(place, view.fold)), 0)
                    if both := bits & wrote:
                        yield _Meeting(place, (call.index, writer), both, is_read=True)

    def _read(self, call: Call) -> Iterator[tuple[Reference, Bits]]:
        """The places that a call reads, and the cases without failures in which it does."""
        without_failures = self._cases.ran[call.index] & self._cases.without_failures
        for expression in call.expressions if not call.is_thought else ():
            for group, bits in zip(expression.alternatives, self._cases.taken(call.index, expression), strict=True):
                yield from ((place, bits & without_failures) for place in group if place.kind != ERROR)
        yield from ((scope, without_failures) for scope in call.slices)

    def _is_known(self, index: int) -> bool:
        """Whether a model has written the result of a call, which ends when what it waits for has (SPEC R4.8)."""
        return self._view.calls[index].given is not MISSING

    def _asked(self, met: Iterable[int]) -> dict[int, Bits]:
        """Call -> a bit, for these calls and for those that ones with a known result wait for."""
        found, left = set[int](), [*met]
        while left:
            if (index := left.pop()) not in found:
                found.add(index)
                before = self._view.graph_of[index].directly_before(index) if self._is_known(index) else ()
                left += [node for node in before if node >= 0]
        return {index: 1 << number for number, index in enumerate(sorted(found))}

    def _tried(self, sets: Iterable[Bits]) -> Iterator[int]:
        """OrderCases of these sets, the first and the last of each first."""
        most = max(1, min(limits.MOST_PASSES, limits.ORDER_MOST_STEPS // (len(self._view.calls) + 1)))
        tried = set[int]()
        for case in chain.from_iterable(zip_longest(*map(_outermost, sets))):
            if len(tried) < most and case is not None and case not in tried:
                tried.add(case)
                yield case
            elif len(tried) == most:
                return

    def _is_ordered(self, meeting: _Meeting, order: Order) -> bool:
        """Whether one of two calls has surely ended before the other begins, or has written before it ends."""
        pairs = meeting.calls, meeting.calls[::-1]
        if any(order[later] & self._bit[one] for one, later in pairs):
            return True
        return not meeting.is_read and any(self._is_at_once(one, later, order) for one, later in pairs)

    def _is_at_once(self, one: int, later: int, order: Order) -> bool:
        """Whether a call with a known result waits for nothing but what another one waits for."""
        is_beside = (one in self._view.own) == (later in self._view.own)
        return is_beside and self._is_known(one) and not order[one] & ~order[later] & ~self._known


def _outermost(bits: Bits) -> Iterator[int]:
    """The members of a set: by turns the smallest and the largest that are left."""
    while bits:
        for number in {bits.bit_length() - 1: None, (bits & -bits).bit_length() - 1: None}:
            bits &= ~(1 << number)
            yield number


def _race(place: Reference, calls: Sequence[int]) -> Finding:
    what = f"calls {listed(calls)} write {place} and do not wait for each other"
    each = "each read what the one before it"
    if len(calls) == 2:
        what = f"calls {calls[0]} and {calls[1]} both write {place} and neither waits for the other"
        each = f"call {calls[1]} read what call {calls[0]}"
    remedy = f"let {each} writes, or write to different places, or use _outputMethod push"
    return Finding(
        "ACT103",
        f"race: {what}; the value of the one that ends last counts",
        tuple(calls[: limits.ORDER_MOST_LISTED]),
        remedy=remedy,
    )


def _timing(index: int, place: Reference, writers: Sequence[int]) -> Finding:
    them = f"call{'s' * (len(writers) > 1)} {listed(writers)}, listed after it"
    why = f"call {index} reads {place} and does not wait for {them}, which may write there before or after"
    remedy = f"list call {index} after the writer to wait for it, or let the writer read what call {index} writes"
    return Finding("ACT104", why, tuple(sorted((index, *writers[: limits.ORDER_MOST_LISTED]))), remedy=remedy)


# Switches: values whose readers admit different ones, so that the value decides which readers run (SPEC R4.1).
#
# A model writes `switch` in this way: one call gives an answer, and each of several others admits some of the answers
# by its tool: an `enum`, a type, a range.


class _ReaderKind(NamedTuple):
    """Readers of a value that admit the same values."""

    expression: Expression
    tool: str
    path: Path

    @property
    def place(self) -> Reference:
        """The place that is read where it has a value."""
        return self.expression.alternatives[0][-1]


def refusals_of(view: SeenCalls, tools: Mapping[str, Tool], algebra: Algebra) -> tuple[list[tuple[Refused, ...]], bool]:
    """For each value that decides the sets of readers that may refuse it; and whether these are all sets."""
    values = defaultdict[Hashable, dict[_ReaderKind, list[int]]](lambda: defaultdict(list))
    for call in view.calls.values():
        for at, expression in call.reads if not call.is_thought and call.tool in tools else ():
            if at not in call.templates and _is_settled(view, call, expression):
                near = id(view.graph_of[call.index]), expression.alternatives[0][-1].key[:2]
                values[near][_ReaderKind(expression, call.tool, path_of(call, at))].append(call.index)
    found, is_exact = [], True
    for kinds in values.values():
        taken = {kind: algebra.along(algebra.described_by(tools[kind.tool].document), kind.path) for kind in kinds}
        picky = [kind for kind in kinds if taken[kind] != EVERYTHING] if len(kinds) > 1 else []
        apart = defaultdict[_ReaderKind, set[_ReaderKind]](set)
        for one, other in combinations(picky[: limits.ORDER_MOST_KINDS], 2):
            if _are_apart(one, other, taken, algebra):
                apart[one].add(other)
                apart[other].add(one)
        together = list(islice(_together(set(), list(apart), set(), apart), limits.MOST_WAYS + 1)) if apart else []
        ways = [frozenset(call for kind in apart.keys() - taking for call in kinds[kind]) for taking in together]
        is_exact = is_exact and len(picky) <= limits.ORDER_MOST_KINDS and len(ways) <= limits.MOST_WAYS
        if ways:
            found.append(tuple(dict.fromkeys(ways[: limits.MOST_WAYS])))
    return found, is_exact


def _is_settled(view: SeenCalls, call: Call, expression: Expression) -> bool:
    """Whether a call waits for all writers of what it reads, so that other such calls read the same value."""
    for place in expression.references:
        lines = list(view.writers.lines(place))
        are_earlier = all(line.calls[-1] < call.index for line in lines)
        are_later = all(line.calls[0] > call.index for line in lines) and not view.holds(call.index, place)
        if place.kind == ERROR or not (are_earlier or are_later):
            return False
    return True


def _are_apart(one: _ReaderKind, other: _ReaderKind, taken: Mapping[_ReaderKind, Values], algebra: Algebra) -> bool:
    """Whether no value is admitted by both. A part of a value exists only where the value does."""
    several = {kind: len(kind.expression.alternatives) > 1 for kind in (one, other)}  # another is read where it is not
    upper, lower = sorted((one, other), key=lambda kind: (len(kind.place.path), not several[kind]))
    if lower.place.path[: len(upper.place.path)] != upper.place.path:
        return False
    is_alone = not several[lower] and (not several[upper] or len(upper.expression.alternatives[0]) == 1)
    if not is_alone and one.expression != other.expression:
        return False
    return not algebra.fit(algebra.along(taken[upper], lower.place.path[len(upper.place.path) :]), taken[lower])


def _together(
    taking: set[_ReaderKind],
    left: list[_ReaderKind],
    done: set[_ReaderKind],
    apart: Mapping[_ReaderKind, set[_ReaderKind]],
) -> Iterator[set[_ReaderKind]]:
    """Every largest set of kinds in which no two are apart (the algorithm of Bron and Kerbosch)."""
    if not left and not done:
        yield taking
    for number, kind in enumerate(left):
        others = left[number + 1 :]
        passed = done | set(left[:number])
        away = apart[kind]
        yield from _together({*taking, kind}, [k for k in others if k not in away], passed - away, apart)


def order_findings(plan: CheckedPlan) -> Iterator[Finding]:
    """The findings about the order of calls; each names its instances, where these are not all."""
    algebra = Algebra()
    holders: dict[Finding, list[str | None]] = {}
    running = Counter[int]()
    left = limits.ORDER_MOST_CALLS
    for number, view in enumerate(views_of(plan)):
        left -= len(view.calls)
        if left < 0 and number:
            yield Finding(
                "ACT299", "there are too many instances: the order of calls was examined in the first ones only"
            )
            break
        running.update(dict.fromkeys(view.own, len(view.lanes)))
        for finding in _of_view(view, plan, algebra):
            holders.setdefault(finding, []).extend(lane.instance for lane in view.lanes)
    for finding, instances in holders.items():
        is_everywhere = len(instances) >= min(running[index] for index in finding.calls)
        where = f"in instance{'s' * (len(instances) > 1)} {listed(instances)}: "
        yield finding if is_everywhere else replace(finding, message=where + finding.message)


def _of_view(view: SeenCalls, plan: CheckedPlan, algebra: Algebra) -> Iterator[Finding]:
    """Calls that never run, then races."""
    refusals, is_exact = refusals_of(view, plan.tools, algebra)
    cases = OrderCases(view, refusals, is_exact=is_exact)
    never = {missing.call for missing in view.lanes[0].unsatisfiable}
    idle = {index for index in view.own if _reads(view.calls[index]) and not cases.ran[index]} - never
    for index in sorted(idle, key=view.position.__getitem__)[: limits.MOST_PROVED]:
        if never.isdisjoint(view.graph_of[index].before(index)) and _is_proved(index, view, cases, plan, refusals):
            call = view.calls[index]
            read = ", ".join(dict.fromkeys(str(place) for place in places_read_first(call)))
            yield Finding(
                "ACT101",
                f"call {index} ({call.tool}) can never run: the values that it reads never exist in one and the same "
                f"run: {read}",
                (index,),
                remedy="write || between values that exclude each other, or make two calls of it",
            )
        never.add(index)
    if not any(call.gather for call in view.calls.values()):  # which waits for calls that are not in view
        yield from Races(view, cases, plan).findings()


def _reads(call: Call) -> bool:
    return bool(call.expressions) and not call.is_thought


def _is_proved(
    index: int, view: SeenCalls, cases: OrderCases, plan: CheckedPlan, refusals: Sequence[Sequence[Refused]]
) -> bool:
    """Whether a call that ran in none of the cases can never run: all cases of what it waits for were tried."""
    alone = view.behind(index)
    for reader, call in alone.calls.items():
        for place in call.read:
            is_open = place.kind == ERROR or view.late_writers(reader, place) or is_promised(plan, place)
            if is_open and not view.holds(reader, place):
                return False
    if cases.is_exhaustive or not cases.is_exact:
        return cases.is_exhaustive
    own = [tuple(dict.fromkeys(way & alone.calls.keys() for way in ways)) for ways in refusals]
    cases = OrderCases(alone, own)
    return cases.is_exhaustive and not cases.ran[index]
