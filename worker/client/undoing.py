"""Undoing: the activities run that take back what the calls of a run have done (SPEC R4.11).

They are the calls of a run of its own, one after the other however each ends, the newest effect first. The id of that
run follows from that of the other, and its input names the effects: repeated, an undoing that was interrupted is taken
up, and nothing is taken back twice. Only calls that run at most once can be undone: the log has what they were given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from ...protocol import Rejected
from ...protocol.calls.call import Call, call_of
from ...protocol.calls.tools import Executor
from ...protocol.engine.events import CallBegun, Status
from ...protocol.engine.execution import UNKNOWN
from ...protocol.errors import segments
from ...protocol.messages import TRUST, read_data
from ...protocol.references import Reference
from ...protocol.state.labels import TRUSTED, Labels, marks_of
from ...protocol.state.operations import read_operation
from ..broker.attempts import CallId
from ..errors import RunNotFound, RunOver
from ..limits import MOST_TOLD
from ..registry.activities import Activity
from ..store.connections import redis_errors
from ..store.entries import Entry, id_key
from ..store.run_list import owner_of
from ..store.run_store import RunStore
from ..store.state import RunState
from .submitting import ID, label_of

if TYPE_CHECKING:
    from .client import Client

_NOT_KNOWN: Final = "its end is not known"


@dataclass(frozen=True, slots=True)
class Undone:
    """The calls of a run that `cancel(undo=True)` takes back."""

    run: str | None
    """The run whose calls take it back; None if there is nothing to take back."""
    calls: int
    """How many calls are taken back."""
    left: tuple[str, ...]
    """Calls that may have done something that is not taken back, each with the reason; the first few."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON."""
        return {"undo": self.run, "undone": self.calls, "not_undone": list(self.left)}


@dataclass(frozen=True, slots=True)
class _Effect:
    """A call that may have done something."""

    id: str
    """The entry with which it has begun, or ended."""
    key: str
    """The idempotency key of the call in its run."""
    call: Call
    begun: CallBegun | None
    """Its last attempt; None for a call that may run more than once."""
    status: Status | None = None
    """How it has ended; None if that is not known."""
    result: Any = None

    @property
    def given(self) -> dict[str, Any]:
        """Arguments that its `undo` may be given: the call's result and idempotency key, and its parameters."""
        parameters = self.begun.snapshot.parameters if self.begun is not None else {}
        return {"result": self.result, "key": self.key, **parameters}

    def undo_in(self, known: Mapping[str, Activity]) -> Activity | str:
        """Find the activity that takes it back, or say why it cannot be taken back."""
        if self.status is not Status.DONE:
            return _NOT_KNOWN if self.status is None else "it was sent and forgotten"
        runner = self.call.runner
        if runner.executor is not Executor.ACTIVITY or (activity := known.get(runner.name)) is None:
            return f"there is no activity {runner.name!r} here"
        if activity.undo is None or self.begun is None:
            return f"activity {runner.name!r} has no `undo`"
        if self.begun.evidence.key != self.key:
            return f"another run did it, as {self.begun.evidence.key}"
        if (undo := known.get(activity.undo)) is None:
            return f"there is no activity {activity.undo!r} here"
        missing = [name for name in undo.schema.get("required", ()) if name not in self.given]
        return f"{undo.name!r} needs {missing[0]!r}, which the call does not have" if missing else undo


@dataclass(frozen=True, slots=True)
class _Step:
    """The call that takes one effect back; `name` is that of the effect in the input, and in the state."""

    name: str
    effect: _Effect
    undo: Activity

    @property
    def given(self) -> dict[str, Any]:
        """Arguments of the call."""
        takes = self.undo.schema.get("properties", {})
        takes_all = self.undo.schema.get("additionalProperties") is not False
        return {name: value for name, value in self.effect.given.items() if takes_all or name in takes}

    def call(self, before: _Step | None) -> dict[str, Any]:
        """Write the call, which begins when the one before has ended."""
        return {
            "_tool": self.undo.name,
            **{name: str(Reference("input", (self.name, name))) for name in self.given},
            "_outputPath": str(Reference("state", (self.name,))),
            "_reasoningForCall": f"undoes {self.effect.call.tool}, {self.effect.key}",
            **({"_after": [str(Reference("state", (before.name,)))]} if before is not None else {}),
        }


def undo_run(store: RunStore, client: Client) -> Undone:
    """Start the run that takes back what a run and its child runs have done, for the owner of the run. Raises
    `RunOver` if the run is imported, `Rejected`, `InfrastructureError`.
    """
    with redis_errors(client.settings):
        if store.fields("imported") != [None]:
            raise RunOver(f"run {store.run} is imported: undo it where it has run")
        owner = owner_of(store.redis, client.settings.key_prefix, store.run)
        effects, labels = _effects(store)
        earlier = _earlier(store)
    known, steps, left = client.checker.registry.activities, list[_Step](), list[str]()
    taken = {name for names in earlier.values() for name in names}
    for name, effect in _named(effects):
        undo = effect.undo_in(known) if name not in taken else None
        if isinstance(undo, Activity):
            steps.append(_Step(name, effect, undo))
        elif undo is not None:
            left.append(_line(effect, undo))
    admitted, runs = _admitted(steps, labels, client, left), [*earlier]
    if admitted:
        document, id_ = _document(admitted, labels), undo_id(store.run, len(runs) + 1)
        label = replace(label_of(document, id=id_, name=f"undo {store.run}"), owner=owner)
        runs.append(client.submit_plan(client.check_submission(document), label).id)
    more = (f"and {len(left) - MOST_TOLD} more",) if len(left) > MOST_TOLD else ()
    return Undone(runs[-1] if runs else None, len(taken) + len(admitted), (*left[:MOST_TOLD], *more))


def undo_id(run: str, number: int = 1) -> str:
    """The id of the run that takes back what a run has done; `number` counts those of one run, from 1."""
    id_ = f"{run}.undo{number if number > 1 else ''}"
    return id_ if ID.match(id_) else f"undo-{hashlib.sha256(id_.encode()).hexdigest()}"


def undo_runs(store: RunStore) -> list[RunStore]:
    """The runs that take back what a run has done, the newest last. Raises `RedisError`."""
    found = list[RunStore]()
    while (undoing := store.other(undo_id(store.run, len(found) + 1))).status() is not None:
        found.append(undoing)
    return found


def _earlier(store: RunStore) -> dict[str, list[str]]:
    """The names of the effects that were taken back before, by the run that does it, the newest last."""
    found = dict[str, list[str]]()
    for undoing in undo_runs(store):
        given = [entry.message for entry in undoing.lane(None) if entry.message is not None and entry.call is None]
        found[undoing.run] = [name for message in given if (data := read_data(message)) for name in data.payload]
    return found


def _named(effects: Sequence[_Effect]) -> list[tuple[str, _Effect]]:
    """The effects, the newest first, each with a name: its idempotency key, and of a call that has ended before and ran
    again the entry, too.
    """
    found = dict[str, _Effect]()
    for effect in sorted(effects, key=lambda one: id_key(one.id)):
        found[effect.key if effect.key not in found else f"{effect.key} {effect.id}"] = effect
    return [*found.items()][::-1]


def _line(effect: _Effect, reason: str) -> str:
    return f"call {effect.key} ({effect.call.tool}): {reason}"


def _admitted(steps: Sequence[_Step], labels: Labels, client: Client, left: list[str]) -> Sequence[_Step]:
    """The steps that can be submitted; those that are refused go to `left`. Raises `Rejected` for what is the fault of
    no step.
    """
    while steps:
        try:
            client.check_submission(_document(steps, labels))
            break
        except Rejected as rejected:
            faults = {at: problem.message for problem in rejected.errors for at in _places(problem.pointer)}
            if not faults:
                raise
        left += [_line(step.effect, faults[at]) for at, step in enumerate(steps) if at in faults]
        steps = [step for at, step in enumerate(steps) if at not in faults]
    return steps


def _document(steps: Sequence[_Step], labels: Labels) -> dict[str, Any]:
    """The run that takes effects back; nothing that was read or returned is an expression in it (SPEC R2.4)."""
    trust = {TRUST: sorted(labels)} if labels else {}
    context = [{"type": "input", step.name: step.given, **trust} for step in steps]
    before: Sequence[_Step | None] = [None, *steps]
    return {
        "context": context,
        "solution": {"calls": [step.call(one) for step, one in zip(steps, before, strict=False)]},
    }


def _places(pointer: str) -> Iterator[int]:
    """Which step a problem of the document is about: each has a message of the context, and a call."""
    match segments(pointer):
        case ["context", at, *_] | ["solution", "calls", at, *_]:
            yield int(at)


def _effects(store: RunStore) -> tuple[list[_Effect], Labels]:
    """The calls of a run and its child runs that may have done something, and the sources of what they have read."""
    run, labels, children = RunState(store.definition(), store.instances()), TRUSTED, list[str]()
    begun, found = dict[tuple[str | None, int], _Effect](), list[_Effect]()
    for entry in store.entries():
        run.apply(entry)
        labels |= marks_of(entry.message).labels if entry.message is not None else TRUSTED
        if entry.child is not None:
            children.append(entry.child)
        end = entry.element_end or entry.end
        begins = entry.event if isinstance(entry.event, CallBegun) else None
        if end is None and begins is None:
            continue
        index = entry.element_end.element if entry.element_end is not None else entry.call
        assert index is not None
        call, key = (
            run.lane(entry.instance).known[call_of(index)],
            CallId(store.run, entry.instance, index).idempotency_key,
        )
        if end is None:
            begun[entry.instance, index] = _Effect(entry.id, key, call, begins)
            continue
        effect = begun.pop((entry.instance, index), None) or _Effect(entry.id, key, call, None)
        if effect.begun is None and (call.each or not run.definition.has_effects(call)):
            continue
        if (end.error or {}).get("type") == UNKNOWN:
            found.append(effect)
        elif end.status in (Status.DONE, Status.SENT) and not getattr(end, "is_rescued", False):
            found.append(replace(effect, id=entry.id, status=end.status, result=_result(entry)))
    found += begun.values()
    for child in dict.fromkeys(children):
        with suppress(RunNotFound):
            below, more = _effects(store.other(child))
            found, labels = found + below, labels | more
    return found, labels


def _result(entry: Entry) -> Any:
    """The result of a call, or of an element, that has ended with an entry; null where the log has none."""
    if entry.element_end is not None:
        return entry.element_end.value
    operation = read_operation(entry.message, "") if entry.message is not None else None
    return operation.value if operation is not None else None
