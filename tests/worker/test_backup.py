"""A backup that is taken while the backend works, and the log that is made of it (docs/operations.md)."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from redis import Redis

from acts_celery import RunNotFound
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.store.keys import recovery

from .backend import Backend, Meeting, settings_for
from .test_control_cli import command

INSTANCES = 40


def snapshot(server: EmbeddedServer) -> Path:
    """Take one while the server works, and wait until it is written."""
    with Redis.from_url(server.redis_url) as redis:
        redis.bgsave()
        while redis.info("persistence")["rdb_bgsave_in_progress"]:
            pass
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
            pass
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
