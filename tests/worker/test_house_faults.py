"""Faults of a server, and what a backup brings back."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from acts_celery import RunNotFound
from acts_celery.broker_config import EmbeddedServer
from acts_celery.broker_config.embedded import VARIABLE
from acts_celery.worker.store.keys import recovery

from .backend import Backend, Meeting, settings_for
from .test_control_cli import command

# Faults of the house that a person on call meets: a log that has forgotten everything, one that takes no writes, one
# whose clock jumps.

ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
FAKETIME: Final = next(iter(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")), None)
"""Debian has it in the package `libfaketime`."""


class ServerOnDisk(EmbeddedServer):
    """One with an append-only file, on a disk that may be full."""

    def _command(self, binary: str) -> list[str]:
        ignoring = ["sh", "-c", 'trap "" XFSZ; exec "$@"', "sh"]  # so that a write fails as on a full disk
        return [*ignoring, *super()._command(binary), "--appendonly", "yes", "--appendfsync", "everysec"]

    def limit(self, pid: int, most_bytes: int) -> None:
        """Have the disk take files of so many bytes."""
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most_bytes, hard))


class ServerOfAnotherTime(EmbeddedServer):
    """One whose clock is set."""

    def _command(self, binary: str) -> list[str]:
        told = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self.offset),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        return ["env", *(f"{name}={value}" for name, value in told.items()), *super()._command(binary)]

    @property
    def offset(self) -> Path:
        """The file that says by how much its clock is wrong."""
        return self.directory / "offset"

    def set_clock(self, by: str) -> None:
        """Move its clock from the right time."""
        new = self.directory / "new"
        new.write_text(by, encoding="utf-8")
        new.replace(self.offset)


@pytest.fixture
def own(meeting: Meeting, tmp_path: Path) -> Iterator[Backend]:
    """A backend with a server of its own, which forgets nothing of the places where tests and activities meet."""
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), meeting, tmp_path)


def log_layer(backend: Backend) -> dict[str, Any]:
    layers: list[dict[str, Any]] = json.loads(command(backend, "doctor", "--json").stdout)["layers"]
    return next(layer for layer in layers if layer["layer"] == "log")


def test_workers_outlive_a_log_that_has_forgotten_everything(own: Backend) -> None:
    with own.worker() as worker:
        call = {"_tool": "waitAtGate", "gate": "amnesia", "_outputPath": "†state.a"}
        run = own.client.submit(solution={"calls": [call, {**ECHO, "value": "†state.a"}]})
        own.meeting.take("at:amnesia")
        own.redis.flushall()
        own.meeting.open_gate("amnesia")
        told = command(own, "status", run.id)
        assert (told.code, "it never was in this log" in told.stderr) == (4, True), told.stderr
        assert own.run([ECHO]).data() == {"state": {"a": 1}}
        assert worker.poll() is None
    assert "is not in the log (any more)" in own.log.read_text()


def test_a_replica_is_named_by_doctor_and_refuses_submissions_until_it_is_primary(own: Backend) -> None:
    with own.worker() as worker:
        own.redis.replicaof("127.0.0.1", "1")  # of a primary that is gone
        layer = log_layer(own)
        assert not layer["ok"]
        assert "it is a replica, which takes no writes" in layer["detail"]
        assert "give the address of the primary" in layer["remedy"]
        told = command(own, "submit", "-", stdin={"solution": {"calls": [ECHO]}})
        assert told.code == 3, told.stderr
        assert "read only replica" in told.stderr
        own.redis.replicaof("NO", "ONE")
        assert own.run([ECHO]).data() == {"state": {"a": 1}}
        assert worker.poll() is None


@pytest.mark.nightly
def test_a_full_disk_is_named_by_doctor_and_loses_nothing(meeting: Meeting, tmp_path: Path) -> None:
    with ServerOnDisk() as server:
        own = Backend(settings_for(server), meeting, tmp_path)
        with own.worker() as worker:
            call = {"_tool": "waitAtGate", "gate": "fulldisk", "_outputPath": "†state.a"}
            run = own.client.submit(solution={"calls": [call, {**ECHO, "_outputPath": "†state.b"}]})
            meeting.take("at:fulldisk")
            pid = own.redis.info()["process_id"]
            server.limit(pid, 1)
            with pytest.raises(ResponseError, match="MISCONF"):
                fill(own)
            meeting.open_gate("fulldisk")
            layer = log_layer(own)
            assert not layer["ok"]
            assert "it cannot write to its disk, and so takes nothing (MISCONF)" in layer["detail"]
            assert "give its disk room" in layer["remedy"]
            told = command(own, "submit", "-", stdin={"solution": {"calls": [ECHO]}})
            assert told.code == 3, told.stderr
            assert "takes nothing at the moment" in told.stderr
            server.limit(pid, resource.RLIM_INFINITY)
            result = own.wait(run.id)
            assert result.status == "completed"
            assert {call.timing.attempts for call in result.calls if call.timing is not None} == {1}
            assert own.run([ECHO]).data() == {"state": {"a": 1}}
            assert worker.poll() is None


@pytest.mark.nightly
@pytest.mark.skipif(FAKETIME is None, reason="there is no libfaketime here: apt install libfaketime")
def test_a_clock_that_jumps_is_named_by_doctor_and_has_nothing_done_twice(
    meeting: Meeting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(
        VARIABLE, raising=False
    )  # Debian's Redis does not start with libfaketime: its malloc asks for the time
    with ServerOfAnotherTime() as server:
        server.set_clock("+0")
        own = Backend(settings_for(server), meeting, tmp_path)
        with own.worker() as worker:
            for by, said in (("+2d", "ahead of"), ("+0", None), ("-2d", "behind")):
                gate = f"clock{by}"
                run = own.client.submit(
                    solution={"calls": [{"_tool": "waitAtGate", "gate": gate, "_outputPath": "†state.a"}]}
                )
                meeting.take(f"at:{gate}")
                server.set_clock(by)
                swept(own)
                layer = log_layer(own)
                assert ("clock" in layer["detail"]) == (said is not None), layer
                assert (said or "") in layer["detail"]
                meeting.open_gate(gate)
                result = own.wait(run.id)
                assert result.status == "completed"
                assert {call.timing.attempts for call in result.calls if call.timing is not None} == {1}
            assert own.run([ECHO]).data() == {"state": {"a": 1}}
            assert worker.poll() is None


@pytest.mark.nightly
@pytest.mark.skipif(FAKETIME is None, reason="there is no libfaketime here: apt install libfaketime")
def test_what_was_begun_before_a_clock_was_set_back_goes_on_elsewhere_when_its_worker_dies(
    meeting: Meeting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)  # as above
    calls = [
        {"_tool": "waitAtGate", "gate": "inline", "_outputPath": "†state.a"},
        {"_tool": "remoteWait", "gate": "remote", "_outputPath": "†state.b"},
    ]
    with ServerOfAnotherTime() as server:
        server.set_clock("+2d")
        own = Backend(settings_for(server), meeting, tmp_path)
        with own.worker() as dying:
            run = own.client.submit(solution={"calls": calls})
            meeting.take("at:inline")
            meeting.take("at:remote")
            server.set_clock("+0")
            os.kill(dying.pid, signal.SIGKILL)
        meeting.open_gate("inline")
        meeting.open_gate("remote")
        with own.worker():
            result = own.wait(run.id)
    assert result.status == "completed"
    assert result.data() == {"state": {"a": None, "b": 1}}


def swept(backend: Backend) -> None:
    """Wait until workers have looked after the runs a few times."""
    key, seen = recovery(backend.settings.key_prefix), set[Any]()
    while len(seen) < 5:
        seen.add(backend.redis.hget(key, "heard"))


def fill(backend: Backend) -> None:
    """Write until the server refuses: it notices that its disk is full when it writes there."""
    while True:
        backend.redis.set("filler", "x")


# A backup that is taken while the backend works, and the log that is made of it (docs/operations.md).

INSTANCES = 40


def snapshot(server: EmbeddedServer) -> Path:
    """Take one while the server works, and wait until it is written."""
    with Redis.from_url(server.redis_url) as redis:
        redis.bgsave()
        while redis.info("persistence")["rdb_bgsave_in_progress"]:
            time.sleep(0.02)
        assert redis.info("persistence")["rdb_last_bgsave_status"] == "ok"
        return Path(redis.config_get("dir")["dir"]) / "dump.rdb"


def test_a_log_that_is_restored_goes_on_from_the_backup_and_repeats_with_the_same_keys_what_was_done_since(
    meeting: Meeting, tmp_path: Path
) -> None:
    context = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(INSTANCES)]
    calls = [
        {"_tool": "waitAtGate", "gate": "backup", "value": "†state.n", "_outputPath": "†state.a"},
        {"_tool": "whoAmI", "value": "†state.a", "_outputPath": "†state.b"},
        {"_tool": "waitAtGate", "gate": "later", "value": "†state.b", "_outputPath": "†state.c"},
        {"_tool": "whoAmI", "value": "†state.c.value", "_outputPath": "†state.d"},
    ]
    document = {"context": [*context, {"type": "plan", "calls": calls}]}
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), meeting, tmp_path)
        with backend.worker() as worker:
            run = backend.client.submit_document(document, name="under way")
            for _ in range(INSTANCES // 2):
                meeting.take("at:backup")
            meeting.open_gate("backup")
            meeting.take("at:later")  # of some instances the first two calls are done, of others none
            copy = Path(shutil.copy(snapshot(server), tmp_path))
            meeting.open_gate("later")
            before = backend.wait(run.id)
            since = backend.client.submit(solution={"calls": []}, id="since-the-backup")
            os.kill(worker.pid, signal.SIGKILL)
        assert before.status == "completed"
    with RestoredServer(copy) as restored:
        backend = Backend(settings_for(restored), meeting, tmp_path)
        (listed,) = command(backend, "runs", "--status", "running", "--json").json_lines
        assert (listed["run"], listed["calls"]["done"] >= 2) == (run.id, True)
        with pytest.raises(RunNotFound):
            backend.client.run(since.id)
        done = {call.id: call for call in backend.client.run(run.id).result().calls if call.status == "done"}
        with backend.worker():
            after = backend.wait(run.id)
            again = backend.client.submit(solution={"calls": []}, id=since.id)
            assert backend.wait(again.id).status == "completed"
        assert after.status == "completed"
        for instance in after.instances:  # the idempotency key is part of the value
            assert after.data(instance)["state"]["b"]["key"] == before.data(instance)["state"]["b"]["key"]
            assert after.data(instance)["state"]["d"]["key"] == before.data(instance)["state"]["d"]["key"]
            assert after.data(instance)["state"]["c"] == after.data(instance)["state"]["b"]
        kept = {call.id: call for call in after.calls}
        assert all(kept[id_].timing == call.timing for id_, call in done.items()), "what was done is not done again"


class RestoredServer(EmbeddedServer):
    """A server that begins with the keys of a snapshot."""

    def __init__(self, copy: Path) -> None:
        super().__init__()
        self._copy = copy

    def _command(self, binary: str) -> list[str]:
        return [*super()._command(binary), "--dir", str(self._copy.parent), "--dbfilename", self._copy.name]


def test_a_copy_of_the_append_only_files_gives_back_everything(meeting: Meeting, tmp_path: Path) -> None:
    echo = {"_tool": "echo", "value": 7, "_outputPath": "†state.a"}
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), meeting, tmp_path)
        backend.redis.config_set("appendonly", "yes")
        with backend.worker():
            done = backend.run([echo])
        run = backend.client.submit([], {"calls": [echo]})
        backend.redis.config_set("auto-aof-rewrite-percentage", 0)
        while backend.redis.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.02)
        shutil.copytree(server.directory / "appendonlydir", tmp_path / "appendonlydir")
    with AppendedServer(tmp_path) as restored:
        backend = Backend(settings_for(restored), meeting, tmp_path)
        assert backend.client.run(done.run).result() == done
        assert backend.client.run(run.id).status()["status"] == "running"
        with backend.worker():
            assert backend.wait(run.id).data() == {"state": {"a": 7}}


class AppendedServer(EmbeddedServer):
    """A server that begins with a copy of append-only files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def _command(self, binary: str) -> list[str]:
        return [*super()._command(binary), "--dir", str(self._folder), "--appendonly", "yes"]


def test_doctor_says_since_when_no_worker_has_looked_after_the_runs(meeting: Meeting, tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), meeting, tmp_path)
        backend.client.submit(solution={"calls": [{"_tool": "add", "a": 1, "_outputPath": "†state.a"}]})
        assert "no worker has looked after them" not in command(backend, "doctor").stdout
        backend.redis.hset(recovery(backend.settings.key_prefix), "heard", "1763683200000")
        told = command(backend, "doctor").stdout
        assert "no worker has looked after them since 2025-11-21T00:00:00.000Z: 1 run as of then" in told
        assert "`acts runs --status running`" in told
