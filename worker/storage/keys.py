"""The names of a run's keys in Redis.

All of them share the hash tag `{run}`, so a run lies on one shard and one script may touch all of them.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Final

ENDED: Final = frozenset({"completed", "failed", "cancelled"})
"""The statuses of a run that is over."""


def make_run_id(milliseconds: int) -> str:
    """A new run's id; ids sort by the time of submission."""
    return f"{milliseconds:x}-{secrets.token_hex(5)}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one run."""

    prefix: str
    run: str

    @property
    def definition(self) -> str:
        """String, msgpack: tools, delegates, a plan's templates (see `definition`)."""
        return self._key("definition")

    @property
    def state(self) -> str:
        """Hash: status, counters and times of the run."""
        return self._key("state")

    @property
    def instances(self) -> str:
        """List: the instances in the order of the context."""
        return self._key("instances")

    @property
    def log(self) -> str:
        """Stream: everything that happened in the run, in order (see `log`)."""
        return self._key("log")

    @property
    def statuses(self) -> str:
        """Stream: the changes of the run's status, which are in the log, too. `wait` blocks on it."""
        return self._key("statuses")

    @property
    def lanes(self) -> str:
        """Hash: lane -> the id of its last entry in the log, and how many of its calls are open (see advance.lua)."""
        return self._key("lanes")

    @property
    def calls(self) -> str:
        """Hash: the status of each call that was begun or has ended, for exactly-once commits (see advance.lua)."""
        return self._key("calls")

    @property
    def leases(self) -> str:
        """Sorted set: what is at work, by the time at which it counts as lost (see advance.lua)."""
        return self._key("leases")

    @property
    def parked(self) -> str:
        """Sorted set: lanes that wait for a global call (see window.lua)."""
        return self._key("parked")

    @property
    def gathers(self) -> str:
        """Hash: gather call -> the lanes that have not found it settled yet (SPEC R10.4; see advance.lua)."""
        return self._key("gathers")

    @property
    def held(self) -> str:
        """Sorted set: the calls that wait for a person, by the time since when (SPEC R14; see advance.lua)."""
        return self._key("held")

    @property
    def untold(self) -> str:
        """Sorted set: those of which the web hook is to be told, by the time to do so (see sweep.lua)."""
        return self._key("untold")

    @property
    def children(self) -> str:
        """Set: the child runs that its calls wait for (SPEC R9.3)."""
        return self._key("children")

    @property
    def pool(self) -> str:
        """Hash: what is taken below its loop (SPEC R13.3; see pool.lua)."""
        return self._key("pool")

    @property
    def unanswered(self) -> str:
        """Hash: calls whose request to a model was not answered yet, and is made again (see `unanswered`)."""
        return self._key("unanswered")

    @property
    def published(self) -> str:
        """Sorted set: lanes whose tasks lie in the queue, by the time at which they count as lost."""
        return self._key("published")

    @property
    def backlog(self) -> str:
        """List: lanes whose turn to be published has not come yet (see window.lua)."""
        return self._key("backlog")

    @property
    def outbox(self) -> str:
        """Hash: fire-and-forget calls that were not done yet, and how they stand (see outbox.lua)."""
        return self._key("outbox")

    @property
    def outbox_tasks(self) -> str:
        """Hash: their tasks."""
        return self._key("outbox", "tasks")

    @property
    def outbox_due(self) -> str:
        """Sorted set: they, by the time at which they are to be looked after."""
        return self._key("outbox", "due")

    @property
    def all(self) -> tuple[str, ...]:
        """Every key that a run may have."""
        return (
            self.definition,
            self.state,
            self.instances,
            self.log,
            self.statuses,
            self.lanes,
            self.calls,
            self.leases,
            self.parked,
            self.gathers,
            self.held,
            self.untold,
            self.children,
            self.pool,
            self.unanswered,
            self.published,
            self.backlog,
            self.outbox,
            self.outbox_tasks,
            self.outbox_due,
        )

    def _key(self, *parts: str) -> str:
        return ":".join((self.prefix, "{" + self.run + "}", *parts))


def active_runs(prefix: str) -> str:
    """Sorted set: the runs under way, by the time of their submission."""
    return f"{prefix}:runs"


def ended_runs(prefix: str) -> str:
    """Sorted set: the runs that have ended and are kept, by the time of their submission (see `run_list`)."""
    return f"{prefix}:ended"


def claim(prefix: str, run: str) -> str:
    """String: who gives a run this id is writing it down; short-lived."""
    return f"{prefix}:claim:{run}"


def due_runs(prefix: str) -> str:
    """Sorted set: the runs that have something due, by the time of the soonest (see `due`)."""
    return f"{prefix}:due"


def recovery(prefix: str) -> str:
    """Hash: the state of recovery, the same for all sweeps.

    `heard` when one last reached both servers, `until` when recovery pauses (see contact.lua).
    """
    return f"{prefix}:recovery"


def probes(prefix: str) -> str:
    """Hash: queue -> "<taken>:<asked>:<sent>", times in ms (see `recovery.probes`)."""
    return f"{prefix}:probes"


def secret(prefix: str) -> str:
    """String: what the tokens of remote attempts are made from (see `messaging.tokens`)."""
    return f"{prefix}:secret"
