"""Untrusted: what others wrote, as a model is told of it that can call what has effects (SPEC R16.3).

    ## Data: †state
    {"task":"pay the invoice"}
    Not shown: †state.mail, 1204 bytes that others wrote (mail)

Its answer decides what happens, so nothing that others wrote may reach it: no value, no name of a field, no text of an
error. It passes values on by their references. Paths, sizes and fates it is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from acts_celery.protocol.language.errors import shortened
from acts_celery.protocol.language.messages import DATA_TYPES, Message, is_promise, is_written, kind_of, shown
from acts_celery.protocol.language.paths import MISSING, copied
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.language.visible import json_text, one_line
from acts_celery.protocol.state.labels import TRUSTED, Labels, MarkedPlaces, marks_of, whole_list
from acts_celery.protocol.state.operations import Operation, read_operation

from . import texts

Strange = Mapping[tuple[str, ...], Labels]
"""The places of a kind where what others wrote begins, each by its path, with who may have written it."""
_OWN_TYPES: Final = frozenset(
    {
        *(
            "CancelledError",
            "ChildFailed",
            "Conflict",
            "ContractChanged",
            "ElementsFailed",
            "FileGone",
            "InvalidAnswer",
        ),
        *("InvalidCall", "InvalidOutput", "InvalidParameters", "InvalidRequest", "LimitReached", "OutputError"),
        *("QueueRefused", "Rejected", "TimeoutError", "TooDeep", "TooLarge", "Unavailable", "Unresolved", "Untrusted"),
        "WorkerLost",
    }
)
"""The types of errors that the engine makes. Any other one may be named by what code was told."""
_ANY_TYPE: Final = "Error"
_STRUCTURE: Final = ("items", "additionalProperties", "prefixItems", "anyOf", "allOf", "oneOf")
_JSON_TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_MOST_QUOTED: Final = 200
"""Characters of a call, or of one of its properties, that an error quotes."""
_POINTER: Final = re.compile(r"/(calls(/\d{1,6})?|output)")


class StrangePlaces:
    """Where what others wrote begins, by all messages of a log: what comes for a promise has the sources that the
    promise has named, and a place keeps those of all that was written there.
    """

    def __init__(self, messages: Sequence[Message], *, hides_names: bool = True) -> None:
        self._marked: dict[str | None, MarkedPlaces] = {}
        self._hides_names = hides_names
        self._named: dict[str, set[str]] = {}
        data = [message for message in messages if message.get("type") in DATA_TYPES]
        for message in data if any(map(marks_of, data)) else ():
            operation = read_operation(message, "")
            self._named.setdefault(kind_of(message), set()).update(_names_said(message, operation))
            if operation is not None and marks_of(message):
                self._marked.setdefault(message.get("_instance"), MarkedPlaces()).note(message, operation)

    def is_named(self, place: Reference) -> bool:
        """Whether the name at the top of a place may be shown: others did not choose it, or not they alone."""
        is_any = not (self._hides_names and self._marked and place.path)
        return is_any or str(place.path[0]) in self._named.get(place.kind, ())

    def hold(self, message: Message) -> bool:
        """Whether something of a message's data is among them."""
        operation = read_operation(message, "") if self._marked else None
        if operation is None or marks_of(message):
            return bool(marks_of(message))
        strange = self.at(operation.place, message.get("_instance"))
        return any(_part(operation.value, path) is not MISSING for path in strange)

    def below(self, kind: str, instance: str | None) -> dict[tuple[str, ...], Labels]:
        """The places of a kind, by their paths, as a reader in an instance finds them, or a global one."""
        found: dict[tuple[str, ...], Labels] = {}
        for one in dict.fromkeys((None, instance)):
            for path, labels in self._marked[one].strange_below(kind) if one in self._marked else ():
                found[path] = found.get(path, TRUSTED) | labels
        return found

    def at(self, place: Reference, instance: str | None) -> Strange:
        """The same of a value that was written at a place, from there on."""
        own = whole_list(place)[1:]
        found: dict[tuple[str, ...], Labels] = {}
        for path, labels in self.below(place.kind, instance).items():
            if path[: len(own)] == own or own[: len(path)] == path:
                at = path[len(own) :]
                found[at] = found.get(at, TRUSTED) | labels
        return {(): TRUSTED.union(*found.values())} if () in found else found


def without(
    value: Any, place: Reference, strange: Strange, is_named: Callable[[Reference], bool] = lambda _: True
) -> tuple[Any, list[str]]:
    """What may be shown of the value at a place, or `MISSING` where nothing may; and a line for each part that is left
    out, or for all those together whose names are not shown either. `strange` has paths from that place on.
    """
    lines: list[str] = []
    unnamed: list[tuple[int, Labels]] = []
    for path, labels in sorted(strange.items(), key=lambda pair: pair[0]):
        part, at = _part(value, path), Reference(place.kind, (*place.path, *path))
        if part is MISSING:
            continue
        if is_named(at):
            lines.append(not_shown(part, at, sorted(labels)))
        else:
            unnamed.append((_size(part), labels))
        value = _removed(value, path)
    if unnamed:
        size, sources = sum(size for size, _ in unnamed), TRUSTED.union(*(labels for _, labels in unnamed))
        lines.append(texts.fields_not_shown(one_line(place.kind), len(unnamed), size, sorted(sources)))
    return value, lines


def not_shown(value: Any, place: Reference, sources: Sequence[str] = ()) -> str:
    """The line of a value that is not shown: where it lies, how large it is, and who else may have written it."""
    return texts.not_shown(one_line(str(place)), _size(value), sources)


def _size(value: Any) -> int:
    return len(json_text(copied(value), separators=(",", ":")).encode())


def _part(value: Any, path: Sequence[str]) -> Any:
    """What lies at a path in a value, or `MISSING`."""
    for name in path:
        value = value.get(name, MISSING) if isinstance(value, Mapping) else MISSING
    return value


def _names_said(message: Message, operation: Operation | None) -> Iterator[str]:
    """The names at the top of its kind that a message says and that others did not choose: of its own data where
    nobody else wrote it, of the place that a call was to write, of what a schema declares.
    """
    is_strange = bool(marks_of(message))
    schema = message.get("schema") if is_promise(message) or not (is_strange or is_written(message)) else None
    if isinstance(schema, Mapping) and isinstance(schema.get("properties"), Mapping):
        yield from schema["properties"]
    if operation is not None and operation.place.path:
        yield from [str(operation.place.path[0])] if is_written(message) or not is_strange else []
    elif operation is not None and not is_strange and isinstance(operation.value, Mapping):
        yield from operation.value


def structure(schema: Any) -> Any:
    """What a schema says of the shape of values, without any text of it but the names of properties."""
    if not isinstance(schema, Mapping):
        return schema if isinstance(schema, bool) else {}
    types = schema["type"] if isinstance(schema.get("type"), list) else [schema.get("type")]
    properties = schema["properties"] if isinstance(schema.get("properties"), Mapping) else {}
    required = [one for one in schema.get("required", ()) if one in properties]
    inside = {
        key: [*map(structure, schema[key])] if isinstance(schema[key], list) else structure(schema[key])
        for key in _STRUCTURE
        if key in schema
    }
    return {
        **({"type": schema["type"]} if all(one in _JSON_TYPES for one in types) else {}),
        **({"properties": {name: structure(one) for name, one in properties.items()}} if properties else {}),
        **({"required": required} if required else {}),
        **inside,
    }


def told_type(type_: Any) -> str:
    """The type of an error as it is told where others had a say in it."""
    return type_ if type_ in _OWN_TYPES else _ANY_TYPE


def _removed(value: Any, path: Sequence[str]) -> Any:
    """A value without what lies at a path."""
    if not path:
        return MISSING
    below = _removed(value[path[0]], path[1:])
    rest = {name: part for name, part in value.items() if name != path[0]}
    return rest if below is MISSING else {**rest, path[0]: below}


def told_of_error(message: Message, *keys: str, hides: bool) -> Any:
    """What is told of an error message: of those `keys`, where there are any, and of an instance which. Of one that
    others had a say in, what it says is left out; of a long call all but what the error is about, since the model has
    written it just before.
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
    """The call of an error as it is quoted."""
    call, error = told["call"], told.get("error")
    if len(json_text(copied(call))) <= _MOST_QUOTED:
        return call
    place = str(error.get("pointer", "")) if isinstance(error, Mapping) else ""
    named = {"_tool", *(name.replace("~1", "/").replace("~0", "~") for name in place.split("/")[3:4])}
    return {key: _cut(part) for key, part in call.items() if key in named}


def _cut(part: Any) -> Any:
    text = part if isinstance(part, str) else json_text(copied(part))
    return part if len(text) <= _MOST_QUOTED else shortened(text, _MOST_QUOTED)


def _hidden(data: Any, labels: Sequence[str]) -> dict[str, Any]:
    error = data.get("error") if isinstance(data, Mapping) else None
    fields = error if isinstance(error, Mapping) else {}
    pointer = str(fields.get("pointer"))
    call = data.get("call") if fields else None
    return {
        **({"call": call} if call is not None else {}),
        "error": {
            "type": told_type(fields.get("type")),
            "message": texts.error_not_shown(labels),
            **({"pointer": pointer} if _POINTER.fullmatch(pointer) else {}),
        },
    }
