"""Workers die, hang and leave: what was at work there goes on elsewhere, soon, and is counted rightly."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.cli.doctor_servers import examine_servers
from acts_celery.worker.store.keys import Keys
from tests.few import few

from .backend import Backend, Meeting, ends, heard, meeting_url, settings_for

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


def test_remote_retries_are_granted_by_the_policy_of_the_activity(hasty: Backend) -> None:
    with hasty.worker():
        result = hasty.run([{"_tool": "failFarTwice", "name": "far-thrice", "_outputPath": "†state.a"}])
    assert result.data() == {"state": {"a": 3}}
    assert hasty.meeting.attempts("far-thrice") == 3


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


@pytest.mark.parametrize("where", few(KEEPING, 2))
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
                told = [layer.detail for layer in examine_servers(backend.settings) if layer.layer == "runs"]
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
            pass
    assert all(ends(pid) for pid in replaced)


def sidecars_of(pid: int) -> list[int]:
    """The sidecars among the children of a process."""
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [child for child in children if b"sidecar_process.py" in Path(f"/proc/{child}/cmdline").read_bytes()]
