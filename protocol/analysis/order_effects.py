"""Effects: what a call's write does to its place, and which of them come out the same in either order (SPEC R3.2)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.language.paths import MISSING, lookup
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.operations import Method


class How(Enum):
    """What is done at a place."""

    SET = auto()
    """What was there is replaced."""
    ADD = auto()
    """A list gets more elements."""
    CONCAT = auto()
    """A list or a text gets longer; which of the two is not known, or a text."""
    JOIN = auto()
    """An object gets keys; which ones is not known."""


class WriteEffect(NamedTuple):
    """What one alternative of a call does at one place."""

    place: Reference
    how: How
    alternative: int
    value: str | None = None
    """The new value as JSON, where it is known."""


_COMMUTING: Final = (frozenset({How.ADD}), frozenset({How.ADD, How.CONCAT}), frozenset({How.JOIN}))
_DEPTH: Final = 4


def commute(one: WriteEffect, other: WriteEffect, fold: Fold) -> bool:
    """Whether two effects at overlapping places leave the same in either order; the order of elements is no matter."""
    upper, lower = (one, other) if len(one.place.key) <= len(other.place.key) else (other, one)
    if upper.place.key == lower.place.key:
        same = one.how is other.how is How.SET and one.value is not None and one.value == other.value
        return same or frozenset({one.how, other.how}) in _COMMUTING
    if upper.how is How.JOIN:
        return True  # as far as is known by other keys
    return upper.how is not How.SET and _is_element(lower.place, len(upper.place.path), fold)


def changes(effect: WriteEffect, place: Reference, fold: Fold) -> bool:
    """Whether what is read at a place may be another thing after an effect."""
    depth = len(effect.place.path)
    if not effect.place.overlaps(place) or effect.how is How.SET or depth >= len(place.path):
        return effect.place.overlaps(place)
    return effect.how is not How.JOIN and not _is_element(place, depth, fold)


def effects_of(call: Call, tools: Mapping[str, Tool], fold: Fold) -> Iterator[WriteEffect]:
    """What a call does at each place that it may write."""
    for number, group in enumerate(call.alternatives):
        for place in group:
            match call.method:
                case Method.SET:
                    yield WriteEffect(place, How.SET, number, _text(call.given))
                case Method.PUSH:
                    yield WriteEffect(place, How.ADD, number)
                case Method.CONCAT:
                    tool = tools.get(call.tool)
                    yield WriteEffect(
                        place, _concatenated(call.given, tool and tool.output_schema, fold, place), number
                    )
                case Method.MERGE | Method.ASSIGN:
                    yield from _joined(place, number, call.given, _DEPTH if call.method is Method.MERGE else 1)


def _joined(place: Reference, number: int, value: Any, depth: int) -> Iterator[WriteEffect]:
    """The keys that joining an object replaces, as far as they are known."""
    if value is not MISSING and (not isinstance(value, dict) or not depth):
        yield WriteEffect(place, How.SET, number, _text(value))
        return
    yield WriteEffect(place, How.JOIN, number)
    for key, part in value.items() if value is not MISSING else ():
        yield from _joined(Reference(place.kind, (*place.path, key)), number, part, depth - 1)


def _concatenated(value: Any, schema: Any, fold: Fold, place: Reference) -> How:
    """What is joined end to end, a list or not: by the value, what the tool declares, or what the context holds."""
    held = lookup(fold.root(place.kind), place.path)
    declared = schema.get("type") if isinstance(schema, Mapping) else None
    return How.ADD if isinstance(value, list) or declared == "array" or isinstance(held, list) else How.CONCAT


def _is_element(place: Reference, depth: int, fold: Fold) -> bool:
    """Whether a path leads through an element that a list of the context has, wherever more are added to it."""
    held, index = lookup(fold.root(place.kind), place.path[:depth]), place.path[depth]
    return isinstance(held, list) and isinstance(index, int) and index < len(held)


def _text(value: Any) -> str | None:
    return json.dumps(value, sort_keys=True) if value is not MISSING else None
