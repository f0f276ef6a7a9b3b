"""A child process that cannot be left behind: it ends when we end, also by SIGKILL, and its files go with it.

The child runs under a guardian (`guardian.py`), a tiny process in a session of its own that notices our
death. The price is one short-lived Python process of some milliseconds' start-up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from acts_celery.broker_config.errors import ServerUnavailable

__all__ = ["GuardedProcess", "guarded"]

# How much longer than the grace a guardian may take before it counts as stuck.
_GUARDIAN_MARGIN_SECONDS = 10.0
_GUARDIAN = str(Path(__file__).with_name("guardian.py"))


def guarded(
    command: Sequence[str], control: socket.socket, *, grace_seconds: float, directory: Path | None = None
) -> list[str]:
    """The command line that runs a command under a guardian of this process, as `guardian.py` says.

    `control` is the end of a socket pair that the guardian inherits; standard input and output are the command's.
    """
    own = (str(control.fileno()), str(os.getpid()), str(grace_seconds), str(directory or ""))
    return [sys.executable, "-I", "-S", _GUARDIAN, *own, *command]


class GuardedProcess:
    """A running command under guard; leaving the `with` block, or `stop`, ends it and its process group."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        cleanup_directory: Path | None = None,
        grace_seconds: float = 10.0,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
    ) -> None:
        """Start `command` (looked up on PATH) with empty standard input and no other descriptor of ours.

        `cleanup_directory` is created (mode 0700) if it is missing and removed when the command has ended.
        Between SIGTERM and SIGKILL the command has `grace_seconds`. `env` None is our environment; `stdout`
        and `stderr` are as for `subprocess.Popen`, but not PIPE. Raises the OSError that starting it met.
        """
        self.command: tuple[str, ...] = tuple(command)
        self.grace_seconds = grace_seconds
        self._directory = None if cleanup_directory is None else cleanup_directory.absolute()
        self._owner = os.getpid()
        self._control, theirs = socket.socketpair()
        _guarded.add(self)
        try:
            with theirs:
                self._guardian = subprocess.Popen(
                    guarded(self.command, theirs, grace_seconds=grace_seconds, directory=self._directory),
                    env=None if env is None else dict(env),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    close_fds=True,
                    pass_fds=(theirs.fileno(),),
                    # A Ctrl-C on the terminal is for us; what follows from it is for us to say.
                    start_new_session=True,
                )
            self.pid: int = self._receive_pid()
        except BaseException:
            # Also a KeyboardInterrupt: the guardian sees the end of the socket and cleans up.
            self._control.close()
            raise

    @property
    def guardian_pid(self) -> int:
        """The process id of the guardian; when it has ended, everything has."""
        return self._guardian.pid

    def poll(self) -> int | None:
        """Return the exit code (128 + N for signal N) once the command ended and all is clean, else None."""
        return self._guardian.poll()

    def wait(self, timeout_seconds: float | None = None) -> int:
        """Wait for the command to end by itself and return its exit code; TimeoutError when it does not."""
        try:
            return self._guardian.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.command[0]} still runs after {timeout_seconds} seconds") from None

    def stop(self) -> int:
        """End the command and its group, wait until all is cleaned up, return its exit code; may be repeated.

        In a process forked from the one that started the command it does nothing.
        """
        if os.getpid() != self._owner:
            return 0
        with contextlib.suppress(OSError):  # gone already
            # Not only the end of the socket: a fork of ours might hold a copy.
            self._control.sendall(b"stop\n")
        self._control.close()
        try:
            code = self._guardian.wait(self.grace_seconds + _GUARDIAN_MARGIN_SECONDS)
        except subprocess.TimeoutExpired:
            self._guardian.kill()
            code = self._guardian.wait()
        if code < 0:
            self._do_the_guardians_work()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _receive_pid(self) -> int:
        with self._control.makefile("rb") as answer:
            word, _, number = answer.readline().decode().partition(" ")
        if word == "started":
            return int(number)
        self._guardian.wait()
        if word == "failed":
            raise OSError(int(number), os.strerror(int(number)), self.command[0])
        raise ServerUnavailable(
            f"the guardian of {self.command[0]} ended with code {self._guardian.returncode} before it "
            f"started: try `{sys.executable} -I -S -c pass`"
        )

    def _do_the_guardians_work(self) -> None:
        """End the group and remove the directory when a signal has ended the guardian itself."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


_guarded: weakref.WeakSet[GuardedProcess] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """Close a forked child's copies of our sockets, or the guardians would not see us die before it does."""
    for process in _guarded:
        process._control.close()


os.register_at_fork(after_in_child=_let_go_in_child)
