"""An answer that runs while it is written outlives the processes that drive it, and the one that asks (SPEC R13.8).

As in `test_r13_5_crashes`: processes without Celery on a real log die before or after some command. What is told of an
answer comes in any order, twice or not at all, and some requests are lost in mid-answer.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from acts_celery.broker_config import DELIVER, EmbeddedServer
from acts_celery.protocol.engine.events import Success
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.messages import (
    WRITTEN,
    DelegateCall,
    Delivery,
    TaskMessage,
    delivery_task,
    unpack_delegate_call,
    unpack_delivery,
)
from acts_celery.worker.limits import limits_of
from acts_celery.worker.runner.scheduler import Scheduler
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.run_list import Parent
from acts_celery.worker.store.slots import Budget
from tests.few import few

from .test_r13_5_crashes import World

CALLS: list[dict[str, Any]] = [
    {"_tool": "add", "a": 1, "b": 1, "_outputPath": "†state.one"},
    {"_tool": "add", "a": "†state.late", "b": 1, "_outputPath": "†state.after"},
    {"_tool": "add", "_instance": "①", "a": "†state.n", "b": "†state.one", "_outputPath": "†state.two"},
    {"_tool": "add", "a": "no number", "_outputPath": "†state.never"},
    {"_tool": "add", "_instance": "②", "a": "†state.one || †state.late", "_outputPath": "†state.two"},
    {"_tool": "add", "a": "†state.one", "b": 1, "_outputPath": "†state.late"},
]
"""The second waits for the last, so it begins when the answer is whole; the fifth for the first."""
WRITTEN_PLACES = [call["_outputPath"] for call in CALLS if call["_outputPath"] != "†state.never"]


class StreamingWorld(World):
    """A world whose model streams: what of its calls has not been written yet, then an output."""

    name = "streaming"

    def _wanted(self) -> list[dict[str, Any]]:
        done = Counter(
            (entry.message["_call"]["_outputPath"], entry.message.get("_instance"))
            for entry in self.run.log()
            if "_call" in entry.message
        )
        return [call for call in CALLS if (call["_outputPath"], call.get("_instance")) not in done]

    async def _do(self, scheduler: Scheduler, task: TaskMessage) -> None:
        if task.task != "acts.execute_delegate":
            await super()._do(scheduler, task)
            return
        call: DelegateCall = unpack_delegate_call(task.body, limits_of(self.settings))
        tick = call.attempt.id.index
        assert tick not in self.answered(), "it is asked again though the answer is in the log"
        assert self.redis.hget(self.keys.state, "loop") == f"asked:{tick}".encode(), "calls of its answer run already"
        self.asked[tick] += 1
        calls = [one for one in self._wanted() if one["_outputPath"] != "†state.never" or tick == 0]
        text = json.dumps({"calls": calls, "output": None if calls else "†state.after"})
        ends = [at + 1 for at, mark in enumerate(text) if mark == "}" and at + 1 < len(text)]
        told = [{WRITTEN: text[:end]} for end in self.chance.choices(ends, k=4)] if ends else []
        is_lost = bool(calls) and self.chance.random() < 0.4
        for said in [*told, *([] if is_lost else [{"answer": text, "model": "told", "usage": None}])]:
            for _ in self.step():
                self.queue.append(delivery_task(Delivery(call.attempt, Success(said)), "instances"))


class ChildWorld(StreamingWorld):
    """The same, where the run answers a call of another one, on whose pool it draws."""

    def __init__(self, server: EmbeddedServer, seed: int, *, deaths: int) -> None:
        super().__init__(server, seed, deaths=deaths)
        self.above = Keys(self.settings.key_prefix, f"above-{self.run.id}")
        parent = Parent(CallId(self.above.run, None, 0), 1, 1, (Budget(self.above.run, None, 100),))
        self.redis.hset(self.keys.state, mapping=parent.to_fields())
        self.redis.hset(self.above.state, "status", "running")
        self.redis.hset(self.above.calls, parent.call.member, f"child:1:0:{self.run.id}")
        self.has_answered = False

    def taken(self) -> tuple[int, int]:
        """The calls that the run has taken from its own budget, and from the one above."""
        own, above = self.redis.hmget(self.above.budget, f"=calls:{self.run.id}", "=calls")
        return int(own or 0), int(above or 0)

    def step(self) -> Iterator[None]:
        total = int(self.redis.hget(self.keys.state, "total"))
        assert min(self.taken()) >= total, "calls are written that were not taken"
        yield from super().step()

    async def _do(self, scheduler: Scheduler, task: TaskMessage) -> None:
        if (
            task.task == DELIVER
            and unpack_delivery(task.body, limits_of(self.settings)).attempt.id.run == self.above.run
        ):
            self.has_answered = True
        else:
            await super()._do(scheduler, task)


def verify(world: StreamingWorld) -> None:
    """Each call has written once, nothing that had begun was asked again, and the log has every solution once."""
    result = world.run.result()
    assert (result.status, result.output) == ("completed", 4)
    log = [entry.message for entry in world.run.log()]
    written = Counter(
        (message["_call"]["_outputPath"], message.get("_instance")) for message in log if "_call" in message
    )
    assert sorted(path for path, _ in written) == sorted(WRITTEN_PLACES)
    assert set(written.values()) == {1}
    solutions = [message["tick"] for message in log if message["type"] == "solution"]
    assert solutions == list(range(len(solutions)))
    assert world.asked.keys() == set(solutions)


@pytest.mark.parametrize("seed", few(range(0, 10, 2), 2))
def test_r13_8_a_streamed_answer_outlives_processes_that_die_anywhere(server: EmbeddedServer, seed: int) -> None:
    world = StreamingWorld(server, seed, deaths=seed % 8)
    asyncio.run(world.live())
    verify(world)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", few(range(1, 11, 2), 2))
def test_r13_3_what_a_streamed_answer_of_a_child_run_starts_was_drawn_before_and_once(
    server: EmbeddedServer, seed: int
) -> None:
    world = ChildWorld(server, seed, deaths=seed % 8)
    asyncio.run(world.live())
    verify(world)
    assert world.has_answered or world.deaths
    assert not world.has_answered or world.taken()[1] == len(world.run.result().calls)
