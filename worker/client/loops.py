"""Loops from outside: more ticks, something said, what was asked (SPEC R12.9, R13.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from redis import Redis

from broker_config import Settings
from protocol.engine.loop import Stage
from worker.errors import NoLoop, NoSuchTick, RunNotFound, RunOver
from worker.execution.loop_view import LoopView, loop_limits
from worker.messaging.attempts import lane_token
from worker.messaging.messages import lane_task
from worker.messaging.packing import pack, unpack
from worker.storage.audit import Deed, deed
from worker.storage.definition import Definition, unpack_definition
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
        done = deed(self._settings, "resumed", ticks=ticks)

        def step(view: LoopView) -> LoopStep:
            if view.status not in ("running", "paused", "failed"):
                raise RunOver(f"run {view.run} is {view.status}: it asks no more; see `acts say` and `acts fork`")
            return self._extension(view, ticks)

        self._take(step, done)

    def say(self, text: str) -> None:
        """Add a text to the context of a loop: the next request shows it. One that has ended goes on, with as many
        ticks as it had at first.

        Raises `RunNotFound`, `NoLoop`, `RunOver` where it is cancelled, `RedisError`.
        """
        done = deed(self._settings, "said")
        message = {"type": "text", "message": text}

        def step(view: LoopView) -> LoopStep:
            if view.status not in ("running", "paused", "completed", "failed"):
                raise RunOver(f"run {view.run} is {view.status}: nothing can be said in it any more")
            loop = view.loop
            if loop.stage is Stage.ENDED:
                asked = len([tick for tick in loop.ticks if tick.solution is not None])
                left = loop.limits.ticks - asked
                most = loop_limits(view.definition, self._settings).ticks
                found = self._extension(view, max(most - left, 0))
            else:
                found = LoopStep(before=loop.name, after=loop.name, seen=view.seen)
            found.entries.insert(0, ("", ["m", pack(message), "w", done.pack()]))
            return found

        self._take(step, done)

    def asked(self, tick: int) -> dict[str, Any]:
        """What a model was asked in a tick: `messages`, `schema`, and its `config` and `digest`.

        Raises `RunNotFound`, `NoLoop`, `NoSuchTick`, `RedisError`.
        """
        self._definition()
        messages: list[Any] = []
        schema, asked = None, 0
        for entry in self._history.entries():
            if entry.loop is None or entry.loop.request is None:
                continue
            request = entry.loop.request
            messages += request["messages"]
            schema, asked = request.get("schema", schema), entry.loop.tick + 1
            if entry.loop.tick == tick:
                parts = {key: request[key] for key in ("config", "digest")}
                return {"messages": messages, "schema": schema, **parts}
        raise NoSuchTick(f"run {self._keys.run} has asked {asked} times: there is no tick {tick}, the first is 0")

    def _extension(self, view: LoopView, ticks: int) -> LoopStep:
        """The step by which a loop may ask so many times more; the view follows it."""
        loop = view.loop
        step = LoopStep(before=loop.name, after="", seen=view.seen)
        step.note(loop.tick.number, extension={"ticks": ticks})
        is_over = loop.stage is Stage.ENDED
        loop.extend(ticks)
        step.after = loop.name
        if is_over:
            step.extends = loop.tick.number
            step.woken = [LOOP, *dict.fromkeys(lane_token(instance) for instance, _ in view.open)]
        return step

    def _take(self, make: Callable[[LoopView], LoopStep], done: Deed) -> None:
        """Take a step as soon as nothing comes in between."""
        while not self._taken(make(self._view()), done):
            pass

    def _taken(self, step: LoopStep, done: Deed) -> bool:
        run, is_over = self._keys.run, step.extends is not None
        if is_over:
            self._list()
        if not any("w" in fields for _, fields in step.entries):
            step.entries[-1][1].extend(["w", done.pack()])
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

    def _definition(self) -> Definition:
        data: Any = self._redis.get(self._keys.definition)
        if data is None:
            raise RunNotFound(self._keys.run)
        definition = unpack_definition(data)
        if definition.request is None:
            raise NoLoop(f"run {self._keys.run} is no request: no model is asked there, and it has no ticks")
        return definition

    def _view(self) -> LoopView:
        """The loop as the log has it."""
        definition = self._definition()
        tokens = read_tokens(self._redis, self._keys.prefix)
        view = LoopView(self._keys.run, definition, tokens, loop_limits(definition, self._settings))
        view.feed(self._history.entries())
        return view

    def _list(self) -> None:
        submitted: Any = self._redis.hget(self._keys.state, "submitted")
        self._redis.zadd(active_runs(self._keys.prefix), {self._keys.run: int(submitted or 0)})
