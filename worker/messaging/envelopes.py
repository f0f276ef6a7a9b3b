"""Envelopes: several lanes of one run in one message of the broker, and one Celery task for each all the same.

Taking a message costs a round trip and much of kombu's and Celery's time; what a lane does costs little more. So where
many lanes of a run are published together they share messages, which the consumer takes apart into tasks, each with an
id, events and an answer of its own. The message is answered with the last of them.

An envelope holds a small part of what lies in the queue, so that workers share the lanes. One that has less room
than an envelope has lanes puts the rest back where it has taken it. RabbitMQ counts messages where a worker asks for no
more tasks than it has room for: there lanes travel alone.

Whoever writes to the queue is not trusted: how many lanes an envelope has, and its bytes, are bounded.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from kombu.utils.json import dumps

from broker_config import EXECUTE_INSTANCE, EXECUTE_INSTANCES
from protocol import Limits

from .admission import queue_of
from .messages import Lanes, TaskMessage, lanes_task, pack_lane_id, shown_lane, unpack_lanes
from .packing import pack

_MOST: Final = 20
"""How many lanes share a message at most."""
_MOST_BYTES: Final = 64 * 1024
"""How long their names may be together."""
_SHARES: Final = 16
"""Into so many messages the lanes that lie in the queue go before these hold more than one each."""


def enveloped(tasks: Iterable[TaskMessage]) -> Iterator[TaskMessage]:
    """The same tasks in fewer messages: lanes of one run that stand side by side come together."""
    for run, together in groupby(tasks, key=lambda task: task.lane and (task.lane[0], task.queue)):
        group = list(together)
        size = min(_MOST, max(len(group), *(task.among for task in group)) // _SHARES)
        if run is None or size < 2:
            yield from group
        else:
            for part in _parts(group, size):
                lanes = [task.lane[1] for task in part if task.lane is not None]
                yield part[0] if len(part) == 1 else lanes_task(Lanes(run[0], 0, lanes), run[1])


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


def task_ids(envelope: str, lanes: Lanes) -> list[str]:
    """The ids of an envelope's tasks; the same ones however often it is delivered."""
    return [f"{envelope}-{lanes.first + number}" for number in range(len(lanes.instances))]


def sent_events(envelope: str, lanes: Lanes, queue: str) -> list[dict[str, Any]]:
    """What Celery's events say of the tasks of an envelope that was sent."""
    place = {"queue": queue, "exchange": "", "routing_key": queue}
    plain = {"name": EXECUTE_INSTANCE, "kwargs": "-", "parent_id": None, "retries": 0, "eta": None, "expires": None}
    tasks = zip(task_ids(envelope, lanes), lanes.instances, strict=True)
    return [{"uuid": id_, "root_id": id_, "args": shown_lane(lanes.run, one), **plain, **place} for id_, one in tasks]


def is_envelope(message: Any) -> bool:
    """Whether a message of the broker is one."""
    return bool(message.headers["task"] == EXECUTE_INSTANCES)


def take_apart(message: Any, limits: Limits, room: int) -> list[Part]:
    """The tasks of an envelope, as many as there is room for; the rest is put back.

    Raises `MalformedMessage`, and what the transport raises where it cannot put the rest back.
    """
    arguments, _, _ = message.payload
    lanes = unpack_lanes(arguments[0] if len(arguments) == 1 else None, limits)
    if len(lanes.instances) > room:
        _put_back(message, replace(lanes, first=lanes.first + room, instances=lanes.instances[room:]))
        lanes = replace(lanes, instances=lanes.instances[:room])
    answer = _Answer(message, len(lanes.instances))
    ids = task_ids(message.headers["id"], lanes)
    return [Part(message, id_, lanes.run, one, answer) for id_, one in zip(ids, lanes.instances, strict=True)]


def _put_back(message: Any, lanes: Lanes) -> None:
    """Put an envelope back in front of its queue, in Redis."""
    channel, raw = message.channel, message._raw
    queue = queue_of(message)
    body = pack([[lanes_task(lanes, queue).body], {}, {}])
    encoded, _ = channel.encode_body(body, raw["properties"].get("body_encoding"))
    properties = {**raw["properties"], "delivery_tag": str(uuid.uuid4())}
    with channel.conn_or_acquire() as client:
        client.rpush(queue, dumps({**raw, "body": encoded, "properties": properties}))


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

    def __init__(self, message: Any, id_: str, run: str, instance: str | None, answer: _Answer) -> None:
        own = {"task": EXECUTE_INSTANCE, "id": id_, "root_id": id_, "argsrepr": shown_lane(run, instance)}
        self.headers = {**message.headers, **own}
        self.body: tuple[list[bytes], dict[str, Any], dict[str, Any]] = ([pack_lane_id(run, instance)], {}, {})
        self.payload = self.body
        self.delivery_info = message.delivery_info
        self.properties = {**message.properties, "correlation_id": id_}
        self.ack_log_error = self.reject_log_error = answer.give  # what is rejected is found in the log
