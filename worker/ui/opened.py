"""A run that a page looks at, opened for one question: its keys, its state, its lanes."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, Final, TypeVar

from ...broker_config import Settings
from ...protocol.calls.call import Call, element_of
from ...protocol.engine.events import Status
from .. import limits
from ..client.call_results import CANCELLED, has_begun_calls, is_unbrought
from ..client.results import Assembly, Result, deleted_instances, run_status
from ..errors import BadQuery, InstanceDeleted, InstanceNotFound
from ..store.definition import LaneRecord, StoredPlan
from ..store.entries import Entry, id_key, moment_ms, read_entry
from ..store.keys import Condition, Field
from ..store.run_store import RunStore
from ..store.scripts import iso_date
from ..store.state import RunState

# A run's log, counted: for each call how many instances have which status, and why calls failed.
#
# It is read once, by pages, and then only what is new. What is kept does not grow with the size of results: of each
# instance its name and one status for each of its calls that has begun (some 450 bytes for an instance with a few
# calls), of each failed call which group of errors it is in, and of each call at most `limits.MOST_GROUPS` groups.
# What is at work is in no entry of the log: it is read when it is asked for.
#
# Errors are grouped by their type and their message, in which whatever has a digit in it and the name of the instance
# count as one and the same: "no page 17 of order-4711" and "no page 3 of order-12" are one group, shown as the first
# one that came. Numbers from 400 to 599 by themselves are told apart: mostly a server has answered them.

_VARYING: Final = re.compile(r"[\w.:/@+-]*\d[\w.:/@+-]*")
_ANSWERED: Final = re.compile(r"[45]\d\d[.:]?")
_OTHERS: Final = "errors of further kinds"


@dataclass(slots=True)
class ErrorGroup:
    """Errors of one call that are alike."""

    type: str
    message: str
    """The message of the first of them."""
    count: int = 0
    instances: dict[str | None, None] = field(default_factory=dict)
    """Some of the instances that have it."""

    def to_dict(self) -> dict[str, Any]:
        """Write the group as JSON."""
        named = list(self.instances)
        return {"type": self.type, "message": self.message, "count": self.count, "instances": named}


@dataclass(slots=True)
class CallCounters:
    """One call of the plan, over all instances."""

    call: Call
    tick: int | None = None
    total: int = 0
    """In how many lanes it is."""
    counts: Counter[Status] = field(default_factory=Counter)
    """The lanes in which the log says its status, by status; in the others it waits, or is at work."""
    groups: dict[tuple[str, str], ErrorGroup] = field(default_factory=dict)
    has_child: bool = False
    """Whether child runs answer it."""
    not_taken: int = 0
    """In how many lanes it was skipped for another branch, of those in which nothing is lost."""

    @property
    def errors(self) -> list[ErrorGroup]:
        """The groups, the most frequent first."""
        return sorted(self.groups.values(), key=lambda group: -group.count)


@dataclass(slots=True)
class LaneStatuses:
    """The statuses of the calls of one lane."""

    known: frozenset[int] = frozenset()
    """Every call that it has ever had."""
    statuses: dict[int, Status] = field(default_factory=dict)
    """The status of each call that is in the log."""
    not_taken: set[int] | None = None
    """The calls that were skipped because no call brings what they read; None until there is one."""
    lost: set[int] | None = None
    """The calls that failed, or were skipped for another reason; None until there is one."""


class RunCounters:
    """The log of one run, counted. Hold `lock` to read the counters or to count on."""

    def __init__(self, store: RunStore) -> None:
        """Raises `RunNotFound`, `OtherFormat`, `RedisError`."""
        self.lock = Lock()
        self._store = store
        self._state = RunState(store.definition())
        self.lanes: dict[str | None, LaneStatuses] = {}
        """In the order of their first entries."""
        self.calls: dict[int, CallCounters] = {}
        self.further: set[int] = set()
        """Calls beyond those whose text is kept."""
        self.examples: dict[int | None, dict[bytes, tuple[str | None, LaneRecord]]] = {}
        """Different records of lanes in each tick, each with a lane that has it."""
        self.shared: dict[int | None, LaneRecord] = {}
        """The newest record of the global lane in each tick."""
        self.last = "0-0"
        """The last entry that was read."""
        self.read = 0
        """How many entries were read."""
        self.of = 0
        """How many entries there were when reading began."""
        self.is_whole = False
        """Whether every entry was read."""
        self._instances: list[str] = []
        self._known: dict[frozenset[int], frozenset[int]] = {}
        """The sets of calls that lanes have in common, each kept once."""
        self._failed: dict[tuple[str | None, int], ErrorGroup] = {}

    @property
    def definition(self) -> StoredPlan:
        """The run's definition, as amended."""
        return self._state.definition

    def read_on(self, seconds: float | None) -> None:
        """Read what is new, for so long at most; a page is read in any case. Raises `RedisError`."""
        self.of, self.is_whole = self._store.count_entries(), False
        until = time.monotonic() + seconds if seconds is not None else None
        for entry in self._store.entries(after=self.last):
            self._apply(entry)
            self.last = entry.id
            self.read += 1
            if until is not None and self.read % 200 == 0 and time.monotonic() > until:
                return
        self.is_whole = True

    @property
    def reading(self) -> dict[str, int] | None:
        """How far reading has come, where it has not read all."""
        return None if self.is_whole else {"read": self.read, "of": max(self.of, self.read)}

    def instances(self) -> list[str]:
        """The run's instances, in the order of the context; to be read only. Raises `RedisError`."""
        if self._store.count_instances() != len(self._instances):
            self._instances = self._store.instances()
        return self._instances

    def at_work(self, *, is_over: bool) -> dict[tuple[str | None, int], Condition]:
        """The answer of `RunStore.at_work`. Raises `RedisError`."""
        return self._store.at_work(is_over=is_over)

    def status(
        self, lane: LaneStatuses, instance: str | None, index: int, at_work: Mapping[tuple[str | None, int], Condition]
    ) -> Status:
        """The status of a call of a lane."""
        found = lane.statuses.get(index)
        if found is not None:
            return found
        return Status.RUNNING if (instance, index) in at_work else Status.WAITING

    def is_not_taken(self, instance: str | None, index: int) -> bool:
        """Say whether a call was skipped for another branch. Where something in its lane, or for all instances, is lost
        too, it counts as skipped: it may have waited for that.
        """
        lane = self.lanes[instance]
        return index in (lane.not_taken or ()) and not lane.lost and not self._has_lost(index)

    def not_taken(self, call: CallCounters) -> int:
        """Count the lanes in which a call was skipped for another branch (see `is_not_taken`)."""
        return 0 if self._has_lost(call.call.index) else call.not_taken

    def _has_lost(self, index: int) -> bool:
        """Say whether a call of instances may have waited for something for all of them that is lost."""
        shared = self.lanes.get(None)
        return shared is not None and bool(shared.lost) and index not in shared.known

    def _apply(self, entry: Entry) -> None:
        if not entry.is_of_lane or entry.tick is not None:
            return
        lane = self.lanes.get(entry.instance)
        if lane is None:
            lane = self.lanes[entry.instance] = LaneStatuses()
        if entry.amendment is not None:
            self._state.definition = self.definition.amended(entry.amendment)
        if entry.record is not None:
            self._lay_out(lane, entry.instance, entry.record)
        for index in entry.undone.calls if entry.undone is not None else ():
            self._note_branch(lane, index, entry)
            self._set_status(lane, entry.instance, index, Status.WAITING)
        if (call := entry.call) is not None and entry.status is not None and element_of(call) is None:
            self._note_branch(lane, call, entry)
            self._set_status(lane, entry.instance, call, entry.status)
            if entry.end is not None and entry.status is Status.FAILED:
                self._note_error(entry.instance, call, entry.end.error or {})
            if entry.child is not None and call in self.calls:
                self.calls[call].has_child = True

    def _lay_out(self, lane: LaneStatuses, instance: str | None, data: bytes) -> None:
        record, calls = self._state.read_record(data, instance)
        if instance is None:
            self.shared[record.tick] = record
        examples = self.examples.setdefault(record.tick, {})
        if data not in examples and len(examples) < limits.MOST_RECORDS:
            examples[data] = instance, record
        for index, call in calls.items():
            if index in lane.known:
                continue
            if index not in self.calls and len(self.calls) >= limits.OPENED_MOST_CALLS:
                self.further.add(index)
                continue
            counters = self.calls.get(index)
            if counters is None:
                counters = self.calls[index] = CallCounters(call)
            counters.tick = record.tick if counters.tick is None else counters.tick
            counters.total += 1
        known = lane.known.union(calls)
        lane.known = self._known.setdefault(known, known)

    def _set_status(self, lane: LaneStatuses, instance: str | None, index: int, status: Status) -> None:
        """Count the new status of a call; one that waits is in the log no more."""
        counters = self.calls.get(index)
        before = lane.statuses.pop(index, None)
        if status is not Status.WAITING:
            lane.statuses[index] = status
        if counters is None:
            return
        if before is not None:
            counters.counts[before] -= 1
        if status is not Status.WAITING:
            counters.counts[status] += 1
        if (group := self._failed.pop((instance, index), None)) is not None:
            group.count -= 1
            group.instances.pop(instance, None)
            if not group.count:
                counters.groups = {key: each for key, each in counters.groups.items() if each is not group}

    def _note_branch(self, lane: LaneStatuses, index: int, entry: Entry) -> None:
        """Note whether a call is lost since an entry, or was skipped for another branch, and count it."""
        skipped, lost = lane.not_taken or set(), lane.lost or set()
        is_skipped = entry.end is not None and is_unbrought(entry.end.status, entry.end.reason)
        is_lost = entry.status in (Status.FAILED, Status.SKIPPED) and not is_skipped
        had_lost, had_skipped = bool(lost), index in skipped
        if is_lost and not had_lost:
            self._count_not_taken(skipped, -1)
        (skipped.add if is_skipped else skipped.discard)(index)
        (lost.add if is_lost else lost.discard)(index)
        lane.not_taken, lane.lost = skipped or None, lost or None
        if had_lost and not lost:
            self._count_not_taken(skipped, 1)
        elif not lost and is_skipped != had_skipped:
            self._count_not_taken({index}, 1 if is_skipped else -1)

    def _count_not_taken(self, calls: Set[int], by: int) -> None:
        for index in calls & self.calls.keys():
            self.calls[index].not_taken += by

    def _note_error(self, instance: str | None, index: int, error: Mapping[str, Any]) -> None:
        if (counters := self.calls.get(index)) is None:
            return
        type_, message = str(error.get("type")), str(error.get("message"))
        key = type_, alike(message, instance)
        group = counters.groups.get(key)
        if group is None:
            if len(counters.groups) >= limits.MOST_GROUPS:
                key, type_, message = ("", _OTHERS), "", _OTHERS
            group = counters.groups.setdefault(key, ErrorGroup(type_, message[: limits.LONGEST_TALLY]))
        group.count += 1
        if len(group.instances) < limits.OPENED_NAMED:
            group.instances[instance] = None
        self._failed[instance, index] = group


def alike(message: str, instance: str | None) -> str:
    """Write a message as what errors of one group have in common."""
    text, at = message[: limits.LONGEST_TALLY], 0
    while instance and (at := text.find(instance, at)) >= 0:
        end = at + len(instance)
        if _is_of_word(text[at - 1 : at]) or _is_of_word(text[end : end + 1]):
            at = end
        else:
            text, at = f"{text[:at]}#{text[end:]}", at + 1
    return _VARYING.sub(lambda found: found[0] if _ANSWERED.fullmatch(found[0]) else "#", text)


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"


class Query:
    """The parameters of a question, as texts."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def text(self, name: str) -> str | None:
        """A text; None where it was left out or is empty."""
        return self._given.get(name) or None

    def required(self, name: str) -> str:
        """A text that may not be left out. Raises `BadQuery`."""
        if (found := self.text(name)) is None:
            raise BadQuery(f"the question lacks {name!r}: add {name}=…")
        return found

    def number(self, name: str) -> int | None:
        """A whole number from 0 on; None where it was left out. Raises `BadQuery`."""
        if (found := self.text(name)) is None:
            return None
        if not (found.isascii() and found.isdigit() and len(found) <= 15):
            raise BadQuery(f"{name}={found[: limits.LONGEST]!r} is not a number such as 0")
        return int(found)

    def moment(self, name: str) -> str | None:
        """The id of an entry of the log; None where it was left out. Raises `BadQuery`."""
        if (found := self.text(name)) is None:
            return None
        parts = found.split("-")
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in parts):
            raise BadQuery(f"{name}={found[: limits.LONGEST]!r} is not an id of the log such as 1763683200000-0")
        return found


@dataclass(frozen=True)
class OpenedRun:
    """A run that is there, in a format that is read here."""

    store: RunStore
    settings: Settings
    state: Mapping[str, str]
    """The fields of its state."""
    counters: RunCounters
    query: Query

    @cached_property
    def definition(self) -> StoredPlan:
        """The definition with which it was submitted."""
        return self.store.definition()

    @property
    def status(self) -> str:
        """The run's status."""
        return self.state["status"]

    @property
    def has_stopped(self) -> bool:
        """Whether calls that had not ended count as skipped."""
        return self.status == "cancelled" or "exceeded" in self.state

    @property
    def stop_reason(self) -> str:
        """Why the run was ended as it stood, where it was."""
        return CANCELLED if self.status == "cancelled" else self.state.get("exceeded", "")

    @cached_property
    def instances(self) -> list[str]:
        """Its instances, in the order of the context."""
        return self.counters.instances()

    @cached_property
    def deleted(self) -> list[str]:
        """The instances that it had, and that were deleted."""
        return deleted_instances(self.state.get("deleted"))

    def require_instance(self, name: str | None) -> None:
        """Raise `InstanceNotFound` for an instance that the run never had, `InstanceDeleted` for one that it had."""
        if name is None or self.store.has_lane(name):
            return
        if name not in self.instances:  # one for which no call is has no lane
            if name in self.deleted:
                raise InstanceDeleted(self.store.run, name)
            raise InstanceNotFound(self.store.run, name, self.instances)

    def entries(self, *lanes: str | None) -> list[Entry]:
        """The entries of lanes, in the order of the log. It costs nothing for the others."""
        found = [entry for lane in dict.fromkeys(lanes) for entry in self.store.lane(lane)]
        return sorted(found, key=lambda entry: id_key(entry.id))

    def lanes(self, *instances: str | None, at: str | None = None) -> RunState:
        """The global lane and those of instances, folded, now or as of a past id."""
        state = RunState(self.definition, filter(None, instances), at=at)
        state.feed(self.entries(None, *instances))
        return state

    def result(self, entries: Iterable[Entry], *instances: str, waits: bool = False) -> Result:
        """Assemble the result from the entries of some lanes, the global one among them."""
        assembly = Assembly(self.store.run, self.definition, instances)
        assembly.feed(entries, self.store.codes())
        at_work = self.store.at_work(is_over=self.has_stopped) if self.has_begun_calls else {}
        return assembly.result(run_status(self.status), at_work, waits=waits)

    @property
    def has_begun_calls(self) -> bool:
        """Whether some of its calls may have begun and not ended."""
        return has_begun_calls(self.state)


# How much of a value is shown: what is large in it is cut in the middle, in its place, and its size is said.

T = TypeVar("T")

CUT: Final = "…cut"
"""The one key of the object that replaces a part that was cut."""


def shown(value: Any, most_bytes: int = limits.SHOW_BYTES, *, depth: int = 0) -> Any:
    """The value, with what is large in it replaced by objects that say how large it is, and how its JSON begins and
    ends. Small parts of it stay whole.
    """
    size = size_of(value)
    if size <= most_bytes:
        return value
    if (
        isinstance(value, (dict, list))
        and depth < limits.OPENED_DEEPEST
        and len(value) * limits.OPENED_LEAST_BYTES <= most_bytes
    ):
        parts: Mapping[Any, Any] = value if isinstance(value, dict) else dict(enumerate(value))
        rooms = _rooms({key: size_of(part) + len(str(key)) + 6 for key, part in parts.items()}, most_bytes)
        kept = {key: shown(part, rooms[key], depth=depth + 1) for key, part in parts.items()}
        return kept if isinstance(value, dict) else list(kept.values())
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    half = max(20, most_bytes // 8)  # characters, which may have several bytes each
    return {CUT: {"bytes": size, "head": text[:half], "tail": text[-half:]}}


def _rooms(sizes: Mapping[Any, int], most_bytes: int) -> dict[Any, int]:
    """How many bytes each part may have: the small ones what they need, the large ones an equal share of the rest."""
    rooms, left = dict[Any, int](), most_bytes
    for place, (key, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        rooms[key] = min(size, left // (len(sizes) - place))
        left -= rooms[key]
    return rooms


def within(items: Iterable[T], most_bytes: int = limits.LIST_BYTES) -> list[T]:
    """The first of a list's items, as many as have so many bytes together."""
    found: list[T] = []
    for item in items:
        most_bytes -= size_of(item)
        if most_bytes < 0:
            break
        found.append(item)
    return found


def size_of(value: Any) -> int:
    """The bytes of a value as JSON."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


# Who did what to a run, the newest first, decisions and amendments too. The log is read backwards, for as long as one
# answer may take.


def audit(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/audit`. Raises `BadQuery`."""
    before, until = run.query.moment("after"), time.monotonic() + limits.OPENED_SECONDS
    found: list[dict[str, Any]] = []
    while True:
        page = run.store.newest_entries(limits.OPENED_ENTRIES, before=before)
        for id_, fields in page:
            before = id_.decode()
            if Field.AUDIT in fields:
                found.append(_order(id_, fields))
            if len(found) == limits.OPENED_AT_ONCE:
                return {"orders": found, "next": before}
        if len(page) < limits.OPENED_ENTRIES:
            return {"orders": found, "next": None}
        if time.monotonic() > until:
            return {"orders": found, "next": before}


def _order(id_: bytes, fields: Any) -> dict[str, Any]:
    entry = read_entry(id_, fields)
    assert entry.audit is not None
    order = entry.audit.to_dict()
    about = {"id": entry.id, "moment": iso_date(moment_ms(entry.id)), "instance": entry.instance, "call": entry.call}
    return {**about, **order, "about": shown(order["about"])}


# The log as one reader sees it, moment by moment, each with the values that the reader sees then.


def log(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/log`: the moments that an instance sees, or without one the global ones, oldest first; with
    `at` that moment alone. Raises `BadQuery`, `InstanceNotFound`.
    """
    instance, after, at = run.query.text("instance"), run.query.moment("after"), run.query.moment("at")
    run.require_instance(instance)
    state = RunState(run.definition)
    fold = state.lane(instance).fold
    found, left = list[dict[str, Any]](), limits.VALUES_BYTES
    for entry in run.entries(None, instance):
        state.apply(entry)
        is_moment = entry.message is not None or entry.undone is not None
        if not is_moment or at not in (None, entry.id) or (after is not None and id_key(entry.id) <= id_key(after)):
            continue
        if len(found) == limits.MOMENTS_AT_ONCE:
            return {"entries": found, "next": found[-1]["id"]}
        found.append(_moment(entry, state))
        if left > 0:
            data = fold.snapshot()
            left -= size_of(data)
            conflicts = [{"place": [*place], "message": str(one)} for place, one in fold.conflict_places()]
            found[-1] |= {"data": shown_values(data), "conflicts": conflicts}
    return {"entries": found, "next": None}


def _moment(entry: Entry, state: RunState) -> dict[str, Any]:
    """An event of the log: a message came, or calls are done again."""
    call = state.lane(entry.instance).known.get(entry.call) if entry.call is not None else None
    message = entry.message or {}
    about = {
        "id": entry.id,
        "moment": iso_date(moment_ms(entry.id)),
        "instance": entry.instance,
        "call": entry.call if entry.message is not None else None,
        "tool": call.tool if call is not None else None,
        "method": message.get("_outputMethod"),
    }
    return about | ({"undone": list(entry.undone.calls)} if entry.undone is not None else {})


def shown_values(data: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all kinds, as much of each as an answer has room for."""
    most = min(limits.SHOW_BYTES, limits.LIST_BYTES // max(1, len(data)))
    return {kind: shown(value, most) for kind, value in data.items()}
