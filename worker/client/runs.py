"""A run, from outside: what is read of it (`readable_run`), and orders to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol.engine.decisions import Success
from acts_celery.protocol.language.limits import plain
from acts_celery.worker.errors import PlanWaits, RunOver
from acts_celery.worker.process.limits import limits_of
from acts_celery.worker.storage.connections import redis_errors

from .control import Control
from .files import File, Given, files_of
from .output_types import OutputT
from .readable_run import ReadableRun
from .submitting import Texts, messages_of

if TYPE_CHECKING:
    from acts_celery.worker.broker.publisher import Publisher

    from .amendment import Check
    from .deleting import DeletableRun
    from .descendants import Descendants
    from .erasure import Erased
    from .loops import LoopControl
    from .people import People
    from .plans import PlanControl
    from .undoing import Retried

    Opened = Callable[[], Publisher]
    """What publishes, opened when it is first needed."""


class Run(ReadableRun[OutputT]):
    """A submission under way or ended. Get one from `Client.submit` or `Client.run`."""

    def __init__(
        self, run: str, redis: Redis, settings: Settings, publisher: Opened, check: Check, since: str | None = None
    ) -> None:
        """As `ReadableRun`."""
        super().__init__(run, redis, settings, since)
        self._publisher = publisher
        self._check = check
        self._shown: dict[str, str] = {}
        """What `held` has shown, by the calls' ids here: what a decision is about that names nothing else."""

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

    def _plain(self, value: Any) -> Any:
        """What a caller has given, with exact types."""
        return plain(value, limits_of(self._settings))

    @cached_property
    def _people(self) -> People:
        from .people import People

        return People(self.id, self._redis, self._settings, self._publisher)

    @cached_property
    def _descendants(self) -> Descendants:
        from .descendants import Descendants

        return Descendants(self._redis, self._keys)

    def pause(self) -> None:
        """Begin no more calls; calls at work end, and their results count. Raises `RunOver`."""
        self._state()
        self._control.pause()

    def resume(self, *, ticks: int | None = None) -> None:
        """Go on where the run was paused. With `ticks` its loop may ask so many times more, also where it has reached a
        limit (SPEC R13.3). Raises `RunOver`, `NoLoop`; `PlanWaits` where its plan is to be approved.
        """
        status = self._state()["status"]
        with redis_errors(self._settings):
            if ticks is not None:
                self._loop.extend(ticks)
                if status != "paused":
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
        given = files_of(self._settings, files)
        said = given.put_into(self._plain(messages_of(message)))
        with redis_errors(self._settings):
            self._loop.say(said, given.contents)

    def asked(self, tick: int) -> dict[str, Any]:
        """What the model was asked in a tick of a loop: `messages`, `schema`, `config`, `digest` (SPEC R12.9).

        Raises `NoLoop`, `NoSuchTick`.
        """
        self._state()
        with redis_errors(self._settings):
            return self._loop.asked(tick)

    def cancel(self) -> None:
        """End the run now: results that come later do not count. Raises `RunOver`."""
        self._state()
        self._control.cancel()

    def send(self, messages: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Add data messages, one or a list of them; the calls that wait for what was promised go on (SPEC R11.6).

        Returns their ids in the log. Raises `protocol.Rejected` with everything that is wrong, and then none was added;
        `RunOver`, `BeingAmended`.
        """
        from .sending import Sender

        self._state()
        with redis_errors(self._settings):
            value = self._plain(dict(messages) if isinstance(messages, Mapping) else list(messages))
            return Sender(self.id, self._redis, self._settings, self._publisher).send(value, self._history.instances())

    def held(self) -> list[dict[str, Any]]:
        """The calls that wait for a person, those of child runs among them; the one that has waited longest comes
        first: what `acts held --json` prints. By the id that they have here they are decided on here."""
        self._state()
        with redis_errors(self._settings):
            found = [*self._people.held(), *self._descendants.held()]
            calls = [call.to_dict(self.id) for call in sorted(found, key=lambda call: call.since_ms)]
        self._shown = {call["call"]: call["shown"] for call in calls}
        return calls

    def approve(
        self,
        call: Mapping[str, Any] | str | int,
        *,
        parameters: Mapping[str, Any] | None = None,
        scopes: Sequence[str] | None = None,
        calls: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        by: str | None = None,
        shown: str | None = None,
    ) -> str:
        """Let a held call run, as it was shown, with other `parameters` or narrower `scopes` (kinds and references), or
        other `calls` in its place, an amendment as `amend` takes it; `call` is as `held` gives it, or its id or index
        (SPEC R14.2).

        Returns the id of the decision in the log; `by` says there who decided, else the setting `actor`. The same
        decision twice is one. It is about what was seen: what this object's `held` last gave, or `shown`, the digest
        there. Raises `HeldAnew` if something else waits under the id now; `protocol.Rejected` if nothing was seen, its
        tool refuses the parameters, the scopes are wider, or the calls do not fit; `NotHeld`, `AlreadyDecided`,
        `RunOver`, `BeingAmended`.
        """
        self._state()
        call, shown = self._about(call, shown)
        with redis_errors(self._settings):
            child, call = self._descendants.split(call)
            if child is not None:
                below = self.child(child)
                return below.approve(call, parameters=parameters, scopes=scopes, calls=calls, by=by, shown=shown)
            if calls is None:
                parameters = self._plain(parameters)
                return self._people.approve(call, parameters=parameters, scopes=scopes, by=by, shown=shown)
            if parameters is not None or scopes is not None:
                raise ValueError("give other calls, or other parameters and scopes, not both")
            from .amendment import Amender

            value = self._plain({"calls": list(calls)} if isinstance(calls, Sequence) else calls)
            amender = Amender(self.id, self._redis, self._settings, self._check)
            return self._people.replace(call, value, amender, by=by, shown=shown, resume=self.resume)

    def answer(
        self, call: Mapping[str, Any] | str | int, value: Any, *, by: str | None = None, shown: str | None = None
    ) -> str:
        """Answer a question (a call of `ask_human`): the value is its result. As `approve`."""
        self._state()
        call, shown = self._about(call, shown)
        with redis_errors(self._settings):
            child, call = self._descendants.split(call)
            if child is not None:
                return self.child(child).answer(call, value, by=by, shown=shown)
            return self._people.answer(call, self._plain(value), by=by, shown=shown)

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

    def reject(
        self, call: Mapping[str, Any] | str | int, reason: str, *, by: str | None = None, shown: str | None = None
    ) -> str:
        """End a held call with an error of type `Rejected`, which goes where an exception would go. As `approve`."""
        self._state()
        call, shown = self._about(call, shown)
        with redis_errors(self._settings):
            child, call = self._descendants.split(call)
            if child is not None:
                return self.child(child).reject(call, reason, by=by, shown=shown)
            return self._people.reject(call, self._plain(reason), by=by, shown=shown)

    def _about(self, call: Mapping[str, Any] | str | int, shown: str | None) -> tuple[str | int, str | None]:
        """The id or index of a held call, and the digest of what was seen of it, where anything was."""
        if isinstance(call, Mapping):
            return call["call"], shown or call["shown"]
        from .people import meant_of

        name = meant_of(self._shown, call) if shown is None else None
        return call, self._shown[name] if name is not None else shown

    def fork(self, at: str | None = None, *, paused: bool = False) -> Run:
        """A new run that goes on from where this one was at an id, or is now (SPEC R11.2). Raises `RunNotFound`.

        Calls that had ended then, or were sent and forgotten, are not carried out again; all others are.
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
        """Carry out failed calls again, in this run: all, or those of an index or an instance, and what was skipped for
        them. Calls that have read values which may change now are stale, and are carried out again with `downstream`;
        calls with effects, and what was sent and forgotten, only with `effects`. With `skip` failed calls count as done
        with `value`. Raises `NothingToRetry`, `Rejected`, `RunOver`, `BeingAmended`, `InstanceNotFound`.
        """
        from .retrying import Choice, Extent, Retrier

        self._state()
        with redis_errors(self._settings):
            choice = Choice(Extent(downstream, effects), call, instance, Success(self._plain(value)) if skip else None)
            return Retrier(self.id, self._redis, self._settings).retry(choice, resume=self.resume)

    def would_retry(
        self, *, call: int | None = None, instance: str | None = None, downstream: bool = False, effects: bool = False
    ) -> Retried:
        """What `retry` would do as things stand; nothing is changed. Raises as `retry`."""
        from .retrying import Choice, Extent, Retrier

        self._state()
        with redis_errors(self._settings):
            choice = Choice(Extent(downstream, effects), call, instance)
            return Retrier(self.id, self._redis, self._settings).planned(choice)

    def delete(self, *, foreign: bool = False) -> DeletableRun:
        """Forget a run that has ended: its log, its values, its child runs and dead letters, everything; with `foreign`
        one whose status is that, whether it has ended or not. Returns what it held. Raises `RunNotFound`; `RunOver`
        where it, or a run above or below it, is under way.
        """
        from .deleting import Deleter

        with redis_errors(self._settings):
            return Deleter(self._redis, self._settings).delete_one(self.id, foreign=foreign)

    def delete_instances(self, *instances: str) -> Erased:
        """Delete what this run, which has ended, holds of these instances: their messages, calls, files, child runs and
        dead letters. Returns what was deleted, and what may hold data of theirs and stays. Raises `RunOver`,
        `InstanceNotFound`.
        """
        from .erasure import Eraser

        state = self._state()
        with redis_errors(self._settings):
            return Eraser(self.id, self._redis, self._settings).erase(instances, state)

    def child(self, run: str) -> Run:
        """A child run, by the id that its call names (SPEC R9.3)."""
        return Run(run, self._redis, self._settings, self._publisher, self._check)
