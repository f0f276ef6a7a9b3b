"""Bounds that keep a worker alive, whatever a submission asks or lies in a queue: measured by memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import DELIVER, EmbeddedServer
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .broker_messages import message, packed, task_body

MIB = 1024 * 1024
READS = 200
ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
NESTED = b"\xdd" + struct.pack(">I", 16 * MIB) + b"\x90" * (16 * MIB)
"""16 MiB that msgpack makes 1.2 GB of."""


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path)


def most_memory(pid: int) -> int:
    """The most that a process had in memory so far, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


@pytest.mark.parametrize(
    "extra",
    [{}, {"_activity": "echoFar"}, {"_delegate": "showContext"}, {"_outputPath": None}],
    ids=["in line", "a queue of its own", "a delegate", "fire and forget"],
)
def test_a_call_that_reads_a_large_value_two_hundred_times_fails_and_costs_little(
    backend: Backend, extra: dict[str, Any]
) -> None:
    big: list[Any] = [[[]] * 100_000, "x" * 800_000]
    names = [f"p{number}" for number in range(READS)]
    call = {
        "_tool": "many",
        "_activity": "note",
        "_outputPath": "†state.a",
        **dict.fromkeys(names, "†data.big"),
        **extra,
    }
    call = {key: value for key, value in call.items() if value is not None}
    tools = {"many": {"type": "object", "properties": {"_activity": {}, "_delegate": {}}}}
    if "_delegate" in extra:
        del call["_activity"]
    with backend.worker() as worker:
        assert backend.run([ECHO]).status == "completed"
        before = most_memory(worker.pid)
        result = backend.run([call], [{"type": "data", "data": {"big": big}}], tools=tools)
        (ended,) = result.calls
        assert (ended.status, (ended.error or {}).get("type")) == ("failed", "TooLarge")
        assert most_memory(worker.pid) - before < 300 * MIB
    info: Any = backend.redis.info("memory")
    assert info["used_memory_peak"] < 50 * MIB


@pytest.mark.parametrize("place", ["the body", "the argument"])
def test_a_message_of_many_lists_is_refused_before_it_is_unpacked(backend: Backend, place: str) -> None:
    content = message(NESTED if place == "the body" else task_body(NESTED), task=DELIVER)
    with backend.worker() as worker:
        assert backend.run([ECHO]).status == "completed"
        before = most_memory(worker.pid)
        backend.redis.lpush("instances", content)
        assert backend.run([ECHO]).status == "completed"
        assert most_memory(worker.pid) - before < 300 * MIB
    assert "refused" in backend.log.read_text(errors="replace")


def test_a_result_of_many_lists_is_refused(backend: Backend) -> None:
    id_ = {"run": "none", "instance": None, "index": 0}
    result = packed({"attempt": {"id": id_, "number": 1}, "result": {"value": [[]] * 300_000}})
    with backend.worker():
        backend.redis.lpush("instances", message(task_body(result), task=DELIVER))
        assert backend.run([ECHO]).status == "completed"
    assert "more than 250000 objects and lists" in backend.log.read_text(errors="replace")
