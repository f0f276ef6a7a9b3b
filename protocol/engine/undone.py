"""Undone: which events of a lane still count where calls were carried out again since (SPEC R11.8)."""

from __future__ import annotations

from collections.abc import Sequence

from .events import CallEnded, CallGivenBack, CallsUndone, ElementEnded, MessageAdded
from .statuses import Status


def counting(events: Sequence[object]) -> list[bool]:
    """Of each event of a lane, in order, whether it counts after the last of them.

    Of a call of which only the elements that failed were carried out again, what it was given and the others stay.
    """
    undoing = {n: event for n, event in enumerate(events) if isinstance(event, CallsUndone)}
    last = {call: n for n, event in undoing.items() for call in event.calls}
    whole = {call: n for n, event in undoing.items() for call in event.calls if call not in event.keeping}
    return [
        (call := getattr(event, "call", None)) is None
        or n > last.get(call, -1)
        or (n > whole.get(call, -1) and not _is_undone(event))
        for n, event in enumerate(events)
    ]


def _is_undone(event: object) -> bool:
    """Whether an event of a call counts no more where only the elements that failed are carried out again."""
    failed = isinstance(event, ElementEnded) and event.status is Status.FAILED
    return failed or isinstance(event, MessageAdded | CallEnded | CallGivenBack)
