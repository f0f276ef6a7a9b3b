"""Trials: calls that succeed in none of many runs on made-up results (SPEC R6.5, R6.6, R6.7).

What no proof tells may still be seen: a plan is run again and again (see `simulation`), each time on other results that
the schemas admit, with other branches, exceptions and orders. A call that never succeeds is told, with what happened
first. That proves nothing, and it is told as what it is: only where all that the call hangs on has a schema of which
anything can be made up, and not of what only follows from another finding.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Final

from protocol.calls import Call
from protocol.inventions import ways_of
from protocol.layout import Layout
from protocol.paths import MISSING, parts_of
from protocol.references import Reference
from protocol.schemas import compiled
from protocol.schemas.steps import TooCostly, bounded, spent
from protocol.simulation import SimulatedCall, first_lanes, tried
from protocol.statuses import Status

from .effects import result_schema
from .finding import FAILURES, Finding
from .instances import Tally
from .sight import Sight, Sights

MOST_TRIALS: Final = 48
_LEAST_TRIALS: Final = 16
"""Fewer show nothing, nor do fewer of one way."""
_MOST_CALLS: Final = 40
"""Of many instances so many calls are tried; of one lane as many as the effort allows."""
_MOST_EFFORT: Final = 5_000
"""Calls run over all trials, and twice as many for those that are lost; what else takes time is counted as calls."""
_MOST_STEPS: Final = 300_000
_MOST_READERS: Final = 8
"""Where more read one result, each of them may need another one."""
_MOST_ELEMENTS: Final = 2
"""Longer lists are made up too seldom."""
_SUCCESSES: Final = frozenset({Status.DONE, Status.SENT, Status.LATENT})

_INTRICATE: Final = frozenset({
    "$dynamicRef", "$ref", "allOf", "anyOf", "contains", "dependentRequired", "dependentSchemas", "else", "format",
    "if", "maxContains", "minContains", "multipleOf", "not", "oneOf", "pattern", "patternProperties", "prefixItems",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
})  # fmt: skip
"""Keywords of schemas of which a sample is a matter of luck."""

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
        if run in trials.lost and _is_shown(layout, sight, trials.lost[run]):
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

    def _run(self, trial: int, choices: Mapping[int, int | None], favoured: Container[int]) -> None:
        try:
            with bounded(_MOST_STEPS):
                calls = tried(self._layout, trial, _MOST_CALLS, choices=choices, favoured=favoured).calls
        except TooCostly:
            calls = ()
        if spent() - self._began > _MOST_STEPS:
            calls = ()
        ended = {(call.instance, call.index): call for call in calls if call.status not in _SUCCESSES}
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


def _is_shown(layout: Layout, sight: Sight, end: SimulatedCall) -> bool:
    """Whether a failure says something of the plan, and not only of what was made up."""
    call = sight.calls[end.index]
    read = [place for expression in call.expressions for place in expression.references]
    written = call.written
    elements = [segment for place in (*read, *written) for segment in place.path if isinstance(segment, int)]
    behind = [sight.calls[index] for index in sight.order.behind(call.index) if index in sight.calls]
    if any(map(_reads_errors, (call, *behind))) or max(elements, default=0) >= _MOST_ELEMENTS:
        return False
    if any(len(layout.readers.get(before.index, ())) > _MOST_READERS for before in behind):
        return False
    if end.error is None:
        return not elements and all(_is_simple(sight, before) for before in behind)
    tool = sight.tools.get(call.tool)
    match end.error["type"]:
        case "InvalidParameters":
            return _is_plain(tool.declaration if tool is not None else True) and all(
                _is_known(sight, sight.calls[index], place)
                for place in read
                for line in sight.writers.lines(place)
                for index in line.calls
                if index != call.index
            )
        case "OutputError":
            return len(written) == 1 and _is_simple(sight, call)
    return True


def _is_simple(sight: Sight, call: Call) -> bool:
    """Whether all schemas that hold for a result are plain."""
    kinds = [schema for place in call.written if (schema := sight.fold.schema(place.kind)) is not MISSING]
    return all(map(_is_plain, (*kinds, result_schema(call, sight.tools, sight.delegates))))


def _is_known(sight: Sight, writer: Call, read: Reference) -> bool:
    """Whether anything can be made up that a call may leave where another one reads.

    What it writes inside of that place is made up as the reader takes it.
    """
    schema = result_schema(writer, sight.tools, sight.delegates)
    if writer.given is MISSING and schema in (True, {}):
        places = [place for place in writer.written if place.overlaps(read) and len(place.path) <= len(read.path)]
        kinds = [(sight.fold.schema(place.kind), place.path) for place in places]
        return all(kind is not MISSING and _is_plain(kind) and compiled(kind).parts(path) for kind, path in kinds)
    return writer.given is not MISSING or _is_plain(schema)


def _is_plain(schema: Any) -> bool:
    """Whether a schema says nothing but what samples are made by."""
    return all(_INTRICATE.isdisjoint(part) for part in parts_of(schema) if isinstance(part, dict))


def _reads_errors(call: Call) -> bool:
    return any(place.kind == FAILURES for expression in call.expressions for place in expression.references)
