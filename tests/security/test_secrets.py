"""Passwords, keys and what the calls work on show up nowhere: not on any output, in any log, in any event."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.worker.runner.application import make_client_application
from tests.worker.backend import ACTIVITIES, MODEL, Backend, Meeting

from .servers import free_port, redis_server

PASSWORD = "pw-canary-41c7"
KEY = "sk-canary-93d0"
DATA = "data-canary-e58b"
SENTINEL = "sentinel-canary-0a6f"
SECRETS = (PASSWORD, KEY, DATA, SENTINEL)


@dataclass
class Watched:
    """A backend with secrets everywhere, and everything that anybody can see of it."""

    backend: Backend
    seen: dict[str, str] = field(default_factory=dict)

    def acts(self, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a command, and note what it says."""
        result = subprocess.run(
            [sys.executable, "-m", "acts_celery", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.backend.environment(**environment),
            cwd=self.backend.folder,
            timeout=60,
            check=False,
        )
        self.seen[f"acts {' '.join(arguments)} #{len(self.seen)}"] = result.stdout + result.stderr
        return result


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """A run with every kind of call, some failing, while workers log at DEBUG and somebody listens to their events."""
    folder = tmp_path_factory.mktemp("secrets")
    port = free_port()
    url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
    with ExitStack() as stack:
        stack.enter_context(redis_server(folder, f"port {port}", f"requirepass {PASSWORD}"))
        elsewhere = stack.enter_context(EmbeddedServer())
        settings = load(
            env_file=None,
            broker_url=url,
            redis_url=url,
            result_backend_url=f"redis://:{PASSWORD}@127.0.0.1:{port}/3",
            activities=(str(ACTIVITIES),),
            model=MODEL,
            model_api_key=KEY,
            model_base_url=f"https://localhost/v1?password={PASSWORD}&api_key={KEY}",
            sentinel_password=SENTINEL,
        )
        watched = Watched(Backend(settings, Meeting(elsewhere.redis_url), folder))
        listener = stack.enter_context(_Listener(settings))
        with watched.backend.worker("-l", "DEBUG"):
            _work(watched.backend)
            _inspect(watched)
            listener.wait_for("task-succeeded", "task-failed", "task-sent", "task-received")
        watched.seen["events"] = listener.text
        watched.seen["the worker's log"] = watched.backend.log.read_text(errors="replace")
        yield watched


class _Listener:
    """Collects Celery's events."""

    def __init__(self, settings: Any) -> None:
        self._app = make_client_application(settings)
        self._kinds: set[str] = set()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._ready = threading.Event()
        self.text = ""

    def __enter__(self) -> _Listener:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._receiver.should_stop = True
        self._thread.join()

    def wait_for(self, *kinds: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: set(kinds) <= self._kinds, timeout=30), self._kinds

    def _listen(self) -> None:
        with self._app.connection_for_read() as connection:
            self._receiver = self._app.events.Receiver(connection, handlers={"*": self._take})
            self._ready.set()
            self._receiver.capture(limit=None, timeout=None, wakeup=False)

    def _take(self, event: dict[str, Any]) -> None:
        with self._news:
            self._kinds.add(event["type"])
            self.text += json.dumps(event, default=repr) + "\n"
            self._news.notify_all()


def _work(backend: Backend) -> None:
    context = [
        {"type": "state", "word": DATA, "_instance": "①"},
        {"type": "input", "text": DATA},
    ]
    calls: list[dict[str, Any]] = [
        {"_tool": "echo", "value": "†state.word", "_instance": "①", "_outputPath": "†state.a"},
        {"_tool": "ask", "_delegate": "showContext", "_scopes": ["state"], "_instance": "①", "_outputPath": "†state.b"},
        {"_tool": "ask", "_delegate": "failing", "_scopes": ["input"], "question": DATA, "_outputPath": "†state.c"},
        {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.d"},
        {"_tool": "note", "name": "noted", "value": DATA, "_scopes": ["input"]},
        {"_tool": "noteAndFail", "name": "failing"},
        {"_tool": "movePoint", "point": {"x": 1}, "by": {"x": "†input.text"}, "_outputPath": "†state.e"},
    ]
    result = backend.run(calls, context)
    assert {call.index: call.status for call in result.calls} == {
        0: "done", 1: "done", 2: "failed", 3: "done", 4: "sent", 5: "sent", 6: "failed",
    }  # fmt: skip
    backend.meeting.take("noted")
    backend.meeting.take("failing")


def _inspect(watched: Watched) -> None:
    app = make_client_application(watched.backend.settings)
    inspect = app.control.inspect(timeout=2, limit=1)
    for question in ("report", "stats", "active", "reserved", "registered"):
        watched.seen[f"inspect {question}"] = json.dumps(getattr(inspect, question)(), default=repr)
    watched.seen["inspect conf"] = json.dumps(inspect.conf(with_defaults=True), default=repr)
    assert "null" not in [text for name, text in watched.seen.items() if name.startswith("inspect")]
    watched.seen["the application's report"] = app.bugreport()
    watched.seen["the settings"] = repr(watched.backend.settings) + str(watched.backend.settings.masked())


def test_nothing_that_a_worker_shows_holds_a_secret(watched: Watched) -> None:
    assert {"events", "the worker's log", "inspect conf"} <= watched.seen.keys()
    assert "showContext" in watched.seen["the worker's log"]
    assert [(name, secret) for name, text in watched.seen.items() for secret in SECRETS if secret in text] == []


ECHO = json.dumps({"solution": {"calls": [{"_tool": "echo", "value": DATA, "_outputPath": "†state.a"}]}})
NOWHERE = f"redis://someone:{PASSWORD}@127.0.0.1:1/0"
ODD = f"redis://someone:{PASSWORD}/?#x@127.0.0.1:1/0"


@pytest.mark.parametrize("url", [NOWHERE, ODD, f"redis://:{PASSWORD}@127.0.0.1:port/0", f"http://:{PASSWORD}@x", None])
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_no_command_tells_a_secret(watched: Watched, url: str | None, debug: tuple[str, ...]) -> None:
    """`None` is the server itself, asked with another password."""
    if url is None:
        url = watched.backend.settings.require_redis().replace(PASSWORD, f"{PASSWORD}-wrong")
    for command in (("doctor",), ("doctor", "--json"), ("submit", "-"), ("status", "some-run"), ("log", "some-run")):
        result = watched.acts(*command, *debug, stdin=ECHO, ACTS_BROKER_URL=url, ACTS_REDIS_URL=url)
        assert result.returncode in (2, 3), command
        assert result.stdout + result.stderr
        told = [secret for secret in SECRETS if secret in result.stdout + result.stderr]
        assert told == [], (command, result)


def test_the_doctor_shows_what_is_configured_and_no_secret(watched: Watched) -> None:
    for options in ((), ("--json",)):
        result = watched.acts("doctor", *options)
        assert "redis://:***@127.0.0.1" in result.stdout
        assert [secret for secret in SECRETS if secret in result.stdout + result.stderr] == []


@pytest.mark.parametrize("how", ["wrong password", "nowhere"])
def test_a_worker_that_cannot_connect_tells_no_secret(watched: Watched, how: str, tmp_path: Path) -> None:
    right = watched.backend.settings.require_redis()
    url = NOWHERE if how == "nowhere" else right.replace(PASSWORD, f"{PASSWORD}-wrong")
    environment = watched.backend.environment(ACTS_BROKER_URL=url, ACTS_REDIS_URL=url)
    command = [sys.executable, "-m", "acts_celery", "worker", "-l", "DEBUG"]
    process = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    try:
        for line in process.stderr:
            said += line
            if "annot connect" in line or "password" in line:
                break
    finally:
        process.terminate()
        said += process.communicate()[1]
    assert "127.0.0.1" in said
    assert [secret for secret in SECRETS if secret in said] == []
