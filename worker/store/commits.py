"""What a commit asks of the log, and what comes of it (lua/commit.lua, lua/loop.lua)."""

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
from .entries import Spent
from .keys import due_runs
from .scripts import Code, Script, readable, server_ms

ELEMENTS: Final = "elements"
"""The field of a run's state that counts the elements that its calls have begun (SPEC R4.10)."""
ELEMENTS_LEFT: Final = "elements_left"
"""The field that says how many those may be, where a token's limit does."""
PAID_TOKENS: Final = "paid:tokens"
"""The field of a run's state that says how many tokens models have taken for its calls; a loop has `loop:cost`, too."""
PAID_MONEY: Final = "paid:money"
"""The same in nanodollars."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A call to be claimed, and how long its owner may be silent; `queue` where its message goes to one."""

    index: int
    lease_seconds: float
    queue: str = ""
    alone: bool = False
    """Whether it has its turn in the quarantine of the process."""

    def to_request(self) -> dict[str, Any]:
        """What the script takes."""
        alone = {"alone": True} if self.alone else {}
        return {"call": self.index, "lease_ms": milliseconds(self.lease_seconds), "queue": self.queue, **alone}


@dataclass(frozen=True, slots=True)
class Held:
    """A call that is to wait for a person, and what it is held with (msgpack)."""

    index: int
    snapshot: bytes
    elements: int = 0
    """For how many elements it is carried out with it, where it waits for nobody."""

    def to_request(self) -> dict[str, Any]:
        """What the script takes."""
        return {"call": self.index, "snapshot": self.snapshot, "elements": self.elements}


@dataclass(frozen=True, slots=True)
class Delegated:
    """A call at work that a child run is to answer (SPEC R9.3)."""

    index: int
    attempt: int
    run: str

    def to_request(self) -> dict[str, Any]:
        """What the script takes."""
        return {"call": self.index, "attempt": self.attempt, "run": self.run}


@dataclass(frozen=True, slots=True)
class Rest:
    """An attempt failed, or was given back; the call is to be claimed again after a delay."""

    index: int
    attempt: int
    delay_seconds: float
    is_given_back: bool = False
    """Whether no code has run: the attempt does not count (SPEC R17.3)."""
    note: str = ""
    """Why, where the log does not say yet that the call was given back."""

    def to_request(self) -> dict[str, Any]:
        """What the script takes."""
        return {
            "call": self.index,
            "attempt": self.attempt,
            "delay_ms": milliseconds(self.delay_seconds),
            "given_back": self.is_given_back,
            "of": call_of(self.index),
            "note": self.note,
        }


class Ending(NamedTuple):
    """An outcome, and what is written with it."""

    outcome: Outcome
    missed: Sequence[str] = ()
    """The promised places that the call had to do without."""
    wakes: bool = False
    """Whether parked lanes await the call."""
    sending: TaskMessage | None = None
    """The task of one that is sent and forgotten: it goes into the outbox."""
    spent: Spent | None = None
    """What the call took, where it was carried out."""
    code: Code | None = None
    """Who has carried it out, with which version of the code."""
    is_decided: bool = False
    """Whether nobody has carried it out: it follows from what has ended before it."""
    seen: Seen | None = None
    """What the delegate, or the model, was shown of the log."""

    def to_request(self) -> dict[str, Any]:
        """What the script takes."""
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
    """The id of the lane's last entry that its driver has read."""
    global_seen: str
    owner: str
    """The driver: what it has claimed already it gets again."""
    endings: Sequence[Ending] = ()
    rests: Sequence[Rest] = ()
    delegated: Sequence[Delegated] = ()
    settled: Sequence[int] = ()
    """Gather calls that have nothing to wait for in the lane any more."""
    claims: Sequence[Claim] = ()
    holds: Sequence[Held] = ()
    park: bool = False
    """Whether a global call is to wake the lane, if nothing new has arrived."""
    leaves: bool = False
    """Whether the driver leaves, if nothing new has arrived."""
    hands_on: bool = False
    """Whether the driver leaves in any case, and the lane's task is published anew: another worker goes on with it."""
    takes_up: float | None = None
    """The mark of the lane's task as it was before the lane was read: it is taken back."""
    output_fault: str | None = None
    """What `LaneView.output_fault` says."""
    work: int = 0
    """What validation has taken since the last commit (see `schemas.work`)."""
    status: str | None = None
    """That of the run as the driver has read it, where another one is news."""
    born: str = ""
    """When the run was submitted that the driver has read: another one may have its id by now."""

    def to_request(self) -> dict[str, Any]:
        """What the script takes."""
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
            "hands_on": self.hands_on,
            "takes_up": self.takes_up,
            "output_fault": self.output_fault,
            "work": self.work,
            "status": self.status,
            **({"born": self.born} if self.born else {}),
        }


class Committed(NamedTuple):
    """What has come of a commit."""

    status: str
    """The run's status; `gone` where its retention is over."""
    last_id: str = "0-0"
    global_id: str = "0-0"
    is_fresh: bool = True
    """Whether the caller had seen all of the lane before its own commit."""
    accepted: tuple[bool, ...] = ()
    attempts: tuple[int, ...] = ()
    """For each claim the number of the attempt, 0 where it is at work elsewhere or not due, `limits.WAITS_ALONE` where
    it is to be claimed with a turn in the quarantine.
    """
    failures: tuple[int, ...] = ()
    """For each claim how many attempts before failed."""
    held: tuple[bool, ...] = ()
    """For each hold whether it was written."""
    repeated: tuple[bool, ...] = ()
    """For each claim whether the attempt before was lost."""
    woken: tuple[str, ...] = ()
    """Lanes whose turn to be published has come."""
    queued: int = 0
    """How many of the run's lanes lie in the queue, these included."""
    due_ms: int | None = None
    """When something becomes due in the run, where that is sooner than the sweep would look."""

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Committed:
        """What the script has answered."""
        if found["status"] == "gone":
            return cls("gone")
        return cls(
            status=found["status"],
            last_id=found["last"],
            global_id=found["global"],
            is_fresh=found["fresh"],
            accepted=tuple(found["accepted"]),
            attempts=tuple(found["claims"]),
            failures=tuple(found["failures"]),
            held=tuple(found["held"]),
            repeated=tuple(found["repeated"]),
            woken=tuple(found["woken"]),
            queued=found["queued"],
            due_ms=int(found["due"]) if "due" in found else None,
        )


@dataclass(frozen=True, slots=True)
class LoopCommitted:
    """What came of a step of a loop."""

    status: str
    """The run's status; `gone` where its retention is over."""
    is_taken: bool
    """Whether it was written, and nothing had come that it was decided without."""
    woken: tuple[str, ...] = ()
    """Lanes to be published."""
    mark: float | None = None
    """Of the loop's lane: by it the sweep finds what the step leaves to do, until it is taken back."""


def _paid(cost: Mapping[str, Any]) -> list[int]:
    read = Cost.read(cost)
    return [min(amount, limits.MOST_PAID) for amount in (read.tokens, read.nanodollars)]


def milliseconds(seconds: float) -> int:
    """The same time in milliseconds, as scripts take it."""
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
    if ending.missed:
        detail["missed"] = list(ending.missed)
    if ending.seen is not None:
        detail["seen"] = list(ending.seen)
    if spent is not None and (packed := spent.pack()) is not None:
        detail["t"] = packed
    return pack(detail) if detail else b""


# What is due: the index of runs in which something is, and until when a run waits for people and promises. Recovery
# costs as much as the index holds, whatever the number of runs is.
#
# It lies beside the runs, on a shard of its own, so it is kept in steps that may be interrupted. A run is noted when
# something becomes due in it sooner than the index says (`look` in the run's state; see commit.lua), and put off or
# removed only by a sweep that has looked at it, unless it was noted meanwhile. What is missed nevertheless is found by
# the sweep's slow round over all runs.

PUBLISHED_MS: Final = int(limits.PUBLISHED_SECONDS * 1000)


class DueRuns:
    """The index, as a sweep and clients use it. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._key = due_runs(prefix)
        self._settle = Script(redis, "recovery", "settle")

    def note(self, run: str) -> None:
        """Have the next sweep look at a run."""
        self._redis.zadd(self._key, {run: 0})

    def note_until(self, run: str, delay_ms: int) -> None:
        """Have a sweep look at a run after a delay, where none is to do so before."""
        self._redis.zadd(self._key, {run: server_ms(self._redis) + delay_ms}, lt=True)

    def note_sooner(self, next_ms: Mapping[str, int]) -> None:
        """Have a sweep look at runs at times in ms, where none is to do so before."""
        if next_ms:
            self._redis.zadd(self._key, dict(next_ms), lt=True)

    def take(self, most: int, until_ms: int) -> dict[str, float]:
        """Runs in which something was due by a time, each with the mark that is to be given back."""
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
        """Say when to look at the runs again; where nothing is said, nothing will be due."""
        runs = [(run, mark, next_ms.get(run, 0)) for run, mark in taken.items()]
        self._settle(self._key, {"runs": runs})


def approve_ms(config: Mapping[str, Any]) -> dict[str, int]:
    """The field of a run's state that says how long a held call waits for a person (SPEC R14.3)."""
    return {"approve_ms": int(config["approve_seconds"] * 1000)} if "approve_seconds" in config else {}


def promises_due(config: Mapping[str, Any], now_ms: int) -> dict[str, int]:
    """The fields of a run's state that say until when it waits for what is promised (SPEC R11.6)."""
    if "promise_seconds" not in config:
        return {}
    wait_ms = int(config["promise_seconds"] * 1000)
    return {"promise_ms": wait_ms, "promises_due": now_ms + wait_ms}
