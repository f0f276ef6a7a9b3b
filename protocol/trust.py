"""Trust: untrusted data decides nothing that has an effect (SPEC R16).

`Flows` finds the sources of what a call reads and writes, `doubt` why a call may not start, and `TrustProof` finds both
for a plan before it runs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final, Protocol

from .calls.call import Call
from .calls.tools import Executor
from .calls.trust import NOTHING as UNSAID
from .calls.trust import ToolTrust, hosts_named, is_of_people, lead_to
from .errors import segments
from .messages import ERROR, Message
from .paths import MISSING
from .plan.graph import Graph, Readers, sees
from .references import Expression, Reference, parse
from .state.fold import Fold
from .state.labels import (
    KEEPING,
    TRUSTED,
    UNMARKED,
    FieldLabels,
    Fields,
    Labels,
    MarkedMessage,
    Marks,
    held_places,
    marked_messages,
    part_at,
    whole_place,
)
from .state.operations import Method

# Flow: which sources a call has read, and which had a say in whether it runs (SPEC R16.2).
#
# Labels follow the references of the graph. What a call has read is known when it starts; a reader of its result finds
# the labels in the log, with the result. A call that ended without writing what another one was to read has them,
# too: what that one reads instead depends on it.


class MarkedValues(Protocol):
    """Source of the values that a call reads: a fold, or the folds of all instances."""

    def lacks(self, reference: Reference, *, is_last: bool) -> bool:
        """Whether an alternative lacks the value at a place, so that the next is read. Over several instances a value
        that is missing in one counts, except in the last alternative.
        """

    def marks(self, reference: Reference) -> Marks:
        """Marks of everything that can affect a place."""

    def absence(self, reference: Reference) -> Labels:
        """Sources that may have kept a value from being there, besides the calls that were waited for."""

    @property
    def all_marks(self) -> Marks:
        """Marks of all places together."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Sources of everything that flows into one call. It is false if all of that is trusted."""

    chosen: Labels = TRUSTED
    """Sources of what had a say in whether the call runs."""
    given: Mapping[str, Labels] = field(default_factory=dict)
    """Sources of each parameter, and of each kind of its scopes, that is not trusted."""
    read: Labels = TRUSTED
    """Sources of everything that the call has read, with those above."""

    def __bool__(self) -> bool:
        return bool(self.read)


NOTHING: Final = Flow()


class Flows:
    """Finds what flows into the calls of a lane, from the values there are and from how calls have ended."""

    def __init__(
        self,
        graph: Graph,
        trust: Callable[[Call], ToolTrust],
        ended: Mapping[int, Labels],
        deciding: Mapping[int, Labels],
        choosing: Mapping[int, Labels],
        by_field: Container[int] = (),
    ) -> None:
        """Make the finder; `ended` are the labels of ended calls that have any, also of global ones that others wait
        for, `deciding` those of what had a say in whether they ran, `choosing` also those of what had a say in where
        they have written, and `by_field` the calls that have written results whose fields have labels of their own.
        """
        self._graph = graph
        self._trust = trust
        self._ended = ended
        self._deciding = deciding
        self._choosing = choosing
        self._by_field = by_field

    def into(self, call: Call, seen: MarkedValues, *, has_begun: bool = False) -> Flow:
        """Flow into a call that reads from `seen` now. If it has begun, what was missing may have come since, so it may
        have read any of its alternatives.
        """
        everything = seen.all_marks
        if not (everything or self._ended or call.prompt_labels):
            return NOTHING
        given: dict[str, Marks] = defaultdict(lambda: UNMARKED)
        for at, expression in call.reads:
            given[parameter_at(at)] |= self._of(call, expression, seen, has_begun=has_begun)
        before = (self._deciding.get(index, TRUSTED) for index in self._graph.only_after(call.index))
        after = TRUSTED.union(*before, everything.chosen if call.gather and call.after else TRUSTED)
        return flow_of(call, given, lambda scope: self._at(call, scope, seen), lambda: everything.labels, after)

    def out_of(
        self,
        call: Call,
        flow: Flow,
        said: Labels = TRUSTED,
        there: Labels = TRUSTED,
        answered: ToolTrust = UNSAID,
        *,
        is_done: bool = False,
    ) -> WrittenMarks:
        """Marks of what a call writes, however it ends. `said` are the sources that its code named, `there` those of
        the values at the places that it writes, which may have prevented the write, and `answered` those that came with
        its answer.
        """
        trust = self._trust(call)
        if is_done and endorses(call, trust):
            return WrittenMarks(Marks(flow.chosen | said | there, flow.chosen))
        trust = ToolTrust.together((trust, answered)) if answered else trust
        marks = written_marks(call, flow, trust.result | said | there)
        return WrittenMarks(marks, written_fields(call, flow.read | said, trust) if is_done else frozenset())

    def way(self, call: Call, label: str, calls: Mapping[int, Call]) -> tuple[int, ...]:
        """Calls through which a source reaches a call, the first of them first; only through calls in `calls`."""
        way: list[int] = []
        at: Call | None = call
        while at is not None:
            places = {*(place for one in at.expressions for place in one.references), *at.scopes}
            before = {index for place in places for index in self._graph.writers(at.index, place)}
            before.update(self._graph.only_after(at.index))
            index = max(
                (one for one in before if label in self._ended.get(one, TRUSTED) and one not in way), default=None
            )
            at = calls.get(index) if index is not None else None
            way += [index] if index is not None else []
        return tuple(reversed(way))

    def _of(self, call: Call, expression: Expression, seen: MarkedValues, *, has_begun: bool) -> Marks:
        """Marks of an expression: those of the first alternative that is there. Whatever could have written the
        alternatives before it had a say in that. Where none is there, only who chose among places had (SPEC R6.8).
        """
        found = UNMARKED
        for group in expression.alternatives:
            found |= joined(self._at(call, place, seen) for place in group)
            is_last = group is expression.alternatives[-1]
            may_lack = has_begun and not is_last
            lacking = [place for place in group if may_lack or seen.lacks(place, is_last=is_last)]
            for place in (*lacking, *(place for place in group if place.kind == ERROR)):
                labels = TRUSTED.union(seen.absence(place), *self._of_writers(call, place))
                is_skipped = is_last and place.kind != ERROR
                found |= Marks(labels, self._choice(call, place) if is_skipped else labels)
            if not lacking:
                break
        return found

    def _at(self, call: Call, place: Reference, seen: MarkedValues) -> Marks:
        """Marks of a place: of its value, and of the calls that could have changed it and did not."""
        changed = () if call.gather or place.kind == ERROR else self._by_field
        return seen.marks(place) | Marks(TRUSTED.union(*self._of_writers(call, place, changed)))

    def _choice(self, call: Call, place: Reference) -> Labels:
        """Labels of what chose that no call has written at a place."""
        writers = self._graph.writers(call.index, place) if self._choosing else ()
        return TRUSTED.union(*(self._choosing.get(index, TRUSTED) for index in writers))

    def _of_writers(self, call: Call, place: Reference, changed: Container[int] = ()) -> Iterator[Labels]:
        """Labels of the calls that a call waited for at a place, but for those that have changed it; for an error, of
        all that may have caused one.
        """
        for index in self._graph.writers(call.index, place) if self._ended else ():
            if index not in changed:
                yield self._ended.get(index, TRUSTED)


def flow_of(
    call: Call,
    given: dict[str, Marks],
    scope_marks: Callable[[Reference], Marks],
    everything: Callable[[], Labels],
    after: Labels,
) -> Flow:
    """Flow into a call from the marks of its parameters, to which those of its scopes are added, and from all marks;
    `after` are the labels of what chose that the calls run for which it waits by `_after` (SPEC R6.8).
    """
    chosen = call.prompt_labels.union(after, *(marks.chosen for marks in given.values()))
    chosen = chosen.union(*(given[name].labels for name in call.each))
    for scope in call.scopes:
        given[scope.kind] = given.get(scope.kind, UNMARKED) | scope_marks(scope)
    labels = {name: marks.labels | marks.chosen for name, marks in given.items() if marks}
    is_asked = call.runner.executor is Executor.LATENT and call.given is MISSING
    shown = everything() if is_asked else TRUSTED  # all there is (SPEC R8.3)
    return Flow(chosen, labels, chosen.union(shown, *labels.values()))


def written_marks(call: Call, flow: Flow, others: Labels) -> Marks:
    """Marks of what a call writes, from what flows into it and from other sources."""
    labels = flow.read | others
    is_choice = call.output is not None and len(call.output.alternatives) > 1
    return Marks(labels, labels if is_choice else flow.chosen)


@dataclass(frozen=True, slots=True)
class WrittenMarks:
    """Marks of what a call writes, and by field where the fields of its result differ (SPEC R16.8)."""

    marks: Marks
    fields: Fields = frozenset()


def written_fields(call: Call, read: Labels, trust: ToolTrust) -> Fields:
    """Labels by field of what a call writes to its one place, given those of all it has read; none where they are not
    kept apart.
    """
    if not trust.fields or len(call.written) != 1 or call.method not in KEEPING or _has_index(call.written[0]):
        return frozenset()
    fields = frozenset(one.in_lists(1) for one in trust.fields) if call.each else trust.fields
    return fields | {FieldLabels.whole(read)} if read else fields


def _has_index(place: Reference) -> bool:
    return any(isinstance(segment, int) for segment in place.path)


def marks_since(call: Call, trust: ToolTrust, seen: MarkedValues, *, is_done: bool) -> WrittenMarks:
    """Marks of what a call has written, if labels were added since: from everything that it may have read, as it is
    marked now.
    """
    given: dict[str, Marks] = defaultdict(lambda: UNMARKED)
    failed = Marks(seen.marks(Reference(ERROR)).labels)  # of calls that could have changed it and did not
    for at, expression in call.reads:
        found = failed | joined(seen.marks(place) for place in expression.references)
        may_lack = len(expression.alternatives) > 1 or any(
            place.kind == ERROR or seen.lacks(place, is_last=True) for place in expression.references
        )
        if may_lack:
            everything = seen.all_marks.labels  # sources that could have written what was missing
            found |= Marks(everything, everything)
        given[parameter_at(at)] |= found
    after = seen.all_marks.labels if call.after else TRUSTED  # sources that could have chosen whether the others ran
    flow = flow_of(call, given, seen.marks, lambda: seen.all_marks.labels, after)
    among = values_among(trust)
    if is_done and endorses(call, trust) and (among is None or not seen.marks(among)):
        return WrittenMarks(Marks(flow.chosen, flow.chosen))
    return WrittenMarks(
        written_marks(call, flow, trust.result), written_fields(call, flow.read, trust) if is_done else frozenset()
    )


def endorses(call: Call, trust: ToolTrust) -> bool:
    """Whether the result of a call is trusted, whatever it has read (SPEC R16.3); which of several places it goes to is
    not its delegate's answer.
    """
    is_choice = call.output is not None and len(call.output.alternatives) > 1
    return bool(trust.endorses) and call.runner.executor is Executor.DELEGATE and not is_choice


def values_among(trust: ToolTrust) -> Reference | None:
    """A place of the values among which an endorsed answer has to be, in the first element of each list; None if any
    answer is endorsed.
    """
    if not isinstance(trust.endorses, str):
        return None
    place = parse(trust.endorses).references[0]
    return Reference(place.kind, tuple(0 if segment == "*" else segment for segment in place.path))


def parameter_at(at: str) -> str:
    """The parameter that a JSON pointer into a call leads into."""
    return str(segments(at)[0])


def joined(marks: Iterable[Marks]) -> Marks:
    """Union of marks."""
    found = UNMARKED
    for one in marks:
        found |= one
    return found


# Effects: what keeps a call from changing something outside (SPEC R16.4).


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a call with effects does not start by itself: untrusted data would decide."""

    chosen: Labels = TRUSTED
    """Sources of what had a say in whether the call runs."""
    given: Mapping[str, Labels] = field(default_factory=dict)
    """Sources of each parameter, and of each kind of its scopes, that decides."""
    ways: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Calls that lead from each source to this one, the first of them first."""

    @property
    def labels(self) -> Labels:
        """All the sources."""
        return self.chosen.union(*self.given.values())

    def __str__(self) -> str:
        parts = [f"{name} comes from {_named(labels)}" for name, labels in self.given.items()]
        parts += [f"{_named(self.chosen)} had a say in whether it runs"] if self.chosen else []
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """The doubt as `acts held --json` shows it."""
        return {
            "chosen": sorted(self.chosen),
            "parameters": {name: sorted(labels) for name, labels in self.given.items()},
            "ways": {label: list(calls) for label, calls in sorted(self.ways.items())},
        }

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Doubt:
        """Read what `to_dict` gives."""
        given = {name: frozenset(labels) for name, labels in said["parameters"].items()}
        return cls(frozenset(said["chosen"]), given, {label: tuple(calls) for label, calls in said["ways"].items()})


def doubt(
    trust: ToolTrust,
    flow: Flow,
    parameters: Mapping[str, Any] | None = None,
    named: Callable[[], frozenset[str]] = frozenset,
) -> Doubt | None:
    """Why a call may not start, by the trust of its tool and what flows into it; None if it may. With its parameters it
    may also where all its addresses lead to hosts that its tool names, or that `named` gives (SPEC R16.8).
    """
    if not (flow and trust.effects):
        return None
    deciding = {name: labels for name, labels in sorted(flow.given.items()) if name not in trust.free}
    if not (flow.chosen or deciding):
        return None
    is_harmless = bool(trust.hosts) and parameters is not None and lead_to(trust.hosts, parameters, named)
    return None if is_harmless else Doubt(flow.chosen, deciding)


def addressing(call: Call, parameters: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The parameters of a call that goes where its addresses lead; None for a model, which goes where it likes."""
    return parameters if call.runner.executor is Executor.ACTIVITY else None


def hosts_said(fold: Fold) -> frozenset[str]:
    """The hosts that messages without sources name."""
    texts = [text for text in fold.texts() if is_of_people(text)]
    return hosts_named((*texts, *(value for kind in fold.kinds() for value in _unlabelled(fold, Reference(kind)))))


def _unlabelled(fold: Fold, place: Reference) -> Iterator[Any]:
    """The value of a kind, or those of its fields to which nobody else wrote."""
    value = fold.root(place.kind)
    if not fold.marks(place):
        yield value
    elif isinstance(value, dict):
        yield from (part for key, part in value.items() if not fold.marks(Reference(place.kind, (key,))))


def refuses_untrusted(config: Mapping[str, Any]) -> bool:
    """Whether a call that untrusted data would decide on fails, by a valid `config`, instead of being held."""
    return (config.get("trust") or {}).get("otherwise") == "refuse"


def shows_untrusted(config: Mapping[str, Any]) -> bool:
    """Whether a model is shown untrusted data although it can call what has effects (SPEC R16.3)."""
    return (config.get("trust") or {}).get("show") == "value"


def _named(labels: Labels) -> str:
    return " and ".join(sorted(labels))


# Proof: every way from a source to an effect, found without running anything (SPEC R16.5).
#
# It goes through the same steps as `flow`, over all that may be: each alternative may be the one, each call may fail,
# and whatever may write a place has. So what is held or refused in any run is found here; where nothing is, nothing is.

Trusts = Callable[[Call], ToolTrust]


@dataclass(frozen=True, slots=True)
class Source:
    """The entry of a label: a message of the context, or a call whose tool labels its results."""

    label: str
    message: int | None = None
    call: int | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """A way from a source to a call with effects."""

    source: Source
    effect: int
    """The call."""
    calls: tuple[int, ...]
    """Calls between the source and the effect."""
    parameter: str | None
    """Parameter that decides and comes from the source; None if the source has a say in whether the call runs."""


@dataclass(frozen=True, slots=True)
class _Marked:
    """Marks that a call may have."""

    flow: Flow = NOTHING
    out: Marks = UNMARKED
    """Marks of what the call writes."""
    fields: Fields = frozenset()
    """Labels of what it writes by field, as they lie at its place."""
    end: Marks = UNMARKED
    """Marks of how the call ends, if not by its answer."""
    deciding: Labels = TRUSTED
    """Sources of what has a say in whether the call runs, or is skipped since no call chose to write what it reads."""
    endorses: bool = False


class TrustProof:
    """The ways from sources to effects in a plan."""

    def __init__(
        self,
        calls: Sequence[Call],
        context: Sequence[Message],
        trust: Trusts,
        *,
        is_template: bool = False,
        has_more: bool = False,
    ) -> None:
        """Prove what calls may reach; with `has_more` there may be messages without sources besides the context."""
        self._calls = {call.index: call for call in calls if not call.is_thought}
        self._trust = trust
        self._is_template = is_template
        self._messages = list(marked_messages(context))
        self._context = None if has_more else context
        self._found: dict[int, _Marked] = defaultdict(_Marked)
        if self._messages or any(call.prompt_labels or trust(call).result for call in self._calls.values()):
            self._writers = Readers(self._calls.values(), places=lambda call: map(whole_place, call.written))
            self._settle()

    @property
    def ways(self) -> Iterator[Way]:
        """Ways from sources to effects: one for each call with effects, parameter that decides, and label, in the order
        of the calls.
        """
        for call in self._calls.values() if self._found else ():
            found = self._doubt(call)
            for name, labels in found.given.items() if found is not None else ():
                yield from (self._way(call, name, label) for label in sorted(labels))
            for label in sorted(found.chosen.difference(*found.given.values())) if found is not None else ():
                yield self._way(call, None, label)

    @property
    def waived(self) -> Iterator[tuple[Call, str, Labels]]:
        """Calls with effects that are given what others wrote where that is declared to do no harm: each with the
        parameter that proves, or that is an address of a host that its tool names, and the sources.
        """
        for call in self._calls.values() if self._found else ():
            trust, flow = self._trust(call), self._found[call.index].flow
            if not (flow and trust.effects):
                continue
            yield from ((call, name, labels) for name, labels in sorted(flow.given.items()) if name in trust.proof)
            if doubt(trust, flow) is not None and self._doubt(call) is None:
                yield from ((call, name, flow.read) for name, _ in sorted(trust.hosts))

    @property
    def picked(self) -> Iterator[tuple[Call, str, Reference, str]]:
        """Calls with effects that are given a field without labels of one element of a list: each with the parameter,
        the element, and a source of the list's other fields, which may decide which element is there.
        """
        for call in self._calls.values() if self._found else ():
            reads = call.reads if self._trust(call).effects else ()
            decides = ((parameter_at(at), one) for at, one in reads if parameter_at(at) not in self._trust(call).free)
            for name, place in ((name, place) for name, expression in decides for place in expression.references):
                for depth in (depth for depth, segment in enumerate(place.path) if isinstance(segment, int)):
                    of_list = self._at(call, Reference(place.kind, place.path[:depth])).labels
                    for label in sorted(of_list - self._at(call, place).labels):
                        yield call, name, Reference(place.kind, place.path[: depth + 1]), label

    @property
    def doubts(self) -> Iterator[tuple[Call, Doubt]]:
        """Calls with effects on which others may decide, and all that they may decide, in the order of the calls."""
        calls = self._calls.values() if self._found else ()
        yield from ((call, found) for call in calls if (found := self._doubt(call)) is not None)

    @property
    def endorsed(self) -> Iterator[tuple[Call, Labels]]:
        """Calls whose answers are trusted although they read untrusted data, and the sources of that."""
        for index, found in self._found.items():
            call = self._calls[index]
            if found.flow.read and found.endorses:
                yield call, found.flow.read

    def _is_endorsed(self, call: Call, trust: ToolTrust) -> bool:
        among = values_among(trust)
        return endorses(call, trust) and not (among is not None and self._at(call, among))

    def _doubt(self, call: Call) -> Doubt | None:
        read = {parameter_at(at) for at, _ in call.reads}
        written = {name: value for name, value in call.parameters.items() if name not in read}
        return doubt(self._trust(call), self._found[call.index].flow, addressing(call, written))

    def _settle(self) -> None:
        """Update all calls until nothing changes: labels only grow."""
        before: list[object] = []
        while before != (after := [self._update(call) for call in self._calls.values()]):
            before = after

    def _update(self, call: Call) -> object:
        """Update the marks of a call; return them."""
        given: dict[str, Marks] = defaultdict(lambda: UNMARKED)
        left_out = skipping = TRUSTED
        for at, expression in call.reads:
            given[parameter_at(at)] |= self._of(call, expression)
            left_out = left_out.union(*(self._absence(call, place) for place in expression.alternatives[-1]))
            skipping = skipping.union(*(self._choice(call, place) for place in expression.alternatives[-1]))
        before = (index for place in call.after for index in self._writers_at(call, place) if index != call.index)
        after = TRUSTED.union(*(self._found[index].deciding for index in before))
        if call.gather and call.after:
            after |= self._everything.chosen
        scopes = partial(self._at, call, may_lack=True)
        flow = flow_of(call, given, scopes, lambda: self._everything.labels, after)
        there = joined(self._at(call, place, may_lack=True, but=call.index) for place in call.written)
        trust = self._trust(call)
        out = written_marks(call, flow, trust.result | there.labels)
        fields = frozenset(one.in_lists(call.method is Method.PUSH) for one in written_fields(call, flow.read, trust))
        flow = replace(flow, read=flow.read | left_out)
        end = written_marks(call, flow, trust.result | there.labels)
        if is_endorsed := self._is_endorsed(call, trust):
            out = Marks(flow.chosen | there.labels, flow.chosen)
        found = self._found[call.index] = _Marked(flow, out, fields, end, flow.chosen | skipping, is_endorsed)
        return found

    def _of(self, call: Call, expression: Expression) -> Marks:
        """Marks of everything that an expression may read: any of its alternatives, if those before it are missing."""
        found = joined(self._at(call, place) for place in expression.references)
        before = [place for group in expression.alternatives[:-1] for place in group]
        before += [place for place in expression.references if place.kind == ERROR]
        labels = TRUSTED.union(*(self._absence(call, place) for place in before))
        if call.gather:
            labels |= self._everything.labels if before else self._everything.chosen
        return found | Marks(labels, labels)

    def _absence(self, call: Call, place: Reference) -> Labels:
        """Labels of whatever may have kept a value from being there."""
        if place.kind == ERROR:
            return self._everything.labels
        ends = (self._found[index].end.labels for index in self._writers_at(call, place))
        return self._at(call, place).labels.union(*ends)

    def _choice(self, call: Call, place: Reference) -> Labels:
        """Labels of whatever may choose that no call writes at a place."""
        writers = (self._found[index] for index in self._writers_at(call, place) if index != call.index)
        return TRUSTED.union(*(one.deciding | one.end.chosen for one in writers))

    def _at(self, call: Call, place: Reference, *, may_lack: bool = False, but: int | None = None) -> Marks:
        """Marks of everything that may affect a place, but for one call; it may lack a value, or has one."""
        messages = joined(one.at(place) for one in self._messages_at(call, place))
        writers = (index for index in self._writers_at(call, place) if index != but)
        return messages | joined(self._out(call, index, place, may_lack=may_lack) for index in writers)

    def _out(self, call: Call, writer: int, place: Reference, *, may_lack: bool = False) -> Marks:
        """Marks of what a call may have written at a place, or have left there, as another one finds them."""
        found = self._found[writer]
        if found.endorses or not (found.fields or found.out != found.end):
            return found.out
        if may_lack or call.gather or place.kind == ERROR or not self._is_sole(call, writer, place):
            return found.end
        if not found.fields:
            return found.out
        return part_at(found.fields, self._calls[writer].written[0], place) | Marks(chosen=found.out.chosen)

    def _is_sole(self, call: Call, writer: int, place: Reference) -> bool:
        """Whether a value at a place can only be there because a call has written it."""
        if self._context is None or any(index != writer for index in self._writers_at(call, place)):
            return False
        return not any(map(whole_place(place).overlaps, self._held))

    @cached_property
    def _held(self) -> Sequence[Reference]:
        """Places that messages of the context hold values at."""
        return list(held_places(self._context or ()))

    def _messages_at(self, call: Call, place: Reference) -> Iterator[MarkedMessage]:
        wanted = whole_place(place)
        for message in self._messages:
            if self._is_seen(call, message.instance) and any(map(wanted.overlaps, message.places)):
                yield message

    def _writers_at(self, call: Call, place: Reference) -> Iterator[int]:
        if place.kind == ERROR:
            yield from self._calls
            return
        for index in dict.fromkeys(self._writers.at(whole_place(place))):
            writer = self._calls[index]
            if self._is_template or call.gather or sees(call, writer):
                yield index

    def _is_seen(self, call: Call, instance: str | None) -> bool:
        """Whether a call may see the messages of an instance."""
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
            if index != effect.index and label in self._trust(call).result | call.prompt_labels:
                return Way(Source(label, call=index), effect.index, _between(behind, index, effect.index), parameter)
            places = list(_places(call, name))
            for place in places:
                for message in self._messages_at(call, place):
                    if label in message.at(place).labels:
                        calls = _between(behind, index, effect.index)
                        own = (index,) if index != effect.index else ()
                        return Way(Source(label, message=message.position), effect.index, (*own, *calls), parameter)
            for read, writer in ((place, one) for place in places for one in self._before(call, place)):
                is_new = writer not in behind and writer != effect.index
                if is_new and label in self._out(call, writer, read).labels:
                    behind[writer] = index
                    queue.append(writer)
        return Way(Source(label), effect.index, (), parameter)

    def _before(self, call: Call, place: Reference) -> Iterable[int]:
        return self._calls if call.gather or call.runner.executor is Executor.LATENT else self._writers_at(call, place)


def _places(call: Call, parameter: str | None) -> Iterator[Reference]:
    """Places that a call reads, of one parameter or kind of its scopes if one is named."""
    for at, expression in call.reads:
        if parameter in (None, parameter_at(at)):
            yield from expression.references
    yield from (scope for scope in call.scopes if parameter in (None, scope.kind))
    yield from call.after if parameter is None else ()


def _between(behind: Mapping[int, int], index: int, effect: int) -> tuple[int, ...]:
    """The calls between two calls of a way."""
    found = []
    while index in behind and (index := behind[index]) != effect:
        found.append(index)
    return tuple(found)
