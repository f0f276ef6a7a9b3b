"""Slips of a model: texts of its calls and its output that read as references and are none (SPEC R12.6b).

A call with one does not run: what it would do with the text cannot be taken back. A text it is where each dagger is
written `††`, or the tool says of the parameter `"_literal": true`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.graph.promises import Promises
from acts_celery.protocol.language.errors import Problem, pointer, shortened
from acts_celery.protocol.language.messages import DATA_TYPES, Message
from acts_celery.protocol.language.paths import strings
from acts_celery.protocol.language.references import DAGGER, Reference, expression_in
from acts_celery.protocol.slips.naming import NamedPlaces
from acts_celery.protocol.slips.slip import Literals, Slips, named_by
from acts_celery.protocol.state.context import Context

from .dependents import WrittenPlaces, places_written
from .request import Request

_MOST_INSTANCES: Final = 100
_OPERATORS: Final = re.compile(r"(\s*(?:\|\||&&)\s*)")
_MOST_LOOKED_UP: Final = 20_000
"""Of an answer with more names of places than this no more is looked at."""
_MOST_LISTED: Final = 100
"""Of an answer with more slips the first of each further call is listed."""


class _TooMany(Exception):
    """The answer has more texts that may name a place than are looked at."""


def slips_in(
    request: Request,
    messages: Sequence[Message],
    context: Context,
    calls: Mapping[int, Any],
    output: Any,
    begun: Iterable[Call] = (),
) -> Iterator[Problem]:
    """What was meant to be read and is a text, in the calls of an answer by position, and in its output.

    `begun` are calls at work that may still write.
    """
    slips = Slips(_AnswerPlaces(request, messages, context, calls.values(), begun), is_certain=True)
    listed = 0
    parts = [(("calls", at), *_read_of(request, call)) for at, call in calls.items()]
    for where, schema, value in (*parts, (("output",), request.schema, output)):
        literals = Literals(schema)
        for at, text in strings(value):
            try:
                slip = slips.of(text)
            except _TooMany:
                text = f"not looked at: the answer has more than {_MOST_LOOKED_UP} texts that may name a place"
                yield Problem(pointer("solution", *where, *at), text)
                break
            if slip is None or literals.has(at, text):
                continue
            listed += 1
            is_last = listed >= _MOST_LISTED
            escape = "; a † of the text itself is written ††" if DAGGER in text else ""
            more = "; other texts behind it may have the same fault, and are not listed" if is_last else ""
            yield Problem(pointer("solution", *where, *at), f"{slip.why}: {slip.remedy}{escape}{more}")
            if is_last:
                break  # the call does not run by one of them


def may_have_slips(request: Request, call: Any) -> bool:
    """Whether a text of a call would be a slip if the places were there that it may name."""
    schema, value = _read_of(request, call)
    slips, literals = Slips(_AnyPlace(), is_certain=True), Literals(schema)
    return any(slips.of(text) is not None and not literals.has(at, text) for at, text in strings(value))


def with_reference_meant(call: Mapping[str, Any], at: Sequence[str]) -> tuple[Mapping[str, Any], str] | None:
    """Where a text at a place of a call only lacks the dagger of the reference that it has to be: the call as it was
    meant, and what is wrong. Only references may stand as an output path, and among scopes.
    """
    match list(at), call:
        case ["_outputPath"], {"_outputPath": str() as text}:
            meant = _as_reference(text, inside="state.")
            mended = {**call, "_outputPath": meant}
        case ["_scopes", place], {"_scopes": [*scopes]} if isinstance(text := scopes[int(place)], str):
            meant = scopes[int(place)] = _as_reference(text)
            mended = {**call, "_scopes": scopes}
        case _:
            return None
    why = f"has the text {shortened(text)!r}, where only a reference may stand: write {meant}"
    return (mended, why) if meant is not None else None


def _as_reference(text: str, inside: str = "") -> str | None:
    """A text as the expression that only lacks its daggers; a path that begins with no kind is inside of another."""
    plain = text.strip().removeprefix(DAGGER)
    parts = _OPERATORS.split(named_by(plain) or plain)
    for at in range(0, len(parts), 2):
        name = parts[at].strip().removeprefix(DAGGER)
        parts[at] = f"{DAGGER}{'' if name.partition('.')[0] in DATA_TYPES else inside}{name}"
    expression = expression_in("".join(parts))
    return str(expression) if expression is not None and str(expression) != text else None


def _read_of(request: Request, call: Any) -> tuple[Any, Any]:
    """What a tool says of its parameters, and those that a call has."""
    if not isinstance(call, dict):
        return None, None
    name = call.get("_tool")
    tool = request.tools.get(name) if isinstance(name, str) else None
    parameters = {key: value for key, value in call.items() if not key.startswith("_")}
    return tool.document if tool is not None else None, parameters


class _AnswerPlaces(NamedPlaces):
    """The places that the context holds, and those that calls of the answer were to write, whether they may or not."""

    def __init__(
        self,
        request: Request,
        messages: Sequence[Message],
        context: Context,
        calls: Iterable[Any],
        begun: Iterable[Call],
    ) -> None:
        self._folds = [context.fold(), *map(context.fold, islice(context.instances, _MOST_INSTANCES))]
        self._promises = Promises(messages)
        self._written = WrittenPlaces()
        for call in calls:
            self._written.add(places_written(request, call))
        for one in begun:
            self._written.add(one.written)
        self._known: dict[Reference, bool] = {}

    def kinds(self) -> tuple[str, ...]:
        return self._kinds

    @cached_property
    def _kinds(self) -> tuple[str, ...]:
        held = (kind for fold in self._folds for kind in fold.kinds())
        return tuple(dict.fromkeys((*held, *self._written.kinds())))

    def has(self, place: Reference) -> bool:
        return self._written.has(place) or self._is_held(place)

    def is_named(self, place: Reference) -> bool:
        return self._written.has_inside(place) or self._is_held(place)

    def _is_held(self, place: Reference) -> bool:
        if place not in self._known:
            if len(self._known) >= _MOST_LOOKED_UP:
                raise _TooMany
            held = any(fold.exists(place) for fold in self._folds)
            self._known[place] = held or self._promises.name(place)
        return self._known[place]


class _AnyPlace(NamedPlaces):
    """Whatever may come to be."""

    def kinds(self) -> tuple[str, ...]:
        return ()

    def has(self, place: Reference) -> bool:
        return True

    def is_named(self, place: Reference) -> bool:
        return True
