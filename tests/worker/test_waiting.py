"""Who waits for a run outlasts a server that fails over, and says so when nobody takes its place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from acts_celery import AsyncClient, Client, InfrastructureError

from .backend import Backend, Meeting

FAILURES = 3


class Failing:
    """In place of `xread`: the first readings fail; with the last of them something else happens."""

    def __init__(self, xread: Any, failures: int, then: Callable[[], None] = lambda: None) -> None:
        self._xread = xread
        self._then = then
        self.left = failures

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self.left:
            self.left -= 1
            if not self.left:
                self._then()
            raise RedisConnectionError("the master has gone")
        return self._xread(*arguments, **options)


@pytest.fixture
def client(backend: Backend) -> Iterator[Client]:
    with Client(backend.settings) as made:
        yield made


def calls(gate: str) -> dict[str, Any]:
    return {"calls": [{"_tool": "waitAtGate", "gate": gate, "_outputPath": "†state.a"}]}


@pytest.mark.nightly
def test_who_waits_outlasts_a_failover(
    backend: Backend, client: Client, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = client.submit(solution=calls("failover"))
    failing = Failing(client._redis.xread, FAILURES, lambda: meeting.open_gate("failover"))
    monkeypatch.setattr(client._redis, "xread", failing)
    with backend.worker():
        assert run.wait(60).status == "completed"
    assert failing.left == 0


def test_who_awaits_outlasts_a_failover(backend: Backend, meeting: Meeting, monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait() -> str:
        async with AsyncClient(backend.settings) as client:
            run = await client.submit(solution=calls("failover-awaited"))
            failing = Failing(client._redis.xread, FAILURES, lambda: meeting.open_gate("failover-awaited"))
            monkeypatch.setattr(client._redis, "xread", failing)
            status = (await run.wait(60)).status
            assert failing.left == 0
            return status

    with backend.worker():
        assert asyncio.run(wait()) == "completed"


def test_who_waits_for_what_was_submitted_here_waits_no_longer_than_said(client: Client) -> None:
    run = client.submit(solution=calls("waits-no-longer-than-said"))
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        run.wait(1.5)
    assert 1.4 < time.monotonic() - began < 2.9
    run.cancel()


def test_what_has_ended_is_not_waited_for_without_time_to_wait(client: Client) -> None:
    run = client.submit(solution=calls("waits-and-is-cancelled"))
    run.cancel()
    assert run.wait(0).status == "cancelled"
    assert run.wait(0).status == "cancelled"
    other = client.submit(solution=calls("waits-without-time"))
    with pytest.raises(TimeoutError):
        other.wait(0)
    other.cancel()


def test_waiting_for_a_server_ends_with_the_time_to_wait(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run = client.submit(solution=calls("gone"))
    monkeypatch.setattr(client._redis, "xread", Failing(client._redis.xread, 10_000))
    began = time.monotonic()
    with pytest.raises((InfrastructureError, TimeoutError)):
        run.wait(0.5)
    assert 0.4 < time.monotonic() - began < 10
    run.cancel()


def test_who_waits_asks_once_how_the_run_stands_before_the_reading_that_blocks(
    backend: Backend, client: Client, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = client.submit(solution=calls("asking"))
    asked: list[str] = []
    execute: Any = client._redis.execute_command

    def noting(*command: Any, **options: Any) -> Any:
        asked.append(str(command[0]))
        if command[0] == "XREAD":
            meeting.open_gate("asking")
        return execute(*command, **options)

    monkeypatch.setattr(client._redis, "execute_command", noting)
    with backend.worker():
        assert run.wait(60).status == "completed"
    assert asked[:2] == ["XREVRANGE", "XREAD"]
