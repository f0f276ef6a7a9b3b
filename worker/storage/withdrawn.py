"""What counts no more of calls that were carried out again: their events, and what they had written (SPEC R11.8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from acts_celery.protocol.engine import undone
from acts_celery.protocol.engine.events import CallsUndone

from .entries import Entry


def counting(entries: Iterable[Entry]) -> list[Entry]:
    """Of the entries of lanes, in order, those whose message counts after the last of them."""
    found: list[Entry | None] = []
    written = defaultdict[tuple[str | None, int | None], list[int]](list)
    for entry in entries:
        if isinstance(entry.event, CallsUndone):
            for call in entry.event.calls:
                for position in written.pop((entry.instance, call), ()):
                    found[position] = None
        elif entry.message is not None and entry.is_of_lane:
            written[entry.instance, entry.call].append(len(found))
            found.append(entry)
    return [entry for entry in found if entry is not None]


def standing(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries of a lane, without the events that count no more."""
    for entry, counts in zip(entries, undone.counting([entry.event for entry in entries]), strict=True):
        yield entry if counts else entry._replace(event=None)
