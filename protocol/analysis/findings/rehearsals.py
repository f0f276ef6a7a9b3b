"""Rehearsals: two calls with all that they hang on, gone through as runs would do it (SPEC R6.4-R6.6).

Whatever the values are, all calls succeed, with this or that choice of branches and of the values of `switches`; then
some of them fail. The two are held once they have started.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain, islice, product
from typing import Any, Final

from protocol.analysis.variety import Variety
from protocol.calls.call import Call
from protocol.engine.readiness import Readiness
from protocol.graph.graph import Graph
from protocol.language.references import Expression, Reference

from .effort import count, is_spent
from .finding import FAILURES

STEPS: Final = 15
"""How much work a call is in one run, in steps (see `effort`)."""
_MOST_STEPS: Final = 200_000
"""Of all runs for two calls."""
_MOST_RUNS: Final = 64
"""With calls that succeed, by the branches they choose; so many of them where there are more ways to choose."""
_MOST_FAILING_RUNS: Final = 16
_FAILING: Final = (False, False, False, True)
"""So many of the calls fail there."""

Read = tuple[int, Reference]
"""A call, and a place that it reads."""


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """Two calls, or one, with all that they hang on."""

    held_back: tuple[int, ...]
    """The calls of which it is to be seen whether they start; none of them ends."""
    instant: int | None
    """The one of two that is done as soon as it can start, if one is."""
    early: frozenset[int]
    """The other one with all that it hangs on: so it starts as early as it can."""
    calls: Mapping[int, Call]
    graph: Graph
    """What they wait for."""
    bringers: Mapping[Read, Mapping[int, frozenset[int]]]
    switches: Sequence[Sequence[frozenset[int]]]
    """For each value that decides who can run the ways in which it may: who is refused."""

    @cached_property
    def useful(self) -> Mapping[int, set[int]]:
        """Call -> its alternatives that bring anything here; the others need not be tried."""
        found: dict[int, set[int]] = defaultdict(set)
        for brought in self.bringers.values():
            for writer, alternatives in brought.items():
                found[writer] |= alternatives
        return found

    def meet(self, held: frozenset[Read]) -> bool:
        """Whether the calls were at work at the same time in any of the runs."""
        most = 1 + _MOST_STEPS // (STEPS * len(self.calls))
        fates = islice(chain(self._succeeding(), self._failing()), most)
        return any(self._is_meeting(held, each) for each in fates if not is_spent())

    def never_meet(self, held: frozenset[Read]) -> bool:
        """Whether that is certain: all ways were tried, and nobody brings anything who is not waited for."""
        has_strays = any(not brought.keys() <= {*self.graph.writers(*read)} for read, brought in self.bringers.items())
        if self._ways > _MOST_RUNS or has_strays:
            return False
        return not any(is_spent() or self._is_meeting(held, fates) for fates in self._succeeding())

    @cached_property
    def _choices(self) -> Mapping[int, Sequence[int]]:
        """Call -> the alternatives it chooses from."""
        return {index: sorted(self.useful[index]) or (0,) for index in self.calls}

    @cached_property
    def _options(self) -> list[Sequence[Any]]:
        """All that is chosen: an alternative by each call, and who is refused by each switch."""
        return [*self._choices.values(), *self.switches]

    @cached_property
    def _ways(self) -> int:
        """How many ways there are to choose, up to more than can be tried."""
        return reduce(lambda ways, several: min(ways * len(several), _MOST_RUNS + 1), self._options, 1)

    def _succeeding(self) -> Iterator[_Fates]:
        """What becomes of the calls in runs in which all succeed."""
        runs: Iterable[Sequence[Any]] = product(*self._options)
        if self._ways > _MOST_RUNS:
            runs = (_picked(self._options, Variety(trial)) for trial in range(_MOST_RUNS))
        for run in runs:
            yield self._fates(dict(zip(self._choices, run, strict=False)), run)

    def _failing(self) -> Iterator[_Fates]:
        """The same where some fail."""
        for trial in range(1, _MOST_FAILING_RUNS + 1):
            variety = Variety(-trial)
            run = _picked(self._options, variety)
            chosen = {
                index: self._failed(index) if variety.pick(_FAILING) else choice
                for index, choice in zip(self._choices, run, strict=False)
            }
            yield self._fates(chosen, run)

    def _fates(self, chosen: Mapping[int, int | None], run: Sequence[Any]) -> _Fates:
        return _Fates(chosen, frozenset[int]().union(*run[len(self._choices) :]))

    def _failed(self, index: int) -> int | None:
        """What becomes of a call that raises: its last alternative, where it has several (SPEC R4.4)."""
        output = self.calls[index].output
        return len(output.alternatives) - 1 if output is not None and len(output.alternatives) > 1 else None

    def _is_meeting(self, held: frozenset[Read], fates: _Fates) -> bool:
        """Whether the two come to be at work at the same time where neither of them ends before the other starts."""
        count(STEPS * len(self.calls))
        turns = _Run(self, held, fates).turns()
        if len(turns) < len(self.held_back) or self.instant is None:
            return len(turns) == len(self.held_back)
        return min(turns.values()) < turns[self.instant]


@dataclass(frozen=True)
class _Fates:
    """What becomes of calls: which alternative each chooses, or None where it fails; and who is refused, if it starts,
    for what it reads.
    """

    chosen: Mapping[int, int | None]
    refused: frozenset[int]


class _Run:
    """One run, in which what becomes of every call is known beforehand."""

    def __init__(self, rehearsal: Rehearsal, held: frozenset[Read], fates: _Fates) -> None:
        self._rehearsal = rehearsal
        self._held = held
        self._fates = fates
        self._readiness = Readiness(rehearsal.calls, rehearsal.graph)
        self._succeeded: set[int] = set()
        self._decided: set[int] = set()

    def turns(self) -> dict[int, int]:
        """When the two calls start if neither ends, if they do: after how many others."""
        turns: dict[int, int] = {}
        early, others = deque[int](), deque[int]()
        startable = self._start(self._rehearsal.calls)
        for turn in range(len(self._rehearsal.calls)):
            for index in startable:
                if index in self._rehearsal.held_back:
                    turns[index] = turn
                else:
                    (early if index in self._rehearsal.early else others).append(index)
            if not early and not others:
                break
            ending = early.popleft() if early else others.popleft()
            if self._fates.chosen[ending] is not None:
                self._succeeded.add(ending)
            startable = self._start(reader for reader, _ in self._readiness.end(ending))
        return turns

    def _start(self, indexes: Iterable[int]) -> Iterator[int]:
        """Those of some calls that can start; whoever can never run any more or is refused has ended by that."""
        stack = sorted(indexes, reverse=True)
        while stack:
            index = stack.pop()
            if index in self._decided:
                continue
            verdicts = [self._verdict(index, read) for read in self._rehearsal.calls[index].expressions]
            is_ready = all(verdicts) and self._readiness.are_scopes_settled(index)
            if None in verdicts or (is_ready and index in self._fates.refused):
                self._decided.add(index)
                stack.extend(reader for reader, _ in self._readiness.end(index))
            elif is_ready:
                self._decided.add(index)
                yield index

    def _verdict(self, index: int, expression: Expression) -> bool | None:
        """Whether it can be read, or has to wait; None where it never can (SPEC R6.5, R6.6)."""
        for group in expression.alternatives:
            settled = [self._readiness.is_settled(index, place) for place in group]
            if all(self._is_there(index, place) for place, done in zip(group, settled, strict=True) if done):
                return all(settled)
        return None

    def _is_there(self, index: int, place: Reference) -> bool:
        bringers = self._rehearsal.bringers.get((index, place), {})
        return (
            place.kind == FAILURES
            or (index, place) in self._held
            or any(self._fates.chosen[writer] in bringers[writer] for writer in bringers.keys() & self._succeeded)
        )


def _picked(options: Iterable[Sequence[Any]], variety: Variety) -> list[Any]:
    """One of each."""
    return [variety.pick(several) for several in options]
