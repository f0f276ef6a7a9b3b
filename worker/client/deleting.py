"""Deleting runs that are over, one or many: what is deleted with them, and how much that frees.

With a run its child runs are deleted (SPEC R9.3), and the dead letters of all of them. What is under way stays, and so
does a run with a child run under way, or one that answers a call under way. Where many are deleted, a run stays, too,
whose calls that were sent and forgotten are not done.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.batches import batches
from acts_celery.worker.errors import RunNotFound, RunOver
from acts_celery.worker.storage.audit import audit_record
from acts_celery.worker.storage.child_links import PARENT, Parent
from acts_celery.worker.storage.clock import date_of
from acts_celery.worker.storage.dead_letters import DeadLetters
from acts_celery.worker.storage.formats import FORMAT
from acts_celery.worker.storage.keys import ENDED, Keys, active_runs, ended_runs
from acts_celery.worker.storage.retention import Holding, delete_runs, measure_runs

from .overview import Overview, Summary, Which

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
        if parent is not None and self._status(parent.call.run) not in (None, *ENDED):
            raise RunOver(f"run {run} answers a call of run {parent.call.run}, which is under way: cancel that first")
        family = (*self._below(run), run)
        holdings = measure_runs(self._redis, [self._keys(each) for each in family])
        if (status := holdings[-1].status) is None:
            raise RunNotFound(run)
        for each, holding in zip(family, holdings, strict=True):
            if holding.status not in (None, *ENDED) and not (foreign and not is_read):
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
            if state.get("status") not in ENDED:
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
