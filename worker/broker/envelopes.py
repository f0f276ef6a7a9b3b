"""Envelopes: several tasks of one name in one message of the broker, and one Celery task for each all the same.

Taking a message costs a round trip and much of kombu's and Celery's time; what a lane does, or a small call, costs
little more. So tasks that are published together share messages, which the consumer takes apart into tasks, each with
an id, events and an answer of its own. The message is answered with the last of them.

An envelope holds a small part of what lies in the queue, so that workers share the work. One that has less room than an
envelope has tasks puts the rest back where it has taken it. RabbitMQ counts messages where a worker asks for no more
tasks than it has room for: there each task travels alone.

A writer to the queue is not trusted: how many tasks an envelope has, and its bytes, are bounded.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from kombu.utils.json import dumps

from acts_celery.broker_config import DELIVER, EXECUTE_INSTANCE, SEVERAL
from acts_celery.protocol import Limits
from acts_celery.worker.wire.packing import pack
from acts_celery.worker.wire.task_messages import (
    TASKS,
    Envelope,
    TaskMessage,
    envelope_task,
    pack_envelope,
    unpack_envelope,
)

from .admission import queue_of
from .task_events import shown_name

_MOST: Final = 20
"""How many tasks share a message at most."""
_MOST_BYTES: Final = 64 * 1024
"""How many bytes they may have together."""
_SHARES: Final[Mapping[str, int]] = {EXECUTE_INSTANCE: 16, DELIVER: 1}
"""Into so many messages the tasks of a name that lie in a queue go before these hold more than one each.

A lane may be long, and results that come together are written together.
"""
_SHARES_OF_CALLS: Final = 4


def enveloped(tasks: Iterable[TaskMessage]) -> Iterator[TaskMessage]:
    """The same tasks in fewer messages."""
    groups = defaultdict[tuple[str, str, bool, int, int | None], list[TaskMessage]](list)
    for task in tasks:
        groups[task.task, task.queue, task.is_forgotten, task.returned, task.format].append(task)
    for (name, *_), group in groups.items():
        queued = max(len(group), *(task.queued for task in group))
        size = max(1, min(_MOST, queued // _SHARES.get(name, _SHARES_OF_CALLS)))
        for part in _parts(group, size):
            yield part[0] if len(part) == 1 else envelope_task(part)


def _parts(tasks: Sequence[TaskMessage], size: int) -> Iterator[list[TaskMessage]]:
    part: list[TaskMessage] = []
    free = _MOST_BYTES
    for task in tasks:
        if part and (len(part) == size or free < len(task.body)):
            yield part
            part, free = [], _MOST_BYTES
        part.append(task)
        free -= len(task.body)
    yield part


def task_ids(id_: str, envelope: Envelope) -> list[str]:
    """The ids of an envelope's tasks; the same ones however often it is delivered."""
    return [f"{id_}-{envelope.first + number}" for number in range(len(envelope.parts))]


def sent_events(id_: str, message: TaskMessage, envelope: Envelope) -> list[dict[str, Any]]:
    """What Celery's events say of the tasks of an envelope that was sent."""
    place = {"queue": message.queue, "exchange": "", "routing_key": message.queue}
    plain = {"kwargs": "-", "parent_id": None, "retries": 0, "eta": None, "expires": None}
    name = message.task.removesuffix(SEVERAL)
    tasks = zip(task_ids(id_, envelope), envelope.parts, strict=True)
    return [
        {"uuid": task, "root_id": task, "name": shown_name(name, shown), "args": shown, **plain, **place}
        for task, (_, shown) in tasks
    ]


def is_envelope(message: Any) -> bool:
    """Whether a message of the broker is one."""
    return bool(message.headers["task"].endswith(SEVERAL))


def take_apart(message: Any, limits: Limits, room: int) -> list[Part]:
    """The tasks of an envelope, as many as there is room for; the rest is put back.

    Raises `MalformedMessage`, and what the transport raises where it cannot put the rest back.
    """
    arguments, _, _ = message.payload
    envelope = unpack_envelope(arguments[0] if len(arguments) == 1 else None, limits)
    if len(envelope.parts) > room:
        _put_back(message, Envelope(envelope.first + room, envelope.parts[room:]))
        envelope = replace(envelope, parts=envelope.parts[:room])
    answer = _Answer(message, len(envelope.parts))
    ids = task_ids(message.headers["id"], envelope)
    return [Part(message, id_, *part, answer) for id_, part in zip(ids, envelope.parts, strict=True)]


def _put_back(message: Any, envelope: Envelope) -> None:
    """Put an envelope back in front of its queue, in Redis."""
    channel, raw = message.channel, message._raw
    body = pack([[pack_envelope(envelope)], {}, {}])
    encoded, _ = channel.encode_body(body, raw["properties"].get("body_encoding"))
    properties = {**raw["properties"], "delivery_tag": str(uuid.uuid4())}
    headers = {**raw["headers"], TASKS: len(envelope.parts)}
    with channel.conn_or_acquire() as client:
        client.rpush(queue_of(message), dumps({**raw, "body": encoded, "headers": headers, "properties": properties}))


@dataclass(slots=True)
class _Answer:
    """Answers a message when so many tasks have been answered."""

    message: Any
    missing: int

    def give(self, log: Any, errors: Any, *_: Any, **__: Any) -> None:
        self.missing -= 1
        if not self.missing:
            self.message.ack_log_error(log, errors)


class Part:
    """One task of an envelope, as Celery's request handling takes a message."""

    content_type = content_encoding = None  # its body is decoded

    def __init__(self, message: Any, id_: str, argument: bytes, shown: str, answer: _Answer) -> None:
        name = message.headers["task"].removesuffix(SEVERAL)
        self.headers = {**message.headers, "task": name, "id": id_, "root_id": id_, "argsrepr": shown}
        self.body: tuple[list[bytes], dict[str, Any], dict[str, Any]] = ([argument], {}, {})
        self.payload = self.body
        self.delivery_info = message.delivery_info
        self.properties = {**message.properties, "correlation_id": id_}
        self.ack_log_error = self.reject_log_error = answer.give  # what is rejected is found in the log
