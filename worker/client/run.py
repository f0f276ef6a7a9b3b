"""A run, from outside: what is read of it (`ReadableRun`), and orders to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from redis import Redis

from ...broker_config import Settings, is_cluster
from ...protocol.analysis.provenance import Explanation
from ...protocol.calls.built_in import NO_MOMENT, moment_ms
from ...protocol.engine.events import Success
from ...protocol.errors import Problem, Rejected
from ...protocol.limits import LONGEST_WAIT_SECONDS, plain
from ...protocol.references import Reference
from .. import limits
from ..errors import HeldAnew, InstanceDeleted, InstanceNotFound, PlanWaits, RunNotFound, RunOver
from ..limits import limits_of
from ..store.connections import PASSING, redis_errors
from ..store.held_calls import HeldCall, questions
from ..store.keys import SCHEDULED
from ..store.run_store import RunStore
from ..store.scripts import server_ms
from ..store.state import RunState
from . import results
from .call_results import LogEntry, LogReading
from .control import Control
from .files import File, Given, files_of
from .progress import Arrivals, Deadline, Event, EventReader, blocking
from .results import Result
from .submitting import OutputT, OutputType, Texts, messages_of, typed, with_named_options
from .tables import place_of

# A run as its log tells it: its status, its result, its log, waiting for its end (SPEC R11.1).

if TYPE_CHECKING:
    from ..broker.consumer import Publisher
    from .explanations import Absence

    OpenedRun = Callable[[], Publisher]
    """What publishes, opened when it is first needed."""


@with_named_options
class ReadableRun(Generic[OutputT]):
    """A run as its log tells it."""

    def __init__(self, run: str, redis: Redis, settings: Settings, since: str | None = None) -> None:
        """`since` is the id of the status that a run had when it was submitted here."""
        self.id = run
        self.output_type: OutputType | None = None  # where it was submitted here with one as its schema
        self.is_new = False
        """True for a run that was submitted here just now, not for one that was there under its id."""
        self._since = since
        self._redis = redis
        self._settings = settings
        self._store = RunStore.open(redis, settings.key_prefix, run)
        self._arrivals = Arrivals(run, redis, settings, blocks=True)

    def status(self, at: str | None = None, *, instances: bool = False) -> dict[str, Any]:
        """The run's status, and how many calls have which status, now or at an id of the log: `acts status --json`.
        With `instances` it reads the log of a run that has some, 1,000 at most, for its `instance_status`.

        `contracts` is there where the run's client did not have the code, and says what it was checked against;
        `held_below` while calls of child runs wait for a person, and says how many; `unanswered` while models are asked
        again: of each request the `call` (None: the loop's own), the error's `type` and `message`, how many `tries`
        there were, `again_in_seconds`; `progress` while calls report theirs: of each the `call`, and `done`, `total`
        and `text` where it says them; `waiting_for` while calls wait for what is no call, of a few of them the `call`
        (None: the whole run), `for` what (`queue`, `code`, `slot`, `attempt`, `worker`, `person`, `promise`, `resume`,
        `version`), and the `reason`.
        """
        if at is not None:
            return results.status_in(self.result(at), instances=instances)
        with redis_errors(self._settings):
            status = results.status_of(self._store)
            has_few = False
            if instances and status["status"] != results.FOREIGN:
                has_few = 0 < self._store.count_instances() <= limits.RESULTS_MOST_INSTANCES
        return status | ({"instance_status": dict(self.result().instance_status)} if has_few else {})

    def result(
        self, at: str | None = None, *, waits: bool = False, timeout_seconds: float | None = None
    ) -> Result[OutputT]:
        """The result of a run that has completed: `result(timeout_seconds=60)` waits for its end, and raises
        `RunFailed` with the first failures if it has failed or was cancelled, `RunTimeout` if it goes on. `wait` does
        not raise for a run that has failed.

        Without `timeout_seconds` it does not wait and gives what there is: status, values and calls, now or at an id of
        the log (SPEC R11.2); with `waits` its calls' `timing` says for how long each could have run and had not begun,
        which takes longer to find out.

        Ids are those of messages and events. A call whose result is several messages has ended with the last of them;
        what was under way at a past moment is not in the log, and counts as waiting. Raises `OutputUnfit` where the
        class that was submitted as the schema refuses the output for what no schema says.
        """
        if timeout_seconds is not None:
            results.require_now(at, waits=waits)
            return results.completed(self.wait(timeout_seconds))
        with redis_errors(self._settings):
            result = results.read_result(self._store, at=at, waits=waits)
            if at is None and result.status != "completed":
                result = results.with_open_children(result, self._store)
        return typed(result, self.output_type)

    def ended(self, timeout_seconds: float | None = None) -> None:
        """Block until the run has ended, and do not read its result. Raises `RunTimeout`, a `TimeoutError`."""
        self._await_end(Deadline(self.id, timeout_seconds))

    def _await_end(self, deadline: Deadline) -> None:
        for _ in blocking(self._arrivals.end(deadline)):
            pass

    def wait(self, timeout_seconds: float | None = None) -> Result[OutputT]:
        """Block until the run has ended, well or not, and read its result: `.status` says how. `result` raises for a
        run that has failed. Raises `RunTimeout`, a `TimeoutError`; the run goes on then. `OutputUnfit` as `result`.
        """
        deadline = Deadline(self.id, timeout_seconds)
        since, self._since = self._since, None
        if since is not None and not is_cluster(self._settings.require_redis()):
            with redis_errors(self._settings), suppress(TimeoutError, *PASSING):
                if (result := results.read_end(self._store, since, deadline.block_ms())) is not None:
                    if result.status != "completed":
                        result = results.with_open_children(result, self._store)
                    return typed(result, self.output_type)
        try:
            self._await_end(deadline)
        except RunNotFound:
            self._state()  # it may be one of another format
            with redis_errors(self._settings):
                raise self._store.missing() from None
        return self.result()

    def follow(
        self, *, after: str = "0-0", children: bool = False, timeout_seconds: float | None = None
    ) -> Iterator[Event]:
        """Every event from the beginning, or behind the one of an id, as it happens, until the run has ended; with
        `children` also those of child runs that begin behind it, which have their `run`. Raises `RunTimeout`,
        `ValueError` for what is no id.
        """
        self._state()
        deadline = Deadline(self.id, timeout_seconds)
        yield from self.events(after).of(blocking(self._arrivals.entries(after, deadline, has_children=children)))

    def explain(self, path: str, *, instance: str | None = None, at: str | None = None) -> Explanation:
        """Find the messages that a value came from, as a reader in the instance sees it, now or at an id of the log.

        The path may lack its dagger. Raises `protocol.ExpressionError` where it is not one reference,
        `InstanceNotFound`.
        """
        from .explanations import explanation

        reference = self._place(path, instance)
        with redis_errors(self._settings):
            definition, entries = self._store.definition(), self._store.past(instance, at)
        return explanation(definition, entries, reference, instance=instance)

    def explain_absence(self, path: str, *, instance: str | None = None, at: str | None = None) -> Absence:
        """Explain why there is no value: the calls that may write it, how they ended, and which place was probably
        meant. Raises as `explain`.
        """
        from .explanations import absence

        reference = self._place(path, instance)
        with redis_errors(self._settings):
            return absence(self._store.definition(), self._store, reference, instance=instance, at=at)

    def log(
        self,
        *,
        instance: str | None = None,
        follow: bool = False,
        audit: bool = False,
        every: bool = False,
        ticks: bool = False,
    ) -> Iterator[LogEntry]:
        """Read the messages in order, of one instance or of all; with `follow`, also those to come until the run ends.

        With `audit` also who did what to the run (see `AuditRecord`); with `every` also the ends of calls that
        left no message: sent and forgotten, skipped, notes of a model; with `ticks` also when each tick of a loop was
        asked and has ended. Raises `InstanceNotFound`.
        """
        reading = self.reading(instance, audit=audit, every=every, ticks=ticks)
        with redis_errors(self._settings):
            yield from reading.past()
        if follow:
            for _, entry in blocking(self._arrivals.entries(reading.seen, Deadline(self.id, None))):
                yield from reading.shown(entry)

    def events(self, after: str) -> EventReader:
        """Make the reader of events for `follow`."""
        return EventReader(self._store, self._settings, after)

    def reading(self, instance: str | None, *, audit: bool, every: bool, ticks: bool) -> LogReading:
        """Make the reader of the log for `log`. Raises `RunNotFound`, `InstanceNotFound`."""
        self._hold(instance)
        with redis_errors(self._settings):
            return LogReading(self._store, instance, audit=audit, every=every, ticks=ticks)

    def export(self) -> Iterator[str]:
        """The run as the lines of a file: its log, definition and result (see `archive`)."""
        from .archive import export_lines

        result = self.result(waits=True).to_dict()
        with redis_errors(self._settings):
            yield from export_lines(self._redis, self._settings.key_prefix, self.id, result)

    def export_plan(self, tick: int | None = None, *, warn: Callable[[str], None] | None = None) -> dict[str, Any]:
        """The run's calls as a submission of one plan message, with the tools and delegates that they name, to be run
        again with other data; of a `tick` of its loop alone, where one is given. `warn` is given a line about calls
        that the plan runs more often than this run has. Raises `NoLoop`, `NoSuchTick`, `IsSimulation`.
        """
        from .archive import plan_of, promise_in

        self._state()
        promises = list[dict[str, Any]]()
        with redis_errors(self._settings):
            run = RunState(self._store.definition(), self._store.instances())
            run.definition.require_real(self.id)
            for entry in self._store.entries():
                run.apply(entry)
                promises += [promise] if (promise := promise_in(entry)) is not None else []
        return plan_of(run, tick, warn, promises)

    def script(self) -> str:
        """Export what the run's model has answered, as a file for the scripted model. Raises `NoLoop`."""
        from .archive import script_of

        self._state()
        with redis_errors(self._settings):
            return script_of(self._store)

    def require(self) -> None:
        """Raise `RunNotFound`, or `OtherFormat` for a run that no version like this one has written."""
        self._state()

    @property
    def total(self) -> int:
        """How many calls the run has, over all instances."""
        return int(self._state()["total"])

    def _place(self, path: str, instance: str | None) -> Reference:
        """The place of a path, which may lack its dagger, in a run that is there, and an instance of it."""
        reference = place_of(path)
        self._hold(instance)
        return reference

    def _state(self) -> dict[str, str]:
        with redis_errors(self._settings):
            return self._store.require_state()

    def _hold(self, instance: str | None) -> None:
        """Raise `RunNotFound`, or `InstanceNotFound` for an instance that the run does not have."""
        state = self._state()
        with redis_errors(self._settings):
            if instance is not None and instance not in (known := self._store.instances()):
                if instance in results.deleted_instances(state.get("deleted")):
                    raise InstanceDeleted(self.id, instance)
                raise InstanceNotFound(self.id, instance, known)


if TYPE_CHECKING:
    from ..broker.consumer import Publisher
    from .amendment import Check
    from .client import Client
    from .control import LoopControl
    from .deleting import DeletableRun, Erased
    from .people import People, PlanControl
    from .results import Descendants
    from .retrying import Retried
    from .undoing import Undone

    Opened = Callable[[], Publisher]
    """What publishes, opened when it is first needed."""


AnyCall = Mapping[str, Any] | str | int
"""A held call as `held` has it, or its id or index."""


@with_named_options
class Run(ReadableRun[OutputT]):
    """A submission under way or ended. Get one from `Client.submit` or `Client.run`."""

    def __init__(
        self, run: str, redis: Redis, client: Client, publisher: Opened, check: Check, since: str | None = None
    ) -> None:
        """Take what `ReadableRun` takes, and what orders need."""
        super().__init__(run, redis, client.settings, since)
        self._client = client
        self._publisher = publisher
        self._check = check
        self._shown: dict[str, str] = {}
        """The digests that `held` has shown, by the calls' ids here: a decision that names no digest is about these."""

    @cached_property
    def _loop(self) -> LoopControl:
        from .control import LoopControl

        return LoopControl(self._store, self._settings, self._publisher)

    @cached_property
    def _plans(self) -> PlanControl:
        from .people import PlanControl

        return PlanControl(self._store, self._settings, self._loop, self._control)

    @cached_property
    def _control(self) -> Control:
        return Control(self._store, self._settings, self._publisher)

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    def _plain(self, value: Any) -> Any:
        """Copy a value of the caller with exact types."""
        return plain(value, limits_of(self._settings))

    @cached_property
    def _people(self) -> People:
        from .people import People

        return People(self._store, self._settings, self._publisher)

    @cached_property
    def _descendants(self) -> Descendants:
        from .results import Descendants

        return Descendants(self._store)

    def pause(self) -> None:
        """Pause the run: begin no more calls; calls at work end, and their results count. Raises `RunOver`."""
        self._state()
        self._control.pause()

    def resume(self, *, ticks: int | None = None) -> None:
        """Resume a paused run. With `ticks` its loop may ask so many times more, also where it has reached a limit
        (SPEC R13.3). Raises `RunOver`, `NoLoop`; `PlanWaits` where its plan is to be approved.
        """
        status = self._state()["status"]
        with redis_errors(self._settings):
            if ticks is not None:
                self._loop.extend(ticks)
                if status not in ("paused", SCHEDULED):
                    return
            if self._loop.plan() is not None:
                if ticks is None:
                    raise PlanWaits(self.id)
                return
        self._control.resume()

    def say(
        self,
        message: str | Mapping[str, Any] | File | Path | bytes | Texts,
        *,
        files: Mapping[str, Given] | None = None,
    ) -> None:
        """Add a text to the context of a loop, or several, which its next request shows; one that has ended goes on. A
        path, a `File`, and `files` are what models are shown, as in `Client.submit`.

        Raises `protocol.Rejected`, and then nothing was added; `NoLoop`, `RunOver`.
        """
        self._state()
        shown = files_of(self._settings, files)
        messages = shown.put_into(self._plain(messages_of(message)))
        with redis_errors(self._settings):
            self._loop.say(messages, shown.contents)

    def asked(self, tick: int) -> dict[str, Any]:
        """Read what the model was asked in a tick of a loop: `messages`, `schema`, `config`, `digest` (SPEC R12.9).

        Raises `NoLoop`, `NoSuchTick`.
        """
        self._state()
        with redis_errors(self._settings):
            return self._loop.asked(tick)

    def cancel(self, *, undo: bool = False) -> Undone | None:
        """End the run now: results that come later do not count. With `undo` the activities that take back what its
        calls have done run, the newest call first, in a run of their own; also for a run that is over.

        Raises `RunOver`; with `undo` also `protocol.Rejected`.
        """
        self._state()
        try:
            self._control.cancel()
        except RunOver:
            if not undo:
                raise
        if not undo:
            return None
        from .undoing import undo_run

        return undo_run(self._store, self._client)

    def send(self, messages: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Add data messages, one or a list of them; the calls that wait for what was promised go on (SPEC R11.6).

        Returns their ids in the log. Raises `protocol.Rejected` with everything that is wrong, and then none was added;
        `RunOver`, `BeingAmended`.
        """
        from .control import Sender

        self._state()
        with redis_errors(self._settings):
            value = self._plain(dict(messages) if isinstance(messages, Mapping) else list(messages))
            return Sender(self._store, self._settings, self._publisher).send(value, self._store.instances())

    def held(self) -> list[dict[str, Any]]:
        """List the calls that wait for a person, those of child runs among them, the longest wait first, as `acts held
        --json` does. By the id that they have here they are decided on here.
        """
        calls = [call.to_dict(self.id) for call in sorted(self._held(), key=lambda call: call.since_ms)]
        self._shown = {call["call"]: call["shown"] for call in calls}
        return calls

    def questions(self) -> list[dict[str, Any]]:
        """List what is asked together (SPEC R16.8): two or more held calls of one run and tool that wait for the same
        sources. Of each question the `question`, its digest; `tool`; `untrusted`, the sources; `same`, what all calls
        have alike; `columns`, where they differ; `rows`, of each call its `call`, `instance`, what `differs`, and
        `shown`; and `calls`, for `approve_together`. Each call is in `held`, too, to be decided alone.
        """
        return [question.to_dict(self.id) for question in questions(self._held())]

    def question(self, digest: str) -> dict[str, Any]:
        """Read the question that was shown with a digest: the same calls, and none that were held since. Raises
        `HeldAnew` where they do not all wait any more as they were shown.
        """
        found = (question.first(digest) for question in questions(self._held()))
        if (question := next(filter(None, found), None)) is None:
            text = "are not what was shown (any more): nothing was decided; see `acts held`"
            raise HeldAnew(f"the calls of run {self.id} that {digest} named {text}")
        return question.to_dict(self.id)

    def _held(self) -> list[HeldCall]:
        self._state()
        with redis_errors(self._settings):
            return [*self._people.held(), *self._descendants.held()]

    def approve(
        self,
        call: AnyCall,
        *,
        parameters: Mapping[str, Any] | None = None,
        scopes: Sequence[str] | None = None,
        calls: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        by: str | None = None,
        shown: str | None = None,
        rule: Mapping[str, Any] | None = None,
    ) -> str:
        """Let a held call run, as it was shown, with other `parameters` or narrower `scopes` (kinds and references), or
        other `calls` in its place, an amendment as `amend` takes it; `call` is as `held` gives it, or its id or index
        (SPEC R14.2). With a `rule` all later calls like it start, too (SPEC R16.8): it says what each parameter may be
        on which others decide, such as `{"iban": "words", "amount": {"at_most": 50}}` (docs/trust.md).

        Returns the id of the decision in the log; `by` says there who decided, else the setting `actor`. The same
        decision twice is one. It is about what was seen: what this object's `held` last gave, or `shown`, the digest
        there. Raises `HeldAnew` if something else waits under the id now; `protocol.Rejected` if nothing was seen, its
        tool refuses the parameters, the scopes are wider, or the calls do not fit; `NotHeld`, `AlreadyDecided`,
        `RunOver`, `BeingAmended`.
        """
        if calls is not None and (parameters is not None or scopes is not None or rule is not None):
            raise ValueError("give other calls alone, without other parameters, scopes or a rule")

        def decide(run: Run, call: str | int, shown: str | None) -> str:
            if calls is None:
                own, given = self._plain(parameters), self._plain(rule)
                return run._people.approve(call, parameters=own, scopes=scopes, by=by, shown=shown, rule=given)
            from .amendment import Amender

            value = self._plain({"calls": list(calls)} if isinstance(calls, Sequence) else calls)
            amender = Amender(run.id, self._redis, self._settings, self._check)
            return run._people.replace(call, value, amender, by=by, shown=shown, resume=run.resume)

        return self._decide(call, shown, decide)

    def answer(self, call: AnyCall, value: Any, *, by: str | None = None, shown: str | None = None) -> str:
        """Answer a question (a call of `ask_human`): the value is its result. Otherwise like `approve`."""

        own = self._plain(value)
        return self._decide(call, shown, lambda run, one, seen: run._people.answer(one, own, by=by, shown=seen))

    def plan(self) -> dict[str, Any] | None:
        """Read the plan that waits for an approval (mode lazy): `plan` is its digest, `tick` the loop's tick, `calls`
        what would run; SPEC R13.7.
        """
        self._state()
        with redis_errors(self._settings):
            return self._plans.plan()

    def approve_plan(self, digest: str, *, by: str | None = None, for_all: bool = False) -> None:
        """Let the calls of the plan of this digest run; with `for_all` also those of all later runs of the same plan
        (SPEC R9.5). Raises `PlanChanged` where that does not wait (any more), `RunOver`, `BeingAmended`;
        `protocol.Rejected` with `for_all` for the plan of a loop's tick.
        """
        self._state()
        with redis_errors(self._settings):
            self._plans.approve(digest, by=by, for_all=for_all)

    def reject(self, call: AnyCall, reason: str, *, by: str | None = None, shown: str | None = None) -> str:
        """End a held call with an error of type `Rejected`, which goes where an exception would go. Otherwise like
        `approve`.
        """

        own = self._plain(reason)
        return self._decide(call, shown, lambda run, one, seen: run._people.reject(one, own, by=by, shown=seen))

    def approve_together(self, calls: Mapping[str, Any], *, by: str | None = None) -> dict[str, dict[str, str]]:
        """Let several held calls run as they were shown: `calls` are their ids, each with what `shown` was there, or a
        question as `questions` gives it. Nothing else is decided, whatever is held since (SPEC R16.8).

        Returns the `decisions`, as the calls' ids and those in the log, and what is `left`: the codes of the errors by
        the calls that somebody has decided on meanwhile, or that are others now. Raises such an error where nothing was
        decided, and else what `approve` raises.
        """
        from .people import decided_each

        return decided_each(calls, lambda call, shown: self.approve(call, by=by, shown=shown))

    def reject_together(
        self, calls: Mapping[str, Any], reason: str, *, by: str | None = None
    ) -> dict[str, dict[str, str]]:
        """End several held calls as `reject` does, with one reason. Otherwise like `approve_together`."""
        from .people import decided_each

        return decided_each(calls, lambda call, shown: self.reject(call, reason, by=by, shown=shown))

    def rules(self) -> list[dict[str, Any]]:
        """List the rules that were given in the run (SPEC R16.8), the oldest first: of each its id, `rule`, what it
        says in `text` and as data, when it was `given` and `by` whom, when it was `revoked`, None where it is in force,
        and the `calls` that it let start.
        """
        self._state()
        with redis_errors(self._settings):
            return self._people.rules()

    def revoke_rule(self, rule: str, *, by: str | None = None) -> None:
        """Revoke a rule: calls that it would have let start are held from now on. Raises `NoSuchRule`, `RunOver`."""
        self._state()
        with redis_errors(self._settings):
            self._people.revoke(rule, by=by)

    def settle(
        self,
        call: AnyCall,
        outcome: str,
        *,
        value: Any = None,
        reason: str = "",
        by: str | None = None,
        shown: str | None = None,
    ) -> str:
        """Record the outcome of a call whose end is unknown (SPEC R4.11): `done`, with a value as its result, or
        `failed`, for a reason; or have it begin `again`. Otherwise like `approve`.
        """

        said: dict[str, Any] = {"value": self._plain(value), "reason": reason, "by": by}
        return self._decide(call, shown, lambda run, one, seen: run._people.settle(one, outcome, shown=seen, **said))

    def move(self, call: str | int, until: str | float, *, by: str | None = None) -> str:
        """Have a call of `wait` end at another moment: an ISO 8601 text, or so many seconds from now; at once where
        that is past. Returns the id of the entry of the log. Raises `NotHeld` where it waits for none, `Rejected` where
        `until` is no moment, `RunOver`, `BeingAmended`.
        """
        moment = self._moment(until)
        self._state()
        with redis_errors(self._settings):
            run, id_ = self._with_call(call)
            return run._people.move(id_, moment, by=by)

    def _moment(self, until: str | float) -> int:
        now_ms = server_ms(self._redis)
        is_far = isinstance(until, int | float) and not abs(until) <= LONGEST_WAIT_SECONDS
        found = None if is_far else now_ms + int(until * 1000) if isinstance(until, int | float) else moment_ms(until)
        if found is None or not 0 <= found <= now_ms + LONGEST_WAIT_SECONDS * 1000:
            raise Rejected([Problem("/until", NO_MOMENT)])
        return found

    def _decide(self, call: AnyCall, shown: str | None, decide: Callable[[Run, str | int, str | None], str]) -> str:
        """Decide on a held call, in this run or the child run below it that has it. `decide` takes that run, the
        call's id or index there, and the digest of what was seen of it, where anything was.
        """
        from .people import meant_of

        if isinstance(call, Mapping):
            id_: str | int = call["call"]
            shown = shown or call.get("shown")
        else:
            id_ = call
            if shown is None and (name := meant_of(self._shown, call)) is not None:
                shown = self._shown[name]
        self._state()
        with redis_errors(self._settings):
            run, id_ = self._with_call(id_)
            return decide(run, id_, shown)

    def _with_call(self, call: str | int) -> tuple[Run, str | int]:
        """Find the run that has a call, this one or a child run below it, and the call's id or index there."""
        child, id_ = self._descendants.split(call)
        if child is None:
            return self, id_
        run = self.child(child)
        run._state()
        return run, id_

    def fork(self, at: str | None = None, *, paused: bool = False) -> Run:
        """A new run that goes on from where this one was at an id, or is now (SPEC R11.2). Raises `RunNotFound`.

        Calls that had ended then, or were sent and forgotten, do not run again; all others do.
        """
        from .fork import Forker

        with redis_errors(self._settings):
            run = Forker(self.id, self._redis, self._settings).fork(at, is_paused=paused)
        fork = self.child(run)
        if not paused:
            with suppress(RunOver, PlanWaits):  # nothing was left to do, or it is done already
                fork.resume()
        return fork

    def amend(self, amendment: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, add: bool = False) -> None:
        """Replace the calls that have not begun, which end as skipped; the run goes on with the new ones.

        With `add` they come behind those that are there, which stay, also in a run that has completed or failed (SPEC
        R11.7). Where a loop's plan waits for an approval, they are the plan instead, and it goes on waiting (SPEC
        R13.7). `amendment` is a list of calls, or an object of `calls` and, where needed, `tools` and `delegates`.
        Raises `protocol.Rejected` with everything that is wrong with it, and then nothing has changed; `RunOver`,
        `BeingAmended`.
        """
        from .amendment import Amender

        value = self._plain({"calls": list(amendment)} if isinstance(amendment, Sequence) else amendment)
        if not add and "loop" in self._state() and self.plan() is not None:
            with redis_errors(self._settings):
                self._loop.replan(value, self._check)
            return
        with redis_errors(self._settings):
            amender = Amender(self.id, self._redis, self._settings, self._check)
            (amender.add if add else amender.amend)(value, resume=self.resume)

    def retry(
        self,
        *,
        call: int | None = None,
        instance: str | None = None,
        skip: bool = False,
        value: Any = None,
        downstream: bool = False,
        effects: bool = False,
    ) -> Retried:
        """Run failed calls again, in this run: all, or those of an index or an instance, and what was skipped for them.
        Calls that have read values which may change now are stale, and run again with `downstream`;
        calls with effects, and what was sent and forgotten, only with `effects`. With `skip` failed calls count as done
        with `value`. Raises `NothingToRetry`, `Rejected`, `RunOver`, `BeingAmended`, `InstanceNotFound`.
        """
        from .retrying import Choice, Retrier, RetryScope

        self._state()
        with redis_errors(self._settings):
            choice = Choice(
                RetryScope(downstream, effects), call, instance, Success(self._plain(value)) if skip else None
            )
            return Retrier(self.id, self._redis, self._settings).retry(choice, resume=self.resume)

    def would_retry(
        self, *, call: int | None = None, instance: str | None = None, downstream: bool = False, effects: bool = False
    ) -> Retried:
        """Say what `retry` would do now, and change nothing. Raises what `retry` raises."""
        from .retrying import Choice, Retrier, RetryScope

        self._state()
        with redis_errors(self._settings):
            choice = Choice(RetryScope(downstream, effects), call, instance)
            return Retrier(self.id, self._redis, self._settings).planned(choice)

    def delete(self, *, foreign: bool = False) -> DeletableRun:
        """Delete a run that has ended: its log, values, child runs and dead letters; with
        `foreign` one whose status is that, whether it has ended or not. Returns what it held. Raises `RunNotFound`;
        `RunOver` where it, or a run above or below it, is under way.
        """
        from .deleting import Deleter

        with redis_errors(self._settings):
            return Deleter(self._redis, self._settings).delete_one(self.id, foreign=foreign)

    def delete_instances(self, *instances: str) -> Erased:
        """Delete what a run that has ended holds of these instances: their messages, calls, files, child runs and dead
        letters. Returns what was deleted, and what may hold data of theirs and stays. Raises `RunOver`,
        `InstanceNotFound`.
        """
        from .deleting import Eraser

        with redis_errors(self._settings):
            return Eraser(self._redis, self._settings).erase_one(self.id, instances)

    def child(self, run: str) -> Run:
        """A child run, by the id that its call names (SPEC R9.3)."""
        return Run(run, self._redis, self._client, self._publisher, self._check)
