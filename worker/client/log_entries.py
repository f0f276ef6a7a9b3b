"""What a reader of a run's log is shown of its entries: messages, who did what, and the ends of calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from acts_celery.protocol.calls.call import Call
from acts_celery.worker.storage.audit import Deed
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.entries import Entry
from acts_celery.worker.storage.lane import id_key, known_calls

from .timings import Timing, timing_of


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call that has ended with an entry of the log."""

    index: int
    status: str
    timing: Timing
    reason: str | None = None
    """Why it was skipped."""
    call: Mapping[str, Any] | None = None
    """The call as it was written, where the entry has no message that tells it."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        call = {"call": dict(self.call), "reason": self.reason} if self.call is not None else {}
        return {"index": self.index, "status": self.status, "timing": self.timing.to_dict(), **call}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One message of the log; where no message is, what was done to the run from outside, or how a call has ended."""

    id: str
    instance: str | None
    message: Mapping[str, Any]
    deed: Deed | None = None
    end: CallEnd | None = None


class Messages:
    """Chooses what is shown: entries with a message; with `audit` also those that say who did what.

    With a `definition` (as the amendments up to the id `until` have left it) also those that say no more than that a
    call has ended: it was sent and forgotten, a passing thought (a latent call without a path), or skipped.
    """

    def __init__(self, *, audit: bool = False, definition: Definition | None = None, until: str = "0-0") -> None:
        self._audit = audit
        self._definition = definition
        self._until = id_key(until)
        self._records = defaultdict[str | None, list[bytes]](list)
        self._calls: dict[str | None, Mapping[int, Call]] = {}

    def shown(self, entry: Entry) -> Iterator[LogEntry]:
        """What is shown of an entry, if anything; give it all that are read, in order."""
        if self._definition is not None:
            self._learn(self._definition, entry)
        deed = entry.deed if self._audit else None
        end = self._end(entry) if entry.status is not None else None
        if entry.message is not None or deed is not None or (end is not None and end.call is not None):
            yield LogEntry(entry.id, entry.instance, entry.message or {}, deed, end)

    def _learn(self, definition: Definition, entry: Entry) -> None:
        if entry.amendment is not None and id_key(entry.id) > self._until:
            self._definition = definition.amended(entry.amendment)
        if entry.record is not None and entry.tick is None:
            self._records[entry.instance].append(entry.record)
            self._calls.pop(entry.instance, None)

    def _end(self, entry: Entry) -> CallEnd | None:
        if entry.call is None or entry.status is None:
            return None
        raw = None
        if entry.message is None and self._definition is not None:
            raw = self._known(self._definition, entry.instance)[entry.call].raw
        return CallEnd(entry.call, entry.status.value, timing_of(entry), entry.reason, raw)

    def _known(self, definition: Definition, instance: str | None) -> Mapping[int, Call]:
        if instance not in self._calls:
            self._calls[instance] = known_calls(definition, self._records[instance], instance)
        return self._calls[instance]
