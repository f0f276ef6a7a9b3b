"""Forks: a new run that begins where another one was at some moment (SPEC R11.2).

Everything in the journals up to an id is copied with its id, so a fork's past can be read like that of the run it came
from; ledgers and counters follow from it. What had not ended then is executed anew, what was sent and forgotten is not.
It is written in the order in which the dispatcher writes a run: nobody takes a half of it for a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from redis import Redis

from broker_config import Settings
from protocol.engine.solution_output import output_fault
from protocol.state.fold import Fold
from worker.errors import BeingAmended, RunNotFound
from worker.messaging.attempts import lane_token
from worker.storage.definition import FORMAT, Definition, unpack_definition
from worker.storage.due import DueRuns
from worker.storage.keys import ENDED, Keys, active_runs, make_run_id
from worker.storage.lane import amended, id_key, known_calls
from worker.storage.log import read_entry
from worker.storage.retention import delete_run

_LANES_AT_ONCE: Final = 200
_ENTRIES_AT_ONCE: Final = 2_000

Fields = dict[Any, Any]
"""A stream entry, as Redis has it."""


@dataclass(frozen=True, slots=True)
class _Past:
    """A lane as it was: its entries, and how its calls stood."""

    instance: str | None
    entries: Sequence[tuple[str, Fields]]
    ended: dict[int, str]
    size: int
    """How many calls it has."""


class Forker:
    """Copies one run's past into new runs."""

    def __init__(self, run: str, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)

    def fork(self, at: str | None = None, *, is_paused: bool = False) -> str:
        """Write down a new run that is as this one was at an id, now where none is given. Returns the new run's id.

        An id within the submission stands for all of it, one in the midst of a call's result or of an amendment for the
        moment before.
        The tasks are not published: resume it, or leave that to the workers' sweep. Raises `RunNotFound`.
        """
        at, definition = self._moment(at)
        seconds, microseconds = self._redis.time()
        milliseconds = seconds * 1000 + microseconds // 1000
        keys = Keys(self._keys.prefix, make_run_id(milliseconds))
        found: Any = self._redis.lrange(self._keys.instances, 0, -1)
        instances = [instance.decode() for instance in found]
        try:
            self._redis.zadd(active_runs(keys.prefix), {keys.run: milliseconds})
            self._redis.set(keys.definition, definition)
            for start in range(0, len(found), _ENTRIES_AT_ONCE):
                self._redis.rpush(keys.instances, *found[start : start + _ENTRIES_AT_ONCE])
            shared: Any = self._redis.xrange(self._keys.journal(""), max=at)
            whole = amended(unpack_definition(definition), (read_entry(id_, fields) for id_, fields in shared))
            counts = self._copy_lanes(keys, [None, *instances], whole, at)
            self._copy_events(keys, at)
            fault = _output_fault(whole, shared)
            self._start(keys, counts, at, milliseconds, is_paused=is_paused, output_fault=fault)
        except BaseException:
            delete_run(self._redis, keys, instances=instances)
            raise
        return keys.run

    def _moment(self, at: str | None) -> tuple[str, bytes]:
        """The id at which to fork, one that everything lies before or behind; and the run's definition."""
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hmget(self._keys.state, "ms", "seq", "amending", "amended")
            pipeline.get(self._keys.definition)
            pipeline.xrange(self._keys.events, count=1)
            (ms, seq, amending, amendments), definition, first = pipeline.execute()
        if ms is None or definition is None:
            raise RunNotFound(self._keys.run)
        if amending is not None:
            raise BeingAmended(f"run {self._keys.run} is amended in part: fork it when that is finished")
        now, submitted = f"{int(ms)}-{int(seq)}", first[0][0].decode()
        moment = max(submitted, min(at or now, now, key=id_key), key=id_key)
        for since, until in _amendments(amendments):
            if id_key(since) < id_key(moment) < id_key(until):
                moment = since
        return moment, definition

    def _copy_lanes(self, keys: Keys, lanes: Sequence[str | None], definition: Definition, at: str) -> Counter[str]:
        """Copy the lanes; how many calls there are, and how many of each status."""
        counts: Counter[str] = Counter()
        remaining = iter(lanes)
        while batch := list(islice(remaining, _LANES_AT_ONCE)):
            with self._redis.pipeline(transaction=False) as pipeline:
                for past in self._read(batch, definition, at):
                    lane = lane_token(past.instance)
                    for id_, fields in past.entries:
                        pipeline.xadd(keys.journal(lane), fields, id=id_)
                    if past.ended:
                        pipeline.hset(keys.ledger(lane), mapping={str(call): how for call, how in past.ended.items()})
                    if len(past.ended) < past.size:
                        pipeline.rpush(keys.backlog, lane)
                    counts.update(past.ended.values())
                    counts["total"] += past.size
                pipeline.execute()
        return counts

    def _read(self, lanes: Sequence[str | None], definition: Definition, at: str) -> Iterator[_Past]:
        with self._redis.pipeline(transaction=False) as pipeline:
            for instance in lanes:
                journal = self._keys.journal(lane_token(instance))
                pipeline.xrange(journal, max=at)
                pipeline.xrange(journal, min=f"({at}", count=1)
            found = pipeline.execute()
        for instance, before, behind in zip(lanes, found[::2], found[1::2], strict=True):
            cut = {fields[b"c"] for _, fields in behind if b"c" in fields}
            entries = _without(before, cut)
            read = [read_entry(id_, fields) for id_, fields in entries]
            ended = {entry.call: entry.status.value for entry in read if entry.call is not None and entry.status}
            size = len(known_calls(definition, read, instance))
            yield _Past(instance, [(id_.decode(), fields) for id_, fields in entries], ended, size)

    def _copy_events(self, keys: Keys, at: str) -> None:
        """Copy the events, but for the end of the run."""
        after = "-"
        while True:
            found: Any = self._redis.xrange(self._keys.events, min=after, max=at, count=_ENTRIES_AT_ONCE)
            if not found:
                return
            with self._redis.pipeline(transaction=False) as pipeline:
                for id_, fields in found:
                    if b"c" in fields or fields[b"s"].decode() not in ENDED:
                        pipeline.xadd(keys.events, fields, id=id_)
                pipeline.execute()
            after = f"({found[-1][0].decode()}"

    def _amended(self, at: str) -> dict[str, str]:
        """The amendments that are part of the past."""
        field: Any = self._redis.hget(self._keys.state, "amended")
        past = [f"{since}:{until} " for since, until in _amendments(field) if id_key(until) <= id_key(at)]
        return {"amended": "".join(past)} if past else {}

    def _start(
        self, keys: Keys, counts: Counter[str], at: str, milliseconds: int, *, is_paused: bool, output_fault: str | None
    ) -> None:
        """The last command makes a run of it."""
        total = counts.pop("total", 0)
        remaining = total - counts.total()
        status = "paused" if is_paused else "running"
        if not remaining:
            status = "failed" if counts["failed"] or output_fault else "completed"
        ms, seq = id_key(at)
        state: dict[Any, Any] = {
            "format": FORMAT,
            "status": status,
            "total": total,
            "remaining": remaining,
            "submitted": milliseconds,
            "ms": ms,
            "seq": seq + 1,
            "forked_from": self._keys.run,
            "forked_at": at,
            **self._amended(at),
            **({"output_fault": output_fault} if output_fault else {}),
            **{f"n:{how}": number for how, number in counts.items() if number},
        }
        self._redis.xadd(keys.events, {"s": status}, id=f"{ms}-{seq + 1}")
        self._redis.hset(keys.state, mapping=state)
        DueRuns(self._redis, keys.prefix).note(keys.run)


def _output_fault(definition: Definition, shared: Sequence[tuple[bytes, Fields]]) -> str | None:
    """Why the output cannot be read by the global values so far; global calls that are still to end say it anew."""
    fold = Fold()
    for entry in (read_entry(id_, fields) for id_, fields in shared):
        if entry.message is not None:
            fold.append(entry.message, f"message {entry.id}")
    return output_fault(definition.output, fold)


def _amendments(field: bytes | None) -> list[tuple[str, str]]:
    """For each amendment of a run the last id before it, and its own last (see amend.lua)."""
    pairs = (field or b"").decode().split()
    return [(since, until) for since, _, until in (pair.partition(":") for pair in pairs)]


def _without(entries: Sequence[tuple[bytes, Fields]], cut: set[bytes]) -> list[tuple[bytes, Fields]]:
    """The entries but those of a call whose result goes on behind them."""
    return [(id_, fields) for id_, fields in entries if fields.get(b"c") not in cut]
