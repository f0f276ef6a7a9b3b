"""Fallbacks: alternatives of what calls read that are never taken (SPEC R2.3, R6.3, R6.5).

That is what alternatives are for: one may be there or not. Told is only what is nearly another place that is there,
what is there for others only, and what a call is run for although it stands behind a value that is there for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from protocol.calls.call import Call
from protocol.graph.readers import Readers, Reads, places_read
from protocol.hints.suggestions import Reader, is_numbered_like
from protocol.hints.views import Views
from protocol.language.errors import pointer
from protocol.language.references import Reference
from protocol.language.spelling import Patience

from .finding import FAILURES, Finding
from .presence import Presence
from .sight import Sight

Place = Sequence[str | int]
Group = tuple[Reference, ...]

_LIKENESS: Final = 0.75
"""Of how much a key that is there has to be like the one that is not: two letters of four may have changed places."""


def missing_alternatives(
    sights: Iterable[Sight], places: Sequence[Place], presence: Presence, views: Views
) -> Iterator[Finding]:
    """Places of alternatives that nothing brings to any of those who run the call, and that are nearly another place,
    or are there in an instance only.

    `sights` hold all lanes of whichever call is in them. What a call itself writes may be there when another run begins
    where this one ends.
    """
    patience = Patience(likeness=_LIKENESS)
    for call, at, place, instance in _never_there(sights):
        if not patience.lasts(0):
            return
        never = f"call {call.index} ({call.tool}) never reads {place}"
        if instance is None and (elsewhere := presence.elsewhere(place)) is not None:
            why = f"{never}: {elsewhere}, and this call has no _instance; give it one"
            yield Finding("info", why, (call.index,), pointer(*places[call.index]) + at)
            continue
        near = Reader(views.of(instance), call.index, patience).nearest((place,))
        if near is not None and not is_numbered_like(place, near) and near not in (*call.scopes, *places_read(call)):
            why = f"{never}: the context does not hold it and no other call writes it, did you mean {near}?"
            yield Finding("info", why, (call.index,), pointer(*places[call.index]) + at)


def unreached_results(sights: Iterable[Sight], places: Sequence[Place], readers: Readers) -> Iterator[Finding]:
    """Results that are read only behind alternatives which the context holds, and which no other call writes."""
    for sight in sights:
        for call in sight.lane.calls:
            unreached = _unreached(call, sight)
            if not unreached:
                continue
            reached = Reads((*call.scopes, *(place for place in places_read(call) if place not in unreached)))
            for place, (at, held) in unreached.items():
                writer = _only_writer(place, call, sight)
                if writer is not None and not _is_read(writer, reached, readers, but=call.index):
                    yield Finding(
                        "info",
                        f"call {call.index} ({call.tool}) never reads {place}, which call {writer.index} "
                        f"({writer.tool}) writes and nobody else reads: the context holds "
                        f"{' && '.join(map(str, held))}, which comes first; leave call {writer.index} out, or put "
                        f"{place} first",
                        (writer.index, call.index),
                        pointer(*places[call.index]) + at,
                    )


def _never_there(sights: Iterable[Sight]) -> Iterator[tuple[Call, str, Reference, str | None]]:
    """The places of alternatives that nothing brings in any lane: in which call and where, and one of its lanes."""
    there: set[tuple[int, Reference]] = set()
    missing: dict[tuple[int, Reference], tuple[Call, str, Reference, str | None]] = {}
    for sight in sights:
        for call in sight.lane.calls:
            for at, expression in call.reads if not call.is_thought else ():
                for place in expression.references if len(expression.alternatives) > 1 else ():
                    if (call.index, place) in there or place.kind == FAILURES:
                        continue
                    if sight.fold.exists(place) or any(sight.writers.lines(place)):
                        there.add((call.index, place))
                    else:
                        missing.setdefault((call.index, place), (call, at, place, sight.lane.instance))
    return (found for key, found in missing.items() if key not in there)


def _unreached(call: Call, sight: Sight) -> dict[Reference, tuple[str, Group]]:
    """The places that a call never comes to read: where, and what it always reads instead."""
    found: dict[Reference, tuple[str, Group]] = {}
    reached = set[Reference]()
    for at, expression in call.reads if not call.is_thought else ():
        held: Group = ()
        for group in expression.alternatives:
            if held:
                found.update((place, (at, held)) for place in group)
            else:
                reached.update(group)
                held = group if len(expression.alternatives) > 1 and _is_settled(group, call, sight) else ()
    return {place: why for place, why in found.items() if place not in reached}


def _is_settled(group: Group, call: Call, sight: Sight) -> bool:
    """Whether places are there from the beginning, and stay as they are until a call has read them."""
    return all(
        place.kind != FAILURES and sight.fold.exists(place) and not sight.writers.has_other(place, than=call.index)
        for place in group
    )


def _only_writer(place: Reference, call: Call, sight: Sight) -> Call | None:
    found = {index for line in sight.writers.lines(place) for index in line.calls[:3]} - {call.index}
    return sight.calls.get(found.pop()) if len(found) == 1 else None


def _is_read(writer: Call, reached: Reads, readers: Readers, *, but: int) -> bool:
    """Whether anybody else reads what a call writes, or the one call does at the places that it comes to read."""
    return any(
        reached.overlap(written) or any(index != but for index in readers.at(written, but=writer.index))
        for written in writer.written
    )
