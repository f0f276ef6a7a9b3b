"""The streams that a follower reads: of a run, and, where it wants them, the logs of the child runs below it.

On a cluster the streams of several runs lie on several nodes: those of child runs are looked at twice a second there.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from acts_celery.protocol.engine.events import ChildStarted
from acts_celery.worker.storage.entries import Entry, read_entry
from acts_celery.worker.storage.keys import ENDED, Keys

AT_ONCE: Final = 200
_ID: Final = re.compile(r"\d{1,19}(-\d{1,19})?\Z", re.ASCII)
_LOOK_MS: Final = 500
_MOST: Final = 1_000
"""So many are read at a time."""

Found = Sequence[tuple[str, Sequence[Entry]]]
"""The entries that were read, by their streams."""


class Streams:
    """One stream of a run and how far it was read; with the logs of child runs as soon as it tells of them."""

    def __init__(
        self, keys: Keys, stream: str, after: str, *, has_children: bool = False, is_cluster: bool = False
    ) -> None:
        if not _ID.match(after):
            raise ValueError(f"{after!r} is no id of an event, such as 1763683200000-0")
        self.has_children = has_children
        self._keys = keys
        self._own = stream
        self._is_cluster = is_cluster
        self._seen = {stream: after}
        self._runs: dict[str, str] = {}
        """The child runs, by their logs."""
        self._later: deque[str] = deque()
        """The logs of those that are read when others have ended."""
        self._last: str | None = None
        """The last entry of the run's own stream, where there was none behind it when it was read."""

    def readings(self, block_ms: int | None) -> Iterator[tuple[dict[Any, Any], int | None]]:
        """What is read, one after the other until there is something: streams with the last ids that were seen, and
        for how long that may block.
        """
        if not self._runs or not self._is_cluster:
            yield dict(self._seen), block_ms
            return
        yield from (({stream: seen}, None) for stream, seen in self._seen.items())
        if block_ms is not None:
            yield {self._own: self._seen[self._own]}, min(block_ms, _LOOK_MS)

    def take(self, found: Found) -> Iterator[tuple[str | None, Entry]]:
        """The entries that were read, each with the child run that it is of."""
        for stream, entries in found:
            if stream == self._own:
                self._last = entries[-1].id if len(entries) < AT_ONCE else None
            for entry in entries:
                self._seen[stream] = entry.id
                if self.has_children and isinstance(entry.event, ChildStarted):
                    log = Keys(self._keys.prefix, entry.event.run).log
                    self._runs[log] = entry.event.run
                    self._later.append(log)
                yield self._runs.get(stream), entry
                if stream in self._runs and entry.run_status in ENDED:
                    self._seen.pop(stream)
                    break
        self._read_more()

    def may_be_last(self, entry: Entry) -> bool:
        """Whether nothing stood behind an entry of the run's own when it was read."""
        return entry.id == self._last

    def leave_own(self) -> None:
        """From now on read child runs alone."""
        self._seen.pop(self._own)
        self._read_more()

    def _read_more(self) -> None:
        while self._later and len(self._seen) < _MOST:
            self._seen.setdefault(self._later.popleft(), "0-0")

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to be read."""
        return not self._seen


def read_streams(found: Any) -> Found:
    """What `XREAD` answers."""
    if not found:
        return []
    streams = found.items() if isinstance(found, dict) else found
    return [(name.decode(), [read_entry(*entry) for entry in _flat(entries)]) for name, entries in streams]


def _flat(entries: Any) -> Any:
    """redis-py's RESP3 answer has one list more around the entries than its RESP2 answer."""
    return entries[0] if entries and isinstance(entries[0], list) else entries
