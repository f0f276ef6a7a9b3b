"""Schedules: whether two calls can be at work at the same time, by trying (SPEC R6.1, R6.4-R6.6).

That nothing orders two calls does not say that they ever meet: one may run on another branch than the other, or be
skipped whenever the other is not there yet. So the calls they hang on are gone through as a run would do it, whatever
the values are: all succeed, with this or that choice of branches (and of the values of `switches`), and then some fail.
The two are held once they have started. Where never both were, they are taken not to meet.

A result that a model has written is there as soon as its call could start, before any other call of the lane ends. It
meets another call only if that has started before.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from random import Random
from typing import Any, Final

from protocol.calls import Call
from protocol.graph import Graph
from protocol.paths import MISSING
from protocol.references import Expression, Reference
from protocol.writers import Writers

from .effort import count, is_spent
from .finding import FAILURES
from .memory import Memory
from .switches import Switches, read_switches

_MOST_RUNS: Final = 64
"""With calls that succeed, by the branches they choose; so many of them where there are more ways to choose."""
_MOST_FAILING_RUNS: Final = 16
_FAILING: Final = 0.25
"""How many calls fail there."""
_STEPS: Final = 5
"""How much work a call is in one run, in steps (see `effort`)."""
_MOST_STEPS: Final = 200_000
"""Of all runs for two calls."""
_MOST_ASIDE: Final = 8
"""Whoever writes what is read and is not waited for is gone through too, where there are no more of them."""

Holds = Callable[[int, Reference], bool]
"""Whether the context holds a value at a place, for the call with an index."""
_Read = tuple[int, Reference]
"""A call, and a place that it reads."""
_Waits = dict[int, dict[Reference, tuple[int, ...]]]
_Barriers = dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class _Fates:
    """What becomes of calls: which alternative each chooses, or None where it fails; and who is refused, if it starts,
    for what it reads.
    """

    chosen: Mapping[int, int | None]
    refused: frozenset[int]


class Schedules:
    """Who can meet among the calls that one lane sees; what is the same in other lanes is found out once."""

    def __init__(
        self, graphs: Iterable[Graph], own: Iterable[int], calls: Mapping[int, Call], writers: Writers, memory: Memory
    ) -> None:
        self._graphs = tuple(graphs)
        self._own = frozenset(own)
        self._calls = calls
        self._writers = writers
        self._memory = memory
        self._choosing = frozenset(call.index for call in calls.values() if _alternatives(call) > 1)
        self._alike: dict[Hashable, int] = {}
        self._before: dict[int, frozenset[int]] = {}
        self._excerpts: dict[Hashable, _Excerpt] = {}
        self._known: dict[Hashable, bool] = {}

    def meet(self, one: int, other: int, holds: Holds) -> bool:
        """Whether two calls were seen at work at the same time; not so where too much effort was spent."""
        is_related = one in self._behind(other) or other in self._behind(one)
        instant = self._instant((one, other))
        behind = self._behind(one) | self._behind(other)
        is_switched = not self._switched.isdisjoint((one, other, *behind))
        if self._choosing.isdisjoint(behind) and not is_related and instant is None and not is_switched:
            return True  # where all succeed that they hang on, both start
        is_alone = is_related or is_switched or instant is not None
        key = (is_alone, one, other) if is_alone else (is_alone, self._kind(one), self._kind(other))
        if key not in self._excerpts:
            if is_spent():
                return False
            self._excerpts[key] = self._excerpt((one, other), instant)
        excerpt = self._excerpts[key]
        held = frozenset(read for read in excerpt.bringers if holds(*read))
        if (key, held) not in self._known:
            self._known[key, held] = not is_spent() and excerpt.meet(held)
        return self._known[key, held]

    @cached_property
    def _switches(self) -> Switches:
        return read_switches(self._calls.values(), self._writers, self._memory)

    @cached_property
    def _switched(self) -> frozenset[int]:
        """The calls of which switches decide whether they can run."""
        return frozenset[int]().union(*(refused for several in self._switches.values() for refused in several))

    def _behind(self, index: int) -> frozenset[int]:
        """The calls that a call may wait for, directly or through others."""
        if index not in self._before:
            self._before[index] = frozenset(self._reached([index])[0]) - {index}
        return self._before[index]

    def _kind(self, index: int) -> int:
        """A number that calls have in common of which one starts whenever the other does."""
        call = self._calls[index]
        waits = next(graph.waits[index] for graph in self._graphs if index in graph.waits)
        likeness = call.expressions, call.slices, tuple(waits.items()), call.given is MISSING, index in self._own
        return self._alike.setdefault(likeness, len(self._alike))

    def _excerpt(self, pair: tuple[int, int], instant: int | None) -> _Excerpt:
        waits, barriers = self._reached(pair, self._aside)
        count(_STEPS * (len(waits) + len(barriers)))
        calls = {index: self._calls[index] for index in sorted(waits)}
        slow = [index for index in pair if index != instant]
        early = frozenset(self._reached(slow, self._aside)[0]) if instant is not None else frozenset()
        switches = {
            place: tuple(dict.fromkeys(refused.intersection(calls) for refused in several))
            for place, several in self._switches.items()
            if any(not refused.isdisjoint(calls) for refused in several)
        }
        return _Excerpt(pair, instant, early, calls, waits, barriers, self._brings(waits), switches)

    def _reached(
        self, indexes: Iterable[int], aside: Callable[[int], Iterable[int]] = lambda _: ()
    ) -> tuple[_Waits, _Barriers]:
        """Some calls with all that they may wait for, and what is `aside` of each."""
        waits: _Waits = {}
        barriers: _Barriers = {}
        stack = list(indexes)
        while stack:
            node = stack.pop()
            if node < 0 and node not in barriers:
                graph, number = self._barrier(node)
                barriers[node] = self._nodes(graph, self._graphs[graph].barriers[number])
                stack.extend(barriers[node])
            elif node >= 0 and node not in waits:
                graph = next(number for number, graph in enumerate(self._graphs) if node in graph.waits)
                places = self._graphs[graph].waits[node]
                waits[node] = {place: self._nodes(graph, nodes) for place, nodes in places.items()}
                stack.extend(before for nodes in waits[node].values() for before in nodes)
                stack.extend(aside(node))
        return waits, barriers

    def _instant(self, pair: Iterable[int]) -> int | None:
        """The one of two calls of a lane whose result a model has written, if it is one of them."""
        found = [index for index in pair if self._calls[index].given is not MISSING]
        is_one_lane = len({index in self._own for index in pair}) == 1
        return found[0] if len(found) == 1 and is_one_lane else None

    def _nodes(self, graph: int, nodes: Iterable[int]) -> tuple[int, ...]:
        """Calls, and the barriers of one of the graphs by numbers that no other has."""
        return tuple(node if node >= 0 else node * len(self._graphs) - graph for node in nodes)

    def _barrier(self, node: int) -> tuple[int, int]:
        """Which graph a barrier is of, and its number there."""
        graph = -node % len(self._graphs)
        return graph, (node + graph) // len(self._graphs)

    def _aside(self, index: int) -> Iterator[int]:
        """Those who may bring what a call reads, whether it waits for them or not, where they are few."""
        for expression in self._calls[index].expressions:
            for place in expression.references:
                for line in self._writers.lines(place) if place.kind != FAILURES else ():
                    if len(line.calls) <= _MOST_ASIDE:
                        yield from (writer for writer in line.calls if self._is_seen(writer, index))

    def _brings(self, calls: Iterable[int]) -> dict[_Read, dict[int, frozenset[int]]]:
        """Call and place read -> those who may bring it, with the alternatives by which they do."""
        among = frozenset(calls)
        return {
            (index, place): {
                writer: self._alternatives(writer, place)
                for line in self._writers.lines(place)
                for writer in line.calls
                if writer != index and writer in among and self._is_seen(writer, index)
            }
            for index in among
            for expression in self._calls[index].expressions
            for place in expression.references
            if place.kind != FAILURES
        }

    def _is_seen(self, writer: int, reader: int) -> bool:
        """Whether a call can read what another writes: global calls see nothing of an instance."""
        return writer not in self._own or reader in self._own

    def _alternatives(self, writer: int, place: Reference) -> frozenset[int]:
        output = self._calls[writer].output
        groups = output.alternatives if output is not None else ()
        return frozenset(number for number, group in enumerate(groups) if any(map(place.overlaps, group)))


@dataclass(frozen=True, eq=False)
class _Excerpt:
    """Two calls with all that they hang on."""

    pair: tuple[int, int]
    instant: int | None
    """The one of the two that is done as soon as it can start, if one is."""
    early: frozenset[int]
    """The other one with all that it hangs on: so it starts as early as it can."""
    calls: Mapping[int, Call]
    waits: _Waits
    barriers: _Barriers
    bringers: Mapping[_Read, Mapping[int, frozenset[int]]]
    switches: Switches

    @cached_property
    def unsettled(self) -> dict[int, dict[Reference, int]]:
        """Call -> the places that are not settled for it in the beginning, each with how many calls and barriers are
        before.
        """
        return {
            index: {place: len(nodes) for place, nodes in waits.items() if nodes} for index, waits in self.waits.items()
        }

    @cached_property
    def behind(self) -> Mapping[int, list[tuple[int, Reference | None]]]:
        """Call or barrier -> who waits for it, and where."""
        found: dict[int, list[tuple[int, Reference | None]]] = defaultdict(list)
        for barrier, nodes in self.barriers.items():
            for node in nodes:
                found[node].append((barrier, None))
        for index, waits in self.waits.items():
            for place, nodes in waits.items():
                for node in nodes:
                    found[node].append((index, place))
        return found

    def meet(self, held: frozenset[_Read]) -> bool:
        """Whether two calls were at work at the same time in any of the runs."""
        most = 1 + _MOST_STEPS // (_STEPS * len(self.calls))
        return any(self._is_meeting(held, fates) for fates in islice(self._fates(held), most) if not is_spent())

    def _fates(self, held: frozenset[_Read]) -> Iterator[_Fates]:
        """What becomes of the calls in one run after the other."""
        choices = {index: self._useful(call) for index, call in self.calls.items()}
        switches = [
            several
            for place, several in self.switches.items()
            if all(self.waits[index][place] or (index, place) not in held for refused in several for index in refused)
        ]
        options: list[Sequence[Any]] = [*choices.values(), *switches]
        ways = 1
        for several in options:
            ways = min(ways * len(several), _MOST_RUNS + 1)
        random = Random(0)
        runs: Iterable[Sequence[Any]] = product(*options)
        if ways > _MOST_RUNS:
            runs = ([random.choice(several) for several in options] for _ in range(_MOST_RUNS))
        for run in runs:
            yield _Fates(dict(zip(choices, run, strict=False)), frozenset[int]().union(*run[len(choices) :]))
        for _ in range(_MOST_FAILING_RUNS):
            run = [random.choice(several) for several in options]
            chosen = {
                index: self._failed(index) if random.random() < _FAILING else choice
                for index, choice in zip(choices, run, strict=False)
            }
            yield _Fates(chosen, frozenset[int]().union(*run[len(choices) :]))

    def _failed(self, index: int) -> int | None:
        """What becomes of a call that raises: its last alternative, where it has several (SPEC R4.4)."""
        alternatives = _alternatives(self.calls[index])
        return alternatives - 1 if alternatives > 1 else None

    def _useful(self, call: Call) -> Sequence[int]:
        """The alternatives of a call that bring anything here; the first, if none does."""
        if _alternatives(call) < 2:
            return (0,)
        return sorted({number for brought in self.bringers.values() for number in brought.get(call.index, ())}) or (0,)

    def _is_meeting(self, held: frozenset[_Read], fates: _Fates) -> bool:
        """Whether the two come to be at work at the same time where neither of them ends before the other starts."""
        count(_STEPS * len(self.calls))
        turns = _Run(self, held, fates).turns()
        if len(turns) < len(self.pair) or self.instant is None:
            return len(turns) == len(self.pair)
        return min(turns.values()) < turns[self.instant]


class _Run:
    """One run, in which what becomes of every call is known beforehand."""

    def __init__(self, excerpt: _Excerpt, held: frozenset[_Read], fates: _Fates) -> None:
        self._excerpt = excerpt
        self._held = held
        self._fates = fates
        self._unsettled = {index: dict(places) for index, places in excerpt.unsettled.items()}
        self._before = {barrier: len(nodes) for barrier, nodes in excerpt.barriers.items()}
        self._succeeded: set[int] = set()
        self._decided: set[int] = set()

    def turns(self) -> dict[int, int]:
        """When the two calls start if neither ends, if they do: after how many others."""
        turns: dict[int, int] = {}
        early, others = deque[int](), deque[int]()
        startable = self._start(self._excerpt.calls)
        for turn in range(len(self._excerpt.calls)):
            for index in startable:
                if index in self._excerpt.pair:
                    turns[index] = turn
                else:
                    (early if index in self._excerpt.early else others).append(index)
            if not early and not others:
                break
            ending = early.popleft() if early else others.popleft()
            if self._fates.chosen[ending] is not None:
                self._succeeded.add(ending)
            startable = self._start(self._end(ending))
        return turns

    def _start(self, indexes: Iterable[int]) -> Iterator[int]:
        """Those of some calls that can start; whoever can never run any more or is refused has ended by that."""
        stack = sorted(indexes, reverse=True)
        while stack:
            index = stack.pop()
            if index in self._decided:
                continue
            verdicts = [self._verdict(index, read) for read in self._excerpt.calls[index].expressions]
            is_ready = all(verdicts) and self._unsettled[index].keys().isdisjoint(self._excerpt.calls[index].slices)
            if None in verdicts or (is_ready and index in self._fates.refused):
                self._decided.add(index)
                stack.extend(self._end(index))
            elif is_ready:
                self._decided.add(index)
                yield index

    def _verdict(self, index: int, expression: Expression) -> bool | None:
        """Whether it can be read, or has to wait; None where it never can (SPEC R6.5, R6.6)."""
        for group in expression.alternatives:
            settled = [place not in self._unsettled[index] for place in group]
            if all(self._is_there(index, place) for place, done in zip(group, settled, strict=True) if done):
                return all(settled)
        return None

    def _is_there(self, index: int, place: Reference) -> bool:
        bringers = self._excerpt.bringers.get((index, place), {})
        return (
            place.kind == FAILURES
            or (index, place) in self._held
            or any(self._fates.chosen[writer] in bringers[writer] for writer in bringers.keys() & self._succeeded)
        )

    def _end(self, node: int) -> Iterator[int]:
        """Note that a call has ended; yields those for whom a place settles by it."""
        ended = [node]
        while ended:
            for behind, place in self._excerpt.behind[ended.pop()]:
                if place is None:
                    self._before[behind] -= 1
                    if not self._before[behind]:
                        ended.append(behind)
                    continue
                unsettled = self._unsettled[behind]
                unsettled[place] -= 1
                if not unsettled[place]:
                    del unsettled[place]
                    yield behind


def _alternatives(call: Call) -> int:
    return len(call.output.alternatives) if call.output is not None else 0
