"""Timing: what a call sees of a whole kind where nothing orders it after those who write there (SPEC R8.3a)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from .calls import Call
from .findings import Finding
from .graph import Graph
from .lanes import Lane

MOST_CALLS: Final = 20_000
"""In a longer lane nothing is said: who comes before whom takes the square of their number."""
_TOLD: Final = 10

Calls = int
"""A set of calls, as the bits of their indexes."""


def scope_findings(lanes: Iterable[Lane]) -> Iterator[Finding]:
    """Whole kinds in a scope that an earlier call writes to without an order between the two."""
    distinct = {id(lane.graph): lane for lane in lanes}.values()
    shared = next((lane for lane in distinct if lane.instance is None), None)
    ancestors = _ancestors(shared.graph, {}) if shared is not None and len(shared.calls) <= MOST_CALLS else {}
    writers = _writers(shared.calls if shared is not None else ())
    for lane in distinct:
        if not any(not scope.path for call in lane.calls for scope in call.scopes):
            continue
        if len(lane.calls) > MOST_CALLS:
            yield Finding("info", f"whole kinds in scopes were not looked at: more than {MOST_CALLS} calls in one lane")
        elif lane is shared:
            yield from _lane_findings(lane, ancestors, {})
        else:
            yield from _lane_findings(lane, _ancestors(lane.graph, ancestors), writers)


def _lane_findings(lane: Lane, ancestors: dict[int, Calls], shared: dict[str, Calls]) -> Iterator[Finding]:
    earlier: dict[str, Calls] = {}
    for call in lane.calls:
        before = (1 << call.index) - 1
        for kind in dict.fromkeys(scope.kind for scope in call.scopes if not scope.path and not call.is_thought):
            writers = earlier.get(kind, 0) | shared.get(kind, 0) & before
            unordered = writers & ~ancestors[call.index]
            if unordered:
                yield _finding(call, kind, unordered)
        for kind in _kinds_written(call):
            earlier[kind] = earlier.get(kind, 0) | 1 << call.index


def _finding(call: Call, kind: str, unordered: Calls) -> Finding:
    told = tuple(islice(_indexes(unordered), _TOLD))
    rest = unordered.bit_count() - len(told)
    writers = f"{'call' if len(told) == 1 else 'calls'} {', '.join(map(str, told))}"
    return Finding(
        "warning",
        f"what call {call.index} ({call.tool}) sees of {kind} depends on timing: "
        f"{writers}{f' and {rest} more' if rest else ''} may or may not have written there; "
        f"name the place in _scopes (†{kind}.…) to wait for it",
        (*told, call.index),
    )


def _ancestors(graph: Graph, known: dict[int, Calls]) -> dict[int, Calls]:
    """Every call that comes before each node of a graph without cycles. `known` has those of other lanes' calls."""
    ancestors: dict[int, Calls] = {}
    for node in graph.in_order():
        found = 0
        for before in graph.directly_before(node):
            found |= ancestors[before] if before in ancestors else known.get(before, 0)
            found |= 1 << before if before >= 0 else 0
        ancestors[node] = found
    return ancestors


def _writers(calls: Iterable[Call]) -> dict[str, Calls]:
    writers: dict[str, Calls] = {}
    for call in calls:
        for kind in _kinds_written(call):
            writers[kind] = writers.get(kind, 0) | 1 << call.index
    return writers


def _kinds_written(call: Call) -> set[str]:
    return {reference.kind for reference in call.output.references} if call.output is not None else set()


def _indexes(calls: Calls) -> Iterator[int]:
    while calls:
        lowest = calls & -calls
        yield lowest.bit_length() - 1
        calls ^= lowest
