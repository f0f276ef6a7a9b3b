"""Trials: calls that succeed in none of many runs on made-up results (SPEC R6.5, R6.6, R6.7).

What no proof tells may still be seen: a plan is run again and again (see `simulation`), each time on other results that
the schemas admit, with other branches, exceptions and orders. A call that never succeeds is told, with what happened
first. That proves nothing, and it is told as what it is: only where no other result could have helped, as far as can be
seen - every other trial is `lenient` about what results bring -, and not of what only follows from another finding.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import product
from math import prod
from typing import Final

from protocol.analysis.inventions import ways_of
from protocol.analysis.simulation import SimulatedCall, first_lanes, tried
from protocol.calls.call import Call
from protocol.engine.statuses import Status
from protocol.language.paths import MISSING, parts_of
from protocol.language.references import Reference
from protocol.schemas.steps import TooCostly, bounded, spent
from protocol.state.operations import Method
from protocol.submission.layout import Layout

from .finding import FAILURES, Finding
from .instances import Tally
from .leniency import lenient
from .sight import Sight, Sights
from .types import ALL_TYPES, json_types

MOST_TRIALS: Final = 48
_LEAST_TRIALS: Final = 16
"""Fewer show nothing, nor do fewer of one way."""
_MOST_CALLS: Final = 40
"""Of many instances so many calls are tried; of one lane as many as the effort allows."""
_MOST_EFFORT: Final = 5_000
"""Calls run over all trials, and twice as many for those that are lost; what else takes time is counted as calls."""
_MOST_STEPS: Final = 300_000
_MOST_ELEMENTS: Final = 2
"""Longer lists are made up too seldom."""
_LEFT: Final = {
    Method.PUSH: frozenset({"array"}),
    Method.CONCAT: frozenset({"array", "string"}),
    Method.MERGE: frozenset({"object"}),
    Method.ASSIGN: frozenset({"object"}),
}
"""What is where a method has added something; where one has set it, that is the result."""
_SUCCESSES: Final = frozenset({Status.DONE, Status.SENT, Status.LATENT})

Run = tuple[str | None, int]
"""An instance, and the index of a call."""


def trial_findings(layout: Layout, sights: Sights, told: Collection[int]) -> Iterator[Finding]:
    """The calls that never succeed, but for those told of and what follows from them."""
    trials = _Trials(layout, told)
    trials.at_random()
    tally = Tally(layout.calls, len(first_lanes(layout, _MOST_CALLS)))
    never = {*told, *(index for _, index in trials.lost)}
    for run in list(trials.lost):
        instance, index = run
        sight = sights.of(layout.lanes[instance])
        behind = sight.order.behind(index)
        if not never.isdisjoint(behind):
            continue
        trials.in_favour_of(run, [sight.calls[before] for before in sorted(behind & sight.calls.keys())])
        if run in trials.lost and _is_shown(sight, run, trials.ends[run]):
            tally.add(instance, [_finding(sight.calls[index], trials.lost[run], trials.number)])
    yield from tally.findings()


def _finding(call: Call, end: SimulatedCall, trials: int) -> Finding:
    failed = f"in one it failed: {end.error['message']}" if end.error is not None else ""
    what = failed or f"in the first it was skipped: {end.reason}"
    return Finding(
        "info",
        f"call {call.index} ({call.tool}) succeeded in none of {trials} trial runs on made-up results; {what}; if that "
        "is always so, change the path, the method or a schema",
        (call.index,),
    )


class _Trials:
    """Runs of a submission: first at random, then such as a call needs of which that may have missed the way to it."""

    def __init__(self, layout: Layout, told: Collection[int]) -> None:
        self._layout = layout
        self._told = told
        self._most = _MOST_EFFORT // _effort(layout)
        self._left = 2 * self._most
        self._favoured: set[tuple[int, frozenset[int]]] = set()
        self._began = spent()
        self.number = 0
        """How many there were."""
        self.lost: dict[Run, SimulatedCall] = {}
        """The calls that succeeded in none, each with how it ended in the first - in which it was run, if any."""
        self.ends: dict[Run, set[str | None]] = {}
        """How those that did not succeed ended where tools were lenient: the types of errors, None where skipped."""

    def at_random(self) -> None:
        """Run as often as the effort allows; if that is too seldom, not at all."""
        most = min(MOST_TRIALS, self._most)
        for trial in range(most if most >= _LEAST_TRIALS else 0):
            self._run(trial, {}, ())
            if not self.lost:
                break

    def in_favour_of(self, lost: Run, behind: Sequence[Call]) -> None:
        """Run in all ways in which the calls behind one that is lost can choose, on results such as it needs: one way
        of many is missed at random, and so are values that suit but one of several readers. Where there are too many
        ways, nobody can say that the call is lost.
        """
        favoured = frozenset((lost[1], *(call.index for call in behind)))
        if (lost[1], favoured) in self._favoured:
            return  # in another instance, with the same results
        self._favoured.add((lost[1], favoured))
        ways = [ways_of(call) for call in behind]
        self._left -= prod(map(len, ways)) * _LEAST_TRIALS
        if self._left < 0:
            del self.lost[lost]
            return
        for trial in range(_LEAST_TRIALS):
            for chosen in product(*ways):
                self._run(trial, {call.index: way for call, way in zip(behind, chosen, strict=True)}, favoured)
                if lost not in self.lost:
                    return

    @cached_property
    def _lenient(self) -> Layout:
        return lenient(self._layout)

    def _run(self, trial: int, choices: Mapping[int, int | None], favoured: Container[int]) -> None:
        try:
            with bounded(_MOST_STEPS):
                layout = self._layout if trial % 2 else self._lenient
                calls = tried(layout, trial, _MOST_CALLS, choices=choices, favoured=favoured).calls
        except TooCostly:
            calls = ()
        if spent() - self._began > _MOST_STEPS:
            calls = ()
        ended = {(call.instance, call.index): call for call in calls if call.status not in _SUCCESSES}
        for run, end in ended.items() if trial % 2 == 0 else ():
            self.ends.setdefault(run, set()).add(str(end.error["type"]) if end.error is not None else None)
        if not self.number:
            self.lost = {run: end for run, end in ended.items() if end.index not in self._told}
        else:
            still = {run: (end, ended[run]) for run, end in self.lost.items() if run in ended}
            self.lost = {run: now if end.error is None and now.error else end for run, (end, now) in still.items()}
        self.number += 1


def _effort(layout: Layout) -> int:
    """How much one trial takes: calls run, messages read or passed over, and values that each call may copy."""
    lanes = first_lanes(layout, _MOST_CALLS)
    calls = sum(len(lane.calls) for lane in lanes.values())
    messages = layout.submission.context
    seen = [message for message in messages if message.get("_instance") in (None, *lanes)]
    return 1 + calls + len(seen) // 5 + len(messages) // 50 + calls * sum(1 for _ in parts_of(seen)) // 1_000


def _is_shown(sight: Sight, lost: Run, ends: Set[str | None]) -> bool:
    """Whether the ways in which a call ended say something of the plan, and not only of what was made up."""
    call = sight.calls[lost[1]]
    behind = [sight.calls[index] for index in sight.order.behind(call.index) if index in sight.calls]
    if any(map(_reads_errors, (call, *behind))) or _reaches_far_into_lists(call):
        return False
    faults = ends - {"Exception"}
    return (
        bool(faults)
        and all(_is_sure(sight, before, call) for before in behind)
        and all(_is_plans_fault(sight, call, end) for end in faults)
    )


def _is_plans_fault(sight: Sight, call: Call, end: str | None) -> bool:
    """Whether what was made up had no part in the end of a call: the type of its error, or None where it was skipped.

    What a lenient layout refuses, no result can mend.
    """
    match end:
        case None:
            return not any(_is_inside(sight, call, place) for place in _read(call))
        case "InvalidParameters" | "OutputError":
            return True
        case "Conflict":
            return all(_never_takes(sight, call, place) for place in call.written)
    return False


def _is_sure(sight: Sight, call: Call, lost: Call) -> bool:
    """Whether a call behind a lost one had what it needs, and could write, whatever was made up."""
    return not any(_is_inside(sight, call, place) for place in _read(call)) and all(
        writer is lost for place in call.written for writer, _ in _bases(sight, call, place)
    )


def _is_inside(sight: Sight, call: Call, place: Reference) -> bool:
    """Whether a place lies inside of what some other call gives, and so may be there or not."""
    kind = sight.fold.schema(place.kind)
    if kind is not MISSING and sight.memory.shape(kind, place.path).is_impossible:
        return False
    return any(
        not sight.memory.result(writer).at(place.path[len(above.path) :]).is_impossible
        for writer, above in _around(sight, call, place)
        if above != place
    )


def _never_takes(sight: Sight, call: Call, place: Reference) -> bool:
    """Whether nothing that other calls give can be such that a call may write there as it does."""
    bases = list(_bases(sight, call, place))
    if not bases and call.method not in (Method.SET, Method.PUSH):
        return len(types := json_types(sight.memory.result(call).types)) == 1 or types == json_types(ALL_TYPES)
    return all(
        _LEFT.get(writer.method, sight.memory.result(writer).types).isdisjoint(_taking(call, place, above))
        for writer, above in bases
    )


def _bases(sight: Sight, call: Call, place: Reference) -> Iterator[tuple[Call, Reference]]:
    """The other calls on whose results it hangs whether a call can write at a place, and where they write them."""
    for writer, above in _around(sight, call, place):
        if above != place or (call.method is not Method.SET and writer.method in (Method.SET, Method.CONCAT)):
            yield writer, above


def _around(sight: Sight, call: Call, place: Reference) -> Iterator[tuple[Call, Reference]]:
    """The other calls whose results are at a place or around it, and where they write them."""
    for index in {index for line in sight.writers.lines(place) for index in line.calls} - {call.index}:
        writer = sight.calls[index]
        if writer.given is MISSING:
            yield from ((writer, above) for above in writer.written if place.key[: len(above.key)] == above.key)


def _taking(call: Call, place: Reference, above: Reference) -> frozenset[str]:
    """What has to be at a place or one above it, so that a call can write there as it does."""
    below = place.path[len(above.path) :]
    if below:
        return frozenset({"object"} if isinstance(below[0], str) else {"object", "array"})
    return _LEFT.get(call.method, frozenset())


def _read(call: Call) -> list[Reference]:
    return [place for expression in call.expressions for place in expression.references]


def _reaches_far_into_lists(call: Call) -> bool:
    """Whether a call reads or writes an element that the lists of trials are too short for."""
    places = (*_read(call), *call.written)
    return any(isinstance(segment, int) and segment >= _MOST_ELEMENTS for place in places for segment in place.path)


def _reads_errors(call: Call) -> bool:
    return any(place.kind == FAILURES for expression in call.expressions for place in expression.references)
