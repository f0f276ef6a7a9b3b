"""Trials: calls that succeed in none of many runs on made-up results (SPEC R6.5, R6.6, R6.7).

What no proof tells may still be seen: a plan is run again and again (see `simulation`), each time on other results that
the schemas admit, with other branches, exceptions and orders. A call that never succeeds is told, with what happened
first. That proves nothing, and it is told as what it is: only where all that the call hangs on has a schema of which
anything can be made up, and not of what only follows from another finding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from typing import Any, Final

from protocol.calls import Call
from protocol.layout import Layout
from protocol.paths import MISSING, parts_of
from protocol.references import Reference
from protocol.schemas import compiled
from protocol.schemas.steps import TooCostly, bounded, spent
from protocol.simulation import SimulatedCall, first_lanes, tried
from protocol.statuses import Status
from protocol.tools import Executor

from .effects import result_schema
from .finding import FAILURES, Finding
from .instances import Tally
from .sight import Sight, Sights

MOST_TRIALS: Final = 48
_LEAST_TRIALS: Final = 16
"""Fewer show nothing."""
_MOST_CALLS: Final = 40
"""Of many instances so many calls are tried; of one lane as many as the effort allows."""
_MOST_EFFORT: Final = 5_000
"""Calls run over all trials; what else takes time is counted as calls."""
_MOST_STEPS: Final = 300_000
_MOST_READERS: Final = 8
"""Where more read one result, each of them may need another one."""
_MOST_ELEMENTS: Final = 2
"""Longer lists are made up too seldom."""
_MOST_WAYS: Final = 8
"""A call that is skipped is told where those before it choose in so many ways at most: all of them were tried."""
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
    trials, lost = _tried(layout, told)
    tally = Tally(layout.calls, len(first_lanes(layout, _MOST_CALLS)))
    never = {*told, *(index for _, index in lost)}
    for (instance, index), end in lost.items():
        sight = sights.of(layout.lanes[instance])
        if never.isdisjoint(sight.order.behind(index)) and _is_shown(layout, sight, end):
            tally.add(instance, [_finding(sight.calls[index], end, trials)])
    yield from tally.findings()


def _finding(call: Call, end: SimulatedCall, trials: int) -> Finding:
    why = f"failed: {end.error['message']}" if end.error is not None else f"was skipped: {end.reason}"
    return Finding(
        "info",
        f"call {call.index} ({call.tool}) succeeded in none of {trials} trial runs on made-up results; in the first it "
        f"{why}; if that is always so, change the path, the method or a schema",
        (call.index,),
    )


def _tried(layout: Layout, told: Collection[int]) -> tuple[int, dict[Run, SimulatedCall]]:
    """How many trials there were, and the calls that succeeded in none, with how they ended in the first."""
    number = min(MOST_TRIALS, _MOST_EFFORT // _effort(layout))
    lost: dict[Run, SimulatedCall] | None = None
    began = spent()
    for trial in range(number if number >= _LEAST_TRIALS else 0):
        try:
            with bounded(_MOST_STEPS):
                simulation = tried(layout, trial, _MOST_CALLS)
        except TooCostly:
            return trial, {}
        if spent() - began > _MOST_STEPS:
            return trial, {}
        failed = {
            (call.instance, call.index): call
            for call in simulation.calls
            if call.status not in _SUCCESSES and call.index not in told
        }
        lost = failed if lost is None else {run: end for run, end in lost.items() if run in failed}
        if not lost:
            break
    return number, lost or {}


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
    if any(place.kind == FAILURES for place in read) or max(elements, default=0) >= _MOST_ELEMENTS:
        return False
    behind = [sight.calls[index] for index in sight.order.behind(call.index) if index in sight.calls]
    if any(len(layout.readers.get(before.index, ())) > _MOST_READERS for before in behind):
        return False
    if end.error is None:
        return not elements and prod(map(_ways, behind)) <= _MOST_WAYS and all(_is_simple(sight, c) for c in behind)
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


def _ways(call: Call) -> int:
    """In how many ways a call can end well."""
    several = len(call.output.alternatives) if call.output is not None else 1
    return several if several == 1 else several + 1 if call.runner.executor is Executor.ACTIVITY else 2
