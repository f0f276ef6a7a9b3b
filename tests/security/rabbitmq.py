"""A RabbitMQ of the tests' own: its own ports, folder and name, gone at the end."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .servers import free_port

READY_SECONDS = 60
CONTROL_SECONDS = 120
# Debian's own script of that name on PATH insists on a user of its own.
BINARY = shutil.which("rabbitmq-server", path="/usr/lib/rabbitmq/bin") or shutil.which("rabbitmq-server")


def kill(folder: Path) -> None:
    """Kill the server of a folder, where it still runs."""
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), signal.SIGKILL)


def control(folder: Path, *arguments: str) -> None:
    """`rabbitmqctl` on the server of a folder."""
    assert BINARY is not None
    subprocess.run(
        [Path(BINARY).with_name("rabbitmqctl"), *arguments],
        env={**os.environ, **json.loads((folder / "environment").read_text())},
        check=True,
        capture_output=True,
        timeout=CONTROL_SECONDS,
    )


@contextmanager
def rabbitmq_server(folder: Path, *lines: str, port: int | None = None) -> Iterator[int]:
    """A server with these lines for its configuration: the port on which it speaks plain AMQP. One that is started in
    the same folder for the same port goes on with the same queues.
    """
    port = port or free_port()
    distribution, names = free_port(), free_port()
    (folder / "rabbitmq.conf").write_text("\n".join((f"listeners.tcp.1 = 127.0.0.1:{port}", *lines, "")))
    own = {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_NODENAME": f"acts{port}@localhost",
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_LOGS": "-",
    }
    (folder / "environment").write_text(json.dumps(own))
    environment = {**os.environ, **own}
    assert BINARY is not None
    process = subprocess.Popen([BINARY], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    try:
        text = b""
        while b"Server startup complete" not in text:
            readable, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
            more = os.read(process.stdout.fileno(), 65_536) if readable else b""
            assert more, f"RabbitMQ did not get ready: {text.decode(errors='replace')[-3000:]}"
            text += more
        threading.Thread(target=process.stdout.read, daemon=True).start()  # it stops where nobody takes its log
        yield port
    finally:
        process.terminate()
        process.wait()
        kill(folder)
        # The port mapper that it has started outlives it.
        subprocess.run(["epmd", "-kill"], env=environment, check=False, capture_output=True)
