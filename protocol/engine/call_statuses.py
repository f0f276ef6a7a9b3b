"""Statuses of the calls of a lane, by the log and without I/O (SPEC R6.4, R11.6, R14.2).

They change only by the log, so they can be rebuilt from the log at any moment, and two processes that have read
the same log agree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ..calls.call import Call, element_of
from ..plan.graph import Graph
from ..plan.waits import Gathers
from ..references import Expression, Reference
from ..state.fold import Fold
from ..state.labels import TRUSTED, Labels
from .events import (
    FINAL,
    TRANSITIONS,
    CallBegun,
    CallDecided,
    CallEnded,
    CallHeld,
    ElementEnded,
    Event,
    Evidence,
    FanOutBegun,
    MessageAdded,
    PromisesGivenUp,
    Ruling,
    Snapshot,
    Status,
    narrowed,
)
from .outcomes import Elements

# Readiness: counting down what each call still waits for, and whether it can be read (SPEC R6.1, R6.4-R6.6).
#
# A place is *settled* for a call when everything it waits for there has ended, however it ended. Noting that a call has
# ended costs as much as it has readers, not as much as they read.


def verdict(
    alternatives: Iterable[Iterable[Reference]], unsettled: Container[Reference], exists: Callable[[Reference], bool]
) -> bool | None:
    """Whether an expression can be read (SPEC R6.5, R6.6). True: now. False: it has to wait. None: never.

    The first alternative counts of which no settled place is missing. `exists` is asked about settled places only.
    """
    for group in alternatives:
        waits = False
        for place in group:
            if place in unsettled:
                waits = True
            elif not exists(place):
                break
        else:
            return not waits
    return None


class Readiness:
    """Which places are settled for which calls of a lane."""

    def __init__(self, calls: Iterable[int], graph: Graph) -> None:
        self._unsettled: dict[int, dict[Reference, int]] = {}
        self._scopes: dict[int, int] = {}
        self._barriers = {barrier: len(before) for barrier, before in graph.barriers.items()}
        self._readers: dict[int, list[tuple[int, Reference | None]]] = defaultdict(list)
        self._behind: dict[int, list[int]] = defaultdict(list)
        for call in calls:
            places = graph.waits.get(call, {})
            self._unsettled[call] = {place: len(nodes) for place, nodes in places.items() if nodes}
            for place, nodes in places.items():
                for node in nodes:
                    self._readers[node].append((call, place))
            if call in graph.scopes or call in graph.after:
                others = (graph.scopes.get(call, {}), graph.after.get(call, {}))
                behind = [node for places in others for nodes in places.values() for node in nodes]
                self._scopes[call] = len(behind)
                for node in behind:
                    self._readers[node].append((call, None))
        for barrier, before in graph.barriers.items():
            for node in before:
                self._behind[node].append(barrier)

    def is_settled(self, call: int, place: Reference) -> bool:
        """Whether everything that the call waits for at the place has ended."""
        return place not in self._unsettled[call]

    def unsettled(self, call: int) -> Container[Reference]:
        """The places that are not settled for a call; it changes as calls end."""
        return self._unsettled[call]

    def are_scopes_settled(self, call: int) -> bool:
        """Whether everything that the call waits for by its scopes, and by `_after`, has ended (SPEC R6.8, R8.3a)."""
        return not self._scopes.get(call)

    def end(self, call: int) -> Iterator[tuple[int, Reference | None]]:
        """Note that a call has ended, once; yields the readers and places that settle by it, None for their scopes."""
        ended = [call]
        while ended:
            node = ended.pop()
            for barrier in self._behind.pop(node, ()):
                self._barriers[barrier] -= 1
                if not self._barriers[barrier]:
                    ended.append(barrier)
            for reader, place in self._readers.pop(node, ()):
                if place is None:
                    self._scopes[reader] -= 1
                    if not self._scopes[reader]:
                        yield reader, None
                    continue
                unsettled = self._unsettled[reader]
                unsettled[place] -= 1
                if not unsettled[place]:
                    del unsettled[place]
                    yield reader, place


class CallStatuses:
    """The statuses of calls, and the calls that are to be checked."""

    def __init__(self, calls: Sequence[Call], graph: Graph, fold: Fold) -> None:
        self._calls = {call.index: call for call in calls}
        self._graph = graph
        self._fold = fold
        self._status: dict[int, Status] = {}
        self._left = len(self._calls)
        self._readiness = Readiness(self._calls, graph)
        self._promises = dict(graph.promises)
        self._given_up: dict[int, Reference] = {}
        self._may_have_come = True
        self._touched: dict[int, dict[Expression, None]] = {}
        self._candidates: dict[int, None] = dict.fromkeys(self._calls)
        self._decided: set[int] = set()
        self._snapshots: dict[int, Snapshot] = {}
        self._rulings: dict[int, Ruling] = {}
        self._begun: dict[int, CallBegun] = {}
        """The last attempts of calls that run at most once (SPEC R4.11)."""
        self._unknown: dict[int, Evidence] = {}
        """The evidence of calls whose end is not known, until the log says that a person is asked."""
        self._asked: set[int] = set()
        """The calls about whose end a person is, or was, asked."""
        self._elements: dict[int, Elements] = {}
        self._labels: dict[int, Labels] = {}
        self._deciding: dict[int, Labels] = {}
        self._choosing: dict[int, Labels] = {}
        self._by_field: set[int] = set()
        """Calls that have written a result whose fields have labels of their own (SPEC R16.8)."""

    @property
    def statuses(self) -> dict[int, Status]:
        """The status of each of the lane's own calls."""
        return {index: self.status(index) for index in self._calls if element_of(index) is None}

    def call(self, index: int) -> Call | None:
        """Call of the lane, or element of a call with `_each`, by number."""
        return self._calls.get(index)

    @property
    def unended(self) -> list[int]:
        """The numbers of all that have not ended."""
        return [index for index in self._calls if self.status(index) not in FINAL]

    def status(self, index: int) -> Status:
        """The status of a call, also of one of the global lane."""
        return self._status.get(index, Status.WAITING)

    @property
    def is_finished(self) -> bool:
        """Whether every call of the lane has ended."""
        return self._left == 0

    def record(self, index: int, status: Status) -> bool:
        """Take note of a call's status, from the log or of what is under way; says whether that was news.

        What the transitions do not allow is a duplicate or came late, and changes nothing.
        """
        if status not in TRANSITIONS[self.status(index)]:
            return False
        self._status[index] = status
        if status is Status.WAITING:
            self.reconsider(index)
        elif status in FINAL:
            self._left -= index in self._calls
            self._may_have_come = True  # it may have written what was promised
            for reader, place in self._readiness.end(index):
                self._settle(reader, place)
        return True

    def apply(self, event: Event) -> bool:
        """Take in what an entry of the log says, its message appended to the fold; says whether that was news."""
        take = _TAKES.get(type(event))
        return take is not None and take(self, event)

    def end(
        self,
        index: int,
        status: Status,
        labels: Labels = TRUSTED,
        chosen: Labels = TRUSTED,
        choosing: Labels = TRUSTED,
        *,
        by_field: bool = False,
    ) -> bool:
        """Take in that a call of the lane, or a global one that it waits for, has ended; says whether that was news."""
        is_news = self.record(index, status)
        if is_news and labels:
            self._labels[index] = labels
        if is_news and chosen:
            self._deciding[index] = chosen
        if is_news and choosing:
            self._choosing[index] = choosing
        if is_news:
            (self._by_field.add if by_field else self._by_field.discard)(index)
        return is_news

    def _end_element(self, event: ElementEnded) -> bool:
        if event.element not in self._calls or not self.record(event.element, event.status):
            return False
        elements = self._elements[event.call]
        elements.end(event.element, event.status, event.value, event.error, event.answered)
        if not elements.left:
            self.reconsider(event.call)
        return True

    def _hold(self, event: CallHeld) -> bool:
        is_news = self.record(event.call, Status.HELD if event.rule else event.status)
        if is_news:
            self._snapshots[event.call] = event.snapshot
            self._rulings.pop(event.call, None)
            self._unknown.pop(event.call, None)
            (self._asked.discard if event.evidence is None else self._asked.add)(event.call)
        if is_news and event.ruling is not None:
            self._rulings[event.call] = event.ruling
            self.record(event.call, Status.WAITING)
        return is_news

    def _begin_once(self, event: CallBegun) -> bool:
        self._begun[event.call] = event
        return True

    def note_unknown(self, index: int, said: str) -> Evidence:
        """Note that an attempt at a call was begun and that its end is not known: the next `decide` has a person asked
        (SPEC R4.11). Returns what is known of it.
        """
        begun = self._begun.get(index)
        evidence = replace(begun.evidence, said=said) if begun is not None else Evidence(said)
        self._unknown[index] = evidence
        self.record(index, Status.WAITING)
        self.reconsider(index)
        return evidence

    def begun(self, index: int) -> CallBegun | None:
        """Return the log's entry for the last attempt at a call that runs at most once."""
        return self._begun.get(index)

    def _let_go(self, event: CallDecided) -> bool:
        if self.status(event.call) not in (Status.HELD, Status.UNKNOWN):
            return False
        self._rulings[event.call] = ruling = event.ruling
        if ruling.scopes is not None and event.call in self._calls:
            self._snapshots[event.call] = narrowed(self._snapshots[event.call], self._calls[event.call], ruling.scopes)
        return self.record(event.call, Status.WAITING)

    def _fan_out(self, event: FanOutBegun) -> bool:
        index = event.call
        if index not in self._calls or index in self._elements or not self.record(index, Status.RUNNING):
            return False
        elements = self._elements[index] = Elements.of(self._calls[index], event.snapshot.parameters)
        self._calls |= elements.calls
        self._left += len(elements.calls)
        self._snapshots |= dict.fromkeys((index, *elements.calls), event.snapshot)
        self._candidates |= dict.fromkeys(elements.calls)
        return True

    def _give_up_promises(self, _: PromisesGivenUp) -> bool:
        """Count what is promised as something that no call brings, so that `||` falls back."""
        self._given_up |= self._promises
        for node in (given_up := list(self._promises)):
            self._end_promise(node)
        return bool(given_up)

    def _receive(self, _: MessageAdded) -> bool:
        self.receive()
        return True

    def receive(self) -> None:
        """Note that the fold has grown elsewhere: what was promised may have come (SPEC R11.6)."""
        self._may_have_come = True

    def reconsider(self, index: int) -> None:
        """Decide again about a call of the lane whose last decision was not executed."""
        self._decided.discard(index)
        if index in self._calls and self.status(index) not in FINAL:
            self._candidates[index] = None

    @property
    def promised(self) -> tuple[Reference, ...]:
        """The promised places that calls of the lane wait for (SPEC R6.3)."""
        return tuple(self._promises.values())

    def _settle(self, reader: int, place: Reference | None) -> None:
        """Note that a place, or all of its scopes, settled which can make a difference to a call: see `_look_again`."""
        if reader in self._candidates or reader in self._decided or self.status(reader) is not Status.WAITING:
            return
        touched = self._touched.setdefault(reader, {})
        touched.update(dict.fromkeys(self._calls[reader].readers_of(place) if place is not None else ()))

    def _note_arrivals(self) -> None:
        """Find the promised values that have come."""
        for node, place in tuple(self._promises.items()) if self._may_have_come else ():
            if self._fold.exists(place):
                self._end_promise(node)
        self._may_have_come = False

    def _end_promise(self, node: int) -> None:
        del self._promises[node]
        for reader, place in self._readiness.end(node):
            self._settle(reader, place)


_TAKES: Final[Mapping[type, Callable[[CallStatuses, Any], bool]]] = {
    MessageAdded: CallStatuses._receive,
    CallEnded: lambda statuses, event: statuses.end(
        event.call, event.status, event.labels, event.chosen, event.choosing, by_field=event.is_by_field
    ),
    ElementEnded: CallStatuses._end_element,
    CallBegun: CallStatuses._begin_once,
    CallHeld: CallStatuses._hold,
    CallDecided: CallStatuses._let_go,
    FanOutBegun: CallStatuses._fan_out,
    PromisesGivenUp: CallStatuses._give_up_promises,
}
"""The change that each event makes; other events do not change what can be done."""


# GatherWaits: what the lane of an instance says of the gather calls that wait in it (SPEC R10.4).
#
# A backend keeps one number for each gather call: the lanes that have not yet found it settled. A lane that finds it so
# records it once, in the commit that made it so; the last one makes the global lane look at the call again
# (`Execution.reconsider`), which then reads the folds of all instances, one after the other.


class GatherWaits:
    """The gather calls in one lane. `fold` holds the messages of the log as the lane's reader sees them."""

    def __init__(self, gathers: Gathers, fold: Fold) -> None:
        self.waiting = gathers.waiting
        """The calls that have anything to wait for in the lane."""
        self._calls = {call.index: call for call in gathers.calls}
        self._readiness = Readiness(self._calls, gathers.graph)
        self._promises = dict(gathers.graph.promises)
        self._fold = fold
        self._ended: set[int] = set()

    @property
    def promised(self) -> tuple[Reference, ...]:
        """The promised places that gather calls still wait for in the lane (SPEC R6.3)."""
        return tuple(self._promises.values())

    def apply(self, event: Event) -> None:
        """Take in what an entry of the log says, its message appended to the fold."""
        if isinstance(event, CallEnded):
            self.end(event.call)
        elif isinstance(event, PromisesGivenUp):
            for node in list(self._promises):
                self._end_promise(node)

    def end(self, index: int) -> None:
        """Note that a call of the lane, or a global one, has ended; its messages are in the fold."""
        if index not in self._ended:
            self._ended.add(index)
            self._end(index)

    def is_settled(self, index: int) -> bool:
        """Whether a gather call has nothing to wait for in this lane any more (SPEC R6.5)."""
        for node, place in tuple(self._promises.items()):
            if self._fold.exists(place):
                self._end_promise(node)
        unsettled = self._readiness.unsettled(index)
        verdicts = (verdict(one.alternatives, unsettled, self._fold.exists) for one in self._calls[index].expressions)
        return self._readiness.are_scopes_settled(index) and all(one is not False for one in verdicts)

    def _end_promise(self, node: int) -> None:
        del self._promises[node]
        self._end(node)

    def _end(self, node: int) -> None:
        for _ in self._readiness.end(node):
            pass
