"""Reports: what a process that sees only the broker says of its calls, as it travels.

The names of the fields on the wire are those that workers of versions before this one read and write.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Final, NamedTuple

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

    @classmethod
    def of(cls, attempt: Attempt) -> AttemptRef:
        """How reports name an attempt."""
        id_ = attempt.id
        return cls(id_.run, lane_token(id_.instance), id_.index, attempt.number, shown_token(attempt))


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
        return Report(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


_NAMES: Final = {"completed": "closed", "reserved": "held"}
"""Fields that have another name on the wire."""
_REPORT: Final = TypeAdapter(Report)
_PROBE: Final = TypeAdapter(Probe)


def pack_report(report: Report) -> bytes:
    """The bytes of a report."""
    return pack({_NAMES.get(field.name, field.name): getattr(report, field.name) for field in fields(report)})


def unpack_report(data: object, limits: Limits) -> Report:
    """The inverse of `pack_report`. Raises `MalformedMessage`."""
    return read_packed(_REPORT, data, limits, limits.call_bytes)


def probe_task(probe: Probe) -> TaskMessage:
    """The task that takes a probe through its queue."""
    return TaskMessage(PROBE, probe.queue, pack(probe), "-", is_forgotten=True)


def unpack_probe(data: object, limits: Limits) -> Probe:
    """The inverse of `probe_task`'s body. Raises `MalformedMessage`."""
    return read_packed(_PROBE, data, limits, limits.message_bytes)
