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
        """Hash: how the run stands.

        `format`, `status`, `submitted`, `finished`, `resumed` (when it last went on); `total`, `remaining` and
        `running` calls, those `between` two attempts, and `n:<status>` of those that have ended; `bytes` that its
        calls have written and `work` of validation; `exceeded` why it was ended, `output_fault`, and `missed`: what
        was promised, did not come in time and could not be done without; `look`: when the sweep looks at the run next
        (none where nothing was due);
        `promises_due` and `promise_ms` (see sweep.lua); `sent`, how many calls and elements were sent and forgotten;
        `approve_ms`, how long a held call waits for a person (none: for ever); `wakes`, how often parked lanes were
        woken; `drives:<lane>` and `driven:<lane>` (drive.lua), `writer` (write.lua), `amending…` and `amended`
        (amend.lua), `loop…` (loop.lua); `trace`, the span that it was submitted under, and `delegate`, which one a
        child run is (see `child_links`); `traced`, with which end it was exported as spans (traced.lua); `given_back`,
        the entry of the call that was given back last, and `code_came`, when a worker began after that (code_came.lua);
        `deleted`, the instances that were deleted (forget.lua). Times are in ms.
        """
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
    def log_kept(self) -> str:
        """Stream: the log while it is written anew without some instances (see `client.erasure`)."""
        return self._key("log", "kept")

    @property
    def statuses(self) -> str:
        """Stream: the changes of the run's status, which are in the log, too. `wait` blocks on it."""
        return self._key("statuses")

    @property
    def lanes(self) -> str:
        """Hash: lane -> `<the id of its last entry>:<how many of its calls have begun and not ended>`."""
        return self._key("lanes")

    @property
    def calls(self) -> str:
        """Hash: `<lane>\\x1f<call>` -> its final status, or how it stands (see `condition`); for exactly-once commits.

        A gather call that has nothing to wait for in a lane is `settled` there.
        """
        return self._key("calls")

    @property
    def codes(self) -> str:
        """Hash: who has carried out calls, with which version of their code -> the number of that (see `codes`)."""
        return self._key("codes")

    @property
    def leases(self) -> str:
        """Sorted set: what is at work, by the time in ms at which it counts as lost.

        `<lane>\\x1f<call>` is a call, or one that waits for its next attempt, by the time at which it is due;
        `<lane>\\x1f@<owner>` is a driver.
        """
        return self._key("leases")

    @property
    def parked(self) -> str:
        """Sorted set: lanes that wait for a global call (see window.lua)."""
        return self._key("parked")

    @property
    def gathers(self) -> str:
        """Hash: gather call -> how many lanes have not found it settled yet, where any has (SPEC R10.4)."""
        return self._key("gathers")

    @property
    def held(self) -> str:
        """Sorted set: the calls that wait for a person, by the time since when in ms (SPEC R14)."""
        return self._key("held")

    @property
    def pending_webhooks(self) -> str:
        """Sorted set: the held calls for which a web hook is to be called, by the time to do so."""
        return self._key("untold")

    @property
    def children(self) -> str:
        """Set: the child runs that its calls wait for (SPEC R9.3)."""
        return self._key("children")

    @property
    def budget(self) -> str:
        """Hash: what is taken by its loop and below it (SPEC R13.3; see budget.lua)."""
        return self._key("pool")

    @property
    def unanswered(self) -> str:
        """Hash: calls whose request to a model was not answered yet, and is made again (see `unanswered`)."""
        return self._key("unanswered")

    @property
    def published(self) -> str:
        """Sorted set: lanes whose tasks lie in the queue, by the time at which they count as lost.

        One at 0 is not in the queue: its lane was left since the run is paused.
        """
        return self._key("published")

    @property
    def backlog(self) -> str:
        """List: lanes whose turn to be published has not come yet (see window.lua)."""
        return self._key("backlog")

    @property
    def files(self) -> str:
        """Hash: digest -> the bytes of a file that its messages show (see `files`)."""
        return self._key("files")

    @property
    def pictures(self) -> str:
        """Hash: digest -> the bytes of a picture that a tool has answered. Lanes are opened without them."""
        return self._key("pictures")

    @property
    def sessions(self) -> str:
        """Hash: MCP server -> which process has the run's session with it (see session.lua)."""
        return self._key("sessions")

    @property
    def outbox(self) -> str:
        """Hash: fire-and-forget calls that were not done yet, and how they stand (see `condition`)."""
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
    def dead_calls(self) -> str:
        """Set: those of them that failed for good, and were not sent again since."""
        return self._key("outbox", "dead")

    @property
    def all(self) -> tuple[str, ...]:
        """Every key that a run may have."""
        return (
            self.definition,
            self.state,
            self.instances,
            self.log,
            self.log_kept,
            self.statuses,
            self.lanes,
            self.calls,
            self.codes,
            self.leases,
            self.parked,
            self.gathers,
            self.held,
            self.pending_webhooks,
            self.children,
            self.budget,
            self.unanswered,
            self.published,
            self.backlog,
            self.files,
            self.pictures,
            self.sessions,
            self.outbox,
            self.outbox_tasks,
            self.outbox_due,
            self.dead_calls,
        )

    def _key(self, *parts: str) -> str:
        return ":".join((self.prefix, "{" + self.run + "}", *parts))


def active_runs(prefix: str) -> str:
    """Sorted set: the runs under way, by the time of their submission."""
    return f"{prefix}:runs"


def ended_runs(prefix: str) -> str:
    """Sorted set: the runs that have ended and are kept, by the time of their submission (see `run_list`)."""
    return f"{prefix}:ended"


def owned_runs(prefix: str, owner: str) -> str:
    """Sorted set: the runs of an owner, by the time of their submission (see `owned_runs`)."""
    return f"{prefix}:owned:{owner}"


def owned_children(prefix: str, owner: str) -> str:
    """Sorted set: the child runs below the runs of an owner, likewise."""
    return f"{prefix}:owned_children:{owner}"


def admission(prefix: str, owner: str) -> str:
    """String: a run of an owner with limits is being written down; short-lived."""
    return f"{prefix}:admission:{owner}"


def claim(prefix: str, run: str) -> str:
    """String: who gives a run this id is writing it down; short-lived."""
    return f"{prefix}:claim:{run}"


def due_runs(prefix: str) -> str:
    """Sorted set: the runs that have something due, by the time of the soonest (see `due`)."""
    return f"{prefix}:due"


def awaiting_code(prefix: str) -> str:
    """Sorted set: the runs in which calls were given back, by the time of the last one (SPEC R17.3)."""
    return f"{prefix}:awaiting_code"


def recovery(prefix: str) -> str:
    """Hash: the state of recovery, the same for all sweeps.

    `heard` when one last reached both servers, `until` when recovery pauses (see sweep_seen.lua).
    """
    return f"{prefix}:recovery"


def queue_notes(prefix: str) -> str:
    """Hash: a queue's name -> what the sweep has noted of it (see `queue_notes`)."""
    return f"{prefix}:queues"


def processes(prefix: str) -> str:
    """Hash: a process that sees the log -> what it holds, and when it said so (see `liveness.presence`)."""
    return f"{prefix}:processes"


def session_process(prefix: str, process: str) -> str:
    """String: a process lives that has runs' sessions with MCP servers; short-lived (see `sessions`)."""
    return f"{prefix}:session:{process}"


def session_messages(prefix: str, process: str) -> str:
    """List: what other processes send it about them."""
    return f"{prefix}:session:{process}:messages"


def probes(prefix: str) -> str:
    """Hash: queue -> "<taken>:<asked>:<sent>", times in ms (see `recovery.probes`)."""
    return f"{prefix}:probes"


def secret(prefix: str) -> str:
    """String: what the tokens of remote attempts are made from (see `wire.tokens`)."""
    return f"{prefix}:secret"
