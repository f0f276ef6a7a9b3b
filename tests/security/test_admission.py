"""A worker takes what belongs to the queue it came from, whatever the message says (docs/security.md)."""

from __future__ import annotations

import uuid
from typing import Any

import msgpack
import pytest
import redis

from acts_celery.broker_config import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
)
from acts_celery.worker.runner.application import make_client_application

from .broker_messages import message, packed, task_body
from .users import Guarded

ID = {"run": "none", "instance": None, "index": 0}
NOTE = packed(
    {
        "attempt": {"id": ID},
        "activity": "note",
        "call": {"_tool": "note", "name": "forged"},
        "parameters": {"name": "forged"},
        "context": {},
    }
)
DELEGATE = packed(
    {
        "attempt": {"id": ID},
        "delegate": "showContext",
        "context": [],
        "schema": None,
        "config": {},
        "awaited": True,
    }
)
LANE = packed(["none", None])
ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
BACKGROUND = {"_tool": "note", "name": "told"}

FOREIGN = [
    ("delegates", "instances", EXECUTE_ACTIVITY, NOTE),
    ("delegates", "instances", EXECUTE_BACKGROUND, NOTE),
    ("delegates", "instances", EXECUTE_DELEGATE, DELEGATE),
    ("background", "instances", EXECUTE_ACTIVITY, NOTE),
    ("clients", "delegates", EXECUTE_ACTIVITY, NOTE),
    ("clients", "delegates", EXECUTE_INSTANCE, LANE),
    ("clients", "delegates", DELIVER, LANE),
    ("clients", "background", EXECUTE_ACTIVITY, NOTE),
    ("clients", "background", EXECUTE_INSTANCE, LANE),
    ("clients", "lathe", EXECUTE_DELEGATE, DELEGATE),
    ("clients", "lathe", EXECUTE_INSTANCE, LANE),
    ("clients", "lathe", "celery.map", packed([EXECUTE_ACTIVITY, [[NOTE]]])),
]


def refusals(guarded: Guarded, user: str) -> list[str]:
    """The lines of a worker's log that tell of a refusal."""
    text = (guarded.folder / f"{user}.log").read_text(errors="replace")
    return [line for line in text.splitlines() if "is refused" in line]


def put(guarded: Guarded, user: str, queue: str, content: bytes) -> None:
    """Put a message into a queue as one user."""
    with redis.Redis.from_url(guarded.url(user)) as connection:
        connection.lpush(queue, content)


def let_pass(guarded: Guarded, queue: str) -> None:
    """Return when everything that lay in a queue before was taken and judged."""
    run = guarded.as_("clients").client.submit
    calls: dict[str, list[dict[str, Any]]] = {
        "instances": [ECHO],
        "delegates": [{"_tool": "ask", "_delegate": "showContext", "_outputPath": "†state.a"}],
        "background": [BACKGROUND],
        "lathe": [{"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.a"}],
    }
    assert guarded.as_("clients").wait(run([], {"calls": calls[queue]}).id).status == "completed"
    if queue == "background":
        guarded.meeting.take("told")


WORKERS = {"instances": "instances", "delegates": "delegates", "background": "background", "lathe": "background"}


@pytest.mark.parametrize(("user", "queue", "task", "argument"), FOREIGN)
def test_a_task_of_another_queue_is_refused_in_one_line(
    guarded: Guarded, user: str, queue: str, task: str, argument: bytes
) -> None:
    before = len(refusals(guarded, WORKERS[queue]))
    # The sender says that it lay where such tasks belong.
    place = {"delivery_info": {"exchange": "", "routing_key": "background"}}
    put(guarded, user, queue, message(task_body(argument), task=task, properties=place))
    let_pass(guarded, queue)
    (line,) = refusals(guarded, WORKERS[queue])[before:]
    assert f"'{queue}'" in line
    assert "does not belong there" in line
    assert guarded.meeting.count("forged") == 0


FOLLOWED: dict[str, bytes] = {
    name: message(msgpack.packb([[LANE], {}, {name: value}]))
    for name, value in {
        "callbacks": [{"task": EXECUTE_ACTIVITY, "args": [NOTE]}],
        "errbacks": [{"task": EXECUTE_ACTIVITY, "args": [NOTE]}],
        "chain": [{"task": EXECUTE_ACTIVITY, "args": [NOTE]}],
        "chord": {"task": EXECUTE_ACTIVITY, "args": [NOTE]},
    }.items()
}
ASKING: dict[str, dict[str, object]] = {
    "eta": {"eta": "2999-01-01T00:00:00+00:00"},
    "expires": {"expires": "2999-01-01T00:00:00+00:00"},
    "group": {"group": "any"},
    "timelimit": {"timelimit": [0.001, None]},
    "retries": {"retries": 3},
    "stamps": {"stamps": {"a": "b"}, "stamped_headers": ["a"]},
}


@pytest.mark.parametrize(
    "content",
    [
        *FOLLOWED.values(),
        *(
            message(task_body(LANE), headers={"task": EXECUTE_INSTANCE, "id": str(uuid.uuid4()), **headers})
            for headers in ASKING.values()
        ),
        message(task_body(LANE), properties={"reply_to": "delegates"}),
        message(msgpack.packb([[LANE], {"named": 1}, {}])),
    ],
    ids=[*FOLLOWED, *ASKING, "reply_to", "kwargs"],
)
def test_a_task_that_asks_celery_for_more_is_refused_in_one_line(guarded: Guarded, content: bytes) -> None:
    before = len(refusals(guarded, "instances"))
    put(guarded, "delegates", "instances", content)
    let_pass(guarded, "instances")
    assert len(refusals(guarded, "instances")) == before + 1
    assert guarded.meeting.count("forged") == 0


def test_refusals_are_counted(guarded: Guarded) -> None:
    def counted() -> int:
        inspect = make_client_application(guarded.as_("flower").settings).control.inspect(timeout=5, limit=3)
        statistics: dict[str, Any] = inspect.stats()
        return sum(of_worker["refused"].get("messages", 0) for of_worker in statistics.values())

    before = counted()
    put(guarded, "delegates", "instances", message(task_body(NOTE), task=EXECUTE_ACTIVITY))
    let_pass(guarded, "instances")
    assert counted() == before + 1
