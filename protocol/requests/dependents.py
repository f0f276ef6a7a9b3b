"""Dependents: calls that cannot run because those that were to write what they need do not (SPEC R12.6, R13.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from acts_celery.protocol.calls.call import completed, read_expressions
from acts_celery.protocol.language.errors import ExpressionError, Problem, pointer
from acts_celery.protocol.language.references import Expression, Reference, parse_output_path
from acts_celery.protocol.state.context import Context

from .request import Request


def dependents(
    request: Request, context: Context, calls: Mapping[int, Any], refused: Mapping[int, Any]
) -> Iterator[Problem]:
    """What is wrong with the calls, by position, that need a value which only refused calls were to write, or calls
    that need such a value themselves. Some are left for the graph to find; none is named wrongly.
    """
    gone, there = _Written(), _Written()
    for call in refused.values():
        gone.add(places_written(request, call))
    places = {position: tuple(places_written(request, call)) for position, call in calls.items()}
    for written in places.values():
        there.add(written)
    left = {position: call for position, call in calls.items() if _is_readable(call)}
    is_settled = False
    while not is_settled:
        is_settled = True
        for position, call in list(left.items()):
            fold = context.fold(call.get("_instance"))
            for at, expression in read_expressions(call)[0]:
                if all(any(gone.has(one) and not there.has(one) and not fold.exists(one) for one in group)
                       for group in expression.alternatives):  # fmt: skip
                    text = f"{expression} is written by no call that can run: see what is wrong with the others"
                    yield Problem(pointer("solution", "calls", position) + at, text)
                    del left[position]
                    there.remove(places[position])
                    gone.add(places[position])
                    is_settled = False
                    break


def _is_readable(call: Any) -> bool:
    return isinstance(call, dict) and isinstance(call.get("_instance"), str | None)


class _Written:
    """Places that some calls write."""

    def __init__(self) -> None:
        self._at: Counter[tuple[str, ...]] = Counter()
        self._above: Counter[tuple[str, ...]] = Counter()

    def add(self, places: Iterable[Reference], times: int = 1) -> None:
        for place in places:
            self._at[place.key] += times
            for length in range(1, len(place.key) + 1):
                self._above[place.key[:length]] += times

    def remove(self, places: Iterable[Reference]) -> None:
        self.add(places, -1)

    def has(self, place: Reference) -> bool:
        """Whether one of them is the place, above it or below it."""
        key = place.key
        return self._above[key] > 0 or any(self._at[key[:length]] > 0 for length in range(1, len(key)))


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
