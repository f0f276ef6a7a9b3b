"""Texts: references that stay text although what they name is there (SPEC R2.2, R2.4).

Only a parameter that begins with `†` is an expression. With white space before it, inside a longer text, in a result
that the model wrote into its call, in the solution's output or in a message a reference is read by nobody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from protocol.calls.call import Call
from protocol.calls.tools import Executor
from protocol.language.errors import pointer, shortened
from protocol.language.messages import DATA_TYPES, Message, is_written, kind_of, riders
from protocol.language.paths import MISSING, parts_of, strings
from protocol.language.references import DAGGER, Expression, Reference, expression_in, is_expression
from protocol.state.context import Context
from protocol.state.fold import Fold

from .finding import FAILURES, Finding
from .presence import Presence

Place = Sequence[str | int]

_REFERENCE: Final = re.compile(rf"(?<!{DAGGER}){DAGGER}[^\W\d_][\w-]*(?:\.\w+(?:-\w+)*)+")
"""A reference with a path as it stands in a text: what follows it may be punctuation."""

_MOST_STRINGS: Final = 300_000
"""As many are looked at in messages, about a second's work, where something like a reference is among them."""
_PER_EXPRESSION: Final = 20
"""As many other strings are looked at in the time of one that begins with `†`."""
_MOST_COUNTED: Final = 100


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


def held_references(context: Context, presence: Presence) -> Iterator[Finding]:
    """References that the messages of the context hold as values; of each message the first is told."""
    held = _Held()
    for index, message in enumerate(context.messages):
        if (first := held.first(message, presence.at)) is not None:
            place, told = first
            yield Finding(
                "info",
                f"the message holds the text {told}, since nothing is read in a message: where its value is meant, "
                "make it a parameter of the call that needs it",
                (),
                pointer("context", index, *place),
            )


def delegated_references(delegates: Mapping[str, Any], calls: Iterable[Call], presence: Presence) -> Iterator[Finding]:
    """The same in the definitions of delegates, where a reference may also be to their own messages or to the input
    that a call gives them.
    """
    held, given = _Held(), _inputs(calls)
    for name, definition in delegates.items():
        messages = definition.get("context", ())
        own = Fold()
        for index, message in enumerate(messages):
            own.append(message, f"message {index}")
        is_there = partial(_is_shown, own=own, inputs=given.get(name, ()), presence=presence)
        for index, message in enumerate(messages):
            if (first := held.first(message, is_there)) is not None:
                place, told = first
                yield Finding(
                    "info",
                    f"delegate {name!r} is given the text {told}, since nothing is read in the messages of a "
                    "definition: where its value is meant, hand it over in a parameter or the _scopes of the call",
                    (),
                    pointer("delegates", name, "context", index, *place),
                )


def _is_shown(place: Reference, *, own: Fold, inputs: Container[str], presence: Presence) -> bool:
    """Whether a delegate's messages, its input or the submission hold a place."""
    is_input = place.kind == "input" and len(place.key) > 1 and place.key[1] in inputs
    return is_input or own.exists(place) or presence.at(place)


def _inputs(calls: Iterable[Call]) -> dict[str, set[str]]:
    """The parameters that calls give to each delegate."""
    given: dict[str, set[str]] = {}
    for call in calls:
        if call.runner.executor is Executor.DELEGATE:
            given.setdefault(call.runner.name, set()).update(call.parameters)
    return given


class _Held:
    """Looks for references among the values of messages, as long as that does not take too long over all."""

    def __init__(self) -> None:
        self._left = _MOST_STRINGS

    def first(self, message: Message, is_there: Callable[[Reference], bool]) -> tuple[Place, str] | None:
        """The first reference to what is there: where it stands, and the text with how many more there are."""
        found = islice(self._all(message, is_there), _MOST_COUNTED + 1)
        for place, expression in found:
            more = sum(1 for _ in found)
            others = f" (and {more} more{' at least' if more == _MOST_COUNTED else ''})" if more else ""
            return place, shortened(str(expression)) + others
        return None

    def _all(self, message: Message, is_there: Callable[[Reference], bool]) -> Iterator[tuple[Place, Expression]]:
        if message.get("type") not in DATA_TYPES or is_written(message) or kind_of(message) == FAILURES:
            return
        aside = {"type", "kind", *riders(message)}
        for key, value in message.items():
            if key in aside or key.startswith("_") or not any(map(is_expression, parts_of(value))):
                continue
            for place, text in _own_strings(value, (key,)):
                self._left -= _PER_EXPRESSION if is_expression(text) else 1
                if self._left < 0:
                    return
                expression = expression_in(text)
                if expression is not None and all(map(is_there, expression.references)):
                    yield place, expression


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
