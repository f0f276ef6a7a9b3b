"""Readers: who reads at a place, by its parameters or its scopes (SPEC R2.3, R8). The counterpart of `writers`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.language.messages import EVERYWHERE
from acts_celery.protocol.language.references import Reference

_Places = Callable[[Call], Iterable[Reference]]


def parameter_places(call: Call) -> tuple[Reference, ...]:
    """What the parameters of a call read, each place once. A passing thought waits for nothing (SPEC R5.2)."""
    if not call.reads or call.is_note:
        return ()
    return tuple(dict.fromkeys(place for _, expression in call.reads for place in expression.references))


def scope_places(call: Call) -> tuple[Reference, ...]:
    """What is in the scopes of a call, each place once."""
    return tuple(dict.fromkeys(call.scopes)) if call.scopes and not call.is_note else ()


def places_read(call: Call) -> tuple[Reference, ...]:
    """Every place a call waits for: those its parameters read, and its narrow scopes (SPEC R8.3a).

    A passing thought is not executed, so it waits for nothing (SPEC R5.2).
    """
    if call.is_note:
        return ()
    references = [reference for _, expression in call.reads for reference in expression.references]
    return tuple(dict.fromkeys((*references, *call.slices)))


def places_read_first(call: Call) -> tuple[Reference, ...]:
    """Of these what is read if it is there: of several alternatives the first (SPEC R2.3), and narrow scopes."""
    if call.is_note:
        return ()
    first = (place for _, expression in call.reads for place in expression.alternatives[0])
    return tuple(dict.fromkeys((*first, *call.slices)))


def places_seen(call: Call) -> Iterator[Reference]:
    """Every place a call comes by: what its parameters read, and its scopes, whole kinds too; one may come twice."""
    if call.is_note:
        return
    for _, expression in call.reads:
        yield from expression.references
    yield from call.scopes


def sees(reader: Call, writer: Call) -> bool:
    """Whether what a solution's call writes is in another's sight: global, or in one of its instances (SPEC R3.6)."""
    if writer.instance is None or writer.instance == reader.instance:
        return True
    return reader.instance is not None and EVERYWHERE in (reader.instance, writer.instance)


class ReadPlaces:
    """Places that are read, and whether another overlaps any of them."""

    def __init__(self, places: Iterable[Reference]) -> None:
        self._at = {place.key for place in places}
        self._at_or_above = {key[:length] for key in self._at for length in range(1, len(key) + 1)}

    def overlap(self, place: Reference) -> bool:
        """Whether one of them is this place, above it or below it (SPEC R6.1)."""
        key = place.key
        return key in self._at_or_above or any(key[:length] in self._at for length in range(1, len(key)))


class Readers:
    """An index over the places that calls read, as `places` has it."""

    def __init__(self, calls: Iterable[Call], places: _Places = places_seen) -> None:
        self._at: dict[tuple[str, ...], dict[int, None]] = defaultdict(dict)
        self._at_or_below: dict[tuple[str, ...], dict[int, None]] = defaultdict(dict)
        for call in calls:
            for place in places(call):
                key = place.key
                self._at[key][call.index] = None
                for length in range(1, len(key) + 1):
                    self._at_or_below[key[:length]][call.index] = None

    def at(self, place: Reference, *, but: int | None = None) -> Iterator[int]:
        """The calls, but one, that read at, above or below a place; a call may come twice."""
        key = place.key
        groups = [self._at_or_below.get(key, {})]
        groups += [self._at.get(key[:length], {}) for length in range(1, len(key))]
        for group in groups:
            yield from (index for index in group if index != but)

    def has(self, place: Reference, *, but: int) -> bool:
        """Whether a call but this one reads there."""
        return next(self.at(place, but=but), None) is not None


def unread_results(calls: Iterable[Call]) -> tuple[int, ...]:
    """The calls none of whose results any call reads, by a parameter or a scope: what a run is there to produce, or
    what is not needed.
    """
    calls = tuple(calls)
    readers = Readers(calls)
    return tuple(
        call.index
        for call in calls
        if call.output is not None and not any(readers.has(place, but=call.index) for place in call.output.references)
    )


class Audience:
    """Who can ever read what a call writes: those that read there, where it is in sight (SPEC R3.6, R10)."""

    def __init__(self, calls: Collection[Call], *, is_template: bool, places: _Places = places_seen) -> None:
        members: dict[str | None, list[Call]] = defaultdict(list)
        for call in calls:
            members[call.instance].append(call)
        everywhere = {EVERYWHERE, None} if is_template else {EVERYWHERE}
        self._all = Readers(calls, places)
        self._of = {instance: Readers(own, places) for instance, own in members.items() if instance is not None}
        self._everywhere = Readers((call for call in calls if call.instance in everywhere or call.gather), places)
        self._inside = Readers((call for call in calls if call.instance is not None or call.gather), places)

    def of(self, writer: Call, place: Reference) -> Iterator[int]:
        """The calls that can read what a call writes at a place, itself among them; a call may come twice."""
        if writer.instance is None:
            yield from self._all.at(place)
            return
        if writer.instance == EVERYWHERE:
            yield from self._inside.at(place)
            return
        yield from self._of[writer.instance].at(place)
        yield from self._everywhere.at(place)
