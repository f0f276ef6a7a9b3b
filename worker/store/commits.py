"""Requests of commits and their answers (lua/commit.lua, lua/loop.lua), and the index of runs with something due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from redis import Redis

from ...protocol.calls.call import call_of, element_of
from ...protocol.engine.costs import Cost
from ...protocol.engine.events import Outcome
from .. import limits
from ..broker.attempts import Seen, lane_token
from ..broker.messages import TaskMessage, pack, pack_task
from .entries import CallTiming
from .keys import due_runs
from .scripts import ExecutedBy, Script, readable, server_ms

ELEMENTS: Final = "elements"
"""The field of a run's state that counts the elements which its calls have begun (SPEC R4.10)."""
ELEMENTS_LEFT: Final = "elements_left"
"""The field of a run's state that says how many elements may begin, if a token's limit does."""
PAID_TOKENS: Final = "paid:tokens"
"""The field of a run's state that counts the tokens of its calls; those of a loop itself are in `loop:cost`."""
PAID_MONEY: Final = "paid:money"
"""The field of a run's state that counts what models have cost for its calls, in nanodollars."""


END_UNKNOWN: Final = limits.WAITS_ALONE - 1
"""The answer for a claim of a call that runs at most once and may have begun; the number of its attempt is
subtracted from it.
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A call to be claimed, and how long its owner may be silent; `queue` if its message goes to one."""

    index: int
    lease_seconds: float
    queue: str = ""
    alone: bool = False
    """Whether the call has its turn in the quarantine of the process."""
    begins: bytes = b""
    """The log's entry for its beginning, if the call runs at most once (SPEC R4.11)."""
    not_done: int | None = None
    """The attempt at such a call that did nothing, as its activity says."""
    total_seconds: float | None = None
    """How long all attempts at the call may take together."""

    def to_request(self) -> dict[str, Any]:
        """Make what the script takes."""
        alone = {"alone": True} if self.alone else {}
        once = {"begins": self.begins, "not_done": self.not_done} if self.begins else {}
        total = {"total_ms": milliseconds(self.total_seconds)} if self.total_seconds is not None else {}
        more = {**alone, **once, **total}
        return {"call": self.index, "lease_ms": milliseconds(self.lease_seconds), "queue": self.queue, **more}


@dataclass(frozen=True, slots=True)
class Held:
    """A call that is to wait for a person, with its packed parameters."""

    index: int
    snapshot: bytes
    elements: int = 0
    """For how many elements the call is run with the snapshot, if it waits for nobody."""
    until_ms: int | None = None
    """The moment that it waits for, if it waits for no person."""
    begun: int | None = None
    """The attempt at it whose end is not known, if that is why it waits (SPEC R4.11)."""
    rules: str | None = None
    """The entry that had changed the run's rules last, empty where none had, if a rule could have approved it."""
    rule: str = ""
    """The rule that approves it at once (SPEC R16.8)."""

    def to_request(self) -> dict[str, Any]:
        """Make what the script takes."""
        until = {"ends": self.until_ms} if self.until_ms is not None else {}
        begun = {"begun": self.begun} if self.begun is not None else {}
        rules = {"rules": self.rules, "rule": self.rule} if self.rules is not None else {}
        return {"call": self.index, "snapshot": self.snapshot, "elements": self.elements, **until, **begun, **rules}


@dataclass(frozen=True, slots=True)
class Delegated:
    """A call at work that a child run is to answer (SPEC R9.3)."""

    index: int
    attempt: int
    run: str

    def to_request(self) -> dict[str, Any]:
        """Make what the script takes."""
        return {"call": self.index, "attempt": self.attempt, "run": self.run}


@dataclass(frozen=True, slots=True)
class Rest:
    """A call whose attempt failed, or was given back, and that will be claimed again after a delay."""

    index: int
    attempt: int
    delay_seconds: float
    is_given_back: bool = False
    """Whether no code has run, so the attempt does not count (SPEC R17.3)."""
    note: str = ""
    """The reason, if the log does not say yet that the call was given back."""
    progress: bytes = b""
    """The last progress that the attempt reported, if any."""

    def to_request(self) -> dict[str, Any]:
        """Make what the script takes."""
        return {
            "call": self.index,
            "attempt": self.attempt,
            "delay_ms": milliseconds(self.delay_seconds),
            "given_back": self.is_given_back,
            "of": call_of(self.index),
            "note": self.note,
            **({"progress": self.progress} if self.progress else {}),
        }


class Ending(NamedTuple):
    """An outcome with everything that is written with it."""

    outcome: Outcome
    missed: Sequence[str] = ()
    """The promised places that the call had to do without."""
    wakes: bool = False
    """Whether parked lanes await the call."""
    sending: TaskMessage | None = None
    """The task that goes into the outbox, if the call is sent and forgotten."""
    spent: CallTiming | None = None
    """The time that the call took, if it was run."""
    code: ExecutedBy | None = None
    """The worker that has run the call, and the version of its code."""
    is_decided: bool = False
    """Whether nobody has run the call: its outcome follows from what has ended before."""
    seen: Seen | None = None
    """How much of the log the delegate, or the model, was shown."""

    def to_request(self) -> dict[str, Any]:
        """Make what the script takes."""
        outcome, sending = self.outcome, self.sending
        element = element_of(outcome.index)
        part = {"element": element, "of": call_of(outcome.index)} if element is not None else {}
        return {
            **part,
            "call": outcome.index,
            "status": outcome.status.value,
            "detail": _detail(self),
            "missed": ", ".join(self.missed),
            "wakes": self.wakes,
            "decided": self.is_decided,
            "messages": [pack(message) for message in outcome.messages],
            "task": pack_task(sending) if sending is not None else b"",
            "queue": sending.queue if sending is not None else "",
            "code": self.code.pack() if self.code is not None else "",
            **({"paid": _paid(outcome.cost)} if outcome.cost is not None else {}),
        }


class Commit(NamedTuple):
    """One step of a lane: outcomes come in and calls are claimed, all or nothing (see commit.lua)."""

    instance: str | None
    seen: str
    """The id of the last entry of the lane that the driver has read."""
    global_seen: str
    owner: str
    """The driver; a call that it has claimed before it gets again."""
    endings: Sequence[Ending] = ()
    rests: Sequence[Rest] = ()
    delegated: Sequence[Delegated] = ()
    settled: Sequence[int] = ()
    """Gather calls that have nothing to wait for in the lane any more."""
    claims: Sequence[Claim] = ()
    holds: Sequence[Held] = ()
    park: bool = False
    """Whether a global call is to wake the lane, unless something new has arrived."""
    leaves: bool = False
    """Whether the driver leaves the lane, unless something new has arrived."""
    requeue: bool = False
    """Whether the driver leaves in any case and the lane's task is published anew, for another worker."""
    clears_mark: float | None = None
    """The mark of the lane's task before the lane was read, which is taken back."""
    output_fault: str | None = None
    """The answer of `LaneView.output_fault`."""
    work: int = 0
    """How much work validation has taken since the last commit (see `schemas.costs`)."""
    status: str | None = None
    """The run's status as the driver has read it, if it needs to know of a change."""
    born: str = ""
    """When the run was submitted that the driver has read: another run may have its id by now."""

    def to_request(self) -> dict[str, Any]:
        """Make what the script takes."""
        return {
            "lane": lane_token(self.instance),
            "seen": self.seen,
            "global_seen": self.global_seen,
            "owner": self.owner,
            "outcomes": [ending.to_request() for ending in self.endings],
            "retries": [rest.to_request() for rest in self.rests],
            "children": [one.to_request() for one in self.delegated],
            "settled": list(self.settled),
            "claims": [claim.to_request() for claim in self.claims],
            "holds": [held.to_request() for held in self.holds],
            "park": self.park,
            "leaves": self.leaves,
            "requeue": self.requeue,
            "clears_mark": self.clears_mark,
            "output_fault": self.output_fault,
            "work": self.work,
            "status": self.status,
            **({"born": self.born} if self.born else {}),
        }


class Committed(NamedTuple):
    """The answer to a commit."""

    status: str
    """The run's status; `gone` where its retention is over."""
    last_id: str = "0-0"
    global_id: str = "0-0"
    is_current: bool = True
    """Whether the caller had seen all of the lane before its own commit."""
    accepted: tuple[bool, ...] = ()
    attempts: tuple[int, ...] = ()
    """The number of the attempt for each claim; 0 if the call is at work elsewhere or not due, `limits.WAITS_ALONE` if
    it is to be claimed with a turn in the quarantine, `END_UNKNOWN` or less if nobody knows how it has ended.
    """
    failures: tuple[int, ...] = ()
    """How many attempts before have failed, for each claim."""
    held: tuple[bool, ...] = ()
    """Whether each hold was written."""
    repeated: tuple[bool, ...] = ()
    """Whether the attempt before was lost, for each claim."""
    ends_ms: tuple[int, ...] = ()
    """When the time of all attempts is over, for each claim; 0 where it has no limit."""
    woken: tuple[str, ...] = ()
    """Lanes whose turn to be published has come."""
    queued: int = 0
    """The number of the run's lanes in the queue, including these."""
    due_ms: int | None = None
    """When something becomes due in the run, if that is before the sweep would look."""
    parent: str | None = None
    """The field of the run's state that names the call which it answers, if the run ends with this commit."""

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Committed:
        """Read the script's answer."""
        if found["status"] == "gone":
            return cls("gone")
        return cls(
            status=found["status"],
            last_id=found["last"],
            global_id=found["global"],
            is_current=found["fresh"],
            accepted=tuple(found["accepted"]),
            attempts=tuple(found["claims"]),
            failures=tuple(found["failures"]),
            held=tuple(found["held"]),
            repeated=tuple(found["repeated"]),
            ends_ms=tuple(map(int, found["ends"])),
            woken=tuple(found["woken"]),
            queued=found["queued"],
            due_ms=int(found["due"]) if "due" in found else None,
            parent=found.get("parent"),
        )


@dataclass(frozen=True, slots=True)
class LoopCommitted:
    """The answer to a step of a loop."""

    status: str
    """The run's status; `gone` where its retention is over."""
    is_taken: bool
    """Whether the step was written, and had been decided with everything that the log says."""
    woken: tuple[str, ...] = ()
    """Lanes to be published."""
    mark: float | None = None
    """The mark of the loop's lane, by which the sweep finds what the step leaves to do, until it is taken back."""


def _paid(cost: Mapping[str, Any]) -> list[int]:
    read = Cost.read(cost)
    return [min(amount, limits.LARGEST_COUNT) for amount in (read.tokens, read.nanodollars)]


def milliseconds(seconds: float) -> int:
    """Convert seconds to milliseconds, as scripts take them."""
    return int(seconds * 1000)


def _detail(ending: Ending) -> bytes:
    outcome, spent = ending.outcome, ending.spent
    detail: dict[str, Any] = {}
    if outcome.error is not None:
        detail["error"] = dict(outcome.error)
    if outcome.reason is not None:
        detail["reason"] = outcome.reason
    if outcome.value is not None:
        detail["value"] = outcome.value
    if outcome.cost is not None:
        detail["cost"] = dict(outcome.cost)
    if outcome.is_rescued:
        detail["rescued"] = True
    if outcome.labels:
        detail["labels"] = sorted(outcome.labels)
    if outcome.chosen:
        detail["chosen"] = sorted(outcome.chosen)
    if outcome.answered:
        detail["answered"] = outcome.answered.to_dict()
    if ending.missed:
        detail["missed"] = list(ending.missed)
    if ending.seen is not None:
        detail["seen"] = list(ending.seen)
    if spent is not None and (packed := spent.pack()) is not None:
        detail["t"] = packed
    return pack(detail) if detail else b""


# The index of runs with something due: recovery costs as much as the index holds, however many runs there are.
#
# It is not on the shard of the runs, so it is kept in steps that may be interrupted. A run is noted when something
# becomes due in it before the time in the index (`look` in the run's state; see commit.lua). Only a sweep that has
# looked at it puts it off or removes it, unless it was noted meanwhile. The sweep's slow round over all runs finds what
# is missed nevertheless.

PUBLISHED_MS: Final = int(limits.PUBLISHED_SECONDS * 1000)


class DueRuns:
    """Reads and writes the index of runs in which something is due. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._key = due_runs(prefix)
        self._settle = Script(redis, "recovery", "settle")

    def note(self, run: str) -> None:
        """Have the next sweep look at a run."""
        self._redis.zadd(self._key, {run: 0})

    def note_until(self, run: str, delay_ms: int) -> None:
        """Have a sweep look at a run after a delay, unless one does so before."""
        self._redis.zadd(self._key, {run: server_ms(self._redis) + delay_ms}, lt=True)

    def note_sooner(self, next_ms: Mapping[str, int]) -> None:
        """Have a sweep look at runs at times in ms, where none is to do so before."""
        if next_ms:
            self._redis.zadd(self._key, dict(next_ms), lt=True)

    def take(self, most: int, until_ms: int) -> dict[str, float]:
        """Take the runs in which something was due by a time, each with a mark for `settle`."""
        found: Any = self._redis.zrangebyscore(self._key, "-inf", until_ms, start=0, num=most)
        mark = (
            server_ms(self._redis) + limits.TAKEN_MS + 0.5
        )  # no other writer gives a fraction: it is seen who has written
        if found:
            self._redis.zadd(self._key, dict.fromkeys(found, mark), xx=True)
        return dict.fromkeys(
            readable(self._key, found, bytes.decode, lambda run: self._redis.zrem(self._key, run)), mark
        )

    def settle(self, taken: Mapping[str, float], next_ms: Mapping[str, int]) -> None:
        """Set when to look at taken runs again; in a run without a time nothing will be due."""
        runs = [(run, mark, next_ms.get(run, 0)) for run, mark in taken.items()]
        self._settle(self._key, {"runs": runs})


def approve_ms(config: Mapping[str, Any]) -> dict[str, int]:
    """Make the field of a run's state that says how long a held call waits for a person (SPEC R14.3)."""
    return {"approve_ms": int(config["approve_seconds"] * 1000)} if "approve_seconds" in config else {}


def promises_due(config: Mapping[str, Any], now_ms: int) -> dict[str, int]:
    """Make the fields of a run's state that say until when it waits for what is promised (SPEC R11.6)."""
    if "promise_seconds" not in config:
        return {}
    wait_ms = int(config["promise_seconds"] * 1000)
    return {"promise_ms": wait_ms, "promises_due": now_ms + wait_ms}
