"""Lanes: the calls of a submission laid out by where they run (SPEC R6.1-R6.3, R10.1, R10.2).

A *lane* has the calls of one instance, or the global ones. Lanes share nothing but the global values, so each can run
by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from ..calls.call import Call
from ..errors import Cause
from ..messages import ERROR, EVERYWHERE
from ..references import Expression, Reference
from ..state.context import Context
from .graph import Graph, Writers
from .places import Holdings, Promises
from .waits import CrossLaneGraph, Gathers, Waits

_NEXT_TICK: Final = "; the errors of a tick's calls can be read in the next tick"
_LISTED_BEHIND: Final = "; a call reads the errors of the calls of its instance that are listed before it"


@dataclass(frozen=True, slots=True)
class Lane:
    """The calls of one instance (or the global ones), and what they wait for."""

    instance: str | None
    calls: tuple[Call, ...]
    graph: Graph
    held: frozenset[Reference] = frozenset()
    """The places that the initial context holds, among those on which the graph depends."""
    promised: frozenset[Reference] = frozenset()
    """The places that its calls read and that are promised, without a value yet (SPEC R6.3)."""
    required: frozenset[Reference] = frozenset()
    """The places without a value that promises require and scopes of its calls cover."""
    unsatisfiable: tuple[Unresolvable, ...] = ()
    """The expressions that its calls can never read, where these are no errors (SPEC R6.3a).

    Lanes of one graph share them, so their `instance` may be the instance of any of these lanes.
    """
    gathers: Gathers | None = None
    """The gather calls that wait in the lane of an instance, where there are any (SPEC R10.4)."""

    @property
    def awaited(self) -> frozenset[int]:
        """Every call that its calls, and the gather calls in it, wait for, also through barriers."""
        return self.graph.awaited | (self.gathers.graph.awaited if self.gathers is not None else frozenset())

    @property
    def promised_places(self) -> tuple[Reference, ...]:
        """The promised places that its calls, and the gather calls in it, wait for (SPEC R6.3)."""
        gathered = self.gathers.graph.promises.values() if self.gathers is not None else ()
        return *self.graph.promises.values(), *gathered


@dataclass(frozen=True, slots=True)
class Unresolvable(Cause):
    """An expression of a call that no value of the context, no other call and no promise can satisfy (SPEC R6.3)."""

    call: int
    at: str
    """The JSON pointer of the expression in the call."""
    expression: Expression
    instance: str | None
    is_in_loop: bool = False

    def __str__(self) -> str:
        where = "the context" if self.instance is None else f"the context of instance {self.instance!r}"
        hint = ""
        if any(place.kind == ERROR for place in self.expression.references):
            hint = _NEXT_TICK if self.is_in_loop else _LISTED_BEHIND
        return f"unresolvable reference {self.expression}: it is not in {where} and no other call writes it{hint}"


@dataclass(frozen=True, slots=True)
class Cycle(Cause):
    """Calls that wait for each other in a circle, in the order in which they wait (SPEC R6.2)."""

    calls: tuple[int, ...]
    tools: tuple[str, ...]

    def __str__(self) -> str:
        names = [f"call {index} ({tool})" for index, tool in zip(self.calls, self.tools, strict=True)]
        return f"the calls wait for each other in a cycle: {' waits for '.join([*names, names[0]])}"


def runs(calls: Iterable[Call], *, instances: Sequence[str], is_template: bool) -> int:
    """The number of calls that will run over all instances."""
    everywhere = None if is_template and instances else EVERYWHERE
    return sum(len(instances) if call.instance == everywhere and not call.gather else 1 for call in calls)


def lay_out(
    calls: Iterable[Call],
    context: Context,
    *,
    instances: Sequence[str],
    is_template: bool,
    is_partial: bool = False,
    is_in_loop: bool = False,
    begun: Mapping[str | None, Sequence[Call]] | None = None,
) -> tuple[dict[str | None, Lane], list[Unresolvable | Cycle]]:
    """The lanes, and what keeps their calls from running (SPEC R10.1, R10.2).

    A plan's calls run once for each instance, a solution's where each says. `begun` are calls at work, by instance:
    they may still write, and wait for no call. With `is_in_loop` the errors of calls come when all have ended, so none
    waits for one (SPEC R13.1). With `is_partial` values that instances lack are noted with their lanes, and are no
    obstacle (SPEC R6.3a).
    """
    begun = begun or {}
    own: dict[str | None, list[Call]] = {}
    for call in calls:
        own.setdefault(call.instance, []).append(call)
    shared: tuple[Call, ...] = ()
    gathers: tuple[Call, ...] = ()
    if is_template and instances:
        everywhere = own.pop(None, [])
        gathers = tuple(call for call in everywhere if call.gather)
        everywhere = [call for call in everywhere if not call.gather] if gathers else everywhere
        own = {instance: _merged(everywhere, own.get(instance)) for instance in instances}
        if gathers:
            own, shared = {None: [*gathers], **own}, gathers
    else:
        shared = tuple(own.get(None, ()))
        if everywhere := own.pop(EVERYWHERE, []):
            own |= {instance: _merged(everywhere, own.get(instance)) for instance in instances}
        known = {None, *instances}
        own = {instance: members for instance, members in own.items() if instance in known}
        gathers = tuple(call for call in shared if call.gather)
        empty: list[Call] = []
        for instance in instances if gathers else ():
            own.setdefault(instance, empty)
    builder = _Builder(context, shared, begun, is_partial=is_partial, is_in_loop=is_in_loop, gathers=gathers)
    lanes = {
        instance: builder.lane(instance, [*members] if begun.get(instance) else members)
        for instance, members in own.items()
    }
    if gathers:
        builder.join(lanes)
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
        begun: Mapping[str | None, Sequence[Call]],
        *,
        is_partial: bool,
        is_in_loop: bool,
        gathers: tuple[Call, ...],
    ) -> None:
        self.problems: dict[Unresolvable | Cycle, None] = {}
        self._context = context
        self._promises = Promises(context)
        self._is_partial = is_partial
        self._is_in_loop = is_in_loop
        self._gathers = gathers
        self._unread: list[set[Unresolvable]] = []
        self._begun = begun
        self._shared_calls = (*begun.get(None, ()), *shared)
        self._shared = Writers(self._shared_calls)
        self._members: dict[int, _Members] = {}

    def lane(self, instance: str | None, calls: list[Call]) -> Lane:
        """The lane of an instance."""
        if id(calls) not in self._members:
            self._members[id(calls)] = self._read(instance, calls)
        members = self._members[id(calls)]
        held = members.holdings.of(self._context.fold(instance))
        key = held, *self._promised(instance, members)
        if key not in members.graphs:
            graph = members.waits.graph(*key)
            missing = tuple(self._unresolvable(instance, members, held | key[1]))
            if instance is None or not self._is_partial:
                self._note(missing)
                missing = ()
            members.graphs[key] = graph, missing
            self._note(self._cycles(graph, members))
        graph, missing = members.graphs[key]
        gathers = self._gathered(instance, members) if self._gathers and instance is not None else None
        return Lane(instance, members.calls, graph, *key, missing, gathers)

    def join(self, lanes: Mapping[str | None, Lane]) -> None:
        """Note cycles through several lanes, and expressions that gather calls can read in no instance (SPEC R10.4)."""
        calls = {call.index: call for lane in lanes.values() for call in lane.calls}
        joined = CrossLaneGraph(
            ((lane.graph, lane.gathers) for lane in lanes.values()), {c.index for c in lanes[None].calls}
        )
        if not any(isinstance(problem, Cycle) for problem in self.problems):
            self._note(Cycle(cycle, tuple(calls[index].tool for index in cycle)) for cycle in joined.cycles())
        if self._unread:
            first, *others = self._unread
            nowhere: list[Unresolvable] = sorted(first.intersection(*others), key=lambda one: (one.call, one.at))
            self._note(nowhere)

    def _gathered(self, instance: str, members: _Members) -> Gathers:
        """The waits of the gather calls in a lane."""
        guests = members.guests
        if guests is None:
            own = (*self._begun.get(instance, ()), *members.calls)
            waits = Waits(self._gathers, self._writers(own, (*own, *self._shared_calls)), are_guests=True)
            guests = members.guests = _Guests(waits, Holdings(waits.uncertain, self._context.fold()))
        held = guests.holdings.of(self._context.fold(instance))
        key = held, *self._promised(instance, guests)
        if key not in guests.graphs:
            guests.graphs[key] = Gathers(self._gathers, guests.waits.graph(*key), *key)
            missing = guests.waits.unsatisfiable(held | key[1])
            self._unread.append({self._missing(*one, None) for one in missing})
        return guests.graphs[key]

    def _promised(
        self, instance: str | None, members: _Members | _Guests
    ) -> tuple[frozenset[Reference], frozenset[Reference]]:
        """The promised places without a value that the calls read, and those that promises require and scopes cover."""
        promises = self._promises.seen_by(instance) if self._promises.all else ()
        if not promises:
            return frozenset(), frozenset()
        fold = self._context.fold(instance)
        promised = frozenset(
            place
            for place in members.waits.inputs
            if any(promise.names(place) for promise in promises) and not fold.exists(place)
        )
        required = frozenset(place for promise in promises for place in promise.required(fold))
        return promised, members.waits.covered(required)

    def _read(self, instance: str | None, calls: list[Call]) -> _Members:
        own = (*self._begun.get(instance, ()), *calls) if instance is not None else ()
        waits = Waits(calls, self._writers(own, own if instance is not None else self._shared_calls))
        return _Members(calls, tuple(calls), waits, Holdings(waits.uncertain, self._context.fold()))

    def _writers(self, own: Sequence[Call], failing: Sequence[Call]) -> Writers:
        """Who writes in the lane of these calls, and whose errors are read there."""
        return Writers(own, self._shared, failing=() if self._is_in_loop else failing)

    def _note(self, problems: Iterable[Unresolvable | Cycle]) -> None:
        self.problems.update(dict.fromkeys(problems))

    def _unresolvable(self, instance: str | None, members: _Members, held: Set[Reference]) -> Iterator[Unresolvable]:
        for one in members.waits.unsatisfiable(held):
            yield self._missing(*one, instance)

    def _missing(self, call: Call, at: str, expression: Expression, instance: str | None) -> Unresolvable:
        return Unresolvable(call.index, at, expression, instance, self._is_in_loop)

    def _cycles(self, graph: Graph, members: _Members) -> Iterator[Cycle]:
        tools = {call.index: call.tool for call in members.calls} if members.waits.may_circle else {}
        for cycle in graph.cycles() if members.waits.may_circle else ():
            yield Cycle(cycle, tuple(tools[index] for index in cycle))


@dataclass(frozen=True, slots=True)
class _Guests:
    """The waits of the gather calls in the lanes of the same calls."""

    waits: Waits
    holdings: Holdings
    graphs: dict[tuple[frozenset[Reference], ...], Gathers] = field(default_factory=dict)
    """The uncertain places that are held, and what is promised and required -> the graph."""


@dataclass(slots=True)
class _Members:
    """The calls that one lane or several have, and what they wait for whatever the context holds."""

    key: list[Call]
    """The list of calls, kept so that no other gets its identity."""
    calls: tuple[Call, ...]
    waits: Waits
    holdings: Holdings
    graphs: dict[tuple[frozenset[Reference], ...], tuple[Graph, tuple[Unresolvable, ...]]] = field(default_factory=dict)
    """The uncertain places that are held, and what is promised and required -> the graph, and what is missing."""
    guests: _Guests | None = None
