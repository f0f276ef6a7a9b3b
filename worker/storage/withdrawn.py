"""Withdrawn messages: what calls had written that were carried out again since counts no more (SPEC R11.8)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

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
