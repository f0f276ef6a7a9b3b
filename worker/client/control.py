"""Control: pausing, resuming and cancelling runs from outside (SPEC R11.1).

Each is one script on the run's state, so it takes the same time at any size. Workers take notice when they commit: a
paused run is given no more calls, what is at work ends and is committed; a cancelled one takes nothing any more. That
workers stop at calls of a cancelled run saves work (`cancellation`); it is not what ends the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ...broker_config import Settings
from ...protocol import Problem, Rejected
from ...protocol.engine.loop import Approved, LoopExtended, RequestRecorded, Stage
from ...protocol.plan.additions import check_data, check_user_messages
from ...protocol.plan.support import unsafe_names
from ...protocol.state.labels import marks_of
from ..broker.attempts import lane_token
from ..broker.messages import pack
from ..errors import BeingAmended, NoLoop, NoSuchTick, OverLimit, PlanChanged, PlanWaits, RunNotFound, RunOver
from ..limits import limits_of
from ..store.connections import read_tokens, redis_errors
from ..store.definition import StoredPlan
from ..store.entries import LoopStep, effective_entries, id_key
from ..store.held_calls import AuditRecord, audit_record
from ..store.keys import ENDED_STATUSES, LOOP, SCHEDULED
from ..store.loop_view import LoopView, loop_limits, plan_of
from ..store.run_list import RunList
from ..store.run_store import RunStore
from .dispatcher import publish_lanes
from .files import require_given, size_problem
from .submitting import admitted

if TYPE_CHECKING:
    from ..broker.consumer import Publisher
    from .amendment import Check


_DONE: Final = {"paused": "paused", "running": "resumed", "cancelled": "cancelled"}
"""The verb of the audit record, by the status that is set."""


class Control:
    """Changes the status of one run. `publisher` is asked for when something is to be published."""

    def __init__(self, store: RunStore, settings: Settings, publisher: Callable[[], Publisher]) -> None:
        self._run = store.run
        self._store = store
        self._settings = settings
        self._publisher = publisher

    def pause(self) -> None:
        """Begin no more calls; those at work end. Raises `RunNotFound`, `RunOver`, `InfrastructureError`."""
        self._change("paused")
        self._follow(Control.pause)

    def resume(self) -> None:
        """Go on with what was left while the run was paused. Raises what `pause` raises.

        Should this process die in between, the workers' sweep publishes what it has not.
        """
        self._go_on(self._change("running"))

    def approve(self, amended: str, order: AuditRecord) -> bool:
        """Go on with the plan that was read when the field `amended` of the state was this; False where it has changed
        since. Raises what `pause` raises.
        """
        try:
            lanes = self._change("running", order, approves=amended)
        except PlanWaits:
            return False
        self._go_on(lanes)
        return True

    def cancel(self) -> None:
        """End the run now, whatever is at work. Raises what `pause` raises."""
        self._change("cancelled")
        with redis_errors(self._settings):
            [born] = self._store.fields("submitted")
            tokens = read_tokens(self._store.redis, self._settings.key_prefix).of_run(born or "")
            key = tokens.cancelling(self._run)
        self._publisher().tell_cancelled(key)
        self._follow(Control.cancel)

    def _follow(self, order: Callable[[Control], None]) -> None:
        """Give the same order to the child runs that calls wait for, as far as they are not over (SPEC R9.3)."""
        with redis_errors(self._settings):
            found = self._store.children()
        for run in found:
            with suppress(RunOver, RunNotFound, PlanWaits):
                order(Control(self._store.other(run), self._settings, self._publisher))

    def _go_on(self, lanes: list[str]) -> None:
        while lanes:
            publish_lanes(self._publisher(), self._settings, self._run, lanes, priority=self._store.priority())
            lanes = self._set_status("running", audit_record(self._settings, "resumed"))["lanes"]  # it may have ended
        self._follow(Control.resume)

    def _change(self, wanted: str, order: AuditRecord | None = None, *, approves: str | None = None) -> list[str]:
        """Change the status. Returns lanes to be published."""
        order = order or audit_record(self._settings, _DONE[wanted])
        answer = self._set_status(wanted, order, approves)
        before, now = answer.get("before"), answer.get("status")
        if before is None:
            raise RunNotFound(self._run)
        if now == wanted != before:
            order.write_line(self._run)
        with redis_errors(self._settings):
            self._store.note_due()
        if now == "paused" and answer.get("is_planned"):
            raise PlanWaits(self._run)
        if now in ("paused", SCHEDULED) and wanted == "running":
            raise BeingAmended(
                f"run {self._run} is only partly amended: repeat the `acts amend` or `acts retry`, or cancel the run"
            )
        if now != wanted:
            raise RunOver(f"run {self._run} is {before}: it cannot be {_DONE[wanted]} any more")
        found: list[str] = answer["lanes"]
        return found

    def _set_status(self, wanted: str, order: AuditRecord, approves: str | None = None) -> dict[str, Any]:
        with redis_errors(self._settings):
            return self._store.set_status(wanted, order, window=self._settings.publish_window, approves=approves)


# Sending: data messages for a run under way (SPEC R11.6).
#
# They are held against what the log says of the lanes that they go to, and appended in one step (lua/control.lua). It
# also marks the lanes that may read them: should the client die after it, the workers' sweep publishes them.


class Sender:
    """Adds messages to one run. `publisher` is asked for when something is to be published."""

    def __init__(self, store: RunStore, settings: Settings, publisher: Callable[[], Publisher]) -> None:
        self._store = store
        self._settings = settings
        self._publisher = publisher

    def send(self, value: Any, instances: Sequence[str]) -> tuple[str, ...]:
        """Append messages, `value` being one or a list of them; returns their ids in the log.

        `instances` are those that the run has. Raises `Rejected`, and then nothing was appended; `RunNotFound`,
        `RunOver`, `BeingAmended`, `RedisError`.
        """
        messages = check_data(value, self._so_far(value, instances), limits_of(self._settings), instances)
        if not messages:
            return ()
        if (
            any(map(marks_of, messages))
            and self._store.definition().request is not None
            and (problems := list(unsafe_names([{**message, "_instance": None} for message in messages])))
        ):
            raise Rejected(problems)
        run, order = self._store.run, audit_record(self._settings, "sent")
        packed = [(lane_token(message.get("_instance")), pack(message)) for message in messages]
        most, window = int(self._settings.limit_run_bytes), self._settings.publish_window
        answer = self._store.send(packed, order, window=window, most_bytes=most)
        if answer["status"] == "gone":
            raise RunNotFound(run)
        if answer["status"] in ENDED_STATUSES:
            raise RunOver(f"run {run} is {answer['status']}: nothing can be added to it now")
        if answer["is_amended"]:
            raise BeingAmended(f"run {run} is being amended; send the messages when that is finished")
        if answer["is_full"]:
            raise Rejected([beyond(answer["bytes"], self._settings)])
        order.write_line(run)
        publish_lanes(
            *(self._publisher(), self._settings, run, answer["lanes"]),
            has="has the messages",
            priority=self._store.priority(),
        )
        return tuple(answer["ids"])

    def _so_far(self, value: Any, instances: Sequence[str]) -> list[Mapping[str, Any]]:
        """The messages of the lanes that the value names, and the global ones, in the order of the log."""
        sent = value if isinstance(value, list) else [value]
        named = {message.get("_instance") for message in sent if isinstance(message, dict)}
        lanes = (None, *(instance for instance in instances if instance in named))
        entries = (entry for lane in lanes for entry in self._store.lane(lane))
        found = effective_entries(sorted(entries, key=lambda entry: id_key(entry.id)))
        return [entry.message for entry in found if entry.message is not None]


def beyond(written: int, settings: Settings) -> Problem:
    """Why nothing more may be written to a run."""
    most = int(settings.limit_run_bytes)
    return Problem(
        "", f"{written} bytes have been written to the run: with this, more than {most} (ACTS_LIMIT_RUN_BYTES)"
    )


# Loops from outside: more ticks, something said, what was asked (SPEC R12.9, R13.3).


class LoopControl:
    """The loop of one run. `publisher` is asked for when something is to be published."""

    def __init__(self, store: RunStore, settings: Settings, publisher: Callable[[], Publisher]) -> None:
        self._store = store
        self._settings = settings
        self._publisher = publisher

    def extend(self, ticks: int) -> None:
        """Let a loop ask so many times more, also one that has failed: it goes on from where it was.

        Raises `RunNotFound`, `NoLoop`, `RunOver`, `OverLimit`, `RedisError`.
        """
        done = audit_record(self._settings, "resumed", ticks=ticks)

        def step(view: LoopView) -> LoopStep:
            if view.status not in (SCHEDULED, "running", "paused", "failed"):
                raise RunOver(f"run {view.run} is {view.status}: it asks nothing more; see `acts say` and `acts fork`")
            if (left := view.limits.ticks_to_add(view.loop)) is not None and ticks > left:
                raise _no_ticks(view, left)
            return self._extension(view, ticks)

        with admitted(self._store.redis, self._settings, more_of=self._store.run):
            self._take(step, done)

    def say(self, messages: Sequence[Mapping[str, Any]], files: Mapping[str, bytes]) -> None:
        """Add texts and chat messages of a user to the context of a loop, with the files that they show, by their
        digests: the next request shows them. One that has ended goes on, with as many ticks as it had at first.

        Raises `protocol.Rejected`, `RunNotFound`, `NoLoop`, `RunOver` where it is cancelled, `OverLimit`, `RedisError`.
        """
        limits = limits_of(self._settings)
        messages = check_user_messages(messages, limits)
        require_given([("", messages)], files)
        done = audit_record(self._settings, "said")

        def step(view: LoopView) -> LoopStep:
            if view.status not in (SCHEDULED, "running", "paused", "completed", "failed"):
                raise RunOver(f"run {view.run} is {view.status}: it takes no more messages")
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

        with admitted(self._store.redis, self._settings, more_of=self._store.run):
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

        Raises `protocol.Rejected` where they are not valid; `PlanChanged` where no plan waits; what `approve` raises.
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
                raise RunOver(f"run {view.run} is {view.status}: it can no longer be approved")
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
        """The request to a model in a tick: `messages`, `schema`, and its `config` and `digest`.

        Raises `RunNotFound`, `NoLoop`, `NoSuchTick`, `RedisError`.
        """
        self._definition()
        messages: list[Any] = []
        schema, asked = None, 0
        entries = self._store.whole(self._store.lane(LOOP))
        requests = ((entry.tick or 0, event) for entry in entries for event in entry.loop)
        for number, request in requests:
            if not isinstance(request, RequestRecorded):
                continue
            messages += request.messages
            schema, asked = request.schema or schema, number + 1
            if number == tick:
                return {"messages": messages, "schema": schema, "config": request.config, "digest": request.digest}
        raise NoSuchTick(f"run {self._store.run} has asked {asked} times: there is no tick {tick}, the first is 0")

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
        run, is_over = self._store.run, step.reopens
        if is_over:
            self._list()
        if not any("audit" in fields for _, fields in step.entries):
            step.entries[-1][1].extend(["audit", done.pack()])
        answer = self._store.take_loop_step(step, most_bytes=int(self._settings.limit_run_bytes))
        if answer["status"] == "gone":
            raise RunNotFound(run)
        if "bytes" in answer:
            raise Rejected([beyond(answer["bytes"], self._settings)])
        if not answer["is_taken"]:
            return False
        done.write_line(run)
        if is_over:
            self._list()  # a sweep that was about to let it expire takes it from the list
            self._store.note_due()
        publish_lanes(self._publisher(), self._settings, run, answer["woken"], priority=self._store.priority())
        return True

    def _definition(self) -> StoredPlan:
        definition = self._store.definition()
        if definition.request is None:
            raise NoLoop(f"run {self._store.run} is not a request: it asks no model and has no ticks")
        return definition

    def _view(self) -> LoopView:
        """The loop as the log has it."""
        definition = self._definition()
        tokens = read_tokens(self._store.redis, self._settings.key_prefix)
        view = LoopView(self._store.run, definition, tokens, loop_limits(definition.config, self._settings))
        view.feed(self._store.entries())
        return view

    def _list(self) -> None:
        [submitted] = self._store.fields("submitted")
        RunList(self._store.redis, self._settings.key_prefix).add(self._store.run, int(submitted or 0))


def _no_ticks(view: LoopView, left: int) -> OverLimit:
    return OverLimit(
        f"{left} ticks can be added to run {view.run}: it may ask {view.limits.all_ticks} times in all "
        "(ACTS_LIMIT_TICKS); ask for fewer, have the limit raised, or begin another run"
    )
