"""Messages as they lie in a queue in Redis, written by hand: what kombu would send, and what nobody should."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import msgpack

from acts_celery.broker_config import EXECUTE_INSTANCE

MSGPACK = "application/x-msgpack"


def message(
    body: bytes,
    *,
    task: object = EXECUTE_INSTANCE,
    content_type: str = MSGPACK,
    headers: object = None,
    properties: dict[str, Any] | None = None,
) -> bytes:
    """A message with that body; `headers` replace all, `properties` some."""
    named = {"lang": "py", "task": task, "id": str(uuid.uuid4()), "argsrepr": "-", "kwargsrepr": "-"}
    return json.dumps(
        {
            "body": base64.b64encode(body).decode(),
            "content-type": content_type,
            "content-encoding": "binary",
            "headers": named if headers is None else headers,
            "properties": {
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": "instances"},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": str(uuid.uuid4()),
                **(properties or {}),
            },
        }
    ).encode()


def task_body(*arguments: object) -> bytes:
    """What Celery makes of a task's arguments."""
    packed = msgpack.packb([arguments, {}, {"callbacks": None}])
    assert isinstance(packed, bytes)
    return packed


def packed(value: object) -> bytes:
    """The argument of one of our tasks."""
    result = msgpack.packb(value)
    assert isinstance(result, bytes)
    return result
