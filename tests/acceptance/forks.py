"""Commands without the half second in which an interpreter starts and imports: a process that has done so forks.

Each command is a process of its own, with its own session, environment, folder and exit code. It ends as an interpreter
does but for the search for garbage, which takes longer than most commands. What is not its own: `/proc/PID/environ` and
the command line show those of the process it is forked from. A request is one message on a socket, `{"arguments",
"env", "folder"}` with the descriptors of its stdin, stdout and stderr, and of a pipe for two lines: its process id, and
its exit code as `os.waitstatus_to_exitcode` gives it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, NoReturn, Self

_LARGEST_REQUEST_BYTES: Final = 200_000
_DEADLINE_SECONDS: Final = 60
_STARTING: Final = threading.Lock()


class TimedOut(Exception):
    """The command did not end in time and was killed."""


def run(
    arguments: Sequence[str], *, env: Mapping[str, str], folder: Path, stdin: bytes, timeout_seconds: float
) -> tuple[int, bytes, bytes]:
    """Run a command to its end: its exit code, stdout and stderr. Raises `TimedOut`."""
    with ExitStack() as stack:
        given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        with Forked(arguments, env=env, folder=folder, files=(given, out, err)) as command:
            try:
                code = command.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                command.kill()
                raise TimedOut from None
        out.seek(0)
        err.seek(0)
        return code, out.read(), err.read()


class Forked:
    """A command under way, and what of `subprocess.Popen` the tests use."""

    def __init__(
        self, arguments: Sequence[str], *, env: Mapping[str, str], folder: Path, files: Sequence[IO[bytes]]
    ) -> None:
        """Start it; `files` are its stdin, stdout and stderr."""
        reading, writing = os.pipe()
        self._report = open(reading, "rb", buffering=0)  # noqa: PTH123, SIM115  # a descriptor, no path
        try:
            request = json.dumps({"arguments": list(arguments), "env": dict(env), "folder": str(folder)}).encode()
            socket.send_fds(server(), [request], [*(file.fileno() for file in files), writing])
        finally:
            os.close(writing)
        self._arguments = arguments
        self._lines = b""
        self.returncode: int | None = None
        self.pid = int(self._line(0, None))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._report.close()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended; minus the number of a signal. Raises `subprocess.TimeoutExpired`."""
        if self.returncode is None:
            self.returncode = int(self._line(1, timeout))
        return self.returncode

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and whoever has forked it has not said so yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _line(self, number: int, timeout: float | None) -> bytes:
        ends_at = None if timeout is None else time.monotonic() + timeout
        while self._lines.count(b"\n") <= number:
            left = None if ends_at is None else max(0, ends_at - time.monotonic())
            if not select.select([self._report], [], [], left)[0]:
                raise subprocess.TimeoutExpired(self._arguments, timeout or 0)
            more = self._report.read(100)
            assert more, "the process that forks has ended"
            self._lines += more
        return self._lines.splitlines()[number]


@contextmanager
def staying(
    arguments: Sequence[str], *, env: Mapping[str, str], folder: Path, log: Path
) -> Iterator[tuple[Forked, dict[str, Any]]]:
    """A command that stays, and the line of JSON with which it announces itself; ended when the block is left."""
    with ExitStack() as stack:
        nothing, errors = stack.enter_context(Path(os.devnull).open("rb")), stack.enter_context(log.open("ab"))
        reading, writing = os.pipe()
        announced = stack.enter_context(os.fdopen(reading, "rb"))
        with os.fdopen(writing, "wb") as out:
            started = Forked(arguments, env=env, folder=folder, files=(nothing, out, errors))
        command = stack.enter_context(started)
        stack.callback(end, command)
        is_ready, _, _ = select.select([announced], [], [], _DEADLINE_SECONDS)
        line = announced.readline() if is_ready else b""
        assert line, f"acts {arguments[0]} did not get ready: {log.read_text(errors='replace')[-3000:]}"
        yield command, json.loads(line)


def end(process: subprocess.Popen[bytes] | Forked, seconds: float = 10) -> None:
    """Ask a process of the tests to end, kill it if it has not within so many seconds, and wait for its end."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def server() -> socket.socket:
    """Our end of the socket; the process at the other ends when ours is closed, by us or with us."""
    with _STARTING:
        return _started()


@cache
def _started() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        root = Path(__file__).resolve().parents[2]
        subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    return ours


def _serve(requests: socket.socket) -> NoReturn:
    """Fork for every request, and report the exit code of each command; end when nobody can ask any more."""
    # What commands and workers load sooner or later.
    import encodings.idna  # noqa: F401

    import celery.app.amqp
    import celery.app.log
    import celery.apps.worker
    import celery.concurrency.prefork
    import celery.fixups.django
    import celery.loaders.app
    import celery.worker.autoscale
    import celery.worker.components
    import celery.worker.strategy  # noqa: F401
    import kombu.pidbox
    import kombu.transport.redis  # noqa: F401
    import prometheus_client.core  # noqa: F401

    import acts_celery.protocol.analysis.deployment
    import acts_celery.protocol.analysis.lint_rules
    import acts_celery.protocol.analysis.order
    import acts_celery.protocol.analysis.values
    import acts_celery.worker.agent.loop_runner
    import acts_celery.worker.agent.room
    import acts_celery.worker.agent.scripted
    import acts_celery.worker.cli
    import acts_celery.worker.client.amendment
    import acts_celery.worker.client.client
    import acts_celery.worker.client.deployments
    import acts_celery.worker.client.fork
    import acts_celery.worker.local
    import acts_celery.worker.runner.application
    import acts_celery.worker.telemetry.process_metrics  # noqa: F401

    gc.freeze()  # what is shared by all is neither looked at nor copied when a command ends
    running: dict[int, tuple[int, int]] = {}
    """Process id and report of each command, by the descriptor that says when it has ended."""
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for descriptor, _ in poll.poll():
            if descriptor in running:
                poll.unregister(descriptor)
                process, report = running.pop(descriptor)
                _, status = os.waitpid(process, 0)
                _tell(report, os.waitstatus_to_exitcode(status))
                _close(descriptor, report)
                continue
            message, files, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST_BYTES, 4)
            if not message:
                os._exit(0)
            *files, report = files
            if (process := os.fork()) == 0:
                requests.close()
                _close(report, *running, *(report for _, report in running.values()))
                _run_command(json.loads(message), files)
            _tell(report, process)
            _close(*files)
            ended = os.pidfd_open(process)
            poll.register(ended, select.POLLIN)
            running[ended] = (process, report)


def _run_command(request: dict[str, Any], files: Sequence[int]) -> NoReturn:
    """Run the command in this process, and end as an interpreter does but for the collection of what it has loaded."""
    os.setsid()
    for theirs, ours in enumerate(files):
        os.dup2(ours, theirs)
        os.close(ours)
    out_buffering = 1 if "PYTHONUNBUFFERED" in request["env"] else -1
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", out_buffering), open(2, "w", 1)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = request["folder"]
    sys.argv[1:] = request["arguments"]
    from acts_celery.worker.cli import main

    code = main()
    threading._shutdown()  # type: ignore[attr-defined]  # what an interpreter does before it ends
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _tell(report: int, number: int) -> None:
    """Report a process id or an exit code, unless nobody wants to know any more."""
    with suppress(BrokenPipeError):
        os.write(report, b"%d\n" % number)


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
