"""A server of the suite's own that keeps everything it has acknowledged: killed, it comes back with all of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from acts_celery.broker_config import GuardedProcess

ROOT: Final = Path(__file__).resolve().parents[2]
_START_SECONDS: Final = 30
_ATTEMPTS_A_SECOND: Final = 20


class Server:
    """`python -m acts_celery.broker_config.server` (append-only file, fsync always) on a free port of the loopback."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._directory = directory
        self._process: GuardedProcess | None = None

    @property
    def url(self) -> str:
        """The server's address, for the broker and the log alike."""
        return url_of(self.port)

    def start(self) -> None:
        """Start it on what its directory holds, and wait until it answers."""
        self._process = GuardedProcess(
            [
                sys.executable,
                "-m",
                "acts_celery.broker_config.server",
                "--directory",
                str(self._directory),
                "--port",
                str(self.port),
            ],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        attempts = Retry(ConstantBackoff(1 / _ATTEMPTS_A_SECOND), _START_SECONDS * _ATTEMPTS_A_SECOND)
        with Redis(port=self.port, retry=attempts) as redis:
            redis.ping()

    def kill(self) -> None:
        """SIGKILL; returns when it is dead."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(_START_SECONDS)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP for the time of the block: connections stay open, and nobody answers."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it for good."""
        if self._process is not None:
            self._process.stop()


def url_of(port: int) -> str:
    """The address of a server, or of a proxy before it."""
    return f"redis://127.0.0.1:{port}/0"


def free_port() -> int:
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
