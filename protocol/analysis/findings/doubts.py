"""Doubts: calls whose end in a simulation shows what was made up, and nothing of the plan (SPEC R6.7).

No sample is found for every schema (a `pattern`, a `not`), nor one value for all who read it. What is refused then may
run well on a real result. As in trials, a call is only lost where it is so for tools and schemas that are `lenient`
about what results bring.
"""

from __future__ import annotations

from typing import Final

from protocol.analysis.simulation import Simulation, simulate
from protocol.engine.statuses import Status
from protocol.schemas.steps import TooCostly, bounded
from protocol.submission.layout import Layout

from .leniency import lenient

MOST_CALLS: Final = 2_000
"""Of a simulation of more calls all that are lost are doubtful: nobody looks how results reach them."""

_LOST: Final = frozenset({Status.FAILED, Status.SKIPPED})


def doubtful_calls(layout: Layout, simulation: Simulation, *, most_calls: int = MOST_CALLS) -> tuple[int, ...]:
    """The calls that failed or were skipped in a simulation, and might not on other results; in the order listed."""
    lost = _lost(simulation)
    if all(call.error is None for call in simulation.calls):
        return ()
    if len(simulation.calls) <= most_calls:
        try:
            with bounded():
                loosened = lenient(layout)
        except TooCostly:
            return tuple(sorted(lost))
        lost -= _lost(simulate(loosened))
    return tuple(sorted(lost))


def _lost(simulation: Simulation) -> set[int]:
    return {call.index for call in simulation.calls if call.status in _LOST}
