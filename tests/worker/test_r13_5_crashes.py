"""A loop outlives the process that drives it, wherever that dies (SPEC R13.1, R13.3, R13.5).

Processes without Celery on a real log: each dies before or after some command to the log or some publishing, and the
next one finds what was lost, as the sweep would. Nothing answered is asked again, and a death costs at most one more
request.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from redis import Redis

from acts_celery import Client, Run
from acts_celery.broker_config import DELIVER, EXECUTE_DELEGATE, EmbeddedServer, Settings
from acts_celery.protocol.engine.events import Success
from acts_celery.protocol.engine.loop import Loop
from acts_celery.worker.broker.messages import (
    Delivery,
    TaskMessage,
    delivery_task,
    lane_task,
    unpack_delegate_call,
    unpack_delivery,
    unpack_lane_call,
)
from acts_celery.worker.fairness import FairScheduling
from acts_celery.worker.limits import limits_of
from acts_celery.worker.registry.activities import registry
from acts_celery.worker.runner.calls import Threads
from acts_celery.worker.runner.checking import Checker, Validator
from acts_celery.worker.runner.remote import Children, Remote
from acts_celery.worker.runner.scheduler import Scheduler
from acts_celery.worker.runner.step import Services
from acts_celery.worker.store.connections import connect_async
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.log import History, LogTerms, MessageLog
from acts_celery.worker.store.loop_entries import follow
from acts_celery.worker.store.slots import Slots
from tests.few import few

from .backend import settings_apart
from .loops import ADD

ANSWERS: Sequence[Mapping[str, Any]] = [
    {
        "calls": [
            {"_tool": "add", "_instance": "①", "a": "†state.n", "b": 1, "_outputPath": "†state.next"},
            {"_tool": "add", "_instance": "②", "a": "†state.n", "b": 1, "_outputPath": "†state.next"},
            {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"},
        ],
        "output": None,
    },
    {
        "calls": [
            {"_tool": "add", "a": "†state.sum", "b": 10, "_outputPath": "†state.more"},
            {"_tool": "add", "_instance": "①", "a": "†state.more", "b": 1, "_outputPath": "†state.last"},
            {"_tool": "add", "a": "no number", "_outputPath": "†state.never"},
        ],
        "output": None,
    },
    {"calls": [], "output": None},
    {"calls": [{"_tool": "add", "a": "†state.more", "b": 1, "_outputPath": "†state.end"}], "output": "†state.end"},
]
REQUEST = {
    "context": [
        {"type": "state", "_instance": "①", "n": 1},
        {"type": "state", "_instance": "②", "n": 2},
    ],
    "schema": {"type": "integer"},
    "tools": {"add": ADD},
}


class Died(BaseException):
    """The process has died."""


class World:
    """A log, a broker that is a list, and processes that come and go."""

    models: ClassVar[Mapping[str, Any]] = {}
    document: ClassVar[Mapping[str, Any]] = REQUEST

    def __init__(self, server: EmbeddedServer, seed: int, *, deaths: int, disturbs: bool = False) -> None:
        name = f"{type(self).__name__}-{'disturbed' if disturbs else 'crashes'}{seed}"
        self.settings: Settings = settings_apart(server, name, limit_attempts=20, models=self.models)
        self.disturbs = disturbs
        self.redis: Any = Redis.from_url(server.redis_url)
        self.chance = random.Random(seed)
        self.queue: list[TaskMessage] = []
        self.asked: Counter[int] = Counter()
        self.deaths_left = deaths
        self.deaths = 0
        self.commands_left = self._lifetime()
        self.run: Run = Client(self.settings).submit_document(self.document)
        self.keys = Keys(self.settings.key_prefix, self.run.id)

    def _lifetime(self) -> int:
        return self.chance.randrange(1, 20) if self.deaths_left else 10**9

    def step(self) -> Iterator[None]:
        """Something that the process does: it may die before or after it, and a client may come before it."""
        if self.disturbs and self.chance.random() < 0.08:
            self._disturb()
        self.commands_left -= 1
        dies = self.commands_left == 0
        if dies and self.chance.random() < 0.5:
            raise Died
        yield
        if dies:
            raise Died

    def _disturb(self) -> None:
        """What a client may do at any time, as long as the run goes on."""
        if self.run.status()["status"] not in ("running", "paused"):
            return
        match self.chance.randrange(4):
            case 0:
                self.run.pause()
            case 1:
                self.run.resume()
            case 2:
                self.run.send({"type": "state", "_instance": self.chance.choice("①②"), "noise": self.chance.random()})
            case 3:
                self.run.say("Go on.")

    def answered(self) -> set[int]:
        """The indexes of the requests whose answers are in the log."""
        return set(reduce(follow, History(self.redis, self.keys).entries(), Loop()).answered)

    async def live(self) -> None:
        """Let processes drive the run until it is over."""
        while self.run.status()["status"] in ("running", "paused"):
            redis = connect_async(self.settings)
            try:
                await self._process(redis)
            except Died:
                self.deaths += 1
                self.deaths_left -= 1
                self.commands_left = self._lifetime()
            finally:
                await redis.aclose()
            self._recover()

    async def _process(self, redis: Any) -> None:
        """One process, until it dies or there is nothing left in the queue."""
        scheduler = self._scheduler(redis)
        while self.queue:
            task = self.queue.pop(self.chance.randrange(len(self.queue)))
            if task.task != EXECUTE_DELEGATE and self.chance.random() < 0.05:
                self.queue.append(task)  # it is delivered twice
            await self._do(scheduler, task)

    async def _do(self, scheduler: Scheduler, task: TaskMessage) -> None:
        limits = limits_of(self.settings)
        if task.task == DELIVER:
            await scheduler.deliver(unpack_delivery(task.body, limits))
        elif task.task == EXECUTE_DELEGATE:
            call = unpack_delegate_call(task.body, limits)
            index = call.attempt.id.index
            assert index not in self.answered(), "it is asked again though the answer is in the log"
            self.asked[index] += 1
            for _ in self.step():
                answer = {"answer": json.dumps(ANSWERS[index]), "model": "told", "usage": None}
                self.queue.append(delivery_task(Delivery(call.attempt, Success(answer)), "instances"))
        else:
            lane = unpack_lane_call(task.body, limits)
            await scheduler.drive(lane.run, lane.instance, was_lost=lane.was_lost)

    def _scheduler(self, redis: Any) -> Scheduler:
        settings = self.settings
        log = MessageLog(redis, settings.key_prefix, LogTerms(published_seconds=60, lease_seconds=30, window=100))
        log._commands = _Mortal(log._commands, self.step)  # type: ignore[assignment]

        async def publish(tasks: Sequence[TaskMessage]) -> None:
            for _ in self.step():
                self.queue += tasks

        leases: Any = SimpleNamespace(enter=lambda *_: None, leave=lambda *_: None)
        checker = Checker(settings, registry)
        services = Services(
            log,
            settings,
            registry,
            limits_of(settings),
            publish,
            Threads(2),
            leases,
            Remote(settings, registry),
            Slots(redis, prefix=settings.key_prefix),
            FairScheduling(),
            checker,
            Children(self.redis, settings, checker),
            Validator(),
        )
        return Scheduler(services)

    def _recover(self) -> None:
        """What the sweep does when all that was at work, and all that was published, counts as lost."""
        if self.run.status()["status"] == "paused":
            self.run.resume()
        if self.run.status()["status"] != "running":
            return
        redis, keys = self.redis, self.keys
        self.queue.clear()
        lanes = {lane.decode() for lane in redis.zrange(keys.published, 0, -1)}
        for member in redis.zrange(keys.leases, 0, -1):
            entry = redis.hget(keys.calls, member)
            if entry is not None and entry.split(b":")[0] in (b"running", b"sent"):
                _, attempt, failures, _ = entry.split(b":", 3)
                redis.hset(keys.calls, member, b"lost:%s:%s:" % (attempt, failures))
            redis.zrem(keys.leases, member)
            lanes.add(member.decode().rpartition("\x1f")[0])
        for lane in redis.zrange(keys.parked, 0, -1):
            redis.zrem(keys.parked, lane)
            lanes.add(lane.decode())
        assert lanes, f"nothing is left that would be found: {redis.hgetall(keys.state)}"
        for lane in sorted(lanes):
            redis.zadd(keys.published, {lane: 2**50})
            self.queue.append(lane_task(self.run.id, lane or None, "instances"))


class _Mortal:
    """Commands to the log, at any of which the process may die."""

    def __init__(self, commands: Any, step: Callable[[], Iterator[None]]) -> None:
        self._commands = commands
        self._step = step

    async def execute(self, *command: Any) -> Any:
        answer: Any = None
        for _ in self._step():
            answer = await self._commands.execute(*command)
        return answer

    async def run_script(self, *arguments: Any) -> Any:
        answer: Any = None
        for _ in self._step():
            answer = await self._commands.run_script(*arguments)
        return answer


@pytest.mark.parametrize("seed", few(range(25), 6))
def test_r13_5_a_loop_outlives_processes_that_die_anywhere(server: EmbeddedServer, seed: int) -> None:
    world = World(server, seed, deaths=1 + seed % 8)
    asyncio.run(world.live())
    assert world.deaths
    _verify(world)


@pytest.mark.parametrize("seed", few(range(15), 4))
def test_r13_5_a_loop_that_is_paused_resumed_and_sent_messages_meanwhile_takes_each_step_once(
    server: EmbeddedServer, seed: int
) -> None:
    world = World(server, seed, deaths=seed % 3, disturbs=True)
    asyncio.run(world.live())
    _verify(world)


def _verify(world: World) -> None:
    """Each tick was answered once, each call has written once, and no more was asked than deaths explain."""
    result = world.run.result()
    assert (result.status, result.output) == ("completed", 14)
    assert all(times <= 1 + world.deaths for times in world.asked.values())
    assert world.asked.total() <= len(ANSWERS) + world.deaths
    log = [entry.message for entry in world.run.log()]
    solutions = [message["tick"] for message in log if message["type"] == "solution"]
    assert solutions == [0, 1, 2, 3]
    written = Counter(str(message["_call"]) for message in log if message["type"] == "data")
    assert set(written.values()) == {1}
    assert len(written) == 6
    failed = [message["data"]["call"] for message in log if message["type"] == "error"]
    assert [call["_outputPath"] for call in failed if call is not None] == ["†state.never"]
    assert failed.count(None) == 1, "nothing called and nothing said"
    assert [call.tick for call in result.calls] == [0, 0, 0, 1, 1, 1, 3]
