"""The names of a run's keys in Redis.

All of them share the hash tag `{run}`, so a run lies on one shard and one script may touch all of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

LOOP: Final = "?"
"""The loop's lane. No instance of a request has this name."""

ENDED_STATUSES: Final = frozenset({"completed", "failed", "cancelled"})
"""The statuses of a run that is over."""
SCHEDULED: Final = "scheduled"
"""The status of a run that begins at a time."""


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
        """Hash: the state of the run.

        `format`, `status`, `submitted`, `finished`, `resumed` (when it last went on); `total`, `remaining` and
        `running` calls, those `between` two attempts, and `n:<status>` of those that have ended; `bytes` that its
        calls have written and `work` of validation; `exceeded` why it was ended, `output_fault`, and `missed`: what
        was promised, did not come in time and could not be done without; `look`: when the sweep looks at the run next
        (none where nothing was due);
        `promises_due` and `promise_ms` (see sweep.lua); `sent`, how many calls and elements were sent and forgotten;
        `approve_ms`, how long a held call waits for a person (none: for ever); `rules`, the entry that has changed the
        run's rules last, and `rule:<id>` for each in force; `wakes`, how often parked lanes were woken;
        `drives:<lane>` and `driven:<lane>` (drive.lua), `writer` (keys.lua), `amending…` and `amended` (amend.lua),
        `loop…` (loop.lua); `trace`, the span that it was submitted under, and `delegate`, which one a
        child run is (see `run_list`); `traced`, with which end it was exported as spans (keys.lua); `given_back`,
        the entry of the call that was given back last, and `code_came`, when a worker began after that (reports.lua);
        `deleted`, the instances that were deleted (keys.lua); `contracts`, what the run was checked against where its
        client did not have the code. Times are in ms.
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
        """Stream: the log while it is written anew without some instances (see `client.deleting`)."""
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
        """Hash: `<lane>\\x1f<call>` -> its final status, or its condition (see `Condition`); for exactly-once commits.

        A gather call that has nothing to wait for in a lane is `settled` there.
        """
        return self._key("calls")

    @property
    def codes(self) -> str:
        """Hash: who has run calls, with which version of their code -> its number (see `scripts.ExecutedBy`)."""
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
        """Sorted set: lanes that wait for a global call (see run.lua)."""
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
    def waits(self) -> str:
        """Sorted set: the calls that wait for a moment, by that moment in ms (SPEC R4.12)."""
        return self._key("waits")

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
    def progress(self) -> str:
        """Hash: the calls at work that have reported their progress, at most 100 -> `<attempt>:<the report>`."""
        return self._key("progress")

    @property
    def published(self) -> str:
        """Sorted set: lanes whose tasks are in the queue, by the time at which they count as lost.

        One at 0 is not in the queue: its lane was left since the run is paused.
        """
        return self._key("published")

    @property
    def backlog(self) -> str:
        """List: lanes whose turn to be published has not come yet (see run.lua)."""
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
        """Hash: fire-and-forget calls that were not done yet, and how they stand (see `Condition`)."""
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
            self.waits,
            self.pending_webhooks,
            self.children,
            self.budget,
            self.unanswered,
            self.progress,
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
    """Sorted set: the runs of an owner, by the time of their submission (see `run_list`)."""
    return f"{prefix}:owned:{owner}"


def owned_children(prefix: str, owner: str) -> str:
    """Sorted set: the child runs below the runs of an owner, likewise."""
    return f"{prefix}:owned_children:{owner}"


def admission(prefix: str, owner: str) -> str:
    """String: a run of an owner with limits is being written down; short-lived."""
    return f"{prefix}:admission:{owner}"


def approved_plans(prefix: str) -> str:
    """Hash: digests of plans that were approved for all their runs, and who did (see `AuditRecord`)."""
    return f"{prefix}:approved_plans"


def claim(prefix: str, run: str) -> str:
    """String: who gives a run this id is writing it down; short-lived."""
    return f"{prefix}:claim:{run}"


def due_runs(prefix: str) -> str:
    """Sorted set: the runs that have something due, by the time of the soonest (see `commits`)."""
    return f"{prefix}:due"


def awaiting_code(prefix: str) -> str:
    """Sorted set: the runs in which calls were given back, by the time of the last one (SPEC R17.3)."""
    return f"{prefix}:awaiting_code"


def recovery(prefix: str, position: int = 0) -> str:
    """Hash: the state of recovery, the same for all sweeps.

    `heard` when one last reached both servers, `until` when recovery pauses (see recovery.lua). Where the log has
    several servers, each but the first has one of its own there.
    """
    return f"{prefix}:recovery" + (f":{position}" if position else "")


def cached_result(prefix: str, place: str) -> str:
    """String: the result of a call of a pure activity, for as long as it is kept (see `MessageLog.cached`)."""
    return f"{prefix}:cache:{place}"


def queue_notes(prefix: str) -> str:
    """Hash: a queue's name -> what the sweep has noted of it (see `living`)."""
    return f"{prefix}:queues"


def processes(prefix: str) -> str:
    """Hash: a process that sees the log -> what it holds, and when it said so (see `recovery.heartbeats`)."""
    return f"{prefix}:processes"


def session_process(prefix: str, process: str) -> str:
    """String: a process lives that has runs' sessions with MCP servers; short-lived (see `living`)."""
    return f"{prefix}:session:{process}"


def session_messages(prefix: str, process: str) -> str:
    """List: what other processes send it about them."""
    return f"{prefix}:session:{process}:messages"


def probes(prefix: str) -> str:
    """Hash: queue -> "<taken>:<asked>:<sent>", times in ms (see `recovery.sweep`)."""
    return f"{prefix}:probes"


def place(prefix: str) -> str:
    """Hash: which of several servers this one is, where the log has several (see `connections`).

    `list` is which list of servers, `servers` how many it has, `position` this one's, from 0; the first one has
    `joined:<position>` of each other that has taken its place.
    """
    return f"{prefix}:place"


BESIDE_RUNS: Final = frozenset({b"slots", b"dead"})
"""The hash tags of keys that belong to no run."""


def secret(prefix: str) -> str:
    """String: what the tokens of remote attempts are made from (see `broker.attempts`)."""
    return f"{prefix}:secret"


# The fields of an entry of a run's log: the one place that names them. The scripts in `lua/` write the same.
#
# | field | says |
# |---|---|
# | `l` | the lane it belongs to; without it, it is of the run as a whole |
# | `p` | the id of the lane's entry before it, so that a lane is read from its end (lua/lane.lua) |
# | `c` | the call it is about |
# | `m` | a message (msgpack): submitted, sent, or written by the call |
# | `s` | the call has ended, and how |
# | `d` | details (msgpack): `error`, `reason`, `cost`, `missed`, `value`, `rescued`, `by`, `t` (`entries`) |
# | `W` | who has run it, with which version of the code: a number (`scripts.ExecutedBy`) |
# | `k` | the lane's record, in its first entry and wherever it was amended (see `definition`) |
# | `element` | an element of the call has ended: its number and how, `<n>:<status>` |
# | `begun` | a call, or an element, that runs at most once begins, with this (msgpack, as `held`) |
# | `attempt` | beside it: which attempt that is |
# | `held` | the call, or an element whose end is not known, waits for a person, with this (msgpack, see `held_calls`) |
# | `decided` | what was decided of it (msgpack) |
# | `moved` | the call waits for another moment: that, in ms |
# | `fan_out` | the call runs for each element, with this (msgpack, as `held`) |
# | `child` | the run that is to answer the call |
# | `given_back` | the call waits for code that admits it: what the first that does not had against it |
# | `undone` | calls (msgpack) that are run again: their ends, and what they wrote, before it count no more |
# | `keeping` | beside it: those of them (msgpack) of which only the elements that failed are run again |
# | `stale` | beside it: calls (msgpack) that have read what those may now write, and are not run again |
# | `gave_up` | what was promised and has not come is not waited for any more |
# | `amendment` | beside the global lane's record: what the lanes share of an amendment |
# | `audit` | who did it, where that was done from outside (msgpack, see `held_calls`); an entry may hold nothing else |
# | `status` | without a lane: the run's new status; `d` may give a `reason` (`s` in the stream of statuses) |
#
# What every instance has is one letter, since it is in memory as often. A loop is a lane of its own: its entries have
# `tick`, and one field for each event (see `entries`). Readers pass over fields that they do not know.
#
# In `d`, `seen` are two ids: a delegate, or a model, was sent what its lane had up to the first, and the global one up
# to the second.


class Field:
    """The names of the fields of an entry of a log."""

    LANE: Final = b"l"
    BEFORE: Final = b"p"
    CALL: Final = b"c"
    MESSAGE: Final = b"m"
    ENDED: Final = b"s"
    DETAIL: Final = b"d"
    CODE: Final = b"W"
    RECORD: Final = b"k"
    ELEMENT: Final = b"element"
    BEGUN: Final = b"begun"
    ATTEMPT: Final = b"attempt"
    HELD: Final = b"held"
    DECIDED: Final = b"decided"
    RULE: Final = b"rule"
    REVOKED: Final = b"revoked"
    RULED: Final = b"ruled"
    """The rule that approves the call which the entry holds."""
    MOVED: Final = b"moved"
    FAN_OUT: Final = b"fan_out"
    CHILD: Final = b"child"
    GIVEN_BACK: Final = b"given_back"
    PROGRESS: Final = b"progress"
    UNDONE: Final = b"undone"
    KEEPING: Final = b"keeping"
    STALE: Final = b"stale"
    GAVE_UP: Final = b"gave_up"
    AMENDMENT: Final = b"amendment"
    AUDIT: Final = b"audit"
    STATUS: Final = b"status"
    TICK: Final = b"tick"


Fields = Mapping[bytes, bytes]


# The condition of a call that has begun and has not ended: `<kind>:<attempt>:<failures>:<holder>` (lua/common.lua).
#
# It is in a run's `calls` beside the final statuses of those that have ended, which have no colon. `attempt` counts
# the executions begun, the one at work included; `failures` those of them that failed; the others were lost.
#
# | kind | | holder | goes on when |
# |---|---|---|---|
# | `running` | a worker is at work on it | its owner | its lease runs out: it is `lost` |
# | `sent` | its message, or its result's, is on the way; an execution that is lost then does not count as one |
# `<owner>/<ms>/<queue>`: where the message went, and when; no queue where it was taken | a probe has come out of its
# queue, and for 4 s no process reported it: it is `lost` |
# | `retry` | its attempt failed, the policy grants another; or no code has come yet that admits it | when, in ms; 0
# where the sweep has seen that it is due | it is due |
# | `child` | a child run is to answer it | that run | the run ends |
# | `lost` | the process that was at work on it is dead: only the sweep writes this | | a driver claims it |
# | `each` | it runs for each element: those stand here, too | | the last of them ends |
# | `held` | it waits for a person | the entry with its snapshot | it is decided on, or its time is over: it is
# `decided` |
# | `unknown` | an attempt at it was begun, its end is not known, and a person is asked | the entry that says so | it is
# `decided`, or its result comes nevertheless |
# | `decided` | a person, or a rule of the run, has decided | the entry of the decision | a driver claims it, or ends
# it |
#
# What is sent and forgotten is in the run's outbox in the same way, with the holder `<ms>/<queue>`: where its task
# went, and when. There, `sent` means that it lies in the queue or was taken, `taken` that a probe has come out of the
# queue since, `running` that its worker has reported it, `retry` that it is to be tried again when due.


class Kind(StrEnum):
    """The conditions of a call that has not ended."""

    RUNNING = "running"
    SENT = "sent"
    RETRY = "retry"
    CHILD = "child"
    LOST = "lost"
    EACH = "each"
    HELD = "held"
    UNKNOWN = "unknown"
    DECIDED = "decided"
    TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a call that has begun and has not ended."""

    kind: Kind
    attempt: int = 0
    failures: int = 0
    holder: str = ""

    @classmethod
    def read(cls, entry: bytes | None) -> Self | None:
        """A value of `calls` or of an outbox; None if it is not a condition."""
        if entry is None:
            return None
        try:
            kind, attempt, failures, holder = entry.decode().split(":", 3)
            return cls(Kind(kind), int(attempt), int(failures), holder)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.kind}:{self.attempt}:{self.failures}:{self.holder}"

    @property
    def is_at_work(self) -> bool:
        """Whether a worker, a message or a child run has the call now."""
        return self.kind in _AT_WORK

    @property
    def is_reported(self) -> bool:
        """Whether a worker that had the call's message has reported that it is at work on it."""
        return self.kind is Kind.RUNNING and "/" in self.holder

    @property
    def is_between(self) -> bool:
        """Whether an attempt of it is over and another one is to follow."""
        return self.kind is Kind.RETRY and self.attempt > 0


FAN_OUT_KIND: Final = Condition(Kind.EACH, attempt=1)
"""The condition of a call that runs for each element."""
_AT_WORK: Final = frozenset({Kind.RUNNING, Kind.SENT, Kind.CHILD})


def is_at_work(entry: bytes | None) -> bool:
    """Whether a call is at work, here or elsewhere, by its entry in `calls`."""
    found = Condition.read(entry)
    return found is not None and found.is_at_work


def is_resting(entry: bytes | None, now_ms: int) -> bool:
    """Whether a call is to be tried again, but not yet."""
    found = Condition.read(entry)
    return found is not None and found.kind is Kind.RETRY and int(found.holder) > now_ms
