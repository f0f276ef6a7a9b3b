"""Reports: what a process that sees only the broker says of its calls, as it travels.

The names of the fields on the wire are those that workers of versions before this one read and write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Final, NamedTuple, TypeAlias

from pydantic import Field, TypeAdapter

from acts_celery.broker_config import PROBE
from acts_celery.protocol import Limits
from acts_celery.protocol.engine.decisions import Failure, Success
from acts_celery.protocol.language.limits import LONGEST_INSTANCE

from .attempts import Attempt, Count, Milliseconds, Result, Retry, RunName, Token, lane_token
from .messages import LONGEST_DELAY_SECONDS, LONGEST_NAME, LONGEST_TYPE
from .packing import pack, read_packed
from .task_messages import TaskMessage
from .tokens import shown_token

LONGEST_WHY: Final = 300
"""Characters of what a report says of a request that was not answered."""


class AttemptRef(NamedTuple):
    """Which attempt at which call a report speaks of."""

    run: RunName
    lane: Annotated[str, Field(max_length=LONGEST_INSTANCE)]
    call: Count
    attempt: Count
    token: Token = ""
    """What shows that the call was given to who speaks of it (see `tokens.shown_token`)."""
    seal: Token = ""
    """That of the run: another one may have its id since. It travels beside the others, which older versions read."""

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptRef:
        """How reports name an attempt."""
        id_ = attempt.id
        return cls(id_.run, lane_token(id_.instance), id_.index, attempt.number, shown_token(attempt), attempt.seal)


class Completion(NamedTuple):
    """What came of an attempt at a fire-and-forget call: success, or an error; and when it is tried again."""

    ref: AttemptRef
    error: tuple[Annotated[str, Field(max_length=LONGEST_TYPE)], str] | None = None
    """Type and message."""
    delay_seconds: Annotated[float, Field(ge=0, le=LONGEST_DELAY_SECONDS, allow_inf_nan=False)] | None = None
    is_given_back: bool = False
    """Whether no code has run (SPEC R17.3)."""

    @classmethod
    def of(cls, attempt: Attempt, result: Result) -> Completion:
        """What a report says of the result of an attempt."""
        ref = AttemptRef.of(attempt)
        match result:
            case Success():
                return cls(ref)
            case Retry(failure, delay_seconds, is_given_back):
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


AboutCall: TypeAlias = AttemptRef | Completion | Unanswered
"""What a report says of a call."""


class Probe(NamedTuple):
    """What is sent through a queue: when it is taken, everything published there before was taken, too."""

    queue: Annotated[str, Field(max_length=LONGEST_NAME)]
    published_ms: Count
    token: Token = ""
    """What shows that it was sent by a sweep (see `tokens`)."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one process says of itself and its remote calls."""

    begun: tuple[AttemptRef, ...] = ()
    """Those at work."""
    ended: tuple[AttemptRef, ...] = ()
    """Those that were reported before and whose results are sent."""
    completed: Annotated[tuple[Completion, ...], Field(alias="closed")] = ()
    """The fire-and-forget calls that have ended."""
    reserved: Annotated[tuple[AttemptRef, ...], Field(alias="held")] = ()
    """Those taken from a queue and not begun."""
    probes: tuple[Probe, ...] = ()
    """Those that came out of a queue."""
    unanswered: tuple[Unanswered, ...] = ()
    """Those that wait for a model."""
    started: Count = 0
    """How many workers have begun: their code may admit what was given back (SPEC R17.3)."""

    def __add__(self, other: Report) -> Report:
        """What both say."""
        return Report(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(frozen=True, slots=True)
class _Packed(Report):
    """A report as it travels."""

    seals: Mapping[Annotated[str, Field(max_length=LONGEST_TYPE)], tuple[Token, ...]] = field(default_factory=dict)
    """Of what is said of calls, by the fields of the report."""


OF_CALLS: Final = ("begun", "ended", "reserved", "completed", "unanswered")
"""The fields of a report that are about calls."""
_NAMES: Final = {"completed": "closed", "reserved": "held"}
"""Fields that have another name on the wire."""
_UNSEALED: Final = AttemptRef._fields.index("seal")
_PACKED: Final = TypeAdapter(_Packed)
_PROBE: Final = TypeAdapter(Probe)


def pack_report(report: Report) -> bytes:
    """The bytes of a report."""
    said = {one.name: getattr(report, one.name) for one in fields(report)}
    seals = {name: [ref_of(one).seal for one in said[name]] for name in OF_CALLS if said[name]}
    said |= {name: [_unsealed(one) for one in said[name]] for name in OF_CALLS}
    return pack({_NAMES.get(name, name): value for name, value in said.items()} | ({"seals": seals} if seals else {}))


def unpack_report(data: object, limits: Limits) -> Report:
    """The inverse of `pack_report`. Raises `MalformedMessage`."""
    packed = read_packed(_PACKED, data, limits, limits.call_bytes)
    said = {one.name: getattr(packed, one.name) for one in fields(Report)}
    for name, seals in packed.seals.items():
        if name in OF_CALLS and len(seals) == len(said[name]):
            said[name] = tuple(map(_sealed, said[name], seals))
    return Report(**said)


def ref_of(one: AboutCall) -> AttemptRef:
    """Which attempt something that a report says is about."""
    return one if isinstance(one, AttemptRef) else one.ref


def _unsealed(one: AboutCall) -> tuple[object, ...]:
    return one[:_UNSEALED] if isinstance(one, AttemptRef) else (one.ref[:_UNSEALED], *one[1:])


def _sealed(one: AboutCall, seal: str) -> AboutCall:
    ref = ref_of(one)._replace(seal=seal)
    return ref if isinstance(one, AttemptRef) else one._replace(ref=ref)


def probe_task(probe: Probe) -> TaskMessage:
    """The task that takes a probe through its queue."""
    return TaskMessage(PROBE, probe.queue, pack(probe), "-", is_forgotten=True)


def unpack_probe(data: object, limits: Limits) -> Probe:
    """The inverse of `probe_task`'s body. Raises `MalformedMessage`."""
    return read_packed(_PROBE, data, limits, limits.message_bytes)
