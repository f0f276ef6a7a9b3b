"""Data blocks: data as a model is shown it, each under a heading that data cannot forge (SPEC R12.5).

    ## Data: †state ①
    Description: what it is for
    Schema: {"type":"object"}
    {"text":"Hello"}

The first request shows each identity with its value. After a tick follows what was written since, by its path, with its
method unless it replaces the value:

    ## Data: †state.log (push)
    "sent"

A value is written on one line, and each † of it as two. What others wrote is not shown to a model that can call what
has effects: a line says where it lies, how large it is and who may have written it (`UntrustedPlaces`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from .. import limits
from ..errors import json_text, one_line, shortened
from ..limits import Limits
from ..messages import DATA_TYPES, ERROR, Message, is_promise, is_written, kind_of, pictures_in, shown
from ..paths import MISSING, copied, lookup
from ..references import DAGGER, Reference
from ..state.context import Context
from ..state.labels import TRUSTED, Labels, UntrustedPart, marks_of, whole_list
from ..state.operations import Method, Operation, read_operation
from ..state.scopes import TooLarge
from ..templates import escaped
from . import texts

# Untrusted: what others wrote, as it is shown to a model that can call what has effects (SPEC R16.3).
#
#     ## Data: †state
#     {"task":"pay the invoice"}
#     Not shown: †state.mail, 1204 bytes that others wrote (mail)
#
# Its answer decides what happens, so nothing that others wrote may reach it: no value, no name of a field, no text of
# an error. It passes values on by their references; it is shown paths, sizes and how calls ended.

UntrustedPaths = Mapping[tuple[str, ...], UntrustedPart]
"""Places of a kind where untrusted data begins, by path, each with its sources."""
_OWN_TYPES: Final = frozenset(
    {
        *("CancelledError", "ChildFailed", "Conflict", "ContractChanged", "ElementsFailed", "FileGone"),
        *("InvalidAnswer", "InvalidCall", "InvalidOutput", "InvalidParameters", "InvalidRequest", "LimitReached"),
        *("OutputError", "QueueRefused", "Rejected", "TimeoutError", "TooDeep", "TooLarge"),
        *("Unavailable", "Unresolved", "Untrusted", "WorkerLost"),
    }
)
"""The types of errors that the engine makes. Any other one may be named by what code was told."""
_ANY_TYPE: Final = "Error"
_STRUCTURE: Final = ("items", "additionalProperties", "prefixItems", "anyOf", "allOf", "oneOf")
_JSON_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_POINTER: Final = re.compile(r"/(calls(/\d{1,6})?|output)")


class UntrustedPlaces:
    """Finds the places where untrusted data begins, from all messages of a log. What comes for a promise has the
    sources that the promise named, and a place keeps those of all that was written there.
    """

    def __init__(self, messages: Sequence[Message], *, hides_names: bool = True) -> None:
        self._context = Context.of(messages)
        self._has_any = bool(self._context.marks)
        self._hides_names = hides_names

    @cached_property
    def _named(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {}
        for message in self._context:
            if message.get("type") in DATA_TYPES:
                found.setdefault(kind_of(message), set()).update(_own_names(message, _operation_of(message)))
        return found

    def is_named(self, place: Reference) -> bool:
        """Whether the name at the top of a place may be shown: others did not choose it, or not they alone."""
        is_any = not (self._hides_names and self._has_any and place.path)
        return is_any or str(place.path[0]) in self._named.get(place.kind, ())

    def hold(self, message: Message) -> bool:
        """Whether a part of a message's data is untrusted."""
        if marks_of(message) or not self._has_any:
            return bool(marks_of(message))
        operation = _operation_of(message)
        untrusted = self.within(operation, message.get("_instance"))
        return any(_part(operation.value, path) is not MISSING for path in untrusted)

    def below(self, kind: str, instance: str | None) -> UntrustedPaths:
        """Untrusted places of a kind, by path, for a reader in an instance, or a global one."""
        return self._context.fold(instance).untrusted_below(kind)

    def within(self, operation: Operation, instance: str | None) -> UntrustedPaths:
        """Untrusted places in the value of an operation, by path from the value. One that is pushed is an element of
        what is at the place.
        """
        place = operation.place
        if operation.method is Method.PUSH:
            place = Reference(place.kind, (*place.path, 0))
        own = whole_list(place)[1:]
        found: dict[tuple[str, ...], UntrustedPart] = {}
        for path, part in self.below(place.kind, instance).items():
            if path[: len(own)] == own or own[: len(path)] == path:
                at = path[len(own) :]
                part = part.below(place.path[len(path) :])
                found[at] = found[at] | part if at in found else part
        if () in found and found[()].labels:
            return {(): UntrustedPart(TRUSTED.union(*(part.all for part in found.values())))}
        return found


def without(
    value: Any,
    place: Reference,
    untrusted: UntrustedPaths,
    is_named: Callable[[Reference], bool] = lambda _: True,
    *,
    is_joined: bool = False,
) -> tuple[Any, list[str]]:
    """The part of a value that may be shown, or `MISSING` if nothing may, and a line for each part that is left out, or
    one line for all parts whose names are hidden too. `untrusted` has paths from the value on; where it `is_joined` to
    the elements at the place, its fields have other paths there, so they are counted and not named.
    """
    lines: list[str] = []
    unnamed: list[tuple[int, Labels]] = []
    for path, found in sorted(untrusted.items(), key=lambda pair: pair[0]):
        part, at = _part(value, path), Reference(place.kind, (*place.path, *path))
        if part is MISSING:
            continue
        if not is_named(at):
            unnamed.append((_size(part), found.all))
            value = _removed(value, path)
        elif found.labels:
            lines.append(not_shown(part, at, sorted(found.all)))
            value = _removed(value, path)
        else:
            hidden = [one._replace(is_named=one.is_named and not is_joined) for one in _hidden_fields(part, found)]
            lines += _lines_of_fields(hidden, part, at)
            for one in hidden:
                value = _removed(value, (*path, *one.path))
    if unnamed:
        lines.append(_unnamed(unnamed, place.kind))
    return value, lines


def _unnamed(fields: Sequence[tuple[int, Labels]], place: str) -> str:
    """The line of fields whose names others may have chosen, each with its size and its sources."""
    size, sources = sum(size for size, _ in fields), TRUSTED.union(*(labels for _, labels in fields))
    return texts.fields_not_shown(one_line(place), len(fields), size, sorted(sources))


class _HiddenField(NamedTuple):
    """A field that is not shown, of a value of which others are."""

    path: tuple[str | int, ...]
    labels: Labels
    is_named: bool
    """Whether its name may be shown: a declaration has it, or it is the index of an element."""


def _hidden_fields(value: Any, part: UntrustedPart, path: tuple[str | int, ...] = ()) -> Iterator[_HiddenField]:
    """The fields of a value that others may have written (SPEC R16.8). An element of a list is not left out by itself,
    which would move those behind it.
    """
    labels, named = part.own(path), part.next_names(path)
    if isinstance(value, list) and named:
        hidden = [one for index, below in enumerate(value) for one in _hidden_fields(below, part, (*path, index))]
        is_whole = any(len(one.path) == len(path) + 1 and one.is_named for one in hidden)
        yield from [_HiddenField(path, part.all, is_named=True)] if is_whole else hidden
    elif isinstance(value, Mapping) and named:
        for key, below in value.items():
            if key not in named and (labels := part.own((*path, key))):
                yield _HiddenField((*path, key), labels, is_named=False)
            else:
                yield from _hidden_fields(below, part, (*path, key))
    elif labels and not (named and value is None):  # null is how a call for an element has failed
        yield _HiddenField(path, labels, is_named=True)


def _lines_of_fields(fields: Iterable[_HiddenField], value: Any, place: Reference) -> Iterator[str]:
    """The lines of fields that are not shown: one for those that differ only in the elements that they are of."""
    alike: dict[tuple[str, ...], list[tuple[_HiddenField, int]]] = {}
    unnamed: list[tuple[int, Labels]] = []
    for one in fields:
        size = _size(lookup(value, one.path))
        if one.is_named:
            key = tuple("*" if isinstance(segment, int) else segment for segment in one.path)
            alike.setdefault(key, []).append((one, size))
        else:
            unnamed.append((size, one.labels))
    for found in alike.values():
        first, sources = found[0][0], TRUSTED.union(*(one.labels for one, _ in found))
        name = one_line(str(Reference(place.kind, (*place.path, *first.path))))
        name += texts.MORE_ALIKE.format(count=len(found) - 1) if len(found) > 1 else ""
        yield texts.not_shown(name, sum(size for _, size in found), sorted(sources))
    if unnamed:
        yield _unnamed(unnamed, str(place).removeprefix(DAGGER))


def not_shown(value: Any, place: Reference, sources: Sequence[str] = ()) -> str:
    """The line of a value that is not shown: its place, its size, and who else may have written it."""
    return texts.not_shown(one_line(str(place)), _size(value), sources)


def _size(value: Any) -> int:
    return len(json_text(copied(value), separators=(",", ":")).encode())


def _part(value: Any, path: Sequence[str]) -> Any:
    """The part of a value at a path, or `MISSING`."""
    for name in path:
        value = value.get(name, MISSING) if isinstance(value, Mapping) else MISSING
    return value


def _operation_of(message: Message) -> Operation:
    operation = read_operation(message, "")
    assert operation is not None  # data messages alone get here
    return operation


def _own_names(message: Message, operation: Operation) -> Iterator[str]:
    """Top-level names of a kind that a message names and that others did not choose: from its own data if nobody else
    wrote it, from the place that a call was to write, from what a schema declares.
    """
    is_untrusted = bool(marks_of(message))
    schema = message.get("schema") if is_promise(message) or not (is_untrusted or is_written(message)) else None
    if isinstance(schema, Mapping) and isinstance(schema.get("properties"), Mapping):
        yield from schema["properties"]
    if operation.place.path:
        yield from [str(operation.place.path[0])] if is_written(message) or not is_untrusted else []
    elif not is_untrusted and isinstance(operation.value, Mapping):
        yield from operation.value


def structure(schema: Any) -> Any:
    """The parts of a schema that describe the shape of values, without texts other than the names of properties."""
    if not isinstance(schema, Mapping):
        return schema if isinstance(schema, bool) else {}
    types = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    properties = schema["properties"] if isinstance(schema.get("properties"), Mapping) else {}
    required = [one for one in schema.get("required", ()) if one in properties]
    return {
        **({"type": schema["type"]} if all(one in _JSON_TYPES for one in types) else {}),
        **({"properties": {name: structure(one) for name, one in properties.items()}} if properties else {}),
        **({"required": required} if required else {}),
        **{
            key: [*map(structure, part)] if isinstance(part := schema[key], list) else structure(part)
            for key in _STRUCTURE
            if key in schema
        },
    }


def shown_error_type(type_: Any) -> str:
    """Type of an error for a model, hidden if it is not the engine's own."""
    return type_ if type_ in _OWN_TYPES else _ANY_TYPE


def _removed(value: Any, path: Sequence[str | int]) -> Any:
    """A value without its part at a path."""
    if not path:
        return MISSING
    if isinstance(value, list):
        at = path[0]
        return [_removed(part, path[1:]) if index == at else part for index, part in enumerate(value)]
    parts = ((name, _removed(part, path[1:]) if name == path[0] else part) for name, part in value.items())
    return {name: part for name, part in parts if part is not MISSING}


def shown_error(message: Message, *keys: str, hides: bool) -> Any:
    """Content of an error message for a model: the given `keys`, if any, and the instance. If it comes from untrusted
    data its text is left out; a long call is cut to what the error is about, since the model has just written it.
    """
    data = message.get("data", shown(message))
    own = {"instance": message["_instance"]} if "_instance" in message else {}
    if hides and marks_of(message):
        data = _hidden(data, sorted(marks_of(message).labels))
    if not isinstance(data, Mapping):
        return data
    told = {key: data[key] for key in data if not keys or key in keys}
    return own | ({**told, "call": _quoted(told)} if isinstance(told.get("call"), Mapping) else told)


def _quoted(told: Mapping[str, Any]) -> Any:
    """The call of an error, cut if it is long."""
    call, error = told["call"], told.get("error")
    if len(json_text(copied(call))) <= limits.MOST_QUOTED:
        return call
    place = str(error.get("pointer", "")) if isinstance(error, Mapping) else ""
    named = {"_tool", *(name.replace("~1", "/").replace("~0", "~") for name in place.split("/")[3:4])}
    return {key: _cut(part) for key, part in call.items() if key in named}


def _cut(part: Any) -> Any:
    text = part if isinstance(part, str) else json_text(copied(part))
    return part if len(text) <= limits.MOST_QUOTED else shortened(text, limits.MOST_QUOTED)


def _hidden(data: Any, labels: Sequence[str]) -> dict[str, Any]:
    error = data.get("error") if isinstance(data, Mapping) else None
    fields = error if isinstance(error, Mapping) else {}
    pointer = str(fields.get("pointer"))
    call = data.get("call") if fields else None
    return {
        **({"call": call} if call is not None else {}),
        "error": {
            "type": shown_error_type(fields.get("type")),
            "message": texts.error_not_shown(labels),
            **({"pointer": pointer} if _POINTER.fullmatch(pointer) else {}),
        },
    }


Identity = tuple[str, str | None]
"""Identity of data: its kind, and the instance that it belongs to."""
_KIND: Final = re.compile(r"[^\W\d_][\w-]*")
_MOST_BYTES: Final = Limits().call_bytes


def identity_of(message: Message) -> Identity:
    """The identity of a data message."""
    return kind_of(message), message.get("_instance")


class Budget:
    """Bounds how much data a model is shown: each value up to `show_bytes`, all of it up to a number of bytes. Each
    dagger is doubled, so that a copied text stays a text, unless the answer is data in which nothing is read.
    """

    def __init__(
        self,
        show_bytes: int | None = None,
        most_bytes: int = _MOST_BYTES,
        *,
        is_answer_data: bool = False,
        hidden: UntrustedPlaces | None = None,
        by_schema: bool = False,
    ) -> None:
        self.show_bytes = show_bytes
        self.hidden = hidden
        """Untrusted places, if their values are left out (SPEC R16.3)."""
        self.by_schema = by_schema
        self._is_answer_data = is_answer_data
        self._most_bytes = self._left_bytes = most_bytes

    def without(self, value: Any, place: Reference, untrusted: UntrustedPaths) -> tuple[Any, list[str]]:
        """The part of a value that may be shown, and a line for each part that is left out (see `UntrustedPlaces`)."""
        return without(value, place, untrusted, self.hidden.is_named) if self.hidden is not None else (value, [])

    def written(self, operation: Operation, instance: str | None) -> tuple[Any, list[str]]:
        """The part of a written value that may be shown, and a line for each part that is left out."""
        if self.hidden is None:
            return operation.value, []
        untrusted, is_joined = self.hidden.within(operation, instance), operation.method in (Method.PUSH, Method.CONCAT)
        return without(operation.value, operation.place, untrusted, self.hidden.is_named, is_joined=is_joined)

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
                f"a model would see more than {self._most_bytes} bytes of data (ACTS_LIMIT_CALL_BYTES): submit "
                "less, or let delegates read the large values"
            )
        return cut(text, self.show_bytes, name)


def identity_blocks(messages: Sequence[Message], budget: Budget) -> dict[Identity, str]:
    """Each identity with its value as its readers see it; of an instance only what global data does not say."""
    by_identity: dict[Identity, list[Message]] = {}
    for message in messages:
        if message.get("type") in DATA_TYPES:
            by_identity.setdefault(identity_of(message), []).append(message)
    context = Context.of(messages)
    return {
        identity: "\n".join(_identity_lines(identity, said, context, budget)) for identity, said in by_identity.items()
    }


def _identity_lines(identity: Identity, messages: Sequence[Message], context: Context, budget: Budget) -> Iterator[str]:
    kind, instance = identity
    value, method = context.fold(instance).root(kind), ""
    untrusted = budget.hidden.below(kind, instance) if budget.hidden is not None else {}
    if instance is not None and value is not MISSING and () not in untrusted:
        value, method = _own(value, context.fold(None).root(kind), {path[0] for path in untrusted if path})
    yield _heading(_name(Reference(kind)), instance, method)
    yield from _introduction(messages, budget.hidden)
    left, hidden = budget.without(value, Reference(kind), untrusted)
    if left is not MISSING:
        yield from budget.lines(left, Reference(kind))
    yield from hidden


def _own(value: Any, shared: Any, hidden: Iterable[str]) -> tuple[Any, str]:
    """The part of an instance's value that the global value lacks, by top-level name, and the method: `set` if it
    replaces the global value. Hidden parts are not compared.
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
    """Blocks of what messages have written, each place by its path, without what a later message replaces."""
    for message, operation in _lasting(messages):
        place, instance = operation.place, message.get("_instance")
        method = "" if place.path and operation.method is Method.SET else operation.method.value
        is_named = budget.hidden is None or budget.hidden.is_named(place)
        heading = _heading(_name(place if is_named else Reference(place.kind)), instance, method)
        left, hidden = budget.written(operation, instance)
        shown = budget.lines(left, place) if left is not MISSING else []
        yield "\n".join([heading, *_introduction([message], budget.hidden), *shown, *hidden])


def shown_pictures(messages: Iterable[Message], budget: Budget) -> Iterator[tuple[str, str]]:
    """The places of pictures among what messages have written, as far as their values are shown, each with the
    picture's digest (SPEC R16.3).
    """
    for message, operation in _lasting(messages) if not budget.by_schema else ():
        place = operation.place
        if budget.hidden is None or budget.hidden.is_named(place):
            value, _ = budget.written(operation, message.get("_instance"))
            for path, digest in pictures_in(value):
                yield _name(Reference(place.kind, (*place.path, *path))), digest


def _lasting(messages: Iterable[Message]) -> list[tuple[Message, Operation]]:
    """Data messages with their operations, without errors and without messages whose place a later one sets anew.

    One that makes a container stays where another message, before that later one, goes into the container by digits:
    without it they would be taken for the index of a new list (SPEC R3.5).
    """
    anew: dict[tuple[Any, ...], int] = {}
    entered: dict[tuple[Any, ...], int] = {}
    """Containers, each with the first message that goes into it by digits; both are counted from the end."""
    found: list[tuple[Message, Operation]] = []
    written = [one for one in messages if one.get("type") in DATA_TYPES and kind_of(one) != ERROR]
    for number, message in enumerate(reversed(written)):
        operation = _operation_of(message)
        at = (message.get("_instance"), operation.place.kind, *operation.place.path)
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


def _introduction(messages: Sequence[Message], hidden: UntrustedPlaces | None = None) -> Iterator[str]:
    """Description and schema of data, the newest of each. Untrusted data has neither, since they may be untrusted too;
    a promise has its structure.
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
