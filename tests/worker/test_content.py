"""Nothing but msgpack is decoded, and what operators are shown holds no data (DESIGN "Must hold" 3)."""

from __future__ import annotations

import base64
import json
import os
import pickle
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import msgpack
import pytest

from acts_celery.broker_config import DELIVER, EXECUTE_INSTANCE

from .backend import Backend
from .test_delegates import argument, queued


class Explosive:
    """Unpickled, it would leave a file."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> Any:
        return os.mkdir, (self._path,)


def envelope(backend: Backend, task: str, body: bytes, content_type: str) -> bytes:
    """A message as Celery puts it on a queue."""
    identity = str(uuid.uuid4())
    queue = backend.settings.queue_instances
    headers = {"lang": "py", "task": task, "id": identity, "root_id": identity, "argsrepr": "", "kwargsrepr": "{}"}
    properties = {
        "correlation_id": identity,
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": queue},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": str(uuid.uuid4()),
    }
    message = {
        "body": base64.b64encode(body).decode(),
        "content-encoding": "binary",
        "content-type": content_type,
        "headers": headers,
        "properties": properties,
    }
    return json.dumps(message).encode()


@pytest.mark.parametrize("task", [EXECUTE_INSTANCE, DELIVER])
@pytest.mark.parametrize("kind", ["json", "pickle", "yaml", "not msgpack", "no bytes", "garbage in bytes"])
def test_foreign_content_is_refused_and_harms_nothing(backend: Backend, tmp_path: Path, task: str, kind: str) -> None:
    target = tmp_path / "exploded"
    rest: list[Any] = [{}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]
    contents = {
        "json": (json.dumps([[1], *rest]).encode(), "application/json"),
        "pickle": (pickle.dumps([[Explosive(target)], *rest]), "application/x-python-serialize"),
        "yaml": (b"!!python/object/apply:os.mkdir ['x']", "application/x-yaml"),
        "not msgpack": (b"\xc1\xc1\xc1", "application/x-msgpack"),
        "no bytes": (msgpack.packb([[{"run": "x"}], *rest]), "application/x-msgpack"),
        "garbage in bytes": (msgpack.packb([[pickle.dumps(Explosive(target))], *rest]), "application/x-msgpack"),
    }
    body, content_type = contents[kind]
    backend.redis.lpush(backend.settings.queue_instances, envelope(backend, task, body, content_type))
    result = backend.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}])
    assert result.status == "completed"
    assert not target.exists()


def test_what_operators_are_shown_of_a_remote_call_holds_no_data(aside: Backend) -> None:
    aside.redis.delete(aside.queue("aside-delegates"))
    call = {"_tool": "ask", "_delegate": "showContext", "_scopes": ["state"], "word": "verysecret", "_instance": "①",
            "_outputPath": "†state.x"}  # fmt: skip
    run = aside.client.submit([{"type": "state", "password": "verysecret", "_instance": "①"}], {"calls": [call]})
    message = queued(aside, "aside-delegates")
    headers = json.dumps(message["headers"], ensure_ascii=False)
    assert "verysecret" in json.dumps(argument(message))
    assert "verysecret" not in headers
    assert message["headers"]["argsrepr"] == f"{run.id} ① 0 showContext"
    assert message["content-type"] == "application/x-msgpack"


def test_what_operators_are_shown_of_a_lane_is_its_name(aside: Backend) -> None:
    client = type(aside.client)(aside.settings.model_copy(update={"queue_instances": "unserved"}))
    run = client.submit(
        [{"type": "state", "a": "verysecret"}],
        {"calls": [{"_tool": "echo", "value": "verysecret", "_outputPath": "†data.a"}]},
    )
    message = queued(aside, "unserved")
    assert "verysecret" not in json.dumps(message)
    assert message["headers"]["argsrepr"] == f"{run.id} -"
    assert argument(message) == [run.id, None]
    client.close()


def test_a_client_leaves_what_its_process_decodes_as_it_was(backend: Backend) -> None:
    code = """
import sys, kombu.compression, kombu.serialization as of
before = kombu.compression.get_decoder("gzip"), dict(of.registry._decoders), dict(of.registry._encoders)
from acts_celery import Client
Client().submit([], {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]})
assert before == (kombu.compression.get_decoder("gzip"), of.registry._decoders, of.registry._encoders)
"""
    environment = {**os.environ, **backend.settings.to_environment()}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
