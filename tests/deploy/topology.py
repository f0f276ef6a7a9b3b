"""The topology of `deploy/supervisord.conf`, started as its README says, on ports and in a folder apart."""

from __future__ import annotations

import base64
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tests.environment import without_settings

from .files import SUPERVISED

ROOT = Path(__file__).resolve().parents[2]
UP = ROOT / "deploy" / "up.py"
EXAMPLES = ROOT / "deploy" / "examples"
DEADLINE_SECONDS = 120.0
INTERVAL_SECONDS = 0.2
PROGRAMS = ("redis", "instances-1", "instances-2", "delegates", "background", "flower", "ui")

Seen = TypeVar("Seen")


class Topology:
    """One supervisord and everything it starts."""

    def __init__(self, directory: Path) -> None:
        redis_port, self.flower_port, self.ui_port = free_ports(3)
        self.directory = directory
        self.outbox = directory / "outbox.jsonl"
        self.redis_port = redis_port
        self.secrets = {name: f"{name.replace('_', '-').lower()}-5ecret" for name in SUPERVISED}
        self.model_key = "model-5ecret"
        kept = {name: value for name, value in without_settings().items() if not name.startswith("FLOWER_")}
        self.environment = kept | {
            **self.secrets,
            "ACTS_MODEL_API_KEY": self.model_key,
            "DEPLOY_DIRECTORY": str(directory),
            "REDIS_PORT": str(redis_port),
            "FLOWER_PORT": str(self.flower_port),
            "UI_PORT": str(self.ui_port),
            "ACTS_ACTIVITIES": str(EXAMPLES / "reviews.py"),
            "REVIEWS_OUTBOX": str(self.outbox),
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.output = b""
        self._read = 0

    def start(self) -> None:
        """Start it with the one command; wait until every program is called running and Flower answers."""
        self.process = subprocess.Popen(
            [sys.executable, str(UP)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=self.environment,
            start_new_session=True,
        )
        for _ in PROGRAMS:
            change = self.wait_for(r"success: \S+ entered RUNNING state|exited: \S+ ")
            assert change[0].startswith(b"success"), f"{change[0].decode()}\n{self.logs()}"
        self.ask_flower_until("/healthcheck", lambda answer: answer)

    def stop(self) -> int:
        """Ask supervisord to end, wait for it, and return its exit code; what then still runs is killed."""
        assert self.process is not None
        assert self.process.stdout is not None
        with self.process.stdout as output:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            try:
                self._read_to_the_end(output.fileno())
                return self.process.wait(DEADLINE_SECONDS)
            finally:
                for pid in [self.process.pid, *self.pids]:
                    kill(pid)
                self.process.wait()
                self.process = None

    @property
    def pids(self) -> list[int]:
        """Every process that supervisord says it started, dead or alive."""
        return [int(pid) for pid in re.findall(rb"spawned: '\S+' with pid (\d+)", self.output)]

    def pid_of(self, program: str) -> int:
        """The process that a program runs in at present."""
        return int(re.findall(rf"spawned: '{program}' with pid (\d+)".encode(), self.output)[-1])

    def environment_of(self, program: str) -> str:
        """The environment that a program's process was given (Linux)."""
        return Path(f"/proc/{self.pid_of(program)}/environ").read_text()

    def wait_for(self, pattern: str) -> re.Match[bytes]:
        """Read what supervisord says until a line matches that no earlier call has seen."""
        assert self.process is not None
        assert self.process.stdout is not None
        deadline = time.monotonic() + DEADLINE_SECONDS
        while (found := re.search(pattern.encode(), self.output[self._read :])) is None:
            self._read_more(self.process.stdout.fileno(), deadline, pattern)
        self._read += found.end()
        return found

    def url(self, user: str) -> str:
        """The address of Redis for one of its users."""
        return f"redis://{user}:{self.secrets[f'REDIS_PASSWORD_{user.upper()}']}@127.0.0.1:{self.redis_port}/0"

    def acts(self, *arguments: str) -> Any:
        """Run the command line against this broker; its output, as JSON (one document, or one a line)."""
        environment = self.environment | {
            "ACTS_BROKER_URL": self.url("clients"),
            "ACTS_HEALTH_FOLDER": str(self.directory / "health"),
        }
        finished = subprocess.run(
            [sys.executable, "-m", "acts_celery", *arguments, "--json"],
            capture_output=True,
            cwd=ROOT,
            env=environment,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert finished.returncode == 0, f"acts {arguments}: {finished.stderr.decode()}\n{self.logs()}"
        lines = [json.loads(line) for line in finished.stdout.splitlines()]
        return lines if "log" in arguments else lines[0]

    def control(self, *arguments: str) -> str:
        """Speak to the running supervisord as README says."""
        finished = subprocess.run(
            [sys.executable, str(UP), *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=self.environment,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        assert finished.returncode == 0, f"{arguments}: {finished.stdout}{finished.stderr}\n{self.logs()}"
        return finished.stdout

    def flower(self, path: str, *, password: str | None = None, post: bytes | None = None) -> tuple[int, Any]:
        """Get a path of Flower, or post to it: the status, and the body (decoded where it is JSON)."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.flower_port}{path}", data=post)
        if password is not None:
            request.add_header("Authorization", "Basic " + base64.b64encode(f"acts:{password}".encode()).decode())
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=10) as response:
                body = response.read().decode()
                is_json = response.headers.get_content_type() == "application/json"
                return response.status, json.loads(body) if is_json else body
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def ask_flower_until(self, path: str, read: Callable[[Any], Seen | None]) -> Seen:
        """Ask again until `read` makes something of the answer: Flower can be asked, but never calls."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        pause = threading.Event()
        answer: Any = None
        while time.monotonic() < deadline:
            status, answer = self.flower(path, password=self.secrets["FLOWER_PASSWORD"])
            if status == 200 and (seen := read(answer)) is not None:
                return seen
            pause.wait(INTERVAL_SECONDS)
        raise AssertionError(f"Flower's {path} after {DEADLINE_SECONDS} s: {answer}\n{self.logs()}")

    def logs(self) -> str:
        """The ends of all logs, for the message of a failure."""
        paths = sorted((self.directory / "logs").glob("*.log"))
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in paths)

    def _read_more(self, descriptor: int, deadline: float, awaited: str) -> None:
        readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, f"supervisord has not said {awaited!r} in time: {self.output.decode()}\n{self.logs()}"
        chunk = os.read(descriptor, 65_536)
        assert chunk, f"supervisord ended without {awaited!r}: {self.output.decode()}\n{self.logs()}"
        self.output += chunk

    def _read_to_the_end(self, descriptor: int) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            chunk = os.read(descriptor, 65_536)
            if not chunk:
                return
            self.output += chunk


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def is_listening(port: int) -> bool:
    """Whether anybody accepts connections on a port of 127.0.0.1."""
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def is_running(pid: int) -> bool:
    """Whether a process of this user lives."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def kill(pid: int) -> None:
    """End a process that we started, if it still lives."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def processes_naming(text: str) -> list[int]:
    """The processes with a text in their environment or on their command line (Linux; none elsewhere)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            content = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:  # it ended meanwhile, or is not ours
            continue
        if text.encode() in content:
            found.append(int(entry.name))
    return found
