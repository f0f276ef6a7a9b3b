"""Dependents: calls that cannot run because those that were to write what they need do not (SPEC R12.6, R13.2)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from acts_celery.protocol.calls.call import completed, read_expressions
from acts_celery.protocol.language.errors import ExpressionError, Problem, pointer
from acts_celery.protocol.language.messages import EVERYWHERE
from acts_celery.protocol.language.references import Expression, Reference, parse_output_path
from acts_celery.protocol.state.context import Context
from acts_celery.protocol.state.fold import Fold

from .request import Request

_MOST_INSTANCES: Final = 100
"""Of the instances of a call that runs in all so many are looked at."""
Key = tuple[str | int, ...]
"""The segments of a place, its kind first."""


def dependents(
    request: Request, context: Context, calls: Mapping[int, Any], refused: Mapping[int, Any]
) -> Iterator[Problem]:
    """What is wrong with the calls, by position, that need a value which only refused calls were to write, or calls
    that need such a value themselves. Some are left for the graph to find; none is named wrongly.

    A call is looked at again only when the last call has gone that was to write something it reads: the work grows with
    the calls, in whatever order they stand.
    """
    gone, there = WrittenPlaces(), WrittenPlaces()
    causes = _Causes()
    for position, call in refused.items():
        gone.add(written := tuple(places_written(request, call)))
        causes.add(written, pointer("calls", position))
    places = {position: tuple(places_written(request, call)) for position, call in calls.items()}
    for one in places.values():
        there.add(one)
    left = {position: read_expressions(call)[0] for position, call in calls.items() if _is_readable(call)}
    readers = _Readers(left)
    waiting = deque(left)
    while waiting:
        position = waiting.popleft()
        if position not in left:
            continue
        instance = calls[position].get("_instance")
        folds = [
            context.fold(one)
            for one in (context.instances[:_MOST_INSTANCES] if instance == EVERYWHERE else (instance,))
        ]
        for at, expression in left[position]:
            if all(any(gone.has(one) and not there.has(one) and not _is_held(folds, one) for one in group)
                   for group in expression.alternatives):  # fmt: skip
                root = next(filter(None, map(causes.of, expression.references)), "the others")
                text = f"{expression} is written by no call that can run: see what is wrong with {root}"
                yield Problem(pointer("solution", "calls", position) + at, text)
                del left[position]
                gone.add(places[position])
                causes.add(places[position], root)
                for place in there.remove(places[position]):
                    waiting.extend(readers.of(place))
                break


def _is_held(folds: Iterable[Fold], place: Reference) -> bool:
    return any(fold.exists(place) for fold in folds)


def _is_readable(call: Any) -> bool:
    return isinstance(call, dict) and isinstance(call.get("_instance"), str | None)


class WrittenPlaces:
    """Places that some calls write."""

    def __init__(self) -> None:
        self._at: Counter[Key] = Counter()
        self._above: Counter[Key] = Counter()

    def add(self, places: Iterable[Reference]) -> None:
        """Add those of a call."""
        for place in places:
            self._at[place.key] += 1
            for length in range(1, len(place.key) + 1):
                self._above[place.key[:length]] += 1

    def remove(self, places: Iterable[Reference]) -> Iterator[tuple[Key, bool]]:
        """Take some away; gives each key at which nothing is left, and each (with True) below which nothing is."""
        for place in places:
            self._at[place.key] -= 1
            if not self._at[place.key]:
                yield place.key, True
            for length in range(1, len(place.key) + 1):
                self._above[place.key[:length]] -= 1
                if not self._above[place.key[:length]]:
                    yield place.key[:length], False

    def kinds(self) -> list[str]:
        """The kinds of the places."""
        return [str(key[0]) for key, count in self._above.items() if len(key) == 1 and count]

    def has_inside(self, place: Reference) -> bool:
        """Whether one of them is the place or below it."""
        return self._above[place.key] > 0

    def has(self, place: Reference) -> bool:
        """Whether one of them is the place, above it or below it."""
        key = place.key
        return self.has_inside(place) or any(self._at[key[:length]] > 0 for length in range(1, len(key)))


class _Causes:
    """What is to be seen to, by the places that are not written for it: the first for each."""

    def __init__(self) -> None:
        self._at: dict[Key, str] = {}
        self._above: dict[Key, str] = {}

    def add(self, places: Iterable[Reference], cause: str) -> None:
        for place in places:
            self._at.setdefault(place.key, cause)
            for length in range(1, len(place.key) + 1):
                self._above.setdefault(place.key[:length], cause)

    def of(self, place: Reference) -> str | None:
        """Why a place, or one above or below it, is not written."""
        key = place.key
        above = (self._at.get(key[:length]) for length in range(1, len(key)))
        return self._above.get(key) or next(filter(None, above), None)


class _Readers:
    """Calls, by position, by the places that they read."""

    def __init__(self, read: Mapping[int, Iterable[tuple[str, Expression]]]) -> None:
        self._at: dict[Key, list[int]] = {}
        self._below: dict[Key, list[int]] = {}
        for position, expressions in read.items():
            for key in {reference.key for _, expression in expressions for reference in expression.references}:
                self._at.setdefault(key, []).append(position)
                for length in range(1, len(key)):
                    self._below.setdefault(key[:length], []).append(position)

    def of(self, emptied: tuple[Key, bool]) -> Iterable[int]:
        """Those for whom something is missing now (see `WrittenPlaces.remove`)."""
        key, is_written_whole = emptied
        return (self._below if is_written_whole else self._at).get(key, ())


def places_written(request: Request, call: Any) -> Iterator[Reference]:
    """The places that a call was to write, as far as they can be read."""
    if not isinstance(call, dict):
        return
    tool = request.tools.get(call["_tool"]) if isinstance(call.get("_tool"), str) else None
    path = completed(call, tool.constants if tool is not None else {}).get("_outputPath")
    try:
        written = parse_output_path(path) if isinstance(path, str) else Expression(())
    except ExpressionError:
        return
    yield from written.references
