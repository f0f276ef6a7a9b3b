"""Faults of the house that a person on call meets: a log that has forgotten everything, one that takes no writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer

from .backend import Backend, Meeting, settings_for
from .test_control_cli import command

ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}


@pytest.fixture
def own(meeting: Meeting, tmp_path: Path) -> Iterator[Backend]:
    """A backend with a server of its own, which forgets nothing of the places where tests and activities meet."""
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), meeting, tmp_path)


def log_layer(backend: Backend) -> dict[str, Any]:
    layers: list[dict[str, Any]] = json.loads(command(backend, "doctor", "--json").stdout)["layers"]
    return next(layer for layer in layers if layer["layer"] == "log")


def test_workers_outlive_a_log_that_has_forgotten_everything(own: Backend) -> None:
    with own.worker() as worker:
        call = {"_tool": "waitAtGate", "gate": "amnesia", "_outputPath": "†state.a"}
        run = own.client.submit(solution={"calls": [call, {**ECHO, "value": "†state.a"}]})
        own.meeting.take("at:amnesia")
        own.redis.flushall()
        own.meeting.open_gate("amnesia")
        told = command(own, "status", run.id)
        assert (told.code, "it never was in this log" in told.stderr) == (4, True), told.stderr
        assert own.run([ECHO]).data() == {"state": {"a": 1}}
        assert worker.poll() is None
    assert "is not in the log (any more)" in own.log.read_text()


def test_a_replica_is_named_by_doctor_and_refuses_submissions_until_it_is_primary(own: Backend) -> None:
    with own.worker() as worker:
        own.redis.replicaof("127.0.0.1", "1")  # of a primary that is gone
        layer = log_layer(own)
        assert not layer["ok"]
        assert "it is a replica, which takes no writes" in layer["detail"]
        assert "give the address of the primary" in layer["remedy"]
        told = command(own, "submit", "-", stdin={"solution": {"calls": [ECHO]}})
        assert told.code == 3, told.stderr
        assert "read only replica" in told.stderr
        own.redis.replicaof("NO", "ONE")
        assert own.run([ECHO]).data() == {"state": {"a": 1}}
        assert worker.poll() is None
