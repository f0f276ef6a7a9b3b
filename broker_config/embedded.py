"""A Redis-compatible server for the time of a `with` block: no port, no file, no process stays behind.

It listens on a unix socket alone, inside a directory that only this user may enter, keeps nothing on disk,
and ends with us however we end (`GuardedProcess`).
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from acts_celery.broker_config.errors import ServerUnavailable
from acts_celery.broker_config.guarded_process import GuardedProcess
from acts_celery.broker_config.server_binary import find_server

__all__ = ["EmbeddedServer"]

# The least of what systems allow for the path of a unix socket, with its final zero (macOS: 104, Linux: 108).
_SOCKET_PATH_BYTES = 104
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
        if len(os.fsencode(directory / "s")) < _SOCKET_PATH_BYTES:
            return directory
    raise ServerUnavailable("no temporary directory has a path short enough for a unix socket: set TMPDIR to one")
