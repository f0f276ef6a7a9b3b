"""Delete runs that are over, or what they hold of some of their instances.

With a run its child runs are deleted (SPEC R9.3), and the dead letters of all of them. A run under way stays, and so
does one with a child run under way, or one that answers a call under way. When many are deleted, a run also stays while
calls that it has sent and forgotten are not done.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final

from redis import Redis

from ...broker_config import Settings
from ...protocol.engine.loop import RequestRecorded
from ...protocol.messages import file_parts, pictures_in
from .. import limits
from ..backoff import batches
from ..errors import InstanceDeleted, InstanceNotFound, RunNotFound, RunOver
from ..store.definition import FORMAT, require_format
from ..store.entries import Entry
from ..store.held_calls import audit_record
from ..store.keys import ENDED_STATUSES
from ..store.run_list import PARENT, Parent, RunList
from ..store.run_store import RunStore
from ..store.run_writer import Holding, LogRewrite, delete_runs, measure_runs
from ..store.scripts import date_of
from ..store.state import RunState
from ..store.waiting import DeadLetters
from .deployments import RunFilter, RunIndex, Summary
from .results import FOREIGN, deleted_instances

UNDER_WAY: Final = "under way"
NOT_DONE: Final = "fire-and-forget calls not done"


@dataclass(frozen=True, slots=True)
class DeletableRun:
    """A run that may be deleted, or was, and what goes with it."""

    run: str
    name: str | None
    status: str
    finished: datetime | None
    children: tuple[str, ...] = ()
    """Its child runs, and all runs below them."""
    bytes: int = 0
    """How much all of them take in the server's memory, as the server estimates it."""
    dead_letters: int = 0
    outstanding: int = 0
    """How many calls were sent and forgotten and are not done: without the run nobody would send them again."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON."""
        return asdict(self) | {"finished": date_of(self.finished) if self.finished is not None else None}

    @property
    def all(self) -> tuple[str, ...]:
        """List the runs to delete, the lowest first: one that is left is found again by the run above it."""
        return (*self.children, self.run)


@dataclass(frozen=True, slots=True)
class DeletableRuns:
    """The runs that may be deleted, and why others stay."""

    runs: tuple[DeletableRun, ...]
    kept: Mapping[str, int]
    """How many runs of the filter's name and status stay, by the reason."""

    @property
    def bytes(self) -> int:
        """Sum up what the runs take."""
        return sum(run.bytes for run in self.runs)


class Deleter:
    """Deletes runs of a backend. All of it raises `RedisError`, `InfrastructureError`."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._prefix = settings.key_prefix
        self._letters = DeadLetters(redis, settings)

    def choose(
        self, which: RunFilter, free_bytes: int | None = None, *, is_largest_first: bool = False
    ) -> DeletableRuns:
        """List the runs that can be deleted, by the time of their ends, or the largest first; with `free_bytes` only as
        many as take so much.
        """
        kept = Counter[str]()
        measured = self._measured(self._ended(which, kept), kept)
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
        """Delete runs, and yield each that is deleted: one that goes on meanwhile stays."""
        for some in batches(list(runs), limits.DELETING_AT_ONCE):
            yield from self._delete(some, keeps_outstanding=True)

    def delete_one(self, run: str, *, foreign: bool = False) -> DeletableRun:
        """Delete a run that is over, with its child runs; with `foreign` also a run under way, if this version does not
        read its format. Raises `RunNotFound`, `RunOver`.
        """
        name, above, number = self._store(run).fields("name", PARENT, "format")
        is_read = number is None or int(number) == FORMAT
        if (parent := Parent.read(above)) is not None:
            of_run = parent.call.run
            if self._store(of_run).status() not in (None, *ENDED_STATUSES):
                raise RunOver(f"run {run} answers a call of run {of_run}, which is under way: cancel that first")
        family = (*self._below(run), run)
        holdings = measure_runs(self._redis, self._prefix, family)
        if (status := holdings[-1].status) is None:
            raise RunNotFound(run)
        for each, holding in zip(family, holdings, strict=True):
            if holding.status not in (None, *ENDED_STATUSES) and not (foreign and not is_read):
                if not is_read:
                    raise RunOver(
                        f"run {run} has format {number}, which this version does not read, and is not over there: "
                        "end it with the version that submitted it, or delete it as it is (`--foreign`)"
                    )
                which = f"run {run}" if each == run else f"run {each}, which run {run} has begun,"
                raise RunOver(f"{which} is {holding.status}: cancel it before it is deleted")
        found = _with(DeletableRun(run, name, status, None, family[:-1]), holdings, self._letters.counts())
        for deleted in self._delete([found], keeps_outstanding=False, foreign=foreign):
            return deleted
        raise RunOver(f"run {run} continues: calls were added to it meanwhile")

    def _ended(self, which: RunFilter, kept: Counter[str]) -> list[DeletableRun]:
        """List the runs of a filter that are over, with those below them, in the order of their ends."""
        below = defaultdict[str, list[str]](list)
        known, under_way = set[str](), set[str]()
        meant = list[tuple[Summary, str | None]]()
        for summary, state in RunIndex(self._redis, self._prefix).with_states():
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
        """Measure what runs hold; those with calls that are not done are counted in `kept`."""
        letters = self._letters.counts()
        for some in batches(runs, limits.DELETING_AT_ONCE):
            holdings = iter(measure_runs(self._redis, self._prefix, [each for run in some for each in run.all]))
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
        holdings = delete_runs(self._redis, self._prefix, names, keeps_outstanding=keeps_outstanding, foreign=foreign)
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
        """List the runs below a run: their ids begin as its own does (see `run_list.child_id`)."""
        below, runs = defaultdict[str, list[str]](list), RunList(self._redis, self._prefix)
        for some in batches(runs.beginning_with(f"{run.partition('-')[0]}-"), limits.LOOKED_AT):
            for each, [field] in zip(some, runs.fields(some, PARENT), strict=True):
                if (parent := Parent.read(field)) is not None:
                    below[parent.call.run].append(each)
        return list(_descendants(run, below))

    def _store(self, run: str) -> RunStore:
        return RunStore.open(self._redis, self._prefix, run)


def _descendants(run: str, below: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """List the runs below a run, the lowest first."""
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
# The log is written anew without their entries (`LogRewrite`). With these go the files that only they show, their calls
# in the outbox, their dead letters and child runs. The names of the instances stay, in the state and in the audit
# trail: the run says that they were deleted.


@dataclass(frozen=True, slots=True)
class Erased:
    """The parts of a run that were deleted."""

    run: str
    instances: tuple[str, ...]
    entries: int
    """How many entries of the log."""
    children: tuple[str, ...]
    """The child runs of the instances' calls."""
    dead_letters: int
    files: int
    remains: tuple[str, ...]
    """Descriptions of what stays and may hold data of the instances."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON."""
        return asdict(self)


OF_ANOTHER_VERSION: Final = "of another version"


@dataclass(frozen=True, slots=True)
class ErasableRun:
    """A run that has ended and has some of the instances that are to be deleted."""

    run: str
    name: str | None
    instances: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ErasableRuns:
    """The runs that have instances to be deleted, and why other runs with them stay as they are."""

    runs: tuple[ErasableRun, ...]
    kept: Mapping[str, int]
    """How many runs with these instances stay as they are, by the reason."""


class Eraser:
    """Deletes instances of runs. All of it raises `RedisError`, `InfrastructureError`."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._prefix = settings.key_prefix

    def choose(self, which: RunFilter, instances: Sequence[str]) -> ErasableRuns:
        """List the runs of a filter that have one of these instances, the newest first. The server looks for the names
        in the run's list of instances; one that was deleted is no longer there.
        """
        kept, found = Counter[str](), list[ErasableRun]()
        runs = ((run, state) for run, state in RunIndex(self._redis, self._prefix).with_states() if which.admits(run))
        for page in batches(runs, limits.DELETING_AT_ONCE):
            names = [summary.run for summary, _ in page]
            holding = RunList(self._redis, self._prefix).holding(names, instances)
            for (summary, state), held in zip(page, holding, strict=True):
                if held and summary.status != FOREIGN and state["status"] in ENDED_STATUSES:
                    found.append(ErasableRun(summary.run, summary.name, held))
                elif held:
                    kept[OF_ANOTHER_VERSION if summary.status == FOREIGN else UNDER_WAY] += 1
        return ErasableRuns(tuple(found), kept)

    def erase(self, runs: Iterable[ErasableRun]) -> Iterator[Erased]:
        """Delete the instances of runs, and yield what was deleted of each; a run that is gone meanwhile, or goes on,
        is left out.
        """
        for run in runs:
            with suppress(RunNotFound, RunOver, InstanceDeleted):
                yield self.erase_one(run.run, run.instances)

    def erase_one(self, run: str, instances: Sequence[str]) -> Erased:
        """Delete these instances of a run. If it is interrupted nothing of the log has changed; repeat it.

        Raises `RunNotFound`, `OtherFormat`, `RunOver`, `InstanceNotFound`, `InstanceDeleted`.
        """
        chosen = tuple(dict.fromkeys(instances))
        store = RunStore.open(self._redis, self._prefix, run)
        kept = RunState(store.definition())
        status, field, number = store.fields("status", "deleted", "format")
        require_format(int(number or FORMAT))
        if status not in ENDED_STATUSES:
            raise RunOver(f"run {run} is {status}: cancel it before an instance is deleted")
        known, deleted = store.instances(), deleted_instances(field)
        for instance in chosen:
            if instance in deleted:
                raise InstanceDeleted(run, instance)
            if instance not in known:
                raise InstanceNotFound(run, instance, known)
        children, shown = list[str](), set[str]()
        for _, lane in store.lanes(chosen):
            children += [entry.child for entry in lane if entry.child is not None]
            shown |= _files_of(lane)
        shown |= store.picture_digests()  # an attempt may have left one that nothing names
        for child in dict.fromkeys(children):
            with suppress(RunNotFound):  # it is kept no longer
                Deleter(self._redis, self._settings).delete_one(child)

        def keep(entry: Entry) -> None:
            shown.difference_update(_files_of([entry]) if shown else ())
            if entry.instance is None:
                kept.apply(entry)

        log = LogRewrite(self._redis, self._prefix, run, chosen)
        count = log.write(store.raw(), keep)
        order = audit_record(self._settings, "deleted", instances=list(chosen))
        if not log.replace(sorted(shown), [*deleted, *chosen], order):
            raise RunOver(f"run {run} continues: something was added to it meanwhile")
        gone = DeadLetters(self._redis, self._settings).forget_instances(run, frozenset(chosen))
        order.write_line(run)
        return Erased(run, chosen, count, tuple(children), gone, len(shown), tuple(_remains(kept)))


def _files_of(entries: Sequence[Entry]) -> set[str]:
    """List the digests of the files that messages show, and of pictures that tools have answered."""
    messages = [message for entry in entries for message in _messages(entry)]
    named = {str(part["digest"]) for part in file_parts(messages) if "digest" in part}
    return named | {digest for _, digest in pictures_in(messages)}


def _messages(entry: Entry) -> Iterator[Any]:
    if entry.message is not None:
        yield entry.message
    for event in entry.loop:
        yield from event.messages if isinstance(event, RequestRecorded) else ()


def _remains(run: RunState) -> Iterator[str]:
    """Describe what was made from all instances, or shown them."""
    for index, call in run.shared.known.items():
        if call.gather and run.shared.end(index) is not None:
            yield f"what call {index} ({call.tool}) has gathered, and what was made from it"
    if run.loop is not None:
        yield "what its model was shown and has answered"
