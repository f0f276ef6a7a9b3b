"""The log of one run, as clients read it: in pages, whole or one lane of it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from redis import Redis
from redis.client import Pipeline

from acts_celery.worker.batches import batches
from acts_celery.worker.errors import RunBroken, RunNotFound, WorkerError
from acts_celery.worker.wire.attempts import CallId, lane_token

from .codes import Code, read_codes
from .condition import Condition, Kind
from .definition import Definition, unpack_definition
from .entries import Entry, id_key, read_entry, read_flat
from .keys import Keys
from .log import INSTANCES_AT_ONCE, PAGE_BYTES
from .scripts import Script
from .waiting import read_waiting
from .withdrawn import counting

_PAGE: Final = 200
"""How many entries one command reads; some may be large."""
_CALLS_AT_ONCE: Final = 500
_LANES_AT_ONCE: Final = 20


def missing(redis: Redis, keys: Keys) -> WorkerError:
    """Why something of a run is not there: there is no such run, or the server has lost a part of it."""
    parts = {"definition": keys.definition, "log": keys.log, "statuses": keys.statuses}
    with redis.pipeline(transaction=False) as pipeline:
        pipeline.hget(keys.state, "status")
        for key in parts.values():
            pipeline.exists(key)
        status, *found = pipeline.execute()
    lost = [name for name, is_there in zip(parts, found, strict=True) if not is_there]
    return RunBroken(keys.run, lost) if status is not None and lost else RunNotFound(keys.run)


class History:
    """What happened in a run. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._lane = Script(redis, "lane", is_raw=True)

    def definition(self) -> Definition:
        """What the run is; to be read only. Raises `RunNotFound`, `RunBroken`, `OtherFormat`."""
        data: Any = self._redis.get(self._keys.definition)
        if data is None:
            raise missing(self._redis, self._keys)
        return unpack_definition(data)

    def ask_first(self, pipeline: Pipeline) -> None:
        """Ask for the first pages of the instances and of the log along with something else: most runs have no more."""
        pipeline.lrange(self._keys.instances, 0, INSTANCES_AT_ONCE - 1)
        pipeline.xrange(self._keys.log, count=_PAGE)

    def instances(self, first: Any = None) -> list[str]:
        """The run's instances, in the order of the context; `first` is their first page, where it was read."""
        found: list[str] = []
        page = first
        while True:
            if page is None:
                page = self._redis.lrange(self._keys.instances, len(found), len(found) + INSTANCES_AT_ONCE - 1)
            found += [instance.decode() for instance in page]
            if len(page) < INSTANCES_AT_ONCE:
                return found
            page = None

    def entries(self, *, after: str = "0-0", until: str = "+", first: Any = None) -> Iterator[Entry]:
        """Everything behind an id and up to another, in order; `first` is the first page, where it was read."""
        for id_, fields in self.raw(after=after, until=until, first=first):
            yield read_entry(id_, fields)

    def raw(
        self, *, after: str = "0-0", until: str = "+", first: Any = None
    ) -> Iterator[tuple[bytes, dict[bytes, bytes]]]:
        """The same, as it lies there. Raises `RunBroken` where a run has no log."""
        is_whole = after == "0-0" and until == "+"
        after, page = f"({after}", first
        while True:
            if page is None:
                page = self._redis.xrange(self._keys.log, min=after, max=until, count=_PAGE)
            if is_whole and not page:
                raise missing(self._redis, self._keys)
            is_whole = False
            yield from page
            if len(page) < _PAGE:
                return
            after, page = f"({page[-1][0].decode()}", None

    def codes(self) -> dict[int, Code]:
        """Who has carried out the calls, by the numbers that entries have."""
        return read_codes(self._redis, self._keys)

    def lane(self, instance: str | None) -> list[Entry]:
        """All of one lane, in order; it costs nothing for the others."""
        return self._whole(instance, self._lane(self._keys, _newest(instance)))

    def lanes(self, instances: Sequence[str]) -> Iterator[tuple[str, list[Entry]]]:
        """All of several lanes, in a few round trips for all that are short."""
        for some in batches(instances, _LANES_AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for instance in some:
                    self._lane.add(pipeline, self._keys, _newest(instance))
                answers = pipeline.execute()
            for instance, answer in zip(some, answers, strict=True):
                yield instance, self._whole(instance, self._lane.read(answer))

    def _whole(self, instance: str | None, page: dict[str, Any]) -> list[Entry]:
        """A lane in order, whose newest entries have been read."""
        found: list[Entry] = []
        while True:
            found += [read_flat(id_, flat) for id_, flat in page["entries"]]
            if not page["before"]:
                return found[::-1]
            page = self._lane(self._keys, _newest(instance) | {"from": page["before"]})

    def open_calls(self, *, without: Container[Kind] = (Kind.HELD,)) -> frozenset[tuple[str | None, int]]:
        """The instances and indexes of the calls that have begun and not ended, `without` those that stand so; one that
        is held has not begun.
        """
        calls = self._redis.hscan_iter(self._keys.calls, count=_CALLS_AT_ONCE)
        return frozenset(
            self._name(member)
            for member, entry in calls
            if (found := Condition.read(entry)) is not None and found.kind not in without
        )

    def at_work(self, *, is_over: bool = False) -> dict[tuple[str | None, int], Condition]:
        """The calls that are at work, by instance and index. One that was lost with its worker and has not begun again
        is among them. Where the run is over: those that were when it was ended as it stood, and those that were
        between two attempts.
        """
        members = (member for member, _ in self._redis.zscan_iter(self._keys.leases, count=_CALLS_AT_ONCE))
        calls = (member for member in members if b"@" not in member.rpartition(b"\x1f")[2])
        found = dict[tuple[str | None, int], Condition]()
        while page := list(islice(calls, _CALLS_AT_ONCE)):
            entries: Any = self._redis.hmget(self._keys.calls, page)
            for call, entry in zip(page, entries, strict=True):
                condition = Condition.read(entry)
                if condition is not None and (
                    condition.is_at_work or condition.kind is Kind.LOST or (is_over and condition.is_between)
                ):
                    found[self._name(call)] = condition
        return found

    def begun(self) -> dict[str, str]:
        """Which calls have begun and not ended, by their members, each with its condition."""
        at_work = self.at_work(is_over=True).items()
        return {CallId(self._keys.run, *place).member: str(condition) for place, condition in at_work}

    def waiting(self) -> dict[str | None, str]:
        """What calls wait for that is no call, by their ids, and None where all do; as far as it is told (see
        `waiting`).
        """
        return {one.call: one.reason for one in read_waiting(self._redis, self._keys)}

    def _name(self, member: bytes) -> tuple[str | None, int]:
        id_ = CallId.of_member(self._keys.run, member.decode())
        return id_.instance, id_.index

    def seen(self, instance: str | None, at: str | None) -> list[Entry]:
        """The entries whose message a reader in an instance sees, in order, as of an id or now. Raises `RedisError`."""
        entries = (entry for lane in dict.fromkeys((None, instance)) for entry in self.lane(lane))
        past = (entry for entry in entries if at is None or id_key(entry.id) <= id_key(at))
        return counting(sorted(past, key=lambda entry: id_key(entry.id)))


def _newest(instance: str | None) -> dict[str, Any]:
    """What asks for the newest entries of a lane."""
    return {"lane": lane_token(instance), "after": "0-0", "from": b"", "most": _PAGE, "most_bytes": PAGE_BYTES}


def keep_begun(redis: Redis, keys: Keys, begun: Mapping[str, str]) -> None:
    """Write down what `History.begun` gave of a run, which is over now. Raises `AttributeError`, `ValueError` for what
    is none.
    """
    for member, entry in begun.items():
        CallId.of_member(keys.run, member)
        if Condition.read(entry.encode()) is None:
            raise ValueError(f"{member!r} has no condition")
    for some in batches(begun.items(), _CALLS_AT_ONCE):
        redis.hset(keys.calls, mapping=dict(some))
        redis.zadd(keys.leases, dict.fromkeys((member for member, _ in some), 0))
