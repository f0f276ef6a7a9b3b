"""A run that a page looks at, opened for one question: its keys, its state, its lanes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.client.call_results import CANCELLED
from acts_celery.worker.client.instance_status import deleted_instances
from acts_celery.worker.client.results import Assembly, Result
from acts_celery.worker.client.run_status import has_begun_calls, run_status
from acts_celery.worker.errors import BadQuery, InstanceDeleted, InstanceNotFound
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.entries import Entry, id_key
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import Keys
from acts_celery.worker.storage.run_state import RunState
from acts_celery.worker.wire.attempts import lane_token

from .tally import Tally

_LONGEST: Final = 100
"""Characters of a wrong value that an error names."""


class Query:
    """What a question gives beside its address, as texts."""

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
            raise BadQuery(f"{name}={found[:_LONGEST]!r} is not a number such as 0")
        return int(found)

    def moment(self, name: str) -> str | None:
        """The id of an entry of the log; None where it was left out. Raises `BadQuery`."""
        if (found := self.text(name)) is None:
            return None
        parts = found.split("-")
        if len(parts) != 2 or not all(part.isascii() and part.isdigit() and len(part) <= 19 for part in parts):
            raise BadQuery(f"{name}={found[:_LONGEST]!r} is not an id of the log such as 1763683200000-0")
        return found


@dataclass(frozen=True)
class OpenedRun:
    """A run that is there, in a format that is read here."""

    redis: Redis
    settings: Settings
    keys: Keys
    state: Mapping[str, str]
    """The fields of its state."""
    tally: Tally
    query: Query

    @cached_property
    def history(self) -> History:
        """Its log."""
        return History(self.redis, self.keys)

    @cached_property
    def definition(self) -> Definition:
        """What it was submitted as."""
        return self.history.definition()

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
        return self.tally.instances()

    @cached_property
    def deleted(self) -> list[str]:
        """The instances that it had, and that were deleted."""
        return deleted_instances(self.state.get("deleted"))

    def require_instance(self, name: str | None) -> None:
        """Raise `InstanceNotFound` for an instance that the run never had, `InstanceDeleted` for one that it had."""
        if name is None or self.redis.hexists(self.keys.lanes, lane_token(name)):
            return
        if name not in self.instances:  # one for which no call is has no lane
            if name in self.deleted:
                raise InstanceDeleted(self.keys.run, name)
            raise InstanceNotFound(self.keys.run, name, self.instances)

    def entries(self, *lanes: str | None) -> list[Entry]:
        """The entries of lanes, in the order of the log. It costs nothing for the others."""
        found = [entry for lane in dict.fromkeys(lanes) for entry in self.history.lane(lane)]
        return sorted(found, key=lambda entry: id_key(entry.id))

    def lanes(self, *instances: str | None, at: str | None = None) -> RunState:
        """The global lane and those of instances, folded, now or as of a past id."""
        state = RunState(self.definition, filter(None, instances), at=at)
        state.feed(self.entries(None, *instances))
        return state

    def result(self, entries: Iterable[Entry], *instances: str, waits: bool = False) -> Result:
        """What comes of the entries of some lanes, the global one among them."""
        assembly = Assembly(self.keys.run, self.definition, instances)
        assembly.feed(entries, self.history.codes())
        at_work = self.history.at_work(is_over=self.has_stopped) if self.has_begun_calls else {}
        return assembly.result(run_status(self.status), at_work, waits=waits)

    @property
    def has_begun_calls(self) -> bool:
        """Whether some of its calls may have begun and not ended."""
        return has_begun_calls(self.state)
