"""Branches: the alternatives that calls choose between, and what can only run on which of them (SPEC R4.4, R6.6).

A call *needs* an alternative of another one where that is the only thing that can bring a value it reads; it also
needs whatever that other call needs. Of places joined by `||` it needs what each of them needs. Two calls never run in
one run where one needs what is ruled out by the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from operator import and_, itemgetter

from protocol.calls.call import Call
from protocol.graph.graph import Holds
from protocol.graph.lanes import Lane
from protocol.graph.readers import Readers
from protocol.graph.writers import Writers
from protocol.language.references import Expression, Reference

from .finding import FAILURES, Finding
from .order import indexes

Choice = tuple[int, int]
"""A call, and which of its alternatives."""


@dataclass(frozen=True, slots=True)
class Branches:
    """What the calls of one lane need and what that rules out, as sets of choices in the bits of a number."""

    choices: tuple[Choice, ...]
    needed: Mapping[int, int]
    ruled_out: Mapping[int, int]

    def exclude(self, one: int, other: int) -> bool:
        """Whether the two calls can never run in one run; so it is where one of them can never run at all."""
        needed = self.needed.get(one, 0) | self.needed.get(other, 0)
        return bool(needed & (self.ruled_out.get(one, 0) | self.ruled_out.get(other, 0)))

    def contradiction(self, index: int) -> tuple[Choice, ...]:
        """The alternatives of one call that a call needs at the same time, or nothing."""
        found = [self.choices[bit] for bit in indexes(self.needed.get(index, 0) & self.ruled_out.get(index, 0))]
        of_one = (tuple(choices) for _, choices in groupby(found, key=itemgetter(0)))
        return next((choices for choices in of_one if len(choices) > 1), ())


def read_branches(lane: Lane, writers: Writers, holds: Holds, calls: Mapping[int, Call]) -> Branches:
    """The branches of a lane. `writers` and `calls` hold everything it sees, the global calls included."""
    choices = tuple(
        (call.index, number)
        for call in calls.values()
        if call.output is not None and len(call.output.alternatives) > 1
        for number in range(len(call.output.alternatives))
    )
    if not choices:
        return Branches((), {}, {})
    needs = _Needs(choices, writers, holds, calls)
    for index in lane.graph.in_order():
        if index in calls:
            needs.read(calls[index])
    return Branches(choices, needs.needed, needs.ruled_out)


def branch_findings(lane: Lane, branches: Branches, calls: Mapping[int, Call]) -> Iterator[Finding]:
    """Readers that need two alternatives of one call at the same time."""
    for call in lane.calls:
        both = branches.contradiction(call.index)
        if not both:
            continue
        writer = calls[both[0][0]]
        assert writer.output is not None
        places = " and ".join(" && ".join(map(str, writer.output.alternatives[number])) for _, number in both)
        yield Finding(
            "warning",
            f"call {call.index} ({call.tool}) can never run: it needs {places}, of which call {writer.index} "
            f"({writer.tool}) writes only one; read them as alternatives (||), or split the call",
            tuple(sorted({writer.index, call.index})),
            lost=call.index,
        )


def unread_branches(calls: Iterable[Call], readers: Readers) -> Iterator[Finding]:
    """Alternatives that nobody reads, of calls of which another alternative is read."""
    for call in calls:
        if call.output is None or len(call.output.alternatives) < 2:
            continue
        is_read = [any(readers.has(place, but=call.index) for place in group) for group in call.output.alternatives]
        if not any(is_read):
            continue
        for group, read in zip(call.output.alternatives, is_read, strict=True):
            if not read:
                yield Finding(
                    "info",
                    f"nobody reads the branch {' && '.join(map(str, group))} of call {call.index} ({call.tool})",
                    (call.index,),
                )


class _Needs:
    """What calls need and what that rules out, read off one call after another, each after those it waits for."""

    def __init__(self, choices: Iterable[Choice], writers: Writers, holds: Holds, calls: Mapping[int, Call]) -> None:
        self.needed: dict[int, int] = {}
        self.ruled_out: dict[int, int] = {}
        self._bits = {choice: 1 << number for number, choice in enumerate(choices)}
        self._writers = writers
        self._holds = holds
        self._calls = calls

    def read(self, call: Call) -> None:
        """Note what a call needs: all its expressions, of each what every alternative needs."""
        needed = ruled_out = 0
        for expression in call.expressions if not call.is_thought else ():
            groups = [self._of_group(group, but=call.index) for group in expression.alternatives]
            needed |= reduce(and_, (group[0] for group in groups))
            ruled_out |= reduce(and_, (group[1] for group in groups))
        self.needed[call.index], self.ruled_out[call.index] = needed, ruled_out

    def _of_group(self, group: Iterable[Reference], *, but: int) -> tuple[int, int]:
        """What is needed, and what is ruled out, where some places are all there."""
        needed = ruled_out = 0
        for place in group:
            writer = _only_writer(place, self._writers, but=but)
            if writer is None or place.kind == FAILURES or self._holds(place):
                continue
            needed |= self.needed.get(writer, 0)
            ruled_out |= self.ruled_out.get(writer, 0)
            output = self._calls[writer].output
            carrying = _carrying(output, place) if output is not None else []
            if output is not None and len(output.alternatives) > 1 and len(carrying) == 1:
                needed |= self._bits[writer, carrying[0]]
                others = (number for number in range(len(output.alternatives)) if number != carrying[0])
                ruled_out |= sum(self._bits[writer, number] for number in others)
        return needed, ruled_out


def _only_writer(place: Reference, writers: Writers, *, but: int) -> int | None:
    found = {index for line in writers.lines(place) for index in line.calls[:3]} - {but}
    return found.pop() if len(found) == 1 else None


def _carrying(output: Expression, place: Reference) -> list[int]:
    return [number for number, group in enumerate(output.alternatives) if any(place.overlaps(other) for other in group)]
