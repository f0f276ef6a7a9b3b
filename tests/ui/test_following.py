"""Followers and connections of the page are bounded."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from redis import Redis

from acts_celery.broker_config import load
from acts_celery.worker.limits import FOLLOWING_PAUSE_SECONDS
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.ui import Page
from acts_celery.worker.ui.access import Reader
from acts_celery.worker.ui.application import Following, Viewer
from acts_celery.worker.ui.server import Connection, WebServer
from tests.chaos.server import Server
from tests.worker.backend import ACTIVITIES, DEADLINE_SECONDS, Backend, Meeting

from .sites import READER, TOKENS, Listener, Site, error_of, served

# Following a run: events as it goes on, for many at once, and what ends them.

ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.one"}
MANY = 50


def gated(backend: Backend, name: str) -> str:
    """A run whose call is at work until a gate opens."""
    call = {"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.one"}
    run = backend.client.submit((), {"calls": [call]}).id
    backend.meeting.take(f"at:{name}")
    return run


def readers(backend: Backend) -> int:
    """How many connections wait for entries of a log."""
    return sum(client["cmd"] == "xread" for client in backend.redis.client_list())


def comes(is_so: Callable[[], bool]) -> bool:
    """Whether something that nobody tells of comes to be."""
    pause, deadline = threading.Event(), time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if is_so():
            return True
        pause.wait(0.05)
    return False


@contextmanager
def backend_apart(folder: Path) -> Iterator[tuple[Backend, Server]]:
    """A server with a port, which can be killed."""
    server = Server(folder / "server")
    server.start()
    try:
        settings = load(env_file=None, broker_url=server.url, activities=(str(ACTIVITIES),), ui_tokens=TOKENS)
        yield Backend(settings, Meeting(f"{server.url.rpartition('/')[0]}/1"), folder), server
    finally:
        server.kill()


def test_a_viewer_sees_a_run_go_on_and_end(backend: Backend, site: Site, name: str) -> None:
    run = gated(backend, name)
    listener = Listener(site, run)
    assert listener.until("changed", status="running")["counts"] == {"running": 1}
    backend.meeting.open_gate(name)
    assert listener.until("changed", status="completed")["counts"] == {"done": 1}
    listener.close()


@pytest.mark.nightly
def test_many_viewers_share_one_reader_which_goes_with_the_last(backend: Backend, site: Site, name: str) -> None:
    before = readers(backend)
    run = gated(backend, name)
    listeners = [Listener(site, run) for _ in range(MANY)]
    for listener in listeners:
        listener.until("changed", status="running")
    assert comes(lambda: readers(backend) == before + 1)
    backend.meeting.open_gate(name)
    for listener in listeners:
        listener.until("changed", status="completed")
    for listener in listeners:
        listener.close()
    assert comes(lambda: readers(backend) == before)


def test_a_viewer_is_told_twice_a_second_at_most(backend: Backend, site: Site) -> None:
    context = [{"type": "state", "_instance": str(number), "n": number} for number in range(300)]
    call = {"_tool": "echo", "value": "†state.n", "_outputPath": "†state.one"}
    calls = [call | {"_instance": str(number)} for number in range(300)]
    run = backend.client.submit(context, {"calls": calls}).id
    began = time.monotonic()
    listener = Listener(site, run)
    listener.until("changed", status="completed")
    assert listener.count <= 2 + (time.monotonic() - began) / FOLLOWING_PAUSE_SECONDS
    listener.close()


def test_a_run_that_is_forgotten_ends_its_viewers(backend: Backend, site: Site) -> None:
    run = backend.run([ECHO])
    listener = Listener(site, run.run)
    listener.until("changed", status="completed")
    backend.client.run(run.run).delete()
    assert listener.until("gone")["error"]["type"] == "RunNotFound"
    assert listener.ended()
    assert error_of(site.get(f"/api/runs/{run.run}/events")) == (404, "RunNotFound")


class _Slow(Reader):
    """Gives whoever is called `late` its answer when others have heard of more."""

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self.has_read, self.goes_on = asyncio.Event(), asyncio.Event()

    async def answer(self, path: str, query: Mapping[str, str]) -> Any:
        found = await super().answer(path, query)
        task = asyncio.current_task()
        if task is not None and task.get_name() == "late":
            self.has_read.set()
            await self.goes_on.wait()
        return found


@asynccontextmanager
async def following(backend: Backend) -> AsyncIterator[tuple[Following, _Slow]]:
    """What follows runs, without a server."""
    reader = _Slow(Page(backend.redis, backend.settings))
    followed = Following(backend.settings, reader)
    try:
        yield followed, reader
    finally:
        await followed.close()
        reader.close()


async def told(viewer: Viewer, status: str) -> bool:
    """Whether a viewer is told of that status."""
    while (found := await viewer.next(DEADLINE_SECONDS)) is not None:
        if json.loads(found.data).get("status") == status:
            return True
    return False


def test_a_viewer_whose_first_look_was_overtaken_is_told_what_the_others_know(backend: Backend, name: str) -> None:
    run = gated(backend, name)

    async def look() -> str:
        async with following(backend) as (followed, reader):
            first = await followed.join(run)
            late = asyncio.create_task(followed.join(run), name="late")
            await reader.has_read.wait()
            backend.meeting.open_gate(name)
            assert await told(first, "completed")
            reader.goes_on.set()
            found = await (await late).next(DEADLINE_SECONDS)
            assert found is not None
            return str(json.loads(found.data)["status"])

    assert asyncio.run(look()) == "completed"


def test_a_run_under_the_id_of_one_that_is_gone_is_followed(backend: Backend, name: str) -> None:
    run = backend.run([ECHO]).run

    async def look() -> bool:
        async with following(backend) as (followed, _):
            stays = await followed.join(run)
            backend.client.run(run).delete()
            while (found := await stays.next(DEADLINE_SECONDS)) is not None and found.event != "gone":
                pass
            call = {"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.one"}
            backend.client.submit((), {"calls": [call]}, id=run)
            viewer = await followed.join(run)
            backend.meeting.open_gate(name)
            return await told(viewer, "completed")

    assert asyncio.run(look())


def test_a_run_of_another_format_is_refused_in_a_sentence(backend: Backend, site: Site) -> None:
    run = backend.run([ECHO]).run
    backend.redis.hset(Keys(backend.settings.key_prefix, run).state, "format", 99)
    for path in (f"/api/runs/{run}", f"/api/runs/{run}/plan", f"/api/runs/{run}/changes", f"/api/runs/{run}/events"):
        assert error_of(site.get(path, READER)) == (409, "OtherFormat")


@pytest.mark.nightly
def test_no_more_follow_than_the_setting_says(backend: Backend, run: str) -> None:
    with served(backend, ACTS_UI_VIEWERS="2") as site:
        first, second = Listener(site, run), Listener(site, run)
        answer = site.get(f"/api/runs/{run}/changes")
        assert error_of(answer) == (503, "TooManyViewers")
        assert int(answer.headers["retry-after"]) > 0
        assert site.get(f"/api/runs/{run}").status_code == 200
        first.close()
        assert comes(lambda: _enters(site, run))
        second.close()


def _enters(site: Site, run: str) -> bool:
    with site.client(READER) as client, client.stream("GET", f"/api/runs/{run}/changes") as response:
        return response.status_code == 200


def test_a_worker_that_is_killed_is_not_the_end_of_what_one_sees(tmp_path: Path, name: str) -> None:
    with ExitStack() as stack:
        own, _ = stack.enter_context(backend_apart(tmp_path))
        site = stack.enter_context(served(own))
        worker = stack.enter_context(own.worker())
        run = own.client.submit((), {"calls": [{"_tool": "hangOnce", "name": name, "_outputPath": "†state.one"}]}).id
        assert own.meeting.take(f"hanging:{name}") == worker.pid
        listener = Listener(site, run)
        listener.until("changed", status="running")
        os.kill(worker.pid, signal.SIGKILL)
        stack.enter_context(own.worker())
        assert listener.until("changed", status="completed")["counts"] == {"done": 1}
        listener.close()


def test_a_log_that_goes_away_is_told_of_and_the_page_recovers(tmp_path: Path) -> None:
    with ExitStack() as stack:
        own, server = stack.enter_context(backend_apart(tmp_path))
        site = stack.enter_context(served(own))
        with own.worker():
            run = own.run([ECHO]).run
        listener = Listener(site, run)
        listener.until("changed", status="completed")
        server.kill()
        assert listener.until("unavailable")["error"]["type"] == "InfrastructureError"
        answer = site.get(f"/api/runs/{run}")
        assert error_of(answer) == (503, "InfrastructureError")
        assert "no answer from the log" in answer.json()["error"]["message"]
        assert site.get("/").status_code == 200
        assert error_of(site.post(f"/api/runs/{run}/fork"))[0] == 503
        server.start()
        assert listener.until("changed")["status"] == "completed"
        assert site.get(f"/api/runs/{run}").json()["status"] == "completed"
        listener.close()


@pytest.mark.nightly
def test_runs_are_read_from_the_replica_and_changed_in_the_log(tmp_path: Path, name: str) -> None:
    with ExitStack() as stack:
        own, log = stack.enter_context(backend_apart(tmp_path))
        _, replica = stack.enter_context(backend_apart(tmp_path / "replica"))
        follower = stack.enter_context(Redis(port=replica.port))
        follower.replicaof("127.0.0.1", str(log.port))
        site = stack.enter_context(served(own, ACTS_UI_REDIS_URL=replica.url))
        stack.enter_context(own.worker())
        run = gated(own, name)
        with Redis(port=log.port) as primary:
            primary.set("any", 1)
            assert primary.wait(1, 1_000 * DEADLINE_SECONDS) == 1
            assert comes(lambda: site.get(f"/api/runs/{run}").status_code == 200)
            listener = Listener(site, run)
            listener.until("changed", status="running")
            for path in ("plan", "calls/0", "instances", "instance", "log", "held", "place?path=state.one"):
                assert site.get(f"/api/runs/{run}/{path}").status_code == 200, path
            assert site.post(f"/api/runs/{run}/pause").json()["status"] == "paused"
            paused = listener.until("changed", status="paused")
            assert paused["log"] == primary.xinfo_stream(Keys("acts", run).log)["last-generated-id"].decode()
        own.meeting.open_gate(name)
        listener.close()


# Clients that leave a request half sent, or do not read: their connections end, and nobody else's.

WAIT_SECONDS = 30
LARGE = b"x" * 8_000_000
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


class Impatient(Connection):
    """Waits for a moment only."""

    request_seconds = 0.2
    read_seconds = 0.2


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """A large response."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(LARGE))]})
    await send({"type": "http.response.body", "body": LARGE})


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """The port of a server with such connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(answer, http=Impatient, ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve([listening]))
        yield listening.getsockname()[1]
        server.should_exit = True
        await task


def in_time(test: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with serving() as port:
            await asyncio.wait_for(test(port), WAIT_SECONDS)

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", b"GET", HEAD, b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * 100])
def test_a_request_that_does_not_come_ends_its_connection(sent: bytes) -> None:
    async def asked(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()

    in_time(asked)


def test_a_second_request_has_as_long_as_the_first() -> None:
    async def asked(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(HEAD + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert len(await reader.readexactly(len(LARGE))) == len(LARGE)
        writer.write(HEAD)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()

    in_time(asked)


def test_a_client_that_does_not_read_is_dropped_and_takes_no_memory() -> None:
    async def asked(port: int) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, HEAD + b"\r\n")
            # A reset is told of without reading.
            poller = select.poll()
            poller.register(client, select.POLLHUP)
            assert await asyncio.to_thread(poller.poll, 1_000 * WAIT_SECONDS)

    in_time(asked)


def test_connections_that_ask_for_nothing_keep_nobody_out() -> None:
    async def asked() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=1_000) as listening:
            server = WebServer(answer, 20, lambda: None)
            task = asyncio.create_task(server._serve([listening]))
            port = listening.getsockname()[1]
            half = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
            for _, writer in half:
                writer.write(HEAD)
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
                writer.write(HEAD + b"Connection: close\r\n\r\n")
                assert (await reader.readline()).split()[1] == b"200"
                assert (await reader.read()).endswith(LARGE)
                writer.close()
            for _, writer in half:
                writer.close()
            server.should_exit = True
            await task

    asyncio.run(asyncio.wait_for(asked(), WAIT_SECONDS))
