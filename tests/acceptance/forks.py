"""Commands without the half second in which an interpreter starts and imports: a process that has done so forks.

Each command is a process of its own, with its own session, environment, folder and exit code, that ends as any
interpreter does. What is not its own: `/proc/PID/environ` and the command line show those of the process it is forked
from. A request is one message on a socket, `{"arguments", "env", "folder"}` with the descriptors of its stdin, stdout
and stderr, and of a pipe for two lines: its process id, and its exit code as `os.waitstatus_to_exitcode` gives it.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, Self

_LARGEST_REQUEST_BYTES: Final = 200_000


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
            socket.send_fds(_server(), [request], [*(file.fileno() for file in files), writing])
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


@cache
def _server() -> socket.socket:
    """Our end of the socket; the process at the other ends when ours is closed, by us or with us."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        root = Path(__file__).resolve().parents[2]
        subprocess.Popen(command, cwd=root, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    return ours


def _serve(requests: socket.socket) -> int:
    """Fork for every request; return the exit code of a command in its process, 0 in the first one at the end."""
    # What any command loads, some of it late.

    import acts_celery.protocol.analysis
    import acts_celery.worker.cli
    import acts_celery.worker.client.amendment
    import acts_celery.worker.client.client
    import acts_celery.worker.client.fork
    import acts_celery.worker.runner.application  # noqa: F401

    gc.freeze()  # what is shared by all is neither looked at nor copied when a command ends
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries those who wait for commands
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _LARGEST_REQUEST_BYTES, 4)
        if not message:
            return 0
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return _wait_for_command(json.loads(message), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _wait_for_command(request: dict[str, Any], stdin: int, stdout: int, stderr: int, report: int) -> int:
    """Fork the command and report it; return only in the command's own process, with its exit code."""
    process = os.fork()
    if process > 0:
        os.write(report, b"%d\n" % process)
        _, status = os.waitpid(process, 0)
        os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(report)
    os.setsid()
    for theirs, ours in enumerate((stdin, stdout, stderr)):
        os.dup2(ours, theirs)
        os.close(ours)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr  # type: ignore[misc]
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[0] = request["folder"]
    sys.argv[1:] = request["arguments"]
    from acts_celery.worker.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(_serve(socket.socket(fileno=int(sys.argv[1]))))
