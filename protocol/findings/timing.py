"""Timing: what a call sees of a whole kind where nothing orders it after those who write there (SPEC R8.3a)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from protocol.calls import Call

from .finding import Finding
from .order import MOST_CALLS, Calls, indexes
from .sight import Sight

_TOLD: Final = 10
_LOOKED_AT: Final = 200
"""Of so many unordered writers before a call it is found out whether they can run before it."""


def scope_findings(sight: Sight) -> Iterator[Finding]:
    """Whole kinds in a scope that an earlier call writes to without an order between the two."""
    lane, calls, order = sight.lane, sight.calls, sight.order
    if not any(not scope.path for call in lane.calls for scope in call.scopes):
        return
    if len(calls) > MOST_CALLS:
        yield Finding("info", f"whole kinds in scopes were not looked at: more than {MOST_CALLS} calls in one lane")
        return
    writers = _writers(calls.values())
    for call in lane.calls:
        bit = 1 << call.index
        for kind in dict.fromkeys(scope.kind for scope in call.scopes if not scope.path and not call.is_thought):
            unordered = writers.get(kind, 0) & (bit - 1) & ~order.before(call.index)
            found = tuple(
                writer
                for writer in islice(indexes(unordered), _LOOKED_AT)
                if not order.before(writer) & bit and not sight.branches.exclude(writer, call.index)
            )
            if found:
                yield _finding(call, kind, found)


def _finding(call: Call, kind: str, writers: tuple[int, ...]) -> Finding:
    told, rest = writers[:_TOLD], len(writers[_TOLD:])
    names = f"{'call' if len(told) == 1 else 'calls'} {', '.join(map(str, told))}"
    return Finding(
        "warning",
        f"what call {call.index} ({call.tool}) sees of {kind} depends on timing: "
        f"{names}{f' and {rest} more' if rest else ''} may or may not have written there; "
        f"name the place in _scopes (†{kind}.…) to wait for it",
        (*told, call.index),
    )


def _writers(calls: Iterable[Call]) -> dict[str, Calls]:
    writers: dict[str, Calls] = {}
    for call in calls:
        for kind in {reference.kind for reference in call.output.references} if call.output is not None else ():
            writers[kind] = writers.get(kind, 0) | 1 << call.index
    return writers
