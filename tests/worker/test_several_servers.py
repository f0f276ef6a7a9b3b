"""A log on several servers (`ACTS_REDIS_URL=redis://a,redis://b`): each run is whole on one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from acts_celery import Client, Run
from acts_celery.broker_config import EmbeddedServer, Settings, SettingsError, load
from acts_celery.worker.cli.doctor_layers import examined
from acts_celery.worker.errors import InfrastructureError
from acts_celery.worker.recovery.overdue import thresholds_of
from acts_celery.worker.store.connections import GroupedCommands, connect, connect_async
from acts_celery.worker.store.keys import Keys, place, recovery
from acts_celery.worker.store.scripts import server_ms
from acts_celery.worker.store.servers import OtherServers, Servers, position_in, position_of
from acts_celery.worker.store.sweeps import SweepTurns
from acts_celery.worker.ui import Page
from tests.acceptance import forks
from tests.chaos.server import Server

from .backend import ACTIVITIES, MODEL, Backend, Meeting, meeting_url
from .everything import everything_works
from .sentinels import watched_servers

SERVERS: Final = 3
ECHO: Final = {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Three servers that keep what they have acknowledged."""
    with ExitStack() as stack:
        found = []
        for number in range(SERVERS):
            (folder := tmp_path / f"server{number}").mkdir()
            found.append(server := Server(folder))
            stack.callback(server.stop)
            server.start()
        yield found


@pytest.fixture
def backend(servers: list[Server], tmp_path: Path) -> Iterator[Backend]:
    """The log is on the three; broker and meeting place are another server."""
    with EmbeddedServer() as elsewhere:
        yield Backend(settings_at(elsewhere, *servers), Meeting(meeting_url(elsewhere)), tmp_path)


def settings_at(broker: EmbeddedServer, *servers: Server) -> Settings:
    return load(
        env_file=None,
        broker_url=broker.broker_url,
        redis_url=",".join(server.url for server in servers),
        activities=(str(ACTIVITIES),),
        model=MODEL,
        limit_run_concurrency=7,
        lease_seconds=1.5,
        sweep_interval_seconds=0.2,
    )


def position(backend: Backend, run: str) -> int:
    """Which server has a run."""
    log = backend.client._redis
    assert isinstance(log, Servers)
    return position_in(log, run)


# Where keys are.


@given(run=st.text(st.characters(exclude_characters="{}"), min_size=1), servers=st.integers(1, 9))
def test_all_keys_of_a_run_are_on_one_server(run: str, servers: int) -> None:
    assert len({position_of(("GET", key), servers) for key in Keys("acts", run).all}) == 1


@given(run=st.uuids().map(str))
def test_the_servers_share_the_slots_of_a_cluster_in_their_order(run: str) -> None:
    key = Keys("acts", run).state
    assert position_of(("GET", key), 2) == position_of(("GET", key), 16_384) // 8_192


@pytest.mark.parametrize(
    "command",
    [
        ("TIME",),
        ("ZRANGE", "acts:runs", 0, -1),
        ("EVALSHA", "sha", 1, "acts:{slots}", b""),
        ("HGET", b"acts:{dead}:letters", "x"),
        ("XREAD", "COUNT", 1, b"STREAMS", "acts:other", "0"),
    ],
)
def test_what_belongs_to_no_run_is_on_the_first_server(command: tuple[Any, ...]) -> None:
    assert position_of(command, 16_384) == 0


# Runs.


def test_everything_that_a_run_does_works_on_several_servers(backend: Backend) -> None:
    """Runs on all servers, limits, rates, orders, amendments, forks, explanations, dead letters, the sweep."""
    with backend.worker():
        runs = everything_works(backend)
    assert len({position(backend, run.id) for run in runs}) > 1, "all ten on one of three: once in 20,000 times"
    assert {one.run for one in backend.client.runs()} >= {run.id for run in runs}


# Which servers they are.


def test_other_servers_than_those_that_hold_the_log_are_refused(backend: Backend, servers: list[Server]) -> None:
    backend.client.submit(solution=ECHO)
    first, second, third = (server.url for server in servers)
    for named in (first, second, f"{first},{second}", f"{second},{first},{third}", f"{first},{third},{second}"):
        settings = backend.settings.model_copy(update={"redis_url": load(env_file=None, redis_url=named).redis_url})
        with connect(settings) as log, pytest.raises(OtherServers, match=r"is server [123] of the 3.*acts import"):
            log.exists("acts:runs")
        with pytest.raises(InfrastructureError, match="is server") as refused:
            Client(settings).submit(solution=ECHO)
        assert refused.value.code == "infrastructure_error"


def test_a_worker_of_other_servers_does_not_start(backend: Backend, servers: list[Server]) -> None:
    backend.client.submit(solution=ECHO)
    alone = backend.environment(ACTS_REDIS_URL=servers[1].url)
    code, _, said = forks.run(["worker"], env=alone, folder=backend.folder, stdin=b"", timeout_seconds=60)
    assert code == 3
    assert "is server 2 of the 3 of a log: name its servers" in said.decode()


def test_a_server_that_has_lost_its_place_is_refused(backend: Backend, servers: list[Server]) -> None:
    with connect(backend.settings) as log:
        assert log.exists("acts:runs") == 0
    with Redis.from_url(servers[2].url) as third:
        assert third.hget(place("acts"), "position") == b"2"
        third.flushall()
    with (
        connect(backend.settings) as log,
        pytest.raises(OtherServers, match="HDEL acts:place joined:2"),
    ):
        log.exists("acts:runs")
    with Redis.from_url(servers[0].url) as first:
        first.hdel(place("acts"), "joined:2")
    with connect(backend.settings) as log:
        assert log.exists("acts:runs") == 0


def test_a_server_with_runs_of_its_own_takes_no_place(servers: list[Server]) -> None:
    alone = load(env_file=None, redis_url=servers[0].url, activities=(str(ACTIVITIES),))
    Client(alone).submit(solution=ECHO)
    several = load(env_file=None, redis_url=f"{servers[0].url},{servers[1].url}")
    with connect(several) as log, pytest.raises(OtherServers, match="holds the runs"):
        log.exists("acts:x")


def test_commands_of_an_event_loop_go_to_their_servers(backend: Backend) -> None:
    async def ask() -> list[Any]:
        async with connect_async(backend.settings) as redis:
            commands = GroupedCommands(redis)
            keys = [Keys("acts", str(number)).state for number in range(30)]
            await asyncio.gather(*(commands.execute("HSET", key, "a", number) for number, key in enumerate(keys)))
            return list(await asyncio.gather(*(commands.execute("HGET", key, "a") for key in keys)))

    assert asyncio.run(ask()) == [str(number).encode() for number in range(30)]
    with connect(backend.settings) as log, log.pipeline(transaction=False) as pipeline:
        for number in range(30):
            pipeline.hget(Keys("acts", str(number)).state, "a")
        assert pipeline.execute() == [str(number).encode() for number in range(30)]


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("redis://a,redis+cluster://b", "Cluster"),
        ("redis://a,redis://b,redis://a", "twice"),
        ("redis://a,http://b", "begin with"),
    ],
)
def test_a_wrong_list_of_servers_is_refused(url: str, word: str) -> None:
    with pytest.raises(SettingsError, match=word):
        load(env_file=None, redis_url=url)


def test_the_first_of_several_servers_is_the_broker_unless_one_is_named() -> None:
    settings = load(env_file=None, redis_url="redis://:pa,ss@a/0, redis://b/1,")
    assert settings.require_redis() == "redis://:pa,ss@a/0,redis://b/1"
    assert settings.require_broker() == "redis://:pa,ss@a/0"
    assert settings.masked()["redis_url"] == "redis://:***@a/0,redis://b/1"
    with pytest.raises(SettingsError, match="no broker"):
        load(env_file=None, broker_url="redis://a,redis://b")


# A server that is away.


def runs_on_each(backend: Backend, calls: list[dict[str, Any]], count: int = 1) -> list[list[Run]]:
    """So many runs on each server, just submitted."""
    ids = [[id_ for id_ in map(str, range(100)) if position(backend, id_) == server] for server in range(SERVERS)]
    return [[backend.client.submit(solution={"calls": calls}, id=id_) for id_ in some[:count]] for some in ids]


def test_runs_on_the_others_go_on_while_a_server_is_away_and_its_own_when_it_is_back(
    backend: Backend, servers: list[Server]
) -> None:
    """Killed with calls at work, for longer than a lease, and started again on its append-only file."""
    calls: list[dict[str, Any]] = [
        {"_tool": "book", "seat": "s", "gate": "g", "_outputPath": "†state.g"},
        {"_tool": "remoteWait", "gate": "f", "_outputPath": "†state.f"},
        {"_tool": "remoteAdd", "a": "†state.f", "b": 1, "_outputPath": "†state.r"},
    ]
    with backend.worker():
        before = runs_on_each(backend, calls, 2)
        count = sum(map(len, before))
        for _ in range(2 * count):
            backend.meeting.take("booked:s", "at:f")
        servers[1].kill()
        with Client(backend.settings) as fresh:
            later = [
                fresh.submit(solution={"calls": [{"_tool": "wait", "seconds": 3, "_outputPath": "†state.w"}]})
                for _ in range(8)
            ]
            assert {position(backend, run.id) for run in later} == {0, 2}, "new runs go where there is a server"
            for run in later:
                assert backend.wait(run.id).status == "completed"
            with pytest.raises(InfrastructureError, match=r"server 2 of 3 of the log, redis://.* does not answer"):
                fresh.run(before[1][0].id).status()
            with pytest.raises(InfrastructureError, match="server 2 of 3"):
                list(fresh.runs())
            told = list[str]()
            listed = {run.run for run in fresh.runs(left_out=told.append)}
            assert listed == {run.id for run in (*later, *before[0], *before[2])}
            assert [why.partition(", ")[0] for why in told] == ["server 2 of 3 of the log"]
            with connect(backend.settings) as log:
                answer = Page(log, backend.settings).answer("runs")
            assert {run["run"] for run in answer["runs"]} == listed
            assert answer["away"] == told
        for _ in range(count):
            backend.meeting.open_gate("g")
            backend.meeting.open_gate("f")
        for run in (*before[0], *before[2]):
            assert backend.wait(run.id).status == "completed"
        servers[1].start()
        for run in before[1]:
            assert backend.wait(run.id).status == "completed"
    assert backend.meeting.count("booked:s") == backend.meeting.count("at:f") == 0, "no call has begun twice"


def test_lost_calls_go_on_elsewhere_while_a_server_is_away(backend: Backend, servers: list[Server]) -> None:
    with backend.worker() as worker:
        before = runs_on_each(backend, [{"_tool": "waitAtGate", "gate": "g", "_outputPath": "†state.g"}])
        for _ in range(SERVERS):
            backend.meeting.take("at:g")
        servers[2].kill()
        worker.kill()
    for _ in range(SERVERS):
        backend.meeting.open_gate("g")
    with backend.worker():
        for some in before[:2]:
            assert backend.wait(some[0].id).status == "completed"
        servers[2].start()
        assert backend.wait(before[2][0].id).status == "completed"


def test_workers_wait_for_the_first_server_and_go_on_when_it_is_back(backend: Backend, servers: list[Server]) -> None:
    with backend.worker():
        before = runs_on_each(backend, [{"_tool": "book", "seat": "s", "gate": "g", "_outputPath": "†state.g"}])
        for _ in range(SERVERS):
            backend.meeting.take("booked:s")
        servers[0].kill()
        with Client(backend.settings) as fresh, pytest.raises(InfrastructureError, match="server 1 of 3"):
            fresh.submit(solution=ECHO)
        for _ in range(SERVERS):
            backend.meeting.open_gate("g")
        servers[0].start()
        for [run] in before:
            assert backend.wait(run.id).status == "completed"
    assert backend.meeting.count("booked:s") == 0


def test_the_doctor_names_each_server_with_its_state(backend: Backend, servers: list[Server]) -> None:
    servers[1].kill()
    log = examined("log", backend.settings)
    assert all(server.url in log.detail for server in servers)
    assert log.remedies == [f"start {servers[1].url}, or correct ACTS_REDIS_URL"]


def test_nothing_is_declared_lost_on_a_server_that_was_away_until_heartbeats_were_heard(
    backend: Backend, servers: list[Server]
) -> None:
    with connect(backend.settings) as log:
        turns, gap = SweepTurns(log, "acts", 1), {"gap_ms": 60_000, "pause_ms": 90_000, "since_ms": 0}
        assert list(turns.paused(**gap)) == []
        servers[1].kill()
        assert list(turns.paused(**gap)) == []
        log.hset(recovery("acts", 1), "heard", server_ms(log) - 60_001)
        servers[1].start()
        while not (paused := list(turns.paused(**gap))):
            backend.meeting.redis.wait(1, 50)  # a server that was away is asked again after a moment
        assert paused == [1]
        thresholds = replace(thresholds_of(backend.settings), paused=paused)
        for id_ in map(str, range(20)):
            assert thresholds.is_suspended(log, id_) == (position(backend, id_) == 1)


@pytest.mark.nightly
def test_sentinels_can_be_among_the_servers(servers: list[Server], tmp_path: Path) -> None:
    with watched_servers(tmp_path) as watched:
        settings = load(env_file=None, redis_url=f"{watched.url},{servers[0].url}")
        keys = [Keys("acts", str(number)).state for number in range(20)]
        with connect(settings) as log:
            for key in keys:
                log.set(key, key)
            assert [log.get(key) for key in keys] == [key.encode() for key in keys]
        with Redis(port=watched.master_port) as master, Redis.from_url(servers[0].url) as plain:
            assert master.hget(place("acts"), "position") == b"0"
            assert plain.hget(place("acts"), "position") == b"1"
            assert master.exists(*keys) + plain.exists(*keys) == len(keys)
