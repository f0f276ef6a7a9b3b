"""Control: pausing, resuming and cancelling runs from outside (SPEC R11.1).

Each is one script on the run's state, so it takes the same time at any size. Workers take notice when they commit: a
paused run is given no more calls, what is at work ends and is committed; a cancelled one takes nothing any more. That
workers stop at calls of a cancelled run saves work (`cancellation`); it is not what ends the run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.errors import BeingAmended, PlanWaits, RunNotFound, RunOver
from acts_celery.worker.storage.audit import AuditRecord, audit_record
from acts_celery.worker.storage.connections import redis_errors
from acts_celery.worker.storage.due import PUBLISHED_MS, DueRuns
from acts_celery.worker.storage.keys import Keys
from acts_celery.worker.storage.scripts import Script
from acts_celery.worker.storage.secret import read_tokens

from .publishing import publish_lanes

if TYPE_CHECKING:
    from acts_celery.worker.broker.publisher import Publisher

_DONE: Final = {"paused": "paused", "running": "resumed", "cancelled": "cancelled"}
"""What was done, by the status wanted."""
_AT_ONCE: Final = 500


class Control:
    """Changes the status of one run. `publisher` is asked for when something is to be published."""

    def __init__(self, run: str, redis: Redis, settings: Settings, publisher: Callable[[], Publisher]) -> None:
        self._run = run
        self._redis = redis
        self._keys = Keys(settings.key_prefix, run)
        self._settings = settings
        self._publisher = publisher
        self._due = DueRuns(redis, settings.key_prefix)
        self._script = Script(redis, "set_status")

    def pause(self) -> None:
        """Begin no more calls; those at work end. Raises `RunNotFound`, `RunOver`, `InfrastructureError`."""
        self._change("paused")
        self._follow(Control.pause)

    def resume(self) -> None:
        """Go on, as far as was left while the run was paused. Raises as `pause` does.

        Should this process die in between, the workers' sweep publishes what it has not.
        """
        self._go_on(self._change("running"))

    def approve(self, amended: str, order: AuditRecord) -> bool:
        """Go on since the plan was approved that was read when `amended` of the run's state was this; whether it still
        was. Raises as `pause` does.
        """
        try:
            lanes = self._change("running", order, approves=amended)
        except PlanWaits:
            return False
        self._go_on(lanes)
        return True

    def cancel(self) -> None:
        """End the run as it stands, whatever is at work. Raises as `pause` does."""
        self._change("cancelled")
        with redis_errors(self._settings):
            born: Any = self._redis.hget(self._keys.state, "submitted")
            tokens = read_tokens(self._redis, self._keys.prefix).of_run((born or b"").decode())
            key = tokens.cancelling(self._run)
        self._publisher().tell_cancelled(key)
        self._follow(Control.cancel)

    def _follow(self, order: Callable[[Control], None]) -> None:
        """Give the same order to the child runs that calls wait for, as far as they are not over (SPEC R9.3)."""
        with redis_errors(self._settings):
            found: Any = self._redis.smembers(self._keys.children)
        for run in sorted(found):
            with suppress(RunOver, RunNotFound):
                order(Control(run.decode(), self._redis, self._settings, self._publisher))

    def _go_on(self, lanes: list[str]) -> None:
        while lanes:
            publish_lanes(self._publisher(), self._settings, self._run, lanes)
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
            self._due.note(self._run)
        if now == "paused" and answer.get("is_planned"):
            raise PlanWaits(self._run)
        if now == "paused" and wanted == "running":
            raise BeingAmended(
                f"run {self._run} is amended in part: repeat that `acts amend` or `acts retry`, or cancel the run"
            )
        if now != wanted:
            raise RunOver(f"run {self._run} is {before}: it cannot be {_DONE[wanted]} any more")
        found: list[str] = answer["lanes"]
        return found

    def _set_status(self, wanted: str, order: AuditRecord, approves: str | None = None) -> dict[str, Any]:
        """What the script answers."""
        request = {
            "wanted": wanted,
            "most": _AT_ONCE,
            "published_ms": PUBLISHED_MS,
            "window": self._settings.publish_window,
            "who": order.pack(),
            **({"approves": approves} if approves is not None else {}),
        }
        with redis_errors(self._settings):
            return self._script(self._keys, request)
