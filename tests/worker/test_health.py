"""A worker that does only half of its work says so: to `inspect stats`, to `acts doctor` and to `acts health`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.runner.application import make_client_application

from .backend import DEADLINE_SECONDS, Backend, Meeting, meeting_url, settings_for

REMOTE = {"ACTS_REMOTE_CONTROL": "true"}


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        settings = settings_for(server, health_folder=str(tmp_path / "health"))
        yield Backend(settings, Meeting(meeting_url(server)), tmp_path)


def ask(backend: Backend, command: str) -> tuple[int, str]:
    """What `acts health` or `acts doctor` answers: exit code and output."""
    finished = subprocess.run(
        [sys.executable, "-m", "acts_celery", command],
        capture_output=True,
        text=True,
        cwd=backend.folder,
        env=backend.environment(),
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return finished.returncode, finished.stdout


def stats(backend: Backend) -> dict[str, Any]:
    """The health of the one worker, as it tells of it: asked again where it has only just begun to listen."""
    inspect = make_client_application(backend.settings).control.inspect(timeout=2, limit=1)
    answers = next(found for _ in range(DEADLINE_SECONDS // 2) if (found := inspect.stats()))
    (answer,) = answers.values()
    health: dict[str, Any] = answer["health"]
    return health


def until(seen: Callable[[], bool]) -> None:
    """Ask again until it is so: a worker can be asked, but never calls."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not seen():
        assert time.monotonic() < deadline


def test_a_worker_that_does_all_of_its_work_is_well(backend: Backend) -> None:
    assert ask(backend, "health")[0] == 3, "there is none yet"
    with backend.worker("-Q", "instances", "-n", "one") as process:
        told = stats(backend)
        assert (told["queues"], told["problems"]) == (["instances"], {})
        code, said = ask(backend, "health")
        assert (code, said.split("@")[0], said.split()[-1]) == (0, "one", "ok")
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_SECONDS)
    assert list((backend.folder / "health").iterdir()) == []


def test_a_dead_sweep_is_seen(backend: Backend) -> None:
    with backend.worker("-n", "one"):
        run = backend.run([{"_tool": "endThread", "name": "acts-sweep", "_outputPath": "†state.a"}])
        assert run.status == "completed"
        until(lambda: "the sweep" in stats(backend)["problems"])
        until(lambda: ask(backend, "health")[0] == 3)
        assert ask(backend, "health")[1].endswith(": the sweep has ended\n")
        code, said = ask(backend, "doctor")
        assert code == 3
        assert "the sweep has ended" in said
        assert backend.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]).status == "completed"


def test_a_cancelled_consumer_is_seen(backend: Backend) -> None:
    with backend.worker("-n", "one", **REMOTE):
        assert stats(backend)["problems"] == {}
        make_client_application(backend.settings).control.cancel_consumer("delegates", reply=True, limit=1)
        until(lambda: ask(backend, "health")[0] == 3)
        assert "queue delegates is not consumed any more" in ask(backend, "health")[1]
        assert stats(backend)["problems"] == {"queue delegates": "is not consumed any more"}
        code, said = ask(backend, "doctor")
        assert code == 3
        assert "queue delegates is not consumed any more" in said


def test_a_worker_that_gives_no_sign_of_life_is_seen(backend: Backend) -> None:
    with backend.worker("-n", "one") as process:
        (file,) = (backend.folder / "health").glob("*.json")
        process.send_signal(signal.SIGSTOP)
        long_ago = time.time() - 31
        os.utime(file, (long_ago, long_ago))
        code, told = ask(backend, "health")
        process.send_signal(signal.SIGCONT)
    assert code == 3
    assert "it has given no sign of life for 3" in told


def test_what_a_killed_worker_has_left_is_removed_by_the_next_one(backend: Backend) -> None:
    folder = backend.folder / "health"
    with backend.worker("-n", "one") as process:
        process.kill()
        process.wait(DEADLINE_SECONDS)
    assert [file.stem.split("@")[0] for file in folder.iterdir()] == ["one"]
    assert ask(backend, "health")[1].endswith(f" it is dead: there is no process {process.pid}\n")
    theirs = {"package.json": "{}", "theirs.acts-health.json": '{"pid": 1}', "other.acts-health.json": "[" * 100_000}
    for name, text in theirs.items():
        (folder / name).write_text(text)
    with backend.worker("-n", "two"):
        left = {file.name for file in folder.iterdir()}
        assert left >= theirs.keys(), "what is not whole and ours stays"
        assert {name.split("@")[0] for name in left - theirs.keys()} == {"two"}


def test_a_worker_whose_folder_is_removed_goes_on_and_says_so(backend: Backend) -> None:
    with backend.worker("-n", "one"):
        shutil.rmtree(backend.folder / "health")
        (backend.folder / "health").write_text("in the way")
        until(lambda: "its file" in stats(backend)["problems"])
        assert backend.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]).status == "completed"
        (backend.folder / "health").unlink()
        until(lambda: ask(backend, "health")[0] == 0)


def test_a_worker_that_begins_anew_again_and_again_says_so(backend: Backend) -> None:
    with backend.worker("-n", "one"):
        cut = set[str]()

        def listening() -> set[str]:
            return {client["id"] for client in backend.redis.client_list() if client["cmd"] == "brpop"} - cut

        for _ in range(4):
            until(lambda: bool(listening()))
            for client in listening():
                backend.redis.client_kill_filter(_id=client)
                cut.add(client)
        until(lambda: "began anew" in ask(backend, "health")[1])
