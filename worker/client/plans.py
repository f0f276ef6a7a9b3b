"""The plan of a run in mode lazy: nothing of it runs before its digest is approved (SPEC R10.2, R13.7).

The plan is what the log says is to be done. That no amendment comes in between is seen by the field `amended` of the
run's state, which is read before the log; lua/set_status.lua compares it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.errors import PlanChanged, RunNotFound, RunOver
from acts_celery.worker.storage.audit import audit_record
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import ENDED, Keys
from acts_celery.worker.storage.run_state import RunState
from acts_celery.worker.wire.packing import pack

if TYPE_CHECKING:
    from .control import Control
    from .loops import LoopControl

_DIGEST: Final = 16
"""Characters of a digest: it tells the plans of one run apart."""


class PlanControl:
    """The plan of one run; those of a loop are its `loop`'s."""

    def __init__(self, run: str, redis: Redis, settings: Settings, loop: LoopControl, control: Control) -> None:
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)
        self._history = History(redis, self._keys)
        self._loop = loop
        self._control = control

    def plan(self) -> dict[str, Any] | None:
        """The plan that waits: `plan` its digest, `tick` (of a loop), `calls`; None where none does.

        Raises `RedisError`.
        """
        is_loop, is_waiting = self._redis.hmget(self._keys.state, "loop", "plan")
        if is_loop is not None:
            return self._loop.plan()
        if is_waiting is None:
            return None
        run = self._read()
        return _plan_of(run) if run.waits_for_approval and run.status not in ENDED else None

    def approve(self, digest: str, *, by: str | None = None) -> None:
        """Let the calls of the plan of this digest run. The same approval twice is one.

        Raises `PlanChanged` where another plan waits, or none; `RunNotFound`, `RunOver`, `BeingAmended`, `RedisError`.
        """
        if self._redis.hexists(self._keys.state, "loop"):
            self._loop.approve(digest, by=by)
            with suppress(RunOver):  # it was approved before, and has ended since
                self._control.resume()
            return
        done = audit_record(self._settings, "approved", plan=digest).by(by)
        while True:
            amended: Any = self._redis.hget(self._keys.state, "amended")
            run = self._read()
            if run.status in ENDED:
                raise RunOver(f"run {self._keys.run} is {run.status}: nothing of it can be approved any more")
            if not run.waits_for_approval and digest in self._approved():
                return
            waiting = _plan_of(run)["plan"] if run.waits_for_approval else None
            if waiting != digest:
                known = f"the plan {waiting}" if waiting else "no plan"
                raise PlanChanged(f"run {self._keys.run} has {known} to be approved, and not {digest}: see `acts held`")
            if self._control.approve((amended or b"").decode(), done):
                return

    def _read(self) -> RunState:
        run = RunState(self._history.definition(), self._history.instances())
        run.feed(self._history.entries())
        if not run.status:
            raise RunNotFound(self._keys.run)
        return run

    def _approved(self) -> set[Any]:
        """The digests of the plans that were approved."""
        records = (entry.audit for entry in self._history.entries() if entry.audit is not None)
        return {record.about.get("plan") for record in records if record.did == "approved"}


def _plan_of(run: RunState) -> dict[str, Any]:
    """What is to be done in a run of which nothing has begun. The digest is of the calls, and of all that they name."""
    lanes = run.lanes.values()
    left = {index: call for lane in lanes for index, call in lane.known.items() if lane.end(index) is None}
    calls = [dict(left[index].raw) for index in sorted(left)]
    tools: Mapping[str, Any] = {name: dict(tool.declaration) for name, tool in sorted(run.definition.tools.items())}
    shown = pack([calls, tools, dict(run.definition.delegates)])
    return {"plan": hashlib.sha256(shown).hexdigest()[:_DIGEST], "tick": None, "calls": calls}
