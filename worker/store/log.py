"""The logs of all runs in Redis, as lane runners use them: reading lanes, and committing.

The module `entries` reads an entry, `commits` has the request and the answer of a commit.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import RedisError

from ...protocol.engine.loop import LoopLimits
from ...protocol.messages import digests
from .. import limits
from ..backoff import batches
from ..broker.attempts import Attempt, CallId, Tokens, lane_token
from ..broker.messages import unpack
from ..fairness import alone_from
from ..outages import Outage
from ..process import metrics
from .commits import Commit, Committed, LoopCommitted, milliseconds
from .connections import GroupedCommands, new_secret
from .definition import FORMAT, require_format
from .entries import Entry, LoopStep, read_entry, read_flat
from .keys import ENDED_STATUSES, Field, Keys, awaiting_code, cached_result, due_runs, is_at_work, is_resting, secret
from .run_list import OWNER, PARENT, PRIORITY, TRACE, Parent, budgets_of, is_answered_by, place_under, texts_of
from .scripts import AsyncScript
from .servers import AsyncServers
from .slots import SPENT, Budget, Budgets, Reservation, Shortfall

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """A lane as it is read at first."""

    entries: Sequence[Entry]
    open_calls: int
    """How many of its calls have begun and not ended."""
    mark: float | None
    """The mark of the lane's published task (see commit.lua)."""
    now_ms: int
    born: str
    """When the run was submitted, as its state has it."""


class Shared(NamedTuple):
    """The parts of a run that its lanes share, with one lane, as they are read first."""

    definition: bytes | None
    """None where there is no such run (any more)."""
    tokens: Tokens
    entries: Sequence[Entry]
    """The entries of the global lane."""
    lane: Opened
    trace: str
    """The run's place in a trace, where it is not the root of its own."""
    priority: int = 0
    files: Mapping[str, bytes] = MappingProxyType({})
    """The files of the run by their digests, if they were read, too."""


class Drive(NamedTuple):
    """The answer to whether a lane that was lost may be driven."""

    is_driven: bool
    is_over: bool
    """Whether the run has ended; else another task drives the lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTerms:
    """By what all runs are written."""

    published_seconds: float
    """How long a published task may be in its queue before it counts as lost."""
    lease_seconds: float
    """How long a driver may be silent before it counts as lost."""
    window: int
    """The number of a run's lanes in the queue."""
    tells: bool = False
    """Whether there is a web hook to be called for what is held."""
    run_bytes: int = limits.NO_LIMIT
    """The most bytes that the calls of a run may write in all."""
    run_work: int = limits.NO_LIMIT
    """The most work that validation may take in all."""
    most_losses: int = 5
    """With how many losses a call begins no more."""

    def to_request(self) -> dict[str, Any]:
        """The request of a commit's script."""
        return {
            "published_ms": milliseconds(self.published_seconds),
            "silent_ms": milliseconds(self.lease_seconds),
            "window": self.window,
            "tells": self.tells,
            "most_bytes": self.run_bytes,
            "most_work": self.run_work,
            "most_codes": limits.MOST_CODES,
            "most_losses": self.most_losses,
            "alone_from": alone_from(self.most_losses),
        }


def _by_digest(files: Any = ()) -> dict[str, bytes]:
    pairs = files.items() if isinstance(files, dict) else zip(files[::2], files[1::2], strict=True)
    return {digest.decode(): content for digest, content in pairs}


class MessageLog:
    """The logs of all runs, through one asynchronous connection pool."""

    def __init__(self, redis: Redis, prefix: str, terms: LogTerms) -> None:
        self._redis = redis
        self._commands = GroupedCommands(redis)
        self._prefix = prefix
        self._terms = terms
        self._lane = AsyncScript(self._commands, "lane", is_raw=True)
        self._commit = AsyncScript(self._commands, "commit")
        self._loop = AsyncScript(self._commands, "loop")
        self._budget = AsyncScript(self._commands, "budget")
        self._drive = AsyncScript(self._commands, "drive")
        self._reports = AsyncScript(self._commands, "reports")
        self._writing = set[asyncio.Task[None]]()
        self._progress = Outage(logger, "writing the progress of calls")

    async def reaches(self, run: str) -> bool:
        """Whether the server of a run answers, or did when it was last asked: only of several one may be away."""
        return not isinstance(self._redis, AsyncServers) or await self._redis.reaches(run)

    async def shared(self, run: str, instance: str | None = None, *, has_files: bool = False) -> Shared:
        """Read what lanes share, with one of them, in one round trip; `has_files`: with the files of the run, by their
        digests, without the pictures of tools.
        """
        keys = self._keys(run)
        opening = [asyncio.ensure_future(self.open(run, lane)) for lane in dict.fromkeys((None, instance))]
        found = await asyncio.gather(
            *opening,  # they begin before what the others ask is sent
            self._commands.execute("GET", keys.definition),
            self._commands.execute("GET", secret(self._prefix)),
            self._commands.execute("HMGET", keys.state, TRACE, PRIORITY),
            *([self._commands.execute("HGETALL", keys.files)] if has_files else ()),
        )
        lanes, (definition, key, (above, priority), *files) = found[: len(opening)], found[len(opening) :]
        tokens = Tokens(key or await self._make_secret(), lanes[0].born)
        place = place_under(run, above)
        return Shared(definition, tokens, lanes[0].entries, lanes[-1], place, int(priority or 0), _by_digest(*files))

    async def _make_secret(self) -> bytes:
        key = secret(self._prefix)
        await self._commands.execute("SETNX", key, new_secret())
        found = await self._commands.execute("GET", key)
        assert isinstance(found, bytes)
        return found

    async def read(self, run: str, instance: str | None, after: str = "0-0") -> list[Entry]:
        """The entries of a lane behind an id of it, oldest first."""
        return list((await self.open(run, instance, after=after)).entries)

    async def open(self, run: str, instance: str | None, *, after: str = "0-0") -> Opened:
        """Read the part of a lane behind one of its ids, at one moment."""
        keys, page = self._keys(run), {"most": limits.LOG_PAGE, "most_bytes": limits.PAGE_BYTES}
        request = {"lane": lane_token(instance), "after": after, "from": b"", **page}
        opened = older = await self._lane(keys, request)
        found = list(opened["entries"])
        while older["before"]:
            older = await self._lane(keys, request | {"from": older["before"]})
            found += older["entries"]
        entries = [read_flat(id_, flat) for id_, flat in reversed(found)]
        return Opened(entries, opened["open"], opened.get("mark"), opened["now"], opened.get("born", b"").decode())

    async def born(self, run: str) -> str:
        """When a run was submitted, as its state has it."""
        return (await self._commands.execute("HGET", self._keys(run).state, "submitted") or b"").decode()

    async def at_work(self, run: str, instance: str | None, calls: Sequence[int], now_ms: int) -> frozenset[int]:
        """Choose the calls of a lane that are at work, or wait for the next attempt."""
        found = set[int]()
        for page in batches(calls, limits.LOG_PAGE):
            fields = [CallId(run, instance, call).member for call in page]
            entries = await self._commands.execute("HMGET", self._keys(run).calls, *fields)
            for call, entry in zip(page, entries, strict=True):
                if is_at_work(entry) or is_resting(entry, now_ms):
                    found.add(call)
        return frozenset(found)

    async def commit(self, run: str, commit: Commit) -> Committed:
        """Take one step of a lane, whole or not at all."""
        request = commit.to_request() | self._terms.to_request()
        began = time.monotonic()
        committed = Committed.read(await self._commit(self._keys(run), request))
        metrics().committed(time.monotonic() - began)
        if committed.due_ms is not None:
            await self._commands.execute("ZADD", due_runs(self._prefix), "LT", committed.due_ms, run)
        if any(rest.is_given_back for rest in commit.rests):
            await self._commands.execute("ZADD", awaiting_code(self._prefix), await self.now_ms(), run)
        return committed

    def note_progress(self, attempt: Attempt, packed: bytes) -> None:
        """Write what an attempt that is at work here reports, as soon as the server takes it; nobody waits."""
        id_ = attempt.id
        one = (lane_token(id_.instance), id_.index, attempt.number, packed)
        request = {"progressed": [one], "most_unanswered": limits.UNANSWERED_OF_A_RUN, "action": "progress"}
        writing = asyncio.create_task(self._write_progress(id_.run, request))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    async def _write_progress(self, run: str, request: Mapping[str, Any]) -> None:
        try:
            await self._reports(self._keys(run), request)
        except RedisError as error:
            self._progress.failed(error)
        else:
            self._progress.succeeded()

    async def note_drive(self, run: str, instance: str | None, *, is_redelivered: bool) -> Drive:
        """Note that a lane is driven that was lost; says whether it may be (see drive.lua). Raises `OtherFormat`."""
        most = max(self._terms.most_losses, limits.FEWEST_DRIVES)
        place = "the lane without an instance" if instance is None else f"lane {instance:.200}"
        reason = (
            f"{place} was driven {most + 1} times, and each time its worker died or failed before anything came of it "
            "(ACTS_LIMIT_ATTEMPTS): see the logs of the workers, and fork the run once they can do it"
        )
        request = {"lane": lane_token(instance), "most": most, "reason": reason, "redelivered": is_redelivered}
        found = await self._drive(self._keys(run), {**request, "format": FORMAT})
        if "format" in found:
            require_format(found["format"])
        if found["is_over"]:
            await self._commands.execute("ZADD", due_runs(self._prefix), "LT", await self.now_ms(), run)
        return Drive(found["is_driven"], found["is_over"])

    async def take_loop_step(self, run: str, step: LoopStep) -> LoopCommitted:
        """Write a step of the run's loop, if nothing has come that it was decided without (see loop.lua)."""
        request = step.to_request(milliseconds(self._terms.published_seconds), self._terms.run_bytes)
        found = await self._loop(self._keys(run), request)
        if "due" in found:
            await self._commands.execute("ZADD", due_runs(self._prefix), "LT", found["due"], run)
        mark = found.get("mark")
        return LoopCommitted(
            found["status"], found["is_taken"], tuple(found["woken"]), float(mark) if mark is not None else None
        )

    async def everything(self, run: str, after: str = "0-0") -> list[Entry]:
        """The entries of all lanes behind an id, in order, and the changes of the run's status."""
        found: list[Entry] = []
        while True:
            page = await self._commands.execute(
                "XRANGE", self._keys(run).log, f"({after}", "+", "COUNT", limits.LOG_PAGE
            )
            found += [read_entry(id_, fields) for id_, fields in page]
            if len(page) < limits.LOG_PAGE:
                return found
            after = found[-1].id

    async def files(self, run: str, digests: Sequence[str]) -> dict[str, bytes]:
        """The files of these digests, and pictures of tools, as far as the run has them."""
        keys, found = self._keys(run), dict[str, bytes]()
        for key in (keys.files, keys.pictures):
            if missing := [digest for digest in digests if digest not in found]:
                contents = await self._commands.execute("HMGET", key, *missing)
                found |= {name: each for name, each in zip(missing, contents, strict=True) if each is not None}
        return found

    async def with_files(self, run: str, known: Mapping[str, bytes], entries: Iterable[Entry]) -> Mapping[str, bytes]:
        """The files that are known by their digests, and those that messages of these entries show."""
        named = digests(entry.message for entry in entries if entry.message is not None)
        missing = [digest for digest in named if digest not in known]
        return {**known, **await self.files(run, missing)} if missing else known

    async def reserve(self, budgets: Budgets, taken: Reservation) -> Shortfall | None:
        """Have a member take so much of each of these budgets, or say what is lacking in one of them."""
        answer = await self._budget(self._keys(budgets[-1].run), taken.to_request(budgets))
        return taken.shortfall(budgets, answer)

    async def budgets(self, run: str, limits: LoopLimits) -> tuple[Budget, ...]:
        """Read the budgets that the calls of a loop take from: its own, and those above it."""
        fields = await self._commands.execute("HMGET", self._keys(run).state, PARENT, *SPENT)
        return budgets_of(run, limits, *fields)

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

    async def is_answered_by(self, call: CallId, child: str) -> bool:
        """Whether a call waits for that child and no other: one that is retried by hand has another (SPEC R9.3)."""
        entry = await self._commands.execute("HGET", self._keys(call.run).calls, call.member)
        return is_answered_by(entry, child)

    async def now_ms(self) -> int:
        """The server's time, as in the log's ids."""
        seconds, micros = await self._commands.execute("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def resumed_and_code_came_ms(self, run: str) -> tuple[int, int]:
        """When the run last went on after it was paused, and when a worker last began after a call was given back;
        0 for never.
        """
        resumed, code_came = await self._commands.execute("HMGET", self._keys(run).state, "resumed", "code_came")
        return int(resumed or 0), int(code_came or 0)

    async def cached(self, digest: bytes) -> Any:
        """Read the result that is kept under a digest; None where there is none. At most 4,096 are kept."""
        found = await self._commands.execute("GET", self._place(digest))
        if found is None or not found.startswith(digest):
            return None
        return unpack(found[len(digest) :])

    async def cache(self, digest: bytes, value: bytes, seconds: float) -> None:
        """Keep packed bytes under a digest for so long."""
        await self._commands.execute("SET", self._place(digest), digest + value, "PX", milliseconds(seconds))

    def _place(self, digest: bytes) -> str:
        return cached_result(self._prefix, digest.hex()[:3])

    async def owner(self, run: str) -> str | None:
        """The owner of a run, or of the run above a child run; None where it was submitted without a token. Raises
        `LookupError` where one of them is gone.
        """
        for _ in range(limits.DEEPEST_CHILD):
            found = await self._commands.execute("HMGET", self._keys(run).state, OWNER, PARENT, "submitted")
            owner, parent, submitted = texts_of(found)
            if submitted is None:
                break
            if owner is not None or (above := Parent.read(parent)) is None:
                return owner
            run = above.call.run
        raise LookupError(run)

    async def mark(self, run: str, instance: str | None) -> float | None:
        """The mark of a lane's published task (see commit.lua)."""
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
            last = len(found) + limits.LOG_INSTANCES_AT_ONCE - 1
            page = await self._commands.execute("LRANGE", self._keys(run).instances, len(found), last)
            found += [instance.decode() for instance in page]
            if len(page) < limits.LOG_INSTANCES_AT_ONCE:
                return found

    async def messages(
        self, run: str
    ) -> AsyncIterator[tuple[str, str, int | None, Mapping[str, Any] | frozenset[int]]]:
        """The messages of all instances as they are now, in order: id, instance, the call that wrote it, message; in
        place of a message also the calls of which nothing before counts.
        """
        key, after = self._keys(run).log, "-"
        last = await self._commands.execute("XREVRANGE", key, "+", "-", "COUNT", 1)
        until = last[0][0] if last else "0-0"
        while True:
            page = await self._commands.execute("XRANGE", key, after, until, "COUNT", limits.LOG_PAGE)
            for id_, fields in page:
                if not (lane := fields.get(Field.LANE)) or Field.TICK in fields:  # of the run, or of its loop
                    continue
                if Field.MESSAGE in fields:
                    call = int(fields[Field.CALL]) if Field.CALL in fields else None
                    yield id_.decode(), lane.decode(), call, unpack(fields[Field.MESSAGE])
                elif Field.UNDONE in fields:
                    yield id_.decode(), lane.decode(), None, frozenset(unpack(fields[Field.UNDONE]))
            if len(page) < limits.LOG_PAGE:
                return
            after = f"({page[-1][0].decode()}"

    def _keys(self, run: str) -> Keys:
        return Keys(self._prefix, run)


# The entries of a run as they come, read by a client for threads or one for an event loop. The streams of several runs
# may be on several nodes of a cluster, or servers of the log: those of child runs are looked at twice a second there.

_ID: Final = re.compile(r"\d{1,19}(-\d{1,19})?\Z", re.ASCII)
Found = Sequence[tuple[str, Sequence[Entry]]]
"""Entries that were read, by their streams."""


class Streams:
    """One stream of a run and how far it was read, with the logs of child runs as soon as it names them."""

    def __init__(
        self,
        redis: Any,
        prefix: str,
        run: str,
        after: str,
        *,
        statuses: bool = False,
        has_children: bool = False,
        is_spread: bool = False,
    ) -> None:
        """`redis` is a client for threads or one for an event loop; redis-py has no type for both. With `statuses` only
        the changes of the run's status are read, else its log. Raises `ValueError` if `after` is no id.
        """
        if not _ID.match(after):
            raise ValueError(f"{after!r} is no id of an event, such as 1763683200000-0")
        self._redis = redis
        self._prefix = prefix
        self._has_children = has_children
        self._is_spread = is_spread
        keys = Keys(prefix, run)
        self._own = keys.statuses if statuses else keys.log
        self._seen = {self._own: after}
        self._runs: dict[str, str] = {}
        """The child runs, by their logs."""
        self._later: deque[str] = deque()
        """The logs of those that are read when others have ended."""
        self._last: str | None = None
        """The last entry of the run's own stream, where there was none behind it when it was read."""

    async def read(self, block_ms: int | None) -> Found:
        """Read new entries; wait for them, at most this long. Raises `RedisError`."""
        for seen, wait_ms in self._readings(block_ms):
            answer = self._redis.xread(seen, block=wait_ms, count=limits.PROGRESS_AT_ONCE)
            if found := _streams_of(await answer if isawaitable(answer) else answer):
                return found
        return []

    def _readings(self, block_ms: int | None) -> Iterator[tuple[dict[Any, Any], int | None]]:
        """Streams with the last ids that were seen, one reading after the other until one finds something, and for how
        long each may wait.
        """
        if not self._runs or not self._is_spread:
            yield dict(self._seen), block_ms
            return
        yield from (({stream: seen}, None) for stream, seen in self._seen.items())
        if block_ms is not None:
            yield {self._own: self._seen[self._own]}, min(block_ms, limits.LOOK_MS)

    def take(self, found: Found) -> Iterator[tuple[str | None, Entry]]:
        """Yield the entries that were read, each with its run where that is a child run."""
        for stream, entries in found:
            if stream == self._own:
                self._last = entries[-1].id if len(entries) < limits.PROGRESS_AT_ONCE else None
            for entry in entries:
                self._seen[stream] = entry.id
                if self._has_children and entry.child is not None:
                    log = Keys(self._prefix, entry.child).log
                    self._runs[log] = entry.child
                    self._later.append(log)
                yield self._runs.get(stream), entry
                if stream in self._runs and entry.run_status in ENDED_STATUSES:
                    self._seen.pop(stream)
                    break
        self._read_more()

    def may_be_last(self, entry: Entry) -> bool:
        """Whether nothing was behind an entry of the run's own when it was read."""
        return entry.id == self._last

    def leave_own(self) -> None:
        """From now on read child runs alone."""
        self._seen.pop(self._own)
        self._read_more()

    def _read_more(self) -> None:
        while self._later and len(self._seen) < limits.PROGRESS_ENTRIES_AT_ONCE:
            self._seen.setdefault(self._later.popleft(), "0-0")

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to be read."""
        return not self._seen


def _streams_of(found: Any) -> Found:
    """The answer of `XREAD`. In RESP3, redis-py puts one list more around the entries than in RESP2."""
    streams = found.items() if isinstance(found, dict) else found or ()
    flat = ((name, entries[0] if isinstance(entries[0], list) else entries) for name, entries in streams if entries)
    return [(name.decode(), [read_entry(*entry) for entry in entries]) for name, entries in flat]


async def newest_status(redis: Any, prefix: str, run: str) -> Entry | None:
    """Read the last change of a run's status; None where there is no such run. `redis` is as in `Streams`."""
    answer = redis.xrevrange(Keys(prefix, run).statuses, count=1)
    found = await answer if isawaitable(answer) else answer
    return read_entry(*found[0]) if found else None


async def wait_for_entry(redis: Redis, prefix: str, run: str, *, after: str, block_ms: int) -> None:
    """Wait until the log of a run has an entry behind an id, for so long at most. Raises `RedisError`."""
    await redis.xread({Keys(prefix, run).log: after}, count=1, block=block_ms)
