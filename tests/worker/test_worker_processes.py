"""`acts worker` with several processes: started, kept running and stopped by one command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.worker.cli.doctor_servers import examine_servers
from acts_celery.worker.cli.worker import _quotas, usable_processors
from tests.chaos.server import Server

from .backend import ACTIVITIES, DEADLINE_SECONDS, Backend, Meeting, ends, meeting_url, settings_for


class Workers:
    """The command, what it has announced, and what it has said on stderr so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.announced = json.loads(process.stdout.readline() or "{}")

    @property
    def pids(self) -> list[int]:
        return [process["pid"] for process in self.announced["processes"]]

    def wait_for(self, text: str) -> str:
        """The next line on stderr that holds a text."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return line
        raise AssertionError(f"it ended and never said {text!r}")

    def stop(self) -> int:
        """Ask it to end; returns its exit code."""
        self.process.terminate()
        return self.process.wait(DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A server of our own, so that nobody else serves these queues."""
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("processes"))


@contextmanager
def workers(backend: Backend, *arguments: str, **environment: str) -> Iterator[Workers]:
    command = [sys.executable, "-m", "acts_celery", "worker", "--json", *arguments]
    with subprocess.Popen(
        command,
        env=backend.environment(**environment),
        cwd=backend.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Workers(process)
        finally:
            process.kill()


def waiting(gate: str) -> dict[str, Any]:
    return {"_tool": "waitAtGate", "gate": gate, "_outputPath": f"†state.{gate}"}


def test_one_line_announces_all_processes_and_each_takes_tasks(own: Backend) -> None:
    context = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(2)]
    calls = [{**waiting("both"), "_instance": f"i{number}"} for number in range(2)]
    # One task at a time in each process: two calls at once take two.
    with workers(own, "--processes", "2", "--concurrency", "1", "--name", "crew") as crew:
        names = [process["worker"] for process in crew.announced["processes"]]
        assert [name.partition("@")[0] for name in names] == ["crew", "crew-2"]
        assert crew.announced["worker"] == names[0]
        assert crew.announced["queues"][:3] == ["instances", "delegates", "background"]
        assert crew.announced["pid"] == crew.process.pid
        run = own.client.submit(context, {"calls": calls})
        assert {own.meeting.take("at:both") for _ in calls} == set(crew.pids)
        own.meeting.open_gate("both")
        assert own.wait(run.id).status == "completed"
        assert crew.stop() == 0
    assert all(ends(pid) for pid in crew.pids)


@pytest.mark.nightly
def test_a_process_that_dies_is_started_again_and_said_so(own: Backend) -> None:
    with workers(own, "--processes", "2") as crew:
        os.kill(crew.pids[1], signal.SIGKILL)
        assert "SIGKILL" in crew.wait_for("ended by itself")
        line = crew.wait_for("is ready")
        assert crew.announced["processes"][1]["worker"] not in line
        assert crew.stop() == 0


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_second_signal_stops_what_the_first_lets_end(own: Backend, number: signal.Signals, processes: str) -> None:
    name = f"{number.name}{processes}"
    with workers(own, "--processes", processes) as crew:
        call = {"_tool": "waitForCancellation", "name": name, "_outputPath": "†state.x"}
        run = own.client.submit(solution={"calls": [call]})
        own.meeting.take(f"waiting:{name}")
        crew.process.send_signal(number)
        for _ in range(int(processes)):
            crew.wait_for("arm shutdown")
        crew.process.send_signal(number)
        assert crew.process.wait(DEADLINE_SECONDS) == 0
    run.cancel()


@pytest.mark.nightly
def test_the_processes_end_with_what_started_them(own: Backend) -> None:
    with workers(own, "--processes", "2") as crew:
        crew.process.kill()
        assert all(ends(pid) for pid in crew.pids)


def test_what_is_wrong_with_the_activities_is_reported_once(own: Backend, tmp_path: Path) -> None:
    with workers(own, "--processes", "3", "--activities", str(tmp_path / "missing.py")) as crew:
        stderr = crew.process.communicate()[1]
        assert crew.process.returncode == 2
    assert [line for line in stderr.splitlines() if "missing.py" in line] == stderr.splitlines()
    assert len(stderr.splitlines()) == 1


@pytest.mark.parametrize("around", ["if True:", "try:"])
def test_a_signal_that_comes_while_activities_are_loaded_ends_it(own: Backend, tmp_path: Path, around: str) -> None:
    """Also where their code catches whatever is raised in it."""
    caught = "except BaseException:\n    pass\n" if around == "try:" else ""
    module = tmp_path / "asks_to_end.py"
    module.write_text(f"import os, signal\n{around}\n    os.kill(os.getpid(), signal.SIGTERM)\n{caught}")
    with workers(own, "--processes", "1", ACTS_ACTIVITIES=str(module)) as found:
        assert found.process.wait(DEADLINE_SECONDS) == 143
        assert found.process.stderr is not None
        assert found.process.stderr.read().splitlines()[-1] == "acts: terminated"


def test_a_process_is_started_for_each_processor_that_may_be_used(own: Backend) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    try:
        os.sched_setaffinity(0, allowed[:1])
        assert usable_processors() == 1
        with workers(own) as alone:  # it inherits the affinity
            assert "processes" not in alone.announced
            assert alone.announced["pid"] == alone.process.pid
            assert alone.stop() == 0
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_control_group_and_those_above_it_grant_processors(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("12:cpu:/elsewhere\n0::/outer/inner\n")
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "outer" / "inner" / "cpu.max").write_text("max 100000\n")
    assert list(_quotas(tmp_path, tmp_path / "own")) == [1.5]
    assert list(_quotas(tmp_path, tmp_path / "none")) == []


def test_two_processes_get_along_on_a_server_that_takes_few_connections(tmp_path: Path) -> None:
    server = Server(tmp_path / "server")
    server.start()
    try:
        settings = load(env_file=None, broker_url=server.url, redis_url=server.url, activities=(str(ACTIVITIES),))
        backend = Backend(settings, Meeting(server.url), tmp_path)
        backend.redis.config_set("maxclients", 30)
        instances = [f"i{n}" for n in range(40)]
        context = [{"type": "state", "_instance": name} for name in instances]
        calls = [
            {"_tool": tool, **given, "_instance": name, "_outputPath": f"†state.{tool}"}
            for tool, given in (("echoPlain", {"value": 1}), ("remoteAdd", {"a": 1, "b": 2}))
            for name in instances
        ]
        with backend.worker("--processes", "2"):
            runs = [backend.client.submit(context, {"calls": calls}) for _ in range(5)]
            assert [backend.wait(run.id).status for run in runs] == ["completed"] * 5
        (broker,) = (layer for layer in examine_servers(settings) if layer.layer == "broker")
        assert "connections" not in broker.detail
        backend.redis.config_set("maxclients", few := int(backend.redis.info("clients")["connected_clients"]) + 2)
        (broker,) = (layer for layer in examine_servers(settings) if layer.layer == "broker")
        assert f"of its {few} connections are in use" in broker.detail
    finally:
        server.stop()
