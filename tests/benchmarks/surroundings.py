"""A server, and workers as processes of their own, for the time of a measurement."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry


@contextmanager
def server() -> Iterator[str]:
    """A server on a free port: Celery's result backend does not do with a unix socket. Yields its URL."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as directory:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = [sys.executable, "-m", "broker_config.server", "--directory", directory, "--port", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            Redis.from_url(url, retry=Retry(ConstantBackoff(0.05), 100)).ping()
            yield url
        finally:
            process.terminate()
            process.wait()


@contextmanager
def worker(arguments: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A quiet worker: `python ARGUMENTS`."""
    quiet = ["--loglevel", "ERROR", "--without-mingle", "--without-gossip"]
    process = subprocess.Popen(
        [sys.executable, *arguments, *quiet], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
