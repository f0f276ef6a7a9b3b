"""Workers that die, hang or leave, and what a broker loses."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from acts_celery import Run
from acts_celery.broker_config import EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EmbeddedServer, Settings, load
from acts_celery.protocol import Limits
from acts_celery.worker.broker.attempts import Attempt, CallId
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import ActivityCall, AttemptRef, Report, TaskMessage, lane_task, pack_message
from acts_celery.worker.broker.transport import ReportQueue
from acts_celery.worker.cli.doctor_layers import examine_backend
from acts_celery.worker.recovery.heartbeats import HeartbeatWriter, Presence
from acts_celery.worker.recovery.sidecar import LoopWatchdog
from acts_celery.worker.registry.activities import Policy
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.runner.calls import Threads, invoke
from acts_celery.worker.store.connections import connect
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.living import Processes
from tests.chaos.proxy import Proxy
from tests.chaos.server import Server
from tests.few import few

from .backend import (
    ACTIVITIES,
    DEADLINE_SECONDS,
    MODEL,
    Backend,
    Meeting,
    ends,
    heard,
    meeting_url,
    settings_apart,
    settings_for,
    status_of,
)

# Workers that die, hang or leave.

# Workers die, hang and leave: what was at work there goes on elsewhere, soon, and is counted rightly.

RECOVERY_SECONDS = 10


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A server of our own, so that nobody else serves these queues; every setting at its default."""
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("liveness"))


@pytest.fixture(scope="module")
def hasty(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """The same, with short leases."""
    settings = backend.settings.model_copy(update={"lease_seconds": 1.5, "sweep_interval_seconds": 0.2})
    return Backend(settings, backend.meeting, tmp_path_factory.mktemp("hasty"))


def hanging(name: str, tool: str = "hangOnce", **meta: Any) -> dict[str, Any]:
    return {"_tool": tool, "name": name, "_outputPath": f"†state.{name}", **meta}


def error_of(result: Any, index: int = 0) -> dict[str, Any]:
    error = result.calls[index].error
    assert error is not None
    return dict(error)


def test_whatever_a_killed_worker_had_at_work_is_at_work_again_within_ten_seconds(backend: Backend) -> None:
    meeting = backend.meeting
    calls = [
        hanging("inline"),
        hanging("far", "hangOnceFar"),
        hanging("elsewhere", "ask", _delegate="hangOnceElsewhere"),
    ]
    with backend.worker() as victim:
        run = backend.client.submit(solution={"calls": calls})
        for call in calls:
            assert meeting.take(f"hanging:{call['name']}") == victim.pid
        with backend.worker() as heir:
            os.kill(victim.pid, signal.SIGKILL)
            killed = time.monotonic()
            for call in calls:
                assert meeting.take(f"hanging:{call['name']}") == heir.pid
            assert time.monotonic() - killed < RECOVERY_SECONDS
            result = backend.wait(run.id)
    assert result.data() == {"state": {"inline": 2, "far": 2, "elsewhere": 2}}


def test_a_call_whose_worker_died_is_not_begun_again_when_the_time_of_all_its_attempts_is_over(hasty: Backend) -> None:
    with hasty.worker() as victim:
        run = hasty.client.submit(solution={"calls": [hanging("late", "dieForATime")]})
        victim.wait()
    with hasty.worker():
        error = error_of(hasty.wait(run.id))
    assert (error["type"], hasty.meeting.attempts("late")) == ("TimeoutError", 1)
    assert "(total_timeout_seconds=0.5)" in error["message"]


def test_one_process_of_a_pool_that_is_killed_is_made_up_for_as_soon(backend: Backend) -> None:
    meeting = backend.meeting
    calls = [hanging("pool-inline"), hanging("pool-far", "hangOnceFar")]
    with backend.worker("--pool", "prefork", "--concurrency", "3"):
        run = backend.client.submit(solution={"calls": calls})
        victims = {meeting.take(f"hanging:{call['name']}") for call in calls}
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        heirs = {meeting.take(f"hanging:{call['name']}") for call in calls}
        assert time.monotonic() - killed < RECOVERY_SECONDS
        assert not heirs & victims
        result = backend.wait(run.id)
    assert result.data() == {"state": {"pool-inline": 2, "pool-far": 2}}


def test_a_remote_call_that_takes_longer_than_its_lease_is_not_run_twice(hasty: Backend) -> None:
    meeting = hasty.meeting
    with hasty.worker():
        run = hasty.client.submit(solution={"calls": [{"_tool": "waitFar", "gate": "far", "_outputPath": "†state.a"}]})
        meeting.take("at:far")
        leases = Keys("acts", run.id).leases
        hasty.redis.config_set("notify-keyspace-events", "Kz")
        with hasty.redis.pubsub() as writes:  # type: ignore[no-untyped-call]  # redis is typed but here
            writes.subscribe(f"__keyspace@0__:{leases}")
            seen = [writes.get_message(timeout=20) for _ in range(6)]
        hasty.redis.config_set("notify-keyspace-events", "")
        assert all(seen)
        assert str(hasty.redis.hget(Keys("acts", run.id).calls, "\x1f0")).startswith("b'running:1:0:")
        meeting.open_gate("far")
        assert hasty.wait(run.id).status == "completed"
    assert meeting.count("at:far") == 0


def test_a_remote_call_that_kills_its_worker_at_once_is_given_up_and_harms_no_other(hasty: Backend) -> None:
    settings = hasty.settings.model_copy(update={"limit_attempts": 2})
    poisoned = Backend(settings, hasty.meeting, hasty.folder)
    with poisoned.worker("--queues", "instances"):
        run = poisoned.client.submit(
            solution={"calls": [{"_tool": "killFar", "name": "poison", "_outputPath": "†state.a"}]}
        )
        for attempt in (1, 1, 2):
            with poisoned.worker("--queues", "far") as victim:
                assert poisoned.meeting.take("poison") == attempt
                assert victim.wait() == -signal.SIGKILL
        result = poisoned.wait(run.id)
    assert (result.status, error_of(result)["type"]) == ("failed", "WorkerLost")
    assert poisoned.meeting.count("poison") == 0


def test_a_message_that_the_broker_delivers_again_is_dropped(hasty: Backend) -> None:
    meeting = hasty.meeting
    with hasty.worker("--queues", "instances"):
        run = hasty.client.submit(
            solution={"calls": [{"_tool": "waitFar", "gate": "again", "_outputPath": "†state.a"}]}
        )
        sent = hasty.redis.blmove("far", "far", 20, "RIGHT", "LEFT")
        with hasty.worker("--queues", "far") as victim:
            meeting.take("at:again")
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
        hasty.redis.rpush("far", again(sent))
        meeting.open_gate("again")
        with hasty.worker("--queues", "far"):
            assert hasty.wait(run.id).status == "completed"
    meeting.take("at:again")
    assert meeting.count("at:again") == 0, "once before it died, once sent again by the sweep"


def again(message: Any) -> bytes:
    """A message as it lies in a queue when the broker delivers it a second time."""
    found = json.loads(message)
    found["properties"]["delivery_info"]["redelivered"] = True
    return json.dumps(found).encode()


def test_the_wait_for_another_attempt_holds_no_worker_and_survives_it(backend: Backend) -> None:
    meeting = backend.meeting
    call = {"_tool": "failOnceThenLate", "name": "late", "_instance": "①", "_outputPath": "†state.a"}
    with backend.worker() as first:
        run = backend.client.submit([{"type": "state", "_instance": "①"}], {"calls": [call]})
        assert meeting.take("late") == [1, f"{run.id}:0:①", first.pid]
        first.terminate()
        assert first.wait(5) == 0
    assert run.status()["calls"] == {"waiting": 1}
    with backend.worker() as second:
        result = backend.wait(run.id)
        assert meeting.take("late") == [2, f"{run.id}:0:①", second.pid]
    assert result.data("①")["state"] == {"a": [run.id, "①", 0]}


def test_remote_retries_are_granted_by_the_policy_of_the_activity(backend: Backend) -> None:
    with backend.worker():
        result = backend.run([{"_tool": "failFarTwice", "name": "far-thrice", "_outputPath": "†state.a"}])
    assert result.data() == {"state": {"a": 3}}
    assert backend.meeting.attempts("far-thrice") == 3


def test_who_leaves_politely_loses_nothing_and_no_attempt_is_counted(backend: Backend) -> None:
    meeting = backend.meeting
    calls = [{"_tool": "waitFar", "gate": f"polite{n}", "_outputPath": f"†state.p{n}"} for n in range(2)]
    with backend.worker("--queues", "instances"), backend.worker("--queues", "far", "-c", "1") as leaving:
        run = backend.client.submit(solution={"calls": calls})
        first = meeting.take("at:polite0", "at:polite1")
        leaving.terminate()
        meeting.open_gate("polite0")
        meeting.open_gate("polite1")
        assert leaving.wait(10) == 0
        with backend.worker("--queues", "far"):
            assert backend.wait(run.id).status == "completed"
    assert first
    assert meeting.count("at:polite0") + meeting.count("at:polite1") == 1


def test_plain_functions_that_hang_take_no_other_calls_place_and_hold_up_no_shutdown(backend: Backend) -> None:
    calls = [{"_tool": "blockAtGate", "gate": "shut", "_outputPath": f"†state.b{n}"} for n in range(3)]
    with backend.worker(ACTS_CONCURRENCY="2") as worker:
        result = backend.run(calls)
        assert [error_of(result, n)["type"] for n in range(3)] == ["TimeoutError"] * 3
        assert backend.run([{"_tool": "echoPlain", "value": 1, "_outputPath": "†state.a"}]).status == "completed"
        worker.terminate()
        assert worker.wait(10) == 0, "though the functions are still waiting"


KEEPING = {
    "in line": ({"_tool": "keepGil"}, "leases", 2),
    "on its own queue": ({"_tool": "keepGilFar"}, "leases", 14),
    "by a delegate": ({"_tool": "ask", "_delegate": "keepGilElsewhere"}, "leases", 14),
    "in the background": ({"_tool": "keepGil"}, "outbox_due", 14),
}
"""A call, the key in which it is renewed, and how often that is in more than a lease."""


class Kept:
    """A named pipe that holds up, with the interpreter's lock, who reads from it."""

    def __init__(self, pipe: Path) -> None:
        self.pipe = pipe
        os.mkfifo(pipe)

    @contextmanager
    def held(self) -> Iterator[None]:
        """The lock is held while the block lasts, by whoever reads."""
        with self.pipe.open("wb") as writing:
            yield
            writing.write(b".")


def renewals(backend: Backend, key: str, number: int) -> None:
    """Wait until a sorted set was written so often."""
    backend.redis.config_set("notify-keyspace-events", "Kz")
    with backend.redis.pubsub() as writes:  # type: ignore[no-untyped-call]  # redis is typed but here
        writes.subscribe(f"__keyspace@0__:{key}")
        assert all(writes.get_message(timeout=30) for _ in range(number + 1))
    backend.redis.config_set("notify-keyspace-events", "")


@pytest.mark.parametrize("where", few(KEEPING, 1))
def test_a_call_that_keeps_the_interpreters_lock_is_begun_once_and_so_is_what_waits_behind_it(
    backend: Backend, where: str, tmp_path: Path
) -> None:
    meeting, name = backend.meeting, where.replace(" ", "-")
    meta, due, renewed = KEEPING[where]
    kept = Kept(tmp_path / "pipe")
    call = {**meta, "name": name, "pipe": str(kept.pipe)}
    if where != "in the background":
        call["_outputPath"] = "†state.kept"
    beside = [{"_tool": "waitFar", "gate": f"{name}-{n}", "_outputPath": f"†state.b{n}"} for n in range(6)]
    for one in beside:
        meeting.open_gate(one["gate"])
    with backend.worker(), backend.worker():
        run = backend.client.submit(solution={"calls": [call]})
        holder = meeting.take(f"keeping:{name}")
        with kept.held():
            others = backend.client.submit(solution={"calls": beside})
            heard(backend, f"process {holder}, has not reported")
            renewals(backend, getattr(Keys("acts", run.id), due), renewed)
            if due == "leases":
                (waiting,) = run.status()["waiting_for"]
                assert (waiting["call"], waiting["for"]) == ("0", "worker")
                assert f"process {holder}" in waiting["reason"]
            if where == "in line":
                told = [layer.detail for layer in examine_backend(backend.settings) if layer.layer == "runs"]
                assert f"process {holder}" in told[0]
        assert meeting.take(f"kept:{name}") == holder
        assert backend.wait(run.id).status == "completed"
        assert backend.wait(others.id).status == "completed"
    assert meeting.count(f"keeping:{name}") == 0, "it has begun once"
    assert [meeting.count(f"at:{one['gate']}") for one in beside] == [1] * 6


def test_a_worker_that_is_killed_while_its_lock_is_kept_is_made_up_for_and_its_sidecar_ends(
    backend: Backend, tmp_path: Path
) -> None:
    meeting, kept = backend.meeting, Kept(tmp_path / "pipe")
    call = {"_tool": "keepGil", "name": "killed", "pipe": str(kept.pipe), "_outputPath": "†state.a"}
    with backend.worker() as victim, backend.worker("--queues", "delegates"):
        run = backend.client.submit(solution={"calls": [call]})
        assert meeting.take("keeping:killed") == victim.pid
        (sidecar,) = sidecars_of(victim.pid)
        with kept.pipe.open("wb"):
            heard(backend, f"process {victim.pid}, has not reported")
            os.kill(victim.pid, signal.SIGKILL)
        with backend.worker() as heir:
            assert ends(sidecar)
            killed = time.monotonic()
            assert meeting.take("keeping:killed") == heir.pid
            assert time.monotonic() - killed < RECOVERY_SECONDS
            with kept.held():
                pass
            assert backend.wait(run.id).data() == {"state": {"a": 2}}


def test_a_worker_that_is_stopped_does_not_count_as_alive_and_begins_nothing_twice_when_it_goes_on(
    hasty: Backend,
) -> None:
    meeting = hasty.meeting
    calls = [{"_tool": "waitFar", "gate": "stopped", "_outputPath": "†state.a"}, hanging("b", "hangOnceFar")]
    with hasty.worker("--queues", "instances"), hasty.worker("--queues", "far") as stopped:
        run = hasty.client.submit(solution={"calls": calls[1:]})
        assert meeting.take("hanging:b") == stopped.pid
        os.kill(stopped.pid, signal.SIGSTOP)
        late = hasty.client.submit(solution={"calls": calls[:1]})
        with hasty.worker("--queues", "far") as heir:
            assert meeting.take("hanging:b") == heir.pid
            assert meeting.take("at:stopped") == heir.pid
            os.kill(stopped.pid, signal.SIGCONT)
            meeting.open_gate("stopped")
            assert hasty.wait(late.id).status == "completed"
            assert hasty.wait(run.id).data() == {"state": {"b": 2}}
    assert meeting.count("at:stopped") == 0


def test_a_sidecar_that_is_killed_is_replaced(backend: Backend, tmp_path: Path) -> None:
    with backend.worker() as worker:
        assert backend.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]).status == "completed"
        (sidecar,) = sidecars_of(worker.pid)
        os.kill(sidecar, signal.SIGKILL)
        assert ends(sidecar)
        heard(backend, "has ended with -9")
        while not (replaced := sidecars_of(worker.pid)):
            time.sleep(0.02)
    assert all(ends(pid) for pid in replaced)


def sidecars_of(pid: int) -> list[int]:
    """The sidecars among the children of a process."""
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [child for child in children if b"sidecar_process.py" in Path(f"/proc/{child}/cmdline").read_bytes()]


# Who speaks for the calls of a loop that a coroutine blocks.

BLOCKING, BESIDE = Attempt(CallId("r", "①", 0)), Attempt(CallId("r", "②", 0))


class Loop:
    """An event loop in a thread, and a call on it that blocks it until it is let go."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._begun, self._let_go = threading.Event(), threading.Event()

    async def _hold_up(self) -> None:
        self._begun.set()
        self._let_go.wait(DEADLINE_SECONDS)

    def block(self) -> None:
        working = invoke(
            self._hold_up, BLOCKING, name="holdUp", is_async=True, policy=Policy(), limits=Limits(), threads=Threads(1)
        )
        asyncio.run_coroutine_threadsafe(working, self.loop)
        assert self._begun.wait(DEADLINE_SECONDS)

    def let_go(self) -> None:
        self._let_go.set()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(DEADLINE_SECONDS)

    def end(self) -> None:
        self._let_go.set()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.end()


def test_a_loop_that_is_blocked_is_at_work_on_what_blocks_it_and_on_nothing_else(
    server: EmbeddedServer, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_apart(server, "watchdog")
    redis = connect(settings)
    watchdog = LoopWatchdog(loop.loop, most_silent_seconds=0)
    presence = Presence(redis, prefix="watchdog", lease_seconds=3600, on_cancelled=lambda run: None, watchdog=watchdog)
    presence.enter("r", "of ①")
    presence.enter("r", "of ②")

    def held() -> set[str]:
        """What counts as at work, now that the loop was asked before."""
        presence.beat()
        return set(Processes(redis, "watchdog").read(60_000).holders["r"])

    loop.block()
    presence.beat()
    with caplog.at_level(logging.WARNING):
        assert held() == {BLOCKING.id.member}
    assert [record.getMessage()[:16] for record in caplog.records] == ["holdUp, call r:0"]
    assert watchdog.is_blocked, "so the process takes no more tasks"
    loop.let_go()
    assert not watchdog.is_blocked
    assert held() == {"of ①", "of ②"}


def test_a_loop_that_is_blocked_reports_what_blocks_it_and_no_other(server: EmbeddedServer, loop: Loop) -> None:
    settings = settings_apart(server, "watchdog-reports")
    reports = ReportQueue(make_client_application(settings), settings)
    watchdog = LoopWatchdog(loop.loop, most_silent_seconds=0)
    heartbeat = HeartbeatWriter(reports, interval_seconds=3600, watchdog=watchdog)
    loop.block()

    async def work() -> None:
        async with heartbeat.at_work(BLOCKING), heartbeat.at_work(BESIDE):
            for _ in range(2):
                heartbeat.beat()

    asyncio.run(work())
    first, second = chain(*reports.pages())
    assert set(first.begun) == {AttemptRef.of(BLOCKING), AttemptRef.of(BESIDE)}
    assert second == Report(begun=(AttemptRef.of(BLOCKING),))


# Workers that are told to end: what has begun may end, what has not goes on elsewhere, nothing is done twice.

MOST_PAUSE_MS = 5_000


def chain_stopping(gate: str, length: int) -> list[dict[str, Any]]:
    """A call that waits at a gate, and calls of which each reads the one before."""
    first = {"_tool": "waitAtGate", "gate": gate, "value": 0, "_outputPath": "†state.s0"}
    rest = ({"_tool": "add", "a": f"†state.s{n}", "_outputPath": f"†state.s{n + 1}"} for n in range(length))
    return [first, *rest]


def attempts(run: Run) -> set[int | None]:
    """How often each call was begun."""
    return {
        call.timing.attempts for call in run.wait(timeout_seconds=DEADLINE_SECONDS).calls if call.timing is not None
    }


@pytest.mark.parametrize("pool", ["coroutines", "prefork"])
def test_a_worker_that_is_to_end_lets_a_call_end_and_leaves_those_behind_it_to_others(own: Backend, pool: str) -> None:
    with own.worker("--pool", pool, "--concurrency", "1") as first:  # of several processes another one may say it first
        run = own.client.submit(solution={"calls": chain_stopping(f"leaving-{pool}", 3)})
        own.meeting.take(f"at:leaving-{pool}")
        first.send_signal(signal.SIGTERM)
        heard(own, "no more calls begin here; running calls have")
        own.meeting.open_gate(f"leaving-{pool}")
        assert first.wait(DEADLINE_SECONDS) == 0
    assert own.redis.llen(own.queue("instances")) == 1
    left = run.result()
    assert [status_of(left, index) for index in range(4)] == ["done", *["waiting"] * 3]
    with own.worker():
        assert own.wait(run.id).data()["state"]["s3"] == 3
    assert attempts(run) == {1}


def test_what_takes_too_long_is_ended_and_begins_again_elsewhere(own: Backend) -> None:
    with own.worker(ACTS_STOP_SECONDS="0.2") as first:
        run = own.client.submit(solution={"calls": chain_stopping("endless", 1)})
        own.meeting.take("at:endless")
        first.send_signal(signal.SIGTERM)
        assert first.wait(DEADLINE_SECONDS) == 0
    heard(own, "stopped at once")
    own.meeting.open_gate("endless")
    with own.worker():
        assert own.wait(run.id).data()["state"]["s1"] == 1
    assert attempts(run) == {1, 2}


def test_lanes_that_stand_aside_go_back_to_their_queue(own: Backend) -> None:
    """A run's lanes beyond its share of the places: the worker has taken them, and has not begun them."""
    places = 24
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(places * 2)]
    calls = [{"_tool": "waitAtGate", "_instance": "*", "gate": "aside", "_outputPath": "†state.at"}]
    with own.worker("--concurrency", str(places)) as first:
        run = own.client.submit(context, {"calls": calls})
        own.meeting.take("at:aside")
        first.send_signal(signal.SIGTERM)
        heard(own, "arm shutdown")
        heard(own, "go back to their queue")
        with own.worker():
            own.meeting.open_gate("aside")
            assert own.wait(run.id).status == "completed"
        assert first.wait(DEADLINE_SECONDS) == 0
    assert attempts(run) == {1}


@pytest.mark.parametrize("instances", few([200, 2_000], 1))
def test_all_workers_are_restarted_under_load_and_nothing_is_lost_or_done_twice(own: Backend, instances: int) -> None:
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(instances)]
    calls = [
        {"_tool": "rest", "_instance": "*", "mark": "†state.n", "_outputPath": "†state.a"},
        {"_tool": "remoteAdd", "_instance": "*", "a": "†state.a", "b": 1, "_outputPath": "†state.b"},
        {"_tool": "add", "_instance": "*", "a": "†state.b.sum", "_outputPath": "†state.c"},
    ]
    with ExitStack() as stack:
        crew = [stack.enter_context(own.worker()) for _ in range(3)]
        run = own.client.submit(context, {"calls": calls})
        written = run.follow()
        for place, old in enumerate(crew):
            assert len(list(islice(written, instances // 2))) == instances // 2
            new = stack.enter_context(own.worker())
            old.send_signal(signal.SIGTERM)
            assert old.wait(DEADLINE_SECONDS) == 0
            crew[place] = new
        result = own.wait(run.id)
    assert result.status == "completed"
    assert {result.data(f"i{n}")["state"]["c"] - n for n in range(instances)} == {2}
    assert attempts(run) == {1}
    assert longest_pause_ms(own, run.id) < MOST_PAUSE_MS


def longest_pause_ms(backend: Backend, run: str) -> int:
    """The longest time in which nothing was written to a run's log, between its first entry and its last."""
    entries: Any = backend.redis.xrange(Keys(backend.settings.key_prefix, run).log)
    times = [int(id_.split(b"-")[0]) for id_, _ in entries]
    return max(later - earlier for earlier, later in pairwise(times))


# Two backends that differ in their prefix alone share a database: neither has the other's tasks or workers.

CALLS: list[dict[str, Any]] = [
    {"_tool": "echo", "value": 1, "_outputPath": "†state.inline"},
    {"_tool": "echoFar", "value": 2, "_outputPath": "†state.far"},
    {"_tool": "note", "name": "forgotten"},
]


def test_backends_with_prefixes_of_their_own_share_a_database(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    one, other = (
        Backend(settings_for(server, key_prefix=f"house.{name}"), meeting, tmp_path) for name in ("one", "other")
    )
    queues = ("--queues", "instances,delegates,background,far")
    waiting = [other.client.submit(solution={"calls": CALLS}) for _ in range(5)]
    with one.worker(*queues):
        for _ in range(5):
            assert one.run(CALLS).data() == {"state": {"inline": 1, "far": 2}}
        assert [run.status()["status"] for run in waiting] == ["running"] * 5
        with other.worker(*queues):
            for run in waiting:
                assert other.wait(run.id).data() == {"state": {"inline": 1, "far": 2}}
            for backend in (one, other):
                answers = make_client_application(backend.settings).control.inspect(timeout=2).ping() or {}
                assert len(answers) == 1, answers
    for backend in (one, other):
        assert "not in the log" not in backend.log.read_text()


# Recovery at full size: what is lost, and who is in the way, with real processes and by the clock.

NOBODY = CallId("nobody", None, 0)
_ALONE = 7
"""So few calls do not share messages: what is counted here is messages, and how long they take."""


@pytest.fixture
def backend_recovery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A server of our own; every setting at its default."""
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("recovery"))


class Load:
    """Keeps queues from running empty: tasks of a run that does not exist, which workers are busy with all the same."""

    def __init__(self, backend: Backend) -> None:
        self._publisher = Publisher(make_client_application(backend.settings))
        self._redis: Redis = backend.redis
        self._ended = threading.Event()
        work = pack_message(ActivityCall(Attempt(NOBODY), "takeAWhile", {}, {}, {}))
        self._kinds = {
            "lathe": (TaskMessage(EXECUTE_ACTIVITY, "lathe", work, "-"), 200),
            "background": (TaskMessage(EXECUTE_BACKGROUND, "background", work, "-", is_forgotten=True), 200),
            "instances": (lane_task(NOBODY.run, None, "instances"), 1_000),
        }
        self.shortest = {queue: least for queue, (_, least) in self._kinds.items()}

    def top_up(self) -> None:
        for queue, (task, least) in self._kinds.items():
            length: Any = self._redis.llen(queue)
            self.shortest[queue] = min(self.shortest[queue], length)
            for missing in range(2 * least - length, 0, -_ALONE):
                self._publisher.publish([task] * min(_ALONE, missing))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Keep it up while the block lasts."""
        self.top_up()
        self.shortest = {queue: least for queue, (_, least) in self._kinds.items()}
        thread = threading.Thread(target=self._go_on)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def _go_on(self) -> None:
        while not self._ended.wait(0.02):
            self.top_up()


@pytest.mark.nightly
@pytest.mark.parametrize("queue", ["instances", "lathe", "background"])
def test_what_the_broker_loses_is_found_though_no_queue_runs_empty(backend_recovery: Backend, queue: str) -> None:
    calls = [
        {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.sum"},
        {"_tool": "note", "name": "noted"},
    ]
    with ExitStack() as stack:
        if queue != "instances":
            stack.enter_context(backend_recovery.worker("-Q", "instances"))
        run = backend_recovery.client.submit(solution={"calls": calls})
        taken: Any = backend_recovery.redis.blpop([queue], 30)
        assert taken is not None, "this is the loss"
        load = Load(backend_recovery)
        stack.enter_context(load.going_on())
        if queue == "instances":
            stack.enter_context(backend_recovery.worker("-Q", "instances"))
        stack.enter_context(backend_recovery.worker("-Q", "lathe,background", "--concurrency", "4"))
        backend_recovery.meeting.take("noted")
        backend_recovery.wait(run.id)
        assert load.shortest[queue] > 0


@pytest.mark.nightly
def test_what_a_worker_has_taken_and_not_begun_is_not_lost(backend_recovery: Backend) -> None:
    calls = [{"_tool": "waitFar", "gate": f"held-{n}", "_outputPath": f"†state.p{n}"} for n in range(4)]
    with backend_recovery.worker("-Q", "instances"), greedy_worker(backend_recovery, "far"):
        run = backend_recovery.client.submit(solution={"calls": calls})
        backend_recovery.meeting.take("at:held-0")
        for _ in range(20):
            assert wait_for_sweep(backend_recovery)
        for n in range(4):
            backend_recovery.meeting.open_gate(f"held-{n}")
        assert backend_recovery.wait(run.id).status == "completed"
    assert [backend_recovery.meeting.count(f"at:held-{n}") for n in range(4)] == [0, 1, 1, 1]


@contextmanager
def greedy_worker(backend: Backend, queue: str) -> Iterator[None]:
    """A worker of Celery's own command, with one thread, that takes four messages at a time."""
    command = [sys.executable, "-m", "celery", "-A", "acts_celery", "worker", "--pool", "threads", "--concurrency", "1"]
    command += ["-Q", queue, "--prefetch-multiplier", "4", "--without-mingle"]
    with backend.log.open("ab") as log:
        process = subprocess.Popen(command, env=backend.environment(), cwd=backend.folder, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def wait_for_sweep(backend: Backend) -> bool:
    """Wait until a sweep has looked after the runs once more."""
    backend.redis.config_set("notify-keyspace-events", "Kh")
    with backend.redis.pubsub() as writes:  # type: ignore[no-untyped-call]  # redis is typed but here
        writes.subscribe("__keyspace@0__:acts:recovery")
        return all(writes.get_message(timeout=20) is not None for _ in range(2))


@pytest.mark.nightly
@pytest.mark.parametrize("trouble", ["holds its interpreter", "is stopped", "has lost its connection"])
def test_a_worker_in_trouble_keeps_no_other_workers_recovery_waiting(
    trouble: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("trouble")
    served = "instances,delegates,far"
    with ExitStack() as stack:
        server = Server(folder / "server")
        stack.callback(server.stop)
        server.start()
        meeting = Meeting(f"{server.url.removesuffix('/0')}/1")
        backend = Backend(settings_at(server.url), meeting, folder)
        victim = stack.enter_context(backend.worker("-Q", served))
        elsewhere = hanging("elsewhere", "ask", _delegate="hangOnceElsewhere")
        calls = [hanging("inline"), hanging("far", "hangOnceFar"), elsewhere]
        run = backend.client.submit(solution={"calls": calls})
        for call in calls:
            assert meeting.take(f"hanging:{call['name']}") == victim.pid
        network = stack.enter_context(suppressed(Proxy(server.port)))
        afar = Backend(settings_at(network.url), meeting, folder)
        troubled = stack.enter_context(afar.worker("-Q", "instances,hog"))
        stack.enter_context(backend.worker("-Q", served))
        match trouble:
            case "holds its interpreter":
                hold = [{"_tool": "holdInterpreter", "gate": "enough", "_outputPath": "†state.a"}]
                backend.client.submit(solution={"calls": hold})
                meeting.take("holding:enough")
            case "is stopped":
                os.kill(troubled.pid, signal.SIGSTOP)
                stack.callback(os.kill, troubled.pid, signal.SIGCONT)
            case _:
                network.__exit__()
        os.kill(victim.pid, signal.SIGKILL)
        killed = time.monotonic()
        for call in calls:
            meeting.take(f"hanging:{call['name']}")
        seconds = time.monotonic() - killed
        meeting.open_gate("enough")
        assert backend.wait(run.id).data() == {"state": {"inline": 2, "far": 2, "elsewhere": 2}}
        assert seconds < RECOVERY_SECONDS


@contextmanager
def suppressed(proxy: Proxy) -> Iterator[Proxy]:
    """A network that may have ended when the block does."""
    proxy.__enter__()
    yield proxy
    with suppress(RuntimeError):
        proxy.__exit__()


def settings_at(url: str) -> Settings:
    """Default settings, the server being reached at that address."""
    return load(env_file=None, broker_url=url, redis_url=url, activities=(str(ACTIVITIES),), model=MODEL)
