"""Loops from outside: more ticks for one that has reached a limit (SPEC R13.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from redis import Redis

from broker_config import Settings
from protocol.engine.loop import Stage
from worker.errors import NoLoop, RunNotFound, RunOver
from worker.execution.loop_view import LoopView, loop_limits
from worker.messaging.attempts import lane_token
from worker.messaging.messages import lane_task
from worker.messaging.packing import unpack
from worker.storage.audit import deed
from worker.storage.definition import unpack_definition
from worker.storage.due import DueRuns
from worker.storage.history import History
from worker.storage.keys import Keys, active_runs
from worker.storage.leases import PUBLISHED_SECONDS
from worker.storage.loop_entries import LOOP, LoopStep, loop_keys
from worker.storage.scripts import Script, pack_request
from worker.storage.secret import read_tokens

if TYPE_CHECKING:
    from worker.messaging.publisher import Publisher

_PUBLISHED_MS: Final = int(PUBLISHED_SECONDS * 1000)


class LoopControl:
    """The loop of one run. `publisher` is asked for when something is to be published."""

    def __init__(self, run: str, redis: Redis, settings: Settings, publisher: Callable[[], Publisher]) -> None:
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)
        self._history = History(redis, self._keys)
        self._publisher = publisher
        self._script = Script(redis, "run", "loop")

    def extend(self, ticks: int) -> None:
        """Let a loop ask so many times more, also one that has failed: it goes on from where it was.

        Raises `RunNotFound`, `NoLoop`, `RunOver`, `RedisError`.
        """
        while not self._extended(ticks):
            pass  # something has come meanwhile: look again

    def _extended(self, ticks: int) -> bool:
        view = self._view()
        run, loop = self._keys.run, view.loop
        if view.status not in ("running", "paused", "failed"):
            raise RunOver(f"run {run} is {view.status}: it asks no more; fork it from a moment before its end")
        step = LoopStep(before=loop.name, after="", seen=view.seen)
        done = deed(self._settings, "resumed", ticks=ticks)
        step.note(loop.tick.number, extension={"ticks": ticks})
        step.entries[-1][1].extend(["w", done.pack()])
        is_over = loop.stage is Stage.ENDED
        loop.extend(ticks)
        step.after = loop.name
        if is_over:
            step.extends = loop.tick.number
            step.woken = [LOOP, *dict.fromkeys(lane_token(instance) for instance, _ in view.open)]
            self._list()
        answer = unpack(self._script(loop_keys(self._keys), [pack_request(step.to_request(_PUBLISHED_MS))]))
        if answer["status"] == "gone":
            raise RunNotFound(run)
        if not answer["is_taken"]:
            return False
        done.tell(run)
        if is_over:
            self._list()  # a sweep that was about to let it expire takes it from the list
            DueRuns(self._redis, self._keys.prefix).note(run)
        queue = self._settings.queue_instances
        self._publisher().publish(lane_task(run, lane or None, queue) for lane in answer["woken"])
        return True

    def _view(self) -> LoopView:
        """The loop as the log has it."""
        data: Any = self._redis.get(self._keys.definition)
        if data is None:
            raise RunNotFound(self._keys.run)
        definition = unpack_definition(data)
        if definition.request is None:
            raise NoLoop(f"run {self._keys.run} is no request: no model is asked there, and it has no ticks")
        tokens = read_tokens(self._redis, self._keys.prefix)
        view = LoopView(self._keys.run, definition, tokens, loop_limits(definition, self._settings))
        view.feed(self._history.entries())
        return view

    def _list(self) -> None:
        submitted: Any = self._redis.hget(self._keys.state, "submitted")
        self._redis.zadd(active_runs(self._keys.prefix), {self._keys.run: int(submitted or 0)})
