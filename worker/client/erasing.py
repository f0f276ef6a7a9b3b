"""One person's data over all runs: which runs have an instance of a name, and deleting it from each (see `erasure`).

A run is found by the list of its instances, in which the server looks for their names, a few runs in one step. One that
was deleted stands there no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.batches import batches
from acts_celery.worker.errors import InstanceDeleted, RunNotFound, RunOver
from acts_celery.worker.storage.keys import ENDED, Keys
from acts_celery.worker.storage.run_list import State

from .deleting import UNDER_WAY
from .erasure import Erased, Eraser
from .overview import Overview, Summary, Which
from .run_status import FOREIGN, read_state

_AT_ONCE: Final = 20
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
        for page in batches(meant, _AT_ONCE):
            for (summary, state), names in zip(page, self._instances_of(page, instances), strict=True):
                if not names:
                    continue
                if summary.status == FOREIGN:
                    kept[OF_ANOTHER_VERSION] += 1
                elif state["status"] not in ENDED:
                    kept[UNDER_WAY] += 1
                else:
                    found.append(ErasableRun(summary.run, summary.name, names))
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
