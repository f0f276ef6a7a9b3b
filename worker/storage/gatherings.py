"""Gatherings: what gather calls wait for in the lane of an instance, as the log has it (SPEC R10.4, R11.7).

A gather call waits for the calls that were there when it came. Where calls are added while it waits, the records of the
lanes keep those before them, and each gather call is laid out by the records of its time.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.graph.gathering import Gathers
from acts_celery.protocol.graph.waits import Waits
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.labels import Labels, marks_of
from acts_celery.protocol.state.operations import read_operation

from .definition import Definition, LaneRecord, places_in, unpack_lane, writers_of
from .packed_calls import PLACES


class GatheredFolds:
    """What was gathered: for which calls, and the values of all instances.

    Apart from the lane, which holds the execution that asks for it: in a circle they would outlive their use.
    """

    def __init__(self, added_sources: Labels) -> None:
        self._added_sources = added_sources
        self.calls: frozenset[int] = frozenset()
        self.trusted: frozenset[int] = frozenset()
        """The calls for which nothing was there that others wrote: their results need no second reading."""
        self._folds: Mapping[str, Fold] = {}

    def of(self, call: Call) -> Mapping[str, Fold] | None:
        """The values of all instances, where they were read for a call."""
        return self._folds if call.index in self.calls else None

    def take(self, calls: Sequence[Call], folds: Mapping[str, Fold]) -> None:
        """Hold these, and no others."""
        self.calls, self._folds = frozenset(call.index for call in calls), folds
        if not self._added_sources and not any(fold.all_marks for fold in folds.values()):
            self.trusted |= self.calls


Found = tuple[str, str, int | None, Mapping[str, Any] | frozenset[int]]
"""What the log of a run holds for an instance: an id, the instance, the call that wrote it, and the message; or the
calls of which nothing before counts.
"""


class FoldsOfInstances:
    """The values of all instances, as far as gather calls read them, and whatever others wrote: that may have kept a
    value from being there.
    """

    def __init__(self, shared: Fold, calls: Iterable[Call], instances: Iterable[str]) -> None:
        self._kinds = {place.kind for call in calls for place in (*call.scopes, *call.read)}
        self.by_instance = {instance: Fold(shared) for instance in instances}

    def take(self, id_: str, instance: str, call: int | None, message: Mapping[str, Any] | frozenset[int]) -> None:
        """Take in the next one of the log."""
        if isinstance(message, frozenset):
            self.by_instance[instance].withdraw(message)
            return
        operation = read_operation(message, f"message {id_}")
        if operation is not None and (operation.place.kind in self._kinds or marks_of(message)):
            self.by_instance[instance].append(message, f"message {id_}", call)


def gathers_of(
    definition: Definition, record: LaneRecord, instance: str, shared: LaneRecord, gone: Container[int]
) -> Gathers | None:
    """What gather calls, but those that are gone, wait for in a lane; `shared` is the record of the global one."""
    by_amendment = {each.amendment: each for each in _from_first(definition, record)}
    found: Gathers | None = None
    known: set[int] = set()
    for each in _from_first(definition, shared):
        calls = definition.lane_calls(each, None)
        new = {call.index for call in calls if call.gather} - known
        known |= new
        own = by_amendment.get(each.amendment)
        gathering = [call for call in calls if call.index in new - each.begun and call.index not in gone]
        if own is None:  # none of them waits in the lane, or it was read before it was written anew
            continue
        one = gathers_among(definition, gathering, own, definition.lane_calls(own, instance), calls)
        if one is not None:
            found = one if found is None else found.beside(one)
    return found


def gathers_among(
    definition: Definition, gathering: Sequence[Call], record: LaneRecord, calls: Sequence[Call], shared: Sequence[Call]
) -> Gathers | None:
    """What gather calls wait for, by a lane's record, where these calls of the lane and these global ones are seen."""
    if not gathering or record.gathers is None:
        return None
    held, promised, required = (frozenset(places_in(record.gathers.get(name, ()))) for name in PLACES)
    writers = writers_of(calls, shared, definition.failing((*calls, *shared)))
    waits = Waits(gathering, writers, are_guests=True)
    return Gathers(tuple(gathering), waits.graph(held, promised, required), held, promised, required)


def _from_first(definition: Definition, record: LaneRecord) -> Iterator[LaneRecord]:
    """A record and those that it keeps, the first one first."""
    if record.before:
        yield from _from_first(definition, unpack_lane(record.before, definition.tools))
    yield record
