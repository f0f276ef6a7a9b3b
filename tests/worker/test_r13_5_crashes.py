"""Loops outlive the processes that drive them (SPEC R13.5, R13.8)."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from threading import Event as Gate
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from redis import Redis

from acts_celery import AsyncClient, BeingAmended, Client, Event, Run
from acts_celery.broker_config import DELIVER, EXECUTE_DELEGATE, EmbeddedServer, Settings
from acts_celery.protocol import Context, Limits
from acts_celery.protocol.engine.events import Success
from acts_celery.protocol.engine.loop import Loop, RequestRecorded
from acts_celery.worker.agent.ticks import next_request, read_tick, request_of
from acts_celery.worker.broker.attempts import CallId, Tokens
from acts_celery.worker.broker.messages import (
    WRITTEN,
    DelegateCall,
    Delivery,
    TaskMessage,
    delivery_task,
    lane_task,
    unpack_delegate_call,
    unpack_delivery,
    unpack_lane_call,
)
from acts_celery.worker.cli.progress import Ticks
from acts_celery.worker.fairness import FairScheduling
from acts_celery.worker.limits import limits_of
from acts_celery.worker.registry.activities import Registry, registry
from acts_celery.worker.registry.models import KnownModels
from acts_celery.worker.runner.calls import Threads
from acts_celery.worker.runner.checking import Checker, Validator
from acts_celery.worker.runner.remote import Children, Remote
from acts_celery.worker.runner.scheduler import Scheduler
from acts_celery.worker.runner.step import WorkerContext
from acts_celery.worker.store.connections import connect_async
from acts_celery.worker.store.definition import unpack_definition
from acts_celery.worker.store.entries import Entry, follow
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.lane import LaneView, RunView
from acts_celery.worker.store.log import LogTerms, MessageLog
from acts_celery.worker.store.loop_view import LoopView, loop_limits
from acts_celery.worker.store.run_list import Parent, child_id
from acts_celery.worker.store.run_store import RunStore
from acts_celery.worker.store.slots import Budget, Slots
from tests.acceptance.command import acts, finish, start
from tests.few import few
from tests.models.server import Reply, delta, streamed
from tests.models.tool_servers import OpenAIWire

from . import loops as asking
from .backend import Backend, Meeting, settings_apart
from .loops import ADD
from .streaming import (
    ASK,
    SUM,
    TOOLS,
    Streaming,
    answer,
    held,
    settings,
    solutions,
    speaker,
    streaming,
    waiting,
)
from .test_control_cli import command

__all__ = ["settings", "speaker", "streaming"]

# A loop outlives the process that drives it, wherever that dies (SPEC R13.1, R13.3, R13.5).

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
        return set(reduce(follow, RunStore(self.redis, self.keys).entries(), Loop()).answered)

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
            call = await self._read(scheduler, task)
            index = call.attempt.id.index
            assert index not in self.answered(), "it is asked again though the answer is in the log"
            self.asked[index] += 1
            for _ in self.step():
                answer = {"answer": json.dumps(ANSWERS[index]), "model": "told", "usage": None}
                self.queue.append(delivery_task(Delivery(call.attempt, Success(answer)), "instances"))
        else:
            lane = unpack_lane_call(task.body, limits)
            await scheduler.drive(lane.run, lane.instance, was_lost=lane.was_lost)

    async def _read(self, scheduler: Scheduler, task: TaskMessage) -> DelegateCall:
        """The call of a model, with the request that its message names."""
        call = unpack_delegate_call(task.body, limits_of(self.settings))
        assert call.asked
        assert not call.context, "a conversation does not cross the broker with each tick"
        found = await scheduler.with_request(call)
        assert found is not None
        return found

    def _scheduler(self, redis: Any) -> Scheduler:
        settings = self.settings
        log = MessageLog(redis, settings.key_prefix, LogTerms(published_seconds=60, lease_seconds=30, window=100))
        log._commands = _Mortal(log._commands, self.step)  # type: ignore[assignment]

        async def publish(tasks: Sequence[TaskMessage]) -> None:
            for _ in self.step():
                self.queue += tasks

        leases: Any = SimpleNamespace(enter=lambda *_: None, leave=lambda *_: None)
        checker = Checker(settings, registry)
        services = WorkerContext(
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


@pytest.mark.parametrize("seed", few(range(25), 3))
def test_r13_5_a_loop_outlives_processes_that_die_anywhere(server: EmbeddedServer, seed: int) -> None:
    world = World(server, seed, deaths=1 + seed % 8)
    asyncio.run(world.live())
    assert world.deaths
    _verify(world)


@pytest.mark.parametrize("seed", few(range(15), 2))
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


# An answer that runs while it is written outlives the processes that drive it, and the one that asks (SPEC R13.8).

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
        call = await self._read(scheduler, task)
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


@pytest.mark.parametrize("seed", few(range(0, 10, 2), 1))
def test_r13_8_a_streamed_answer_outlives_processes_that_die_anywhere(server: EmbeddedServer, seed: int) -> None:
    world = StreamingWorld(server, seed, deaths=seed % 8)
    asyncio.run(world.live())
    verify(world)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", few(range(1, 11, 2), 1))
def test_r13_3_what_a_streamed_answer_of_a_child_run_starts_was_drawn_before_and_once(
    server: EmbeddedServer, seed: int
) -> None:
    world = ChildWorld(server, seed, deaths=seed % 8)
    asyncio.run(world.live())
    verify(world)
    assert world.has_answered or world.deaths
    assert not world.has_answered or world.taken()[1] == len(world.run.result().calls)


# Answers that run while they are written, on real workers and a server that streams (SPEC R13.8).


def test_r13_8_a_call_begins_while_the_server_holds_the_rest_of_the_answer_back(
    streaming: Streaming, meeting: Meeting
) -> None:
    hold, gate = Gate(), secrets.token_hex(4)
    text = answer(
        waiting(gate, 20), SUM, {**SUM, "a": f"†state.{gate}", "b": "†state.sum", "_outputPath": "†state.all"}
    )
    run, topic = streaming.submit(
        lambda: held(text, f'"†state.{gate}"}}', hold=hold), lambda: streamed(answer(output="†state.all"))
    )
    meeting.take(f"at:{gate}")
    assert solutions(run) == []
    assert run.status()["calls"] == {"running": 1}
    with pytest.raises(BeingAmended, match="try again when its answer is whole"):
        run.amend([SUM], add=True)
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 23)
    assert [(call.index, call.tick) for call in result.calls] == [(0, 0), (1, 0), (2, 0)]
    assert streaming.speaker.asked[topic] == [0, 1]
    assert [event.status for event in run.follow() if event.kind == "run"] == ["running", "completed"]
    assert len(solutions(run)) == 2


@pytest.mark.parametrize("is_cut", [True, False])
def test_r13_8_an_answer_that_breaks_off_or_turns_invalid_behind_a_call_counts_as_far_as_it_came(
    streaming: Streaming, meeting: Meeting, *, is_cut: bool
) -> None:
    hold, gate = Gate(), secrets.token_hex(4)
    text = answer(waiting(gate), SUM)[: None if is_cut else -1] + ("" if is_cut else ', "output": 1}')

    def cut() -> Reply:
        reply = held(text, f'"†state.{gate}"}}', hold=hold)
        return Reply(reply.chunks[:3], headers=reply.headers, is_cut=True) if is_cut else reply

    run, topic = streaming.submit(cut, lambda: streamed(answer(output=f"†state.{gate}")))
    meeting.take(f"at:{gate}")
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 1)
    assert streaming.speaker.asked[topic] == [0, 1]
    assert solutions(run)[0]["solution"] == {"calls": [waiting(gate)], "output": None}
    (error,) = [entry.message["data"]["error"] for entry in run.log() if entry.message["type"] == "error"]
    assert error["type"] == "Truncated"


def test_r13_8_what_stands_behind_an_answer_whose_calls_have_begun_changes_nothing(
    streaming: Streaming, meeting: Meeting
) -> None:
    hold, gate = Gate(), secrets.token_hex(4)
    text = f"{answer(waiting(gate))}\n\nDone! Anything else?"
    run, topic = streaming.submit(
        lambda: held(text, f'"†state.{gate}"}}', hold=hold), lambda: streamed(answer(output=f"†state.{gate}"))
    )
    meeting.take(f"at:{gate}")
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output, len(result.calls)) == ("completed", 1, 1)
    assert streaming.speaker.asked[topic] == [0, 1]
    assert [entry for entry in run.log() if entry.message["type"] == "error"] == []
    assert solutions(run)[0]["words"] == "Done! Anything else?"


def test_r13_8_the_command_that_follows_a_run_shows_it_to_its_end_though_its_calls_begin_early(
    streaming: Streaming, meeting: Meeting, tmp_path: Path
) -> None:
    topic, gate, hold = secrets.token_hex(4), secrets.token_hex(4), Gate()
    text = answer(waiting(gate), SUM, output=f"†state.{gate}")
    streaming.speaker.replies[topic] = [lambda: held(text, f'"†state.{gate}"}}', hold=hold)]
    context = [{"type": "text", "message": f"topic: {topic}"}]
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"context": context, "schema": {"type": "integer"}, "tools": TOOLS}))
    with ThreadPoolExecutor(1) as pool:
        command = pool.submit(acts, "run", str(request), "--json", env=streaming.backend.settings.to_environment())
        meeting.take(f"at:{gate}")
        hold.set()
        meeting.open_gate(gate)
        ended = command.result()
    assert ended.code == 0, ended.stderr
    assert json.loads(ended.stdout)["output"] == 1


def test_r13_8_a_call_of_a_child_run_begins_while_both_answers_are_held_back(
    streaming: Streaming, meeting: Meeting
) -> None:
    gate, hold = secrets.token_hex(4), Gate()
    inner = answer(waiting(gate, 20), {**SUM, "a": f"†state.{gate}"})
    child = streaming.delegate(
        lambda: held(inner, f'"†state.{gate}"}}', hold=hold), lambda: streamed(answer(output="†state.sum"))
    )
    outer = answer(ASK, {**SUM, "a": "†state.asked", "b": "†state.asked"})
    run, _ = streaming.submit(
        lambda: held(outer, '"†state.asked"}', hold=hold), lambda: streamed(answer(output="†state.sum")), **child
    )
    meeting.take(f"at:{gate}")
    below = streaming.backend.client.run(child_id(CallId(run.id, None, 0)))
    assert (solutions(run), solutions(below)) == ([], [])
    assert (run.status()["calls"], below.status()["calls"]) == ({"running": 1}, {"running": 1})
    hold.set()
    meeting.open_gate(gate)
    result = streaming.backend.wait(run.id)
    assert (result.status, result.output) == ("completed", 44)
    assert [call.cost and call.cost["calls"] for call in result.calls] == [2, None]
    drawn: Any = streaming.backend.redis.hget(Keys(streaming.backend.settings.key_prefix, run.id).budget, "=calls")
    assert int(drawn) == 4


@pytest.mark.parametrize("is_child_first", [True, False])
def test_r13_3_streams_of_a_loop_and_its_child_run_begin_no_more_calls_than_both_may(
    streaming: Streaming, meeting: Meeting, *, is_child_first: bool
) -> None:
    own, first, second = (secrets.token_hex(4) for _ in range(3))
    hold, inner_hold = Gate(), Gate()
    inner = answer(waiting(first), waiting(second))
    child = streaming.delegate(lambda: held(inner, f'"†state.{first}"}}', hold=inner_hold))
    outer = answer(ASK, waiting(own))
    run, _ = streaming.submit(
        lambda: held(outer, '"†state.asked"}', hold=hold),
        lambda: streamed(answer(output=7)),
        **child,
        config={"calls": 3},
    )
    meeting.take(f"at:{first}")
    says = f"0 calls are left of those that run {run.id} and its child runs may start together (config.calls)"
    if is_child_first:
        inner_hold.set()
        meeting.take(f"at:{second}")
        hold.set()
        result = streaming.backend.wait(run.id)
        assert (result.status, result.reason) == ("failed", says)
    else:
        hold.set()
        meeting.take(f"at:{own}")
        inner_hold.set()
        meeting.open_gate(own)
        result = streaming.backend.wait(run.id)
        assert (result.status, result.output) == ("completed", 7)
        assert says in (result.calls[0].error or {})["message"]
    for gate in (own, first, second):
        meeting.open_gate(gate)
    assert meeting.count(f"at:{own if is_child_first else second}") == 0


def test_r13_8_what_would_pass_the_limit_of_calls_does_not_begin_and_ends_the_run(
    streaming: Streaming, meeting: Meeting
) -> None:
    hold, gate = Gate(), secrets.token_hex(4)
    text = answer(waiting(gate), SUM)
    run, _ = streaming.submit(lambda: held(text, f'"†state.{gate}"}}', hold=hold), config={"calls": 1})
    meeting.take(f"at:{gate}")
    hold.set()
    result = streaming.backend.wait(run.id)
    meeting.open_gate(gate)
    assert result.status == "failed"
    assert result.reason == "2 calls, where 1 (config.calls) are allowed: 1 of the last solution were started"
    assert [call.index for call in result.calls] == [0]


# A loop whose tools go as functions outlives the processes that drive it, and asks the same, byte for byte, whoever
# goes on with it (SPEC R12.6, R13.5).


class NativeWorld(World):
    """A world whose model calls functions."""

    models: ClassVar = {"native": {"model": "openai:m", "api_key": "k", "wire": "tools"}}
    document: ClassVar = {**REQUEST, "config": {"model": "native"}}

    def __init__(self, server: EmbeddedServer, seed: int, *, deaths: int, disturbs: bool = False) -> None:
        super().__init__(server, seed, deaths=deaths, disturbs=disturbs)
        self.sent: dict[int, list[dict[str, Any]]] = {}

    async def _read(self, scheduler: Scheduler, task: TaskMessage) -> DelegateCall:
        call = await super()._read(scheduler, task)
        messages, tick = [dict(message) for message in call.context], call.attempt.id.index
        OpenAIWire.verify({"messages": messages})
        assert call.config["wire"] == "tools"
        assert self.sent.setdefault(tick, messages) == messages, "it is asked again with other words"
        before = self.sent.get(tick - 1, [])
        assert messages[: len(before)] == before
        return call


@pytest.mark.parametrize("seed", few(range(12), 2))
def test_a_loop_of_functions_outlives_processes_that_die_anywhere(server: EmbeddedServer, seed: int) -> None:
    world = NativeWorld(server, seed, deaths=seed % 8, disturbs=seed % 3 == 2)
    asyncio.run(world.live())
    _verify(world)
    told = {m["tool_call_id"]: m["content"] for m in world.sent[3] if m["role"] == "tool"}
    assert list(told) == [*(f"t000c000{at}" for at in range(3)), *(f"t001c000{at}" for at in range(3))]
    assert told["t001c0002"].startswith("failed")


# What a follower of a loop is told: its ticks, and its text as it is written (SPEC R13.12).

TEXT = {"type": "string"}


def stepwise(text: str, *cuts: str) -> tuple[Callable[[], Reply], list[Gate]]:
    """A reply that stops behind each of these, until its gate opens."""
    whole, gates, before = streamed("", pieces=1), [Gate() for _ in cuts], 0
    chunks = list[bytes | Gate]()
    for cut, gate in zip(cuts, gates, strict=True):
        at = text.index(cut) + len(cut)
        chunks += [delta(content=text[before:at]), gate]
        before = at
    chunks = [whole.chunks[0], *chunks, delta(content=text[before:]), *whole.chunks[1:]]
    return lambda: Reply(chunks, headers=whole.headers), gates


def shown(events: list[Event]) -> str:
    """What a page shows that has these events."""
    text = ""
    for event in events:
        if event.kind == "text":
            text = text[: event.at] + (event.text or "")
    return text


def ticks(events: list[Event]) -> list[tuple[Any, ...]]:
    return [(event.tick, event.status, event.calls, event.errors) for event in events if event.kind == "tick"]


def test_r13_12_a_text_is_told_while_it_is_written_and_a_late_reader_gets_the_same(streaming: Streaming) -> None:
    reply, gates = stepwise(answer(output="Hello, dear \u00e9 world"), "Hello", "dear")
    run, _ = streaming.submit(reply, schema=TEXT)
    events = list[Event]()
    late = list[Event]()
    for event in run.follow(timeout_seconds=60):
        events.append(event)
        if shown(events) == "Hello":
            gates[0].set()
        elif shown(events) == "Hello, dear":
            if not gates[1].is_set():
                late = [one for _, one in zip(events, run.follow(timeout_seconds=60), strict=False)]
                assert late == events
            gates[1].set()
    assert late
    assert shown(events) in "Hello, dear \u00e9 world"
    assert ticks(events) == [(0, "asked", None, None), (0, "answered", 0, 0), (0, "ended", None, 0)]
    (ended,) = (event for event in events if event.status == "ended")
    assert ended.output == run.result().output == "Hello, dear \u00e9 world"
    for number, event in enumerate(events):
        assert list(run.follow(after=event.id, timeout_seconds=60)) == events[number + 1 :]
    assert len({event.id for event in events}) == len(events)
    assert list(run.follow()) == asyncio.run(followed(streaming.backend, run)) == events


def test_a_terminal_shows_the_tick_and_the_end_of_the_text() -> None:
    ticks, long = Ticks(), "a\tb " * 40
    told = [Event("1-0", "tick", "asked", tick=2), Event("2-0", "text", "written", tick=2, text=long + "\x1b[1m", at=0)]
    lines = [ticks.line for event in [*told, Event("3-0", "tick", "ended", tick=2)] if ticks.take(event)]
    assert (lines[0], lines[2]) == ("tick 2 asked", "tick 2 ended")
    assert lines[1].startswith("tick 2: ")
    assert lines[1].endswith("a b a b \\x1b[1m")
    assert len(lines[1]) < 80


async def followed(backend: Backend, run: Run, **how: Any) -> list[Event]:
    async with AsyncClient(backend.settings) as client:
        return [event async for event in client.run_of(run.id).follow(**how)]


def test_r13_12_ticks_tell_their_calls_usage_and_errors(streaming: Streaming) -> None:
    wrong = {"_tool": "nothing"}
    run, _ = streaming.submit(
        lambda: streamed(answer(SUM, wrong)),
        lambda: streamed(answer({**SUM, "a": "x"}, output=1)),
        lambda: streamed(answer(output=3)),
    )
    events = [event for event in run.follow(timeout_seconds=60) if event.kind == "tick"]
    assert ticks(events) == [
        (0, "asked", None, None),
        (0, "answered", 2, 1),
        (0, "ended", None, 1),
        (1, "asked", None, None),
        (1, "answered", 1, 0),
        (1, "ended", None, 1),
        (2, "asked", None, None),
        (2, "answered", 0, 0),
        (2, "ended", None, 0),
    ]
    answered = [event for event in events if event.status == "answered"]
    assert all(event.model and event.usage is not None for event in answered)
    assert [event.reason is not None for event in events if event.status == "ended"] == [False, True, False]
    assert events[-1].output == 3


def test_r13_12_a_log_that_is_followed_tells_of_each_tick_as_it_comes(streaming: Streaming) -> None:
    hold = Gate()
    bad = {"_tool": "nothing"}
    run, _ = streaming.submit(
        lambda: held(answer(SUM, bad), "{", hold=hold), lambda: streamed(answer(output="†state.sum"))
    )
    env = streaming.backend.settings.to_environment()
    following = start("log", run.id, "--follow", env=env)
    assert following.stdout is not None
    first = ""
    while "tick 0 asked" not in first:  # the answer is held back until it was told that it is asked for
        first = following.stdout.readline().decode()
        assert first
    hold.set()
    told = finish(following)
    words = [line.split("  ")[2] for line in told.stdout.splitlines() if "  tick " in line]
    assert words == ["tick 0 ended, 1 error", "tick 1 asked", "tick 1 ended"]
    assert '"type": "solution", "tick": 0' in told.stdout
    everything = command(streaming.backend, "log", run.id, "--follow", "--json").json_lines
    found = [(line["tick"]["tick"], line["tick"]["status"]) for line in everything if "tick" in line]
    assert found == [(tick, status) for tick in (0, 1) for status in ("asked", "answered", "ended")]
    (answered,) = (line for line in everything if line.get("tick", {}).get("calls") == 2)
    assert (answered["message"]["type"], answered["tick"]["errors"]) == ("solution", 1)
    plain = command(streaming.backend, "log", run.id, "--json").json_lines
    assert all(line["message"] and "tick" not in line for line in plain)


def test_r13_12_calls_begin_while_the_text_behind_them_is_written(streaming: Streaming, meeting: Meeting) -> None:
    gate = secrets.token_hex(4)
    said = "It is 1, and \u2020{state." + gate + "}."
    reply, gates = stepwise(answer(waiting(gate), output=said), "It is 1", "and")
    run, _ = streaming.submit(reply, schema=TEXT)
    meeting.take(f"at:{gate}")
    meeting.open_gate(gate)
    events = list[Event]()
    for event in run.follow(timeout_seconds=60):
        events.append(event)
        if event.kind == "call":
            gates[0].set()
        if shown(events) == "It is 1, and":
            gates[1].set()
    assert shown(events) in ("It is 1, and", "It is 1, and ")  # what the template stands for is not known before
    assert run.result().output == "It is 1, and 1."
    assert streaming.backend.wait(run.id).status == "completed"


def test_r13_12_an_output_that_is_no_text_and_one_that_is_a_reference_have_no_pieces(streaming: Streaming) -> None:
    for schema, output, comes in ((TEXT, "\u2020state.word", "there"), ({"type": "array"}, ["a", "b"], ["a", "b"])):
        topic = secrets.token_hex(4)
        streaming.speaker.replies[topic] = [partial(streamed, answer(output=output))]
        context = [{"type": "text", "message": f"topic: {topic}"}, {"type": "state", "word": "there"}]
        run = streaming.backend.client.submit(context, schema=schema)
        events = list(run.follow(timeout_seconds=60))
        assert not [event for event in events if event.kind == "text"]
        assert events[-2].output == comes


def test_r13_12_a_text_that_breaks_off_is_replaced_by_that_of_the_next_tick(streaming: Streaming) -> None:
    reply, gates = stepwise(answer(output="First try"), "First")
    whole = reply()

    def cut() -> Reply:
        return Reply(whole.chunks[:3], headers=whole.headers, is_cut=True)

    run, _ = streaming.submit(cut, lambda: streamed(answer(output="Second")), schema=TEXT)
    events = list[Event]()
    for event in run.follow(timeout_seconds=60):
        events.append(event)
        if event.kind == "text":
            gates[0].set()
    pieces = [(event.tick, event.at, event.text) for event in events if event.kind == "text"]
    assert pieces[0] == (0, 0, "First")
    assert all(at == 0 for _, at, _ in pieces[1:2])
    assert run.result().output == "Second"


def test_r13_12_a_long_text_makes_few_entries(streaming: Streaming) -> None:
    words = " ".join(str(number) for number in range(4_000))
    run, _ = streaming.submit(lambda: streamed(answer(output=words), pieces=2_000), schema=TEXT)
    events = list(run.follow(timeout_seconds=60))
    pieces = [event for event in events if event.kind == "text"]
    assert len(pieces) < 200
    assert words.startswith(shown(events))
    assert run.result().output == words


def test_r13_9_who_follows_with_children_is_told_of_them_before_the_end(streaming: Streaming) -> None:
    told = streaming.delegate(lambda: streamed(answer(SUM)), lambda: streamed(answer(output=3)))
    run, _ = streaming.submit(lambda: streamed(answer(ASK)), lambda: streamed(answer(output="†state.asked")), **told)
    events = list(run.follow(children=True, timeout_seconds=60))
    (child,) = (event.child for event in events if event.kind == "child")
    of_child = [replace(event, run=None) for event in events if event.run is not None]
    assert {event.run for event in events} == {None, child}
    assert of_child == list(streaming.backend.client.run(child or "").follow())
    assert [event for event in events if event.run is None] == list(run.follow())
    assert [event.is_end for event in events].index(True) == len(events) - 1
    assert asyncio.run(followed(streaming.backend, run, children=True))[-1] == events[-1]
    assert len(list(run.follow(children=True))) == len(events)


def test_r14_1_acts_wait_and_acts_run_tell_that_a_child_run_holds_a_call(streaming: Streaming) -> None:
    told = streaming.delegate(lambda: streamed(answer(SUM)), lambda: streamed(answer(output="†state.sum")))
    document: dict[str, Any] = {**told, "context": [], "solution": {"calls": [ASK]}, "config": {"approve": ["add"]}}
    run = streaming.backend.client.submit_document(document)
    next(event for event in run.follow(children=True, timeout_seconds=60) if event.kind == "held")
    waited = command(streaming.backend, "wait", run.id, "--timeout", "1")
    assert (waited.code, f"acts held {run.id}" in waited.stderr) == (3, True)
    (held,) = run.held()
    run.approve(held["call"])
    assert command(streaming.backend, "wait", run.id).code == 0


@pytest.mark.nightly
def test_r14_1_a_backend_that_goes_with_the_command_does_not_wait_for_a_person_of_a_child_run(
    streaming: Streaming,
) -> None:
    told = streaming.delegate(lambda: streamed(answer(SUM)))
    document = {**told, "context": [], "solution": {"calls": [ASK]}, "config": {"approve": ["add"]}}
    apart = ("BROKER", "REDIS", "QUEUE", "PREFIX")
    known = streaming.backend.settings.to_environment() | {"MEETING_URL": streaming.backend.meeting.url}
    env = {name: value for name, value in known.items() if not any(part in name for part in apart)}
    ran = acts("run", "-", stdin=document, env=env)
    assert (ran.code, "there is no terminal to ask at" in ran.stderr) == (3, True), ran


# What a process that follows a loop has read, entry by entry, is what the whole log gives, and costs what is new.

MOST_STEPS = 1.1
"""How many times the steps of an early tick a late one may take."""


class _Read:
    """A loop as a process that follows its log has it, and one that reads it whole at any moment."""

    def __init__(self, backend: Backend, run: str) -> None:
        self._settings = backend.settings
        self._run = run
        packed, self._tokens, self.entries = asyncio.run(self._read())
        self.checker = Checker(self._settings, Registry())
        self._definition = unpack_definition(packed, self.checker.trust_of)

    async def _read(self) -> tuple[bytes, Tokens, list[Entry]]:
        terms = LogTerms(published_seconds=60, lease_seconds=30, window=100)
        async with connect_async(self._settings) as redis:
            log = MessageLog(redis, self._settings.key_prefix, terms)
            shared = await log.shared(self._run)
            assert shared.definition is not None
            return shared.definition, shared.tokens, await log.everything(self._run)

    def of_run(self, entries: Sequence[Entry] = ()) -> RunView:
        view = RunView(self._run, self._definition, self._tokens, Limits())
        view.feed(entries)
        return view

    def of_loop(self) -> LoopView:
        limits = loop_limits(self._definition.config, self._settings)
        return LoopView(self._run, self._definition, self._tokens, limits)


def _is_of_global_lane(entry: Entry) -> bool:
    return entry.is_of_lane and entry.tick is None and entry.instance is None


def test_r13_9_a_lane_of_a_loop_is_at_every_entry_the_one_that_the_whole_log_gives(loops: Backend) -> None:
    bad, held = {**_add(9), "a": "no number"}, {"_tool": "echo", "value": 2, "_outputPath": "†state.held"}
    tools, config = {"add": ADD, "echo": {}}, {"approve": ["echo"]}
    answers = (
        asking.answer(_add(0), bad),
        asking.answer(held, _add(1), gate="more"),
        asking.answer(output="†state.held"),
    )
    asked = asking.Asked(loops, *answers, tools=tools, config=config)
    asked.wait_until_asked(1)
    asked.run.amend([_add(5)], add=True)
    asked.run.say("Go on.")
    loops.meeting.open_gate("more")
    asked.run.approve(asking.held_call(asked))
    assert asked.result().output == 2
    asked.run.retry(skip=True, value=3)
    asked.result()
    read = _Read(loops, asked.run.id)
    loop = read.of_loop()
    for entry in read.entries:
        loop.feed([entry])
        afresh = Context.trusted([*loop.messages])
        assert (loop.messages.data(), loop.messages.marks) == (afresh.data(), afresh.marks)
    followed, lane = read.of_run(), [*filter(_is_of_global_lane, read.entries)]
    assert any(entry.undone is not None for entry in lane)
    for count, entry in enumerate(lane, 1):
        followed.feed([entry])
        kept, whole = LaneView(followed, None, None), LaneView(read.of_run(lane[:count]), None, lane[:count])
        assert _known_of(kept) == _known_of(whole)
        assert kept.fold.snapshot() == followed.fold.snapshot()


def _known_of(lane: LaneView) -> Any:
    execution = lane.execution
    decided = [type(decision).__name__ for decision in execution.decide("2026-01-01T00:00:00Z")]
    again = [lane.again(index) for index in range(10)]
    how = lane.seen, lane.was_retried, lane.given_back, lane.progress, lane.waits_for_global, lane.is_finished
    return how, [*lane.by_index], execution.statuses, decided, execution.unended, again, lane.fold.snapshot()


def test_r13_9_a_late_tick_takes_as_many_steps_as_an_early_one(loops: Backend) -> None:
    early, late = 8, 58
    asked = asking.Asked(
        loops, *map(asking.answer, map(_add, range(late + 1))), asking.answer(output=1), config={"ticks": late + 2}
    )
    assert asked.result().output == 1
    read = _Read(loops, asked.run.id)
    view, run, models = read.of_loop(), read.of_run(), KnownModels(loops.settings, Registry())
    steps: dict[int, Counter[str]] = defaultdict(Counter)

    def note(part: str, work: Callable[..., object], *given: object) -> None:
        steps[view.loop.tick.number][part] += _steps(work, *given)

    for entry in read.entries:
        if any(isinstance(event, RequestRecorded) for event in entry.loop):
            note("request", next_request, view, request_of(view, read.checker), models)
        elif entry.tick is not None and entry.message is not None:
            reply = {"answer": entry.message["solution"], "model": "told"}
            note("answer", read_tick, request_of(view, read.checker), reply, view, read.checker)
        note("read", view.feed, [entry])
        if _is_of_global_lane(entry):
            note("read", run.feed, [entry])
        if entry.record is not None:
            note("lane", LaneView, run, None, None)
    assert steps[early].keys() == steps[late].keys() == {"request", "answer", "read", "lane"}
    for part, count in steps[late].items():
        assert count <= MOST_STEPS * steps[early][part] + 20, part


def _steps(work: Callable[..., object], *given: object) -> int:
    """How many functions some work calls, and how many lines it runs."""
    found = 0

    def count(*_: object) -> Any:
        nonlocal found
        found += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work(*given)
    finally:
        sys.settrace(before)
    return found


def _add(tick: int) -> dict[str, object]:
    """A call that adds one."""
    return {"_tool": "add", "a": tick, "b": 1, "_outputPath": f"†state.s{tick}"}
