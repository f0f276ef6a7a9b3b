"""The data-flow graph: which call waits for which (SPEC R6.1-R6.3).

Calls are joined by the paths they read and write. The graph is that of one *lane*: the calls of one instance together
with the global ones they can see, or the global calls alone. Lanes never wait for each other otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .calls import Call
from .references import Expression, Reference

Holds = Callable[[Reference], bool]
"""Whether the initial context has a value at a place, as the lane's reader sees it."""


@dataclass(frozen=True)
class Graph:
    """The waits of a lane's calls: call index -> place read -> the indexes of the calls that may write it."""

    waits: Mapping[int, Mapping[Reference, tuple[int, ...]]]

    def before(self, index: int) -> tuple[int, ...]:
        """The calls that a call waits for, in the order listed."""
        return tuple(sorted({writer for writers in self.waits.get(index, {}).values() for writer in writers}))

    def cycle(self) -> tuple[int, ...] | None:
        """The calls on a cycle in the order they wait for each other, if there is one (SPEC R6.2)."""
        done: set[int] = set()
        for start in self.waits:
            if start not in done:
                cycle = self._cycle_from(start, done)
                if cycle is not None:
                    return cycle
        return None

    def levels(self, known: Mapping[int, int]) -> dict[int, int]:
        """How many calls stand one behind the other before each call. `known` has the levels of other lanes' calls.

        The graph must have no cycle.
        """
        levels = dict(known)
        for index in self._in_order():
            levels[index] = 1 + max((levels.get(writer, 0) for writer in self.before(index)), default=-1)
        return {index: levels[index] for index in self.waits}

    def _in_order(self) -> list[int]:
        """Every call after those it waits for."""
        order: list[int] = []
        seen: set[int] = set()
        for start in self.waits:
            stack = [(start, iter(self.before(start)))] if start not in seen else []
            seen.add(start)
            while stack:
                index, writers = stack[-1]
                for writer in writers:
                    if writer in self.waits and writer not in seen:
                        seen.add(writer)
                        stack.append((writer, iter(self.before(writer))))
                        break
                else:
                    order.append(index)
                    stack.pop()
        return order

    def _cycle_from(self, start: int, done: set[int]) -> tuple[int, ...] | None:
        path = [start]
        on_path = {start}
        stack = [iter(self.before(start))]
        while stack:
            for writer in stack[-1]:
                if writer in on_path:
                    return tuple(path[path.index(writer) :])
                if writer in self.waits and writer not in done:
                    path.append(writer)
                    on_path.add(writer)
                    stack.append(iter(self.before(writer)))
                    break
            else:
                stack.pop()
                finished = path.pop()
                on_path.discard(finished)
                done.add(finished)
        return None


@dataclass(frozen=True)
class Writers:
    """Who writes where: an index over the output paths of the calls a lane can see."""

    calls: Sequence[Call]
    _at: dict[tuple[str, ...], list[int]] = field(default_factory=lambda: defaultdict(list))
    _at_or_below: dict[tuple[str, ...], list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for call in self.calls:
            for place in {reference.key for reference in call.output.references} if call.output else ():
                self._at[place].append(call.index)
                for length in range(1, len(place) + 1):
                    self._at_or_below[place[:length]].append(call.index)

    def overlapping(self, place: Reference, *, other_than: int) -> list[int]:
        """The other calls that write at, above or below a place (SPEC R6.1)."""
        key = place.key
        found = set(self._at_or_below.get(key, ()))
        for length in range(1, len(key)):
            found.update(self._at.get(key[:length], ()))
        found.discard(other_than)
        return sorted(found)

    def awaited(self, place: Reference, holds: Holds, *, by: int) -> tuple[int, ...]:
        """The calls that a reader of a place waits for.

        Those listed before it; only if there is none and the context does not hold the value, those listed after.
        """
        writers = self.overlapping(place, other_than=by)
        earlier = tuple(writer for writer in writers if writer < by)
        if earlier or not writers or holds(place):
            return earlier
        return tuple(writers)


def places_read(call: Call) -> tuple[Reference, ...]:
    """Every place a call waits for: those its parameters read, and its narrow scopes (SPEC R8.3a)."""
    references = [reference for _, expression in call.reads for reference in expression.references]
    return tuple(dict.fromkeys((*references, *call.slices)))


def uncertain_places(calls: Iterable[Call], writers: Writers) -> tuple[Reference, ...]:
    """The places whose readers wait or not, or can run or not, by what the initial context holds."""
    return tuple(
        dict.fromkeys(
            place
            for call in calls
            for place in places_read(call)
            if not any(writer < call.index for writer in writers.overlapping(place, other_than=call.index))
        )
    )


def build_graph(calls: Iterable[Call], writers: Writers, holds: Holds) -> Graph:
    """The graph of a lane's own calls (SPEC R6.1)."""
    return Graph(
        {
            call.index: {place: writers.awaited(place, holds, by=call.index) for place in places_read(call)}
            for call in calls
        }
    )


def unsatisfiable(call: Call, writers: Writers, holds: Holds) -> list[tuple[str, Expression]]:
    """The expressions that no value of the context and no other call can satisfy, with their places (SPEC R6.3)."""

    def possible(place: Reference) -> bool:
        return holds(place) or bool(writers.overlapping(place, other_than=call.index))

    if call.is_thought:
        return []
    return [
        (at, expression)
        for at, expression in call.reads
        if not any(all(map(possible, group)) for group in expression.alternatives)
    ]
