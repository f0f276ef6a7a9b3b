"""What a reader of a run's log is shown of its entries: messages, who did what, and the ends of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from acts_celery.protocol.engine.events import CallEnded
from acts_celery.protocol.engine.statuses import CallStatus
from acts_celery.worker.storage.audit import AuditRecord
from acts_celery.worker.storage.codes import Code
from acts_celery.worker.storage.entries import Entry, id_key
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.run_state import RunState

from .changes import Changes
from .progress import Event, event_of
from .timings import Timing, timing_of


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call that has ended with an entry of the log."""

    index: int
    status: CallStatus
    timing: Timing
    reason: str | None = None
    """Why it was skipped."""
    call: Mapping[str, Any] | None = None
    """The call as it was written, where the entry has no message that tells it."""
    code: Code | None = None
    """Which worker has carried it out, with which version of its code (SPEC R11.9)."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        call = {"call": dict(self.call), "reason": self.reason} if self.call is not None else {}
        code = {"worker": self.code.worker, "version": self.code.version} if self.code is not None else {}
        return {"index": self.index, "status": self.status, "timing": self.timing.to_dict(), **code, **call}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One message of the log; where no message is, what was done to the run from outside, or how a call has ended."""

    id: str
    instance: str | None
    message: Mapping[str, Any]
    audit: AuditRecord | None = None
    end: CallEnd | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """What whoever decided on a held call has changed (see `changes`), where `audit` says who that was."""
    tick: Event | None = None
    """That a tick of the loop was asked, answered, or has ended; with an answer, `message` is its solution."""


class LogReading:
    """Reads a log and chooses what is shown of it, of one instance or of all: entries with a message; with `audit` also
    those that say who did what.

    With `every` also those that say no more than that a call has ended: it was sent and forgotten, a passing thought (a
    latent call without a path), or skipped; with `ticks` those that say that a tick was asked, or has ended.
    """

    def __init__(
        self, history: History, instance: str | None, *, audit: bool, every: bool, ticks: bool = False
    ) -> None:
        """Raises `RunNotFound`, `RedisError`."""
        self.seen = "0-0"
        """The id of the last entry that was read."""
        self._history = history
        self._codes: dict[int, Code] = {}
        self._instance = instance
        self._changes = Changes() if audit else None
        self._has_ticks = ticks
        self._run = RunState(history.definition()) if every else None
        if self._run is not None:
            self._run.feed(history.lane(None))
        self._read = id_key(self._run.shared.last) if self._run is not None else (0, 0)
        """So far the global lane was read."""

    def past(self) -> Iterator[LogEntry]:
        """What is shown of what has happened. Raises `RedisError`."""
        entries = self._history.entries() if self._instance is None else self._history.lane(self._instance)
        for entry in entries:
            self.seen = entry.id
            yield from self._shown(entry)

    def shown(self, entry: Entry) -> list[LogEntry]:
        """What is shown of an entry that came later; give it all of them, in order."""
        shown = list(self._shown(entry))
        return shown if self._instance in (None, entry.instance) else []

    def _shown(self, entry: Entry) -> Iterator[LogEntry]:
        run = self._run
        is_new = entry.instance is not None or id_key(entry.id) > self._read
        if run is not None and entry.tick is None and is_new:
            run.apply(entry)
        audit = entry.audit if self._changes is not None else None
        changes = self._changes.of(entry) if self._changes is not None else {}
        end = _end(entry, entry.event, run, self._code(entry)) if isinstance(entry.event, CallEnded) else None
        tick = _tick(entry) if self._has_ticks else None
        has_end = end is not None and end.call is not None
        if entry.message is not None or audit is not None or has_end or tick is not None:
            yield LogEntry(entry.id, entry.instance, entry.message or {}, audit, end, changes, tick)

    def _code(self, entry: Entry) -> Code | None:
        """Who has carried out the call that ends with an entry."""
        if entry.code is not None and entry.code not in self._codes:
            self._codes = self._history.codes()
        return self._codes.get(entry.code) if entry.code is not None else None


def _tick(entry: Entry) -> Event | None:
    event = event_of(entry)
    return event if event is not None and event.kind == "tick" else None


def _end(entry: Entry, event: CallEnded, run: RunState | None, code: Code | None) -> CallEnd:
    raw = None
    if entry.message is None and run is not None:
        raw = run.lane(entry.instance).known[event.call].raw
    return CallEnd(event.call, event.status.value, timing_of(entry.id, entry.spent), event.reason, raw, code)
