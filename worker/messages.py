"""What travels between processes: the one argument of each task, as msgpack bytes.

A remote call's message carries everything that is needed to carry it out - resolved parameters and the scoped snapshot
(SPEC R8.4) - so that whoever does needs no access to the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from broker_config import DELIVER, EXECUTE_INSTANCE
from protocol import Output
from protocol.execution import Failure, Success

from .definition import pack, unpack


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """A task to be published: its name, its queue, its argument, and what operators are shown instead of that."""

    task: str
    queue: str
    body: bytes
    shown: str
    is_forgotten: bool = False
    """Fire and forget: no result backend, whatever is configured."""


@dataclass(frozen=True, slots=True)
class CallId:
    """Which call of which run; also the idempotency key that an activity can pass on."""

    run: str
    instance: str | None
    index: int

    def __str__(self) -> str:
        return f"{self.run} {self.instance or '-'} {self.index}"


@dataclass(frozen=True, slots=True)
class ActivityCall:
    """An activity's call on its way to a queue of its own, or to the background."""

    id: CallId
    activity: str
    call: Mapping[str, Any]
    parameters: Mapping[str, Any]
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """A delegate's call: its whole context, and how it is to be solved (SPEC R9.2)."""

    id: CallId
    delegate: str
    context: Sequence[Mapping[str, Any]]
    schema: Any
    config: Mapping[str, Any]
    awaited: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of a remote call on its way back."""

    id: CallId
    result: Success | Failure


def pack_message(message: ActivityCall | DelegateCall) -> bytes:
    """The bytes of a remote call."""
    return pack(asdict(message))


def unpack_activity_call(data: bytes) -> ActivityCall:
    """The inverse of `pack_message`."""
    fields = unpack(data)
    return ActivityCall(**{**fields, "id": CallId(**fields["id"])})


def unpack_delegate_call(data: bytes) -> DelegateCall:
    """The inverse of `pack_message`."""
    fields = unpack(data)
    return DelegateCall(**{**fields, "id": CallId(**fields["id"])})


def pack_delivery(delivery: Delivery) -> bytes:
    """The bytes of a result."""
    result: dict[str, Any]
    match delivery.result:
        case Success(Output(path, value)):
            result = {"path": path, "value": value}
        case Success(value):
            result = {"value": value}
        case Failure() as failure:
            result = {"type": failure.type, "message": failure.message}
    return pack({"id": asdict(delivery.id), "result": result})


def delivery_task(delivery: Delivery, queue: str) -> TaskMessage:
    """The task that brings a result back to its lane."""
    return TaskMessage(DELIVER, queue, pack_delivery(delivery), str(delivery.id))


def unpack_delivery(data: bytes) -> Delivery:
    """The inverse of `pack_delivery`."""
    fields = unpack(data)
    result: Success | Failure
    match fields["result"]:
        case {"path": path, "value": value}:
            result = Success(Output(path, value))
        case {"value": value}:
            result = Success(value)
        case failure:
            result = Failure(failure["type"], failure["message"])
    return Delivery(CallId(**fields["id"]), result)


def pack_lane_id(run: str, instance: str | None) -> bytes:
    """The bytes of a lane's name."""
    return pack([run, instance])


def unpack_lane_id(data: bytes) -> tuple[str, str | None]:
    """The inverse of `pack_lane_id`."""
    run, instance = unpack(data)
    return run, instance


def lane_task(run: str, instance: str | None, queue: str) -> TaskMessage:
    """The task that drives a lane."""
    return TaskMessage(EXECUTE_INSTANCE, queue, pack_lane_id(run, instance), f"{run} {instance or '-'}")
