"""A guarded process ends with its parent, however that ends, and leaves nothing."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from acts_celery.broker_config import GuardedProcess
from tests.broker_config.processes import DEADLINE_SECONDS, Exit

ROOT = Path(__file__).parents[2]
# Waits for a signal; says so first, so that nobody has to guess when it is ready.
IDLE = "import os, signal; os.write(1, b'ready'); signal.pause()"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {IDLE}"
# A parent that starts the guarded command, tells the ids, and goes on as `{then}` says.
PARENT = """
import json, os, signal, sys
from pathlib import Path
from acts_celery.broker_config import GuardedProcess
process = GuardedProcess(
    [sys.executable, "-c", {command!r}], cleanup_directory=Path({directory!r}), grace_seconds=0.2, stdout=2
)
def tell(**more):
    print(json.dumps({{"pid": process.pid, "guardian": process.guardian_pid, **more}}), flush=True)
{then}
"""


class Output:
    """A pipe for a command's output, read with a deadline."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def read(self) -> bytes:
        """Return the next output, b"" at the end, when every process that held the pipe has closed it."""
        assert select.select([self.reader], [], [], DEADLINE_SECONDS)[0], "nothing was written"
        return os.read(self.reader, 65_536)

    def close(self) -> None:
        os.close(self.reader)


def started(command: list[str], **options: object) -> tuple[GuardedProcess, Output]:
    """Start `command` guarded; return it and its output, of which this process holds only the reading end."""
    output = Output()
    start = GuardedProcess
    process = start(command, stdout=output.writer, **options)  # type: ignore[arg-type]  # passed through
    os.close(output.writer)
    return process, output


def idle_parent(*, command: str, directory: Path, then: str) -> subprocess.Popen[bytes]:
    """Start a parent process as described by PARENT."""
    script = PARENT.format(command=command, directory=str(directory), then=then)
    return subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_command_that_ends_by_itself_gives_its_exit_code_and_its_directory_goes(tmp_path: Path) -> None:
    directory = tmp_path / "work"
    with GuardedProcess([sys.executable, "-c", "raise SystemExit(7)"], cleanup_directory=directory) as process:
        assert process.wait(DEADLINE_SECONDS) == 7
    assert not directory.exists()


def test_the_directory_is_made_private_and_removed_with_its_contents(tmp_path: Path) -> None:
    directory = tmp_path / "work"
    process, output = started([sys.executable, "-c", IDLE], cleanup_directory=directory)
    assert output.read() == b"ready"
    assert directory.stat().st_mode & 0o777 == 0o700
    (directory / "deep").mkdir()
    (directory / "deep" / "file").write_text("x")
    assert process.poll() is None
    assert process.stop() == 128 + signal.SIGTERM
    assert not directory.exists()
    output.close()


def test_stopping_twice_is_stopping_once() -> None:
    process, output = started([sys.executable, "-c", IDLE])
    assert process.stop() == process.stop() == process.poll()
    output.close()


def test_a_command_deaf_to_sigterm_is_killed_after_its_grace() -> None:
    process, output = started([sys.executable, "-c", DEAF], grace_seconds=0.1)
    assert output.read() == b"ready"
    assert process.stop() == 128 + signal.SIGKILL
    output.close()


def test_the_whole_group_ends_with_its_leader() -> None:
    leader = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {DEAF!r}])"
    process, output = started([sys.executable, "-c", f"{leader}; import signal; signal.pause()"])
    assert output.read() == b"ready"
    process.stop()
    # The end of the pipe: nobody who could write to it is left.
    assert output.read() == b""
    output.close()


def test_a_wait_that_is_too_long_is_a_timeout() -> None:
    process, output = started([sys.executable, "-c", IDLE])
    with process, pytest.raises(TimeoutError, match="still runs"):
        process.wait(0.01)
    output.close()


def test_a_command_that_does_not_exist_is_reported_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-command"):
        GuardedProcess(["no-such-command"], cleanup_directory=tmp_path / "work")
    assert not (tmp_path / "work").exists()


def test_a_command_gets_the_environment_and_folder_it_is_given(tmp_path: Path) -> None:
    code = "import os; os.write(1, f'{os.environ[\"WORD\"]} {os.getcwd()}'.encode())"
    process, output = started([sys.executable, "-c", code], env={"WORD": "привет"}, cwd=tmp_path)
    assert output.read().decode() == f"привет {tmp_path.resolve()}"
    process.stop()
    output.close()


def test_a_command_inherits_no_other_pipe_of_ours() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    process, output = started([sys.executable, "-c", IDLE])
    with process:
        assert output.read() == b"ready"
        os.close(writer)
        assert select.select([reader], [], [], DEADLINE_SECONDS)[0], "the command holds the pipe"
        assert os.read(reader, 1) == b""
    os.close(reader)
    output.close()


def test_sigint_to_the_guardian_is_not_its_business() -> None:
    process, output = started([sys.executable, "-c", IDLE])
    with process:
        assert output.read() == b"ready"
        os.kill(process.guardian_pid, signal.SIGINT)
        os.kill(process.pid, signal.SIGUSR1)
        # Ended by the second signal, so the guardian was still there to tell.
        assert process.wait(DEADLINE_SECONDS) == 128 + signal.SIGUSR1
    output.close()


def test_sigterm_to_the_guardian_stops_the_command() -> None:
    process, output = started([sys.executable, "-c", IDLE])
    with process:
        assert output.read() == b"ready"
        os.kill(process.guardian_pid, signal.SIGTERM)
        assert process.wait(DEADLINE_SECONDS) == 128 + signal.SIGTERM
    output.close()


def test_a_command_whose_guardian_is_killed_dies_and_its_directory_goes_with_stop(tmp_path: Path) -> None:
    if sys.platform != "linux":
        return  # only Linux can promise this
    directory = tmp_path / "work"
    process, output = started([sys.executable, "-c", IDLE], cleanup_directory=directory)
    assert output.read() == b"ready"
    with Exit(process.pid) as command:
        os.kill(process.guardian_pid, signal.SIGKILL)
        command.wait()
    process.stop()
    assert not directory.exists()
    output.close()


@pytest.mark.parametrize(
    ("then", "number"),
    [
        ("tell()", None),
        ("tell(); os._exit(3)", None),
        ("tell(); raise RuntimeError", None),
        ("tell(); signal.pause()", signal.SIGINT),
        ("tell(); signal.pause()", signal.SIGTERM),
        ("tell(); signal.pause()", signal.SIGKILL),
    ],
)
@pytest.mark.parametrize("command", [IDLE, DEAF], ids=["idle", "deaf"])
def test_however_the_parent_ends_nothing_is_left(
    then: str, number: signal.Signals | None, command: str, tmp_path: Path
) -> None:
    directory = tmp_path / "work"
    # The gate keeps the parent until its processes are being watched.
    gate = "_tell = tell\ndef tell(): _tell(); sys.stdin.read(1)"
    with idle_parent(command=command, directory=directory, then=f"{gate}\n{then}") as parent:
        assert parent.stdin
        assert parent.stdout
        ids = json.loads(parent.stdout.readline())
        with Exit(ids["pid"]) as guarded, Exit(ids["guardian"]) as guardian:
            if number is not None:
                parent.send_signal(number)
            else:
                parent.stdin.write(b"\n")
                parent.stdin.flush()
            guarded.wait()
            guardian.wait()
        assert not directory.exists()


def test_a_fork_of_the_parent_that_lives_on_does_not_keep_the_command_alive(tmp_path: Path) -> None:
    directory = tmp_path / "work"
    # The forked child lives until its standard input, which the test holds, ends.
    then = "fork = os.fork()\nif fork == 0: sys.stdin.read(); os._exit(0)\ntell(fork=fork); signal.pause()"
    with idle_parent(command=IDLE, directory=directory, then=then) as parent:
        assert parent.stdout
        ids = json.loads(parent.stdout.readline())
        with Exit(ids["guardian"]) as guardian:
            parent.kill()
            guardian.wait()
        os.kill(ids["fork"], 0)  # still there
        assert not directory.exists()


def test_leaving_the_block_in_a_fork_does_not_stop_the_parents_command() -> None:
    process, output = started([sys.executable, "-c", IDLE])
    with process:
        assert output.read() == b"ready"
        child = os.fork()
        if child == 0:
            process.stop()
            os._exit(0)
        os.waitpid(child, 0)
        assert process.poll() is None
    output.close()
