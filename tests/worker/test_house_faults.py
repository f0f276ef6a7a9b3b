"""Faults of the house that a person on call meets: a log that has forgotten everything, one that takes no writes, one
whose clock jumps.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from redis.exceptions import ResponseError

from acts_celery.broker_config import EmbeddedServer
from acts_celery.broker_config.embedded import VARIABLE
from acts_celery.worker.store.keys import recovery

from .backend import Backend, Meeting, settings_for
from .test_control_cli import command

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
