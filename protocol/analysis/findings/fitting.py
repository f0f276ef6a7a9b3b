"""Fitting: whether what one schema promises can ever be what another one admits (SPEC R4.1, R4.6).

Only what is certain is said: a misfit is told where *no* value could satisfy both, whichever of their cases it is, by
type, `enum`, `const`, bounds, or what a property or element would have to be. Whatever depends on more than that is
taken to fit, and so is what is left after so many steps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from protocol.language.errors import shortened

from .cases import Shape
from .effort import is_spent

_DEPTH: Final = 8
_MOST_PAIRS: Final = 500
_MOST_ELEMENTS: Final = 8
_TOLD: Final = 2


def misfit(given: Shape, wanted: Shape) -> str | None:
    """Why no value of the one shape can be one of the other, or None where one might be."""
    return _Comparison().misfit(given, wanted, 0)


class _Comparison:
    """One comparison of two shapes and what is below them; after so many pairs of cases the rest is taken to fit."""

    def __init__(self) -> None:
        self._left = _MOST_PAIRS

    def misfit(self, given: Shape, wanted: Shape, depth: int) -> str | None:
        if depth > _DEPTH or given.is_impossible or wanted.is_impossible:
            return None
        if (values := given.values) is not None and not any(map(wanted.admits, values)):
            reason = _reason(given, wanted, values[0])
            return f"{_either(values)} is not {_description(wanted) if reason is None else f'admitted{reason}'}"
        if (values := wanted.values) is not None and not any(map(given.admits, values)):
            reason = _reason(wanted, given, values[0])
            return f"{_description(given) if reason is None else 'it'} is never {_either(values)}{reason or ''}"
        if not given.types & wanted.types or _are_others(given.values, wanted.values):
            return f"{_description(given)} is not {_description(wanted)}"
        reasons: dict[str, None] = {}
        for here, there, type_ in _pairs(given, wanted):
            why = self._why(type_, here, there, depth)
            if why is None:
                return None
            reasons[why] = None
        return "; or ".join(list(reasons)[:_TOLD])

    def _why(self, type_: str, given: Shape, wanted: Shape, depth: int) -> str | None:
        """Why no value of a type can be both; each of the shapes has one case."""
        self._left -= 1
        if self._is_over:
            return None
        here, there = given.cases[0].range(type_), wanted.cases[0].range(type_)
        both = here.within(there)
        why = None
        if type_ == "object":
            why = self._object_misfit(given, wanted, depth)
        elif type_ == "array":
            why = self._list_misfit(given, wanted, int(max(min(both.low, both.high, _MOST_ELEMENTS), 0)), depth)
        if why is None and (both.is_empty or (type_ != "fraction" and not both.has_integer)):
            return f"{_MEASURED.get(type_, 'a number')} of {here} is never one of {there}"
        return why

    def _object_misfit(self, given: Shape, wanted: Shape, depth: int) -> str | None:
        for key in sorted(given.required | wanted.required):
            here, there = given.below(key), wanted.below(key)
            if key in wanted.required and here.is_impossible:
                return f"it never has {key!r}, which is required"
            if key in given.required and there.is_impossible:
                return f"it always has {key!r}, which is not admitted"
            if (why := self.misfit(here, there, depth + 1)) is not None:
                return f"in {key!r}, {why}"
            if self._is_over:
                return None
        return None

    @property
    def _is_over(self) -> bool:
        return self._left < 0 or is_spent()

    def _list_misfit(self, given: Shape, wanted: Shape, length: int, depth: int) -> str | None:
        """Of lists that have so many elements at least."""
        for index in range(length):
            here, there = given.below(index), wanted.below(index)
            if here.is_impossible or there.is_impossible:
                return f"there is never an element {index}, which is required"
            if (why := self.misfit(here, there, depth + 1)) is not None:
                return f"in element {index}, {why}"
        return None


def _are_others(given: Sequence[Any] | None, wanted: Sequence[Any] | None) -> bool:
    """Whether of two lists of values none is in both."""
    return given is not None and wanted is not None and set(map(_spelled, given)).isdisjoint(map(_spelled, wanted))


def _spelled(value: Any) -> str:
    """A text that is the same for equal values: to JSON Schema 1.0 is 1, and true is not."""
    match value:
        case float() if value.is_integer():
            return str(int(value))
        case list():
            return f"[{','.join(map(_spelled, value))}]"
        case dict():
            return f"{{{','.join(f'{json.dumps(key)}:{_spelled(value[key])}' for key in sorted(value))}}}"
    return json.dumps(value)


def _reason(one: Shape, other: Shape, value: Any) -> str | None:
    """What the other shape has against a value of the one; None where that is its type, or that it is not listed."""
    if other.values is not None or not one.types & other.types:
        return None
    problem = next(iter(other.problems(value)), None)
    if problem is None:
        return ""
    return f": {f'at {problem.pointer}, ' if problem.pointer else ''}{problem.message}"


def _pairs(given: Shape, wanted: Shape) -> Iterator[tuple[Shape, Shape, str]]:
    """The cases of both, each with each, and for each type that both can have."""
    for here in given.cases:
        for there in wanted.cases:
            for type_ in sorted(here.types & there.types):
                name = "number" if type_ == "fraction" else type_
                yield given.only(name, here), wanted.only(name, there), type_


_MEASURED: Final = {"string": "a length", "array": "a length", "object": "a number of properties"}


def _description(shape: Shape) -> str:
    """`string or null`; the values where they are listed."""
    if shape.values is not None:
        return _either(shape.values)
    types = shape.types
    number = "number" if "fraction" in types else "integer"
    spelled = {"integer": number, "fraction": number}
    order = ("string", "integer", "fraction", "boolean", "array", "object", "null")
    names = dict.fromkeys(spelled.get(name, name) for name in order if name in types)
    return " or ".join(names)


def _either(values: Sequence[Any]) -> str:
    told = " or ".join(shortened(json.dumps(value, ensure_ascii=False), 60) for value in values[:4])
    return told + (" …" if len(values) > 4 else "")
