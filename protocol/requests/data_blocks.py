"""Data blocks: data as a model is shown it, each under a heading that data cannot forge (SPEC R12.5).

    ## Data: †state ①
    Description: what it is for
    Schema: {"type":"object"}
    {"text":"Hello"}

The first request shows each identity with its value; behind a tick stands what was written since, by its path, and how
it is joined to what was there where that is not by replacing it:

    ## Data: †state.log (push)
    "sent"

A value stands on one line, whatever it holds, and each † of it as two. What others wrote is not shown to a model that
can call what has effects: a line says where it lies, how large it is and who may have written it (see `untrusted`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from acts_celery.protocol.language.files import pictures_in
from acts_celery.protocol.language.limits import Limits
from acts_celery.protocol.language.messages import DATA_TYPES, ERROR, Message, is_promise, is_written, kind_of
from acts_celery.protocol.language.paths import MISSING, copied
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.language.templates import escaped
from acts_celery.protocol.language.visible import json_text, one_line
from acts_celery.protocol.state.allowance import TooLarge
from acts_celery.protocol.state.context import Context
from acts_celery.protocol.state.labels import Labels, marks_of
from acts_celery.protocol.state.operations import Method, Operation, read_operation

from . import texts
from .untrusted import StrangePlaces, not_shown, structure, without

Identity = tuple[str, str | None]
"""Under what data is known: its kind, and the instance that it belongs to."""
_KIND: Final = re.compile(r"[^\W\d_][\w-]*")
_MOST_BYTES: Final = Limits().call_bytes


def identity_of(message: Message) -> Identity:
    """The identity of a data message."""
    return kind_of(message), message.get("_instance")


class Budget:
    """How much data is shown: each value up to `show_bytes`, all of it up to a number of bytes; and how: each dagger
    twice, so that what is copied into an answer stays a text, unless the answer is data in which nothing is read.
    """

    def __init__(
        self,
        show_bytes: int | None = None,
        most_bytes: int = _MOST_BYTES,
        *,
        is_answer_data: bool = False,
        hidden: StrangePlaces | None = None,
        by_schema: bool = False,
    ) -> None:
        self.show_bytes = show_bytes
        self.hidden = hidden
        """Where what others wrote lies, where that is left out (SPEC R16.3)."""
        self.by_schema = by_schema
        self._is_answer_data = is_answer_data
        self._most_bytes = self._left_bytes = most_bytes

    def without(self, value: Any, place: Reference, strange: Mapping[tuple[str, ...], Labels]) -> tuple[Any, list[str]]:
        """What may be shown of the value at a place, and a line for each part that is not (see `untrusted`)."""
        return without(value, place, strange, self.hidden.is_named) if self.hidden is not None else (value, [])

    def lines(self, value: Any, place: Reference) -> list[str]:
        """The line of the value at a place; by schema a line for each part that says how large it is, and no value.
        Raises `TooLarge`.
        """
        if not self.by_schema:
            return [self.value(value, _name(place))]
        if not isinstance(value, Mapping):
            return [not_shown(value, place)]
        return [not_shown(part, Reference(place.kind, (*place.path, key))) for key, part in value.items()]

    def value(self, value: Any, name: str) -> str:
        """The line of a value; one that is too long is cut in the middle, and says so. Raises `TooLarge`."""
        text = compact(copied(value)) if self._is_answer_data else escaped(compact(copied(value)))
        self._left_bytes -= len(text)  # not encoded: what is counted may be a quarter of the bytes
        if self._left_bytes < 0:
            raise TooLarge(
                f"a model would be shown more than {self._most_bytes} bytes of data (ACTS_LIMIT_CALL_BYTES): hand in "
                "less, or have delegates read what is large"
            )
        return cut(text, self.show_bytes, name)


def identity_blocks(messages: Sequence[Message], budget: Budget) -> dict[Identity, str]:
    """Each identity with its value as its readers see it; of an instance only what global data does not say."""
    by_identity: dict[Identity, list[Message]] = {}
    for message in messages:
        if message.get("type") in DATA_TYPES:
            by_identity.setdefault(identity_of(message), []).append(message)
    context = Context.trusted(messages)
    return {
        identity: "\n".join(_identity_lines(identity, said, context, budget)) for identity, said in by_identity.items()
    }


def _identity_lines(identity: Identity, messages: Sequence[Message], context: Context, budget: Budget) -> Iterator[str]:
    kind, instance = identity
    value, method = context.fold(instance).root(kind), ""
    strange = budget.hidden.below(kind, instance) if budget.hidden is not None else {}
    if instance is not None and value is not MISSING and () not in strange:
        value, method = _own(value, context.fold(None).root(kind), {path[0] for path in strange if path})
    yield _heading(_name(Reference(kind)), instance, method)
    yield from _introduction(messages, budget.hidden)
    left, hidden = budget.without(value, Reference(kind), strange)
    if left is not MISSING:
        yield from budget.lines(left, Reference(kind))
    yield from hidden


def _own(value: Any, shared: Any, hidden: Iterable[str]) -> tuple[Any, str]:
    """What an instance has that all do not share, by the names at the top; `set` where it is instead of all that. Parts
    that are not shown are not compared either.
    """
    if shared is MISSING:
        return value, ""
    if not (isinstance(value, Mapping) and isinstance(shared, Mapping) and shared.keys() <= value.keys()):
        return value, Method.SET
    compared = shared.keys() - set(hidden)
    return {key: part for key, part in value.items() if key not in compared or not _is_same(part, shared[key])}, ""


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (bool(one == other) and compact(copied(one)) == compact(copied(other)))


def written_blocks(messages: Iterable[Message], budget: Budget) -> Iterator[str]:
    """What messages have written, each place by its path. What a later one replaces is left out."""
    written = [one for one in messages if one.get("type") in DATA_TYPES and kind_of(one) != ERROR]
    for message, operation in _lasting(written):
        place = operation.place if operation is not None else Reference(kind_of(message))
        method = operation.method.value if operation is not None else ""
        said = "" if place.path and method == Method.SET else method
        is_named = budget.hidden is None or budget.hidden.is_named(place)
        heading = _heading(_name(place if is_named else Reference(place.kind)), message.get("_instance"), said)
        lines = [heading, *_introduction([message], budget.hidden)]
        if operation is not None:
            strange = budget.hidden.at(place, message.get("_instance")) if budget.hidden is not None else {}
            left, hidden = budget.without(operation.value, place, strange)
            lines += [*(budget.lines(left, place) if left is not MISSING else []), *hidden]
        yield "\n".join(lines)


def shown_pictures(messages: Iterable[Message], budget: Budget) -> Iterator[tuple[str, str]]:
    """The places of pictures among what messages have written, as far as their values are shown, each with the
    picture's digest (SPEC R16.3).
    """
    written = [one for one in messages if one.get("type") in DATA_TYPES and kind_of(one) != ERROR]
    for message, operation in _lasting(written) if not budget.by_schema else ():
        if operation is None:
            continue
        place, value = operation.place, operation.value
        if budget.hidden is not None:
            strange = budget.hidden.at(place, message.get("_instance"))
            value, _ = budget.without(value, place, strange) if budget.hidden.is_named(place) else (MISSING, ())
        for path, digest in pictures_in(value):
            yield _name(Reference(place.kind, (*place.path, *path))), digest


def _lasting(messages: Sequence[Message]) -> list[tuple[Message, Operation | None]]:
    """The messages, and what each does, without those whose place a later one sets anew.

    One that makes a container stays where another message, before that later one, goes into the container by digits:
    without it they would be taken for the index of a new list (SPEC R3.5).
    """
    anew: dict[tuple[Any, ...], int] = {}
    entered: dict[tuple[Any, ...], int] = {}
    """Containers, each with the first message that goes into it by digits; both are counted from the end."""
    found: list[tuple[Message, Operation | None]] = []
    for number, message in enumerate(reversed(messages)):
        operation, instance = read_operation(message, ""), message.get("_instance")
        if operation is not None:
            at = (instance, operation.place.kind, *operation.place.path)
            if not any(_introduction([message])) and _is_replaced(at, anew, entered):
                continue
            if operation.method is Method.SET:
                anew[at] = number
            entered |= {at[:length]: number for length in range(3, len(at)) if str(at[length]).isdecimal()}
        found.append((message, operation))
    return found[::-1]


def _is_replaced(
    at: tuple[Any, ...], anew: Mapping[tuple[Any, ...], int], entered: Mapping[tuple[Any, ...], int]
) -> bool:
    """Whether a place is set anew later, and nothing before that rests on the containers that lead to it."""
    return any(
        all(entered.get(at[:above], -1) <= number for above in range(3, length))
        for length in range(2, len(at) + 1)
        if (number := anew.get(at[:length])) is not None
    )


def _introduction(messages: Sequence[Message], hidden: StrangePlaces | None = None) -> Iterator[str]:
    """What is said of data beside its value: the newest description and the newest schema. Beside what others wrote
    there are none: they may be theirs; of a promise there is its structure.
    """
    said = [one for one in messages if hidden is None or not hidden.hold(one)]
    descriptions = [one["description"] for one in said if isinstance(one.get("description"), str)]
    schemas = [
        structure(one["schema"]) if hidden is not None and marks_of(one) else one["schema"]
        for one in messages
        if "schema" in one and not is_written(one) and (hidden is None or is_promise(one) or not hidden.hold(one))
    ]
    yield from (f"Description: {one_line(' '.join(text.split()))}" for text in descriptions[-1:])
    yield from (f"Schema: {compact(schema)}" for schema in schemas[-1:])


def _name(place: Reference) -> str:
    """A place as it is referred to; a kind that cannot be is quoted."""
    return str(place) if place.path or _KIND.fullmatch(place.kind) else compact(place.kind)


def _heading(name: str, instance: str | None, method: str) -> str:
    parts = [f"## Data: {one_line(name)}", *([one_line(instance)] if instance is not None else [])]
    return " ".join([*parts, *([f"({method})"] if method else [])])


def compact(value: Any) -> str:
    """A value as JSON on one line."""
    return json_text(value, separators=(",", ":"))


def cut(text: str, show_bytes: int | None, name: str) -> str:
    """A text as far as it may be shown: of one that is too long its beginning and its end."""
    encoded = text.encode()
    if show_bytes is None or len(encoded) <= show_bytes:
        return text
    half = show_bytes // 2
    begin = encoded[: show_bytes - half].decode(errors="ignore")
    end = encoded[len(encoded) - half :].decode(errors="ignore")
    return f"{begin}… {texts.CUT.format(name=name, size=len(encoded))} …{end}"
