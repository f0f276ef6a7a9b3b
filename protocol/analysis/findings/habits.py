"""Habits: what other systems understand and this protocol does not, written into calls (SPEC R4, R6.1, R6.6).

Whoever wrote them thinks that a call waits, is conditional or writes its result, and nothing of that is so.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from protocol.calls.call import META_PROPERTIES, Call
from protocol.calls.tools import Tool
from protocol.graph.readers import Reads, places_seen
from protocol.language.errors import pointer, shortened
from protocol.language.paths import MISSING, parts_of, strings
from protocol.language.references import DAGGER, Expression, expression_in, is_expression
from protocol.state.operations import Method

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
    "calls that are to run stand among the others, and wait for what they read": ("else", "next", "otherwise", "then"),
    "parameters stand beside _tool": ("args", "arguments", "inputs", "parameters", "params"),
    "a plan message runs once for each instance": ("each", "foreach", "loop", "map"),
    "an exception goes to the last alternative of _outputPath": ("catch", "onerror", "onfailure"),
    "whoever reads a place that may be missing names another after ||": ("fallback",),
    "how often and how long a call is tried is said where its activity or delegate is registered": (
        "maxretries", "retries", "retry", "timeout", "timeoutseconds",
    ),
    "every call that is listed runs: leave out what is not to": ("disabled", "enabled", "skip"),
}  # fmt: skip
"""What to do instead of what is asked for by a word."""
_REMEDIES: Final = {word: remedy for remedy, words in _INSTEAD.items() for word in words}
_BRANCHES: Final = ("then", "else")
_PATHS: Final = {"outputPath": "_outputPath", "output_path": "_outputPath"}
_METHODS: Final = {"outputMethod": "_outputMethod", "output_method": "_outputMethod"}
_TEMPLATE: Final = re.compile(r"\{\{([^{}]+)\}\}|\$\{([^{}]+)\}|\{([^{}.]+\.[^{}]+)\}|\$\.?([^\s${}]+)\$?")
"""A place as templates of other systems name it: `{{state.x}}`, `${state.x}`, `{state.x}`, `$state.x`, `$.state.x`.

White space is taken off beside it: a pattern that could share it out in several ways takes the cube of its length.
"""
_EMBEDDED: Final = re.compile(r"\{\{([^{}.]+\.[^{}]+)\}\}|\$?\{([^{}.]+\.[^{}]+)\}")
"""The same inside a longer text, where a name without a path is any word, and `$` a currency."""


def foreign_properties(
    calls: Iterable[Call],
    places: Sequence[Place],
    tools: Mapping[str, Tool],
    kinds: Container[str],
    taken_whole: Container[int],
) -> Iterator[Finding]:
    """Properties that are to order, condition or direct a call, and are nothing of the protocol.

    `kinds` are those that anything may be of, `taken_whole` the calls whose activity may know what it is given there.
    """
    for call in calls:
        tool = tools.get(call.tool)
        for key, value in call.raw.items():
            if key in META_PROPERTIES:
                continue
            is_own = key.startswith("_")
            remedy = _instead(key, value) if is_own else _meant(call, key, value, kinds)
            if remedy is None or (tool is not None and tool.mentions(key)):
                continue
            why = f"{foreign(call, taken_whole)}: {remedy}" if is_own else f"a parameter like any other: {remedy}"
            yield Finding(
                "info" if call.index in taken_whole else "warning",
                f"call {call.index} ({call.tool}) has the property {key}, {why}",
                (call.index,),
                pointer(*places[call.index], key),
            )


def foreign(call: Call, taken_whole: Container[int]) -> str:
    """What is to be said of a meta-property that nobody knows, unless the activity does."""
    if call.index in taken_whole:
        return "which only an activity that takes the whole call sees, and which is nothing of the protocol"
    return "which means nothing"


def _instead(key: str, value: Any) -> str | None:
    """What to do instead of giving a meta-property that nobody knows, if it looks as if it were to do something."""
    word = key.replace("_", "").lower()
    if word in _REMEDIES:
        return _REMEDIES[word]
    read = next((text for _, text in strings({key: value}) if expression_in(text) is not None), None)
    return f"{read} is not read there, make it a parameter" if read is not None else None


def _meant(call: Call, key: str, value: Any, kinds: Container[str]) -> str | None:
    """What a parameter may have been meant to be."""
    if key in _BRANCHES and any(isinstance(part, dict) and "_tool" in part for part in parts_of(value)):
        return f"the calls in it are not run here; {_REMEDIES[key]}"
    is_path = key in _PATHS and isinstance(value, str) and _is_place(value, kinds)
    is_method = key in _METHODS and value in list(Method)
    meant = _PATHS.get(key) if is_path else _METHODS.get(key) if is_method else None
    return f"did you mean {meant}?" if meant is not None and meant not in call.raw else None


def _is_place(text: str, kinds: Container[str]) -> bool:
    """Whether a text names a place by its kind, with a dagger or without one."""
    expression = expression_in(DAGGER + text)
    places = expression.references if expression is not None else ()
    return is_expression(text) or any(place.path and place.kind in kinds for place in places)


def foreign_references(calls: Iterable[Call], places: Sequence[Place], presence: Presence) -> Iterator[Finding]:
    """Parameters that name a place as templates do, by themselves or in a longer text, and stay text.

    A call that is given the value may be run by who puts it in.
    """
    for call in calls:
        if call.is_thought or call.given is not MISSING:
            continue  # its parameters go to nobody
        templates = list(_templates(call, presence))
        given = Reads(places_seen(call) if templates else ())
        for at, template, meant in templates:
            if not any(map(given.overlap, meant.references)):
                yield Finding(
                    "info",
                    f"call {call.index} ({call.tool}) hands on {shortened(template)!r} as it stands: where a value is "
                    f"meant, write {shortened(str(meant))}, as a parameter of its own",
                    (call.index,),
                    pointer(*places[call.index], *at),
                )


def _templates(call: Call, presence: Presence) -> Iterator[tuple[Place, str, Expression]]:
    """The templates in a call's parameters that name what is there: where they stand, and what they would read."""
    for at, text in strings(call.parameters):
        whole = _TEMPLATE.fullmatch(text.strip())
        matches = [whole] if whole is not None else _EMBEDDED.finditer(text)
        for template, groups in {match[0]: match.groups() for match in matches}.items():
            meant = expression_in(DAGGER + next(filter(None, groups)).strip())
            if meant is not None and presence.at_all(meant.references):
                yield at, template, meant
