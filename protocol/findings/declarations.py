"""Declarations: tools whose schemas stand where nobody looks (SPEC R4.1, R4.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from protocol.calls import Call
from protocol.errors import pointer
from protocol.submission import Submission
from protocol.wrappings import unwrapping

from .finding import Finding


def wrapped_tools(submission: Submission, calls: Iterable[Call]) -> Iterator[Finding]:
    """Tools that calls name and that are declared as in other systems."""
    named = dict.fromkeys(call.tool for call in calls if call.tool in submission.tools)
    found = [(name, remedy) for name in named for remedy in unwrapping(submission.tools[name].declaration)]
    places = _places(submission) if found else {}
    for name, remedy in found:
        told = f"tool {name!r} has a schema where nobody looks: {remedy}"
        yield Finding("info", told, (), pointer(*places.get(id(submission.tools[name].declaration), ("tools", name))))


def _places(submission: Submission) -> dict[int, tuple[str | int, ...]]:
    """Where in the context each declaration stands, by its identity; the others stand in the shorthand beside it."""
    return {
        id(declaration): ("context", index, "tool", name)
        for index, message in enumerate(submission.context)
        if message.get("type") == "tool" and isinstance(message.get("tool"), dict)
        for name, declaration in message["tool"].items()
    }
