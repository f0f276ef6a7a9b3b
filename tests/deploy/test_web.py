"""The examples of services run by the commands that they name, and do what docs/web.md says."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from acts_celery.broker_config import EmbeddedServer
from tests.acceptance import forks
from tests.environment import without_settings

from .files import DEPLOY, ROOT

WEB: Final = DEPLOY / "examples" / "web"
PAGE: Final = (ROOT / "docs" / "web.md").read_text(encoding="utf-8")
DEADLINE_SECONDS: Final = 60
ANY_PORT: Final = {"uvicorn": ["--port", "0"], "flask": ["--port", "0"], "python": ["--noreload", "127.0.0.1:0"]}
ORDER: Final = {"name": "Ann", "item": "tea"}
LETTER: Final = "Dear Ann, one tea is 4.00 euros."


def commands_of(file: Path) -> list[list[str]]:
    """The commands that the documentation of a module names."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return [shlex.split(line) for line in text.splitlines() if line.startswith("    ")]


@contextmanager
def example(name: str, main: str, folder: Path) -> Iterator[tuple[list[list[str]], Path, dict[str, str], ExitStack]]:
    """The commands of an example, a copy of it, the environment of both, and where what is started is ended."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    own = folder / name
    shutil.copytree(WEB / name, own)
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        addresses = {"ACTS_BROKER_URL": server.broker_url, "ACTS_REDIS_URL": server.redis_url}
        environment = without_settings() | addresses | {"PATH": path, "PYTHONUNBUFFERED": "1"}
        yield commands_of(own / main), own, environment, stack


def work(command: list[str], own: Path, environment: dict[str, str], stack: ExitStack) -> None:
    """Start a worker."""
    assert command[:2] == ["acts", "worker"]
    worker = [*command[1:], "--processes", "1", "--json"]
    stack.enter_context(forks.staying(worker, env=environment, folder=own, log=own.parent / "worker.log"))


@contextmanager
def serving(command: list[str], own: Path, environment: dict[str, str]) -> Iterator[httpx.Client]:
    """What asks a web server, which prints where it listens."""
    started = [*command, *ANY_PORT[command[0]]]
    out = subprocess.PIPE
    with subprocess.Popen(started, cwd=own, env=environment, stdout=out, stderr=subprocess.STDOUT) as server:
        assert server.stdout is not None
        said = b""
        try:
            while (found := re.search(rb"http://127\.0\.0\.1:[1-9]\d*", said)) is None:
                said += (line := server.stdout.readline())
                assert line, said.decode()
            with httpx.Client(base_url=found[0].decode(), timeout=DEADLINE_SECONDS) as client:
                yield client
        finally:
            forks.end(server)


def events(client: httpx.Client, path: str, after: str | None = None, most: int | None = None) -> list[dict[str, Any]]:
    """The events of a stream until its end, or until so many have come and the browser goes away."""
    found: list[dict[str, Any]] = []
    with client.stream("GET", path, headers={} if after is None else {"Last-Event-ID": after}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("data:"):
                found.append(json.loads(line.removeprefix("data:")))
                if len(found) == most:
                    break
    return found


def followed(client: httpx.Client, path: str) -> list[tuple[str, str, int | None]]:
    """What a browser is told that goes away after the first event and comes back."""
    (first,) = events(client, path, most=1)
    found = [first, *events(client, path, after=first["id"])]
    assert len({event["id"] for event in found}) == len(found)
    return [(event["kind"], event["status"], event["index"]) for event in found]


def test_plans_that_a_browser_sends_run_and_are_followed_with_fastapi(tmp_path: Path) -> None:
    with example("fastapi", "app.py", tmp_path) as ((worker, server), own, environment, stack):
        work(worker, own, environment, stack)
        client = stack.enter_context(serving(server, own, environment))
        shown = re.search(r"<textarea[^>]*>(.*?)</textarea>", client.get("/").text, re.DOTALL)
        assert shown
        plan = json.loads(shown[1])
        sent = [client.post("/runs", json=plan, headers={"Idempotency-Key": "one"}) for _ in range(2)]
        assert [(answer.status_code, answer.json()) for answer in sent] == [(202, {"run": "one"})] * 2
        told = followed(client, "/runs/one/events")
        assert [event for event in told if event[0] == "call" and event[1] == "done"] == [
            ("call", "done", 0),
            ("call", "done", 1),
        ]
        assert told[-1][:2] == ("run", "completed")
        assert client.get("/runs/one").json()["global"]["state"]["letter"] == LETTER
        plan["solution"]["calls"][0]["_tool"] = "prise"
        refused = client.post("/runs", json=plan)
        assert refused.status_code == 422
        places = {each["pointer"]: each["message"] for each in refused.json()["errors"]}
        assert "prise" in places["/solution/calls/0/_tool"]
        assert [client.get(f"/runs/none{path}").status_code for path in ("", "/events")] == [404, 404]


def test_orders_are_runs_and_are_followed_with_flask(tmp_path: Path) -> None:
    with example("flask", "app.py", tmp_path) as ((worker, server), own, environment, stack):
        work(worker, own, environment, stack)
        client = stack.enter_context(serving(server, own, environment))
        answer = client.post("/orders", json=ORDER, headers={"Idempotency-Key": "one"})
        assert (answer.status_code, answer.json()) == (202, {"order": "one"})
        assert followed(client, "/orders/one/events")[-1][:2] == ("run", "completed")
        assert client.get("/orders/one").json() == {"status": "completed", "letter": LETTER}
        refused = client.post("/orders", json={"name": "Ann"})
        assert refused.status_code == 422
        assert "item" in refused.json()["errors"][0]["message"]
        assert client.get("/orders/none/events").status_code == 404


def test_orders_are_rows_that_activities_read_and_write_with_django(tmp_path: Path) -> None:
    with example("django", "manage.py", tmp_path) as ((migrate, worker, server), own, environment, stack):
        subprocess.run(migrate, cwd=own, env=environment, check=True, timeout=DEADLINE_SECONDS, capture_output=True)
        work(worker, own, environment, stack)
        client = stack.enter_context(serving(server, own, environment))
        assert client.post("/orders", json={"name": "Ann"}).status_code == 400
        answer = client.post("/orders", json=ORDER)
        assert (answer.status_code, answer.json()) == (202, {"order": 1})
        while (looked := client.get("/orders/1").json())["status"] == "running":
            pass
        assert looked == {"order": 1, "letter": LETTER, "status": "completed"}
        assert client.get("/orders/2").status_code == 404


def test_a_celery_application_of_ones_own_submits_runs_that_use_its_tasks(tmp_path: Path) -> None:
    with example("celery", "shop.py", tmp_path) as ((theirs, worker, ask), own, environment, stack):
        environment["SHOP_URL"] = f"{environment['ACTS_BROKER_URL']}?virtual_host=1"  # another database
        work(worker, own, environment, stack)
        shop = subprocess.Popen([*theirs, "--pool", "solo"], cwd=own, env=environment, stderr=subprocess.DEVNULL)
        stack.callback(forks.end, shop)
        asked = subprocess.run(ask, cwd=own, env=environment, check=True, timeout=90, capture_output=True, text=True)
        waiting = ["acts", "wait", asked.stdout.strip(), "--json"]
        done = subprocess.run(waiting, cwd=own, env=environment, check=True, timeout=90, capture_output=True)
        assert json.loads(done.stdout)["global"]["state"]["letter"] == "Dear Ann, that is 4.00 euros."


@pytest.mark.parametrize(("file", "code"), re.findall(r"^```python (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_the_page_shows_code_of_the_examples(file: str, code: str) -> None:
    assert code in (WEB / file).read_text(encoding="utf-8")
