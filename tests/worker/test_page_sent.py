"""What a page says that a delegate, or a model, was sent is what it was sent, whatever is written meanwhile."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.broker_config import EXECUTE_DELEGATE, EmbeddedServer
from acts_celery.protocol.engine.events import CallEnded, Failure, Success
from acts_celery.worker.broker.attempts import CallId, call_name
from acts_celery.worker.broker.messages import Delivery, TaskMessage, delivery_task, lane_task, unpack_delegate_call
from acts_celery.worker.limits import limits_of
from acts_celery.worker.runner.scheduler import Scheduler
from acts_celery.worker.store.log import History
from tests.few import few

from .backend import Backend, status_of
from .pages import Asking
from .test_r13_5_crashes import World

PLACES = [f"state.p{number}" for number in range(4)]
INSTANCES = (None, "①", "②")


def submitted(backend: Backend, gate: str, turn: int) -> Run:
    ask = {"_tool": "ask", "_delegate": "showContextAtGate", "gate": gate, "turn": turn, "_scopes": ["state"]}
    calls = [{**ask, "_outputPath": "†data.seen", "_instance": "①"}]
    context = [{"type": "state", "n": 0}, {"type": "state", "_instance": "①", "own": 1}]
    return backend.client.submit(context, {"calls": calls})


def document(chance: random.Random) -> dict[str, Any]:
    """Delegates, models and plain calls that write where others read, without waiting for each other."""

    def call() -> dict[str, Any]:
        seeing: dict[str, Any] = {
            "_scopes": chance.sample(["state", "data", "text", "error", "†state.p0", "†state.p1"], 2)
        }
        shape: dict[str, Any] = chance.choice(
            [
                {"_tool": "echo", "value": f"†{chance.choice(PLACES)}"},
                {"_tool": "echo", "value": chance.random()},
                {"_tool": "think", "_output": chance.random()},
                {"_tool": "ask", "_delegate": "showContext", "of": f"†{chance.choice(PLACES)}", **seeing},
                {"_tool": "ask", "_delegate": "showContext", "of": f"is it †{{{chance.choice(PLACES)}}}?", **seeing},
                {"_tool": "think", "of": f"†{chance.choice(PLACES)}", **seeing},
            ]
        )
        instance = chance.choice(INSTANCES)
        where = {"_instance": instance} if instance is not None else {}
        return {**shape, "_outputPath": f"†{chance.choice([*PLACES, 'data.seen'])}", **where}

    state = {place.partition(".")[2]: 0 for place in PLACES}
    context = [
        {"type": "state", **state},
        {"type": "text", "message": "Read this."},
        *({"type": "state", "_instance": name, "p0": name} for name in INSTANCES[1:]),
    ]
    return {
        "context": context,
        "solution": {"calls": [call() for _ in range(14)]},
        "tools": {"think": {"properties": {"of": {}}}},
    }


class SentWorld(World):
    """A world of two processes at a time, which drive the same lanes; its delegates answer anything, and fail; messages
    are lost, and their calls carried out again, while the first attempts may still answer.
    """

    def __init__(self, server: EmbeddedServer, seed: int) -> None:
        self.document = document(random.Random(seed))  # type: ignore[misc]  # each has its own
        self.given: dict[tuple[str, int], Any] = {}
        super().__init__(server, seed, deaths=0, disturbs=True)

    async def _process(self, redis: Any) -> None:
        schedulers = [self._scheduler(redis) for _ in range(2)]
        while self.queue:
            count = min(len(self.queue), self.chance.randrange(2, 6))
            tasks = [self.queue.pop(self.chance.randrange(len(self.queue))) for _ in range(count)]
            await asyncio.gather(*(self._do(self.chance.choice(schedulers), task) for task in tasks))

    async def _do(self, scheduler: Scheduler, task: TaskMessage) -> None:
        if task.task != EXECUTE_DELEGATE:
            return await super()._do(scheduler, task)
        call = unpack_delegate_call(task.body, limits_of(self.settings))
        id_, number = call.attempt.id, call.attempt.number
        self.given[id_.name, number] = call
        if self.chance.random() < 0.15:
            self._lose(id_, number)
        is_good = self.chance.random() < 0.8
        result = Success(self.chance.random()) if is_good else Failure("ValueError", "nothing is there")
        self.queue.append(delivery_task(Delivery(call.attempt, result), "instances"))
        return None

    def _lose(self, id_: CallId, number: int) -> None:
        """Count an attempt as lost, as the sweep does, though its result is still to come."""
        entry = self.redis.hget(self.keys.calls, id_.member)
        if entry is None or not entry.startswith(b"sent:%d:" % number):
            return
        self.redis.hset(self.keys.calls, id_.member, b"lost:%d:0:" % number)
        self.redis.zrem(self.keys.leases, id_.member)
        self.queue.append(lane_task(self.run.id, id_.instance, "instances"))

    def _disturb(self) -> None:
        if self.run.status()["status"] == "running":
            instance = self.chance.choice(INSTANCES)
            where = {"_instance": instance} if instance is not None else {}
            self.run.send({"type": "state", f"p{self.chance.randrange(4)}": self.chance.random(), **where})


@pytest.mark.parametrize("seed", few(range(60), 12))
def test_what_is_shown_as_sent_is_what_was_sent_whatever_is_written_meanwhile(
    server: EmbeddedServer, seed: int
) -> None:
    world = SentWorld(server, seed)
    asyncio.run(world.live())
    page, checked = Asking(world, world.run), 0  # type: ignore[arg-type]
    for entry in History(world.redis, world.keys).entries():
        if not isinstance(entry.event, CallEnded):
            assert entry.seen is None
            continue
        name = call_name(entry.event.call, entry.instance)
        call = world.given.get((name, entry.spent.attempts if entry.spent is not None else 1))
        if call is None:  # the end of what is no delegate's costs no byte more
            assert entry.seen is None
            continue
        sent = page.ask("sent", call=name)
        assert sent["exact"] is (call.attempt.seen is not None)
        if sent["exact"]:
            assert json.dumps(sent["messages"]) == json.dumps(list(call.context))
            assert json.dumps(sent["schema"]) == json.dumps(call.schema)
            checked += 1
    assert checked


@pytest.mark.parametrize(("turn", "status"), [(1, "done"), (2, "done"), (3, "failed")])
def test_the_attempt_that_has_ended_is_shown_as_it_was_given_what_it_was(
    backend: Backend, turn: int, status: str
) -> None:
    gate = secrets.token_hex(4)
    run = submitted(backend, gate, turn)
    given = backend.meeting.take(f"given:{gate}")
    run.send({"type": "state", "n": 1})  # both come before the result, and were not given to the first attempt
    run.send({"type": "state", "own": 2, "_instance": "①"})
    backend.meeting.open_gate(gate)
    if turn > 1:
        given = backend.meeting.take(f"given:{gate}")
    assert status_of(backend.wait(run.id), 0, "①") == status
    sent = Asking(backend, run).ask("sent", call="0:①")
    assert sent["exact"]
    assert json.dumps(sent["messages"]) == json.dumps(given)
    assert sent["scopes"]["state"] == ({"n": 0, "own": 1} if turn == 1 else {"n": 1, "own": 2})


def test_a_call_that_was_cancelled_while_it_ran_is_not_shown_as_exactly_what_it_was_given(backend: Backend) -> None:
    gate = secrets.token_hex(4)
    run = submitted(backend, gate, 1)
    backend.meeting.take(f"given:{gate}")
    run.cancel()
    backend.meeting.open_gate(gate)
    sent = Asking(backend, run).ask("sent", call="0:①")
    assert not sent["exact"]
    assert "has not ended" in sent["note"]
