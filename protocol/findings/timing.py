"""Timing: what a call sees of a whole kind where nothing orders it after those who write there (SPEC R8.3a)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from protocol.calls import Call
from protocol.graph import Graph
from protocol.lanes import Lane

from .finding import Finding

MOST_CALLS: Final = 20_000
"""In a longer lane nothing is said: who comes before whom takes the square of their number."""
_TOLD: Final = 10

Calls = int
"""A set of calls, as the bits of their indexes."""


def scope_findings(lanes: Iterable[Lane]) -> Iterator[Finding]:
    """Whole kinds in a scope that an earlier call writes to without an order between the two."""
    distinct = {id(lane.graph): lane for lane in lanes}.values()
    shared = next((lane for lane in distinct if lane.instance is None), None)
    before = ancestors(shared.graph, {}) if shared is not None and len(shared.calls) <= MOST_CALLS else {}
    writers = _writers(shared.calls if shared is not None else ())
    for lane in distinct:
        if not any(not scope.path for call in lane.calls for scope in call.scopes):
            continue
        if len(lane.calls) > MOST_CALLS:
            yield Finding("info", f"whole kinds in scopes were not looked at: more than {MOST_CALLS} calls in one lane")
        elif lane is shared:
            yield from _lane_findings(lane, before, {})
        else:
            yield from _lane_findings(lane, ancestors(lane.graph, before), writers)


def _lane_findings(lane: Lane, before: dict[int, Calls], shared: dict[str, Calls]) -> Iterator[Finding]:
    earlier: dict[str, Calls] = {}
    for call in lane.calls:
        listed_before = (1 << call.index) - 1
        for kind in dict.fromkeys(scope.kind for scope in call.scopes if not scope.path and not call.is_thought):
            writers = earlier.get(kind, 0) | shared.get(kind, 0) & listed_before
            unordered = writers & ~before[call.index]
            if unordered:
                yield _finding(call, kind, unordered)
        for kind in _kinds_written(call):
            earlier[kind] = earlier.get(kind, 0) | 1 << call.index


def _finding(call: Call, kind: str, unordered: Calls) -> Finding:
    told = tuple(islice(indexes(unordered), _TOLD))
    rest = unordered.bit_count() - len(told)
    writers = f"{'call' if len(told) == 1 else 'calls'} {', '.join(map(str, told))}"
    return Finding(
        "warning",
        f"what call {call.index} ({call.tool}) sees of {kind} depends on timing: "
        f"{writers}{f' and {rest} more' if rest else ''} may or may not have written there; "
        f"name the place in _scopes (†{kind}.…) to wait for it",
        (*told, call.index),
    )


def ancestors(graph: Graph, known: Mapping[int, Calls]) -> dict[int, Calls]:
    """Every call that comes before each node of a graph without cycles. `known` has those of other lanes' calls."""
    found: dict[int, Calls] = {}
    for node in graph.in_order():
        all_before = 0
        for before in graph.directly_before(node):
            all_before |= found[before] if before in found else known.get(before, 0)
            all_before |= 1 << before if before >= 0 else 0
        found[node] = all_before
    return found


def _writers(calls: Iterable[Call]) -> dict[str, Calls]:
    writers: dict[str, Calls] = {}
    for call in calls:
        for kind in _kinds_written(call):
            writers[kind] = writers.get(kind, 0) | 1 << call.index
    return writers


def _kinds_written(call: Call) -> set[str]:
    return {reference.kind for reference in call.output.references} if call.output is not None else set()


def indexes(calls: Calls) -> Iterator[int]:
    """The indexes in a set of calls, in order."""
    while calls:
        lowest = calls & -calls
        yield lowest.bit_length() - 1
        calls ^= lowest
