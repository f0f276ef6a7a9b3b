"""Loops from outside: more ticks, something said, what was asked (SPEC R12.9, R13.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol import Problem, Rejected
from acts_celery.protocol.engine.loop import Stage
from acts_celery.protocol.engine.loop_events import Approved, Asked, LoopExtended
from acts_celery.protocol.submission.additions import check_said
from acts_celery.worker.errors import NoLoop, NoSuchTick, OverLimit, PlanChanged, RunNotFound, RunOver
from acts_celery.worker.loop.loop_view import LoopView, loop_limits, plan_of
from acts_celery.worker.process.limits import limits_of
from acts_celery.worker.storage.audit import AuditRecord, audit_record
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.due import PUBLISHED_MS, DueRuns
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import Keys, active_runs
from acts_celery.worker.storage.loop_entries import LOOP, LoopStep
from acts_celery.worker.storage.scripts import Script
from acts_celery.worker.storage.secret import read_tokens
from acts_celery.worker.wire.attempts import lane_token
from acts_celery.worker.wire.packing import pack

from .admission import admitted
from .files import require_given, size_problem
from .publishing import publish_lanes
from .sending import beyond

if TYPE_CHECKING:
    from acts_celery.worker.broker.publisher import Publisher

    from .amendment import Check


class LoopControl:
    """The loop of one run. `publisher` is asked for when something is to be published."""

    def __init__(self, run: str, redis: Redis, settings: Settings, publisher: Callable[[], Publisher]) -> None:
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)
        self._history = History(redis, self._keys)
        self._publisher = publisher
        self._script = Script(redis, "loop")

    def extend(self, ticks: int) -> None:
        """Let a loop ask so many times more, also one that has failed: it goes on from where it was.

        Raises `RunNotFound`, `NoLoop`, `RunOver`, `OverLimit`, `RedisError`.
        """
        done = audit_record(self._settings, "resumed", ticks=ticks)

        def step(view: LoopView) -> LoopStep:
            if view.status not in ("running", "paused", "failed"):
                raise RunOver(f"run {view.run} is {view.status}: it asks nothing more; see `acts say` and `acts fork`")
            if (left := view.limits.ticks_to_add(view.loop)) is not None and ticks > left:
                raise _no_ticks(view, left)
            return self._extension(view, ticks)

        with admitted(self._redis, self._settings, more_of=self._keys.run):
            self._take(step, done)

    def say(self, messages: Sequence[Mapping[str, Any]], files: Mapping[str, bytes]) -> None:
        """Add texts and chat messages of a user to the context of a loop, with the files that they show, by their
        digests: the next request shows them. One that has ended goes on, with as many ticks as it had at first.

        Raises `protocol.Rejected`, `RunNotFound`, `NoLoop`, `RunOver` where it is cancelled, `OverLimit`, `RedisError`.
        """
        limits = limits_of(self._settings)
        messages = check_said(messages, limits)
        require_given([("", messages)], files)
        done = audit_record(self._settings, "said")

        def step(view: LoopView) -> LoopStep:
            if view.status not in ("running", "paused", "completed", "failed"):
                raise RunOver(f"run {view.run} is {view.status}: nothing can be said to it any more")
            if problem := size_problem("", [*view.asked, *messages], limits.call_bytes):
                raise Rejected([problem])
            loop = view.loop
            if loop.stage is Stage.ENDED:
                asked = len([tick for tick in loop.ticks if tick.solution is not None])
                more, left = max(asked - loop.added_ticks, 0), view.limits.ticks_to_add(loop)
                if view.limits.all_ticks is not None and view.limits.all_ticks <= asked:
                    raise _no_ticks(view, 0)
                found = self._extension(view, more if left is None else min(more, left))
            else:
                found = LoopStep(loop, view.seen)
            found.entries[:0] = [("", ["m", pack(message), "audit", done.pack()]) for message in messages]
            found.files = files
            return found

        with admitted(self._redis, self._settings, more_of=self._keys.run):
            self._take(step, done)

    def plan(self) -> dict[str, Any] | None:
        """The plan that waits for an approval (SPEC R13.7): `plan` its digest, `tick`, `calls`; None where none does.

        Raises `RunNotFound`, `RedisError`.
        """
        try:
            view = self._view()
        except NoLoop:
            return None
        tick = view.loop.tick
        if view.loop.stage is not Stage.PLANNED or tick.plan is None or view.is_finished:
            return None
        return {"plan": tick.plan.digest, "tick": tick.number, "calls": tick.plan.calls}

    def replan(self, value: Any, check: Check) -> None:
        """Put other calls in place of those of the plan, which goes on waiting, under another digest.

        Raises `protocol.Rejected` where they are not valid; `PlanChanged` where no plan waits; as `approve`.
        """
        if not isinstance(value, Mapping) or value.keys() != {"calls"}:
            raise Rejected(
                [Problem("", 'a plan is replaced by an object with "calls" alone: the tools are the request\'s')]
            )
        calls = value["calls"]
        done = audit_record(self._settings, "amended")

        def step(view: LoopView) -> LoopStep:
            loop = view.loop
            if loop.stage is not Stage.PLANNED or view.is_finished:
                raise PlanChanged(f"run {view.run} has no plan to be approved (any more): see `acts held`")
            check(value, view.so_far())
            found = LoopStep(loop, view.seen)
            found.note(plan_of(calls))
            return found

        self._take(step, done)

    def approve(self, digest: str, *, by: str | None = None) -> None:
        """Let the calls of the plan of this digest run; the run is to be resumed then. The same approval twice is one.

        Raises `PlanChanged` where another plan waits, or none; `RunNotFound`, `NoLoop`, `RunOver`, `RedisError`.
        """
        done = audit_record(self._settings, "approved", plan=digest).by(by)

        def step(view: LoopView) -> LoopStep | None:
            loop, plan = view.loop, view.loop.tick.plan
            known = plan.digest if plan is not None else None
            if view.is_finished:
                raise RunOver(f"run {view.run} is {view.status}: nothing of it can be approved any more")
            if loop.stage in (Stage.APPROVED, Stage.RAN) and known == digest:
                return None
            if loop.stage is not Stage.PLANNED or known != digest:
                waiting = f"the plan {known}" if loop.stage is Stage.PLANNED else "no plan"
                raise PlanChanged(f"run {view.run} has {waiting} to be approved, and not {digest}: see `acts held`")
            found = LoopStep(loop, view.seen, woken=[LOOP])
            found.note(Approved(digest))
            return found

        self._take(step, done)

    def asked(self, tick: int) -> dict[str, Any]:
        """What a model was asked in a tick: `messages`, `schema`, and its `config` and `digest`.

        Raises `RunNotFound`, `NoLoop`, `NoSuchTick`, `RedisError`.
        """
        self._definition()
        messages: list[Any] = []
        schema, asked = None, 0
        requests = ((entry.tick or 0, event) for entry in self._history.entries() for event in entry.loop)
        for number, request in requests:
            if not isinstance(request, Asked):
                continue
            messages += request.messages
            schema, asked = request.schema or schema, number + 1
            if number == tick:
                return {"messages": messages, "schema": schema, "config": request.config, "digest": request.digest}
        raise NoSuchTick(f"run {self._keys.run} has asked {asked} times: there is no tick {tick}, the first is 0")

    def _extension(self, view: LoopView, ticks: int) -> LoopStep:
        """The step by which a loop may ask so many times more."""
        step = LoopStep(view.loop, view.seen)
        step.note(LoopExtended(ticks))
        if step.reopens:
            step.woken = [LOOP, *dict.fromkeys(lane_token(instance) for instance, _ in view.open)]
        return step

    def _take(self, make: Callable[[LoopView], LoopStep | None], done: AuditRecord) -> None:
        """Take a step, unless there is nothing to do, as soon as nothing comes in between."""
        while (step := make(self._view())) is not None and not self._taken(step, done):
            pass

    def _taken(self, step: LoopStep, done: AuditRecord) -> bool:
        run, is_over = self._keys.run, step.reopens
        if is_over:
            self._list()
        if not any("audit" in fields for _, fields in step.entries):
            step.entries[-1][1].extend(["audit", done.pack()])
        request = step.to_request(PUBLISHED_MS, int(self._settings.limit_run_bytes), refuses=True)
        answer = self._script(self._keys, request)
        if answer["status"] == "gone":
            raise RunNotFound(run)
        if "bytes" in answer:
            raise Rejected([beyond(answer["bytes"], self._settings)])
        if not answer["is_taken"]:
            return False
        done.write_line(run)
        if is_over:
            self._list()  # a sweep that was about to let it expire takes it from the list
            DueRuns(self._redis, self._keys.prefix).note(run)
        publish_lanes(self._publisher(), self._settings, run, answer["woken"])
        return True

    def _definition(self) -> Definition:
        definition = self._history.definition()
        if definition.request is None:
            raise NoLoop(f"run {self._keys.run} is not a request: it asks no model and has no ticks")
        return definition

    def _view(self) -> LoopView:
        """The loop as the log has it."""
        definition = self._definition()
        tokens = read_tokens(self._redis, self._keys.prefix)
        view = LoopView(self._keys.run, definition, tokens, loop_limits(definition.config, self._settings))
        view.feed(self._history.entries())
        return view

    def _list(self) -> None:
        submitted: Any = self._redis.hget(self._keys.state, "submitted")
        self._redis.zadd(active_runs(self._keys.prefix), {self._keys.run: int(submitted or 0)})


def _no_ticks(view: LoopView, left: int) -> OverLimit:
    return OverLimit(
        f"{left} ticks can be added to run {view.run}: it may ask {view.limits.all_ticks} times in all "
        "(ACTS_LIMIT_TICKS); ask for fewer, have the limit raised, or begin another run"
    )
