"""msgpack, and JSON for events: nowhere is a pickle read, and nowhere is one written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from kombu.exceptions import EncodeError

from acts_celery.broker_config import EmbeddedServer, celery_configuration
from acts_celery.worker.broker.consumer import InFlight, keep_in_memory
from acts_celery.worker.runner.application import make_client_application
from tests.worker.backend import settings_for

SECRET = "canary-77b0"


def test_every_content_that_the_configuration_names_is_msgpack_but_for_events_in_json() -> None:
    settings = settings_for(EmbeddedServer(), result_backend_url="redis://localhost:6379/1")
    configuration = celery_configuration(settings)
    contents = {name: value for name, value in configuration.items() if name.endswith(("serializer", "_content"))}
    assert contents == {
        "accept_content": ["msgpack"],
        "result_accept_content": ["msgpack"],
        "task_serializer": "msgpack",
        "result_serializer": "msgpack",
        "event_serializer": "json",
    }


def test_what_is_no_data_cannot_be_sent() -> None:
    app = make_client_application(settings_for(EmbeddedServer()))
    with pytest.raises(EncodeError):
        app.send_task("any", args=[object()])


def test_kombus_emergency_dump_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would pickle messages into a file; what a worker has in hand is not restored."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with EmbeddedServer() as server:
        app = make_client_application(settings_for(server))
        app.send_task("any", args=[SECRET.encode()], queue="left")
        channel = app.connection_for_read().channel()
        keep_in_memory(channel, InFlight())
        assert SECRET.encode() in channel.basic_get("left", no_ack=False).body
    channel.qos.restore_unacked_once()
    assert list(tmp_path.iterdir()) == []
