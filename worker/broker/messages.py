"""Remote calls, their results, and reports: what travels between processes as the argument of a task, in msgpack bytes.

A remote call's message carries everything that is needed to run it - resolved parameters and the scoped snapshot
(SPEC R8.4) - so that the worker that does needs no access to the log. Only the request of a loop's tick is named in its
message, since it grows with each tick; workers that cannot read the log are sent the whole request.

Any client of the broker can write messages. So nothing is taken for granted here: size and shape (`packing`), then for
a result, which goes into the log, that it holds JSON values of a bounded depth.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import msgpack
from pydantic import Field, TypeAdapter, ValidationError

from ...broker_config import DELIVER, EXECUTE_INSTANCE, PROBE, SEVERAL
from ...protocol import Limits, Message, Output
from ...protocol.calls.declarations import CONTRACT_CHANGED
from ...protocol.engine.events import Failure, Success
from ...protocol.errors import pointer, shortened
from ...protocol.limits import LONGEST_INSTANCE, MOST, MOST_LABELS, TooManyContainers, unpacked, value_problems
from ...protocol.state.labels import TRUSTED, FieldLabels, Labels, field_problems, label_problems
from ..errors import MalformedMessage
from ..limits import (
    BESIDE_BYTES,
    LONGEST_GIVE_BACK_REASON,
    LONGEST_REST_SECONDS,
    LONGEST_RETRY_DELAY_SECONDS,
    LONGEST_TYPE,
    LONGEST_WHY,
    MOST_PARTS,
    MOST_TOGETHER_BYTES,
    NAME_CHARACTERS,
    SHORTEST_REST_SECONDS,
)
from .attempts import (
    Attempt,
    Count,
    InstanceName,
    Milliseconds,
    PackedProgress,
    Result,
    Retry,
    RunName,
    Token,
    lane_token,
    read_progress,
    shown_token,
)
from .queue_order import BAND

# msgpack: how everything of ours travels and is stored.
#
# Any client of the broker can write messages. So nothing is taken for granted of what comes from there: size before
# decoding, then the shape.


def pack(value: Any) -> bytes:
    """The bytes of a value made of what JSON knows, and bytes."""
    packed = msgpack.packb(value)
    assert isinstance(packed, bytes)
    return packed


def unpack(data: bytes) -> Any:
    """Read what `pack` has written."""
    return msgpack.unpackb(data, strict_map_key=False)


def read_packed(shape: TypeAdapter[T], data: object, limits: Limits, most_bytes: int) -> T:
    """Read bytes from outside that have to have this shape. Raises `MalformedMessage`, which does not show what they
    hold instead: it may be data.
    """
    if not isinstance(data, bytes):
        raise MalformedMessage("its argument is not bytes")
    if len(data) > most_bytes + BESIDE_BYTES:
        raise MalformedMessage(f"{len(data)} bytes, where {most_bytes + BESIDE_BYTES} are allowed")
    try:
        return shape.validate_python(unpacked(data, limits.containers))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise MalformedMessage(f"{pointer(*first['loc'])}: {first['msg']}") from None
    except TooManyContainers as error:
        raise MalformedMessage(str(error)) from None
    except (ValueError, TypeError, msgpack.UnpackException, MemoryError) as error:
        raise MalformedMessage(f"not msgpack: {type(error).__name__}") from None


# Tasks to be published: the name, queue and argument of each; those that drive lanes; several tasks in one message.

SENT: Final = "acts_sent"
"""The header of a message that says when it was published, in seconds since 1970: for figures alone."""
TASKS: Final = "acts_tasks"
"""The header that says how many tasks an envelope had when it was published, likewise."""
MESSAGE_FORMAT: Final = "acts_format"
"""The header that says which format a message has; without it, the first one."""
RETURNED: Final = "acts_returned"
"""The header that says how often a task was given back by workers that do not read it."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Several tasks of one name, on their way in one message."""

    first: int
    """The number of the first one of them."""
    parts: Sequence[tuple[bytes, str]]
    """For each task its argument, and what operators are shown instead of the argument."""


@dataclass(frozen=True, slots=True)
class TaskMessage:
    """A task to be published: its name, its queue, its argument, and what operators are shown instead of it."""

    task: str
    queue: str
    body: bytes
    shown: str
    is_forgotten: bool = False
    """Fire and forget: no result backend, whatever is configured."""
    queued: int = 0
    """The number of such tasks in the queue, if it is known."""
    envelope: Envelope | None = None
    """The envelope, where the message is one."""
    returned: int = 0
    """How often workers have given it back that do not read it, or its run."""
    format: int | None = None
    """The format that it says it has, if it does."""
    priority: int = 0
    """The priority of its run, 0 to 9: how soon it is taken among the messages in its queue."""


class LaneCall(NamedTuple):
    """The argument of a task that drives a lane."""

    run: RunName
    instance: InstanceName | None
    was_lost: bool = False
    """Whether the lane was driven before and gave no sign of life: it may be what its worker died of."""
    is_redelivered: bool = False
    """Whether the broker says that it delivers the task again; this does not travel."""


def lane_task(
    run: str, instance: str | None, queue: str, queued: int = 0, *, was_lost: bool = False, priority: int = 0
) -> TaskMessage:
    """The task that drives a lane; `among` as in the message, `was_lost` as in `LaneCall`."""
    body = pack_lane_call(LaneCall(run, instance, was_lost))
    return TaskMessage(EXECUTE_INSTANCE, queue, body, f"{run} {instance or '-'}", queued=queued, priority=priority)


def envelope_task(tasks: Sequence[TaskMessage]) -> TaskMessage:
    """The message that carries several tasks of one name and queue."""
    envelope = Envelope(0, [(task.body, task.shown) for task in tasks])
    body, shown = pack_envelope(envelope), f"{len(tasks)} tasks"
    return replace(tasks[0], task=tasks[0].task + SEVERAL, body=body, shown=shown, envelope=envelope)


def pack_task(message: TaskMessage) -> bytes:
    """The bytes of a fire-and-forget call's task, as the outbox keeps it."""
    return pack([message.task, message.queue, message.body, message.shown])


def unpack_task(data: bytes) -> TaskMessage:
    """Read what `pack_task` has written."""
    task, queue, body, shown = unpack(data)
    return TaskMessage(task, queue, body, shown, is_forgotten=True)


def is_once(message: TaskMessage) -> bool:
    """Whether the task of a fire-and-forget call says that it runs at most once (SPEC R4.11)."""
    return unpack(message.body).get("once") is True


def with_attempt(message: TaskMessage, number: int, failures: int, *, is_repeated: bool, token: str) -> TaskMessage:
    """Make the task of another attempt at the call of a task. A first one, of a dead letter, has any time."""
    call = unpack(message.body)
    how = {"number": number, "failures": failures, "is_repeated": is_repeated, "token": token}
    attempt = {**call["attempt"], **how}
    if number == 1:
        attempt.pop("ends_ms", None)
    return replace(message, body=pack({**call, "attempt": attempt}))


def pack_lane_call(call: LaneCall) -> bytes:
    """The bytes of what a lane's task says."""
    return pack([call.run, call.instance, call.was_lost] if call.was_lost else [call.run, call.instance])


def unpack_lane_call(data: object, limits: Limits) -> LaneCall:
    """Read what `pack_lane_call` has written. Raises `MalformedMessage`."""
    return LaneCall(*read_packed(_LANE_CALL, data, limits, limits.message_bytes))


def pack_envelope(envelope: Envelope) -> bytes:
    """The bytes of an envelope."""
    return pack([envelope.first, envelope.parts])


def unpack_envelope(data: object, limits: Limits) -> Envelope:
    """Read what `pack_envelope` has written. Raises `MalformedMessage`."""
    return Envelope(*read_packed(_ENVELOPE, data, limits, MOST_TOGETHER_BYTES))


_LANE_CALL: Final = TypeAdapter(tuple[RunName, InstanceName | None] | tuple[RunName, InstanceName | None, bool])
_ENVELOPE: Final = TypeAdapter(
    tuple[
        Annotated[int, Field(ge=0, le=MOST_PARTS)],
        Annotated[list[tuple[bytes, str]], Field(min_length=1, max_length=MOST_PARTS)],
    ]
)


T = TypeVar("T")
Spent = Annotated[int, Field(ge=0, le=MOST)]


@dataclass(frozen=True, slots=True)
class Untrusted:
    """The labels of what others wrote in a call's input, where its sender holds nothing for them; the process that runs
    the call may know more (SPEC R16.1).
    """

    tool: str
    code: str
    """The activity or the delegate."""
    chosen: Labels = TRUSTED
    given: Mapping[str, Labels] = field(default_factory=dict)
    hosts: frozenset[str] = frozenset()
    """Hosts of its addresses that the log names (SPEC R16.8)."""

    def pack(self) -> dict[str, Any]:
        """The fields of a message."""
        given = {name: sorted(labels) for name, labels in self.given.items()}
        hosts = {"hosts": sorted(self.hosts)} if self.hosts else {}
        return {"tool": self.tool, "code": self.code, "chosen": sorted(self.chosen), "given": given, **hosts}


@dataclass(frozen=True, slots=True)
class ActivityCall:
    """An activity's call on its way to a queue of its own, or to the background."""

    attempt: Attempt
    activity: str
    call: Mapping[str, Any]
    parameters: Mapping[str, Any]
    context: Mapping[str, Any]
    mark: str = ""
    """The mark of the contract under which the call was checked (SPEC R17.2); empty where none is known."""
    untrusted: Untrusted | None = None
    once: bool = False
    """Whether the call runs at most once (SPEC R4.11)."""


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
    """Marks the request of a loop's tick: its context are chat messages, and its result is the whole answer."""
    streams: bool = False
    """Whether parts of the answer are sent while it is written, as results `{WRITTEN: TEXT}` (SPEC R13.8)."""
    untrusted: Untrusted | None = None
    provider_data: Mapping[str, str] = field(default_factory=dict)
    """The providers' own data in the answers of a loop's earlier ticks, by tick."""
    definition: str = ""
    """The name of the definition by which a model solves it: the operator of the process that asks may limit it."""
    asked: str = ""
    """The digest of the request of a tick that is not in the message: who may read the log has it from there."""
    once: bool = False
    """Whether the call runs at most once (SPEC R4.11)."""
    admitted: bool = False
    """Marks a request to a model with a limit that has its slot (see `worker.store.slots`)."""


NOT_READ: Final = "RequestNotRead"
"""The type of the failure of a worker that has no access to the log and needs the whole request in the message."""
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
    for name in ("asked", "once", "admitted"):
        if not fields.get(name):
            fields.pop(name, None)
    return pack(fields)


def _attempt_fields(attempt: Attempt) -> dict[str, Any]:
    """The fields of an attempt, ten times faster than `asdict`; what is known only at its end is left out before."""
    fields = {**_fields(attempt), "id": _fields(attempt.id)}
    if attempt.worker is None:
        del fields["worker"], fields["version"]
    for name in ("again", "trace", "seen", "progress", "ends_ms", "priority"):
        if not fields[name]:
            del fields[name]
    return fields


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def unpack_activity_call(data: object, limits: Limits) -> ActivityCall:
    """Read what `pack_message` has written. Raises `MalformedMessage`."""
    return read_packed(_ACTIVITY_CALL, data, limits, limits.call_bytes)


def unpack_delegate_call(data: object, limits: Limits) -> DelegateCall:
    """Read what `pack_message` has written. Raises `MalformedMessage`."""
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
            result |= {"unknown": True} if failure.is_unknown else {}
        case Retry(failure, delay_seconds, is_given_back, progress):
            result = {"type": failure.type[:LONGEST_TYPE], "message": failure.message, "delay_seconds": delay_seconds}
            result |= {"given_back": True} if is_given_back else {}
            result |= {"progress": progress} if progress else {}
    labels = () if isinstance(delivery.result, Retry) else sorted(delivery.result.labels)
    by_field = [one.to_dict() for one in delivery.result.fields] if isinstance(delivery.result, Success) else []
    extra = {**({"cost": dict(cost)} if cost is not None else {}), **({"labels": labels} if labels else {})}
    kept = {"fields": by_field} if by_field else {}
    child = {"child": delivery.child} if delivery.child is not None else {}
    return pack({"attempt": _attempt_fields(delivery.attempt), "result": result, **extra, **kept, **child})


def delivery_task(delivery: Delivery, queue: str) -> TaskMessage:
    """The task that brings a result back to its lane."""
    attempt = delivery.attempt
    return TaskMessage(DELIVER, queue, pack_delivery(delivery), str(attempt.id), priority=attempt.priority)


def unpack_delivery(data: object, limits: Limits) -> Delivery:
    """Read what `pack_delivery` has written. Raises `MalformedMessage`."""
    packed = read_packed(_DELIVERY, data, limits, 2 * limits.message_bytes)
    progress = packed.result.pop("progress", b"")
    if progress and (not isinstance(progress, bytes) or read_progress(progress) is None):
        raise MalformedMessage("/result/progress: is no report of progress")
    of_whole = (problem for label in packed.labels for problem in label_problems([label], "labels"))
    by_field = (problem for one in packed.fields for problem in field_problems(one, "fields"))
    problem = next(chain(value_problems(packed.result, limits, "result"), of_whole, by_field), None)
    if problem is not None:
        raise MalformedMessage(str(problem))
    labels, declared = packed.labels, frozenset(map(FieldLabels.read, packed.fields))
    match packed.result:
        case {"path": str(path), "value": value}:
            return Delivery(packed.attempt, Success(Output(path, value), labels=labels, fields=declared))
        case {"data_message": dict(content)}:
            return Delivery(packed.attempt, Success(Message(content), labels=labels, fields=declared))
        case {"value": value}:
            return Delivery(packed.attempt, Success(value, _cost(packed), labels, declared), packed.child)
        case {"type": str(type_), "message": str(message), "delay_seconds": float(delay)} if len(type_) <= LONGEST_TYPE:
            if 0 <= delay <= LONGEST_RETRY_DELAY_SECONDS:
                is_given_back = packed.result.get("given_back") is True
                return Delivery(packed.attempt, Retry(Failure(type_, message), delay, is_given_back, progress))
        case {"type": str(type_), "message": str(message), "unknown": True} if len(type_) <= LONGEST_TYPE:
            return Delivery(packed.attempt, Failure(type_, message, labels=labels, is_unknown=True))
        case {"type": str(type_), "message": str(message)} if len(packed.result) == 2 and len(type_) <= LONGEST_TYPE:
            return Delivery(packed.attempt, Failure(type_, message, _cost(packed), labels=labels), packed.child)
    raise MalformedMessage("/result: neither a value nor an error within its bounds")


def tick_answer(value: Any) -> Mapping[str, Any]:
    """A delegate worker's answer to a tick's request: `written`, the text of an answer so far, and the `usage`
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


_Seconds = Annotated[float, Field(ge=0, le=LONGEST_RETRY_DELAY_SECONDS, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class _TickUsage:
    """The usage of a tick's answer, as the provider counts it."""

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
    model: Annotated[str, Field(max_length=NAME_CHARACTERS)] | None = None
    usage: _TickUsage | None = None
    seconds: _Seconds | None = None
    nanodollars: Count | None = None
    is_fallback: bool | None = None
    """Whether another model has answered than the one that was asked."""
    provider_data: str | None = None
    """The provider's own data (see `DelegateCall`)."""


@dataclass(frozen=True, slots=True)
class _Usage:
    """Tokens, as the provider counts them."""

    input: Count
    output: Count
    cached: Count


@dataclass(frozen=True, slots=True)
class _Cost:
    """The cost of asking models (see `Success`)."""

    tokens: Count
    calls: Count | None = None
    model: Annotated[str, Field(max_length=NAME_CHARACTERS)] | None = None
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
    result: dict[str, Any]
    cost: _Cost | None = None
    child: RunName | None = None
    labels: Labels = TRUSTED
    fields: Annotated[list[dict[str, list[str]]], Field(max_length=MOST_LABELS)] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _AnyCall:
    """The fields that the messages of all remote calls have."""

    attempt: Attempt


_ANY_CALL: Final = TypeAdapter(_AnyCall)
_ACTIVITY_CALL: Final = TypeAdapter(ActivityCall)
_DELEGATE_CALL: Final = TypeAdapter(DelegateCall)
_DELIVERY: Final = TypeAdapter(_PackedDelivery)
_TICK_ANSWER: Final = TypeAdapter(_TickAnswer)


# Reports: what a process that sees only the broker says of its calls, as it travels.


class AttemptRef(NamedTuple):
    """Which attempt at which call a report speaks of."""

    run: RunName
    lane: Annotated[str, Field(max_length=LONGEST_INSTANCE)]
    call: Count
    attempt: Count
    token: Token = ""
    """The proof that the sender was given the call (see `tokens.shown_token`)."""
    seal: Token = ""
    """The seal of the run: another one may have its id since."""

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptRef:
        """How reports name an attempt."""
        id_ = attempt.id
        return cls(id_.run, lane_token(id_.instance), id_.index, attempt.number, shown_token(attempt), attempt.seal)


class Completion(NamedTuple):
    """The end of an attempt at a fire-and-forget call: success, or an error; and when it is tried again."""

    ref: AttemptRef
    error: tuple[Annotated[str, Field(max_length=LONGEST_TYPE)], str] | None = None
    """Type and message."""
    delay_seconds: Annotated[float, Field(ge=0, le=LONGEST_RETRY_DELAY_SECONDS, allow_inf_nan=False)] | None = None
    is_given_back: bool = False
    """Whether no code has run (SPEC R17.3)."""

    @classmethod
    def of(cls, attempt: Attempt, result: Result) -> Completion:
        """Report the result of an attempt."""
        ref = AttemptRef.of(attempt)
        match result:
            case Success():
                return cls(ref)
            case Retry(failure, delay_seconds, is_given_back, _):
                return cls(ref, (failure.type[:LONGEST_TYPE], failure.message), delay_seconds, is_given_back)
            case Failure(type_, message):
                return cls(ref, (type_[:LONGEST_TYPE], message))


class Unanswered(NamedTuple):
    """A request to a model that was not answered yet, and is made again (SPEC R13.4)."""

    ref: AttemptRef
    type: Annotated[str, Field(max_length=LONGEST_TYPE)]
    why: Annotated[str, Field(max_length=LONGEST_WHY)]
    tries: Count
    wait_ms: Milliseconds
    """How long it is until the next try."""


class Progressed(NamedTuple):
    """The progress that a call at work has reported."""

    ref: AttemptRef
    said: PackedProgress


AboutCall: TypeAlias = AttemptRef | Completion | Unanswered | Progressed
"""The entries of a report about a call."""


class Probe(NamedTuple):
    """A message through a queue: when it is taken, everything published there before was taken, too."""

    queue: Annotated[str, Field(max_length=NAME_CHARACTERS)]
    published_ms: Count
    token: Token = ""
    """The proof that a sweep sent it (see `tokens`)."""


@dataclass(frozen=True, slots=True)
class Report:
    """The report of one process about itself and its remote calls."""

    begun: tuple[AttemptRef, ...] = ()
    """Calls at work."""
    ended: tuple[AttemptRef, ...] = ()
    """Calls that were reported before and whose results are sent."""
    completed: tuple[Completion, ...] = ()
    """The fire-and-forget calls that have ended."""
    reserved: tuple[AttemptRef, ...] = ()
    """Calls taken from a queue and not begun."""
    probes: tuple[Probe, ...] = ()
    """Probes that came out of a queue."""
    unanswered: tuple[Unanswered, ...] = ()
    """Requests that wait for a model."""
    progressed: tuple[Progressed, ...] = ()
    """The progress that calls at work have reported."""
    started: Count = 0
    """How many workers have begun: their code may admit what was given back (SPEC R17.3)."""

    def __add__(self, other: Report) -> Report:
        """Join two reports."""
        return Report(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


OF_CALLS: Final = ("begun", "ended", "reserved", "completed", "unanswered", "progressed")
"""The fields of a report that are about calls."""
_REPORT: Final = TypeAdapter(Report)
_PROBE: Final = TypeAdapter(Probe)


def pack_report(report: Report) -> bytes:
    """The bytes of a report."""
    return pack(_fields(report))


def unpack_report(data: object, limits: Limits) -> Report:
    """Read what `pack_report` has written. Raises `MalformedMessage`."""
    return read_packed(_REPORT, data, limits, limits.call_bytes)


def ref_of(one: AboutCall) -> AttemptRef:
    """Which attempt something that a report says is about."""
    return one if isinstance(one, AttemptRef) else one.ref


def probe_task(probe: Probe) -> TaskMessage:
    """The task that takes a probe through its queue, among the messages of its band."""
    queue, _, band = probe.queue.partition(BAND)
    return TaskMessage(PROBE, queue, pack(probe), "-", is_forgotten=True, priority=int(band or 0))


def unpack_probe(data: object, limits: Limits) -> Probe:
    """Read the body of a task of `probe_task`. Raises `MalformedMessage`."""
    return read_packed(_PROBE, data, limits, limits.message_bytes)


# Giving back: a call that the code here does not admit is left to a worker whose code does (SPEC R17.3).
#
# It is not begun, so it costs no attempt. It rests, and a worker that is free then takes it: the waits grow with the
# time since the log's first note of it, so a deployment of minutes costs a few tries. A worker that begins reports
# that, and what rests in the runs of the index `awaiting_code` is due at once (lua/reports.lua). When the first note is
# too long ago the call fails.


def given_back(reason: str) -> Retry:
    """The end of an attempt that is given back, for that reason."""
    return Retry(Failure(CONTRACT_CHANGED, shortened(reason, LONGEST_GIVE_BACK_REASON)), 0.0, is_given_back=True)


def unknown_code(what: str, name: str, worker: str) -> str:
    """Why a call is given back whose code is not here."""
    return f"{worker} has no {what} {name!r}, or its ACTS_ALLOW leaves it out: see ACTS_ACTIVITIES"


def refused_by(worker: str, why: str) -> str:
    """Why a call is given back whose code here has another contract (see `Activity.refusal`)."""
    return f"{worker} has {why}"


def rest_of(failure: Failure, since_ms: int, now_ms: int, wait_seconds: float, *, code_came_ms: int) -> float | Failure:
    """For how many seconds a call rests that is given back since then; or the failure, where it has waited enough.

    When a worker has begun, the waits are short again: another one may take the call before it does.
    """
    waited = max(0.0, (now_ms - since_ms) / 1000)
    if waited >= wait_seconds:
        text = f"for {waited:.0f} s no worker took it (ACTS_CONTRACT_WAIT_SECONDS): {failure.message}"
        return Failure(CONTRACT_CHANGED, text, is_for_no_alternative=True)
    tried = min(waited, (now_ms - code_came_ms) / 1000)
    rest = min(max(tried / 4, SHORTEST_REST_SECONDS), LONGEST_REST_SECONDS) * random.uniform(0.75, 1.25)
    return min(rest, wait_seconds - waited)
