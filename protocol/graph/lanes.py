"""Lanes: the calls of a submission laid out by where they run (SPEC R6.1-R6.3, R10.1, R10.2).

A *lane* is what one instance runs, or what runs globally. Lanes share nothing but the global values, so each can be
executed by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from protocol.calls.call import Call
from protocol.language.errors import Problem, pointer
from protocol.language.references import Reference
from protocol.state.context import Context
from protocol.submission.submission import Pointer, Submission

from .graph import Graph
from .holdings import Holdings
from .waits import Waits
from .writers import Writers


@dataclass(frozen=True, slots=True)
class Lane:
    """The calls of one instance (or the global ones), and what they wait for."""

    instance: str | None
    calls: tuple[Call, ...]
    graph: Graph
    held: frozenset[Reference] = frozenset()
    """The places, of those that make a difference to the graph, that the initial context holds."""


def runs(submission: Submission, calls: Iterable[Call]) -> int:
    """How many calls will run over all instances, found without laying them out."""
    if not submission.is_template or not submission.instances:
        return sum(1 for _ in calls)
    return sum(len(submission.instances) if call.instance is None else 1 for call in calls)


def lay_out(
    submission: Submission,
    context: Context,
    calls: Iterable[Call],
    begun: Mapping[str | None, Sequence[Call]] | None = None,
) -> tuple[dict[str | None, Lane], list[Problem]]:
    """The lanes: a plan's calls once for each instance, a solution's where each says (SPEC R10.1, R10.2).

    `begun` are calls at work, by instance: they may still write, and wait for nobody.
    """
    begun = begun or {}
    own: dict[str | None, list[Call]] = {}
    for call in calls:
        own.setdefault(call.instance, []).append(call)
    shared: tuple[Call, ...] = ()
    if submission.is_template and submission.instances:
        everywhere = own.pop(None, [])
        own = {instance: _merged(everywhere, own.get(instance)) for instance in submission.instances}
    else:
        shared = tuple(own.get(None, ()))
        known = {None, *submission.instances}
        own = {instance: members for instance, members in own.items() if instance in known}
    places = {index: at for index, at, _ in submission.numbered}
    builder = _Builder(context, shared, places, begun)
    lanes = {
        instance: builder.lane(instance, [*members] if begun.get(instance) else members)
        for instance, members in own.items()
    }
    return lanes, list(builder.problems)


def _merged(everywhere: list[Call], pinned: list[Call] | None) -> list[Call]:
    """A plan's calls for one instance, in the order listed; those of all instances are one and the same list."""
    return sorted([*everywhere, *pinned], key=lambda call: call.index) if pinned else everywhere


class _Builder:
    """Builds lanes; those of the same calls, whose contexts hold the same places, share one graph."""

    def __init__(
        self,
        context: Context,
        shared: Sequence[Call],
        places: Mapping[int, Pointer],
        begun: Mapping[str | None, Sequence[Call]],
    ) -> None:
        self.problems: dict[Problem, None] = {}
        self._context = context
        self._places = places
        self._begun = begun
        self._shared = Writers((*begun.get(None, ()), *shared))
        self._members: dict[int, _Members] = {}

    def lane(self, instance: str | None, calls: list[Call]) -> Lane:
        """The lane of an instance."""
        if id(calls) not in self._members:
            self._members[id(calls)] = self._read(instance, calls)
        members = self._members[id(calls)]
        held = members.holdings.of(self._context.fold(instance))
        if held not in members.graphs:
            graph = members.graphs[held] = members.waits.graph(held)
            self._note(self._unsatisfiable(instance, members, held))
            self._note(self._cycles(graph, members))
        return Lane(instance, members.calls, members.graphs[held], held)

    def _read(self, instance: str | None, calls: list[Call]) -> _Members:
        own = (*self._begun.get(instance, ()), *calls)
        waits = Waits(calls, self._shared if instance is None else Writers(own, self._shared))
        return _Members(calls, tuple(calls), waits, Holdings(waits.uncertain, self._context.fold()))

    def _note(self, problems: Iterable[Problem]) -> None:
        self.problems.update(dict.fromkeys(problems))

    def _unsatisfiable(self, instance: str | None, members: _Members, held: Set[Reference]) -> Iterator[Problem]:
        where = f" in instance {instance!r}" if instance is not None else ""
        for call, at, expression in members.waits.unsatisfiable(held):
            yield Problem(
                pointer(*self._places[call.index]) + at,
                f"nothing can bring {expression}: the context does not hold it{where} and no other call writes it",
            )

    def _cycles(self, graph: Graph, members: _Members) -> Iterator[Problem]:
        tools = {call.index: call.tool for call in members.calls} if members.waits.may_circle else {}
        for cycle in graph.cycles() if members.waits.may_circle else ():
            chain = " waits for ".join(f"call {index} ({tools[index]})" for index in (*cycle, cycle[0]))
            yield Problem(pointer(*self._places[cycle[0]]), f"the calls wait for each other in a cycle: {chain}")


@dataclass(frozen=True, slots=True)
class _Members:
    """The calls of a lane or of many, and what can be said of them whatever the context holds."""

    key: list[Call]
    """Kept so that its identity stays its own."""
    calls: tuple[Call, ...]
    waits: Waits
    holdings: Holdings
    graphs: dict[frozenset[Reference], Graph] = field(default_factory=dict)
    """By the uncertain places that are held."""
