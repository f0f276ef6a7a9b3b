"""`acts run` without a broker leaves no process, socket or file behind, however it ends (INTERFACE)."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .command import ACTIVITIES, completed, encoded, finish, send, start
from .processes import Trace, Watch, listening_ports
from .records import Records

WITHIN_SECONDS = 15.0
GIVE = {"_tool": "give", "value": 1, "_outputPath": "†state.x"}
HANG = {"_tool": "hang", "_outputPath": "†state.never"}


def interrupt_from_the_terminal(process: subprocess.Popen[bytes]) -> None:
    """Ctrl-C reaches every process of the foreground group."""
    os.killpg(process.pid, signal.SIGINT)


def interrupt_the_command(process: subprocess.Popen[bytes]) -> None:
    """A supervisor's SIGINT reaches the command alone."""
    process.send_signal(signal.SIGINT)


def terminate_the_command(process: subprocess.Popen[bytes]) -> None:
    """What `kill`, containers and CI send."""
    process.terminate()


def kill_the_command(process: subprocess.Popen[bytes]) -> None:
    """What nobody can prepare for."""
    process.kill()


ENDS = (interrupt_from_the_terminal, interrupt_the_command, terminate_the_command, kill_the_command)


@dataclass(frozen=True)
class Hanging:
    """`acts run` in the middle of a call that never ends by itself."""

    command: subprocess.Popen[bytes]
    trace: Trace


def new_trace(folder: Path) -> Trace:
    """A marker and a temporary folder of one command's own."""
    folder.mkdir()
    return Trace(uuid.uuid4().hex, folder)


@pytest.fixture
def hanging(records: Records, tmp_path: Path) -> Iterator[dict[str, Hanging]]:
    """One hanging run for each way to end; all at once, for each takes its time."""
    pipe = tmp_path / "hang"
    os.mkfifo(pipe)
    held = os.open(pipe, os.O_RDWR)
    env = records.env | {"ACCEPTANCE_HANG": str(pipe)}
    runs: dict[str, Hanging] = {}
    try:
        for number, end in enumerate(ENDS):
            trace = new_trace(tmp_path / str(number))
            command = start("run", "-", "--json", "--activities", str(ACTIVITIES), env=env | trace.env)
            runs[end.__name__] = Hanging(command, trace)
            send(command, {"context": [], "solution": {"calls": [HANG], "output": None}})
        for run in runs.values():
            records.take("hang", from_process=run.command.pid)
        yield runs
    finally:
        os.close(held)
        for run in runs.values():
            if run.command.poll() is None:
                run.command.kill()
                run.command.communicate()


def left_by(trace: Trace) -> list[object]:
    """Every process, socket and file that is still there."""
    return [*trace.processes(), *trace.sockets(), *trace.folder.rglob("*")]


def test_a_run_that_ended_has_nothing_left_the_moment_the_command_returns(tmp_path: Path) -> None:
    trace = new_trace(tmp_path / "t")
    process = start("run", "-", "--json", "--activities", str(ACTIVITIES), env=trace.env)
    submission = {"context": [], "solution": {"calls": [GIVE], "output": None}}
    completed(finish(process, stdin=encoded(submission)))
    assert left_by(trace) == []


def test_a_run_opens_no_port_and_leaves_nothing_within_seconds_of_its_end(hanging: dict[str, Hanging]) -> None:
    watches: dict[str, Watch] = {}
    for name, run in hanging.items():
        processes = run.trace.processes(run.command.pid)
        assert len(processes) > 1
        assert listening_ports(processes) == set()
        watches[name] = Watch(processes)
    for end in ENDS:
        end(hanging[end.__name__].command)
    running = {name: watch.still_running_after(WITHIN_SECONDS) for name, watch in watches.items()}
    assert running == {name: set() for name in hanging}
    assert {name: left_by(run.trace) for name, run in hanging.items()} == {name: [] for name in hanging}
    # Ended early is not ended well, and never with a traceback (which `finish` looks for).
    ended = {name: finish(run.command) for name, run in hanging.items()}
    assert all(one.code != 0 for one in ended.values())
    for interrupted in (interrupt_from_the_terminal, interrupt_the_command):
        assert "nothing is kept" in ended[interrupted.__name__].stderr
