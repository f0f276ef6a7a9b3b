"""Servers as they run for real: on a port, behind passwords, users or TLS."""

from __future__ import annotations

import os
import select
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from acts_celery.broker_config import find_server

READY_SECONDS = 15


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def redis_server(folder: Path, *lines: str, binary: Path | None = None) -> Iterator[None]:
    """A server with these lines for its configuration, gone at the end of the block."""
    process = subprocess.Popen(
        [str(binary or find_server()), "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write("\n".join(("bind 127.0.0.1", 'save ""', "appendonly no", *lines, "")).encode())
        process.stdin.close()
        text = b""
        while b"eady to accept connections" not in text:
            readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
            more = os.read(process.stdout.fileno(), 65_536) if readable else b""
            assert more, f"the server did not get ready: {text.decode(errors='replace')}"
            text += more
        yield
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
