"""What docs/deploying.md says of code that changes under runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from acts_celery.broker_config import EmbeddedServer
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for
from tests.worker.test_control_cli import command

from .pages import ROOT

PAGE: Final = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")
CALLS: Final = [
    {"_tool": "pay", "amount": 900, "_outputPath": "†state.a"},
    {"_tool": "pay", "amount": 5, "_outputPath": "†state.note"},
    {"_tool": "pay", "amount": 6, "note": "†state.note", "_outputPath": "†state.b"},
]


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    for name, code in re.findall(r"^```python (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(code, encoding="utf-8")
    with EmbeddedServer() as server:
        settings = settings_for(server, activities=(str(tmp_path / "pay_v1.py"),))
        yield Backend(settings, Meeting(meeting_url(server)), tmp_path)


def test_the_check_says_what_the_page_says_and_old_and_new_workers_share_the_calls(backend: Backend) -> None:
    found = re.search(r"^\$ acts check (.*)\n([^`]*)```$", PAGE, re.MULTILINE)
    assert found
    arguments, said = found.groups()
    run = backend.client.submit([], {"calls": CALLS})
    new = str(backend.folder / "pay_v2.py")
    told = command(backend, "check", *arguments.replace("pay_v2.py", new).split())
    assert told.code == 1
    assert told.stdout.replace(run.id, "RUN") == said
    queues = re.findall(r"^ACTS_ACTIVITIES=(\S+) acts worker --queues (\S+)", PAGE, re.MULTILINE)
    (old, old_queues), (_, new_queues) = queues
    with (
        backend.worker("-Q", new_queues, ACTS_ACTIVITIES=new),
        backend.worker("-Q", old_queues, ACTS_ACTIVITIES=str(backend.folder / old)),
    ):
        result = backend.wait(run.id)
    assert result.data()["state"] == {"a": "paid 900", "note": "paid 5", "b": "paid 6"}
