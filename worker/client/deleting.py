"""Deleting runs that are over, one or many: what is deleted with them, and how much that frees.

With a run its child runs are deleted (SPEC R9.3), and the dead letters of all of them. What is under way stays, and so
does a run with a child run under way, or one that answers a call under way. Where many are deleted, a run stays, too,
whose calls that were sent and forgotten are not done.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final

from redis import Redis

from ...broker_config import Settings
from ...protocol.engine.loop import Asked
from ...protocol.messages import file_parts, pictures_in
from ..backoff import batches
from ..broker.attempts import lane_token
from ..errors import InstanceDeleted, InstanceNotFound, RunNotFound, RunOver
from ..store import keys as names
from ..store.definition import FORMAT
from ..store.entries import Entry, read_entry
from ..store.held_calls import audit_record
from ..store.keys import ENDED_STATUSES, Keys, active_runs, ended_runs
from ..store.log import History
from ..store.run_list import PARENT, Parent, State
from ..store.run_writer import Holding, delete_runs, measure_runs
from ..store.scripts import Script, date_of
from ..store.state import RunState
from ..store.waiting import DeadLetters
from .deployments import Overview, Summary, Which
from .results import FOREIGN, deleted_instances, read_state

_AT_ONCE: Final = 20
"""Runs in one step: few enough for the server to answer others in between."""
_LOOKED_AT: Final = 1_000

UNDER_WAY: Final = "under way"
NOT_DONE: Final = "sent and forgotten calls not done"


@dataclass(frozen=True, slots=True)
class DeletableRun:
    """A run that may be deleted, or was: what goes with it."""

    run: str
    name: str | None
    status: str
    finished: datetime | None
    children: tuple[str, ...] = ()
    """Its child runs, and theirs."""
    bytes: int = 0
    """That they take in the server's memory, as it estimates that."""
    dead_letters: int = 0
    outstanding: int = 0
    """Calls that were sent and forgotten and are not done: nobody would send them again."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "run": self.run,
            "name": self.name,
            "status": self.status,
            "finished": date_of(self.finished) if self.finished is not None else None,
            "children": list(self.children),
            "bytes": self.bytes,
            "dead_letters": self.dead_letters,
            "outstanding": self.outstanding,
        }

    @property
    def all(self) -> tuple[str, ...]:
        """The runs to delete: those below first, so that one that is left is found again by the run above it."""
        return (*self.children, self.run)


@dataclass(frozen=True, slots=True)
class DeletableRuns:
    """The runs that may be deleted, and why others stay."""

    runs: tuple[DeletableRun, ...]
    kept: Mapping[str, int]
    """Why runs stay that are of the name or status asked for -> how many."""

    @property
    def bytes(self) -> int:
        """That all of them take."""
        return sum(run.bytes for run in self.runs)


class Deleter:
    """Deletes runs of a backend. All of it raises `RedisError`, `InfrastructureError`."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._letters = DeadLetters(redis, settings)

    def choose(self, which: Which, free_bytes: int | None = None, *, is_largest_first: bool = False) -> DeletableRuns:
        """The runs that could be deleted, those that ended first first, or the largest; with `free_bytes` only as many
        of them as take so much.
        """
        kept = Counter[str]()
        measured = self._measured(self._over(which, kept), kept)
        if is_largest_first:
            measured = iter(sorted(measured, key=lambda run: -run.bytes))
        chosen, total = list[DeletableRun](), 0
        for run in measured:
            if free_bytes is not None and total >= free_bytes:
                break
            chosen.append(run)
            total += run.bytes
        return DeletableRuns(tuple(chosen), {why: number for why, number in kept.items() if number})

    def delete(self, runs: Iterable[DeletableRun]) -> Iterator[DeletableRun]:
        """Delete them, and yield those that are: one that goes on meanwhile stays."""
        for some in batches(list(runs), _AT_ONCE):
            yield from self._delete(some, keeps_outstanding=True)

    def delete_one(self, run: str, *, foreign: bool = False) -> DeletableRun:
        """Delete a run that is over, with what stands below it; with `foreign` one that is of a format that is not read
        whatever its status is. Raises `RunNotFound`, `RunOver`.
        """
        keys = self._keys(run)
        fields: Any = self._redis.hmget(keys.state, "name", PARENT, "format")
        field, above, number = fields
        is_read = number is None or int(number) == FORMAT
        parent = Parent.read(above)
        if parent is not None and self._status(parent.call.run) not in (None, *ENDED_STATUSES):
            raise RunOver(f"run {run} answers a call of run {parent.call.run}, which is under way: cancel that first")
        family = (*self._below(run), run)
        holdings = measure_runs(self._redis, [self._keys(each) for each in family])
        if (status := holdings[-1].status) is None:
            raise RunNotFound(run)
        for each, holding in zip(family, holdings, strict=True):
            if holding.status not in (None, *ENDED_STATUSES) and not (foreign and not is_read):
                if not is_read:
                    raise RunOver(
                        f"run {run} has format {int(number)}, which this version does not read, and is not over there: "
                        "end it with the version that submitted it, or delete it as it is (`--foreign`)"
                    )
                which = f"run {run}" if each == run else f"run {each}, which run {run} has begun,"
                raise RunOver(f"{which} is {holding.status}: cancel it before it is deleted")
        name = field.decode("utf-8", "replace") if field is not None else None
        found = _with(DeletableRun(run, name, status, None, family[:-1]), holdings, self._letters.counts())
        for deleted in self._delete([found], keeps_outstanding=False, foreign=foreign):
            return deleted
        raise RunOver(f"run {run} goes on: calls were added to it meanwhile")

    def _over(self, which: Which, kept: Counter[str]) -> list[DeletableRun]:
        """The runs that are meant and over, with those below them, by their ends."""
        below = defaultdict[str, list[str]](list)
        known, under_way = set[str](), set[str]()
        meant = list[tuple[Summary, str | None]]()
        for summary, state in Overview(self._redis, self._settings.key_prefix).with_states():
            run, parent = summary.run, Parent.read(state.get(PARENT))
            known.add(run)
            if parent is not None:
                below[parent.call.run].append(run)
            if state.get("status") not in ENDED_STATUSES:
                under_way.add(run)
                kept[UNDER_WAY] += parent is None and replace(which, older_than_seconds=None).admits(summary)
            elif which.admits(summary):
                meant.append((summary, parent.call.run if parent is not None else None))
        found = list[DeletableRun]()
        for summary, parent_run in meant:
            if parent_run in known:
                continue
            children = tuple(_descendants(summary.run, below))
            if under_way.isdisjoint(children):
                found.append(DeletableRun(summary.run, summary.name, summary.status, summary.finished, children))
            else:
                kept[UNDER_WAY] += 1
        return sorted(found, key=lambda run: run.finished.timestamp() if run.finished is not None else 0)

    def _measured(self, runs: Sequence[DeletableRun], kept: Counter[str]) -> Iterator[DeletableRun]:
        """The runs with what they hold, without those of which a call is not done."""
        letters = self._letters.counts()
        for some in batches(runs, _AT_ONCE):
            holdings = iter(measure_runs(self._redis, [self._keys(each) for run in some for each in run.all]))
            for run in some:
                found = _with(run, list(islice(holdings, len(run.all))), letters)
                if found.outstanding:
                    kept[NOT_DONE] += 1
                else:
                    yield found

    def _delete(
        self, runs: Sequence[DeletableRun], *, keeps_outstanding: bool, foreign: bool = False
    ) -> list[DeletableRun]:
        names = [each for run in runs for each in run.all]
        keys = [self._keys(each) for each in names]
        prefix = self._settings.key_prefix
        holdings = delete_runs(self._redis, prefix, keys, keeps_outstanding=keeps_outstanding, foreign=foreign)
        gone = {name: held.bytes for name, held in zip(names, holdings, strict=True) if held.is_deleted}
        if any(run.dead_letters for run in runs):
            self._letters.forget_runs(gone.keys())
        found = list[DeletableRun]()
        for run in runs:
            if run.run in gone:
                found.append(replace(run, bytes=sum(gone.get(each, 0) for each in run.all)))
                audit_record(self._settings, "deleted").write_line(run.run)
        return found

    def _below(self, run: str) -> list[str]:
        """The child runs of one run, and theirs: their ids begin as its own does (see `child_links.child_id`)."""
        alike = f"{run.partition('-')[0]}-*"
        lists = (active_runs(self._settings.key_prefix), ended_runs(self._settings.key_prefix))
        names = {
            name.decode()
            for listed in lists
            for name, _ in self._redis.zscan_iter(listed, match=alike, count=_LOOKED_AT)
        }
        below = defaultdict[str, list[str]](list)
        for some in batches(sorted(names), _LOOKED_AT):
            with self._redis.pipeline(transaction=False) as pipeline:
                for each in some:
                    pipeline.hget(self._keys(each).state, PARENT)
                for each, field in zip(some, pipeline.execute(), strict=True):
                    if (parent := Parent.read(field)) is not None:
                        below[parent.call.run].append(each)
        return list(_descendants(run, below))

    def _status(self, run: str) -> str | None:
        found: Any = self._redis.hget(self._keys(run).state, "status")
        return found.decode() if found is not None else None

    def _keys(self, run: str) -> Keys:
        return Keys(self._settings.key_prefix, run)


def _descendants(run: str, below: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The runs below a run, the lowest first."""
    for child in below.get(run, ()):
        yield from _descendants(child, below)
        yield child


def _with(run: DeletableRun, holdings: Sequence[Holding], letters: Mapping[str, int]) -> DeletableRun:
    return replace(
        run,
        bytes=sum(held.bytes for held in holdings),
        outstanding=sum(held.outstanding for held in holdings),
        dead_letters=sum(letters.get(each, 0) for each in run.all),
    )


# Deleting what a run that is over holds of some of its instances, such as the data of one person.
#
# Redis marks a deleted entry of a stream and keeps its bytes, in memory and in snapshots. So the log is written anew
# without the entries of these instances, and put in the place of the old one in one step (lua/keys.lua). With them go
# the files that only they show, their calls in the outbox, their dead letters and child runs. The names of the
# instances stay, in the state and in the audit trail: the run says that they were deleted.

_LANES_AT_ONCE: Final = 200
_KEPT_SECONDS: Final = 86_400
"""For so long a log stays that was written anew in part, by a client that died."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What was deleted of a run."""

    run: str
    instances: tuple[str, ...]
    entries: int
    """Of the log."""
    children: tuple[str, ...]
    """Their child runs."""
    dead_letters: int
    files: int
    remains: tuple[str, ...]
    """What may hold data of theirs and stays, in words."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "run": self.run,
            "instances": list(self.instances),
            "entries": self.entries,
            "children": list(self.children),
            "dead_letters": self.dead_letters,
            "files": self.files,
            "remains": list(self.remains),
        }


class Eraser:
    """Deletes instances of one run. All of it raises `RedisError`."""

    def __init__(self, run: str, redis: Redis, settings: Settings) -> None:
        self._keys = Keys(settings.key_prefix, run)
        self._redis = redis
        self._settings = settings
        self._history = History(redis, self._keys)
        self._letters = DeadLetters(redis, settings)
        self._script = Script(redis, "keys", "forget")

    def erase(self, instances: Sequence[str], state: Mapping[str, str]) -> Erased:
        """Delete these instances of the run, whose state this is. If it is interrupted nothing of the log has changed;
        repeat it. Raises `RunOver`, `InstanceNotFound`, `InstanceDeleted`.
        """
        run, chosen = self._keys.run, tuple(dict.fromkeys(instances))
        if state["status"] not in ENDED_STATUSES:
            raise RunOver(f"run {run} is {state['status']}: cancel it before an instance is deleted")
        known = self._history.instances()
        for instance in chosen:
            if instance in deleted_instances(state.get("deleted")):
                raise InstanceDeleted(run, instance)
            if instance not in known:
                raise InstanceNotFound(run, instance, known)
        kept = RunState(self._history.definition())
        children, shown = list[str](), set[str]()
        for _, lane in self._history.lanes(chosen):
            children += [entry.child for entry in lane if entry.child is not None]
            shown |= _files_of(lane)
        pictures: Any = self._redis.hkeys(self._keys.pictures)  # an attempt may have left one that nothing names
        shown |= {digest.decode() for digest in pictures}
        for child in dict.fromkeys(children):
            self._delete_child(child)
        count, last = self._write_anew(frozenset(map(lane_token, chosen)), kept, shown)
        self._put_in_place(chosen, last, sorted(shown), state)
        letters = self._letters.forget_instances(run, frozenset(chosen))
        audit_record(self._settings, "deleted", instances=list(chosen)).write_line(run)
        return Erased(run, chosen, count, tuple(children), letters, len(shown), tuple(_remains(kept)))

    def _delete_child(self, child: str) -> None:
        with suppress(RunNotFound):  # it is kept no longer
            Deleter(self._redis, self._settings).delete_one(child)

    def _write_anew(self, lanes: frozenset[str], kept: RunState, shown: set[str]) -> tuple[int, str]:
        """Write the log without these lanes beside it; returns how many entries that leaves out, and the last one's id.
        Of the files that were shown there, those stay that others show.
        """
        self._redis.unlink(self._keys.log_kept)
        left_out, last, page = 0, "0-0", list[tuple[str, dict[bytes, bytes]]]()
        for id_, fields in self._history.raw():
            last = id_.decode()
            if fields.get(names.LANE, b"").decode() in lanes:
                left_out += 1
                continue
            entry = read_entry(id_, fields)
            if shown:
                shown -= _files_of([entry])
            if entry.instance is None:
                kept.apply(entry)
            page.append((last, fields))
            if len(page) == _LANES_AT_ONCE:
                self._append(page)
                page.clear()
        self._append(page)
        return left_out, last

    def _append(self, page: Sequence[tuple[str, dict[bytes, bytes]]]) -> None:
        with self._redis.pipeline(transaction=False) as pipeline:
            for id_, fields in page:
                pipeline.xadd(self._keys.log_kept, fields, id=id_)  # type: ignore[arg-type]  # redis wants it invariant
            pipeline.expire(self._keys.log_kept, _KEPT_SECONDS)
            pipeline.execute()

    def _put_in_place(self, instances: Sequence[str], last: str, files: list[str], state: Mapping[str, str]) -> None:
        lanes = [lane_token(instance) for instance in instances]
        outbox: Any = self._redis.hkeys(self._keys.outbox)
        request = {
            "instances": list(instances),
            "lanes": lanes,
            "last": last,
            "calls": [call for call in outbox if call.decode().rpartition("\x1f")[0] in lanes],
            "files": files,
            "deleted": json.dumps([*deleted_instances(state.get("deleted")), *instances], ensure_ascii=False),
            "who": audit_record(self._settings, "deleted", instances=list(instances)).pack(),
        }
        if not self._script(self._keys, request)["is_done"]:
            self._redis.unlink(self._keys.log_kept)
            raise RunOver(f"run {self._keys.run} goes on: something was added to it meanwhile")


def _files_of(entries: Sequence[Entry]) -> set[str]:
    """The digests of the files that messages show, and of pictures that tools have answered."""
    messages = [message for entry in entries for message in _messages(entry)]
    named = {str(part["digest"]) for part in file_parts(messages) if "digest" in part}
    return named | {digest for _, digest in pictures_in(messages)}


def _messages(entry: Entry) -> Iterator[Any]:
    if entry.message is not None:
        yield entry.message
    for event in entry.loop:
        yield from event.messages if isinstance(event, Asked) else ()


def _remains(run: RunState) -> Iterator[str]:
    """What has read in all instances, or was shown them."""
    for index, call in run.shared.known.items():
        if call.gather and run.shared.end(index) is not None:
            yield f"what call {index} ({call.tool}) has gathered, and what was made of that"
    if run.loop is not None:
        yield "what its model was shown and has answered"


# One person's data over all runs: which runs have an instance of a name, and deleting it from each (see `erasure`).
#
# A run is found by the list of its instances, in which the server looks for their names, a few runs in one step. One
# that was deleted stands there no more.

_ERASED_AT_ONCE: Final = 20
OF_ANOTHER_VERSION: Final = "of another version"


@dataclass(frozen=True, slots=True)
class ErasableRun:
    """A run that has ended and holds something of instances."""

    run: str
    name: str | None
    instances: tuple[str, ...]
    """Those of the ones that are meant."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"run": self.run, "name": self.name, "instances": list(self.instances)}


@dataclass(frozen=True, slots=True)
class ErasableRuns:
    """The runs that hold something of instances, and why others of these stay as they are."""

    runs: tuple[ErasableRun, ...]
    kept: Mapping[str, int]
    """Why nothing can be deleted of runs that have them, too -> how many these are."""


class InstanceEraser:
    """Deletes instances of many runs. All of it raises `RedisError`, `InfrastructureError`."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings

    def choose(self, which: Which, instances: Sequence[str]) -> ErasableRuns:
        """The runs that are meant and have one of these instances, the newest first."""
        kept, found = Counter[str](), list[ErasableRun]()
        meant = ((run, state) for run, state in self._overview() if which.admits(run))
        for page in batches(meant, _ERASED_AT_ONCE):
            for (summary, state), held in zip(page, self._instances_of(page, instances), strict=True):
                if not held:
                    continue
                if summary.status == FOREIGN:
                    kept[OF_ANOTHER_VERSION] += 1
                elif state["status"] not in ENDED_STATUSES:
                    kept[UNDER_WAY] += 1
                else:
                    found.append(ErasableRun(summary.run, summary.name, held))
        return ErasableRuns(tuple(found), kept)

    def erase(self, runs: Iterable[ErasableRun]) -> Iterator[Erased]:
        """Delete the instances of these runs, and yield what was deleted of each; one that is gone meanwhile, or goes
        on, is left out.
        """
        for run in runs:
            with suppress(RunNotFound, RunOver, InstanceDeleted):
                state = read_state(self._redis, Keys(self._settings.key_prefix, run.run))
                yield Eraser(run.run, self._redis, self._settings).erase(run.instances, state)

    def _overview(self) -> Iterator[tuple[Summary, State]]:
        return Overview(self._redis, self._settings.key_prefix).with_states()

    def _instances_of(
        self, page: Sequence[tuple[Summary, State]], instances: Sequence[str]
    ) -> Iterator[tuple[str, ...]]:
        """Of each run those of the instances that it has."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for summary, _ in page:
                for instance in instances:
                    pipeline.lpos(Keys(self._settings.key_prefix, summary.run).instances, instance)
            places = iter(pipeline.execute())
        for _ in page:
            found = zip(instances, islice(places, len(instances)), strict=True)
            yield tuple(name for name, place in found if place is not None)
