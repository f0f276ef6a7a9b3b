"""Joins: calls that need what never comes together in one run (SPEC R6.6).

Each of the values may come, but only on another branch than the others, or for other values of a `switch`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from protocol.schemas.steps import spent

from .finding import Finding
from .sight import Sight

_MOST_STEPS: Final = 200_000
"""Of all effort; there are other things to find out."""


def join_findings(sight: Sight) -> Iterator[Finding]:
    """The calls of a lane that never run, but for those told as a contradiction, and what follows from them."""
    began, never = spent(), 0
    for index in sight.lane.graph.in_order():
        if index not in sight.own or spent() - began > _MOST_STEPS:
            continue
        call = sight.calls[index]
        if call.is_thought or sight.branches.contradiction(index):
            continue
        if sight.never_runs(index) and not sight.schedules.behind(index) & never:
            never |= 1 << index
            yield Finding(
                "warning",
                f"call {index} ({call.tool}) can never run: what it reads never comes together in one run; read what "
                "excludes each other as alternatives (||), or split the call",
                (index,),
                lost=index,
            )
