"""Untrusted: what others wrote, as a model is told of it that can call what has effects (SPEC R16.3).

    ## Data: †state
    {"task":"pay the invoice"}
    Not shown: †state.mail, 1204 bytes that others wrote (mail)

Its answer decides what happens, so nothing that others wrote may reach it: no value, no name of a field, no text of an
error. It passes values on by their references. Paths, sizes and fates it is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from acts_celery.protocol.language.errors import shortened
from acts_celery.protocol.language.messages import DATA_TYPES, Message, shown
from acts_celery.protocol.language.paths import MISSING, copied
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.language.visible import json_text, one_line
from acts_celery.protocol.state.labels import TRUSTED, Labels, MarkedPlaces, marks_of, whole_list
from acts_celery.protocol.state.operations import read_operation

from . import texts

Strange = Mapping[tuple[str, ...], Labels]
"""The places of a kind where what others wrote begins, each by its path, with who may have written it."""
_TYPE: Final = re.compile(r"[A-Za-z_]\w{0,63}")
_MOST_QUOTED: Final = 200
"""Characters of a call, or of one of its properties, that an error quotes."""
_POINTER: Final = re.compile(r"/(calls(/\d{1,6})?|output)")


class StrangePlaces:
    """Where what others wrote begins, by all messages of a log: what comes for a promise has the sources that the
    promise has named, and a place keeps those of all that was written there.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self._marked: dict[str | None, MarkedPlaces] = {}
        for message in messages:
            is_marked = message.get("type") in DATA_TYPES and marks_of(message)
            if is_marked and (operation := read_operation(message, "")) is not None:
                self._marked.setdefault(message.get("_instance"), MarkedPlaces()).note(message, operation)

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


def without(value: Any, place: Reference, strange: Strange) -> tuple[Any, list[str]]:
    """What may be shown of the value at a place, or `MISSING` where nothing may; and a line for each part that is left
    out. `strange` has paths from that place on.
    """
    lines: list[str] = []
    for path, labels in sorted(strange.items(), key=lambda pair: pair[0]):
        part = value
        for name in path:
            part = part.get(name, MISSING) if isinstance(part, Mapping) else MISSING
        if part is not MISSING:
            at = Reference(place.kind, (*place.path, *path))
            lines.append(not_shown(part, at, sorted(labels)))
            value = _removed(value, path)
    return value, lines


def not_shown(value: Any, place: Reference, sources: Sequence[str] = ()) -> str:
    """The line of a value that is not shown: where it lies, how large it is, and who else may have written it."""
    size = len(json_text(copied(value), separators=(",", ":")).encode())
    return texts.not_shown(one_line(str(place)), size, sources)


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
    type_, pointer = str(fields.get("type")), str(fields.get("pointer"))
    call = data.get("call") if fields else None
    return {
        **({"call": call} if call is not None else {}),
        "error": {
            **({"type": type_} if _TYPE.fullmatch(type_) else {}),
            "message": texts.error_not_shown(labels),
            **({"pointer": pointer} if _POINTER.fullmatch(pointer) else {}),
        },
    }
