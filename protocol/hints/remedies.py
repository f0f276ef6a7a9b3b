"""Remedies: what is to be added where nothing brings a value that a call reads (SPEC R6.3).

The nearest is the output path of the call that was to write it; else a plan that does not run, since there is a
solution; else, for an input, a promise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, product
from typing import Any, Final

from acts_celery.protocol.calls.call import Call, completed
from acts_celery.protocol.graph.lanes import Unresolvable
from acts_celery.protocol.graph.promises import KIND
from acts_celery.protocol.language.errors import ExpressionError, pointer
from acts_celery.protocol.language.messages import EVERYWHERE
from acts_celery.protocol.language.references import Reference, parse_output_path
from acts_celery.protocol.language.spelling import squeezed
from acts_celery.protocol.submission.layout import Layout
from acts_celery.protocol.submission.submission import plan_calls

_LIKENESS: Final = 0.4
_MOST_READ: Final = 4
"""Of the places of an expression, and of those that a tool lists, so many are looked at."""
_MOST_CALLS: Final = 200
"""So many calls, the first, are looked at for each reference."""


@dataclass(frozen=True)
class Remedies:
    """What would bring a value, by what the calls and plans of a layout say."""

    layout: Layout

    def pathless(self, cause: Unresolvable, *, is_certain: bool) -> str | None:
        """The call without an output path that was to write what is read: certain where its tool admits the place or
        has its name, else by a name that is part of the tool's, or by a field that its result has.
        """
        seen = _seen(cause)
        calls = [call for call in self._pathless if call.index != cause.call and call.instance in seen]
        meant = self._certain if is_certain else self._likely
        for place, call in product(_read(cause), calls):
            if (path := meant(place, call)) is not None:
                return f'call {call.index} ({call.tool}) has no _outputPath: give it "_outputPath": "{path}"'
        return None

    def only_pathless(self, cause: Unresolvable) -> str | None:
        """The call without an output path, where it is the only one before the reader."""
        seen = _seen(cause)
        calls = [call for call in self._pathless if call.index < cause.call and call.instance in seen]
        names = [f"call {call.index} ({call.tool})" for call in calls]
        return f"{names[0]} has no _outputPath: add one if its result is meant" if len(names) == 1 else None

    def planned(self, cause: Unresolvable) -> str | None:
        """The plan message whose call writes what is read, and that is context beside a solution (SPEC R10.2)."""
        for at, place in self._planned:
            if any(map(place.overlaps, _read(cause))):
                gather = (
                    ', with "_gather": true where it reads in all instances' if self.layout.context.instances else ""
                )
                return (
                    f"the plan at {at} writes it, and beside a solution a plan is context and does not run: "
                    f"write this call into the plan{gather}, and leave the solution out"
                )
        return None

    def promise(self, cause: Unresolvable) -> str | None:
        """The promise by which an input may come later."""
        for place in _read(cause):
            if place.kind == KIND and place.path:
                schema: dict[str, Any] = {}
                for name in reversed(place.path):
                    schema = {"properties": {str(name): schema}} if isinstance(name, str) else {"items": schema}
                shown = json.dumps({"type": KIND, "schema": schema}, ensure_ascii=False)
                return f"if it comes later, promise it by a message {shown}"
        return None

    def _certain(self, place: Reference, call: Call) -> Reference | None:
        admitted = (one for one in self._admitted.get(call.tool, ()) if one.overlaps(place))
        return next(admitted, None) or self._named(place, call, 1)

    def _likely(self, place: Reference, call: Call) -> Reference | None:
        if (named := self._named(place, call, _LIKENESS)) is not None:
            return named
        tool = self.layout.tools.get(call.tool)
        result = tool.output_schema if tool is not None else None
        fields = result.get("properties", {}) if isinstance(result, dict) else {}
        return Reference(place.kind, place.path[:-1]) if len(place.path) > 1 and place.path[-1] in fields else None

    def _named(self, place: Reference, call: Call, likeness: float) -> Reference | None:
        """The place, or one above it, whose name makes up so much of that of the tool."""
        tool = squeezed(call.tool)
        for length, segment in enumerate(place.path, start=1):
            name = squeezed(str(segment))
            if name and name in tool and len(name) >= likeness * len(tool):
                return Reference(place.kind, place.path[:length])
        return None

    @cached_property
    def _admitted(self) -> dict[str, list[Reference]]:
        """The places that tools list, for those of calls without an output path."""
        tools = {call.tool: self.layout.tools[call.tool] for call in self._pathless if call.tool in self.layout.tools}
        return {
            name: [place for text in tool.choices("_outputPath")[:_MOST_READ] for place in places_of(text)[:_MOST_READ]]
            for name, tool in tools.items()
        }

    @cached_property
    def _pathless(self) -> list[Call]:
        return list(islice((call for call in self.layout.calls if call.output is None), _MOST_CALLS))

    @cached_property
    def _planned(self) -> list[tuple[str, Reference]]:
        if self.layout.submission.is_template:
            return []
        calls, _ = plan_calls(self.layout.submission.context)
        return list(islice(_written(calls), _MOST_CALLS))


def _read(cause: Unresolvable) -> tuple[Reference, ...]:
    return cause.expression.references[:_MOST_READ]


def _seen(cause: Unresolvable) -> tuple[str | None, ...]:
    """The instances whose calls the reader sees."""
    return (None,) if cause.instance is None else (None, cause.instance, EVERYWHERE)


def _written(calls: Any) -> Iterator[tuple[str, Reference]]:
    for at, raw in calls:
        path = completed(raw, {}).get("_outputPath") if isinstance(raw, dict) else None
        yield from ((pointer(*at), place) for place in places_of(path))


def places_of(path: Any) -> tuple[Reference, ...]:
    """The places of an output path, as far as it can be read."""
    try:
        return parse_output_path(path).references if isinstance(path, str) else ()
    except ExpressionError:
        return ()
