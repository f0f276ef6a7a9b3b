"""Secrets and tokens are shown nowhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest
from celery.worker.control import conf

from acts_celery.broker_config import EmbeddedServer, Settings, load
from acts_celery.broker_config.loading import mark
from acts_celery.protocol.engine.events import Failure, Success
from acts_celery.worker.broker.attempts import Attempt, CallId, Result, Retry
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import Delivery, delivery_task, unpack, unpack_activity_call
from acts_celery.worker.limits import limits_of
from acts_celery.worker.logs import Masking
from acts_celery.worker.runner.application import make_client_application
from tests.deploy.files import programs
from tests.few import few
from tests.worker.backend import ACTIVITIES, MODEL, Backend, Meeting, meeting_url, settings_for

from .servers import free_port, redis_server

# Passwords, keys and what the calls work on show up nowhere: not on any output, in any log, in any event.

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
@pytest.mark.parametrize("debug", few([("--debug",), ()], 1))
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


# Secrets in settings: whatever may hold one says so, and none is shown, by whichever way settings can be asked for.

SECRETS_SECRET_SETTINGS: dict[str, tuple[Any, str]] = {
    "broker_url": ("redis://u:hushhush1@host/0", "hushhush1"),
    "redis_url": ("redis://:hushhush2@host/0", "hushhush2"),
    "sentinel_password": ("hushhush3", "hushhush3"),
    "result_backend_url": ("redis://:hushhush4@host/0", "hushhush4"),
    "mcp": ({"crm": {"url": "https://crm.example", "headers": {"Authorization": "Bearer ${CRM_TOKEN}"}}}, "hushhush5"),
    "mcp_tokens": ("ann:submit:hushhush6-0123456789", "hushhush6-0123456789"),
    "ui_tokens": ("ann:read:hushhush7-0123456789,bob:read:other-0123456789", "hushhush7-0123456789"),
    "ui_redis_url": ("redis://:hushhush8@host/0", "hushhush8"),
    "model_base_url": ("https://host/v1?k=hushhush9", "hushhush9"),
    "model_api_key": ("hushhush10", "hushhush10"),
    "model_extra_body": ('{"api_key": "hushhush11"}', "hushhush11"),
    "models": ({"m": {"model": "openai:m", "base_url": "https://h/?k=hushhush12"}}, "hushhush12"),
    "hold_webhook_url": ("https://hook.example/hushhush13", "https://hook.example/hushhush13"),
    "hold_webhook_secret": ("hushhush14-hushhush", "hushhush14-hushhush"),
}
"""For each setting that may hold a secret a value, and what is secret in it."""
TOGETHER: dict[str, dict[str, Any]] = {
    "hold_webhook_url": {"hold_webhook_secret": "another-secret-text"},
    "hold_webhook_secret": {"hold_webhook_url": "https://hook.example/"},
    "model_base_url": {"model": "openai:m"},
    "model_api_key": {"model": "openai:m"},
    "model_extra_body": {"model": "openai:m"},
}


def test_every_setting_that_may_hold_a_secret_says_so() -> None:
    marked = {name for name, field in Settings.model_fields.items() if mark(field, "secret")}
    told = re.compile(r"Secret|ConfiguredModel|McpServer|ExtraBody")
    typed = {name for name, note in get_type_hints(Settings).items() if told.search(str(note))}
    named = re.compile(r"_(key|secret|password|tokens)$")
    named_so = {name for name in Settings.model_fields if named.search(name) and not name.startswith("limit_")}
    counts = {"model_context_tokens", "model_max_output_tokens"}
    assert (typed & set(Settings.model_fields)) | (named_so - counts) <= marked == set(SECRETS_SECRET_SETTINGS)


@pytest.mark.parametrize("name", SECRETS_SECRET_SETTINGS)
def test_what_is_secret_in_a_setting_is_shown_nowhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRM_TOKEN", "hushhush5")
    value, secret = SECRETS_SECRET_SETTINGS[name]
    addresses = {} if name == "broker_url" else {"broker_url": "redis://host/0"}
    given = {name: json.dumps(value) if isinstance(value, dict) else value}
    settings = load(env_file=None, **addresses, **TOGETHER.get(name, {}), **given)
    app = make_client_application(settings)
    app.conf.acts_settings = settings
    shown = (
        repr(settings),
        str(settings),
        str(settings.masked()),
        str(conf(SimpleNamespace(app=app))),
        app.bugreport(),
        Masking(settings)(f"it is <{secret}>"),
    )
    assert [text for text in shown if secret in text] == []


NEEDED: dict[str, set[str]] = {
    "redis": {"broker_url", "redis_url"},
    "instances": {"mcp", "hold_webhook_url", "hold_webhook_secret"},
    "delegates": {"mcp", "model_base_url", "model_api_key", "model_extra_body", "models"},
    "background": {"mcp", "model_base_url", "model_api_key", "model_extra_body", "models"},
    "flower": set(),
    "ui": {"ui_tokens", "ui_redis_url"},
}
"""What each program of supervisord has for its work; all that connect have where to, and how."""
CONNECTING = {"broker_url", "redis_url", "result_backend_url", "sentinel_password"}


@pytest.mark.parametrize("program", NEEDED)
def test_what_a_program_of_supervisord_should_not_have_is_empty_in_its_environment(program: str) -> None:
    assert set(programs()) == set(NEEDED)
    given = dict(re.findall(r'(\w+)="([^"]*)"', programs()[program]["environment"]))
    needed = NEEDED[program] | (CONNECTING if program != "redis" else set())
    names = {f"ACTS_{name.upper()}" for name in set(SECRETS_SECRET_SETTINGS) - needed}
    assert {name for name in names if given.get(name) != ""} == set()
    assert {name for name in needed if given.get(f"ACTS_{name.upper()}") == ""} <= CONNECTING


# Whoever overhears which call of which run is at work cannot answer for it (docs/security.md).

ECHO_TOKENS = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
CALL = {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.sum"}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("tokens"))


def test_a_result_without_the_token_of_its_attempt_is_refused(backend: Backend) -> None:
    publisher = Publisher(make_client_application(backend.settings))

    def deliver(attempt: Attempt, result: Result) -> None:
        publisher.deliver([delivery_task(Delivery(attempt, result), "instances")])

    with backend.worker("-Q", "instances"):
        run = backend.client.submit(solution={"calls": [CALL]})
        right = taken(backend)
        wrong = [
            replace(right, token=""),
            replace(right, token="0" * len(right.token)),
            replace(right, number=2),
            replace(right, id=CallId(run.id, None, 1)),
        ]
        for attempt in wrong:
            for forged in (Success({"sum": 13}), Failure("Forged", "forged"), Retry(Failure("Forged", "forged"), 0.0)):
                deliver(attempt, forged)
        assert backend.run([ECHO_TOKENS]).status == "completed", "handed in behind them, so done after them"
        assert run.status()["calls"] == {"running": 1}
        for _ in range(2):  # a duplicate does no harm
            deliver(right, Success({"sum": 3}))
        result = backend.wait(run.id)
        assert backend.run([ECHO_TOKENS]).status == "completed"
    assert (result.status, result.data()) == ("completed", {"state": {"sum": {"sum": 3}}})
    refused = [line for line in backend.log.read_text().splitlines() if "does not have the token" in line]
    assert len(refused) == 3 * len(wrong)
    assert right.token not in backend.log.read_text()


def taken(backend: Backend) -> Attempt:
    """The attempt in the oldest message of the activities' queue, which is taken from there."""
    found: Any = backend.redis.brpop(["lathe"], 30)
    assert found is not None
    raw = json.loads(found[1])
    (body,), _, _ = unpack(b64decode(raw["body"]))
    attempt = unpack_activity_call(body, limits_of(backend.settings)).attempt
    assert attempt.token not in json.dumps(raw["headers"]), "what events and Flower show"
    return attempt
