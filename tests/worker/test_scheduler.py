"""What a worker process takes, checks and gives back."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgpack
import pytest
from redis import Redis

from acts_celery import Client, OtherFormat, Run, activity
from acts_celery.broker_config import SEVERAL, EmbeddedServer
from acts_celery.protocol import Limits
from acts_celery.protocol.engine.events import Success
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.schemas.costs import EXCEEDED
from acts_celery.protocol.schemas.validation import Check, OffloadedChecks, verdict_of
from acts_celery.worker.broker.attempts import Attempt, CallId
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import MESSAGE_FORMAT, RETURNED, Delivery, TaskMessage, unpack_envelope
from acts_celery.worker.broker.remote_control import Cancellations
from acts_celery.worker.broker.transport import ReportQueue
from acts_celery.worker.limits import MESSAGE_VERSION
from acts_celery.worker.recovery.heartbeats import Presence
from acts_celery.worker.recovery.sweep import Sweeper
from acts_celery.worker.registry.activities import registry
from acts_celery.worker.runner import checking as validator
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.runner.checking import Validator
from acts_celery.worker.runner.runtime import Runtime
from acts_celery.worker.runner.scheduler import Returns, Scheduler
from acts_celery.worker.store.connections import read_tokens
from acts_celery.worker.store.definition import _read_definition, unpack_definition
from acts_celery.worker.store.keys import Keys, due_runs, probes
from acts_celery.worker.store.living import Processes
from acts_celery.worker.store.scripts import pack_request

from .backend import ACTIVITIES, DEADLINE_SECONDS, ROOT, Backend, Meeting, ends, heard, settings_apart, settings_for

# What one process asks of the log and the broker, counted: a scheduler in this process on a server of its own.


class Process:
    """A worker process's runtime, without Celery's consumer: what a task would do is asked for by the test."""

    def __init__(self, log: EmbeddedServer, broker: EmbeddedServer) -> None:
        self.settings = settings_for(log, broker_url=broker.broker_url)
        self.redis = Redis.from_url(log.redis_url)
        self.broker = Redis.from_url(broker.redis_url)
        self.client = Client(self.settings)
        self.runtime = Runtime(make_client_application(self.settings), self.settings, registry, Cancellations())

    def submit(self, calls: list[dict[str, Any]]) -> Run:
        return self.client.submit(solution={"calls": calls})

    def run(self, act: Callable[[Scheduler], Awaitable[object]]) -> None:
        """Do something on the process's loop."""

        async def acting() -> None:
            await act(self.runtime.scheduler)

        self.runtime.run(acting())

    def drive(self, run: Run) -> None:
        self.run(lambda scheduler: scheduler.drive(run.id, None))

    @contextmanager
    def driving(self, run: Run) -> Iterator[None]:
        """Drive a lane while the block lasts; at its end there was nothing left to do, and nothing was raised."""
        with ThreadPoolExecutor(1) as pool:
            driven = pool.submit(self.drive, run)
            yield
            driven.result(DEADLINE_SECONDS)

    def deliver(self, run: Run, count: int) -> None:
        """The results of so many calls arrive at once."""

        async def together(scheduler: Scheduler) -> None:
            deliveries = [
                Delivery(self.given(Attempt(CallId(run.id, None, index))), Success({"sum": index}))
                for index in range(count)
            ]
            await asyncio.gather(*map(scheduler.deliver, deliveries))

        self.run(together)

    def given(self, attempt: Attempt) -> Attempt:
        """The attempt as a worker is given it, with the token and the seal of its run."""
        born: Any = self.redis.hget(Keys("acts", attempt.id.run).state, "submitted")
        return read_tokens(self.redis, "acts").of_run(born.decode()).given(attempt)

    def sweeper(self) -> Sweeper:
        app = make_client_application(self.settings)
        return Sweeper(self.redis, Publisher(app), ReportQueue(app, self.settings), self.settings)

    def sweep_all(self, sweeper: Sweeper, *lost: Run) -> None:
        """Sweep when everything that was noted is due and was taken; the lanes of `lost` count as lost then."""
        self.redis.hset(probes("acts"), "instances", f"{2**50}:0:0")
        for run in lost:
            self.redis.zadd(Keys("acts", run.id).published, {"": 1})
        due: Any = self.redis.zrange(due_runs("acts"), 0, -1)
        self.redis.zadd(due_runs("acts"), dict.fromkeys(due, 1))
        sweeper.sweep()

    def asked(self, command: str) -> int:
        """How often the log was asked to do something since `forget`."""
        stats: Any = self.redis.info("commandstats")
        return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def forget(self) -> None:
        self.redis.config_resetstat()

    def queued(self, queue: str) -> int:
        """How many tasks lie in a queue, several in a message or not."""
        found: Any = self.broker.lrange(queue, 0, -1)
        return sum(map(_tasks_in, found))


def _tasks_in(item: bytes) -> int:
    message = json.loads(item)
    if not message["headers"]["task"].endswith(SEVERAL):
        return 1
    [envelope], _, _ = msgpack.unpackb(base64.b64decode(message["body"]))
    return len(unpack_envelope(envelope, Limits()).parts)


class Doors:
    """Where calls in line wait until the test lets them pass; counts who came."""

    def __init__(self) -> None:
        self.came: Counter[str] = Counter()
        self._doors: dict[str, threading.Event] = defaultdict(threading.Event)
        self._there: dict[str, threading.Event] = defaultdict(threading.Event)

    def wait(self, name: str) -> int:
        self.came[name] += 1
        self._there[name].set()
        assert self._doors[name].wait(DEADLINE_SECONDS)
        return self.came[name]

    def expect(self, name: str) -> None:
        """Wait until somebody waits there."""
        assert self._there[name].wait(DEADLINE_SECONDS)

    def open(self, name: str) -> None:
        self._doors[name].set()


DOORS = Doors()


@activity
def waitAtDoor(name: str) -> int:
    return DOORS.wait(name)


@activity
async def countThem(values: list[int]) -> int:
    return len(values)


@activity
async def failOnce(name: str) -> int:
    DOORS.came[name] += 1
    if DOORS.came[name] == 1:
        raise ConnectionError("not yet")
    return 7


@activity
def failOnceThenWait(name: str) -> int:
    DOORS.came[name] += 1
    if DOORS.came[name] == 1:
        raise ConnectionError("not yet")
    return DOORS.wait(name)


@activity
async def makeList(length: int) -> list[int]:
    return [1] * length


@activity
def makeText(length: int) -> str:
    return "x" * length


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[EmbeddedServer, EmbeddedServer]]:
    with EmbeddedServer() as log, EmbeddedServer() as broker:
        yield log, broker


@pytest.fixture
def process(servers: tuple[EmbeddedServer, EmbeddedServer]) -> Process:
    log, broker = servers
    Redis.from_url(log.redis_url).flushall()
    Redis.from_url(broker.redis_url).flushall()
    return Process(log, broker)


def remote(count: int) -> list[dict[str, Any]]:
    return [{"_tool": "remoteAdd", "a": n, "b": 0, "_outputPath": f"†state.p{n}"} for n in range(count)]


def test_results_that_arrive_at_an_idle_lane_open_it_once(process: Process) -> None:
    run = process.submit(remote(100))
    process.drive(run)
    process.forget()
    process.deliver(run, 100)
    assert run.status()["calls"] == {"done": 100}
    assert process.asked("xrange") < 10


def test_a_result_that_comes_after_its_call_was_declared_lost_is_taken_all_the_same(process: Process) -> None:
    run = process.submit(remote(1))
    process.drive(run)
    process.redis.hset(Keys("acts", run.id).calls, "\x1f0", "lost:1:0:")
    process.runtime.scheduler._left.pop((run.id, None))  # as in a process that reads the lane for the first time
    process.deliver(run, 1)
    assert run.status()["calls"] == {"done": 1}
    assert run.result().data()["state"] == {"p0": {"sum": 0}}


def test_calls_that_are_ready_together_are_claimed_and_ended_in_commits_of_bounded_size(process: Process) -> None:
    count = 1_200
    run = process.submit(remote(count))
    process.forget()
    process.drive(run)
    assert process.queued("lathe") == count
    assert process.asked("evalsha") >= 3, "claims of 500 calls each"
    process.forget()
    process.deliver(run, count)
    assert run.status()["calls"] == {"done": count}
    assert process.asked("evalsha") >= 3, "outcomes of 500 calls each"
    assert process.asked("xrange") < 10


def test_large_results_are_written_in_commits_of_bounded_size(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def noting(request: Mapping[str, Any], action: str = "") -> bytes:
        packed = pack_request(request, action)
        sizes.append(len(packed))
        return packed

    monkeypatch.setattr("acts_celery.worker.store.scripts.pack_request", noting)
    run = process.submit([{"_tool": "makeText", "length": 700_000, "_outputPath": f"†state.p{n}"} for n in range(12)])
    process.drive(run)
    assert run.status()["calls"] == {"done": 12}
    assert max(sizes) < 3 * 2**20
    assert all(len(run.result().data()["state"][f"p{n}"]) == 700_000 for n in range(12))


def test_a_step_ends_when_schemas_have_taken_long(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    claims: list[int] = []

    def noting(request: Mapping[str, Any], action: str = "") -> bytes:
        counts.append(len(request.get("outcomes", ())))
        claims.append(len(request.get("claims", ())))
        return pack_request(request, action)

    monkeypatch.setattr("acts_celery.worker.store.scripts.pack_request", noting)
    heavy = {"items": {"anyOf": [*({"multipleOf": 7 + number} for number in range(1_200)), {"type": "integer"}]}}
    tools = {"makeList": {"type": "object", "_output": heavy}}
    calls = [{"_tool": "makeList", "length": 1_500, "_outputPath": f"†state.p{n}"} for n in range(12)]
    run = process.client.submit(solution={"calls": calls}, tools=tools)
    process.drive(run)
    assert run.status()["calls"] == {"done": 12}
    assert max(counts) <= 2
    claims.clear()
    schema = {"type": "object", "properties": {"values": heavy}}
    calls = [{"_tool": "countThem", "values": "†data.many", "_outputPath": f"†state.p{n}"} for n in range(12)]
    context = [{"type": "data", "data": {"many": [1] * 1_500}}]
    run = process.client.submit(context, solution={"calls": calls}, tools={"countThem": schema})
    process.drive(run)
    assert run.status()["calls"] == {"done": 12}
    assert 0 < max(claims) <= 2


def test_two_tasks_for_a_lane_whose_run_has_had_its_turn_make_one_runner(process: Process) -> None:
    run = process.submit([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}])

    async def busy(seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # it holds the loop, as validation does

    async def both(scheduler: Scheduler) -> None:
        turns = scheduler._services.turns
        await turns.take("other", busy(0))
        gate = asyncio.Event()
        keeping = asyncio.ensure_future(turns.take(run.id, gate.wait()))
        await asyncio.sleep(0)
        await turns.take(run.id, busy(0.1))
        await asyncio.gather(scheduler.drive(run.id, None), scheduler.drive(run.id, None))
        gate.set()
        await keeping

    process.run(both)
    assert run.status()["calls"] == {"done": 1}


def test_that_a_process_lives_is_said_at_the_same_cost_whatever_it_has_at_work(process: Process) -> None:
    presence = Presence(process.redis, prefix="acts", lease_seconds=6, on_cancelled=lambda run: None)
    for n in range(1_200):
        presence.enter("r", f"{n}")
    process.forget()
    presence.beat()
    assert [process.asked(command) for command in ("hset", "hget", "zadd")] == [1, 1, 0]
    assert len(Processes(process.redis, "acts").read(60_000).holders["r"]) == 1_200
    for n in range(1_200):
        presence.leave("r", f"{n}")
    presence.beat()
    assert "r" not in Processes(process.redis, "acts").read(60_000).holders


def test_a_broker_that_is_away_neither_ends_what_is_at_work_nor_loses_what_is_to_be_published(process: Process) -> None:
    calls: list[dict[str, Any]] = [
        {"_tool": "waitAtDoor", "name": "first", "_outputPath": "†state.a"},
        {"_tool": "waitAtDoor", "name": "second", "_outputPath": "†state.b"},
        {"_tool": "remoteAdd", "a": "†state.a", "b": 1, "_outputPath": "†state.c"},
    ]
    run = process.submit(calls)
    ended = run.follow()
    with process.driving(run):
        process.broker.config_set("maxmemory", 1)
        for name in ("first", "second"):
            DOORS.open(name)
            assert next(event for event in ended if event.kind == "call").status == "done"
    assert process.queued("lathe") == 0
    process.broker.config_set("maxmemory", 0)
    assert process.broker.blmove("lathe", "lathe", DEADLINE_SECONDS) is not None
    assert process.queued("lathe") == 1
    assert [DOORS.came[name] for name in ("first", "second")] == [1, 1]


def test_what_a_sweep_costs_follows_what_is_due_and_not_what_exists(process: Process) -> None:
    process.redis.config_set("zset-max-listpack-entries", 0)  # a short one is always scanned as a whole
    sweeper = process.sweeper()
    runs = [process.submit(remote(1)) for _ in range(120)]
    for run in runs[1:]:
        run.pause()
    process.sweep_all(sweeper)
    process.broker.delete("instances")
    process.forget()
    process.sweep_all(sweeper, runs[0])
    assert process.asked("evalsha") < 50, "one of 120 is due, and some of all are looked at in turn"
    assert process.queued("instances") == 2, "its task counted as lost, so it is published twice"
    runs[1].resume()
    sweeper.sweep()
    process.broker.delete("instances")
    process.sweep_all(sweeper, runs[1])
    assert process.queued("instances") == 2


def test_what_an_interrupted_step_left_out_of_the_index_is_found(process: Process) -> None:
    process.redis.config_set("zset-max-listpack-entries", 0)
    sweeper = process.sweeper()
    runs = [process.submit(remote(1)) for _ in range(100)]
    process.broker.delete("instances")
    process.redis.delete(due_runs("acts"))
    for run in runs:
        process.redis.zadd(Keys("acts", run.id).published, {"": 0})
    for _ in range(20):
        sweeper.sweep()
    assert process.queued("instances") >= 100, "a message that is late is sent again"


def test_an_amendment_skips_calls_in_pages(process: Process) -> None:
    run = process.submit(remote(600))
    process.forget()
    run.amend([{"_tool": "remoteAdd", "a": 1, "b": 1, "_outputPath": "†state.sum"}])
    assert process.asked("evalsha") >= 6, "it begins, is planned, skips 250 calls twice and then the rest, and ends"
    assert run.status()["calls"] == {"skipped": 600, "waiting": 1}


def test_the_instances_of_a_run_are_read_in_pages(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acts_celery.worker.limits.LOG_INSTANCES_AT_ONCE", 10)
    names = [f"i{number}" for number in range(30)]
    plan = {"type": "plan", "calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.b"}]}
    run = process.client.submit([plan, *({"type": "state", "_instance": name, "a": 1} for name in names)])
    process.forget()
    assert list(run.result().instances) == names
    assert process.asked("lrange") == 4


def held_up(process: Process, act: Callable[[], object]) -> list[Any]:
    """Commands that held up the server for more than 30 ms, though the machine was busy with others now and then."""
    process.redis.config_set("slowlog-log-slower-than", 30_000)
    found: list[Any] = []
    for _ in range(3):
        process.redis.slowlog_reset()
        act()
        answer: Any = process.redis.slowlog_get(10)
        found = [entry["command"][:80] for entry in answer]
        if not found:
            break
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("count", [10_000, 40_000])
def test_no_command_holds_up_the_server_however_many_calls_are_ready(process: Process, count: int) -> None:
    def act() -> None:
        run = process.submit(remote(count))
        process.drive(run)
        process.deliver(run, count // 2)
        assert len(run.result().calls) == count
        process.deliver(run, count)
        assert run.status()["calls"] == {"done": count}
        run.fork()
        amended = process.submit(remote(count))
        amended.amend([{"_tool": "remoteAdd", "a": 1, "b": 1, "_outputPath": "†state.sum"}])
        assert amended.status()["calls"]["skipped"] == count

    assert held_up(process, act) == []


@pytest.mark.nightly
def test_no_command_holds_up_the_server_however_many_instances_there_are(process: Process) -> None:
    count = 100_000
    plan = {"type": "plan", "calls": [{"_tool": "echo", "value": "†state.a", "_outputPath": "†state.b"}]}

    def act() -> None:
        run = process.client.submit([plan, *({"type": "state", "_instance": f"i{n}", "a": n} for n in range(count))])
        assert len(run.result().instances) == count
        run.amend([{"_tool": "echo", "value": 1, "_outputPath": "†state.c", "_instance": "i0"}])
        run.fork()

    assert held_up(process, act) == []


def test_runs_of_one_kind_share_a_definition_and_none_changes_it(process: Process) -> None:
    calls = [
        {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.a"},
        {"_tool": "add", "a": "†state.a", "b": 1, "_outputPath": "†state.b"},
    ]
    one, other = process.submit(calls), process.submit(calls)
    data: Any = process.redis.get(Keys("acts", one.id).definition)
    shared, fresh = unpack_definition(data), _read_definition(data)
    assert unpack_definition(data) is shared
    one.amend([{"_tool": "add", "a": 2, "b": 2, "_outputPath": "†state.c"}], add=True)
    for run in (one, other):
        process.drive(run)
        assert run.result().status == "completed"
    assert shared == fresh
    assert other.result().data() == {"state": {"a": 3, "b": 4}}


def test_r11_8_a_late_result_from_before_a_call_was_undone_is_not_that_of_the_call_now(process: Process) -> None:
    remote = {"_tool": "remoteAdd", "a": "†state.a || †state.b", "b": 1, "_outputPath": "†state.sum"}
    failing = {"_tool": "failOnce", "name": "undone", "_outputPath": "†state.a"}
    run = process.client.submit([{"type": "state", "b": 0}], {"calls": [failing, remote]})

    def result(value: int, again: int) -> None:
        attempt = Attempt(CallId(run.id, None, 1), again=again)
        delivery = Delivery(process.given(attempt), Success({"sum": value}))
        process.run(lambda scheduler: scheduler.deliver(delivery))

    process.drive(run)
    result(1, 0)
    assert run.status()["status"] == "failed"
    assert run.retry(downstream=True).downstream == ("1",)
    process.drive(run)
    result(99, 0)
    assert run.status()["calls"] == {"done": 1, "running": 1}
    result(8, 1)
    assert (run.result().status, run.result().data()["state"]) == ("completed", {"a": 7, "b": 0, "sum": {"sum": 8}})
    result(99, 0)
    assert run.result().data()["state"]["sum"] == {"sum": 8}


def test_r11_8_a_call_that_is_lost_while_what_it_reads_is_carried_out_again_begins_anew(process: Process) -> None:
    remote = {"_tool": "remoteAdd", "a": "†state.a || †state.b", "b": 1, "_outputPath": "†state.sum"}
    failing = {"_tool": "failOnceThenWait", "name": "again", "_outputPath": "†state.a"}
    run = process.client.submit([{"type": "state", "b": 0}], {"calls": [failing, remote]})
    process.drive(run)
    assert run.retry(downstream=True).stale == ("1",)
    keys = Keys("acts", run.id)
    with process.driving(run):
        DOORS.expect("again")
        process.redis.hset(keys.calls, "\x1f1", "lost:1:0:")  # by the sweep; whoever took up the lane then has left it
        process.redis.zrem(keys.leases, "\x1f1")
        DOORS.open("again")
    assert run.status()["calls"] == {"done": 1, "running": 1}
    assert process.queued("lathe") == 2


# Heavy checks are made in a process beside the worker's; whatever becomes of that, no verdict is lost or changed.

T = TypeVar("T")

HEAVY = {"items": {"anyOf": [{"pattern": f"(a|b)*{'[ab]' * 12}c{number}$"} for number in range(300)]}}
TEXTS = ["ab" * 20] * 1_000


def check_of(schema: Any, value: Any) -> Check:
    offloaded = OffloadedChecks()
    with offloaded:
        compiled(schema).problems(value, "result", known=())
    (check,) = offloaded.asked
    return check


CHECK = check_of(HEAVY, TEXTS)


def using(test: Callable[[Validator], Awaitable[T]]) -> T:
    """What a test returns of a validator, which is closed."""

    async def whole() -> T:
        one = Validator()
        try:
            return await asyncio.wait_for(test(one), DEADLINE_SECONDS)
        finally:
            await one.close()

    return asyncio.run(whole())


def pid_of(one: Validator) -> int:
    assert one._process is not None
    return one._process.pid


def test_the_verdict_is_that_of_this_process() -> None:
    async def test(one: Validator) -> None:
        fits = check_of({"items": {"anyOf": [*HEAVY["items"]["anyOf"], {}]}}, TEXTS)
        for check in (CHECK, fits, CHECK):
            assert await one.verdict(check) == verdict_of(check)

    assert verdict_of(CHECK)
    using(test)


def test_what_is_asked_of_a_process_that_is_killed_is_asked_of_the_next() -> None:
    async def test(one: Validator) -> None:
        await one.verdict(CHECK)
        first = pid_of(one)
        os.kill(first, signal.SIGSTOP)
        verdict = asyncio.ensure_future(one.verdict(CHECK))
        await asyncio.sleep(0)  # it is asked now
        os.kill(first, signal.SIGKILL)
        assert await verdict == verdict_of(CHECK)
        assert pid_of(one) != first
        os.kill(pid_of(one), signal.SIGKILL)  # while nothing is asked
        assert await one.verdict(CHECK) == verdict_of(CHECK)

    using(test)


@pytest.mark.parametrize(("ended_by", "deaths"), [(signal.SIGKILL, 3), (signal.SIGPROF, 1)])
def test_a_check_that_the_process_dies_of_each_time_takes_too_much(
    ended_by: int, deaths: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mortal = f"import os; print(flush=True); input(); os.kill(os.getpid(), {int(ended_by)})"
    monkeypatch.setattr(validator, "_PROGRAM", mortal)
    assert [str(problem) for problem in using(lambda one: one.verdict(CHECK))] == [f"/result: {EXCEEDED}"]
    assert len(caplog.records) == deaths


def test_where_no_process_can_be_begun_the_check_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validator, "_PROGRAM", "raise SystemExit(1)")
    assert using(lambda one: one.verdict(CHECK)) == verdict_of(CHECK)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert using(lambda one: one.verdict(CHECK)) == verdict_of(CHECK)


def test_an_answer_that_is_not_awaited_any_more_is_not_taken_for_that_of_the_next_check() -> None:
    async def test(one: Validator) -> None:
        await one.verdict(CHECK)
        first = pid_of(one)
        os.kill(first, signal.SIGSTOP)
        verdict = asyncio.ensure_future(one.verdict(CHECK))
        await asyncio.sleep(0)
        verdict.cancel()
        with pytest.raises(asyncio.CancelledError):
            await verdict
        assert ends(first)
        fits = check_of({"items": {"anyOf": [*HEAVY["items"]["anyOf"], {}]}}, TEXTS)
        assert await one.verdict(fits) == []

    using(test)


BOUNDED = """
import sys
from acts_celery.worker.runner import validating
validating.limits.VALIDATOR_MEMORY_BYTES, validating.limits.VALIDATOR_SECONDS = {bytes}, {seconds}
validating.verdict_of = lambda check: {work}
validating.main()
"""


@pytest.mark.parametrize(
    ("seconds", "work", "ended_by"),
    [
        (0.1, "[None for _ in iter(int, 1)]", -signal.SIGPROF),
        (30, "bytearray(2**30)", 1),
    ],
)
def test_its_time_and_its_memory_are_bounded(seconds: float, work: str, ended_by: int) -> None:
    program = BOUNDED.format(bytes=2**29, seconds=seconds, work=work)
    lines = "\n".join(CHECK) + "\n"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, input=lines, text=True, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (ended_by, "\n"), done.stderr


def test_it_loads_no_more_than_the_core() -> None:
    loaded = (
        "import sys; from acts_celery.worker.runner import validating; "
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"celery", "redis", "kombu", "pydantic", "asyncio"} & {*done.stdout.split()}


def test_it_ends_with_a_worker_that_is_killed() -> None:
    holder = f"""
import asyncio, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.worker.test_scheduler import CHECK, Validator
async def main():
    one = Validator()
    await one.verdict(CHECK)
    print(one._process.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", holder], cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        worker.kill()
    assert ends(pid)


def validator_of(worker: int) -> int:
    """The validator's process beside a worker's."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == worker and b"validating" in (folder / "cmdline").read_bytes():
                return int(folder.name)
        except OSError:
            continue  # it has ended
    raise AssertionError("the worker has no validator")


def test_a_worker_whose_validator_is_killed_loses_nothing(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend = Backend(settings_apart(server, "validated"), meeting, tmp_path)
    tool = {"type": "object", "properties": {"_activity": {}, "value": {}}, "_output": HEAVY}
    heavy = {"_tool": "echo", "value": TEXTS, "_outputPath": "†state.a"}
    light = {"_tool": "echo", "value": 1, "_outputPath": "†state.b"}
    with backend.worker("-Q", "validated-instances") as worker:
        first = backend.run([heavy], tools={"echo": tool}).calls[0].error
        pid = validator_of(worker.pid)
        os.kill(pid, signal.SIGSTOP)
        run = backend.client.submit(
            [],
            {"calls": [heavy, {**heavy, "value": ["ab" * 9 + "c1"], "_outputPath": "†state.c"}]},
            tools={"echo": tool},
        )
        for _ in range(3):
            assert backend.run([light]).status == "completed", "what is heavy holds up no other run"
        assert run.status()["status"] == "running"
        os.kill(pid, signal.SIGKILL)
        result = backend.wait(run.id)
        assert [call.status for call in result.calls] == ["failed", "done"]
        assert first == result.calls[0].error
        assert "is not what the tool's _output promises" in str(first)
        assert verdict_of(CHECK)[0].message in str(first)
        last = validator_of(worker.pid)
        worker.terminate()
        assert worker.wait(DEADLINE_SECONDS) == 0
    assert ends(last)


def test_what_is_done_in_a_thread_is_checked_in_the_process_while_the_loop_turns() -> None:
    texts = ["ab" * 20] * 500

    async def test(one: Validator) -> None:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        found = await one.in_thread("r", lambda: compiled(HEAVY).problems(texts, "result", known=()))
        turning.cancel()
        assert found == compiled(HEAVY).problems(texts, "result", known=())
        assert one._process is not None
        assert turns > 10

    using(test)


def test_what_a_thread_raises_is_raised() -> None:
    async def test(one: Validator) -> None:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await one.in_thread("r", lambda: 1 // 0)

    using(test)


# While an upgrade is rolled out workers of two versions take from the same queues: who does not read a run, or a
# message, gives it back.

INSTANCES = 60
BLIND = """
from acts_celery.worker.recovery import overdue
from acts_celery.worker.store import definition, log

definition.FORMAT = log.FORMAT = overdue.FORMAT = 99
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
    queue = own.queue("instances")
    own.redis.delete(queue)  # workers of an earlier test may have given back what others had already done
    run = own.client.submit(solution={"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]})
    message = taken(own, queue)
    message["headers"][MESSAGE_FORMAT] = MESSAGE_VERSION + 1
    own.redis.lpush(queue, json.dumps(message))
    with own.worker() as worker:
        heard(
            own,
            f"left to other workers: the message has format {MESSAGE_VERSION + 1} "
            f"and this version reads {MESSAGE_VERSION}",
        )
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(DEADLINE_SECONDS) == 0
    returned = taken(own, queue)
    assert returned["headers"][MESSAGE_FORMAT] == MESSAGE_VERSION + 1
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
