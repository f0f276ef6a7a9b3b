"""When a call began and ended, what it waited for a worker, and how often it was tried.

The log has the server's time in the ids of its entries: that of the end of each call, and so of all that it waited
for. For how long it was at work is written beside its end (`worker.storage.spent`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from acts_celery.worker.storage.definition import Definition, LaneRecord
from acts_celery.worker.storage.entries import moment_ms
from acts_celery.worker.storage.spent import Spent

_SECOND: Final = 1000


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one call, as far as the log has them; all in ms, moments by the server's clock."""

    ended_ms: int | None = None
    took_ms: int | None = None
    """For how long its last attempt was at work."""
    ready_ms: int | None = None
    """When all that it waited for had ended, a person's decision included."""
    attempts: int | None = None
    """How often it was begun, where it was carried out."""

    @property
    def began_ms(self) -> int | None:
        """When its last attempt began."""
        return self.ended_ms - self.took_ms if self.ended_ms is not None and self.took_ms is not None else None

    @property
    def waited_ms(self) -> int | None:
        """For how long it could have run and had not begun: in a queue, for a slot, for its next attempt."""
        if self.began_ms is None or self.ready_ms is None:
            return None
        return max(self.began_ms - self.ready_ms, 0)

    def to_dict(self) -> dict[str, Any]:
        """As JSON: what is not known is null."""
        return {
            "began": _date(self.began_ms),
            "ended": _date(self.ended_ms),
            "seconds": _seconds(self.took_ms),
            "waited_seconds": _seconds(self.waited_ms),
            "attempts": self.attempts,
        }


class Waits:
    """Which calls each call of a run waits for."""

    def __init__(self, definition: Definition, shared: LaneRecord) -> None:
        """`shared` is the record of the global lane."""
        self._definition = definition
        self._shared = definition.lane_calls(shared, None)
        self._known: dict[int, dict[int, tuple[int, ...]]] = {}
        """By the identity of records that many lanes share."""

    def of(self, record: LaneRecord, instance: str | None) -> Mapping[int, tuple[int, ...]]:
        """Call -> the calls that it waits for, in a lane of that record. A call that reads in every instance is left
        out: it waits for other lanes.
        """
        if (known := self._known.get(id(record))) is not None:
            return known
        calls = self._definition.lane_calls(record, instance)
        graph = self._definition.graph(calls, record, self._shared if instance is not None else ())
        found = {call.index: graph.before(call.index) for call in calls if not call.gather}
        if self._definition.are_same_everywhere(record):
            self._known[id(record)] = found
        return found


def timing_of(id_: str, spent: Spent | None, *, since_ms: int | None = None) -> Timing:
    """Of the call that has ended with that entry; `since_ms` is when it could begin, where that is known."""
    took_ms, attempts = (spent.took_ms, spent.attempts) if spent is not None else (None, None)
    return Timing(moment_ms(id_), took_ms, since_ms, attempts)


def _date(moment_ms: int | None) -> str | None:
    if moment_ms is None:
        return None
    date = datetime.fromtimestamp(moment_ms / _SECOND, UTC)
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(span_ms: int | None) -> float | None:
    return span_ms / _SECOND if span_ms is not None else None
