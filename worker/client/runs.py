"""A run, from outside: its status, its result, its log, waiting for its end, and orders to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from redis import Redis

from acts_celery.broker_config import Settings, is_cluster
from acts_celery.protocol.analysis.provenance import Explanation, Logged, explain
from acts_celery.protocol.engine.decisions import Success
from acts_celery.protocol.language.references import DAGGER, Reference
from acts_celery.protocol.state.scopes import read_scope
from acts_celery.worker.errors import InstanceNotFound, PlanWaits, RunNotFound, RunOver
from acts_celery.worker.storage.connections import PASSING, redis_errors
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import Keys

from .control import Control
from .log_entries import LogEntry, LogReading
from .progress import Deadline, Event, Progress
from .results import Result, read_end, read_result
from .run_status import FOREIGN, has_few_instances, read_state, status_in, status_of
from .submitting import OutputType, typed

if TYPE_CHECKING:
    from acts_celery.worker.broker.publisher import Publisher

    from .absence import Absence
    from .amendment import Check
    from .loops import LoopControl
    from .people import People
    from .plans import PlanControl
    from .undoing import Retried

    Opened = Callable[[], Publisher]
    """What publishes, opened when it is first needed."""


class Run:
    """A submission under way or ended. Get one from `Client.submit` or `Client.run`."""

    def __init__(
        self, run: str, redis: Redis, settings: Settings, publisher: Opened, check: Check, since: str | None = None
    ) -> None:
        """`since` is the id of the status that a run had when it was submitted here."""
        self.id = run
        self.output_type: OutputType | None = None  # where it was submitted here with one as its schema
        self._since = since
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)
        self._publisher = publisher
        self._check = check
        self._progress = Progress(run, redis, settings)

    @cached_property
    def _history(self) -> History:
        return History(self._redis, self._keys)

    @cached_property
    def _loop(self) -> LoopControl:
        from .loops import LoopControl

        return LoopControl(self.id, self._redis, self._settings, self._publisher)

    @cached_property
    def _plans(self) -> PlanControl:
        from .plans import PlanControl

        return PlanControl(self.id, self._redis, self._settings, self._loop, self._control)

    @cached_property
    def _control(self) -> Control:
        return Control(self.id, self._redis, self._settings, self._publisher)

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    @cached_property
    def _people(self) -> People:
        from .people import People

        return People(self.id, self._redis, self._settings, self._publisher)

    def status(self, at: str | None = None, *, instances: bool = False) -> dict[str, Any]:
        """The run's status and its calls counted by theirs, now or as of a past id: `acts status --json`. With
        `instances` it reads the log of a run that has some, 1,000 at most, for its `instance_status`.

        `unanswered` is there while models are asked again: of each request the `call` (None: the loop's own), the
        error's `type` and `message`, how many `tries` there were, `again_in_seconds`.
        """
        if at is not None:
            return status_in(self.result(at), instances=instances)
        with redis_errors(self._settings):
            told = status_of(self._redis, self._keys)
            has_few = instances and told["status"] != FOREIGN and has_few_instances(self._redis, self._keys)
        return told | ({"instance_status": dict(self.result().instance_status)} if has_few else {})

    def pause(self) -> None:
        """Begin no more calls; those at work end, and their outcomes are taken. Raises `RunOver`."""
        self._state()
        self._control.pause()

    def resume(self, *, ticks: int | None = None) -> None:
        """Go on where the run was paused. With `ticks` its loop may ask so many times more, also where it has reached a
        limit (SPEC R13.3). Raises `RunOver`, `NoLoop`; `PlanWaits` where its plan is to be approved.
        """
        status = self._state()["status"]
        if ticks is not None:
            with redis_errors(self._settings):
                self._loop.extend(ticks)
            if status != "paused":
                return
        self._control.resume()

    def say(self, text: str) -> None:
        """Add a text to the context of a loop, which its next request shows; one that has ended goes on.

        Raises `NoLoop`, `RunOver`.
        """
        self._state()
        with redis_errors(self._settings):
            self._loop.say(text)

    def asked(self, tick: int) -> dict[str, Any]:
        """What the model was asked in a tick of a loop: `messages`, `schema`, `config`, `digest` (SPEC R12.9).

        Raises `NoLoop`, `NoSuchTick`.
        """
        self._state()
        with redis_errors(self._settings):
            return self._loop.asked(tick)

    def cancel(self) -> None:
        """End the run as it stands: nothing that ends later is taken. Raises `RunOver`."""
        self._state()
        self._control.cancel()

    def send(self, messages: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Add data messages, one or a list of them; the calls that wait for what was promised go on (SPEC R11.6).

        Returns their ids in the log. Raises `protocol.Rejected` with everything that is wrong with them, and then none
        was added; `RunOver`, `BeingAmended`.
        """
        from .sending import Sender

        self._state()
        with redis_errors(self._settings):
            value = dict(messages) if isinstance(messages, Mapping) else list(messages)
            return Sender(self.id, self._redis, self._settings, self._publisher).send(value, self._history.instances())

    def held(self) -> list[dict[str, Any]]:
        """The calls that wait for a person, those that wait longest first: what `acts held --json` prints."""
        self._state()
        with redis_errors(self._settings):
            return [call.to_dict() for call in self._people.held()]

    def approve(
        self,
        call: str | int,
        *,
        parameters: Mapping[str, Any] | None = None,
        scopes: Sequence[str] | None = None,
        calls: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        by: str | None = None,
        shown: str | None = None,
    ) -> str:
        """Let a held call run, as it was shown, with other `parameters` or narrower `scopes` (kinds and references), or
        other `calls` in its place, an amendment as `amend` takes it; `call` is its id or index (SPEC R14.2).

        Returns the id of the decision in the log; `by` says there who decided, else the setting `actor`. The
        same decision twice is one. With `shown`, as `held` gives it, what was seen is decided on and nothing else:
        raises `HeldAnew` where another call waits under the id by now. Raises `protocol.Rejected` where its tool
        refuses the parameters, the scopes are wider, or the calls do not fit; `NotHeld`, `AlreadyDecided`, `RunOver`,
        `BeingAmended`.
        """
        self._state()
        with redis_errors(self._settings):
            if calls is None:
                return self._people.approve(call, parameters=parameters, scopes=scopes, by=by, shown=shown)
            if parameters is not None or scopes is not None:
                raise ValueError("give other calls, or other parameters and scopes, not both")
            from .amendment import Amender

            value = {"calls": list(calls)} if isinstance(calls, Sequence) else calls
            amender = Amender(self.id, self._redis, self._settings, self._check)
            return self._people.replace(call, value, amender, by=by, shown=shown, resume=self.resume)

    def answer(self, call: str | int, value: Any, *, by: str | None = None, shown: str | None = None) -> str:
        """Answer a question (a call of `ask_human`): the value is its result. As `approve`."""
        self._state()
        with redis_errors(self._settings):
            return self._people.answer(call, value, by=by, shown=shown)

    def plan(self) -> dict[str, Any] | None:
        """The plan that waits for an approval (mode lazy): `plan` its digest, `tick` of a loop, `calls`; SPEC R13.7."""
        self._state()
        with redis_errors(self._settings):
            return self._plans.plan()

    def approve_plan(self, digest: str, *, by: str | None = None) -> None:
        """Let the calls of the plan of this digest run. Raises `PlanChanged` where that does not wait (any more),
        `RunOver`, `BeingAmended`.
        """
        self._state()
        with redis_errors(self._settings):
            self._plans.approve(digest, by=by)

    def reject(self, call: str | int, reason: str, *, by: str | None = None, shown: str | None = None) -> str:
        """Have a held call end with the error `Rejected`, which goes where an exception would. As `approve`."""
        self._state()
        with redis_errors(self._settings):
            return self._people.reject(call, reason, by=by, shown=shown)

    def fork(self, at: str | None = None, *, paused: bool = False) -> Run:
        """A new run that goes on from where this one was at an id, or is now (SPEC R11.2). Raises `RunNotFound`.

        What had ended then is not done again, nor what was sent and forgotten; all else is done anew.
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
        """Put other calls in place of those that have not begun, which end as skipped; the run goes on with them.

        With `add` they come behind those that are there, which stay, also in a run that has completed or failed (SPEC
        R11.7). Where a loop's plan waits for an approval, they are the plan instead, and it goes on waiting (SPEC
        R13.7). `amendment` is a list of calls, or an object of `calls` and, where needed, `tools` and `delegates`.
        Raises `protocol.Rejected` with everything that is wrong with it, and then nothing has changed; `RunOver`,
        `BeingAmended`.
        """
        from .amendment import Amender

        value = {"calls": list(amendment)} if isinstance(amendment, Sequence) else amendment
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
        """Do failed calls again, in this run: all, those of an index, of an instance; what was skipped for them is
        decided anew. What has read what they may write now is stale, and done again with `downstream`; calls with
        effects, and what was sent and forgotten, only with `effects`. With `skip` failed calls count as done with
        `value`. Raises `NothingToRetry`, `Rejected`, `RunOver`, `BeingAmended`, `InstanceNotFound`.
        """
        from .retrying import Choice, Extent, Retrier

        self._state()
        with redis_errors(self._settings):
            choice = Choice(Extent(downstream, effects), call, instance, Success(value) if skip else None)
            return Retrier(self.id, self._redis, self._settings).retry(choice, resume=self.resume)

    def export(self) -> Iterator[str]:
        """The run as the lines of a file: its log, definition and result (see `archive`)."""
        from .archive import export_lines

        result = self.result(waits=True).to_dict()
        with redis_errors(self._settings):
            yield from export_lines(self._redis, self._keys, result)

    def script(self) -> str:
        """What the run's model has answered, as a file for the scripted model. Raises `NoLoop`."""
        from .archive import script_of

        self._state()
        with redis_errors(self._settings):
            return script_of(self._history)

    def delete(self) -> None:
        """Forget a run that has ended: its log, its values, everything. Raises `RunNotFound`; `RunOver` before that."""
        self._control.delete(self._state()["status"])

    def child(self, run: str) -> Run:
        """A child run, by the id that its call names (SPEC R9.3)."""
        return Run(run, self._redis, self._settings, self._publisher, self._check)

    def require(self) -> None:
        """Raise `RunNotFound`, or `OtherFormat` for a run that no version like this one has written."""
        self._state()

    @property
    def total(self) -> int:
        """How many calls the run has, over all instances."""
        return int(self._state()["total"])

    def wait(self, timeout_seconds: float | None = None) -> Result:
        """Block until the run has ended. Raises `TimeoutError`; the run goes on then. `OutputUnfit` as `result`."""
        deadline = Deadline(self.id, timeout_seconds)
        since, self._since = self._since, None
        if since is not None and not is_cluster(self._settings.require_redis()):
            with redis_errors(self._settings), suppress(TimeoutError, *PASSING):
                if (result := read_end(self._redis, self._keys, since, deadline.block_ms())) is not None:
                    return typed(result, self.output_type)
        try:
            self._progress.wait(deadline)
        except RunNotFound:
            self._state()  # it may be one of another format
            raise
        return self.result()

    def follow(self, *, timeout_seconds: float | None = None) -> Iterator[Event]:
        """Every event from the beginning, as it happens, until the run has ended. Raises `TimeoutError`."""
        self._state()
        yield from self._progress.events(timeout_seconds=timeout_seconds)

    def result(self, at: str | None = None, *, waits: bool = False) -> Result:
        """What the run has come to, now or as of a past id (SPEC R11.2); with `waits` its calls' `timing` says for how
        long each could have run and had not begun, which takes longer to find out.

        Ids are those of messages and events. A call whose result is several messages has ended with the last of them;
        what was under way at a past moment is not in the log, and counts as waiting. Raises `OutputUnfit` where the
        class that was submitted as the schema refuses the output for what no schema says.
        """
        with redis_errors(self._settings):
            result = read_result(self._redis, self._keys, self._progress, at=at, waits=waits)
        return typed(result, self.output_type)

    def explain(self, path: str, *, instance: str | None = None, at: str | None = None) -> Explanation:
        """Which messages a value came from, as a reader in the instance sees it, now or as of a past id.

        The path may lack its dagger. Raises `protocol.ExpressionError` where it is not one reference,
        `InstanceNotFound`.
        """
        reference = self._place(path, instance)
        with redis_errors(self._settings):
            seen = self._history.seen(instance, at)
        logged = [Logged(entry.id, entry.message or {}, entry.call) for entry in seen]
        return explain(reference, logged, instance=instance)

    def explain_absence(self, path: str, *, instance: str | None = None, at: str | None = None) -> Absence:
        """Why there is no value: the calls that were to write it, their fate, what was meant. Raises as `explain`."""
        from .absence import absence

        reference = self._place(path, instance)
        with redis_errors(self._settings):
            return absence(self._history.definition(), self._history, reference, instance=instance, at=at)

    def log(
        self, *, instance: str | None = None, follow: bool = False, audit: bool = False, every: bool = False
    ) -> Iterator[LogEntry]:
        """The messages in order, of one instance or of all; with `follow`, also those to come until the run ends.

        With `audit` also who did what to the run (see `worker.storage.audit`); with `every` also the ends of calls that
        left no message: sent and forgotten, passing thoughts, skipped. Raises `InstanceNotFound`.
        """
        reading = self.reading(instance, audit=audit, every=every)
        with redis_errors(self._settings):
            yield from reading.past()
        for entry in self._progress.entries(reading.seen) if follow else ():
            yield from reading.shown(entry)

    def reading(self, instance: str | None, *, audit: bool, every: bool) -> LogReading:
        """What reads the log for `log`. Raises `RunNotFound`, `InstanceNotFound`."""
        self._hold(instance)
        with redis_errors(self._settings):
            return LogReading(self._history, instance, audit=audit, every=every)

    def _place(self, path: str, instance: str | None) -> Reference:
        """The place of a path, which may lack its dagger, in a run that is there, and an instance of it."""
        reference = read_scope(path if path.startswith(DAGGER) else DAGGER + path)
        self._hold(instance)
        return reference

    def _state(self) -> dict[str, str]:
        with redis_errors(self._settings):
            return read_state(self._redis, self._keys)

    def _hold(self, instance: str | None) -> None:
        """Raise `RunNotFound`, or `InstanceNotFound` for an instance that the run does not have."""
        self._state()
        with redis_errors(self._settings):
            if instance is not None and instance not in (known := self._history.instances()):
                raise InstanceNotFound(self.id, instance, known)
