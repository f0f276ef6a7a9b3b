"""Scopes: those that certainly show nothing, and were hardly meant so (SPEC R8.1, R8.2).

A scope need not exist: a call may be one of many that ask for all there could be. Told is only what is nearly another
one that would show something, and what only an instance holds or comes by where the call has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from protocol.calls.call import Call, place_in
from protocol.graph.readers import places_read
from protocol.hints.suggestions import Reader, is_numbered_like
from protocol.hints.views import Views
from protocol.language.errors import pointer
from protocol.language.messages import DATA_TYPES
from protocol.language.paths import MISSING
from protocol.language.references import Reference
from protocol.language.spelling import Patience, Speller

from .finding import FAILURES, Finding
from .presence import Presence
from .sight import Sight

Place = Sequence[str | int]

_LIKENESS: Final = 0.8
"""Kinds of one's own may look like known ones: only what is nearly the same is taken for a slip."""
_LIKENESS_OF_KEYS: Final = 0.75
"""Less is asked of a place where nothing is and nothing comes: two letters of four may have changed places."""


def unknown_scopes(calls: Sequence[Call], places: Sequence[Place], presence: Presence) -> Iterator[Finding]:
    """Scopes of kinds that nothing is of, and whose name is nearly that of one that something is of, or is a place
    inside the state.
    """
    kinds = presence.kinds
    spelling = Speller(kinds, likeness=_LIKENESS)
    for call in calls:
        for index, scope in enumerate(call.scopes):
            if scope.kind in kinds or scope.kind in DATA_TYPES:
                continue
            inside = Reference("state", (scope.kind, *scope.path))
            hint = f", did you mean {inside}?" if presence.at(inside) else spelling.hint(scope.kind)
            if not hint:
                continue
            yield Finding(
                "warning",
                f"call {call.index} ({call.tool}) has {_written(call, index)} in its _scopes, and nothing is of that "
                f"kind{hint}",
                (call.index,),
                _pointer(call, index, places),
            )


def empty_scopes(
    sights: Iterable[Sight], places: Sequence[Place], presence: Presence, views: Views
) -> Iterator[Finding]:
    """Scopes that show nothing to any of those who run the call, and that were meant for what is elsewhere.

    `sights` hold all lanes of whichever call is in them. A scope that the tool gives is one for all of its calls, so
    less is sure of it.
    """
    patience = Patience(likeness=_LIKENESS_OF_KEYS)
    for call, index, instance in _empty(sights):
        scope = call.scopes[index]
        shown = f"call {call.index} ({call.tool}) is shown nothing of {_written(call, index)}"
        severity = "warning" if place_in(call.raw, "_scopes") else "info"
        if instance is None and (elsewhere := presence.elsewhere(scope)) is not None:
            why = f"{shown}: {elsewhere}, and this call has no _instance; give it one"
            yield Finding(severity, why, (call.index,), _pointer(call, index, places))
        elif scope.path and patience.lasts(0):
            near = Reader(views.of(instance), call.index, patience).nearest((scope,))
            if near is None or near.kind != scope.kind or is_numbered_like(scope, near):
                continue
            if near not in (*call.scopes, *places_read(call)):
                why = f"{shown}: the context does not hold it and no other call writes it, did you mean {near}?"
                yield Finding(severity, why, (call.index,), _pointer(call, index, places))


def _empty(sights: Iterable[Sight]) -> Iterator[tuple[Call, int, str | None]]:
    """The scopes that show nothing in any lane: of which call, at which position, and one of its lanes."""
    showing: set[tuple[int, int]] = set()
    empty: dict[tuple[int, int], tuple[Call, int, str | None]] = {}
    for sight in sights:
        for call in sight.lane.calls:
            for index, scope in enumerate(call.scopes if not call.is_thought and call.given is MISSING else ()):
                if (call.index, index) in showing:
                    continue
                if scope.kind == FAILURES or _shows(sight, scope, call):
                    showing.add((call.index, index))
                else:
                    empty.setdefault((call.index, index), (call, index, sight.lane.instance))
    return (found for key, found in empty.items() if key not in showing)


def _shows(sight: Sight, scope: Reference, call: Call) -> bool:
    return sight.fold.exists(scope) or sight.writers.has_other(scope, than=call.index)


def _written(call: Call, index: int) -> str:
    return str(call.properties["_scopes"][index])


def _pointer(call: Call, index: int, places: Sequence[Place]) -> str:
    """Where a scope stands, or, where the tool gives it, its call."""
    at = place_in(call.raw, "_scopes")
    return pointer(*places[call.index], *at, *((index,) if at else ()))
