"""Texts: references that stay text although what they name is there (SPEC R2.2, R2.4).

Only a parameter that begins with `†` is an expression. With white space before it, inside a longer text, in a result
that the model wrote into its call, or in the solution's output a reference is read by nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from protocol.calls import Call
from protocol.errors import pointer, shortened
from protocol.messages import DATA_TYPES
from protocol.paths import MISSING, strings
from protocol.references import DAGGER, Reference, expression_in, is_expression

from .finding import Finding
from .presence import Presence

Place = Sequence[str | int]

_REFERENCE: Final = re.compile(rf"(?<!{DAGGER}){DAGGER}[^\W\d_][\w-]*(?:\.\w+(?:-\w+)*)+")
"""A reference with a path as it stands in a text: what follows it may be punctuation."""


def blank_references(calls: Iterable[Call], places: Sequence[Place], presence: Presence) -> Iterator[Finding]:
    """Parameters that would read something but for the white space before their `†`."""
    kinds = presence.kinds | DATA_TYPES
    for call in calls:
        for place, text in strings(call.parameters):
            meant = expression_in(text.lstrip()) if text[:1].isspace() else None
            if meant is not None and all(reference.kind in kinds for reference in meant.references):
                yield Finding(
                    "warning",
                    f"call {call.index} ({call.tool}) reads nothing here: white space before the † makes it a text, "
                    f"did you mean {shortened(str(meant))}?",
                    (call.index,),
                    pointer(*places[call.index], *place),
                )


def embedded_references(calls: Iterable[Call], places: Sequence[Place], presence: Presence) -> Iterator[Finding]:
    """References inside the longer texts of parameters, but for those whose place the call's scopes show."""
    for call in calls:
        if call.is_thought or call.given is not MISSING:
            continue  # its parameters go to nobody
        for place, text in strings(call.parameters):
            if is_expression(text) or expression_in(text.lstrip()) is not None:
                continue
            for found in _embedded(text, presence):
                if not any(scope.overlaps(found) for scope in call.scopes):
                    yield Finding(
                        "info",
                        f"call {call.index} ({call.tool}) hands on {found} as it stands, since only a parameter that "
                        "begins with † is read: where its value is meant, make it a parameter of its own",
                        (call.index,),
                        pointer(*places[call.index], *place),
                    )


def written_references(calls: Iterable[Call], places: Sequence[Place], presence: Presence) -> Iterator[Finding]:
    """References in the results that a model wrote into its calls, but for those of calls among them."""
    for call in calls:
        if call.given is MISSING or call.output is None:
            continue
        for place, text in _own_strings(call.given, ("_output",)):
            for severity, found in _unread(text, presence):
                yield Finding(
                    severity,
                    f"call {call.index} ({call.tool}) writes the text {found}, since nothing is read in an _output: "
                    "where its value is meant, write the value, or leave _output out and make it a parameter",
                    (call.index,),
                    pointer(*places[call.index], *place),
                )


def concluding_references(output: Any, presence: Presence) -> Iterator[Finding]:
    """References in the solution's output."""
    for place, text in _own_strings(output, ("solution", "output")):
        for severity, found in _unread(text, presence):
            yield Finding(
                severity,
                f"the solution's output has the text {found}, since nothing is read there: where its value is meant, "
                "write the value, or leave the output null and look for it in what the run holds",
                (),
                pointer(*place),
            )


def _unread(text: str, presence: Presence) -> Iterator[tuple[str, str]]:
    """What a text would read if it were a parameter, and how sure it is that this was meant."""
    expression = expression_in(text.lstrip())
    if expression is None:
        yield from (("info", str(found)) for found in _embedded(text, presence))
    elif presence.at_all(expression.references):
        yield "warning", shortened(str(expression))


def _embedded(text: str, presence: Presence) -> Iterator[Reference]:
    """The references inside a text that is none, each once, of whose places something is there."""
    found = dict.fromkeys(_REFERENCE.findall(text)) if DAGGER in text else {}
    expressions = (expression_in(reference) for reference in found)
    places = (expression.references[0] for expression in expressions if expression is not None)
    yield from (place for place in places if presence.at(place))


def _own_strings(value: Any, at: Place) -> Iterator[tuple[Place, str]]:
    """Every string of a value but those of calls that stand in it, which somebody may run."""
    if isinstance(value, dict):
        for key, item in value.items() if "_tool" not in value else ():
            yield from _own_strings(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _own_strings(item, (*at, index))
    elif isinstance(value, str):
        yield at, value
