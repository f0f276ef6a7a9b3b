"""Remote calls, their results, and reports: what travels between processes as the argument of a task, in msgpack bytes.

A remote call's message carries everything that is needed to carry it out - resolved parameters and the scoped snapshot
(SPEC R8.4) - so that the worker that does needs no access to the log.

Any client of the broker can write messages. So nothing is taken for granted here: size and shape (`packing`), then for
a result, which goes into the log, that it holds JSON values of a bounded depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from acts_celery.broker_config import DELIVER
from acts_celery.protocol import Limits, Message, Output
from acts_celery.protocol.engine.decisions import Failure, Success
from acts_celery.protocol.language.limits import MOST, value_problems
from acts_celery.protocol.state.labels import TRUSTED, Labels, label_problems
from acts_celery.worker.errors import MalformedMessage

from .attempts import Attempt, Count, Result, Retry, RunName
from .packing import pack, read_packed
from .task_messages import TaskMessage

T = TypeVar("T")
Spent = Annotated[int, Field(ge=0, le=MOST)]

LONGEST_NAME: Final = 1_000
"""Characters of a model's name."""
LONGEST_DELAY_SECONDS: Final = 366 * 86_400.0
"""Until another attempt."""
LONGEST_TYPE: Final = 100
"""Characters of an error's type."""


@dataclass(frozen=True, slots=True)
class Untrusted:
    """What others wrote of what a call is given and that decides nothing by the labels of whoever has sent it; those of
    whoever carries it out may say more (SPEC R16.1).
    """

    tool: str
    code: str
    """The activity or the delegate."""
    chosen: Labels = TRUSTED
    given: Mapping[str, Labels] = field(default_factory=dict)

    def pack(self) -> dict[str, Any]:
        """As a message holds it."""
        given = {name: sorted(labels) for name, labels in self.given.items()}
        return {"tool": self.tool, "code": self.code, "chosen": sorted(self.chosen), "given": given}


@dataclass(frozen=True, slots=True)
class ActivityCall:
    """An activity's call on its way to a queue of its own, or to the background."""

    attempt: Attempt
    activity: str
    call: Mapping[str, Any]
    parameters: Mapping[str, Any]
    context: Mapping[str, Any]
    mark: str = ""
    """That of the contract under which the call was checked (SPEC R17.2); nothing where none is known."""
    untrusted: Untrusted | None = None


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
    untrusted: Untrusted | None = None
    provider_data: Mapping[str, str] = field(default_factory=dict)
    """What providers have said beside the answers of a loop's earlier ticks, by tick."""
    definition: str = ""
    """The name of the definition by which a model solves it: the operator of whoever asks the model may speak of it."""


WRITTEN: Final = "written"
"""The key of an answer's text that is not whole yet, in the result of a tick's request."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """The result of a remote call on its way back."""

    attempt: Attempt
    result: Result
    child: str | None = None
    """The child run that it comes from."""


def pack_message(message: ActivityCall | DelegateCall) -> bytes:
    """The bytes of a remote call."""
    fields = {**_fields(message), "attempt": _attempt_fields(message.attempt)}
    if message.untrusted is None:
        del fields["untrusted"]
    else:
        fields["untrusted"] = message.untrusted.pack()
    return pack(fields)


def _attempt_fields(attempt: Attempt) -> dict[str, Any]:
    """As `asdict`, which takes ten times as long; what is known only when it has ended is left out before."""
    fields = {**_fields(attempt), "id": _fields(attempt.id)}
    if attempt.worker is None:
        del fields["worker"], fields["version"]
    for name in ("again", "trace", "seen"):
        if not fields[name]:
            del fields[name]
    return fields


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def unpack_activity_call(data: object, limits: Limits) -> ActivityCall:
    """The inverse of `pack_message`. Raises `MalformedMessage`."""
    return read_packed(_ACTIVITY_CALL, data, limits, limits.call_bytes)


def unpack_delegate_call(data: object, limits: Limits) -> DelegateCall:
    """The inverse of `pack_message`. Raises `MalformedMessage`."""
    return read_packed(_DELEGATE_CALL, data, limits, limits.call_bytes)


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
        case Retry(failure, delay_seconds, is_given_back):
            result = {"type": failure.type[:LONGEST_TYPE], "message": failure.message, "delay_seconds": delay_seconds}
            result |= {"given_back": True} if is_given_back else {}
    labels = () if isinstance(delivery.result, Retry) else sorted(delivery.result.labels)
    extra = {**({"cost": dict(cost)} if cost is not None else {}), **({"labels": labels} if labels else {})}
    child = {"child": delivery.child} if delivery.child is not None else {}
    return pack({"attempt": _attempt_fields(delivery.attempt), "result": result, **extra, **child})


def delivery_task(delivery: Delivery, queue: str) -> TaskMessage:
    """The task that brings a result back to its lane."""
    return TaskMessage(DELIVER, queue, pack_delivery(delivery), str(delivery.attempt.id))


def unpack_delivery(data: object, limits: Limits) -> Delivery:
    """The inverse of `pack_delivery`. Raises `MalformedMessage`."""
    packed = read_packed(_DELIVERY, data, limits, 2 * limits.message_bytes)
    labels = (problem for label in packed.labels for problem in label_problems([label], "labels"))
    problem = next(chain(value_problems(packed.result, limits, "result"), labels), None)
    if problem is not None:
        raise MalformedMessage(str(problem))
    match packed.result:
        case {"path": str(path), "value": value}:
            return Delivery(packed.attempt, Success(Output(path, value), labels=packed.labels))
        case {"data_message": dict(content)}:
            return Delivery(packed.attempt, Success(Message(content), labels=packed.labels))
        case {"value": value}:
            return Delivery(packed.attempt, Success(value, _cost(packed), packed.labels), packed.child)
        case {"type": str(type_), "message": str(message), "delay_seconds": float(delay)} if len(type_) <= LONGEST_TYPE:
            if 0 <= delay <= LONGEST_DELAY_SECONDS:
                is_given_back = packed.result.get("given_back") is True
                return Delivery(packed.attempt, Retry(Failure(type_, message), delay, is_given_back))
        case {"type": str(type_), "message": str(message)} if len(packed.result) == 2 and len(type_) <= LONGEST_TYPE:
            return Delivery(packed.attempt, Failure(type_, message, _cost(packed), labels=packed.labels), packed.child)
    raise MalformedMessage("/result: neither a value nor an error within its bounds")


def tick_answer(value: Any) -> Mapping[str, Any]:
    """What a delegate worker says of a tick's request: `written`, what there is of an answer so far, and the `usage`
    where that was reported; or `answer`, its text, and the `words` beside it, or `error`, each with the `model`, its
    `usage`, `seconds` and `provider_data`. Anything else is an invalid answer.
    """
    try:
        said = asdict(_TICK_ANSWER.validate_python(value), dict_factory=_stated)
        if len(said.keys() & {WRITTEN, "answer", "error"}) == 1:
            return said
    except ValidationError:
        pass
    return {"error": {"type": "InvalidAnswer", "message": "what the delegate worker has sent is no answer of a model"}}


def _stated(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {key: part for key, part in fields if part is not None}


def attempt_in(data: object, limits: Limits) -> Attempt:
    """Which attempt the message of a remote call is about. Raises `MalformedMessage`."""
    return read_packed(_ANY_CALL, data, limits, limits.call_bytes).attempt


_Seconds = Annotated[float, Field(ge=0, le=LONGEST_DELAY_SECONDS, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class _TickUsage:
    """What a tick's answer has cost, as the provider counts it."""

    input: Spent
    output: Spent
    cached: Spent = 0
    is_whole: Literal[False] | None = None
    """Where it is not all that the answer has taken."""


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
    words: str | None = None
    error: _TickError | None = None
    model: Annotated[str, Field(max_length=LONGEST_NAME)] | None = None
    usage: _TickUsage | None = None
    seconds: _Seconds | None = None
    nanodollars: Count | None = None
    is_fallback: bool | None = None
    """Whether another model has answered than the one that was asked."""
    provider_data: str | None = None
    """What its provider said besides (see `DelegateCall`)."""


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
    model: Annotated[str, Field(max_length=LONGEST_NAME)] | None = None
    usage: _Usage | None = None
    seconds: _Seconds | None = None
    requests: Count | None = None
    estimated: Count | None = None
    nanodollars: Count | None = None
    unpriced: Count | None = None


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
    labels: Labels = TRUSTED


@dataclass(frozen=True, slots=True)
class _AnyCall:
    """What the messages of all remote calls have."""

    attempt: Attempt


_ANY_CALL: Final = TypeAdapter(_AnyCall)
_ACTIVITY_CALL: Final = TypeAdapter(ActivityCall)
_DELEGATE_CALL: Final = TypeAdapter(DelegateCall)
_DELIVERY: Final = TypeAdapter(_PackedDelivery)
_TICK_ANSWER: Final = TypeAdapter(_TickAnswer)
