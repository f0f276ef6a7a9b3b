"""Attempts: one execution of a call, what may come of it, and what its code can ask about it (SPEC R7.2).

from acts_celery import activity, current_call

@activity(retries=3)
def charge(amount: int) -> str:
    return bank.charge(amount, key=current_call().idempotency_key)
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Annotated, Any, Final
from weakref import WeakKeyDictionary

from pydantic import Field

from acts_celery.protocol.calls.elements import call_of, element_of
from acts_celery.protocol.engine.decisions import Failure, Success
from acts_celery.protocol.language.limits import LONGEST_INSTANCE

from .traces import PackedPlace, TracePlace, call_span, place_of_run

_OWNERS: Final = count(1)

Count = Annotated[int, Field(ge=0, lt=2**53)]
"""A number that Redis' scripts keep whole."""
RunName = Annotated[str, Field(min_length=1, max_length=200)]
InstanceName = Annotated[str, Field(min_length=1, max_length=LONGEST_INSTANCE)]
Token = Annotated[str, Field(max_length=200)]
WorkerName = Annotated[str, Field(max_length=200)]
Version = Annotated[str, Field(max_length=100)]
EntryId = Annotated[str, Field(pattern=r"^[0-9]{1,20}-[0-9]{1,20}$")]
"""The id of an entry of a log."""
Seen = tuple[EntryId, EntryId]
"""Up to which entry of its lane, and of the global lane, the log had been read."""
Milliseconds = Annotated[int, Field(ge=0, le=366 * 86_400_000)]
"""A span of time, of a year at most."""


def owner_token() -> str:
    """The name of one more owner of claims, another one in each process."""
    return f"{process_token()}{next(_OWNERS):x}"


def process_token() -> str:
    """What the names of all owners in this process begin with."""
    return _process_token(os.getpid())


@cache
def _process_token(process: int) -> str:
    return f"{secrets.token_hex(6)}."


def lane_token(instance: str | None) -> str:
    """How a lane is named in keys, tasks and events: the instance's token, or nothing for the global lane."""
    return instance or ""


def call_name(index: int, instance: str | None) -> str:
    """How a call is named within its run: its index, and its instance where it has one; an element of it as `3[5]`."""
    element = element_of(index)
    name = f"{index}" if element is None else f"{call_of(index)}[{element}]"
    return name if instance is None else f"{name}:{instance}"


@dataclass(frozen=True, slots=True)
class CallId:
    """Which call of which run."""

    run: RunName
    instance: InstanceName | None
    index: Count

    def __str__(self) -> str:
        return f"{self.run} {self.instance or '-'} {call_name(self.index, None)}"

    @property
    def idempotency_key(self) -> str:
        """The same text for every attempt at this call and for no other call: what an activity can pass on."""
        return f"{self.run}:{self.name}"

    @property
    def name(self) -> str:
        """How the call is named within its run."""
        return call_name(self.index, self.instance)

    @property
    def member(self) -> str:
        """How the call is named among those of its run: lane and index."""
        return f"{lane_token(self.instance)}\x1f{self.index}"

    @classmethod
    def of_member(cls, run: str, member: str) -> CallId:
        """The call of that `member`; a lane's name may hold anything."""
        lane, index = member.rsplit("\x1f", 1)
        return cls(run, lane or None, int(index))


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a call."""

    id: CallId
    number: Count = 1
    """Which execution of the call this is, counted from 1."""
    failures: Count = 0
    """How many of those before failed; the others were lost with their workers."""
    is_repeated: bool = False
    """Whether one before was lost: a repeated one is reported before it begins."""
    token: Token = field(default="", repr=False)
    """What shows that a result or a report is about a call that was given away (see `tokens`)."""
    seal: Token = field(default="", repr=False)
    """What shows that its run was really cancelled (see `cancellation`)."""
    took_ms: Milliseconds | None = None
    """How long its code was at work, once it has ended."""
    worker: WorkerName | None = None
    """Which worker has carried it out, once it has ended."""
    version: Version | None = None
    """Which version of the code that was; None where a model answered."""
    again: Count = 0
    """How often the call had ended before and was to be carried out again (SPEC R11.8)."""
    trace: PackedPlace = field(default="", repr=False)
    """The run's place in a trace, where it is not the root of its own."""
    seen: Seen | None = None
    """What a delegate, or a model, was shown of the log; None where that is no moment of it (see `Starter`)."""

    @property
    def place(self) -> TracePlace:
        """The span of the call."""
        above = TracePlace.unpack(self.trace) or place_of_run(self.id.run)
        return above.at(call_span(self.id.run, self.id.member, self.again))

    @property
    def losses(self) -> int:
        """How many executions of the call were lost."""
        return self.number - self.failures - 1


@dataclass(frozen=True, slots=True)
class Retry:
    """An attempt failed, and the call's policy grants another one, later; or it was given back."""

    failure: Failure
    delay_seconds: float
    is_given_back: bool = False
    """Whether no code has run: that of this worker does not admit the call (SPEC R17.3). How long the call rests then
    is for whoever knows since when it is given back.
    """


Result = Success | Failure | Retry
"""What comes of an attempt."""


def lost(losses: int) -> Failure:
    """What comes of a call whose workers have died as often as is allowed."""
    times = "once" if losses == 1 else f"{losses} times"
    text = f"its worker died {times} while it was at work: its end is not known, and it is not begun again"
    return Failure("WorkerLost", f"{text} (ACTS_LIMIT_ATTEMPTS)")


@dataclass(frozen=True, slots=True)
class CurrentCall:
    """The call that an activity or a delegate is carrying out."""

    run: str
    instance: str | None
    index: int
    """The call's position in the solution or plan."""
    attempt: int
    """Which execution of the call this is, counted from 1."""
    idempotency_key: str
    """The same text for every attempt at this call and for no other call."""
    element: int | None = None
    """Which element (from 0) of a call with `_each` it is; None of any other call."""
    traceparent: str = ""
    """The call's span, as the header `traceparent` of W3C Trace Context."""


_current: Final[ContextVar[Attempt]] = ContextVar("acts_current_call")
_tasks: Final[WeakKeyDictionary[asyncio.Task[Any], tuple[Attempt, str]]] = WeakKeyDictionary()


def current_attempt() -> Attempt | None:
    """What the code that asks carries out."""
    return _current.get(None)


def current_call() -> CurrentCall:
    """The call that this code was called for; in threads of one's own only with their context copied.

    Raises `LookupError` outside of an activity or a delegate.
    """
    attempt = current_attempt()
    if attempt is None:
        raise LookupError("no call is carried out here: only activities and delegates can ask for it")
    id_ = attempt.id
    index, element = call_of(id_.index), element_of(id_.index)
    place = attempt.place.header
    return CurrentCall(id_.run, id_.instance, index, attempt.number, id_.idempotency_key, element, place)


def enter(attempt: Attempt, name: str) -> None:
    """What runs in this context and task from now on carries out `attempt`, with the code of that name."""
    _current.set(attempt)
    task = asyncio.current_task()
    if task is not None:
        _tasks[task] = attempt, name


def attempt_of(task: asyncio.Task[Any] | None) -> tuple[Attempt, str] | None:
    """What a task carries out, and the name of the code."""
    return _tasks.get(task) if task is not None else None
