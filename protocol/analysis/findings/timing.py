"""Timing: what a call reads or sees where nothing orders it after, or before, those who write there (SPEC R6.1, R8.3a).

A reader of what the context holds, or of what calls listed before it write, waits for nobody that is listed after it; a
whole kind in a scope waits for nobody.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from protocol.calls.call import Call
from protocol.graph.readers import places_read_first
from protocol.language.references import Reference

from .finding import FAILURES, Finding
from .order import MOST_CALLS, Calls, indexes
from .replacements import Replacements, Write
from .sight import Sight

_TOLD: Final = 10
_LOOKED_AT: Final = 200
"""Of so many unordered writers before a call it is found out whether they can run before it."""
_LATER_LOOKED_AT: Final = 20
"""The same of those listed after it; mostly they wait for it, one for the other."""


def scope_findings(sight: Sight) -> Iterator[Finding]:
    """Whole kinds in a scope that an earlier call writes to without an order between the two."""
    lane, calls, order = sight.lane, sight.calls, sight.order
    if not any(not scope.path for call in lane.calls for scope in call.scopes):
        return
    if len(calls) > MOST_CALLS:
        return
    writers = _writers(calls.values())
    for call in lane.calls:
        for kind in dict.fromkeys(scope.kind for scope in call.scopes if not scope.path and not call.is_thought):
            unordered = writers.get(kind, 0) & ((1 << call.index) - 1) & ~order.before(call.index)
            looked_at = islice(indexes(unordered), _LOOKED_AT)
            found = tuple(
                writer
                for writer in looked_at
                if _is_open(sight, call.index, writer) and not _is_below(sight, writer, kind)
            )
            if found:
                yield _finding(call, kind, found)


def read_findings(sight: Sight) -> Iterator[Finding]:
    """Places that a call reads while a call listed after it, for which it does not wait, may write there."""
    if len(sight.calls) > MOST_CALLS:
        return
    replacements = Replacements(sight.memory)
    for call in sight.lane.calls:
        told = set[int]()
        for place in places_read_first(call):
            later = {
                writer
                for line in sight.writers.lines(place)
                for start in [bisect_right(line.calls, call.index)]
                for writer in line.calls[start : start + _LATER_LOOKED_AT]
            }
            rivals = {writer for writer in later - told if _is_open(sight, call.index, writer)}
            rivals -= set(sight.lane.graph.writers(call.index, place)) if rivals else set()
            rivals = {writer for writer in rivals if _changes(sight, replacements, writer, place)}
            if rivals and place.kind != FAILURES:
                told.update(rivals)
                yield _read_finding(call, place, sorted(rivals))


def _changes(sight: Sight, replacements: Replacements, writer: int, place: Reference) -> bool:
    """Whether what is at a place may be another thing once a call has written, as far as can be told."""
    if writer not in sight.own and sight.fold.has_own(place):
        return False  # what the instance has of its own lies on top (SPEC R3.6)
    if replacements.never_has(sight.calls[writer], place):
        return False
    writes = replacements.of(sight.calls[writer])
    return any(
        written.overlaps(place)
        and not (
            write is Write.ADD
            and len(written.path) < len(place.path)
            and isinstance(place.path[len(written.path)], int)  # an element that is there already
        )
        for written, write in writes.items()
    )


def _is_below(sight: Sight, writer: int, kind: str) -> bool:
    """Whether what a global call writes of a kind lies below what the instance has there of its own (SPEC R3.6)."""
    places = (place for place in sight.calls[writer].written if place.kind == kind)
    return writer not in sight.own and all(map(sight.fold.has_own, places))


def _is_open(sight: Sight, reader: int, writer: int) -> bool:
    """Whether two calls may run in any order, in one and the same run."""
    before = sight.order.before
    is_ordered = before(writer) >> reader & 1 or before(reader) >> writer & 1
    return not is_ordered and sight.may_meet(reader, writer)


def _read_finding(call: Call, place: Reference, writers: Sequence[int]) -> Finding:
    return Finding(
        "warning",
        f"what call {call.index} ({call.tool}) reads at {place} depends on timing: "
        f"{_names(writers)}, listed after it, may or may not have written there; list the "
        f"reader after the writer to wait for it, or let the writer read what call {call.index} writes",
        tuple(sorted((*writers[:_TOLD], call.index))),
    )


def _finding(call: Call, kind: str, writers: tuple[int, ...]) -> Finding:
    return Finding(
        "warning",
        f"what call {call.index} ({call.tool}) sees of {kind} depends on timing: "
        f"{_names(writers)} may or may not have written there; "
        f"name the place in _scopes (†{kind}.…) to wait for it",
        (*writers[:_TOLD], call.index),
    )


def _names(writers: Sequence[int]) -> str:
    told, rest = writers[:_TOLD], len(writers[_TOLD:])
    return f"{'call' if len(told) == 1 else 'calls'} {', '.join(map(str, told))}{f' and {rest} more' if rest else ''}"


def _writers(calls: Iterable[Call]) -> dict[str, Calls]:
    writers: dict[str, Calls] = {}
    for call in calls:
        for kind in {reference.kind for reference in call.output.references} if call.output is not None else ():
            writers[kind] = writers.get(kind, 0) | 1 << call.index
    return writers
