"""Declarations: what tools and delegates say where nobody looks (SPEC R4.1, R4.6, R9.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from protocol.calls.call import Call
from protocol.hints.foreign_formats import unwrapping
from protocol.language.errors import pointer
from protocol.submission.submission import Submission

from .finding import Finding

_MEANT: Final = {
    **dict.fromkeys(("instructions", "message", "messages", "prompt", "system", "system_prompt"), "context"),
    **dict.fromkeys(("output", "output_schema", "outputSchema", "response_format", "response_schema"), "schema"),
}
"""What definitions have elsewhere, and where it belongs."""


def wrapped_tools(submission: Submission, calls: Iterable[Call]) -> Iterator[Finding]:
    """Tools that calls name and that are declared as in other systems."""
    named = dict.fromkeys(call.tool for call in calls if call.tool in submission.tools)
    found = [(name, remedy) for name in named for remedy in unwrapping(submission.tools[name].declaration)]
    places = _places(submission) if found else {}
    for name, remedy in found:
        told = f"tool {name!r} has a schema where nobody looks: {remedy}"
        yield Finding("info", told, (), pointer(*places.get(id(submission.tools[name].declaration), ("tools", name))))


def foreign_definitions(submission: Submission) -> Iterator[Finding]:
    """Definitions of delegates in the words of other systems."""
    for name, definition in submission.delegates.items():
        for key in definition if isinstance(definition, Mapping) else ():
            if (meant := _MEANT.get(key)) is not None and meant not in definition:
                yield Finding(
                    "info",
                    f"delegate {name!r} is defined with {key}, where nobody looks: what it is told are the messages of "
                    "its context, what it has to answer is its schema",
                    (),
                    pointer("delegates", name, key),
                )


def _places(submission: Submission) -> dict[int, tuple[str | int, ...]]:
    """Where in the context each declaration stands, by its identity; the others stand in the shorthand beside it."""
    return {
        id(declaration): ("context", index, "tool", name)
        for index, message in enumerate(submission.context)
        if message.get("type") == "tool" and isinstance(message.get("tool"), dict)
        for name, declaration in message["tool"].items()
    }
