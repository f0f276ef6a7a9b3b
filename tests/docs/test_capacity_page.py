"""The formulas of docs/deploying.md, held against a run."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgpack
import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.store.run_writer import measure_runs
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .pages import ROOT

PAGE: Final = (ROOT / "docs" / "deploying.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A worker, and a server that writes an append-only file."""
    folder: Path = tmp_path_factory.mktemp("capacity")
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), Meeting(meeting_url(server)), folder)
        backend.redis.config_set("appendonly", "yes")
        while backend.redis.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.02)
        with backend.worker():
            yield backend


def formulas() -> dict[str, Any]:
    found = re.search(r"^```python capacity\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    names: dict[str, Any] = {}
    exec(found[1], names)
    return names


@pytest.mark.parametrize(
    ("instances", "calls", "size", "within"),
    [
        (300, 3, 100, 0.2),
        pytest.param(1_000, 1, 10, 0.15, marks=pytest.mark.nightly),
        pytest.param(1_000, 5, 1_000, 0.15, marks=pytest.mark.nightly),
        pytest.param(4_000, 5, 100, 0.15, marks=pytest.mark.nightly),
    ],
)
def test_a_run_takes_what_the_page_says(backend: Backend, instances: int, calls: int, size: int, within: float) -> None:
    messages = [{"type": "state", "_instance": f"i{number:04}", "t": "x" * size} for number in range(instances)]
    chain = [
        {"_tool": "echoPlain", "value": f"†state.{'t' if at == 0 else f'v{at - 1}'}", "_outputPath": f"†state.v{at}"}
        for at in range(calls)
    ]
    backend.redis.config_resetstat()
    file_before = backend.redis.info("persistence")["aof_current_size"]
    run = backend.client.submit_document({"context": [*messages, {"type": "plan", "calls": chain}]})
    backend.wait(run.id)
    scripts = backend.redis.info("commandstats")["cmdstat_evalsha"]["calls"]
    written = backend.redis.info("persistence")["aof_current_size"] - file_before
    (held,) = measure_runs(backend.redis, backend.settings.key_prefix, [run.id])
    m, r = len(msgpack.packb(messages[0])), len(msgpack.packb("x" * size))
    expected = formulas()
    ratios = {
        "memory": held.bytes / expected["log_bytes"](instances, calls, m, r),
        "file": written / expected["file_bytes"](instances, calls, m, r),
        "scripts": scripts / expected["scripts"](instances, calls),
    }
    assert {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > within} == {}, ratios
