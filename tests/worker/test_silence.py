"""Connections that are dropped without a reset: something in between takes what is sent, and nothing comes back."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

from acts_celery.broker_config import Settings, load
from acts_celery.worker.outages import SilenceWatch
from acts_celery.worker.store import connections as grouping
from acts_celery.worker.store.connections import GroupedCommands, connect, connect_async
from tests.chaos.proxy import Proxy
from tests.chaos.server import Server
from tests.few import few

from .backend import ACTIVITIES, DEADLINE_SECONDS, MODEL, Backend, Meeting

BACK_SECONDS = 15


def looked_at(backend: Backend) -> None:
    """Wait until the workers there have looked at their connections twice more."""
    begun = pings(backend)
    while pings(backend) < begun + 2:
        pass


def pings(backend: Backend) -> int:
    """How often the server was sent PING."""
    return int(backend.redis.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("silence"))
    running.start()
    yield running
    running.stop()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as network:
        yield network


def settings_at(url: str) -> Settings:
    """Default settings, the server being reached at that address."""
    return load(env_file=None, broker_url=url, redis_url=url, activities=(str(ACTIVITIES),), model=MODEL)


def backends(server: Server, proxy: Proxy, folder: pytest.TempPathFactory) -> tuple[Backend, Backend]:
    """One backend, reached directly, and through the network."""
    meeting = Meeting(f"{server.url.removesuffix('/0')}/1")
    return (
        Backend(settings_at(server.url), meeting, folder.mktemp("near")),
        Backend(settings_at(proxy.url), meeting, folder.mktemp("far")),
    )


def test_an_idle_worker_whose_connections_were_swallowed_is_back_soon(
    server: Server, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory
) -> None:
    near, far = backends(server, proxy, tmp_path_factory)
    calls = [
        {"_tool": "echo", "value": 1, "_outputPath": "†state.a"},
        {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.b"},
    ]
    with far.worker():
        assert near.run(calls).status == "completed"
        looked_at(near)
        proxy.swallow()
        swallowed = time.monotonic()
        assert near.run(calls).data() == {"state": {"a": 1, "b": {"sum": 3}}}
        assert time.monotonic() - swallowed < BACK_SECONDS


@pytest.mark.parametrize("tool", few(["waitHere", "waitFar"], 1))
def test_a_call_at_work_is_not_begun_elsewhere_when_its_workers_connections_are_swallowed(
    server: Server, proxy: Proxy, tmp_path_factory: pytest.TempPathFactory, tool: str
) -> None:
    near, far = backends(server, proxy, tmp_path_factory)
    meeting, gate = near.meeting, f"swallowed-{tool}"
    with far.worker():
        run = near.client.submit(solution={"calls": [{"_tool": tool, "gate": gate, "_outputPath": "†state.a"}]})
        meeting.take(f"at:{gate}")
        looked_at(near)
        with near.worker():
            proxy.swallow()
            threading.Event().wait(2 * near.settings.lease_seconds)  # what is to be seen is that nothing happens
            assert meeting.count(f"at:{gate}") == 0
            meeting.open_gate(gate)
            assert near.wait(run.id).status == "completed"
    assert meeting.count(f"at:{gate}") == 0


def look(watch: SilenceWatch) -> None:
    """Look at all connections of this process; servers of other tests may be gone."""
    with suppress(RedisError):
        watch.look()


def test_connections_that_were_swallowed_are_closed_and_those_of_a_slow_server_are_not(
    server: Server, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    redis = connect(settings_at(proxy.url))
    watch = SilenceWatch()
    assert redis.ping()
    (connection,) = redis.connection_pool._available_connections
    look(watch)
    with server.paused(), caplog.at_level(logging.WARNING):
        look(watch)
    look(watch)
    assert connection.is_connected
    assert "opened again" not in caplog.text, "the server was slow, and the connection is good"
    proxy.swallow()
    raised: list[type[BaseException]] = []

    def ask() -> None:
        try:
            redis.ping()
        except RedisError as error:
            raised.append(type(error))

    asking = threading.Thread(target=ask)
    asking.start()
    with caplog.at_level(logging.WARNING):
        look(watch)
    asking.join(DEADLINE_SECONDS)
    assert raised == [RedisConnectionError], "who waits for an answer learns that the connection has ended"
    assert "opened again" in caplog.text
    assert redis.ping()


@pytest.mark.parametrize("when", ["a connection is opened", "the script is sent again"])
def test_a_script_is_carried_out_though_connections_are_swallowed_that_nobody_looks_at(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Nothing watches here."""
    monkeypatch.setattr(grouping, "SILENT_SECONDS", 0.2)

    class Swallowed(GroupedCommands):
        async def execute(self, *command: Any) -> Any:
            try:
                return await super().execute(*command)
            except NoScriptError:
                proxy.swallow(coming=1)
                raise

    async def ask() -> Any:
        async with connect_async(settings_at(proxy.url)) as redis:
            commands = Swallowed(redis)
            sha = commands.register_script("return ARGV[1]")
            if when == "a connection is opened":
                proxy.swallow(coming=1)
            return await asyncio.wait_for(commands.run_script(sha, ("k",), "done"), DEADLINE_SECONDS)

    connect(settings_at(server.url)).script_flush()
    assert asyncio.run(ask()) == b"done"


def test_connections_are_looked_at_though_they_were_opened_before_the_watch_could_ask_again(
    server: Server, proxy: Proxy
) -> None:
    watch, of_threads = SilenceWatch(), connect(settings_at(proxy.url))

    async def ask() -> Any:
        async with connect_async(settings_at(proxy.url)) as redis:
            commands = GroupedCommands(redis)
            await asyncio.to_thread(look, watch)
            proxy.cut()
            await asyncio.to_thread(look, watch)
            await commands.execute("ECHO", "opened")
            proxy.swallow()
            swallowed = asyncio.ensure_future(commands.execute("ECHO", "answered"))
            await asyncio.to_thread(look, watch)
            return await asyncio.wait_for(swallowed, BACK_SECONDS)

    with of_threads:
        assert asyncio.run(ask()) == b"answered"
