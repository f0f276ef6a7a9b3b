"""What a call was given: its parameters, its scopes, and for a delegate or a model the messages.

What was held, and what a child run was given, is in a log, and is shown as it is there. What a delegate or a model was
sent is made again from the log up to where it had been read then: the end of the call says that. Of other calls it is
made from the values as they were before the first message of the call's result, as `acts explain` does it. `exact` says
whether it is what was given, and not only nearly so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from acts_celery.protocol.calls.alternatives import Alternative, alternative
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.delegates import delegate_context
from acts_celery.protocol.calls.tools import ANONYMOUS, Executor
from acts_celery.protocol.engine.events import CallDecided, CallEnded, CallHeld, CallsUndone, ChildStarted, FanOutBegun
from acts_celery.protocol.engine.holds import Snapshot, narrowed
from acts_celery.protocol.language.errors import ProtocolError
from acts_celery.protocol.requests.results import result_request
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.scopes import all_messages, scoped, scoped_messages
from acts_celery.worker.errors import NoSuchCall
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.entries import Entry, id_key
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import Keys
from acts_celery.worker.storage.run_state import RunState
from acts_celery.worker.wire.attempts import Seen

from .opened import OpenedRun
from .values import shown, within

_MADE_AGAIN: Final = (
    "The log does not keep what this call was sent: this is made again from the values just before its result."
)
_AS_READ: Final = (
    "Made again from the log up to where it had been read when this was sent: it is exactly what was sent."
)
_OF_NOW: Final = "The call has not ended: this is what it would be given by the values as they are now."
_GATHERS: Final = "The call reads in every instance: what it was given is not kept, and is not made again here."
_HELD: Final = "It is in the log: the call was held for a person with it."
_CHILD: Final = "A run of its own answers the call: its log holds what it was given."


@dataclass(frozen=True, slots=True)
class Given:
    """What a call was given."""

    snapshot: Snapshot
    is_exact: bool
    note: str
    alternatives: tuple[Alternative, ...] = ()
    """The places among which the model chooses, where there are several."""


def sent(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/sent`. Raises `NoSuchCall`, `InstanceNotFound`, `BadQuery`."""
    name = run.query.required("call")
    text, _, instance = name.partition(":")
    run.require_instance(instance or None)
    index = int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else -1
    entries = run.entries(None, instance or None)
    reading = _Reading(run, entries, instance or None, {index})
    if (call := reading.calls.get(index)) is None:
        text = f"run {run.keys.run} has no call {name[:200]!r}: calls are named by their index, as 3 or 3:instance"
        raise NoSuchCall(text)
    given, definition = reading.given.get(index), reading.definition
    if (seen := reading.shown.get(index)) is not None and not (given is not None and given.is_exact):
        given, definition = reading.as_of(call, seen)
    child = reading.children.get(index)
    if child is not None:
        context = _child_messages(run, child)
        given = Given(given.snapshot if given is not None else Snapshot({}, {}), bool(context), _CHILD)
        return _answer(name, given, context, None, child)
    if given is None:
        return _answer(name, Given(Snapshot({}, {}), False, reading.why.get(index, _GATHERS)), [], None, None)
    messages, schema = _asked(call, given, definition)
    return _answer(name, given, messages, schema, None)


def given_to(
    run: OpenedRun, entries: Sequence[Entry], instance: str | None, calls: set[int]
) -> dict[int, tuple[Call, Mapping[str, Any] | None]]:
    """Some calls of a lane, each with its resolved parameters where they are known."""
    reading = _Reading(run, entries, instance, calls)
    given = {index: found.snapshot.parameters for index, found in reading.given.items()}
    return {index: (reading.calls[index], given.get(index)) for index in calls}


class _Reading:
    """The entries of a lane and of the global one, read for what some calls were given."""

    def __init__(self, run: OpenedRun, entries: Sequence[Entry], instance: str | None, wanted: set[int]) -> None:
        self._run, self._entries, self._instance = run, entries, instance
        self.given: dict[int, Given] = {}
        self.why: dict[int, str] = {}
        self.children: dict[int, str] = {}
        self.shown: dict[int, Seen] = {}
        """How far the log had been read with what a call was sent, where the log says it."""
        state = RunState(run.definition, [instance] if instance is not None else [])
        lane = state.lane(instance)
        self._seen = set[int]()
        for entry in entries:
            index = entry.call
            if entry.instance == instance and index in wanted and index is not None:
                self._look(entry, index, lane.known.get(index), lane.fold)
            if isinstance(entry.event, CallsUndone) and entry.instance == instance:
                self._seen -= set(entry.event.calls)
                for again in entry.event.calls:
                    self.given.pop(again, None)
                    self.children.pop(again, None)
                    self.shown.pop(again, None)
            state.apply(entry)
        self.calls: Mapping[int, Call] = lane.known
        self.definition: Definition = state.definition
        for index in wanted - self._seen - self.given.keys():
            if index in lane.known and lane.end(index) is None:
                self._make(index, lane.known[index], lane.fold, _OF_NOW)

    def as_of(self, call: Call, seen: Seen) -> tuple[Given | None, Definition]:
        """What a call was sent when the log had been read so far, and what the run was then."""
        own, shared = map(id_key, seen)
        state = RunState(self._run.definition)
        lane = state.lane(self._instance)
        state.feed(
            entry
            for entry in self._entries
            if id_key(entry.id) <= (own if entry.instance == self._instance else shared)
        )
        self._make(call.index, call, lane.fold, _AS_READ, is_exact=True)
        return self.given.get(call.index), state.definition

    def _look(self, entry: Entry, index: int, call: Call | None, fold: Fold) -> None:
        event = entry.event
        if isinstance(event, (CallHeld, FanOutBegun)):
            self.given[index] = Given(event.snapshot, True, _HELD, _alternatives(call, fold))
        elif isinstance(event, CallDecided) and call is not None and index in self.given:
            held = self.given[index]
            self.given[index] = replace(held, snapshot=_ruled(held.snapshot, call, event))
        elif isinstance(event, ChildStarted):
            self.children[index] = event.run
        if isinstance(event, CallEnded) and entry.seen is not None and max(map(id_key, entry.seen)) < id_key(entry.id):
            self.shown[index] = entry.seen
        is_result = isinstance(event, CallEnded) or entry.message is not None
        if is_result and index not in self._seen and call is not None:
            self._seen.add(index)
            if index not in self.given:
                self._make(index, call, fold, _MADE_AGAIN)

    def _make(self, index: int, call: Call, fold: Fold, note: str, *, is_exact: bool = False) -> None:
        if call.gather:
            self.why[index] = _GATHERS
            return
        try:
            parameters = call.resolved(fold)
            is_latent = call.runner.executor is Executor.LATENT
            messages = all_messages(fold, call.scopes) if is_latent else scoped_messages(fold, call.scopes)
            snapshot = Snapshot(parameters, scoped(fold, call.scopes), messages)
            self.given[index] = Given(snapshot, is_exact, note, _alternatives(call, fold))
        except ProtocolError as error:
            self.why[index] = f"It was given nothing: {error}"


def _ruled(snapshot: Snapshot, call: Call, event: CallDecided) -> Snapshot:
    """What a held call runs with, once a person has decided."""
    ruling = event.ruling
    if ruling.scopes is not None:
        snapshot = narrowed(snapshot, call, ruling.scopes)
    if ruling.parameters is None:
        return snapshot
    return Snapshot(ruling.parameters, snapshot.scopes, snapshot.messages)


def _alternatives(call: Call | None, fold: Fold) -> tuple[Alternative, ...]:
    groups = call.output.alternatives if call is not None and call.output is not None else ()
    return (
        tuple(alternative(group, call.method, fold) for group in groups) if call is not None and len(groups) > 1 else ()
    )


def _asked(call: Call, given: Given, definition: Definition) -> tuple[Sequence[Any], Any]:
    """The messages that a delegate or a model is sent, and the schema of its answer."""
    name, snapshot = call.runner.name, given.snapshot
    if call.runner.executor is Executor.ACTIVITY:
        return (), None
    is_asked = call.runner.executor is Executor.LATENT or name in definition.delegates or name == ANONYMOUS
    if not is_asked:
        return delegate_context([], snapshot.messages, snapshot.parameters), None
    own = definition.delegates.get(name, {}) if call.runner.executor is Executor.DELEGATE else {}
    request = result_request(
        call,
        snapshot.parameters,
        snapshot.messages,
        given.alternatives,
        tool=definition.tools.get(call.tool),
        definition=own,
        show_bytes=definition.config.get("show_bytes"),
    )
    return request.messages, request.schema


def _child_messages(run: OpenedRun, child: str) -> list[Any]:
    """The context of a child run as its log has it; nothing where it is gone."""
    entries = History(run.redis, Keys(run.keys.prefix, child)).lane(None)
    return [entry.message for entry in entries if entry.message is not None and entry.call is None]


def _answer(name: str, given: Given, messages: Sequence[Any], schema: Any, child: str | None) -> dict[str, Any]:
    return {
        "call": name,
        "messages": (listed := within(map(shown, messages))),
        "more": len(messages) - len(listed),
        "parameters": shown(dict(given.snapshot.parameters)),
        "scopes": {kind: shown(value) for kind, value in given.snapshot.scopes.items()},
        "schema": shown(schema),
        "exact": given.is_exact,
        "note": given.note,
        "child": child,
    }
