"""Trials: calls that succeed in none of many runs on made-up results (SPEC R6.5, R6.6, R6.7).

What no proof tells may still be seen: a plan is run again and again (see `simulation`), each time on other results that
the schemas admit, with other branches, exceptions and orders. A call that never succeeds is told, with what happened
first. That proves nothing, and it is told as what it is; nothing is told where nothing could be made up that a schema
admits, nor of what only follows from another finding.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from math import prod
from typing import Any, Final

from protocol.calls import Call
from protocol.errors import segments
from protocol.inventions import MOST_TRIED, fitting_sample
from protocol.layout import Layout
from protocol.paths import MISSING
from protocol.schemas import Schema
from protocol.schemas.steps import bounded, spent
from protocol.simulation import SimulatedCall, first_lanes, tried
from protocol.statuses import Status
from protocol.tools import Executor
from protocol.variety import Variety

from .effects import delegate_schema
from .effort import is_spent
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
_SAMPLED: Final = 8
"""Of so many varieties samples are made of a schema."""
_MOST_MADE: Final = 1_000
"""Of so many calls it is looked whether a result can be made up at all."""
_MOST_WAYS: Final = 8
"""A call that is skipped is told where those before it choose in so many ways at most: all of them were tried."""
_SUCCESSES: Final = frozenset({Status.DONE, Status.SENT, Status.LATENT})

Run = tuple[str | None, int]
"""An instance, and the index of a call."""


def trial_findings(layout: Layout, sights: Sights, told: Collection[int]) -> Iterator[Finding]:
    """The calls that never succeed, but for those told of and what follows from them."""
    yield from _unmade(layout, told)
    trials, lost = _tried(layout, told)
    tally = Tally(layout.calls, len(first_lanes(layout, _MOST_CALLS)))
    never = {*told, *(index for _, index in lost)}
    for (instance, index), end in lost.items():
        sight = sights.of(layout.lanes[instance])
        if never.isdisjoint(sight.order.behind(index)) and _is_shown(sight, end):
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


def _unmade(layout: Layout, told: Collection[int]) -> Iterator[Finding]:
    """The calls for which no result could be made up, by the schemas that hold for it."""
    known: dict[str, bool] = {}
    for call in layout.calls[:_MOST_MADE]:
        is_open = call.output is not None and call.given is MISSING and call.index not in told
        for whose, schema in _promised(call, layout) if is_open else ():
            text = json.dumps(schema, sort_keys=True)
            if text not in known:
                known[text] = "pattern" in text or _has_sample(schema)
            if not known[text]:
                yield Finding(
                    "info",
                    f"call {call.index} ({call.tool}) may never succeed: in {_SAMPLED * MOST_TRIED} tries nothing was "
                    f"made up that {whose} admits; if nothing can be so, change it",
                    (call.index,),
                )


def _promised(call: Call, layout: Layout) -> Iterator[tuple[str, Schema]]:
    tool = layout.tools.get(call.tool)
    if tool is not None and tool.output_schema is not None:
        yield "its tool's _output", tool.output_schema
    answered = delegate_schema(call, layout.submission.delegates)
    if answered is not None:
        yield f"the schema of delegate {call.runner.name!r}", answered


def _tried(layout: Layout, told: Collection[int]) -> tuple[int, dict[Run, SimulatedCall]]:
    """How many trials there were, and the calls that succeeded in none, with how they ended in the first."""
    number = min(MOST_TRIALS, _MOST_EFFORT // _effort(layout))
    lost: dict[Run, SimulatedCall] | None = None
    began = spent()
    for trial in range(number if number >= _LEAST_TRIALS else 0):
        with bounded(_MOST_STEPS):
            simulation = tried(layout, trial, _MOST_CALLS)
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
    return 1 + calls + len(seen) // 5 + len(messages) // 50 + calls * _values(seen) // 1_000


def _values(messages: Any) -> int:
    """How many values there are in some messages."""
    stack, found = [messages], 0
    while stack:
        value = stack.pop()
        found += 1
        if isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
    return found


def _is_shown(sight: Sight, end: SimulatedCall) -> bool:
    """Whether a failure says something of the plan, and not only of what was made up."""
    call = sight.calls[end.index]
    if any(place.kind == FAILURES for expression in call.expressions for place in expression.references):
        return False
    if end.error is None:
        behind = (sight.calls[index] for index in sight.order.behind(call.index))
        return prod(map(_ways, behind)) <= _MOST_WAYS
    match end.error["type"]:
        case "InvalidParameters":
            return all(_can_be_made(sight, call, at) for at, _ in call.reads)
        case "OutputError":
            kinds = {place.kind for place in call.output.references} if call.output is not None else set()
            return not any("pattern" in json.dumps(sight.fold.schema(kind), default=str) for kind in kinds)
    return True


def _ways(call: Call) -> int:
    """In how many ways a call can end well."""
    several = len(call.output.alternatives) if call.output is not None else 1
    return several if several == 1 else several + 1 if call.runner.executor is Executor.ACTIVITY else 2


def _can_be_made(sight: Sight, call: Call, at: str) -> bool:
    """Whether something could be made up that the tool takes at a place of the call."""
    tool = sight.tools.get(call.tool)
    path = tuple(int(key) if key.isdecimal() else key for key in segments(at))
    parts = list(tool.compiled.parts(path)) if tool is not None else []
    return not parts or _has_sample({"allOf": parts})


def _has_sample(schema: Schema) -> bool:
    """Whether a value can be made up, or to know it would take too long."""
    began = spent()
    for variety in [Variety(trial) for trial in range(_SAMPLED)] * MOST_TRIED:
        if is_spent() or spent() - began > _MOST_STEPS or fitting_sample(schema, variety, 1) is not MISSING:
            return True
    return False
