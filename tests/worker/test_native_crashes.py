"""A loop whose tools go as functions outlives the processes that drive it, and asks the same, byte for byte, whoever
goes on with it (SPEC R12.6, R13.5).
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from acts_celery.broker_config import EXECUTE_DELEGATE, EmbeddedServer
from acts_celery.worker.broker.messages import TaskMessage, unpack_delegate_call
from acts_celery.worker.limits import limits_of
from acts_celery.worker.runner.scheduler import Scheduler
from tests.few import few
from tests.models.tool_servers import OpenAIWire

from .test_r13_5_crashes import REQUEST, World, _verify


class NativeWorld(World):
    """A world whose model calls functions."""

    models: ClassVar = {"native": {"model": "openai:m", "api_key": "k", "wire": "tools"}}
    document: ClassVar = {**REQUEST, "config": {"model": "native"}}

    def __init__(self, server: EmbeddedServer, seed: int, *, deaths: int, disturbs: bool = False) -> None:
        super().__init__(server, seed, deaths=deaths, disturbs=disturbs)
        self.sent: dict[int, list[dict[str, Any]]] = {}

    async def _do(self, scheduler: Scheduler, task: TaskMessage) -> None:
        if task.task == EXECUTE_DELEGATE:
            call = unpack_delegate_call(task.body, limits_of(self.settings))
            messages, tick = [dict(message) for message in call.context], call.attempt.id.index
            OpenAIWire.verify({"messages": messages})
            assert call.config["wire"] == "tools"
            assert self.sent.setdefault(tick, messages) == messages, "it is asked again with other words"
            before = self.sent.get(tick - 1, [])
            assert messages[: len(before)] == before
        await super()._do(scheduler, task)


@pytest.mark.parametrize("seed", few(range(12), 4))
def test_a_loop_of_functions_outlives_processes_that_die_anywhere(server: EmbeddedServer, seed: int) -> None:
    world = NativeWorld(server, seed, deaths=seed % 8, disturbs=seed % 3 == 2)
    asyncio.run(world.live())
    _verify(world)
    told = {m["tool_call_id"]: m["content"] for m in world.sent[3] if m["role"] == "tool"}
    assert list(told) == [*(f"t000c000{at}" for at in range(3)), *(f"t001c000{at}" for at in range(3))]
    assert told["t001c0002"].startswith("failed")
