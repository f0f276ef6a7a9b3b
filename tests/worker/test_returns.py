"""While an upgrade is rolled out workers of two versions take from the same queues: who does not read a run, or a
message, gives it back.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from acts_celery import OtherFormat
from acts_celery.worker.broker.messages import MESSAGE_FORMAT, MESSAGES, RETURNED, TaskMessage
from acts_celery.worker.runner.scheduler import Returns

from .backend import ACTIVITIES, DEADLINE_SECONDS, Backend, heard

INSTANCES = 60
BLIND = """
from acts_celery.worker.recovery import overdue
from acts_celery.worker.storage import formats

from acts_celery.worker.storage import log

formats.READ = log.READ = overdue.READ = (99,)
"""
"""What a worker loads that is to read none of our runs, as one of another version does."""


@pytest.fixture
def blind(own: Backend, tmp_path: Path) -> str:
    """The activities of a worker that does not read our runs."""
    (tmp_path / "blind.py").write_text(BLIND)
    return f"{ACTIVITIES},{tmp_path / 'blind.py'}"


def taken(backend: Backend, queue: str) -> Any:
    """The message that was published first."""
    raw: Any = backend.redis.rpop(queue)
    return json.loads(raw)


def test_what_one_worker_does_not_read_another_carries_out_once(own: Backend, blind: str) -> None:
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(INSTANCES)]
    calls = [
        {"_tool": "rest", "_instance": "*", "mark": "†state.n", "_outputPath": "†state.a"},
        {"_tool": "remoteAdd", "_instance": "*", "a": "†state.a", "b": 1, "_outputPath": "†state.b"},
        {"_tool": "remoteAdd", "_instance": "*", "a": "†state.b.sum", "b": 1, "_outputPath": "†state.c"},
    ]
    with own.worker(ACTS_ACTIVITIES=blind), own.worker(ACTS_ACTIVITIES=blind), own.worker():
        run = own.client.submit(context, {"calls": calls})
        result = own.wait(run.id)
    assert {result.data(f"i{n}")["state"]["c"]["sum"] - n for n in range(INSTANCES)} == {2}
    assert {call.timing.attempts for call in result.calls if call.timing is not None} == {1}
    assert "left to other workers" in own.log.read_text()


def test_a_message_of_another_format_goes_back_and_says_so_still(own: Backend) -> None:
    run = own.client.submit(solution={"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]})
    queue = own.queue("instances")
    message = taken(own, queue)
    message["headers"][MESSAGE_FORMAT] = MESSAGES + 1
    own.redis.lpush(queue, json.dumps(message))
    with own.worker() as worker:
        heard(
            own,
            f"left to other workers: the message has format {MESSAGES + 1} and this version reads {MESSAGES}",
        )
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE_SECONDS) == 0
    returned = taken(own, queue)
    assert returned["headers"][MESSAGE_FORMAT] == MESSAGES + 1
    assert returned["headers"][RETURNED] >= 1
    assert returned["body"] == message["body"]
    del returned["headers"][MESSAGE_FORMAT]
    own.redis.lpush(queue, json.dumps(returned))
    with own.worker():
        assert own.wait(run.id).data()["state"] == {"a": 1}


def test_what_no_worker_reads_is_dropped_after_a_while() -> None:
    given = list[Sequence[TaskMessage]]()

    async def publish(tasks: Sequence[TaskMessage]) -> None:
        given.append(tasks)

    async def give_back(times: int) -> None:
        back = Returns(publish)
        back.leave()
        back.give_back(TaskMessage("acts.deliver", "instances", b"", "-", returned=times), OtherFormat("of tomorrow"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(give_back(79))
    assert [task.returned for (task,) in given] == [80]
    asyncio.run(give_back(80))
    assert len(given) == 1
