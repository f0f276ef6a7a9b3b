"""An effect happens once, or a person is asked, wherever processes are killed (SPEC R4.11)."""

from __future__ import annotations

from pathlib import Path
from random import Random

from acts_celery.broker_config import EmbeddedServer
from tests.chaos import once

from .backend import Meeting


def test_r4_11_of_calls_whose_processes_are_killed_each_effect_happens_once(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend = once.ledger_backend(server, meeting, tmp_path, lease_seconds=1.5)
    with once.kept_alive(backend, processes=2):
        found = once.batch(backend, 12, Random(7), patience_seconds=3)
    assert [found[name] for name in once.WRONG] == [0, 0, 0]
    assert found["calls"] == 12
    assert once.killed(backend) >= 8
    assert found["asked"] >= 8
