"""Retrying: failed calls of a run are done again in the same run, and what was skipped for them is decided anew; where
that is asked for, also what has read what they may write now (SPEC R11.8).

The ends of these calls, and what they had written, count no more from an entry of the log on (see `storage.fields`);
everything else that has ended stays, and the entry says what of it is stale. Where a value is given by hand the failed
calls count as done with it, and the log says who gave it. The run is held for the time of it, as for an amendment, and
opened again where it had ended (SPEC R11.7). Should the client die on the way, the same retry can be handed in again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol import Problem, Rejected
from acts_celery.protocol.engine.decisions import Outcome, Success
from acts_celery.protocol.engine.events import CallEnded, CallsUndone, ElementEnded, MessageAdded
from acts_celery.protocol.engine.statuses import Status
from acts_celery.protocol.language.limits import one_message_problems
from acts_celery.protocol.state.operations import read_operation
from acts_celery.worker.batches import batches
from acts_celery.worker.errors import BeingAmended, InstanceNotFound, NothingToRetry
from acts_celery.worker.process.limits import limits_of
from acts_celery.worker.storage.audit import Actor, audit_record
from acts_celery.worker.storage.clock import date_now
from acts_celery.worker.storage.condition import Kind
from acts_celery.worker.storage.dead_letters import DeadLetters
from acts_celery.worker.storage.entries import Entry, id_key
from acts_celery.worker.storage.gatherings import Found
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import Keys
from acts_celery.worker.storage.lane import LaneView, RunView
from acts_celery.worker.storage.secret import read_tokens
from acts_celery.worker.wire.attempts import CallId, lane_token
from acts_celery.worker.wire.packing import pack

from .admission import admitted
from .amendment_steps import AmendmentSteps
from .undoing import EndedLane, Retried, Undoing, id_of, new_record, status_text
from .undoing import Extent as Extent

_HAVE_READ_NOTHING: Final = (Kind.HELD, Kind.RETRY)
"""Calls that stand so are given anew what they read; one that is held is undone as one that has ended is. Of one that
counts as lost a result may still come.
"""
_MOST_NAMED: Final = 100
"""How many calls the audit trail names."""
_UNDONE_AT_ONCE: Final = 250
"""How many calls one script undoes: the server does nothing else meanwhile."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which failed calls: those of an index, of an instance, or all. With `given` they are taken as done with it."""

    extent: Extent
    call: int | None = None
    instance: str | None = None
    given: Success | None = None

    def of(self, lane: EndedLane, indexes: set[int]) -> set[int]:
        """Those of some calls of a lane that it names."""
        if self.instance not in (None, lane.instance):
            return set()
        return indexes if self.call is None else indexes & {self.call}


class Retrier:
    """Retries calls of one run."""

    def __init__(self, run: str, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._keys = Keys(settings.key_prefix, run)
        self._history = History(redis, self._keys)
        self._steps = AmendmentSteps(redis, self._keys)
        self._settings = settings
        self._by = str(Actor.of(settings))

    def retry(self, choice: Choice, *, resume: Callable[[], None]) -> Retried:
        """Carry it out, and `resume` the run unless it was paused.

        Raises `NothingToRetry` and, where the value given does not fit, `protocol.Rejected`, and then the run is as
        before; `RunNotFound`, `RunOver`, `InstanceNotFound`, `BeingAmended`, `OverLimit`.
        """
        if choice.given is not None and (
            problems := list(one_message_problems(choice.given.value, limits_of(self._settings)))
        ):
            raise Rejected(problems)
        submitted, _ = self._begun(choice)
        with admitted(self._redis, self._settings, more_of=self._keys.run), self._steps.listed(submitted):
            return self._carry_out(choice, resume)

    def planned(self, choice: Choice) -> Retried:
        """What `retry` would do as things stand. Raises as it does."""
        return self._begun(choice)[1].retried

    def _begun(self, choice: Choice) -> tuple[int, Undoing]:
        """When the run was submitted, and what a retry would undo."""
        submitted, by = self._steps.opened("nothing of it can be retried")
        _refuse_another(self._keys.run, by)
        return submitted, self._planned(choice, by)

    def _carry_out(self, choice: Choice, resume: Callable[[], None]) -> Retried:
        run = self._keys.run
        with self._steps.begun(resume, adds=True) as found:
            _refuse_another(run, found["by"])
            plan = self._planned(choice, found["by"])
            requests = list(self._requests(plan, choice.given))
        done = plan.retried
        did = "retried" if choice.given is None else "given by hand"
        order = audit_record(self._settings, did, calls=done.calls[:_MOST_NAMED])
        self._steps.do("plan", by=plan.extent.name, adds=True, deed=order.pack(), gathers=plan.unsettled_gathers)
        withdrawn = (CallId(run, of["lane"] or None, one) for of in requests for one in of["withdrawn"])
        DeadLetters(self._redis, self._settings).forget_calls(withdrawn)
        self._steps.do_all("undo", requests)
        self._steps.end(order, resume)
        return done

    def _planned(self, choice: Choice, by: str) -> Undoing:
        """What is to be undone; `by` names what a client that has died has written of it. Raises `NothingToRetry`."""
        view, before = self._read(choice, by)
        extent = choice.extent | Extent.named(by)
        lanes = [EndedLane(lane, before=before[lane.instance]) for lane in view.state.lanes.values()]
        begun = defaultdict[str | None, set[int]](set)
        for instance, index in self._history.open_calls(without=_HAVE_READ_NOTHING):
            begun[instance].add(index)
        for lane in lanes:
            lane.begun = begun[lane.instance] & lane.state.known.keys()
            failed = lane.state.of_status(Status.FAILED)
            parts = lane.with_failed_elements if choice.given is None else set()
            rescued = lane.rescued if choice.call is not None else set()
            lane.failed = choice.of(lane, failed | parts | rescued)
            lane.keeping = lane.failed - failed - rescued
            stale = {index for index, call in lane.state.calls.items() if call.is_stale and extent.downstream}
            lane.undone = lane.failed | choice.of(lane, stale & extent.takes(view, lane))
        if not any(lane.undone for lane in lanes) and not by:
            raise NothingToRetry(self._why_nothing(lanes, choice))
        return Undoing(view, lanes, extent)

    def _read(self, choice: Choice, by: str) -> tuple[RunView, Mapping[str | None, set[int]]]:
        """The run as far as the retry may reach, and the calls of each lane that a client that has died on the way has
        undone.
        """
        if not by and (view := self._read_one(choice)) is not None:
            return view, defaultdict(set)
        view = self._view(self._history.instances())
        since: Any = self._redis.hget(self._keys.state, "amending:since")
        undone = defaultdict[str | None, set[int]](set)
        for entry in self._history.entries():
            view.state.apply(entry)
            if since is not None and isinstance(entry.event, CallsUndone) and id_key(entry.id) > id_key(since.decode()):
                undone[entry.instance].update(entry.event.calls)
        return view, undone

    def _read_one(self, choice: Choice) -> RunView | None:
        """The instance that was chosen alone; None where others may be reached. They meet in gather calls only."""
        if choice.instance is None or not self._redis.hexists(self._keys.lanes, lane_token(choice.instance)):
            return None
        view = self._view([choice.instance])
        lanes = (entry for lane in (None, choice.instance) for entry in self._history.lane(lane))
        view.state.feed(sorted(lanes, key=lambda entry: id_key(entry.id)))
        gathers = any(call.gather for call in view.state.shared.known.values())
        return None if gathers or view.definition.request is not None else view

    def _view(self, instances: Sequence[str]) -> RunView:
        """A run of which nothing was read yet."""
        definition, tokens = self._history.definition(), read_tokens(self._redis, self._keys.prefix)
        view = RunView(self._keys.run, definition, tokens, limits_of(self._settings))
        for instance in instances:
            view.state.lane(instance)
        return view

    def _why_nothing(self, lanes: Sequence[EndedLane], choice: Choice) -> str:
        """Why no call is chosen. Raises `InstanceNotFound`."""
        run, names = self._keys.run, [lane.instance for lane in lanes if lane.instance is not None]
        if choice.instance is not None and choice.instance not in names:
            raise InstanceNotFound(run, choice.instance, names)
        where = f" in {choice.instance}" if choice.instance is not None else ""
        if choice.call is None:
            return f"no call of run {run}{where} has failed: there is nothing to retry"
        mine = [lane for lane in lanes if choice.instance in (None, lane.instance)]
        known = [lane for lane in mine if choice.call in lane.state.known]
        if not known:
            return f"run {run} has no call {choice.call}{where}: see `acts show {run} --all`"
        found = sorted({status_text(lane, choice.call) for lane in known})
        if any(lane.state.call(choice.call).is_stale for lane in known):
            return f"call {choice.call} of run {run}{where} has not failed and is stale: --downstream does it again"
        return f"call {choice.call} of run {run}{where} is {' or '.join(found)}: only failed calls are retried"

    def _requests(self, plan: Undoing, given: Success | None) -> Iterator[dict[str, Any]]:
        """What is to be written, the global lane first. Raises `Rejected` for a value that does not fit."""
        for lane in plan.lanes:
            if not plan.concerns(lane):
                continue
            common = {
                "lane": lane_token(lane.instance),
                "detail": pack({"by": self._by}),
                "keeping": sorted(lane.keeping),
                "unsettled": plan.unsettled.get(lane.instance, []),
            }
            undone = sorted(lane.undone)
            parts = [part for index in undone for part in lane.parts(index)]
            for some in batches(parts, _UNDONE_AT_ONCE):
                yield {**common, "undone": [], "parts": some, "withdrawn": lane.sent(some), "record": b"", "given": []}
            first, last = undone[:-_UNDONE_AT_ONCE], undone[-_UNDONE_AT_ONCE:]
            for some in batches(first, _UNDONE_AT_ONCE):
                yield {**common, "undone": some, "withdrawn": lane.sent(some), "record": b"", "given": []}
            outcomes = self._given(plan.view, lane, given) if given is not None else []
            record = new_record(plan.view, lane) if undone else b""
            ends = {"undone": last, "withdrawn": lane.sent(last), "record": record, "given": outcomes}
            yield {**common, **ends, "stale": sorted(lane.stale)}

    def _given(self, view: RunView, lane: EndedLane, given: Success) -> list[dict[str, Any]]:
        """The outcomes of a lane's failed calls, were this their result."""
        entries = self._history.lane(lane.instance)
        undoing = Entry(lane.state.last, CallsUndone(tuple(lane.undone)), record=new_record(view, lane))
        shown = LaneView(view, lane.instance, [*entries, undoing])
        outcomes = []
        gathering = [call for index in lane.failed if (call := lane.state.known[index]).gather]
        if gathering:  # what the value hangs on lies in all instances
            shown.gather_from(self._history.instances(), self._messages(), gathering)
        for index in sorted(lane.failed):
            outcome = shown.execution.finish(index, given, date_now())
            if (reason := _refusal(outcome, given)) is not None:
                raise Rejected([Problem("", f"call {id_of(lane, index)} cannot have the value: {reason}")])
            shown.apply(outcome)
            outcomes.append(self._written(outcome))
        return outcomes

    def _messages(self) -> Iterator[Found]:
        """What the log holds for instances."""
        for entry in self._history.entries():
            event, instance = entry.event, entry.instance
            if instance is None:
                continue
            if isinstance(event, CallsUndone):
                yield entry.id, instance, None, frozenset(event.calls)
            elif isinstance(event, MessageAdded | CallEnded | ElementEnded) and event.message is not None:
                yield entry.id, instance, event.call, event.message

    def _written(self, outcome: Outcome) -> dict[str, Any]:
        labels = {"labels": sorted(outcome.labels)} if outcome.labels else {}
        return {
            "call": outcome.index,
            "status": outcome.status.value,
            "detail": pack({"by": self._by, **labels}),
            "messages": [pack({**message, "_by": self._by}) for message in outcome.messages],
        }


def _refuse_another(run: str, by: str) -> None:
    """Raise `BeingAmended` where something else has been written in part."""
    if by and not by.startswith(Extent().name):
        raise BeingAmended(f"run {run} is amended in part: finish that first, or cancel the run")


def _refusal(outcome: Outcome, given: Success) -> str | None:
    """Why an outcome is not the value given: it has failed with it, or would write the failure itself (SPEC R4.4)."""
    if outcome.status is Status.FAILED:
        return str((outcome.error or {}).get("message"))
    for message in outcome.messages:
        operation = read_operation(message, "the value given")
        if operation is not None and operation.value != given.value:
            return str(operation.value["message"])
    return None
