"""`acts run` without a broker leaves no process, socket or file behind, however it ends (INTERFACE)."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .command import ACTIVITIES, completed, encoded, finish, start
from .processes import Trace, Watch, listening_ports
from .records import Records

WITHIN_SECONDS = 15.0
GIVE = {"_tool": "give", "value": 1, "_outputPath": "†state.x"}
HANG = {"_tool": "hang", "_outputPath": "†state.never"}


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """A marker and a temporary folder of this test's own (its path short: a socket will live below it)."""
    folder = tmp_path / "t"
    folder.mkdir()
    return Trace(uuid.uuid4().hex, folder)


@pytest.fixture
def hanging(trace: Trace, records: Records, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`acts run` in the middle of a call that never ends by itself."""
    pipe = tmp_path / "hang"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    env = trace.env | records.env | {"ACCEPTANCE_HANG": str(pipe)}
    process = start("run", "-", "--json", "--activities", str(ACTIVITIES), env=env)
    assert process.stdin is not None
    process.stdin.write(encoded({"context": [], "solution": {"calls": [HANG], "output": None}}))
    process.stdin.close()
    process.stdin = None
    records.take("hang")
    try:
        yield process
    finally:
        os.close(held)
        if process.poll() is None:
            process.kill()
            process.communicate()


def assert_nothing_is_left(trace: Trace) -> None:
    """No process, no socket, no file."""
    assert trace.processes() == set()
    assert trace.sockets() == []
    assert list(trace.folder.rglob("*")) == []


def test_a_run_that_ended_has_nothing_left_the_moment_the_command_returns(trace: Trace) -> None:
    process = start("run", "-", "--json", "--activities", str(ACTIVITIES), env=trace.env)
    submission = {"context": [], "solution": {"calls": [GIVE], "output": None}}
    completed(finish(process, stdin=encoded(submission)))
    assert_nothing_is_left(trace)


def test_a_run_opens_no_port(trace: Trace, hanging: subprocess.Popen[bytes]) -> None:
    processes = trace.processes(hanging.pid)
    assert len(processes) > 1
    assert listening_ports(processes) == set()
    watch = Watch(processes)
    os.killpg(hanging.pid, signal.SIGINT)
    assert watch.still_running_after(WITHIN_SECONDS) == set()


def interrupt_from_the_terminal(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C reaches every process of the foreground group."""
    os.killpg(process.pid, signal.SIGINT)


def interrupt_the_command(process: subprocess.Popen[bytes]) -> None:
    """A supervisor's SIGINT reaches the command alone."""
    process.send_signal(signal.SIGINT)


def terminate_the_command(process: subprocess.Popen[bytes]) -> None:
    """What `kill`, containers and CI send."""
    process.terminate()


@pytest.mark.parametrize(
    "end",
    [interrupt_from_the_terminal, interrupt_the_command, terminate_the_command],
    ids=lambda end: str(end.__name__),
)
def test_a_run_that_was_interrupted_leaves_nothing(
    end: Callable[[subprocess.Popen[bytes]], None], trace: Trace, hanging: subprocess.Popen[bytes]
) -> None:
    watch = Watch(trace.processes(hanging.pid))
    end(hanging)
    assert watch.still_running_after(WITHIN_SECONDS) == set()
    result = finish(hanging)
    assert result.code != 0
    assert_nothing_is_left(trace)


def test_a_run_that_was_killed_leaves_nothing_within_seconds(trace: Trace, hanging: subprocess.Popen[bytes]) -> None:
    watch = Watch(trace.processes(hanging.pid))
    hanging.kill()
    assert watch.still_running_after(WITHIN_SECONDS) == set()
    hanging.communicate()
    assert_nothing_is_left(trace)
