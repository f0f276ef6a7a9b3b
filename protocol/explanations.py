"""Explanations: what a person is told beyond the fact that something is wrong (SPEC R7.1).

A text that does not parse gets an excerpt with a caret; a reference that nothing can bring gets the nearest place that
is there, where its kind or a key of its path looks misspelt, or the path that only lacks its dagger to bring it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, Final

from .context import Context
from .errors import Conflict, ExpressionError, Problem, segments
from .findings.slips import Undaggered, undaggered
from .lanes import Lane
from .references import Expression, Path, Reference, is_expression, parse, parse_output_path
from .scopes import read_scope
from .spelling import Patience

MOST_EXPLAINED: Final = 100
"""Only so many problems are explained: looking for near names is slow, and a hostile list of errors long."""
_MOST_NAMES: Final = 200
_PER_READER: Final = 20
"""Steps (see `spelling`) in whose time a reader's values are looked at."""
_UNSATISFIABLE: Final = "nothing can bring "


def explained(
    problems: Iterable[Problem],
    submission: Any,
    lanes: Mapping[str | None, Lane] | None = None,
    context: Context | None = None,
) -> list[Problem]:
    """The problems, the first of them with excerpts and with hints; `lanes` and `context` say what there is."""
    problems = list(problems)
    places = _Places(lanes, context) if lanes is not None and context is not None else None
    return [_explained(problem, submission, places) for problem in problems[:MOST_EXPLAINED]] + problems[
        MOST_EXPLAINED:
    ]


def _explained(problem: Problem, submission: Any, places: _Places | None) -> Problem:
    text = _text_at(submission, problem.pointer)
    if text is None:
        return problem
    excerpt = next((error.caret for error in _errors(text) if str(error) == problem.message), None)
    if excerpt is not None:
        return replace(problem, excerpt=excerpt)
    if places is not None and is_expression(text) and problem.message.startswith(_UNSATISFIABLE):
        if (slip := places.slip(parse(text))) is not None:
            return replace(problem, message=f"{problem.message}; {slip}")
        near = places.nearest(parse(text))
        return problem if near is None else replace(problem, message=f"{problem.message}, did you mean {near}?")
    return problem


def _errors(text: str) -> Iterable[ExpressionError]:
    for read in (parse, parse_output_path, read_scope):
        try:
            read(text)
        except ExpressionError as error:
            yield error


def _text_at(value: Any, pointer: str) -> str | None:
    """The text a pointer leads to."""
    for key in segments(pointer):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, (list, tuple)) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value if isinstance(value, str) else None


class _Places:
    """The places that are there, or that some call writes."""

    def __init__(self, lanes: Mapping[str | None, Lane], context: Context) -> None:
        self._patience = Patience()
        self._context = context
        self._readers = (None, *context.instances[:_MOST_NAMES])
        calls = {call.index: call for lane in lanes.values() for call in lane.calls}
        outputs = [call.output for call in calls.values() if call.output is not None]
        places = dict.fromkeys(place for output in outputs for place in output.references)
        self._written = tuple(islice(places, 10 * _MOST_NAMES))
        self._known: dict[Reference, dict[str, str | int]] = {}
        slips = (slip for call in calls.values() for slip in undaggered(call))
        self._slips = tuple(islice(slips, _MOST_NAMES))

    def slip(self, expression: Expression) -> Undaggered | None:
        """The path that was written without a dagger, and with one would be read here."""
        for place in expression.references:
            if not self._slips or not self._patience.lasts(len(self._slips)):
                break
            for slip in self._slips:
                if slip.meant.path and slip.meant.overlaps(place):
                    return slip
        return None

    def nearest(self, expression: Expression) -> Reference | None:
        """The place that the first misspelt reference was probably meant to be."""
        for place in expression.references:
            if not self._patience.lasts(1):
                break
            kind = place.kind if place.kind in self._kinds else self._near(place.kind, self._kinds)
            path = self._path(kind, place.path) if kind is not None else None
            if kind is not None and path is not None and (kind, path) != (place.kind, place.path):
                return Reference(kind, path)
        return None

    def _path(self, kind: str, path: Path) -> Path | None:
        """The path with its misspelt keys replaced; None where one is like nothing there."""
        found: Path = ()
        for segment in path:
            names = self._names(Reference(kind, found))
            near = str(segment) if str(segment) in names else self._near(str(segment), names)
            if near is not None:
                is_right = near == str(segment) and isinstance(names[near], str)
                found = (*found, segment if is_right else names[near])
            else:
                return None
        return found

    def _near(self, name: str, names: Iterable[str]) -> str | None:
        return self._patience.nearest(name, list(islice(names, _MOST_NAMES)))

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        found = [kind for reader in self._readers for kind in self._context.fold(reader).kinds()]
        return tuple(dict.fromkeys((*found, *(place.kind for place in self._written))))

    @cached_property
    def _written_below(self) -> dict[tuple[str, ...], dict[str, str | int]]:
        found: dict[tuple[str, ...], dict[str, str | int]] = {}
        for place in self._written:
            for depth, segment in enumerate(place.path, start=1):
                found.setdefault(place.key[:depth], {}).setdefault(str(segment), segment)
        return found

    def _names(self, place: Reference) -> dict[str, str | int]:
        """The keys below a place, each with the segment that leads there: an element of a list has a number."""
        if place not in self._known:
            held = self._held(place)
            self._known[place] = held | {
                name: segment for name, segment in self._written_below.get(place.key, {}).items() if name not in held
            }
        return self._known[place]

    def _held(self, place: Reference) -> dict[str, str | int]:
        found: dict[str, str | int] = {}
        for reader in self._readers:
            if len(found) > _MOST_NAMES or not self._patience.lasts(_PER_READER):
                break
            try:
                value = self._context.fold(reader).value(place)
            except Conflict:
                continue
            if isinstance(value, dict):
                found.update({name: name for name in islice(value, _MOST_NAMES)})
            elif isinstance(value, list):
                found.update({str(index): index for index in range(min(len(value), _MOST_NAMES))})
        return found
