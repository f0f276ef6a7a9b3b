"""Attempts: one execution of a call, what may come of it, and what its code can ask about it (SPEC R7.2).

from acts_celery import activity, current_call

@activity(retries=3)
def charge(amount: int) -> str:
    return bank.charge(amount, key=current_call().idempotency_key)
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache
from itertools import count
from typing import Annotated, Any, Final, Self
from weakref import WeakKeyDictionary

import msgpack
from pydantic import Field

from ...protocol.calls.call import call_of, element_of
from ...protocol.engine.events import Failure, Progress, Success
from ...protocol.errors import Rejected
from ...protocol.limits import (
    LONGEST_INSTANCE,
    MOST_URGENT,
    PROGRESS_BYTES,
    PROGRESS_SHARE,
    PROGRESS_TEXT,
    Limits,
    plain,
    unpacked,
    value_problems,
)
from .. import limits
from ..errors import InvalidProgress

# The place of a run in a trace (W3C Trace Context): ids that follow from run and call.
#
# Every process that needs an id makes the same one, so nothing has to be sent for it, and a span that is exported twice
# is one span. Only a run that was submitted within somebody's trace, or answers a call of another run, has its place
# written down.

_HEADER: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_PACKED: Final = r"^([0-9a-f]{32}-[0-9a-f]{16}-(0[01])?)?$"

PackedPlace = Annotated[str, Field(max_length=52, pattern=_PACKED)]
"""A place as it travels; empty where it follows from the run's id."""


@dataclass(frozen=True, slots=True)
class TracePlace:
    """A span, as what happens below it has to know it."""

    trace: str
    span: str
    is_sampled: bool | None = None
    """None where nobody has decided yet whether the trace is recorded."""

    @classmethod
    def read_header(cls, text: str) -> Self | None:
        """Read a header `traceparent`; None for a malformed one."""
        found = _HEADER.fullmatch(text)
        if found is None:
            return None
        version, trace, span, flags, more = found.groups()
        if version == "ff" or (version == "00" and more) or not int(trace, 16) or not int(span, 16):
            return None
        return cls(trace, span, bool(int(flags, 16) & limits.SAMPLED_FLAG))

    @property
    def header(self) -> str:
        """The header `traceparent`. Where nobody has decided, the trace is recorded."""
        return f"00-{self.trace}-{self.span}-{'00' if self.is_sampled is False else '01'}"

    def pack(self) -> str:
        """Write the text that a run's state and an attempt hold."""
        return f"{self.trace}-{self.span}-{'' if self.is_sampled is None else f'{self.is_sampled:02d}'}"

    @classmethod
    def unpack(cls, text: str) -> Self | None:
        """Read a text of `pack`; None for an empty one, or one that is no place."""
        if not text or re.fullmatch(_PACKED, text) is None:
            return None
        trace, span, flags = text.split("-")
        return cls(trace, span, None if not flags else flags == "01")

    def at(self, span: str) -> Self:
        """Another span of the same trace."""
        return replace(self, span=span)


def place_of_run(run: str, above: TracePlace | None = None) -> TracePlace:
    """A run's own span; `above` is what it was submitted under."""
    span = _digest(16, "run", run)
    return above.at(span) if above is not None else TracePlace(_digest(32, "trace", run), span)


def call_span(run: str, member: str, again: int = 0) -> str:
    """The span of a call, or of an element of it, by its `CallId.member`; one that is run again has another:
    `again` is how often the call had ended before.
    """
    return _digest(16, "call", run, member, str(again))


def part_span(span: str, part: str) -> str:
    """The span of a part of what another one is about."""
    return _digest(16, part, span)


def _digest(length: int, *parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:length]


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
PackedProgress = Annotated[bytes, Field(max_length=PROGRESS_BYTES)]
"""A report of progress, as `pack_progress` writes it."""
Milliseconds = Annotated[int, Field(ge=0, le=366 * 86_400_000)]
"""A span of time, of a year at most."""


def owner_token() -> str:
    """The name of one more owner of claims, another one in each process."""
    return f"{process_token()}{next(_OWNERS):x}"


def process_token() -> str:
    """The beginning of the names of all owners in this process."""
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
        """A text that all attempts at this call share, and no other call has: an activity can pass it on."""
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
    """The proof that a result or a report is about a call that was given away (see `tokens`)."""
    seal: Token = field(default="", repr=False)
    """The proof that its run was really cancelled (see `remote_control`)."""
    took_ms: Milliseconds | None = None
    """How long its code was at work, once it has ended."""
    worker: WorkerName | None = None
    """Which worker has run it, once it has ended."""
    version: Version | None = None
    """Which version of the code that was; None where a model answered."""
    again: Count = 0
    """How often the call had ended before and was to be run again (SPEC R11.8)."""
    trace: PackedPlace = field(default="", repr=False)
    """The run's place in a trace, where it is not the root of its own."""
    seen: Seen | None = None
    """The moment of the log that a delegate, or a model, was shown; None where there is no such moment (see `Starter`).
    """
    priority: Annotated[int, Field(ge=0, le=MOST_URGENT)] = 0
    """Priority of the run."""
    progress: PackedProgress = field(default=b"", repr=False)
    """The last progress that earlier attempts reported (see `pack_progress`)."""
    ends_ms: Count = 0
    """When the time of all attempts at the call is over, in ms since 1970; 0 where it has no limit."""

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
    """Whether no code has run, because this worker's does not admit the call (SPEC R17.3). How long the call rests then
    is for the process that knows since when it is given back.
    """
    progress: bytes = b""
    """The last progress that the attempt reported."""


Result = Success | Failure | Retry
"""Ways in which an attempt may end."""


NOT_KNOWN: Final = (
    "it began, and the log does not say how it ended: its worker died or gave no sign of life, or the log comes from "
    "a fork or a backup"
)
"""Says of a call that runs at most once and is not begun again by itself why that is (SPEC R4.11)."""


def lost(losses: int) -> Failure:
    """The failure of a call whose workers have died as often as is allowed."""
    times = "once" if losses == 1 else f"{losses} times"
    text = f"its worker died {times} while it was at work: its end is not known, and it is not begun again"
    return Failure("WorkerLost", f"{text} (ACTS_LIMIT_ATTEMPTS)")


@dataclass(frozen=True, slots=True)
class CurrentCall:
    """The call that an activity or a delegate is running."""

    run: str
    instance: str | None
    index: int
    """The call's position in the solution or plan."""
    attempt: int
    """Which execution of the call this is, counted from 1."""
    idempotency_key: str
    """A text that all attempts at this call share, and no other call has."""
    element: int | None = None
    """Which element (from 0) of a call with `_each` it is; None of any other call."""
    traceparent: str = ""
    """The call's span, as the header `traceparent` of W3C Trace Context."""
    last_progress: Progress | None = None
    """The last progress that an earlier attempt reported, to go on from; None where there is none."""

    def to_dict(self) -> dict[str, Any]:
        """Write the call as JSON, such as for a line of a log."""
        return asdict(self)

    def progress(
        self, done: float | None = None, total: float | None = None, text: str = "", *, details: Any = None
    ) -> None:
        """Report how far this attempt has come, to people, and with `details` (JSON) to the next attempt, which
        finds it in `last_progress`. It may be called as often as you like: what is newest is written, once a second,
        and less often in an attempt that takes long. A call that is sent and forgotten reports to nobody.

        Raises `InvalidProgress` for what is no JSON, or too large, and `LookupError` outside of the call.
        """
        reports = _reports.get(None)
        if reports is None:
            raise LookupError("no call runs here: only a call's own code, in its context, reports its progress")
        reports.note(pack_progress(Progress(done, total, text, details)))


_current: Final[ContextVar[Attempt]] = ContextVar("acts_current_call")
_reports: Final[ContextVar[ProgressReports]] = ContextVar("acts_progress")
REPORTER: Final[ContextVar[Callable[[Attempt, bytes], object]]] = ContextVar("acts_reporter")
"""The function that gets the progress of attempts that begin in this context, with the attempts."""
_tasks: Final[WeakKeyDictionary[asyncio.Task[Any], tuple[Attempt, str]]] = WeakKeyDictionary()


def current_attempt() -> Attempt | None:
    """The attempt that the code which asks is running."""
    return _current.get(None)


def current_call() -> CurrentCall:
    """Return the call that this code runs for; in threads that the code starts, only with its context copied.

    Raises `LookupError` outside of an activity or a delegate.
    """
    attempt = current_attempt()
    if attempt is None:
        raise LookupError("no call is running here: only activities and delegates can use this")
    id_ = attempt.id
    index, element = call_of(id_.index), element_of(id_.index)
    place, last = attempt.place.header, read_progress(attempt.progress)
    return CurrentCall(id_.run, id_.instance, index, attempt.number, id_.idempotency_key, element, place, last)


def enter(attempt: Attempt, name: str, reports: ProgressReports) -> None:
    """Note that this context and task run `attempt` from now on, with the code of that name, which reports there."""
    _current.set(attempt)
    _reports.set(reports)
    task = asyncio.current_task()
    if task is not None:
        _tasks[task] = attempt, name


def attempt_of(task: asyncio.Task[Any] | None) -> tuple[Attempt, str] | None:
    """The attempt that a task runs, and the name of the code."""
    return _tasks.get(task) if task is not None else None


# Progress: what the code of an attempt reports of it. The newest report is written, at once where none was lately, and
# then ever less often, so that what a call adds to the log is bounded however often it reports.


_PROGRESS: Final = Limits(depth=32, containers=PROGRESS_BYTES)


def pack_progress(progress: Progress) -> bytes:
    """Write a report as the log has it. Raises `InvalidProgress`."""
    numbers = {"done": progress.done, "total": progress.total}
    for name, number in numbers.items():
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if number is not None and not (is_number and 0 <= number <= limits.LARGEST_COUNT):
            raise InvalidProgress(
                f"{name} is {number!r:.80}: give a number from 0 to {limits.LARGEST_COUNT}, or leave it out"
            )
    if not isinstance(progress.text, str):
        raise InvalidProgress(f"text is {progress.text!r:.80}: give a text")
    try:
        fields = plain([*numbers.values(), progress.text[:PROGRESS_TEXT], progress.details], _PROGRESS)
    except Rejected as error:
        raise InvalidProgress(f"details: {error}: keep the data elsewhere") from None
    for name, value in zip(("text", "details"), fields[2:], strict=True):
        if (problem := next(value_problems(value, _PROGRESS, name), None)) is not None:
            raise InvalidProgress(f"{problem}: give what JSON has, such as an object of texts and numbers")
    packed: bytes = msgpack.packb(fields)
    if len(packed) > PROGRESS_BYTES:
        raise InvalidProgress(f"has {len(packed)} bytes, where {PROGRESS_BYTES} are allowed: keep the data elsewhere")
    return packed


def read_progress(packed: bytes) -> Progress | None:
    """Read what `pack_progress` has written; None for anything else, which a stranger may have sent."""
    if not packed or len(packed) > PROGRESS_BYTES:
        return None
    try:
        done, total, text, details = unpacked(packed, _PROGRESS.containers)
        found = Progress(done, total, text, details)
        pack_progress(found)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException, InvalidProgress):
        return None
    return found


_noting: Final = threading.Lock()


class ProgressReports:
    """The reports of one attempt, made on its event loop. Most attempts report nothing: it costs next to nothing."""

    __slots__ = ("_attempt", "_began", "_count", "_due", "_has_ended", "_is_planned", "_loop", "_send", "last")

    def __init__(self, attempt: Attempt, count: Callable[[], object]) -> None:
        """`count` is called for each report that is written."""
        self.last = b""
        """The newest report, written or not."""
        self._attempt = attempt
        self._count = count
        self._send = REPORTER.get(None)
        self._loop = asyncio.get_running_loop()
        self._is_planned = self._has_ended = False
        self._began = self._due = 0.0

    def note(self, packed: bytes) -> None:
        """Take a report, in any thread."""
        with _noting:
            if self._has_ended:
                return
            self._began = self._began or time.monotonic()
            self.last, is_planned, self._is_planned = packed, self._is_planned, True
        if not is_planned and self._send is not None:
            self._loop.call_soon_threadsafe(self._plan)

    def end(self) -> None:
        """Write nothing more: the attempt has ended."""
        self._has_ended = True

    def _plan(self) -> None:
        self._loop.call_later(max(0.0, self._due - time.monotonic()), self._write)

    def _write(self) -> None:
        with _noting:
            self._is_planned = False
        if self._has_ended or self._send is None:
            return
        now = time.monotonic()
        self._due = now + max(limits.PROGRESS_SECONDS, (now - self._began) / PROGRESS_SHARE)
        self._send(self._attempt, self.last)
        self._count()


# Tokens of remote attempts: what shows that a result or a report comes from the worker that was given the call.
#
# Run, instance and call stand in task events and logs, for operators. A process that overhears them could answer for a
# call that was never given to it. So the message of each remote attempt carries a token, and what comes back is refused
# without it. It is made by HMAC-SHA256 from the log's secret, which never leaves the log: nothing needs to be stored
# for it, and the results of earlier attempts keep theirs.


class Tokens:
    """The tokens of all attempts of one backend. A run's seal says, too, when it was `born`, that is submitted: another
    one may have its id once it is deleted.
    """

    def __init__(self, secret: bytes, born: str = "") -> None:
        self._secret = secret
        self._born = born
        self._seal = lru_cache(limits.SEALS_KEPT)(lambda run: seal_of(self.cancelling(run)))

    def of(self, run: str, lane: str, call: int, number: int, again: int = 0) -> str:
        """The token of an attempt at a call; `again` as in `Attempt`."""
        text = "\x1f".join((run, str(call), f"{number}+{again}" if again else str(number), lane)).encode()
        return hmac.digest(self._secret, text, "sha256").hex()[: limits.TOKEN_CHARACTERS]

    def given(self, attempt: Attempt) -> Attempt:
        """Add the token of the attempt and the seal of its run."""
        return replace(attempt, token=self._of(attempt), seal=self._seal(attempt.id.run))

    def of_run(self, born: str) -> Tokens:
        """Tokens of the same secret, with the seals of a run that was submitted then."""
        return Tokens(self._secret, born)

    def admit_shown(self, run: str, lane: str, call: int, number: int, shown: str) -> bool:
        """Whether a report of an attempt shows the right token (see `shown_token`)."""
        again, _, token = shown.rpartition(".")
        if again and not (again.isascii() and again.isdecimal() and len(again) <= limits.MOST_DIGITS_OF_AGAIN):
            return False
        return self.agree(self.of(run, lane, call, number, int(again or 0)), token)

    def admit_seal(self, run: str, seal: str) -> bool:
        """Whether a report with that seal is of the run that has its id now. Workers of versions before show none, and
        clients of versions before made it without the run's birth.
        """
        return not seal or any(self.agree(seal, one._seal(run)) for one in (self, Tokens(self._secret)))

    def of_probe(self, queue: str, published_ms: int) -> str:
        """The token of a probe: it comes out of its queue, and nowhere else."""
        text = f"\x1fprobe\x1f{published_ms}\x1f{queue}".encode()
        return hmac.new(self._secret, text, hashlib.sha256).hexdigest()[: limits.TOKEN_CHARACTERS]

    def cancelling(self, run: str) -> str:
        """The key of a run's cancellation: shown when the run is cancelled, and not before (see `remote_control`)."""
        return hmac.new(self._secret, f"\x1fcancel\x1f{run}\x1f{self._born}".encode(), hashlib.sha256).hexdigest()

    def admit(self, attempt: Attempt) -> bool:
        """Whether an attempt that came from outside has the right token."""
        return self.agree(self._of(attempt), attempt.token)

    def is_of_run(self, attempt: Attempt) -> bool:
        """Whether an attempt has the seal of the run that has its id now, and not the seal of a deleted run."""
        return self.agree(self._seal(attempt.id.run), attempt.seal)

    @staticmethod
    def agree(right: str, given: str) -> bool:
        """Compare two tokens in a time that says nothing of them."""
        return hmac.compare_digest(right.encode(), given.encode())

    def _of(self, attempt: Attempt) -> str:
        id_ = attempt.id
        return self.of(id_.run, lane_token(id_.instance), id_.index, attempt.number, attempt.again)


def shown_token(attempt: Attempt) -> str:
    """The token of an attempt as reports show it, preceded by how often the call had ended before, where it is
    run again, since nothing else in a report says so.
    """
    return f"{attempt.again}.{attempt.token}" if attempt.again else attempt.token


def seal_of(key: str) -> str:
    """The part of the key of a run's cancellation that remote calls carry: the key cannot be made from it."""
    return hashlib.sha256(key.encode()).hexdigest()[: limits.TOKEN_CHARACTERS]


# OpenTelemetry, where the code around us uses it: the span that a submission is under, the one that code runs in.
#
# It is in use where a provider of tracers is set: by an application, by an activity's module or by
# `opentelemetry-instrument`. Nothing here loads it.


def current_place() -> TracePlace | None:
    """The current span, where there is one."""
    if (api := _api()) is None:
        return None
    context = api.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return TracePlace(f"{context.trace_id:032x}", f"{context.span_id:016x}", context.trace_flags.sampled)


def enter_place(attempt: Attempt) -> None:
    """Spans that are begun in this context from now on are below the span of the attempt's call."""
    if (api := _api()) is None or not _is_in_use(api):
        return
    from opentelemetry.context import attach

    place = attempt.place
    is_sampled = _is_sampled(api, place) if place.is_sampled is None else place.is_sampled
    context = api.SpanContext(int(place.trace, 16), int(place.span, 16), True, api.TraceFlags(int(is_sampled)))
    attach(api.set_span_in_context(api.NonRecordingSpan(context)))


def header_to_send() -> str | None:
    """The `traceparent` of a request that the current call makes; None where nobody has asked for a trace."""
    attempt = current_attempt()
    api = _api()
    if attempt is None or not (attempt.trace or (api is not None and _is_in_use(api))):
        return None
    return (current_place() or attempt.place).header


def _is_in_use(api: Any) -> bool:
    return not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider)


def _is_sampled(api: Any, place: TracePlace) -> bool:
    """Whether this process's sampler records a trace that nobody has decided on."""
    sampler = getattr(api.get_tracer_provider(), "sampler", None)
    if sampler is None:
        return True
    sampled: bool = sampler.should_sample(None, int(place.trace, 16), "").decision.is_sampled()
    return sampled


def _api() -> Any:
    return sys.modules.get("opentelemetry.trace")
