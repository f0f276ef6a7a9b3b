"""What travels between processes: the one argument of each task, as msgpack bytes.

A remote call's message carries everything that is needed to carry it out - resolved parameters and the scoped snapshot
(SPEC R8.4) - so that the worker that does needs no access to the log.

Any client of the broker can write messages. So nothing is taken for granted here: size before decoding, then the
shape, then for a result, which goes into the log, that it holds JSON values of a bounded depth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgpack
from pydantic import Field, TypeAdapter, ValidationError

from acts_celery.broker_config import DELIVER, EXECUTE_INSTANCE, PROBE, SEVERAL
from acts_celery.protocol import Limits, Message, Output
from acts_celery.protocol.engine.execution import Failure, Success
from acts_celery.protocol.language.errors import pointer
from acts_celery.protocol.language.limits import LONGEST_INSTANCE, MOST, TooManyContainers, unpacked, value_problems
from acts_celery.worker.errors import MalformedMessage

from .attempts import Attempt, Count, InstanceName, Milliseconds, Result, Retry, RunName, Token, lane_token
from .packing import pack, unpack

T = TypeVar("T")
Spent = Annotated[int, Field(ge=0, le=MOST)]

_ENVELOPE_BYTES: Final = 64 * 1024
"""What a message may hold beside what is limited in itself: ids, names, msgpack's own bytes."""
_MOST_PARTS: Final = 100
"""How many tasks are taken from one message."""
_MOST_TOGETHER_BYTES: Final = 192 * 1024
"""How many bytes those may have, with what is shown of them."""
_LONGEST_NAME: Final = 1_000
"""Characters of a model's name."""
_LONGEST_DELAY_SECONDS: Final = 366 * 86_400.0
LONGEST_TYPE: Final = 100
"""Characters of an error's type."""
LONGEST_WHY: Final = 300
"""Characters of what a report says of a request that was not answered."""


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
    among: int = 0
    """How many like it lie in the queue, as far as that is known."""
    envelope: Envelope | None = None
    """What it carries, where it is one."""


class LaneCall(NamedTuple):
    """What the task says that drives a lane."""

    run: RunName
    instance: InstanceName | None
    was_lost: bool = False
    """Whether the lane was driven before and gave no sign of life: it may be what its worker died of."""


@dataclass(frozen=True, slots=True)
class ActivityCall:
    """An activity's call on its way to a queue of its own, or to the background."""

    attempt: Attempt
    activity: str
    call: Mapping[str, Any]
    parameters: Mapping[str, Any]
    context: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """A delegate's call: its whole context, and how it is to be solved (SPEC R9.2)."""

    attempt: Attempt
    delegate: str
    context: Sequence[Mapping[str, Any]]
    schema: Any
    config: Mapping[str, Any]
    awaited: bool
    is_tick: bool = False
    """Whether it is the request of a loop's tick: its context are chat messages, and its result the whole answer."""
    streams: bool = False
    """Whether what has been written of the answer is told meanwhile, as a result `{WRITTEN: TEXT}` (SPEC R13.8)."""


WRITTEN: Final = "written"
"""The key of an answer's text that is not whole yet, in the result of a tick's request."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of a remote call on its way back."""

    attempt: Attempt
    result: Result
    child: str | None = None
    """The child run that it comes from."""


class Sign(NamedTuple):
    """Which attempt at which call a report speaks of."""

    run: RunName
    lane: Annotated[str, Field(max_length=LONGEST_INSTANCE)]
    call: Count
    attempt: Count
    token: Token = ""


class Closing(NamedTuple):
    """What came of an attempt at a fire-and-forget call: nothing to tell, or an error; and when it is tried again."""

    sign: Sign
    error: tuple[str, str] | None = None
    """Type and message."""
    delay_seconds: Annotated[float, Field(ge=0, le=_LONGEST_DELAY_SECONDS, allow_inf_nan=False)] | None = None


class Unanswered(NamedTuple):
    """A request to a model that was not answered yet, and is made again (SPEC R13.4)."""

    sign: Sign
    type: Annotated[str, Field(max_length=LONGEST_TYPE)]
    why: Annotated[str, Field(max_length=LONGEST_WHY)]
    tries: Count
    wait_ms: Milliseconds
    """How long it is until the next try."""


class Probe(NamedTuple):
    """What is sent through a queue: when it is taken, everything published there before was taken, too."""

    queue: Annotated[str, Field(max_length=_LONGEST_NAME)]
    published_ms: Count
    token: Token = ""
    """What shows that it was sent by a sweep (see `tokens`)."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one process says of its remote calls.

    `begun` are those at work, `ended` those reported before whose results are sent, `closed` the fire-and-forget calls,
    `held` those taken from a queue and not begun, `probes` came out of one, `unanswered` wait for a model.
    """

    begun: tuple[Sign, ...] = ()
    ended: tuple[Sign, ...] = ()
    closed: tuple[Closing, ...] = ()
    held: tuple[Sign, ...] = ()
    probes: tuple[Probe, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()


def pack_message(message: ActivityCall | DelegateCall) -> bytes:
    """The bytes of a remote call."""
    own = {field.name: getattr(message, field.name) for field in fields(message)}
    return pack({**own, "attempt": asdict(message.attempt)})


def unpack_activity_call(data: object, limits: Limits) -> ActivityCall:
    """The inverse of `pack_message`. Raises `MalformedMessage`."""
    return _read(_ACTIVITY_CALL, data, limits, limits.call_bytes)


def unpack_delegate_call(data: object, limits: Limits) -> DelegateCall:
    """The inverse of `pack_message`. Raises `MalformedMessage`."""
    return _read(_DELEGATE_CALL, data, limits, limits.call_bytes)


def pack_delivery(delivery: Delivery) -> bytes:
    """The bytes of a result."""
    result: dict[str, Any]
    cost = None if isinstance(delivery.result, Retry) else delivery.result.cost
    match delivery.result:
        case Success(Output(path, value)):
            result = {"path": path, "value": value}
        case Success(Message(content)):
            result = {"data_message": content}
        case Success(value):
            result = {"value": value}
        case Failure() as failure:
            result = {"type": failure.type[:LONGEST_TYPE], "message": failure.message}
        case Retry(failure, delay_seconds):
            result = {"type": failure.type[:LONGEST_TYPE], "message": failure.message, "delay_seconds": delay_seconds}
    extra = {"cost": dict(cost)} if cost is not None else {}
    child = {"child": delivery.child} if delivery.child is not None else {}
    return pack({"attempt": asdict(delivery.attempt), "result": result, **extra, **child})


def delivery_task(delivery: Delivery, queue: str) -> TaskMessage:
    """The task that brings a result back to its lane."""
    return TaskMessage(DELIVER, queue, pack_delivery(delivery), str(delivery.attempt.id))


def unpack_delivery(data: object, limits: Limits) -> Delivery:
    """The inverse of `pack_delivery`. Raises `MalformedMessage`."""
    packed = _read(_DELIVERY, data, limits, 2 * limits.message_bytes)
    problem = next(value_problems(packed.result, limits, "result"), None)
    if problem is not None:
        raise MalformedMessage(str(problem))
    match packed.result:
        case {"path": str(path), "value": value}:
            return Delivery(packed.attempt, Success(Output(path, value)))
        case {"data_message": dict(content)}:
            return Delivery(packed.attempt, Success(Message(content)))
        case {"value": value}:
            return Delivery(packed.attempt, Success(value, _cost(packed)), packed.child)
        case {"type": str(type_), "message": str(message), "delay_seconds": float(delay)} if len(type_) <= LONGEST_TYPE:
            if 0 <= delay <= _LONGEST_DELAY_SECONDS:
                return Delivery(packed.attempt, Retry(Failure(type_, message), delay))
        case {"type": str(type_), "message": str(message)} if len(packed.result) == 2 and len(type_) <= LONGEST_TYPE:
            return Delivery(packed.attempt, Failure(type_, message, _cost(packed)), packed.child)
    raise MalformedMessage("/result: neither a value nor an error within its bounds")


def sign_of(attempt: Attempt) -> Sign:
    """The sign of life of an attempt."""
    id_ = attempt.id
    return Sign(id_.run, lane_token(id_.instance), id_.index, attempt.number, attempt.token)


def closing_of(attempt: Attempt, result: Result) -> Closing:
    """What a report says of the result of a fire-and-forget call."""
    sign = sign_of(attempt)
    match result:
        case Success():
            return Closing(sign)
        case Retry(failure, delay_seconds):
            return Closing(sign, (failure.type, failure.message), delay_seconds)
        case Failure(type_, message):
            return Closing(sign, (type_, message))


def tick_answer(value: Any) -> Mapping[str, Any]:
    """What a delegate worker says of a tick's request: `written`, what there is of an answer so far; or `answer`, its
    text, or `error`, each with the `model` and its `usage`. Anything else is an invalid answer.
    """
    try:
        found = asdict(_TICK_ANSWER.validate_python(value))
        said = {key: part for key, part in found.items() if part is not None}
        if len(said.keys() & {WRITTEN, "answer", "error"}) == 1:
            return said
    except ValidationError:
        pass
    return {"error": {"type": "InvalidAnswer", "message": "what the delegate worker has sent is no answer of a model"}}


def pack_report(report: Report) -> bytes:
    """The bytes of a report."""
    return pack({field.name: getattr(report, field.name) for field in fields(report)})


def unpack_report(data: object, limits: Limits) -> Report:
    """The inverse of `pack_report`. Raises `MalformedMessage`."""
    return _read(_REPORT, data, limits, limits.call_bytes)


def pack_lane_call(call: LaneCall) -> bytes:
    """The bytes of what a lane's task says."""
    return pack([call.run, call.instance, call.was_lost] if call.was_lost else [call.run, call.instance])


def unpack_lane_call(data: object, limits: Limits) -> LaneCall:
    """The inverse of `pack_lane_call`. Raises `MalformedMessage`."""
    return LaneCall(*_read(_LANE_CALL, data, limits, limits.message_bytes))


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


def lane_task(run: str, instance: str | None, queue: str, among: int = 0, *, was_lost: bool = False) -> TaskMessage:
    """The task that drives a lane; `among` as in the message, `was_lost` as in `LaneCall`."""
    body = pack_lane_call(LaneCall(run, instance, was_lost))
    return TaskMessage(EXECUTE_INSTANCE, queue, body, f"{run} {instance or '-'}", among=among)


def envelope_task(tasks: Sequence[TaskMessage]) -> TaskMessage:
    """The message that carries several tasks of one name and queue."""
    envelope = Envelope(0, [(task.body, task.shown) for task in tasks])
    body, shown = pack_envelope(envelope), f"{len(tasks)} tasks"
    return replace(tasks[0], task=tasks[0].task + SEVERAL, body=body, shown=shown, envelope=envelope)


def pack_envelope(envelope: Envelope) -> bytes:
    """The bytes of an envelope."""
    return pack([envelope.first, envelope.parts])


def unpack_envelope(data: object, limits: Limits) -> Envelope:
    """The inverse of `pack_envelope`. Raises `MalformedMessage`."""
    return Envelope(*_read(_ENVELOPE, data, limits, _MOST_TOGETHER_BYTES))


def attempt_in(data: object, limits: Limits) -> Attempt:
    """Which attempt the message of a remote call is about. Raises `MalformedMessage`."""
    return _read(_ANY_CALL, data, limits, limits.call_bytes).attempt


def sign_in(data: object, limits: Limits) -> Sign:
    """Its sign. Raises `MalformedMessage`."""
    return sign_of(attempt_in(data, limits))


def probe_task(probe: Probe) -> TaskMessage:
    """The task that takes a probe through its queue."""
    return TaskMessage(PROBE, probe.queue, pack(probe), "-", is_forgotten=True)


def unpack_probe(data: object, limits: Limits) -> Probe:
    """The inverse of `probe_task`'s body. Raises `MalformedMessage`."""
    return _read(_PROBE, data, limits, limits.message_bytes)


@dataclass(frozen=True, slots=True)
class _TickUsage:
    """What a tick's answer has cost, as the provider counts it."""

    input: Spent
    output: Spent
    cached: Spent = 0


@dataclass(frozen=True, slots=True)
class _TickError:
    """Why there is no answer."""

    type: Annotated[str, Field(max_length=LONGEST_TYPE)]
    message: str


@dataclass(frozen=True, slots=True)
class _TickAnswer:
    """The result of a tick's request."""

    written: str | None = None
    answer: str | None = None
    error: _TickError | None = None
    model: Annotated[str, Field(max_length=_LONGEST_NAME)] | None = None
    usage: _TickUsage | None = None


@dataclass(frozen=True, slots=True)
class _Usage:
    """Tokens, as the provider counts them."""

    input: Count
    output: Count
    cached: Count


@dataclass(frozen=True, slots=True)
class _Cost:
    """What asking models has cost (see `Success`)."""

    tokens: Count
    calls: Count | None = None
    model: Annotated[str, Field(max_length=_LONGEST_NAME)] | None = None
    usage: _Usage | None = None
    seconds: Annotated[float, Field(ge=0, le=_LONGEST_DELAY_SECONDS, allow_inf_nan=False)] | None = None


def _cost(packed: _PackedDelivery) -> Mapping[str, Any] | None:
    if packed.cost is None:
        return None
    return {key: value for key, value in asdict(packed.cost).items() if value is not None}


@dataclass(frozen=True, slots=True)
class _PackedDelivery:
    """A delivery as it travels."""

    attempt: Attempt
    result: Mapping[str, Any]
    cost: _Cost | None = None
    child: RunName | None = None


@dataclass(frozen=True, slots=True)
class _AnyCall:
    """What the messages of all remote calls have."""

    attempt: Attempt


_ANY_CALL: Final = TypeAdapter(_AnyCall)
_ACTIVITY_CALL: Final = TypeAdapter(ActivityCall)
_DELEGATE_CALL: Final = TypeAdapter(DelegateCall)
_DELIVERY: Final = TypeAdapter(_PackedDelivery)
_TICK_ANSWER: Final = TypeAdapter(_TickAnswer)
_REPORT: Final = TypeAdapter(Report)
_PROBE: Final = TypeAdapter(Probe)
_LANE_CALL: Final = TypeAdapter(tuple[RunName, InstanceName | None] | tuple[RunName, InstanceName | None, bool])
_ENVELOPE: Final = TypeAdapter(
    tuple[
        Annotated[int, Field(ge=0, le=_MOST_PARTS)],
        Annotated[list[tuple[bytes, str]], Field(min_length=1, max_length=_MOST_PARTS)],
    ]
)


def _read(shape: TypeAdapter[T], data: object, limits: Limits, most_bytes: int) -> T:
    """What the bytes hold, if it has that shape. What they hold instead is not shown: it may be data."""
    if not isinstance(data, bytes):
        raise MalformedMessage("its argument is not bytes")
    if len(data) > most_bytes + _ENVELOPE_BYTES:
        raise MalformedMessage(f"{len(data)} bytes, where {most_bytes + _ENVELOPE_BYTES} are allowed")
    try:
        return shape.validate_python(unpacked(data, limits.containers))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise MalformedMessage(f"{pointer(*first['loc'])}: {first['msg']}") from None
    except TooManyContainers as error:
        raise MalformedMessage(str(error)) from None
    except (ValueError, TypeError, msgpack.UnpackException, MemoryError) as error:
        raise MalformedMessage(f"not msgpack: {type(error).__name__}") from None
