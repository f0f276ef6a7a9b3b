"""Branches: the alternatives that calls choose between, and what can only run on which of them (SPEC R4.4, R6.6).

A call *needs* an alternative of another one where that is the only thing that can bring a value it reads; it also
needs whatever that other call needs. Two calls that need different alternatives of one call never run in one run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from protocol.calls import Call
from protocol.graph import Holds
from protocol.lanes import Lane
from protocol.readers import Readers
from protocol.references import Expression, Reference
from protocol.writers import Writers

from .finding import Finding

Choice = tuple[int, int]
"""A call, and which of its alternatives."""


@dataclass(frozen=True, slots=True)
class Branches:
    """What the calls of one lane need and what that rules out, as sets of choices in the bits of a number."""

    choices: tuple[Choice, ...]
    needed: Mapping[int, int]
    ruled_out: Mapping[int, int]

    def exclude(self, one: int, other: int) -> bool:
        """Whether the two calls can never run in one run."""
        return bool(self.needed.get(one, 0) & self.ruled_out.get(other, 0))

    def contradiction(self, index: int) -> tuple[Choice, ...]:
        """The alternatives of one call that a call needs at the same time, or nothing."""
        both = self.needed.get(index, 0) & self.ruled_out.get(index, 0)
        if not both:
            return ()
        writer, _ = self.choices[(both & -both).bit_length() - 1]
        return tuple(choice for bit, choice in enumerate(self.choices) if choice[0] == writer and both >> bit & 1)


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
    bits = {choice: bit for bit, choice in enumerate(choices)}
    needed: dict[int, int] = {}
    ruled_out: dict[int, int] = {}
    for index in lane.graph.in_order():
        if index not in calls:
            continue
        need = rule_out = 0
        for place in _indispensable(calls[index]):
            writer = _only_writer(place, writers, but=index)
            if writer is None or holds(place):
                continue
            need |= needed.get(writer, 0)
            rule_out |= ruled_out.get(writer, 0)
            output = calls[writer].output
            carrying = _carrying(output, place) if output is not None else []
            if output is not None and len(output.alternatives) > 1 and len(carrying) == 1:
                need |= 1 << bits[writer, carrying[0]]
                for number in range(len(output.alternatives)):
                    rule_out |= 1 << bits[writer, number] if number != carrying[0] else 0
        needed[index], ruled_out[index] = need, rule_out
    return Branches(choices, needed, ruled_out)


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
                    f"nobody reads the branch {' && '.join(map(str, group))} of call {call.index} ({call.tool}): "
                    "where it is chosen, nothing follows",
                    (call.index,),
                )


def _indispensable(call: Call) -> Iterator[Reference]:
    """The places without which a call cannot run."""
    for expression in call.expressions if not call.is_thought else ():
        if len(expression.alternatives) == 1:
            yield from expression.alternatives[0]


def _only_writer(place: Reference, writers: Writers, *, but: int) -> int | None:
    found = {index for line in writers.lines(place) for index in line.calls[:3]} - {but}
    return found.pop() if len(found) == 1 else None


def _carrying(output: Expression, place: Reference) -> list[int]:
    return [number for number, group in enumerate(output.alternatives) if any(place.overlaps(other) for other in group)]
