"""Empty places: what the state's schema requires and is not there yet, with the tools that write it (SPEC R12.5)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.language.errors import ExpressionError
from acts_celery.protocol.language.messages import DATA_TYPES, Message, is_written, kind_of
from acts_celery.protocol.language.references import Reference, parse_output_path
from acts_celery.protocol.language.visible import one_line
from acts_celery.protocol.schemas import conjuncts
from acts_celery.protocol.state.context import Context
from acts_celery.protocol.state.labels import marks_of

from .request import Request

STATE: Final = "state"
_DEEPEST: Final = 8
_MOST: Final = 50


def empty_places(request: Request, messages: Sequence[Message]) -> list[str]:
    """Each place that is empty somewhere: its reference, the tools that are pinned to it, and where instances differ in
    how many of them.
    """
    schema = next((one["schema"] for one in reversed(messages) if _says_what_state_is(one, request)), None)
    if schema is None:
        return []
    context = Context.trusted(messages)
    readers: Sequence[str | None] = request.instances or (None,)
    found: list[str] = []
    for place in _required(schema, schema, ()):
        missing = sum(not context.fold(reader).exists(place) for reader in readers)
        if missing:
            tools = ", ".join(one_line(tool.name) for tool in request.tools.values() if _writes(tool, place))
            where = f" in {missing} of {len(readers)} instances" if len(readers) > missing else ""
            found.append(f"{one_line(str(place))}{f' ({tools})' if tools else ''}{where}")
        if len(found) == _MOST:
            return [*found, "…"]
    return found


def _says_what_state_is(message: Message, request: Request) -> bool:
    is_strange = request.hides and bool(marks_of(message))  # its names may be theirs
    is_data = message.get("type") in DATA_TYPES and kind_of(message) == STATE
    return is_data and "schema" in message and not (is_written(message) or is_strange)


def _required(schema: Any, document: Any, path: tuple[str, ...]) -> Iterator[Reference]:
    """The places that a schema requires, those inside of others instead of these."""
    parts = conjuncts((schema,), document) if isinstance(schema, Mapping) else []
    required = dict.fromkeys(name for part in parts for name in part.get("required", ()))
    for name in required:
        below = [part["properties"][name] for part in parts if name in part.get("properties", {})]
        inside = (
            [one for each in below for one in _required(each, document, (*path, name))] if len(path) < _DEEPEST else []
        )
        yield from inside or [Reference(STATE, (*path, name))]


def _writes(tool: Tool, place: Reference) -> bool:
    """Whether a tool is pinned to a place there."""
    for text in tool.choices("_outputPath"):
        try:
            if any(place.overlaps(one) for one in parse_output_path(text).references):
                return True
        except ExpressionError:
            continue
    return False
