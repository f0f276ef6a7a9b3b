"""Two backends that differ in their prefix alone share a database: neither has the other's tasks or workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.runner.application import make_client_application

from .backend import Backend, Meeting, settings_for

CALLS: list[dict[str, Any]] = [
    {"_tool": "echo", "value": 1, "_outputPath": "†state.inline"},
    {"_tool": "echoFar", "value": 2, "_outputPath": "†state.far"},
    {"_tool": "note", "name": "forgotten"},
]


def test_backends_with_prefixes_of_their_own_share_a_database(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    one, other = (
        Backend(settings_for(server, key_prefix=f"house.{name}"), meeting, tmp_path) for name in ("one", "other")
    )
    queues = ("--queues", "instances,delegates,background,far")
    waiting = [other.client.submit(solution={"calls": CALLS}) for _ in range(5)]
    with one.worker(*queues):
        for _ in range(5):
            assert one.run(CALLS).data() == {"state": {"inline": 1, "far": 2}}
        assert [run.status()["status"] for run in waiting] == ["running"] * 5
        with other.worker(*queues):
            for run in waiting:
                assert other.wait(run.id).data() == {"state": {"inline": 1, "far": 2}}
            for backend in (one, other):
                answers = make_client_application(backend.settings).control.inspect(timeout=2).ping() or {}
                assert len(answers) == 1, answers
    for backend in (one, other):
        assert "not in the log" not in backend.log.read_text()
