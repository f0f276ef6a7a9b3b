"""Simulation: a checked plan run in the pure engine, on values made up from the schemas (SPEC R6.7).

Nothing is carried out. Every call succeeds at once with what is invented for it (`inventions`). It chooses its first
alternative unless told otherwise; what is decided from there on (skips, conflicts, refused parameters) is decided by
the very code that decides it in a real run. The same plan always gives the same simulation.

Of very many instances only the first are run: they differ in their data alone.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from protocol.calls.call import Call
from protocol.engine.execution import Execution, Outcome, Status
from protocol.graph.lanes import Lane
from protocol.language.paths import lookup, nest, parts_of
from protocol.language.references import Reference
from protocol.schemas.steps import count
from protocol.state.context import Context
from protocol.submission.layout import Layout, Promised

from .inventions import Inventions, path_of
from .samples import sample

DATE: Final = "2026-01-01T00:00:00Z"
"""The date in every message: a simulation knows no clock."""
MOST_CALLS: Final = 5_000
"""Calls run in one simulation, unless those that are global, or of the first instance, are more."""
MOST_ALTERNATIVES: Final = 64
MOST_TRIED: Final = 10_000
"""Calls run in one `branch_effects` over all alternatives."""

MOST_PARTS: Final = 5_000_000
"""Values, with all that they hold, that calls read from the context in one simulation: some seconds of copying."""

_PARTS_PER_STEP: Final = 10
"""As many parts are copied in the time of one step (see `schemas.steps`)."""
_MESSAGES_PER_CALL: Final = 5
"""As many messages are read in the time of one call."""
_PARTS_PER_CALL: Final = 500
"""As many parts are copied in the time of one call."""
_NOTHING: Final = {"type": "meta"}
"""Stands for a message that nobody here can see: the others keep their numbers."""


@dataclass(frozen=True, slots=True)
class SimulatedCall:
    """What became of one call in one instance."""

    index: int
    tool: str
    instance: str | None
    status: Status
    reason: str | None = None
    error: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As a run's document has it."""
        return {
            "index": self.index,
            "tool": self.tool,
            "instance": self.instance,
            "status": self.status.value,
            "reason": self.reason,
            "error": dict(self.error) if self.error is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a run would leave behind: data by reader (None is the global one), and the calls' ends."""

    data: Mapping[str | None, Mapping[str, Any]]
    calls: tuple[SimulatedCall, ...]
    unfit: tuple[str, ...] = ()
    """The tools whose made-up results do not fit their own `_output`, so that it was not applied."""
    left_out: int = 0
    """How many instances have calls that were not run, beyond `MOST_CALLS`."""
    parts: int = 0
    """How much the calls read from the context."""
    calls_left_out: int = 0
    """How many calls were not run, since together with those before them they read more than `MOST_PARTS`."""

    @property
    def skipped(self) -> tuple[int, ...]:
        """The calls that were skipped in any instance."""
        return tuple(dict.fromkeys(call.index for call in self.calls if call.status is Status.SKIPPED))


@dataclass(frozen=True, slots=True)
class BranchEffect:
    """What follows where a call chooses one alternative, all others choosing their first."""

    call: int
    alternative: str
    skipped: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"call": self.call, "alternative": self.alternative, "skipped": list(self.skipped)}


def simulate(layout: Layout, choices: Mapping[int, int] | None = None) -> Simulation:
    """Run a layout on made-up values; `choices` says of some calls which of their alternatives (from 0) they take."""
    return _Run(layout, Inventions(layout, choices=choices)).to_end()


def tried(
    layout: Layout,
    trial: int,
    most_calls: int,
    *,
    choices: Mapping[int, int | None] | None = None,
    favoured: Container[int] = (),
) -> Simulation:
    """Run a layout on other values, alternatives, exceptions and orders than another trial; see `inventions`.

    `choices` says of some calls which of their alternatives (from 0) they take, None being an exception; results are
    made up such as those `favoured` need, before others that read them.
    """
    return _Run(layout, Inventions(layout, trial, choices, favoured), most_calls).to_end()


def branch_effects(plan: Layout, usual: Simulation) -> Iterator[BranchEffect]:
    """Every alternative of every call that has several, and what is skipped where it is chosen.

    `usual` is the simulation in which all choose their first. Ends after `MOST_ALTERNATIVES`, or where all simulations
    together would run more than `MOST_TRIED` calls.
    """
    left = MOST_TRIED
    effort = len(usual.calls) + len(plan.submission.context) // _MESSAGES_PER_CALL + usual.parts // _PARTS_PER_CALL
    run = {call.index for call in usual.calls}
    concerned = (chosen for chosen in alternatives(plan) if chosen[0].index in run)
    for call, number in islice(concerned, MOST_ALTERNATIVES):
        skipped = usual.skipped
        if number > 0:
            if (left := left - effort) < 0:
                return
            skipped = _Run(plan, Inventions(plan, choices={call.index: number})).to_end().skipped
        yield BranchEffect(call.index, path_of(call, number), skipped)


def alternatives(plan: Layout) -> Iterator[tuple[Call, int]]:
    """The calls that choose between places to write to, each with the numbers of its alternatives."""
    for call in plan.calls:
        groups = call.output.alternatives if call.output is not None else ()
        if len(groups) > 1:
            yield from ((call, number) for number in range(len(groups)))


class _Run:
    """One simulation: a context that grows, and an execution for each lane."""

    def __init__(self, plan: Layout, inventions: Inventions, most_calls: int = MOST_CALLS) -> None:
        self._plan = plan
        self._inventions = inventions
        self._lanes = first_lanes(plan, most_calls)
        self._left_out = plan.lanes.keys() - self._lanes.keys()
        seen = (_NOTHING if m.get("_instance") in self._left_out else m for m in plan.submission.context)
        self._context = Context(seen)
        for promised in plan.promised:
            if promised.instance not in self._left_out:
                self._context.append(_kept(promised))
        self._effort = _Effort(self._context)
        self._run = {
            name: [call for call in lane.calls if self._effort.admits(name, call)] for name, lane in self._lanes.items()
        }
        count(self._effort.parts // _PARTS_PER_STEP)  # a trial that leaves calls out is given up
        self._executions = {
            name: Execution(self._run[name], lane.graph, self._context.fold(name), inventions.tools, instance=name)
            for name, lane in self._lanes.items()
        }
        self._awaiting = self._waits_for_global_calls()
        self._undecided = dict.fromkeys(self._lanes)
        self._started: list[tuple[str | None, Call]] = []
        self._ends: dict[tuple[str | None, int], Outcome] = {}

    def to_end(self) -> Simulation:
        """Decide and carry out until nothing is left to decide."""
        while self._decide() or self._finish():
            pass
        calls = tuple(self._call(instance, call) for instance, lane in self._lanes.items() for call in lane.calls)
        data = {instance: self._context.data(instance) for instance in (None, *self._context.instances)}
        unfit, left_out = tuple(self._inventions.unfit), len(self._left_out)
        calls_left_out = sum(len(lane.calls) - len(self._run[name]) for name, lane in self._lanes.items())
        ordered = tuple(sorted(calls, key=lambda call: call.index))
        return Simulation(data, ordered, unfit, left_out, self._effort.parts, calls_left_out)

    def _waits_for_global_calls(self) -> dict[int, list[str | None]]:
        """Global call -> the instances that wait for it."""
        found: dict[int, list[str | None]] = {}
        shared = {call.index for call in self._lanes[None].calls} if None in self._lanes else set()
        for instance, lane in self._lanes.items():
            for index in lane.graph.awaited & shared if instance is not None else ():
                found.setdefault(index, []).append(instance)
        return found

    def _decide(self) -> bool:
        """Start what can be started, in the first lane where something may be decided."""
        if not self._undecided:
            return False
        instance = next(iter(self._undecided))
        decisions = self._executions[instance].decide(DATE)
        if not decisions:
            del self._undecided[instance]
        for decision in decisions:
            if isinstance(decision, Outcome):
                self._commit(instance, decision)
            else:
                self._executions[instance].record(decision.call.index, Status.RUNNING)
                self._started.append((instance, decision.call))
        return True

    def _finish(self) -> bool:
        """Finish the calls at work that end next, if there are any."""
        if not self._started:
            return False
        for instance, call in self._inventions.ending(self._started):
            result = self._inventions.result(call, self._context.fold(instance))
            self._commit(instance, self._executions[instance].finish(call.index, result, DATE))
        return True

    def _commit(self, instance: str | None, outcome: Outcome) -> None:
        for message in outcome.messages:
            self._context.append(message)
        self._ends[instance, outcome.index] = outcome
        others = self._awaiting.get(outcome.index, ()) if instance is None else ()
        for name in (instance, *others):
            self._executions[name].record(outcome.index, outcome.status)
            self._undecided[name] = None

    def _call(self, instance: str | None, call: Call) -> SimulatedCall:
        end = self._ends.get((instance, call.index))
        if end is None:
            return SimulatedCall(call.index, call.tool, instance, Status.WAITING)
        return SimulatedCall(call.index, call.tool, instance, end.status, end.reason, end.error)


def _kept(promised: Promised) -> dict[str, Any]:
    """The message that keeps a promise, with a value that its schema admits (SPEC R6.3)."""
    instance = {} if promised.instance is None else {"_instance": promised.instance}
    return {"type": "input", **instance, "data": nest(sample(promised.schema), promised.place.path)}


class _Effort:
    """How much of a context is copied for the calls that read it, until that is too much."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sizes: dict[tuple[str | None, Reference], int] = {}
        self.parts = 0

    def admits(self, instance: str | None, call: Call) -> bool:
        """Whether a call can be run too; then what it reads is counted."""
        if self.parts > MOST_PARTS:
            return False
        for _, expression in call.reads:
            self.parts += max(self._size(instance, place) for place in expression.references)
        return self.parts <= MOST_PARTS

    def _size(self, instance: str | None, place: Reference) -> int:
        if (instance, place) not in self._sizes:
            value = lookup(self._context.fold(instance).root(place.kind), place.path)
            self._sizes[instance, place] = sum(1 for _ in parts_of(value))
        return self._sizes[instance, place]


def first_lanes(plan: Layout, most_calls: int) -> dict[str | None, Lane]:
    """The lanes that are run, the global one first, and of the others at least one."""
    lanes = sorted(plan.lanes.values(), key=lambda lane: lane.instance is not None)
    left = most_calls
    found: dict[str | None, Lane] = {}
    for lane in lanes:
        left -= len(lane.calls)
        if left < 0 and found.keys() - {None}:
            break
        found[lane.instance] = lane
    return found
