"""Timing: what a call reads where nothing orders it after, or before, those who write there (SPEC R6.1).

A reader of what the context holds, or of what calls listed before it write, waits for no call that is listed after it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from protocol.calls.call import Call
from protocol.graph.readers import places_read_first
from protocol.language.references import Reference

from .finding import FAILURES, Finding
from .order import MOST_CALLS
from .replacements import Replacements, Write
from .sight import Sight

_TOLD: Final = 10
_LATER_LOOKED_AT: Final = 20
"""The same of those listed after it; mostly they wait for it, one for the other."""


def read_findings(sight: Sight) -> Iterator[Finding]:
    """Places that a call reads while a call listed after it, for which it does not wait, may write there."""
    if len(sight.calls) > MOST_CALLS:
        return
    replacements = Replacements(sight.memory)
    for call in sight.lane.calls:
        told = set[int]()
        for place in (place for place in places_read_first(call) if place not in call.scopes):
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


def _names(writers: Sequence[int]) -> str:
    told, rest = writers[:_TOLD], len(writers[_TOLD:])
    return f"{'call' if len(told) == 1 else 'calls'} {', '.join(map(str, told))}{f' and {rest} more' if rest else ''}"
