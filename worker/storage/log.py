"""The message log in Redis Streams, as a lane's driver uses it (DESIGN "The log").

Every lane has a journal: a stream whose entries are the lane's messages and the outcomes of its calls. The journal is
the truth; the ledger beside it only makes commits exactly-once, and the counters only spare reading it all.

An entry's fields: `m` a message (msgpack); `c`, `s`, `d` the call, its status and detail (msgpack) where a call wrote
the entry; `k` the lane's own record, in the first entry and wherever the lane was amended; `a`, beside the global
lane's record, what the lanes share of an amendment. Ids are given by the run's own clock, so they order the messages of
all lanes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from redis.asyncio import Redis

from protocol.engine.execution import Outcome, Status
from worker.messaging.attempts import lane_token
from worker.messaging.messages import TaskMessage, pack_task
from worker.messaging.packing import pack, unpack

from .grouping import GroupedCommands
from .keys import Keys, due_runs, recovery
from .scripts import pack_request, read_script

_PAGE: Final = 500
"""How many entries one command reads."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a journal."""

    id: str
    message: Mapping[str, Any] | None = None
    call: int | None = None
    status: Status | None = None
    error: Mapping[str, Any] | None = None
    reason: str | None = None
    record: bytes | None = None
    amendment: bytes | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A call to be claimed, and how long its owner may be silent; `queue` where its message goes to one."""

    index: int
    lease_seconds: float
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Rest:
    """An attempt failed; the call is to be claimed again after a delay."""

    index: int
    attempt: int
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Advance:
    """What came of a commit."""

    status: str
    """The run's status; `gone` where its retention is over."""
    journal_id: str = "0-0"
    global_id: str = "0-0"
    is_fresh: bool = True
    """Whether the caller had seen everything in the journal before its own commit."""
    accepted: tuple[bool, ...] = ()
    attempts: tuple[int, ...] = ()
    """For each claim the number of the attempt, 0 where it is at work elsewhere or not due."""
    failures: tuple[int, ...] = ()
    """For each claim how many attempts before failed."""
    repeated: tuple[bool, ...] = ()
    """For each claim whether the attempt before was lost."""
    woken: tuple[str, ...] = ()
    """Lanes whose turn to be published has come."""
    due_ms: int | None = None
    """When something becomes due in the run, where that is sooner than the sweep would look."""


def read_entry(id_: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    """An entry, from what Redis returns."""
    detail = unpack(fields[b"d"]) if b"d" in fields else {}
    return Entry(
        id=id_.decode(),
        message=unpack(fields[b"m"]) if b"m" in fields else None,
        call=int(fields[b"c"]) if b"c" in fields else None,
        status=Status(fields[b"s"].decode()) if b"s" in fields else None,
        error=detail.get("error"),
        reason=detail.get("reason"),
        record=fields.get(b"k"),
        amendment=fields.get(b"a"),
    )


def read_running(ledger: Mapping[bytes, bytes]) -> frozenset[int]:
    """The calls of a ledger that are at work, here or elsewhere."""
    return frozenset(int(call) for call, status in ledger.items() if status.startswith((b"running:", b"sent:")))


def _resting(ledger: Mapping[bytes, bytes], now_ms: int) -> frozenset[int]:
    """The calls of a ledger that are to be tried again, but not yet (see advance.lua)."""
    retries = ((call, int(entry.rpartition(b":")[2])) for call, entry in ledger.items() if entry.startswith(b"retry:"))
    return frozenset(int(call) for call, due_ms in retries if due_ms > now_ms)


class MessageLog:
    """The journals of all runs, through one asynchronous connection pool."""

    def __init__(
        self, redis: Redis, *, prefix: str, published_seconds: float, lease_seconds: float, window: int
    ) -> None:
        self._commands = GroupedCommands(redis)
        self._prefix = prefix
        self._published = _milliseconds(published_seconds)
        self._silent = _milliseconds(lease_seconds)
        self._window = window
        self._open = self._commands.register_script(read_script("open"))
        self._advance = self._commands.register_script(read_script("window", "advance"))

    async def shared(self, run: str) -> tuple[bytes | None, list[Entry]]:
        """The run's definition - None where there is no such run (any more) - and its global journal."""
        definition, entries = await asyncio.gather(
            self._commands.execute("GET", self._keys(run).definition), self.read(run, None)
        )
        return definition, entries

    async def read(self, run: str, instance: str | None, after: str = "0-0") -> list[Entry]:
        """The entries of a lane's journal behind an id, oldest first."""
        stream = self._keys(run).journal(lane_token(instance))
        entries: list[Entry] = []
        while True:
            found = await self._commands.execute("XRANGE", stream, f"({after}", "+", "COUNT", _PAGE)
            entries += [read_entry(id_, fields) for id_, fields in found]
            if len(found) < _PAGE:
                return entries
            after = entries[-1].id

    async def open(self, run: str, instance: str | None) -> tuple[list[Entry], frozenset[int], float | None]:
        """A lane's whole journal, the calls that are at work or wait for a retry, and the mark of its task.

        The mark is read first and the journal last: what a call at work was begun after is in the journal, and the mark
        (see advance.lua) is not that of a loss which the ledger does not show.
        """
        keys, lane = self._keys(run), lane_token(instance)
        names = keys.journal(lane), keys.ledger(lane), keys.published
        mark, flat, found, now = await self._commands.run_script(self._open, names, lane, _PAGE)
        ledger = _pairs(flat) if flat is not None else await self._ledger(keys.ledger(lane))
        busy = read_running(ledger) | _resting(ledger, int(now))
        entries = [read_entry(id_, _pairs(fields)) for id_, fields in found] if flat is not None else []
        if flat is None or len(entries) == _PAGE:
            entries += await self.read(run, instance, after=entries[-1].id if entries else "0-0")
        return entries, busy, float(mark) if mark is not None else None

    async def _ledger(self, key: str) -> dict[bytes, bytes]:
        """A ledger of any size, in pages."""
        ledger: dict[bytes, bytes] = {}
        cursor = 0
        while True:
            cursor, page = await self._commands.execute("HSCAN", key, cursor, "COUNT", _PAGE)
            ledger.update(page)
            if cursor == 0:
                return ledger

    async def advance(
        self,
        run: str,
        instance: str | None,
        *,
        seen: str,
        global_seen: str,
        owner: str,
        outcomes: Sequence[Outcome] = (),
        waking: Iterable[int] = (),
        rests: Sequence[Rest] = (),
        claims: Sequence[Claim] = (),
        sendings: Mapping[int, TaskMessage] = MappingProxyType({}),
        park: bool = False,
        leaves: bool = False,
        takes_up: float | None = None,
        output_fault: str | None = None,
    ) -> Advance:
        """Append outcomes, claim calls, all at once (see advance.lua).

        `waking` are calls that parked lanes await, `sendings` the tasks of outcomes that are sent and forgotten.
        `output_fault` is what `LaneView.output_fault` says.
        """
        keys, lane, wakes = self._keys(run), lane_token(instance), frozenset(waking)
        request = {
            "lane": lane,
            "seen": seen,
            "global_seen": global_seen,
            "owner": owner,
            "published_ms": self._published,
            "silent_ms": self._silent,
            "park": park,
            "leaves": leaves,
            "takes_up": takes_up,
            "output_fault": output_fault,
            "window": self._window,
            "outcomes": [
                _outcome(outcome, sendings.get(outcome.index), wakes=outcome.index in wakes) for outcome in outcomes
            ],
            "retries": [
                {"call": rest.index, "attempt": rest.attempt, "delay_ms": _milliseconds(rest.delay_seconds)}
                for rest in rests
            ],
            "claims": [
                {"call": claim.index, "lease_ms": _milliseconds(claim.lease_seconds), "queue": claim.queue}
                for claim in claims
            ],
        }
        names = (
            keys.state,
            keys.journal(lane),
            keys.ledger(lane),
            keys.journal(""),
            keys.leases,
            keys.events,
            keys.parked,
            keys.published,
            keys.backlog,
            keys.outbox,
            keys.outbox_tasks,
            keys.outbox_due,
        )
        reply = await self._commands.run_script(self._advance, names, pack_request(request))
        advance = _read_advance(reply)
        if advance.due_ms is not None:
            await self._commands.execute("ZADD", due_runs(self._prefix), "LT", advance.due_ms, run)
        return advance

    async def note_probe(self, published_ms: int) -> None:
        """Note that a probe was taken from the queue; one that was not sent by a sweep is not believed."""
        sent = await self._commands.execute("HGET", recovery(self._prefix), "probed")
        if sent is not None and published_ms <= int(sent):
            await self._commands.execute("HSET", recovery(self._prefix), "taken", published_ms)

    def _keys(self, run: str) -> Keys:
        return Keys(self._prefix, run)


def _pairs(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """Fields and values as a script gives them."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _outcome(outcome: Outcome, sending: TaskMessage | None, *, wakes: bool) -> dict[str, Any]:
    return {
        "call": outcome.index,
        "status": outcome.status.value,
        "detail": _detail(outcome),
        "wakes": wakes,
        "messages": [pack(message) for message in outcome.messages],
        "task": pack_task(sending) if sending is not None else b"",
        "queue": sending.queue if sending is not None else "",
    }


def _detail(outcome: Outcome) -> bytes:
    detail: dict[str, Any] = {}
    if outcome.error is not None:
        detail["error"] = dict(outcome.error)
    if outcome.reason is not None:
        detail["reason"] = outcome.reason
    return pack(detail) if detail else b""


def _read_advance(reply: bytes) -> Advance:
    found = unpack(reply)
    if found["status"] == "gone":
        return Advance("gone")
    return Advance(
        status=found["status"],
        journal_id=found["journal"],
        global_id=found["global"],
        is_fresh=found["fresh"],
        accepted=tuple(found["accepted"]),
        attempts=tuple(found["claims"]),
        failures=tuple(found["failures"]),
        repeated=tuple(found["repeated"]),
        woken=tuple(found["woken"]),
        due_ms=int(found["due"]) if "due" in found else None,
    )
