"""A run's log, counted: for each call how many instances stand how, and why calls failed.

It is read once, by pages, and then only what is new. What is kept does not grow with the size of results: of each
instance its name and one status for each of its calls that has begun (some 450 bytes for an instance with a few calls),
of each failed call which group of errors it is in, and of each call at most `MOST_GROUPS` groups. What is at work
stands in no entry of the log: it is read when it is asked for.

Errors are grouped by their type and their message, in which whatever has a digit in it and the name of the instance
count as one and the same: "no page 17 of order-4711" and "no page 3 of order-12" are one group, shown as the first one
that came. Numbers from 400 to 599 that stand alone are told apart: they are mostly what a server has answered.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

from redis import Redis

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.engine.events import (
    CallDecided,
    CallEnded,
    CallHeld,
    CallsUndone,
    ChildStarted,
    FanOutBegun,
)
from acts_celery.protocol.engine.statuses import Status
from acts_celery.worker.storage.condition import Condition
from acts_celery.worker.storage.definition import Definition, LaneRecord
from acts_celery.worker.storage.entries import Entry
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import Keys
from acts_celery.worker.storage.run_state import RunState

MOST_GROUPS: Final = 100
"""Kinds of errors of one call that are told apart."""
MOST_CALLS: Final = 5_000
"""Calls whose text is kept; those beyond are counted together."""
MOST_RECORDS: Final = 20
"""Different lanes of one tick that are kept as examples."""
NAMED: Final = 5
_LONGEST: Final = 300
_VARYING: Final = re.compile(r"[\w.:/@+-]*\d[\w.:/@+-]*")
_ANSWERED: Final = re.compile(r"[45]\d\d[.:]?")
_OTHERS: Final = "errors of further kinds"


@dataclass(slots=True)
class ErrorGroup:
    """Errors of one call that are alike."""

    type: str
    message: str
    """The first one's."""
    count: int = 0
    instances: dict[str | None, None] = field(default_factory=dict)
    """Some that have it."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        named = list(self.instances)
        return {"type": self.type, "message": self.message, "count": self.count, "instances": named}


@dataclass(slots=True)
class CallTally:
    """One call of the plan, over all instances."""

    call: Call
    tick: int | None = None
    total: int = 0
    """In how many lanes it is."""
    counts: Counter[Status] = field(default_factory=Counter)
    """Those that the log says something of; the others wait, or are at work."""
    groups: dict[tuple[str, str], ErrorGroup] = field(default_factory=dict)
    has_child: bool = False
    """Whether child runs answer it."""

    @property
    def errors(self) -> list[ErrorGroup]:
        """The groups, the most frequent first."""
        return sorted(self.groups.values(), key=lambda group: -group.count)


@dataclass(slots=True)
class LaneTally:
    """How the calls of one lane stand."""

    known: frozenset[int] = frozenset()
    """Every call that it has ever had."""
    standing: dict[int, Status] = field(default_factory=dict)
    """Those that the log says something of."""


class Tally:
    """What the log of one run comes to. `lock` is to be held by whoever reads it or reads on."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        """Raises `RunNotFound`, `OtherFormat`, `RedisError`."""
        self.lock = Lock()
        self._history = History(redis, keys)
        self._redis = redis
        self._keys = keys
        self._state = RunState(self._history.definition())
        self.lanes: dict[str | None, LaneTally] = {}
        """In the order of their first entries."""
        self.calls: dict[int, CallTally] = {}
        self.further: set[int] = set()
        """Calls beyond those whose text is kept."""
        self.examples: dict[int | None, dict[bytes, tuple[str | None, LaneRecord]]] = {}
        """Of each tick, records of lanes that are not alike, each with a lane that has it."""
        self.shared: dict[int | None, LaneRecord] = {}
        """Of each tick, the newest record of the global lane."""
        self.last = "0-0"
        """The last entry that was read."""
        self.read = 0
        """How many were."""
        self.of = 0
        """How many there were when reading began."""
        self.is_whole = False
        """Whether all of that was read."""
        self._instances: list[str] = []
        self._known: dict[frozenset[int], frozenset[int]] = {}
        """What lanes have in common, once."""
        self._failed: dict[tuple[str | None, int], ErrorGroup] = {}

    @property
    def definition(self) -> Definition:
        """The run's definition, as amended."""
        return self._state.definition

    def read_on(self, seconds: float | None) -> None:
        """Read what is new, for so long at most; a page is read in any case. Raises `RedisError`."""
        length: Any = self._redis.xlen(self._keys.log)
        self.of, self.is_whole = int(length), False
        until = time.monotonic() + seconds if seconds is not None else None
        for entry in self._history.entries(after=self.last):
            self._apply(entry)
            self.last = entry.id
            self.read += 1
            if until is not None and self.read % 200 == 0 and time.monotonic() > until:
                return
        self.is_whole = True

    @property
    def reading(self) -> dict[str, int] | None:
        """How far it has come, where it has not read all."""
        return None if self.is_whole else {"read": self.read, "of": max(self.of, self.read)}

    def instances(self) -> list[str]:
        """The run's instances, in the order of the context; to be read only. Raises `RedisError`."""
        number: Any = self._redis.llen(self._keys.instances)
        if int(number) != len(self._instances):
            self._instances = self._history.instances()
        return self._instances

    def at_work(self, *, is_over: bool) -> dict[tuple[str | None, int], Condition]:
        """What `History.at_work` says. Raises `RedisError`."""
        return self._history.at_work(is_over=is_over)

    def standing(
        self, lane: LaneTally, instance: str | None, index: int, at_work: Mapping[tuple[str | None, int], Condition]
    ) -> Status:
        """How a call of a lane stands."""
        found = lane.standing.get(index)
        if found is not None:
            return found
        return Status.RUNNING if (instance, index) in at_work else Status.WAITING

    def _apply(self, entry: Entry) -> None:
        if not entry.is_of_lane or entry.tick is not None:
            return
        lane = self.lanes.get(entry.instance)
        if lane is None:
            lane = self.lanes[entry.instance] = LaneTally()
        if entry.amendment is not None:
            self._state.definition = self.definition.amended(entry.amendment)
        if entry.record is not None:
            self._lay_out(lane, entry.instance, entry.record)
        match entry.event:
            case CallEnded(index, status, error=error):
                self._stand(lane, entry.instance, index, status)
                if status is Status.FAILED:
                    self._note_error(entry.instance, index, error or {})
            case CallHeld(index):
                self._stand(lane, entry.instance, index, Status.HELD)
            case CallDecided(index):
                self._stand(lane, entry.instance, index, None)
            case ChildStarted(index):
                self._stand(lane, entry.instance, index, Status.RUNNING)
                if index in self.calls:
                    self.calls[index].has_child = True
            case FanOutBegun(index):
                self._stand(lane, entry.instance, index, Status.RUNNING)
            case CallsUndone(calls):
                for index in calls:
                    self._stand(lane, entry.instance, index, None)

    def _lay_out(self, lane: LaneTally, instance: str | None, data: bytes) -> None:
        record, calls = self._state.read_record(data, instance)
        if instance is None:
            self.shared[record.tick] = record
        examples = self.examples.setdefault(record.tick, {})
        if data not in examples and len(examples) < MOST_RECORDS:
            examples[data] = instance, record
        for index, call in calls.items():
            if index in lane.known:
                continue
            if index not in self.calls and len(self.calls) >= MOST_CALLS:
                self.further.add(index)
                continue
            tally = self.calls.get(index)
            if tally is None:
                tally = self.calls[index] = CallTally(call)
            tally.tick = record.tick if tally.tick is None else tally.tick
            tally.total += 1
        known = lane.known.union(calls)
        lane.known = self._known.setdefault(known, known)

    def _stand(self, lane: LaneTally, instance: str | None, index: int, status: Status | None) -> None:
        """A call stands so now; None: the log says nothing of it any more."""
        tally = self.calls.get(index)
        before = lane.standing.pop(index, None)
        if status is not None:
            lane.standing[index] = status
        if tally is None:
            return
        if before is not None:
            tally.counts[before] -= 1
        if status is not None:
            tally.counts[status] += 1
        if (group := self._failed.pop((instance, index), None)) is not None:
            group.count -= 1
            group.instances.pop(instance, None)
            if not group.count:
                tally.groups = {key: each for key, each in tally.groups.items() if each is not group}

    def _note_error(self, instance: str | None, index: int, error: Mapping[str, Any]) -> None:
        if (tally := self.calls.get(index)) is None:
            return
        type_, message = str(error.get("type")), str(error.get("message"))
        key = type_, alike(message, instance)
        group = tally.groups.get(key)
        if group is None:
            if len(tally.groups) >= MOST_GROUPS:
                key, type_, message = ("", _OTHERS), "", _OTHERS
            group = tally.groups.setdefault(key, ErrorGroup(type_, message[:_LONGEST]))
        group.count += 1
        if len(group.instances) < NAMED:
            group.instances[instance] = None
        self._failed[instance, index] = group


def alike(message: str, instance: str | None) -> str:
    """What errors have in common that are shown as one group."""
    text, at = message[:_LONGEST], 0
    while instance and (at := text.find(instance, at)) >= 0:
        end = at + len(instance)
        if _is_of_word(text[at - 1 : at]) or _is_of_word(text[end : end + 1]):
            at = end
        else:
            text, at = f"{text[:at]}#{text[end:]}", at + 1
    return _VARYING.sub(lambda found: found[0] if _ANSWERED.fullmatch(found[0]) else "#", text)


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"
