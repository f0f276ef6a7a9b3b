"""The message log in Redis, as a lane's runner uses it (DESIGN "The log").

A run is one stream. An entry that belongs to a lane begins with the fields `l`, the lane, and `p`, the id of the lane's
entry before it, so a lane is read from its end (lua/lane.lua) and costs nothing for the others. The other fields: `m` a
message (msgpack); `c` the call that wrote the entry, with `s` its status where it has ended with it, and `d` details
(msgpack); `k` the lane's own record, in its first entry and wherever it was amended; `a`, beside the global lane's
record, what the lanes share of an amendment; `g`, in the global lane, that what was promised is given up (SPEC R11.6);
`u` calls whose ends before it count no more (msgpack), since they are tried again;
`h` what the call `c` is held with, `j` what was decided of it (msgpack, see `held_calls`); `r` the run that is to
answer it.
An entry with `s` and without a lane is a change of the run's status. `w` says who did it, where that was done from
outside (`audit`); an entry may hold nothing else. The entries of a loop have fields of their own (see `loop_entries`).
Readers pass over fields that they do not know.

Ids are given by the server, so they order everything that happened in the run.
The stream is the truth; `calls` only makes commits exactly-once, `lanes` and the counters only spare reading it all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from redis.asyncio import Redis

from protocol.engine.execution import Outcome, Status
from worker.messaging.attempts import CallId, lane_token
from worker.messaging.messages import TaskMessage, pack_task
from worker.messaging.packing import pack, unpack
from worker.messaging.tokens import Tokens

from .audit import Deed
from .children import PARENT, Parent
from .grouping import GroupedCommands
from .keys import Keys, due_runs, secret
from .loop_entries import LoopEntry, LoopStep, loop_keys, read_loop_entry
from .scripts import pack_request, read_script
from .secret import new_secret
from .timings import Spent

_NO_LIMIT: Final = 2**53
_PAGE: Final = 500
"""How many entries one command reads."""
PAGE_BYTES: Final = 2**20
"""Of a lane it reads no more once it has so many bytes."""
INSTANCES_AT_ONCE: Final = 5_000
"""How many names of instances one command reads."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a run's log."""

    id: str
    instance: str | None = None
    message: Mapping[str, Any] | None = None
    call: int | None = None
    status: Status | None = None
    """Of the call, where it has ended with this entry."""
    error: Mapping[str, Any] | None = None
    reason: str | None = None
    record: bytes | None = None
    amendment: bytes | None = None
    missed: tuple[str, ...] = ()
    """What was promised, did not come in time, and what the call had to do without."""
    gives_up: bool = False
    """Whether what is promised is not waited for any more."""
    undone: tuple[int, ...] = ()
    """Calls of the lane that had ended and are tried again: their ends before count no more."""
    by: str | None = None
    """Who has done it by hand."""
    snapshot: bytes | None = None
    """What the call is held with since this entry (SPEC R14.2)."""
    ruling: bytes | None = None
    """What was decided of the call."""
    child: str | None = None
    """The run that is to answer the call (SPEC R9.3)."""
    run_status: str | None = None
    """What the run's status changed to; such an entry belongs to no lane."""
    loop: LoopEntry | None = None
    """What it says of the run's loop; such an entry belongs to the loop's lane, and to no instance."""
    deed: Deed | None = None
    """Who did what, where the entry was written on order from outside."""
    spent: Spent | None = None
    """What the call took that has ended with this entry, where it was carried out."""
    is_of_lane: bool = True
    """Whether it belongs to a lane, or else to the run."""

    @property
    def lays_out(self) -> bool:
        """Whether it says anew what is to be done in its lane."""
        return self.record is not None or bool(self.undone)


@dataclass(frozen=True, slots=True)
class Opened:
    """A lane as it is read at first."""

    entries: Sequence[Entry]
    open_calls: int
    """How many of its calls have begun and not ended."""
    mark: float | None
    """Of the lane's published task (see advance.lua)."""
    now_ms: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A call to be claimed, and how long its owner may be silent; `queue` where its message goes to one."""

    index: int
    lease_seconds: float
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A call that is to wait for a person, and what it is held with (msgpack)."""

    index: int
    snapshot: bytes


@dataclass(frozen=True, slots=True)
class Delegated:
    """A call at work that a child run is to answer (SPEC R9.3)."""

    index: int
    attempt: int
    run: str


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
    last_id: str = "0-0"
    global_id: str = "0-0"
    is_fresh: bool = True
    """Whether the caller had seen all of the lane before its own commit."""
    accepted: tuple[bool, ...] = ()
    attempts: tuple[int, ...] = ()
    """For each claim the number of the attempt, 0 where it is at work elsewhere or not due."""
    failures: tuple[int, ...] = ()
    """For each claim how many attempts before failed."""
    held: tuple[bool, ...] = ()
    """For each hold whether the call is held by it."""
    repeated: tuple[bool, ...] = ()
    """For each claim whether the attempt before was lost."""
    woken: tuple[str, ...] = ()
    """Lanes whose turn to be published has come."""
    among: int = 0
    """How many of the run's lanes lie in the queue, these included."""
    due_ms: int | None = None
    """When something becomes due in the run, where that is sooner than the sweep would look."""


@dataclass(frozen=True, slots=True)
class LoopAdvance:
    """What came of a step of a loop."""

    status: str
    """The run's status; `gone` where its retention is over."""
    is_taken: bool
    """Whether it was written, and nothing had come that it was decided without."""
    woken: tuple[str, ...] = ()
    """Lanes to be published."""
    mark: float | None = None
    """Of the loop's lane: by it the sweep finds what the step leaves to do, until it is taken back."""


def read_entry(id_: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    """An entry, from what Redis returns."""
    detail = unpack(fields[b"d"]) if b"d" in fields else {}
    loop = read_loop_entry(fields)
    status = fields[b"s"].decode() if b"s" in fields else None
    return Entry(
        id=id_.decode(),
        instance=fields[b"l"].decode() or None if b"l" in fields and loop is None else None,
        message=unpack(fields[b"m"]) if b"m" in fields else None,
        call=int(fields[b"c"]) if b"c" in fields else None,
        status=Status(status) if status is not None and b"c" in fields else None,
        error=detail.get("error"),
        reason=detail.get("reason"),
        record=fields.get(b"k"),
        amendment=fields.get(b"a"),
        missed=tuple(detail.get("missed", ())),
        gives_up=b"g" in fields,
        undone=tuple(unpack(fields[b"u"])) if b"u" in fields else (),
        by=detail.get("by"),
        snapshot=fields.get(b"h"),
        ruling=fields.get(b"j"),
        child=fields[b"r"].decode() if b"r" in fields else None,
        run_status=status if b"l" not in fields else None,
        loop=loop,
        deed=Deed.unpack(fields[b"w"]) if b"w" in fields else None,
        spent=Spent.read(detail.get("t")),
        is_of_lane=b"l" in fields,
    )


def read_flat(id_: bytes, flat: Sequence[bytes]) -> Entry:
    """An entry, its fields and values in one list as a script gives them."""
    return read_entry(id_, dict(zip(flat[::2], flat[1::2], strict=True)))


def standing(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries of one lane, without the ends of calls that were undone later and what was decided of them."""
    last = {call: number for number, entry in enumerate(entries) for call in entry.undone}
    if not last:
        yield from entries
        return
    for number, entry in enumerate(entries):
        is_undone = entry.call is not None and number < last.get(entry.call, -1)
        yield replace(entry, status=None, snapshot=None, ruling=None) if is_undone else entry


def is_at_work(entry: bytes | None) -> bool:
    """Whether a call is at work, here or elsewhere, by its entry in `calls` (see advance.lua)."""
    return entry is not None and entry.startswith((b"running:", b"sent:", b"child:"))


def _is_resting(entry: bytes | None, now_ms: int) -> bool:
    """Whether a call is to be tried again, but not yet."""
    return entry is not None and entry.startswith(b"retry:") and int(entry.rpartition(b":")[2]) > now_ms


class MessageLog:
    """The logs of all runs, through one asynchronous connection pool."""

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str,
        published_seconds: float,
        lease_seconds: float,
        window: int,
        tells: bool = False,
        run_bytes: int = _NO_LIMIT,
        run_work: int = _NO_LIMIT,
    ) -> None:
        self._commands = GroupedCommands(redis)
        self._prefix = prefix
        self._published = _milliseconds(published_seconds)
        self._silent = _milliseconds(lease_seconds)
        self._window = window
        self._most_bytes = run_bytes
        self._most_work = run_work
        self._tells = tells
        self._lane = self._commands.register_script(read_script("run", "lane"))
        self._advance = self._commands.register_script(read_script("run", "window", "advance"))
        self._loop = self._commands.register_script(read_script("run", "loop"))

    async def shared(self, run: str) -> tuple[bytes | None, list[Entry], Tokens]:
        """The run's definition - None where there is no such run (any more) -, the global lane, and all tokens."""
        definition, entries, tokens = await asyncio.gather(
            self._commands.execute("GET", self._keys(run).definition), self.read(run, None), self._tokens()
        )
        return definition, entries, tokens

    async def _tokens(self) -> Tokens:
        key = secret(self._prefix)
        found = await self._commands.execute("GET", key)
        if found is None:
            await self._commands.execute("SETNX", key, new_secret())
            found = await self._commands.execute("GET", key)
        return Tokens(found)

    async def read(self, run: str, instance: str | None, after: str = "0-0") -> list[Entry]:
        """The entries of a lane behind an id of it, oldest first."""
        return list((await self.open(run, instance, after=after)).entries)

    async def open(self, run: str, instance: str | None, *, after: str = "0-0") -> Opened:
        """A lane as it is at one moment, as far as it lies behind an id of it."""
        keys, lane = self._keys(run), lane_token(instance)
        names = keys.log, keys.lanes, keys.published
        _, open_calls, mark, now, found, before = await self._commands.run_script(
            self._lane, names, lane, after, "", _PAGE, PAGE_BYTES
        )
        while before:
            *_, older, before = await self._commands.run_script(
                self._lane, names, lane, after, before, _PAGE, PAGE_BYTES
            )
            found += older
        entries = [read_flat(id_, flat) for id_, flat in reversed(found)]
        return Opened(entries, open_calls, float(mark) if mark is not None else None, int(now))

    async def at_work(self, run: str, instance: str | None, calls: Sequence[int], now_ms: int) -> frozenset[int]:
        """Which of a lane's calls are at work, or wait for the next attempt."""
        found = set[int]()
        for start in range(0, len(calls), _PAGE):
            page = calls[start : start + _PAGE]
            fields = [CallId(run, instance, call).member for call in page]
            entries = await self._commands.execute("HMGET", self._keys(run).calls, *fields)
            for call, entry in zip(page, entries, strict=True):
                if is_at_work(entry) or _is_resting(entry, now_ms):
                    found.add(call)
        return frozenset(found)

    async def advance(
        self,
        run: str,
        instance: str | None,
        *,
        seen: str,
        global_seen: str,
        owner: str,
        outcomes: Sequence[Outcome] = (),
        missed: Mapping[int, Sequence[str]] = MappingProxyType({}),
        waking: Iterable[int] = (),
        rests: Sequence[Rest] = (),
        settled: Sequence[int] = (),
        claims: Sequence[Claim] = (),
        holds: Sequence[Held] = (),
        delegated: Sequence[Delegated] = (),
        sendings: Mapping[int, TaskMessage] = MappingProxyType({}),
        attempts: Mapping[int, Spent] = MappingProxyType({}),
        park: bool = False,
        leaves: bool = False,
        takes_up: float | None = None,
        output_fault: str | None = None,
        work: int = 0,
        status: str | None = None,
    ) -> Advance:
        """Append outcomes, claim and hold calls, all at once (see advance.lua).

        `missed` says by call which promised places it had to do without, `settled` are gather calls that have nothing
        to wait for in the lane any more.
        `waking` are calls that parked lanes await, `sendings` the tasks of outcomes that are sent and forgotten,
        `attempts` what those that were carried out took.
        `output_fault` is what `LaneView.output_fault` says, `work` what validation has taken (see `schemas.work`).
        `status` is that of the run as the caller has read it, where another one is news.
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
            "status": status,
            "output_fault": output_fault,
            "work": work,
            "most_bytes": self._most_bytes,
            "most_work": self._most_work,
            "window": self._window,
            "settled": list(settled),
            "outcomes": [
                _outcome(
                    outcome,
                    sendings.get(outcome.index),
                    wakes=outcome.index in wakes,
                    missed=missed.get(outcome.index, ()),
                    spent=attempts.get(outcome.index),
                )
                for outcome in outcomes
            ],
            "retries": [
                {"call": rest.index, "attempt": rest.attempt, "delay_ms": _milliseconds(rest.delay_seconds)}
                for rest in rests
            ],
            "tells": self._tells,
            "children": [{"call": one.index, "attempt": one.attempt, "run": one.run} for one in delegated],
            "holds": [{"call": held.index, "snapshot": held.snapshot} for held in holds],
            "claims": [
                {"call": claim.index, "lease_ms": _milliseconds(claim.lease_seconds), "queue": claim.queue}
                for claim in claims
            ],
        }
        names = (
            keys.state,
            keys.log,
            keys.lanes,
            keys.calls,
            keys.leases,
            keys.statuses,
            keys.parked,
            keys.published,
            keys.backlog,
            keys.outbox,
            keys.outbox_tasks,
            keys.outbox_due,
            keys.gathers,
            keys.held,
            keys.untold,
            keys.children,
        )
        reply = await self._commands.run_script(self._advance, names, pack_request(request))
        advance = _read_advance(reply)
        if advance.due_ms is not None:
            await self._commands.execute("ZADD", due_runs(self._prefix), "LT", advance.due_ms, run)
        return advance

    async def take_loop_step(self, run: str, step: LoopStep) -> LoopAdvance:
        """Write a step of the run's loop, if nothing has come that it was decided without (see loop.lua)."""
        request = pack_request(step.to_request(self._published, self._most_bytes))
        reply = await self._commands.run_script(self._loop, loop_keys(self._keys(run)), request)
        found = unpack(reply)
        if "due" in found:
            await self._commands.execute("ZADD", due_runs(self._prefix), "LT", found["due"], run)
        mark = found.get("mark")
        return LoopAdvance(
            found["status"], found["is_taken"], tuple(found["woken"]), float(mark) if mark is not None else None
        )

    async def everything(self, run: str, after: str = "0-0") -> list[Entry]:
        """The entries of all lanes behind an id, in order, and the changes of the run's status."""
        found: list[Entry] = []
        while True:
            page = await self._commands.execute("XRANGE", self._keys(run).log, f"({after}", "+", "COUNT", _PAGE)
            found += [read_entry(id_, fields) for id_, fields in page]
            if len(page) < _PAGE:
                return found
            after = found[-1].id

    async def parent(self, run: str) -> Parent | None:
        """The call that a run is to answer, where it is a child."""
        return Parent.read(await self._commands.execute("HGET", self._keys(run).state, PARENT))

    async def is_awaited(self, parent: Parent, run: str) -> bool:
        """Whether the call that a child run is to answer still waits for it."""
        keys = self._keys(parent.call.run)
        status, entry = await asyncio.gather(
            self._commands.execute("HGET", keys.state, "status"),
            self._commands.execute("HGET", keys.calls, parent.call.member),
        )
        return status in (b"running", b"paused") and parent.waits_for(entry, run)

    async def now_ms(self) -> int:
        """The server's time: that of the log's ids."""
        seconds, micros = await self._commands.execute("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def mark(self, run: str, instance: str | None) -> float | None:
        """The mark of a lane's published task (see advance.lua)."""
        mark = await self._commands.execute("ZSCORE", self._keys(run).published, lane_token(instance))
        return float(mark) if mark is not None else None

    async def unsettled(self, run: str) -> dict[int, int]:
        """Gather call -> in how many lanes it has still something to wait for; those without any may be left out."""
        found = await self._commands.execute("HGETALL", self._keys(run).gathers)
        return {int(call): int(lanes) for call, lanes in found.items()}

    async def instances(self, run: str) -> list[str]:
        """The instances of a run, in the order of its context."""
        found: list[str] = []
        while True:
            last = len(found) + INSTANCES_AT_ONCE - 1
            page = await self._commands.execute("LRANGE", self._keys(run).instances, len(found), last)
            found += [instance.decode() for instance in page]
            if len(page) < INSTANCES_AT_ONCE:
                return found

    async def messages(self, run: str) -> AsyncIterator[tuple[str, str, Mapping[str, Any]]]:
        """The messages of all instances as they are now, in order: id, instance, message."""
        key, after = self._keys(run).log, "-"
        last = await self._commands.execute("XREVRANGE", key, "+", "-", "COUNT", 1)
        until = last[0][0] if last else "0-0"
        while True:
            page = await self._commands.execute("XRANGE", key, after, until, "COUNT", _PAGE)
            for id_, fields in page:
                if b"m" in fields and b"t" not in fields and (lane := fields[b"l"]):
                    yield id_.decode(), lane.decode(), unpack(fields[b"m"])
            if len(page) < _PAGE:
                return
            after = f"({page[-1][0].decode()}"

    def _keys(self, run: str) -> Keys:
        return Keys(self._prefix, run)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _outcome(
    outcome: Outcome, sending: TaskMessage | None, *, wakes: bool, missed: Sequence[str], spent: Spent | None
) -> dict[str, Any]:
    return {
        "call": outcome.index,
        "status": outcome.status.value,
        "detail": _detail(outcome, missed, spent),
        "missed": ", ".join(missed),
        "wakes": wakes,
        "messages": [pack(message) for message in outcome.messages],
        "task": pack_task(sending) if sending is not None else b"",
        "queue": sending.queue if sending is not None else "",
    }


def _detail(outcome: Outcome, missed: Sequence[str], spent: Spent | None) -> bytes:
    detail: dict[str, Any] = {}
    if outcome.error is not None:
        detail["error"] = dict(outcome.error)
    if outcome.reason is not None:
        detail["reason"] = outcome.reason
    if missed:
        detail["missed"] = list(missed)
    if spent is not None and (packed := spent.pack()) is not None:
        detail["t"] = packed
    return pack(detail) if detail else b""


def _read_advance(reply: bytes) -> Advance:
    found = unpack(reply)
    if found["status"] == "gone":
        return Advance("gone")
    return Advance(
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
        among=found["among"],
        due_ms=int(found["due"]) if "due" in found else None,
    )
