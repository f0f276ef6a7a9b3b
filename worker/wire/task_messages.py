"""Tasks to be published: the name, queue and argument of each; those that drive lanes; several tasks in one message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final, NamedTuple

from pydantic import Field, TypeAdapter

from acts_celery.broker_config import EXECUTE_INSTANCE, SEVERAL
from acts_celery.protocol import Limits

from .attempts import InstanceName, RunName
from .packing import pack, read_packed, unpack

SENT: Final = "acts_sent"
"""The header of a message that says when it was published, in seconds since 1970: for figures alone."""
TASKS: Final = "acts_tasks"
"""The header that says how many tasks an envelope had when it was published, likewise."""
MESSAGE_FORMAT: Final = "acts_format"
"""The header that says which format a message has; without it, the first one."""
MESSAGES: Final = 1
"""The format of our messages. Who raises it writes the header, and reads the one before."""
RETURNED: Final = "acts_returned"
"""The header that says how often a task was given back by workers that do not read it."""
_MOST_PARTS: Final = 100
"""How many tasks are taken from one message."""
_MOST_TOGETHER_BYTES: Final = 192 * 1024
"""How many bytes those may have, with what is shown of them."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Several tasks of one name, on their way in one message."""

    first: int
    """The number of the first one of them."""
    parts: Sequence[tuple[bytes, str]]
    """Of each its argument, and what operators are shown instead of that."""


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """A task to be published: its name, its queue, its argument, and what operators are shown instead of that."""

    task: str
    queue: str
    body: bytes
    shown: str
    is_forgotten: bool = False
    """Fire and forget: no result backend, whatever is configured."""
    queued: int = 0
    """How many like it lie in the queue, as far as that is known."""
    envelope: Envelope | None = None
    """What it carries, where it is one."""
    returned: int = 0
    """How often workers have given it back that do not read it, or its run."""
    format: int | None = None
    """The one that it says it has, where it says so."""


class LaneCall(NamedTuple):
    """What the task says that drives a lane."""

    run: RunName
    instance: InstanceName | None
    was_lost: bool = False
    """Whether the lane was driven before and gave no sign of life: it may be what its worker died of."""
    is_redelivered: bool = False
    """Whether the broker says so, which delivers the task again; it does not travel."""


def lane_task(run: str, instance: str | None, queue: str, queued: int = 0, *, was_lost: bool = False) -> TaskMessage:
    """The task that drives a lane; `among` as in the message, `was_lost` as in `LaneCall`."""
    body = pack_lane_call(LaneCall(run, instance, was_lost))
    return TaskMessage(EXECUTE_INSTANCE, queue, body, f"{run} {instance or '-'}", queued=queued)


def envelope_task(tasks: Sequence[TaskMessage]) -> TaskMessage:
    """The message that carries several tasks of one name and queue."""
    envelope = Envelope(0, [(task.body, task.shown) for task in tasks])
    body, shown = pack_envelope(envelope), f"{len(tasks)} tasks"
    return replace(tasks[0], task=tasks[0].task + SEVERAL, body=body, shown=shown, envelope=envelope)


def pack_task(message: TaskMessage) -> bytes:
    """The bytes of a fire-and-forget call's task, as the outbox keeps it."""
    return pack([message.task, message.queue, message.body, message.shown])


def unpack_task(data: bytes) -> TaskMessage:
    """The inverse of `pack_task`."""
    task, queue, body, shown = unpack(data)
    return TaskMessage(task, queue, body, shown, is_forgotten=True)


def with_attempt(message: TaskMessage, number: int, failures: int, *, is_repeated: bool, token: str) -> TaskMessage:
    """The same call's task for another attempt."""
    call = unpack(message.body)
    how = {"number": number, "failures": failures, "is_repeated": is_repeated, "token": token}
    attempt = {**call["attempt"], **how}
    return replace(message, body=pack({**call, "attempt": attempt}))


def pack_lane_call(call: LaneCall) -> bytes:
    """The bytes of what a lane's task says."""
    return pack([call.run, call.instance, call.was_lost] if call.was_lost else [call.run, call.instance])


def unpack_lane_call(data: object, limits: Limits) -> LaneCall:
    """The inverse of `pack_lane_call`. Raises `MalformedMessage`."""
    return LaneCall(*read_packed(_LANE_CALL, data, limits, limits.message_bytes))


def pack_envelope(envelope: Envelope) -> bytes:
    """The bytes of an envelope."""
    return pack([envelope.first, envelope.parts])


def unpack_envelope(data: object, limits: Limits) -> Envelope:
    """The inverse of `pack_envelope`. Raises `MalformedMessage`."""
    return Envelope(*read_packed(_ENVELOPE, data, limits, _MOST_TOGETHER_BYTES))


_LANE_CALL: Final = TypeAdapter(tuple[RunName, InstanceName | None] | tuple[RunName, InstanceName | None, bool])
_ENVELOPE: Final = TypeAdapter(
    tuple[
        Annotated[int, Field(ge=0, le=_MOST_PARTS)],
        Annotated[list[tuple[bytes, str]], Field(min_length=1, max_length=_MOST_PARTS)],
    ]
)
