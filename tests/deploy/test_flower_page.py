"""Flower's list of tasks in a real browser: each row says which run, instance and call it is, and what failed.

The picture in docs/observe.md is taken here: FLOWER_SCREENSHOT=docs/images/flower.png names where it goes.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest

from acts_celery.broker_config import EmbeddedServer
from tests.worker.backend import Backend, Meeting, ended, meeting_url, settings_for

from .files import DEPLOY

pytestmark = pytest.mark.nightly

COLUMNS: Final = "name,args,state,received,runtime,worker"
PAGES: Final = "https://acts.example"
DEADLINE_SECONDS: Final = 60.0
INTERVAL_SECONDS: Final = 0.3
BROWSER: Final = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Cells(HTMLParser):
    """The rows of a page's tables, as the texts of their cells."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._is_in_cell = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self._is_in_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_in_cell = self._is_in_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.rows[-1][-1] += data.strip()


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Backend, str]]:
    """A worker, and Flower's address, started as the files of `deploy` start it."""
    folder = tmp_path_factory.mktemp("flower")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), Meeting(meeting_url(server)), folder)
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "acts_celery",
            "flower",
            f"--conf={DEPLOY / 'flowerconfig.py'}",
            "--address=127.0.0.1",
            f"--port={port}",
        ]
        env = backend.environment(FLOWER_UNAUTHENTICATED_API="true", ACTS_UI_URL=PAGES)
        with backend.log.open("ab") as log, ended([*command, f"--tasks-columns={COLUMNS}"], env, folder, log):
            address = f"http://127.0.0.1:{port}"
            asked_until(f"{address}/api/workers", lambda answer: answer is not None)
            with backend.worker("--name", "shop"):
                yield backend, address


def asked_until(url: str, is_enough: Any) -> Any:
    """What Flower answers, once it is enough: it can be asked, but never calls."""
    deadline, answer = time.monotonic() + DEADLINE_SECONDS, None
    pause = threading.Event()
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                answer = json.load(response)
            if is_enough(answer):
                return answer
        except (urllib.error.URLError, ConnectionError):
            pass  # it is still starting
        pause.wait(INTERVAL_SECONDS)
    raise AssertionError(f"{url}: {answer}")


def browsed(folder: Path, *options: str) -> bytes:
    """What the browser prints."""
    assert BROWSER is not None
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000"]
    profile = f"--user-data-dir={folder / 'profile'}"
    return subprocess.run([*command, profile, *options], capture_output=True, timeout=120, check=True).stdout


@pytest.mark.skipif(BROWSER is None, reason="there is no browser: apt-get install chromium")
def test_each_row_says_which_run_instance_and_call_it_is_and_what_failed(
    flower: tuple[Backend, str], tmp_path: Path
) -> None:
    backend, address = flower
    calls = [
        {"_tool": "remoteAdd", "a": 1, "b": 2, "_instance": "①", "_outputPath": "†state.sum"},
        {"_tool": "remoteAdd", "a": "†state.word", "b": 2, "_instance": "②", "_outputPath": "†state.sum"},
        {"_tool": "explode", "text": "boom", "_instance": "②", "_outputPath": "†state.no"},
        {"_tool": "noteAndFail", "name": "unseen", "_instance": "①"},
    ]
    context = [{"type": "state", "_instance": mark, "word": "x"} for mark in "①②"]
    run = backend.client.submit(context, {"calls": calls})
    backend.wait(run.id)

    def is_told(answer: dict[str, Any]) -> bool:
        return {task["name"] for task in answer.values() if task["state"] == "FAILURE"} >= {
            "acts.execute_instance",
            "acts.execute_background.noteAndFail",
        }

    tasks = asked_until(f"{address}/api/tasks", is_told)
    assert all("boom" not in str(task["exception"]) for task in tasks.values())
    page = browsed(tmp_path, "--dump-dom", f"{address}/tasks").decode()
    parser = Cells()
    parser.feed(page)
    head = next(row for row in parser.rows if "Name" in row)
    columns = [name for name in COLUMNS.split(",") if any(name in cell.lower() for cell in head)]
    assert columns == COLUMNS.split(","), head
    at = {name: next(n for n, cell in enumerate(head) if name in cell.lower()) for name in ("name", "args", "state")}
    rows = [[row[at[name]].strip("\"'") for name in at] for row in parser.rows if len(row) == len(head) and row != head]
    assert rows
    assert all(run.id in args for name, args, _ in rows if name != "acts.probe"), rows
    failed = [(name, args) for name, args, state in rows if state == "FAILURE"]
    page_of_run = f"{PAGES}/#/run/{run.id}"
    assert ("acts.execute_background.noteAndFail", f"{run.id} ① 3 noteAndFail {page_of_run}") in failed, rows
    assert all(page_of_run in args for _, args in failed), rows
    assert any(name == "acts.execute_instance" and "②" in args for name, args in failed), rows
    if picture := os.environ.get("FLOWER_SCREENSHOT"):
        place = Path(picture).resolve()
        browsed(tmp_path, f"--screenshot={place}", "--window-size=1400,520", f"{address}/tasks")
        assert place.read_bytes().startswith(b"\x89PNG")
