"""The overview of runs: which there are, how they stand, and which one a person means."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

from redis import Redis

from acts_celery.protocol.language.spelling import Speller
from acts_celery.worker.errors import AmbiguousRun, RunNotFound
from acts_celery.worker.storage.child_links import PARENT
from acts_celery.worker.storage.clock import date_of, server_ms
from acts_celery.worker.storage.formats import FORMAT
from acts_celery.worker.storage.keys import Keys
from acts_celery.worker.storage.owned_runs import OWNER, owner_of
from acts_celery.worker.storage.run_list import RunList, State

from .labels import ID, LATEST
from .run_status import FOREIGN, RunStatus, counts_of, run_status

_MOST_LOOKED_AT: Final = 100_000
_MOST_NAMED: Final = 5
_SURE: Final = 8
"""Characters from which on the beginning of an id is one, whatever runs are called."""


@dataclass(frozen=True, slots=True)
class Summary:
    """One run at a glance."""

    run: str
    name: str | None
    tags: tuple[str, ...]
    status: RunStatus
    calls: Mapping[str, int]
    submitted: datetime
    finished: datetime | None
    age_seconds: float
    """Since its submission."""
    duration_seconds: float
    """From its submission to its end, or to now."""
    cost: Mapping[str, Any] | None = None
    """What its loop has cost so far, as `Cost.to_dict` has it (SPEC R13.12); None where it is no request."""

    def to_dict(self) -> dict[str, Any]:
        """As `acts runs --json` prints it."""
        return {
            "run": self.run,
            "name": self.name,
            "tags": list(self.tags),
            "status": self.status,
            "calls": dict(self.calls),
            "submitted": date_of(self.submitted),
            "finished": date_of(self.finished) if self.finished is not None else None,
            "age_seconds": self.age_seconds,
            "duration_seconds": self.duration_seconds,
            **({"cost": dict(self.cost)} if self.cost is not None else {}),
        }


@dataclass(frozen=True, slots=True)
class Which:
    """Which runs are meant; what is None says nothing."""

    status: RunStatus | None = None
    name: str | None = None
    """Their name, or one of their tags."""
    older_than_seconds: float | None = None
    """They have ended at least so long ago."""

    def admits(self, run: Summary) -> bool:
        """Whether a run is one of them."""
        return (
            self.status in (None, run.status)
            and (self.name is None or self.name in (run.name, *run.tags))
            and (self.older_than_seconds is None or self._is_older(run, self.older_than_seconds))
        )

    def _is_older(self, run: Summary, seconds: float) -> bool:
        return run.finished is not None and run.age_seconds - run.duration_seconds >= seconds


class Overview:
    """The runs of a backend. All of it raises `RedisError`."""

    def __init__(
        self,
        redis: Redis,
        prefix: str,
        *,
        owner: str | None = None,
        asker: str | None = None,
        most_looked_at: int = _MOST_LOOKED_AT,
    ) -> None:
        """With an `owner` its own runs alone are there. The `asker` owns the runs that a name can mean: the `owner`
        where there is one, None for those that nobody owns. `most_looked_at` is for finding a run by less than its id.
        """
        self._redis = redis
        self._prefix = prefix
        self._owner = owner
        self._asker = owner if owner is not None else asker
        self._most_looked_at = most_looked_at

    def runs(self, which: Which = Which()) -> Iterator[Summary]:
        """The runs that are meant, the newest first."""
        for summary, _ in self.with_states():
            if which.admits(summary):
                yield summary

    def with_states(self) -> Iterator[tuple[Summary, State]]:
        """Every run, the newest first, and the fields of its state."""
        now_ms = server_ms(self._redis)
        for run, state in self._newest():
            yield _summary(run, state, now_ms), state

    def find(self, text: str) -> str:
        """The id of the run that a text means: an id, the beginning of one, `latest` or the newest of a name.

        Anybody may choose a name, so ids come first, and a name means only a run of the asker's own (SPEC R14.4).
        Raises `RunNotFound`, `AmbiguousRun`.
        """
        if ID.match(text) and self._is_there(text):
            return text
        if text == LATEST:
            return self._latest()
        alike: list[str] = []
        named: list[tuple[str, str | None]] = []
        others: set[str] = set()
        for run, state in self._looked_at():
            if run.startswith(text):
                alike.append(run)
            if state.get("name") == text:
                named.append((run, self._owner_of(run, state)))
            others.update((run, *filter(None, [state.get("name")])))
        if alike and named and len(text) < _SURE and alike != [named[0][0]]:
            runs = _some([*dict.fromkeys((*alike, *(run for run, _ in named)))])
            raise AmbiguousRun(f"{text!r} is a run's name and the beginning of an id: say which run, {runs}")
        if len(alike) > 1:
            raise AmbiguousRun(f"{len(alike)} runs begin with {text!r}: {_some(alike)}")
        if alike:
            return alike[0]
        if not named:
            raise RunNotFound(text, Speller().hint(text, {LATEST, *others}))
        owners = {owner for _, owner in named}
        if owners == {self._asker}:
            return named[0][0]
        runs = _some([run if owner == self._asker else _of(run, owner) for run, owner in named])
        if len(owners) > 1:
            raise AmbiguousRun(f"runs of several owners have the name {text!r}, so give an id: {runs}")
        raise RunNotFound(text, f" of your own: somebody else's has the name, so give its id: {runs}")

    def _latest(self) -> str:
        foreign = None
        for run, state in self._looked_at():
            if (owner := self._owner_of(run, state)) == self._asker:
                return run
            foreign = foreign or _of(run, owner)
        raise RunNotFound(LATEST, f" of your own: the newest is {foreign}" if foreign else ": there is none yet")

    def _looked_at(self) -> Iterator[tuple[str, State]]:
        found = RunList(self._redis, self._prefix).newest(self._owner, ("name", PARENT))
        return islice(found, self._most_looked_at)

    def _owner_of(self, run: str, state: State) -> str | None:
        """Who owns a run; a child run belongs to the owner of the run above it."""
        return owner_of(self._redis, self._prefix, run) if PARENT in state else state.get(OWNER)

    def _newest(self) -> Iterator[tuple[str, State]]:
        return RunList(self._redis, self._prefix).newest(self._owner)

    def _is_there(self, run: str) -> bool:
        if self._owner is not None:
            return owner_of(self._redis, self._prefix, run) == self._owner
        return bool(self._redis.exists(Keys(self._prefix, run).state))


def _some(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    return ", ".join(runs[:_MOST_NAMED]) + more


def _of(run: str, owner: str | None) -> str:
    return f"{run} (of {owner})" if owner is not None else f"{run} (of nobody)"


def _summary(run: str, state: Mapping[str, str], now_ms: int) -> Summary:
    submitted = int(float(state.get("submitted", now_ms)))
    finished = int(float(state["finished"])) if "finished" in state else None
    tags = tuple(state["tags"].split("\n")) if state.get("tags") else ()
    return Summary(
        run=run,
        name=state.get("name"),
        tags=tags,
        status=run_status(state["status"]) if int(state.get("format", FORMAT)) == FORMAT else FOREIGN,
        calls=counts_of(state) if "total" in state else {},
        submitted=_moment(submitted),
        finished=_moment(finished) if finished is not None else None,
        age_seconds=max(0, now_ms - submitted) / 1000,
        duration_seconds=max(0, (finished or now_ms) - submitted) / 1000,
        cost=json.loads(state["loop:cost"]) if "loop:cost" in state else None,
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
