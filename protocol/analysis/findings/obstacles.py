"""Obstacles: output paths that nothing can be written to, whatever the result is (SPEC R3.2, R3.4, R3.5).

What stands in the way is in the context: a number where the path goes on, a list that ends too soon, a value that the
method cannot be applied to. Where another call writes there or above, it may clear the way, and nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from protocol.calls.call import Call
from protocol.language.errors import Conflict
from protocol.language.paths import MISSING, lookup
from protocol.language.references import Reference
from protocol.state.operations import Method, Operation, verify

from .finding import FAILURES, Finding
from .sight import Sight

_FITTING: Final[Mapping[Method, tuple[Any, ...]]] = {
    Method.SET: (None,),
    Method.PUSH: (None,),
    Method.MERGE: (None,),
    Method.ASSIGN: ({},),
    Method.CONCAT: ("", []),
}
"""For each method values of which one fits wherever any does."""


def obstacle_findings(sight: Sight) -> Iterator[Finding]:
    """The calls of a lane that write where they never can."""
    for call in sight.lane.calls:
        if call.output is None or len(call.output.references) > 1:
            continue  # of several paths one may make room for another
        place = call.output.references[0]
        if place.kind == FAILURES:
            continue
        root = sight.fold.root(place.kind)
        conflict = _conflict(call, place, root)
        if conflict is not None and not sight.writers.has_other(_in_the_way(place, root), than=call.index):
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) can never write its result: {conflict}; change the path, the "
                "method, or what is there",
                (call.index,),
                lost=call.index,
            )


def _conflict(call: Call, place: Reference, root: Any) -> Conflict | None:
    """Why no value can be written there now."""
    conflict = None
    for value in _FITTING[call.method]:
        try:
            verify(Operation(place, call.method, value, "the context"), root)
        except Conflict as error:
            conflict = error
        else:
            return None
    return conflict


def _in_the_way(place: Reference, root: Any) -> Reference:
    """What the path does not lead through: a value that is no object, or the list that an index is beyond."""
    for length, segment in enumerate(place.path):
        container = lookup(root, place.path[:length])
        is_free = isinstance(container, dict) or (container is MISSING and (isinstance(segment, str) or not segment))
        if not is_free and lookup(root, place.path[: length + 1]) is MISSING:
            return Reference(place.kind, place.path[:length])
    return place
