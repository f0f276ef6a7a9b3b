"""Habits: what other systems understand and this protocol does not, written into calls (SPEC R4, R6.1, R6.6).

Whoever wrote them thinks that a call waits, is conditional or writes its result, and nothing of that is so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from protocol.calls import META_PROPERTIES, Call
from protocol.errors import pointer
from protocol.paths import strings
from protocol.references import DAGGER, expression_in
from protocol.tools import Tool

from .finding import Finding
from .presence import Presence

Place = Sequence[str | int]

_INSTEAD: Final = {
    "calls wait for what they read: read what the other call writes": (
        "after", "before", "depends", "dependson", "requires", "waitfor",
    ),
    "a call is conditional by reading one of the alternatives (||) that another one chooses": (
        "condition", "if", "unless", "when",
    ),
    "parameters stand beside _tool": ("args", "arguments", "inputs", "parameters", "params"),
    "a plan message runs once for each instance": ("each", "foreach", "loop", "map"),
    "an exception goes to the last alternative of _outputPath": ("catch", "onerror", "onfailure"),
}  # fmt: skip
"""What to do instead of what is asked for by a word."""
_REMEDIES: Final = {word: remedy for remedy, words in _INSTEAD.items() for word in words}
_WRITING: Final = {
    "outputPath": "_outputPath", "output_path": "_outputPath",
    "outputMethod": "_outputMethod", "output_method": "_outputMethod",
}  # fmt: skip
_TEMPLATE: Final = re.compile(r"\{\{([^{}]+)\}\}|\$\{([^{}]+)\}|\$([^\s${}]+)\$?")
"""A place as templates of other systems name it: `{{state.x}}`, `${state.x}`, `$state.x`.

White space is taken off beside it: a pattern that could share it out in several ways takes the cube of its length.
"""


def foreign_properties(calls: Iterable[Call], places: Sequence[Place], tools: Mapping[str, Tool]) -> Iterator[Finding]:
    """Properties that are to order, condition or direct a call, and mean nothing."""
    for call in calls:
        tool = tools.get(call.tool)
        for key, value in call.raw.items():
            if key in META_PROPERTIES or (tool is not None and tool.mentions(key)):
                continue
            if (why := _meaning(call, key, value)) is not None:
                yield Finding(
                    "warning",
                    f"call {call.index} ({call.tool}) has the property {key}, {why}",
                    (call.index,),
                    pointer(*places[call.index], key),
                )


def _meaning(call: Call, key: str, value: Any) -> str | None:
    """Why a property does not do what it is there for, if it looks so."""
    if not key.startswith("_"):
        meant = _WRITING.get(key)
        if meant is None or meant in call.raw:
            return None
        return f"a parameter like any other: did you mean {meant}?"
    word = key.replace("_", "").lower()
    if word in _REMEDIES:
        return f"which means nothing: {_REMEDIES[word]}"
    read = [text for _, text in strings({key: value}) if expression_in(text) is not None]
    return f"which means nothing, so that nobody reads {read[0]} there: make it a parameter" if read else None


def foreign_references(calls: Iterable[Call], places: Sequence[Place], presence: Presence) -> Iterator[Finding]:
    """Parameters that name a place as templates do, and stay text."""
    for call in calls:
        for at, text in strings(call.parameters):
            match = _TEMPLATE.fullmatch(text.strip())
            meant = DAGGER + next(filter(None, match.groups())).strip() if match else ""
            expression = expression_in(meant)
            if expression is not None and presence.at_all(expression.references):
                yield Finding(
                    "info",
                    f"call {call.index} ({call.tool}) hands on {text.strip()!r} as it stands: where a value is meant, "
                    f"write {meant}",
                    (call.index,),
                    pointer(*places[call.index], *at),
                )
