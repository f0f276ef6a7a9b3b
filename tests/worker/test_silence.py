"""Servers that fall silent, or lose a node."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from acts_celery import Client, InfrastructureError
from acts_celery.broker_config import EmbeddedServer, Settings, SettingsError, load
from acts_celery.broker_config.tokens import Identity, TokenLimits
from acts_celery.worker.client.deployments import RunIndex
from acts_celery.worker.errors import OverLimit
from acts_celery.worker.outages import SilenceWatch
from acts_celery.worker.store import connections
from acts_celery.worker.store.connections import GroupedCommands, connect, connect_async, connect_once
from acts_celery.worker.store.keys import Keys
from tests.chaos.proxy import Proxy
from tests.chaos.server import Server
from tests.few import few

from .backend import ACTIVITIES, DEADLINE_SECONDS, MODEL, Backend, Meeting, meeting_url
from .clusters import Cluster, cluster
from .everything import everything_works
from .sentinels import client

# Connections that are dropped without a reset: something in between takes what is sent, and nothing comes back.

BACK_SECONDS = 15


def looked_at(backend: Backend) -> None:
    """Wait until the workers there have looked at their connections twice more."""
    begun = pings(backend)
    while pings(backend) < begun + 2:
        time.sleep(0.02)


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
    while redis.connection_pool._available_connections:
        time.sleep(0.01)  # it has not begun to ask
    with caplog.at_level(logging.WARNING):
        while asking.is_alive():
            look(watch)  # on a busy machine a good server can look slow, once or twice
    assert raised == [RedisConnectionError], "who waits for an answer learns that the connection has ended"
    assert "opened again" in caplog.text
    assert redis.ping()


@pytest.mark.parametrize("when", ["a connection is opened", "the script is sent again"])
def test_a_script_is_carried_out_though_connections_are_swallowed_that_nobody_looks_at(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Nothing watches here."""
    monkeypatch.setattr("acts_celery.worker.limits.REDIS_ANSWER_SECONDS", 0.2)

    class Swallowed(GroupedCommands):
        def execute(self, *command: Any) -> asyncio.Future[Any]:
            asked = super().execute(*command)
            asked.add_done_callback(self._look)
            return asked

        def _look(self, answer: asyncio.Future[Any]) -> None:
            if isinstance(answer.exception(), NoScriptError):
                proxy.swallow(coming=1)

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


# The log in a Redis Cluster (`redis+cluster://`), the broker elsewhere.


@pytest.fixture(params=[False])
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster(tmp_path, has_replicas=request.param) as servers:
        yield servers


@pytest.fixture
def backend(nodes: Cluster, tmp_path: Path) -> Iterator[Backend]:
    """Broker and meeting place are one server; the log is in the cluster."""
    with EmbeddedServer() as elsewhere:
        yield Backend(settings_at_cluster(elsewhere, nodes.url), Meeting(meeting_url(elsewhere)), tmp_path)


def settings_at_cluster(broker: EmbeddedServer, url: str) -> Settings:
    return load(
        env_file=None,
        broker_url=broker.broker_url,
        redis_url=url,
        activities=(str(ACTIVITIES),),
        model=MODEL,
        limit_run_concurrency=7,
    )


def test_everything_that_a_run_does_works_in_a_cluster(backend: Backend) -> None:
    """Runs on all nodes, limits, rates, orders, amendments, forks, explanations, dead letters, the sweep."""
    client = backend.client
    with backend.worker():
        others = [{"type": "input", "_instance": f"paced {number}", "n": number} for number in range(7)]
        paced = client.submit([*others, {"type": "plan", "calls": [{"_tool": "pace", "customer": "clustered"}]}])
        runs = everything_works(backend)
        assert backend.wait(paced.id).status == "completed"
        moments = sorted(backend.meeting.take("paced:clustered") for _ in range(7))
        assert all(sixth - first > 0.8 for first, sixth in zip(moments, moments[5:], strict=False))
    assert len({node_of(backend, run.id) for run in runs}) > 1, "all ten on one of three: once in 20,000 times"
    found = client.erasable_runs(["i3"])
    assert {each.run for each in found.runs} == {run.id for run in runs}
    assert len(list(client.erase_instances(found.runs))) == len(runs)
    assert runs[0].result().instance_status["i3"] == "deleted"


def test_runs_of_an_owner_are_found_and_limited_in_a_cluster(backend: Backend) -> None:
    limits = TokenLimits(runs=2, calls=1_000)
    with Client(backend.settings.acting_for("ann", Identity("ann", limits))) as ann:
        runs = [ann.submit([], {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]}) for _ in range(2)]
        with pytest.raises(OverLimit):
            ann.submit([], {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]})
        owned = RunIndex(ann._redis, backend.settings.key_prefix, owner="ann")
        assert [run.run for run in owned.runs()] == [run.id for run in reversed(runs)]


def node_of(backend: Backend, run: str) -> str:
    """The node that holds a run."""
    redis = backend.client._redis
    node = redis.get_node_from_key(Keys(backend.settings.key_prefix, run).log)  # type: ignore[attr-defined]  # a cluster's
    return str(node.name)


def test_a_killed_workers_call_goes_on_in_a_cluster(backend: Backend) -> None:
    call = {"_tool": "waitAtGate", "gate": "g", "_outputPath": "†state.g"}
    with backend.worker() as process:
        run = backend.client.submit(solution={"calls": [call]})
        backend.meeting.take("at:g")
        process.kill()
        with backend.worker():
            backend.meeting.take("at:g")
            backend.meeting.open_gate("g")
            assert backend.wait(run.id).status == "completed"


@pytest.mark.nightly
@pytest.mark.parametrize("nodes", [True], indirect=True)
def test_a_run_outlives_the_death_of_its_node(backend: Backend, nodes: Cluster) -> None:
    call = {"_tool": "waitAtGate", "gate": "g", "_outputPath": "†state.g"}
    with backend.worker():
        run = backend.client.submit(solution={"calls": [call]})
        backend.meeting.take("at:g")
        nodes.kill_primary_of(Keys(backend.settings.key_prefix, run.id).log)
        backend.meeting.open_gate("g")
        assert backend.wait(run.id).status == "completed"


@pytest.mark.nightly
def test_a_script_whose_answer_is_lost_is_not_sent_again(nodes: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections._OPTIONS, "socket_timeout", 0.5)
    key, settings = "acts:{r}:n", load(redis_url=nodes.url)
    port = nodes.primary_of(key)
    with connections.connect(settings) as redis, client(port) as node:
        count = redis.register_script("return redis.call('INCR', KEYS[1])")
        count(keys=[key])
        node.config_set("lua-time-limit", 600_000)  # or it would say that it is busy
        busy = threading.Thread(target=node.eval, args=("for _ = 1, 3e8 do end", 0), daemon=True)
        busy.start()
        with connect_once(settings, f"redis://127.0.0.1:{port}", timeout_seconds=0.1) as asking:
            while is_answered(asking):
                time.sleep(0.02)
        with pytest.raises(connections.AnswerLost):
            count(keys=[key])
        busy.join()
        assert redis.get(key) in (b"1", b"2")


def is_answered(redis: Redis) -> bool:
    """Whether a server answers at once."""
    try:
        return bool(redis.ping())
    except RedisTimeoutError:
        return False


def test_a_node_that_is_addressed_like_one_server_says_what_to_write(backend: Backend, nodes: Cluster) -> None:
    one = nodes.url.split(";")[0].replace("+cluster", "")
    settings = load(env_file=None, broker_url=backend.settings.require_broker(), redis_url=one)
    with pytest.raises(InfrastructureError, match=r"redis\+cluster://"):
        Client(settings).submit(solution={"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]})


def test_a_client_that_asks_once_waits_as_long_as_it_is_told_in_a_cluster(nodes: Cluster) -> None:
    settings = load(redis_url=nodes.url)
    with connect_once(settings, nodes.url, timeout_seconds=77) as client:
        assert client.ping()
        found = [node.redis_connection for node in client.get_nodes()]
    waits = {node.connection_pool.connection_kwargs["socket_timeout"] for node in found if node is not None}
    assert waits == {77}


def test_a_cluster_is_no_broker() -> None:
    with pytest.raises(SettingsError, match="holds the log"):
        load(env_file=None, broker_url="redis+cluster://a:1")
    with pytest.raises(SettingsError, match="has only one"):
        load(env_file=None, redis_url="redis+cluster://a:1/3")
