"""What docs/operations.md says of other Celery applications and of backups."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from celery import Celery

from acts_celery import Client
from acts_celery.broker_config import EmbeddedServer, GuardedProcess
from tests.environment import without_settings
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .pages import ROOT, run_page

PAGE: Final = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as server:
        yield server


def test_a_page_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    run_page(PAGE, tmp_path / "page")


def test_an_activity_uses_a_task_of_another_application_and_a_task_of_it_submits_a_run(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    for name in ("shop.py", "desk.py"):
        found = re.search(rf"^```python {name}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        assert found
        (tmp_path / name).write_text(found[1], encoding="utf-8")
    other = f"{server.broker_url}?virtual_host=1"  # another database
    backend = _backend(server, tmp_path, "desk.py")
    paths = {"SHOP_URL": other, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    theirs = [sys.executable, "-m", "celery", "-A", "shop", "worker", "--pool", "solo", "--loglevel", "error"]
    environment = {**without_settings(), **backend.settings.to_environment(), **paths}
    asking = [sys.executable, "-c", "from shop import start_order; print(start_order.delay('coffee').get(timeout=60))"]
    with backend.worker(**paths):
        process = GuardedProcess(theirs, env=environment, cwd=tmp_path)
        try:
            asked = subprocess.run(
                asking, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True, timeout=90
            )
            assert backend.wait(asked.stdout.strip()).data()["state"] == {"price": 6}
        finally:
            process.stop()


def test_a_task_of_yours_on_our_workers_has_positional_arguments_in_msgpack_alone(
    server: EmbeddedServer, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "import os\nimport msgpack\nfrom celery import shared_task\nfrom redis import Redis\n\n"
        "@shared_task(name='shop.note')\ndef note(name):\n"
        "    Redis.from_url(os.environ['MEETING_URL']).rpush('record:note', msgpack.packb(name))\n",
        encoding="utf-8",
    )
    backend = _backend(server, tmp_path, "mine.py")
    app = Celery("sending", broker=server.broker_url, set_as_current=False)
    with backend.worker("--queues", "instances,delegates,background,shop"):
        app.send_task("shop.note", ["json"], queue="shop", serializer="json")
        app.send_task("shop.note", [], {"name": "named"}, queue="shop", serializer="msgpack")
        app.send_task("shop.note", ["later"], queue="shop", serializer="msgpack", countdown=1)
        app.send_task("shop.note", ["plain"], queue="shop", serializer="msgpack")
        assert backend.meeting.take("note") == "plain"
    assert backend.meeting.count("note") == 0
    assert backend.log.read_text(encoding="utf-8").count("a message of 'shop' is refused") == 3


def test_a_run_goes_on_from_a_snapshot(server: EmbeddedServer, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "from pathlib import Path\nfrom acts_celery import activity\n\n"
        "@activity\ndef snapshot_step(name: str) -> str:\n"
        "    with Path(name).open('a') as done:\n        done.write('x')\n    return name\n",
        encoding="utf-8",
    )
    calls = [
        {"_tool": "snapshot_step", "name": "first", "_outputPath": "†state.first"},
        {"_tool": "snapshot_step", "name": "†state.first", "_outputPath": "†state.second"},
    ]
    document = {"solution": {"calls": calls}, "config": {"approve": ["†state.first"]}}
    backend = _backend(server, tmp_path, "steps.py")
    with backend.worker():
        run = backend.client.submit_document(document)
        assert next(event for event in run.follow(timeout_seconds=60) if event.kind == "held").index == 1
        backend.redis.save()
        run.approve(*run.held())
        assert backend.wait(run.id).status == "completed"
    other = EmbeddedServer()
    other.directory.mkdir(mode=0o700)
    shutil.copy(server.directory / "dump.rdb", other.directory)
    with other:
        again = _backend(other, tmp_path, "steps.py")
        with again.worker(), Client(again.settings) as client:
            assert client.run(run.id).result().calls[1].status == "held"
            found = client.run(run.id)
            found.approve(*found.held())
            assert again.wait(run.id).status == "completed"
    assert (tmp_path / "first").read_text(encoding="utf-8") == "xxx"  # once the first call, twice the second


def _backend(server: EmbeddedServer, folder: Path, *activities: str) -> Backend:
    """A backend whose workers run in the folder."""
    settings = settings_for(server, model=None, activities=tuple(str(folder / name) for name in activities))
    return Backend(settings, Meeting(meeting_url(server)), folder)
