"""Flow: which sources a call has read, and which had a say in whether it runs (SPEC R16.2).

Labels follow the references of the graph. What a call has read is known when it starts; a reader of its result finds
the labels in the log, beside the result. A call that ended without writing what another one was to read has them, too:
what that one reads instead hangs on it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.calls.trust import ToolTrust
from acts_celery.protocol.graph.graph import Graph
from acts_celery.protocol.language.errors import segments
from acts_celery.protocol.language.messages import ERROR
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import Expression, Reference
from acts_celery.protocol.state.labels import TRUSTED, UNMARKED, Labels, Marks


class Seen(Protocol):
    """What a call reads from: a fold, or those of all instances."""

    def lacks(self, reference: Reference, *, is_last: bool) -> bool:
        """Whether a place of an alternative is missing; in some instance, unless that is all there is to read."""

    def marks(self, reference: Reference) -> Marks:
        """Of all that reaches a place."""

    def absence(self, reference: Reference) -> Labels:
        """Of what may have kept a value from being there, beside the calls that were waited for."""

    @property
    def all_marks(self) -> Marks:
        """Of everything there is."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What flows into one call. It is false where all of that is trusted."""

    chosen: Labels = TRUSTED
    """Of what had a say in whether it runs."""
    given: Mapping[str, Labels] = field(default_factory=dict)
    """Of each parameter, and of each kind of its scopes, that is not trusted."""
    read: Labels = TRUSTED
    """Of all that it has read, these included."""

    def __bool__(self) -> bool:
        return bool(self.read)


NOTHING: Final = Flow()


class Flows:
    """What flows into the calls of a lane, by the values there are and by how calls have ended."""

    def __init__(self, graph: Graph, trust: Callable[[Call], ToolTrust], ended: Mapping[int, Labels]) -> None:
        """`ended` are the labels of the calls that have ended with any, also of global ones that others wait for."""
        self._graph = graph
        self._trust = trust
        self._ended = ended

    def into(self, call: Call, seen: Seen, *, has_begun: bool = False) -> Flow:
        """What flows into a call that reads from there now; or has read, where it has begun: what was not there may
        have come since, so it may have read any of its alternatives.
        """
        everything = seen.all_marks
        if not (everything or self._ended or call.told):
            return NOTHING
        given: dict[str, Marks] = defaultdict(lambda: UNMARKED)
        for at, expression in call.reads:
            given[parameter_at(at)] |= self._of(call, expression, seen, has_begun=has_begun)
        return flow_of(call, given, lambda scope: self._at(call, scope, seen), lambda: everything.labels)

    def out_of(
        self, call: Call, flow: Flow, said: Labels = TRUSTED, answered: Labels = TRUSTED, *, is_done: bool = False
    ) -> Marks:
        """What is true of what a call writes, however it ends. `said` are the sources that its code has named, and
        those of what stands where it writes: that may keep it from it; `answered` are those of a child run's answer.
        """
        trust = self._trust(call)
        if is_done and endorses(call, trust):
            return Marks(flow.chosen | said, flow.chosen)
        return written_marks(call, flow, trust.result | said | answered)

    def way(self, call: Call, label: str, calls: Mapping[int, Call]) -> tuple[int, ...]:
        """The calls through which a source reaches a call, the first of them first; those of `calls` are looked
        behind.
        """
        way: list[int] = []
        at: Call | None = call
        while at is not None:
            places = {*(place for one in at.expressions for place in one.references), *at.scopes}
            before = {index for place in places for index in self._graph.writers(at.index, place)}
            index = max(
                (one for one in before if label in self._ended.get(one, TRUSTED) and one not in way), default=None
            )
            at = calls.get(index) if index is not None else None
            way += [index] if index is not None else []
        return tuple(reversed(way))

    def _of(self, call: Call, expression: Expression, seen: Seen, *, has_begun: bool) -> Marks:
        """Of what an expression reads: the first alternative that is there; those before it were not, and whoever
        could have brought them had a say in that.
        """
        found = UNMARKED
        for group in expression.alternatives:
            found |= joined(self._at(call, place, seen) for place in group)
            is_last = group is expression.alternatives[-1]
            may_lack = has_begun and not is_last
            lacking = [place for place in group if may_lack or seen.lacks(place, is_last=is_last)]
            for place in (*lacking, *(place for place in group if place.kind == ERROR)):
                labels = TRUSTED.union(seen.absence(place), *self._of_writers(call, place))
                found |= Marks(labels, labels)
            if not lacking:
                break
        return found

    def _at(self, call: Call, place: Reference, seen: Seen) -> Marks:
        """Of what a place holds, and of whoever could have changed it and did not."""
        return seen.marks(place) | Marks(TRUSTED.union(*self._of_writers(call, place)))

    def _of_writers(self, call: Call, place: Reference) -> Iterator[Labels]:
        """Of the calls that a call waited for at a place: for an error, of all that may have brought one."""
        for index in self._graph.writers(call.index, place) if self._ended else ():
            yield self._ended.get(index, TRUSTED)


def flow_of(
    call: Call, given: dict[str, Marks], scope_marks: Callable[[Reference], Marks], everything: Callable[[], Labels]
) -> Flow:
    """What flows into a call by the marks of its parameters, which its scopes are added to, and of all there is."""
    chosen = call.told.union(*(marks.chosen for marks in given.values()))
    chosen = chosen.union(*(given[name].labels for name in call.each))
    for scope in call.scopes:
        given[scope.kind] = given.get(scope.kind, UNMARKED) | scope_marks(scope)
    labels = {name: marks.labels | marks.chosen for name, marks in given.items() if marks}
    is_asked = call.runner.executor is Executor.LATENT and call.given is MISSING
    shown = everything() if is_asked else TRUSTED  # all there is (SPEC R8.3)
    return Flow(chosen, labels, chosen.union(shown, *labels.values()))


def written_marks(call: Call, flow: Flow, others: Labels) -> Marks:
    """What is true of what a call writes, by what flows into it and by other sources."""
    labels = flow.read | others
    is_choice = call.output is not None and len(call.output.alternatives) > 1
    return Marks(labels, labels if is_choice else flow.chosen)


def marks_since(call: Call, trust: ToolTrust, seen: Seen, *, is_done: bool) -> Marks:
    """What is true of what a call has written, where labels were added since: by all that it may have read, as that
    stands now.
    """
    given: dict[str, Marks] = defaultdict(lambda: UNMARKED)
    failed = Marks(seen.marks(Reference(ERROR)).labels)  # of calls that could have changed it and did not
    for at, expression in call.reads:
        found = failed | joined(seen.marks(place) for place in expression.references)
        may_lack = len(expression.alternatives) > 1 or any(
            place.kind == ERROR or seen.lacks(place, is_last=True) for place in expression.references
        )
        if may_lack:
            everything = seen.all_marks.labels  # whoever could have brought what was not there
            found |= Marks(everything, everything)
        given[parameter_at(at)] |= found
    flow = flow_of(call, given, seen.marks, lambda: seen.all_marks.labels)
    if is_done and endorses(call, trust):
        return Marks(flow.chosen, flow.chosen)
    return written_marks(call, flow, trust.result)


def endorses(call: Call, trust: ToolTrust) -> bool:
    """Whether the result of a call is trusted, whatever it has read (SPEC R16.3); which of several places it goes to is
    not its delegate's answer.
    """
    is_choice = call.output is not None and len(call.output.alternatives) > 1
    return trust.endorses and call.runner.executor is Executor.DELEGATE and not is_choice


def parameter_at(at: str) -> str:
    """The parameter in which a JSON pointer into a call lies."""
    return str(segments(at)[0])


def joined(marks: Iterable[Marks]) -> Marks:
    """Of several."""
    found = UNMARKED
    for one in marks:
        found |= one
    return found
