"""What a person changed of a held call: old and new parameters, scopes, other calls in its place (SPEC R14.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from acts_celery.protocol.engine.events import CallDecided, CallEnded, CallHeld
from acts_celery.protocol.engine.holds import Ruling, Snapshot
from acts_celery.protocol.language.errors import pointer
from acts_celery.protocol.language.messages import TEXT_TYPES
from acts_celery.worker.storage.entries import Entry

_NOTHING: Final = Snapshot({}, {})


class Changes:
    """Finds them in the entries of a log, which are given in order."""

    def __init__(self) -> None:
        self._held: dict[tuple[str | None, int], Snapshot] = {}

    def of(self, entry: Entry) -> dict[str, Any]:
        """What the decision changed that an entry says, or {}.

        `parameters` is a list of {pointer, old, new}, each of the two left out where there is none; `scopes` is
        {old: the kinds that were shown, new}; `calls` are those that stand in for it.
        """
        event = entry.event
        if isinstance(event, CallHeld):
            self._held[entry.instance, event.call] = event.snapshot
        if not isinstance(event, CallDecided | CallEnded) or event.ruling is None:
            return {}
        return dict(_changed(event.ruling, self._held.pop((entry.instance, event.call), _NOTHING)))


def _changed(ruling: Ruling, shown: Snapshot) -> Iterator[tuple[str, Any]]:
    if ruling.parameters is not None:
        yield "parameters", list(_differences(shown.parameters, ruling.parameters))
    if ruling.scopes is not None:
        texts = (message["type"] for message in shown.messages if message["type"] in TEXT_TYPES)
        kinds = dict.fromkeys([*texts, *shown.scopes])
        yield "scopes", {"old": list(kinds), "new": list(ruling.scopes)}
    if ruling.amendment is not None:
        solution = ruling.amendment.get("solution", ruling.amendment)
        yield "calls", solution.get("calls", [])


def _differences(old: Any, new: Any, *at: str) -> Iterator[dict[str, Any]]:
    """Where two values differ: within objects key by key, lists as they are."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            if key in old and key in new:
                yield from _differences(old[key], new[key], *at, key)
            else:
                yield {"pointer": pointer(*at, key), **({"old": old[key]} if key in old else {"new": new[key]})}
    elif type(old) is not type(new) or old != new:
        yield {"pointer": pointer(*at), "old": old, "new": new}
