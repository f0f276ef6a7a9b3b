"""Proof: every way from a source to an effect, found without running anything (SPEC R16.5).

It goes through the same steps as `flow`, over all that may be: each alternative may be the one, each call may fail, and
whatever may write a place has. So what is held or refused in any run is found here; where nothing is, nothing is.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.calls.trust import ToolTrust
from acts_celery.protocol.graph.readers import Readers, sees
from acts_celery.protocol.language.messages import ERROR, Message
from acts_celery.protocol.language.references import Expression, Reference
from acts_celery.protocol.state.labels import TRUSTED, UNMARKED, Labels, Marks, marks_of, places_marked, whole_list
from acts_celery.protocol.state.operations import read_operation

from .effects import doubt
from .flow import NOTHING, Flow, endorses, flow_of, joined, parameter_at, written_marks

Trusts = Callable[[Call], ToolTrust]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a label enters: a message of the context, or a call whose tool says so of its results."""

    label: str
    message: int | None = None
    call: int | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """From a source to a call with effects."""

    source: Source
    effect: int
    """The call."""
    calls: tuple[int, ...]
    """Those between."""
    parameter: str | None
    """What decides and comes from there; None where it has a say in whether the call runs."""


@dataclass(frozen=True, slots=True)
class _Marked:
    """What may be true of a call."""

    flow: Flow = NOTHING
    out: Marks = UNMARKED
    """Of what it writes."""
    end: Marks = UNMARKED
    """Of how it ends, where that is not by its answer."""


class Proof:
    """The ways from sources to effects in a plan."""

    def __init__(
        self, calls: Sequence[Call], context: Sequence[Message], trust: Trusts, *, is_template: bool = False
    ) -> None:
        self._calls = {call.index: call for call in calls if not call.is_note}
        self._trust = trust
        self._is_template = is_template
        self._messages = list(_marked_messages(context))
        self._found: dict[int, _Marked] = defaultdict(_Marked)
        if self._messages or any(call.told or trust(call).result for call in self._calls.values()):
            self._writers = Readers(self._calls.values(), places=lambda call: map(_whole_list, call.written))
            self._settle()

    @property
    def ways(self) -> Iterator[Way]:
        """One for each call with effects, parameter that decides and label, in the order of the calls."""
        for call in self._calls.values() if self._found else ():
            found = doubt(self._trust(call), self._found[call.index].flow)
            for name, labels in found.given.items() if found is not None else ():
                yield from (self._way(call, name, label) for label in sorted(labels))
            for label in sorted(found.chosen.difference(*found.given.values())) if found is not None else ():
                yield self._way(call, None, label)

    @property
    def endorsed(self) -> Iterator[tuple[Call, Labels]]:
        """The calls whose answers are trusted although they read what others wrote, and who."""
        for index, found in self._found.items():
            call = self._calls[index]
            if found.flow.read and endorses(call, self._trust(call)):
                yield call, found.flow.read

    def _settle(self) -> None:
        """Go on until nothing changes: labels only grow."""
        before: list[object] = []
        while before != (after := [self._update(call) for call in self._calls.values()]):
            before = after

    def _update(self, call: Call) -> object:
        """Look at a call anew; returns what is known of it."""
        given: dict[str, Marks] = defaultdict(lambda: UNMARKED)
        left_out = TRUSTED
        for at, expression in call.reads:
            given[parameter_at(at)] |= self._of(call, expression)
            left_out = left_out.union(*(self._absence(call, place) for place in expression.alternatives[-1]))
        flow = flow_of(call, given, lambda scope: self._at(call, scope), lambda: self._everything.labels)
        flow = replace(flow, read=flow.read | left_out)
        there = joined(self._at(call, place) for place in call.written)
        trust = self._trust(call)
        end = written_marks(call, flow, trust.result | there.labels)
        out = Marks(flow.chosen | there.labels, flow.chosen) if endorses(call, trust) else end
        found = self._found[call.index] = _Marked(flow, out, end)
        return found

    def _of(self, call: Call, expression: Expression) -> Marks:
        """Of what an expression may read: any of its alternatives, where those before it are not there."""
        found = joined(self._at(call, place) for place in expression.references)
        before = [place for group in expression.alternatives[:-1] for place in group]
        before += [place for place in expression.references if place.kind == ERROR]
        labels = TRUSTED.union(*(self._absence(call, place) for place in before))
        if call.gather:
            labels |= self._everything.labels if before else self._everything.chosen
        return found | Marks(labels, labels)

    def _absence(self, call: Call, place: Reference) -> Labels:
        """Of whatever may have kept a value from being there."""
        if place.kind == ERROR:
            return self._everything.labels
        ends = (self._found[index].end.labels for index in self._writers_at(call, place))
        return self._at(call, place).labels.union(*ends)

    def _at(self, call: Call, place: Reference) -> Marks:
        """Of all that may reach a place."""
        messages = joined(one.marks for one in self._messages_at(call, place))
        return messages | joined(self._found[index].out for index in self._writers_at(call, place))

    def _messages_at(self, call: Call, place: Reference) -> Iterator[_Message]:
        wanted = _whole_list(place)
        for message in self._messages:
            if self._is_seen(call, message.instance) and any(map(wanted.overlaps, message.places)):
                yield message

    def _writers_at(self, call: Call, place: Reference) -> Iterator[int]:
        if place.kind == ERROR:
            yield from self._calls
            return
        for index in dict.fromkeys(self._writers.at(_whole_list(place))):
            writer = self._calls[index]
            if self._is_template or call.gather or sees(call, writer):
                yield index

    def _is_seen(self, call: Call, instance: str | None) -> bool:
        """Whether a call may see what is said in an instance."""
        return self._is_template or call.gather or instance in (None, call.instance) or call.is_everywhere

    @property
    def _everything(self) -> Marks:
        found = joined(message.marks for message in self._messages)
        return found | joined(one.end for one in self._found.values())

    def _way(self, effect: Call, parameter: str | None, label: str) -> Way:
        """The shortest way on which a label reaches a call with effects."""
        behind: dict[int, int] = {}
        queue = deque([effect.index])
        while queue:
            index = queue.popleft()
            call, name = self._calls[index], parameter if index == effect.index else None
            if index != effect.index and label in self._trust(call).result | call.told:
                return Way(Source(label, call=index), effect.index, _between(behind, index, effect.index), parameter)
            places = list(_places(call, name))
            for place in places:
                for message in self._messages_at(call, place):
                    if label in message.marks.labels:
                        calls = _between(behind, index, effect.index)
                        own = (index,) if index != effect.index else ()
                        return Way(Source(label, message=message.position), effect.index, (*own, *calls), parameter)
            for writer in dict.fromkeys(one for place in places for one in self._before(call, place)):
                if label in self._found[writer].out.labels and writer not in behind and writer != effect.index:
                    behind[writer] = index
                    queue.append(writer)
        return Way(Source(label), effect.index, (), parameter)

    def _before(self, call: Call, place: Reference) -> Iterable[int]:
        return self._calls if call.gather or call.runner.executor is Executor.LATENT else self._writers_at(call, place)


def _places(call: Call, parameter: str | None) -> Iterator[Reference]:
    """What a call reads, by one parameter or kind of its scopes where one is named."""
    for at, expression in call.reads:
        if parameter in (None, parameter_at(at)):
            yield from expression.references
    yield from (scope for scope in call.scopes if parameter in (None, scope.kind))


def _between(behind: Mapping[int, int], index: int, effect: int) -> tuple[int, ...]:
    """The calls that lie between two of a way."""
    found = []
    while index in behind and (index := behind[index]) != effect:
        found.append(index)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Message:
    """A message of the context that names sources."""

    position: int
    instance: str | None
    places: tuple[Reference, ...]
    marks: Marks


def _marked_messages(context: Sequence[Message]) -> Iterator[_Message]:
    for position, message in enumerate(context):
        marks = marks_of(message)
        operation = read_operation(message, f"message {position}") if marks else None
        if operation is not None:
            places = tuple(Reference(key[0], key[1:]) for key in places_marked(message, operation))
            yield _Message(position, message.get("_instance"), places, marks)


def _whole_list(place: Reference) -> Reference:
    """A place, or the list that it is an element of."""
    key = whole_list(place)
    return Reference(key[0], key[1:])
