"""Operations: what one message of the log does to the values (SPEC R3.1, R3.2, R3.4, R3.5).

A message written by a call is its method applied at its output path to its value. Any other data message is a deep
merge of its payload at the root of its kind, or what its `_outputMethod` says; an `error` message sets its kind.

`applied` is the one implementation of the methods. It works on any values that behave as JSON's do, so `analysis` can
apply operations to values that know who made them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ..errors import Conflict
from ..messages import ERROR, DataMessage, Message, is_written, read_data
from ..paths import MISSING, leaves, type_name, unnest
from ..references import Reference, parse_output_path


class Method(StrEnum):
    """How a result combines with what is there (SPEC R3.2)."""

    SET = "set"
    MERGE = "merge"
    ASSIGN = "assign"
    PUSH = "push"
    CONCAT = "concat"


class Operation(NamedTuple):
    """One change: a method applied at a place to a value. `source` names the message, for errors."""

    place: Reference
    method: Method
    value: Any
    source: str
    writer: int | None = None
    """The call of the reader's lane that wrote it, where that is known."""


NEEDS_A_PATH: Final = frozenset({Method.PUSH, Method.CONCAT})
"""Methods that mean nothing at the root of a kind whose path is not known (SPEC R3.1)."""
Own = Callable[[Any], Any]


def read_operation(message: Message, source: str, writer: int | None = None) -> Operation | None:
    """The operation of a message, or None if it carries no data (SPEC R3.1); `writer` as in `Operation`."""
    data = read_data(message)
    if data is None:
        return None
    method = message.get("_outputMethod")
    written = written_place(message, data)
    if written is not None:
        place, value = written
        return Operation(place, Method(method) if method is not None else Method.SET, value, source, writer)
    if data.kind == ERROR:
        method = Method.SET
    place = Reference(data.kind)
    return Operation(place, Method(method) if method is not None else Method.MERGE, data.payload, source, writer)


def written_place(message: Message, data: DataMessage) -> tuple[Reference, Any] | None:
    """Where a message writes, and what; None where no path is known (SPEC R3.1).

    `_path` says which of several declared paths it is; else it is the declared one that the data nests at. Without a
    call or a method of its own, `_path` is a property like any other.
    """
    if is_written(message):
        declared = message.get("_path") or message["_call"].get("_outputPath")
    else:
        declared = message.get("_path") if message.get("_outputMethod") is not None else None
    if not isinstance(declared, str):
        return None
    for place in parse_output_path(declared).references:
        value = unnest(data.payload, place.path) if place.kind == data.kind else MISSING
        if value is not MISSING:
            return place, value
    return None


def applied(base: Any, operation: Operation, own: Own, depth: int = 0) -> Any:
    """Apply an operation that `verify` accepts to its kind's value, or to the part `depth` segments below it.

    `own` gives, for a container, one that may be changed in place: itself or a copy. All other parts stay shared.
    """
    path = operation.place.path
    if depth == len(path):
        return _combined(base, operation.method, operation.value, own)
    segment = path[depth]
    if base is MISSING:
        base = [] if depth and isinstance(segment, int) else {}
    container = own(base)
    if isinstance(container, dict):
        key = str(segment)
        container[key] = applied(container.get(key, MISSING), operation, own, depth + 1)
    else:
        assert isinstance(segment, int)
        below = container[segment] if segment < len(container) else MISSING
        container[segment : segment + 1] = [applied(below, operation, own, depth + 1)]
    return container


def _combined(base: Any, method: Method, value: Any, own: Own) -> Any:
    """Join a value to what is there, by a method (SPEC R3.2)."""
    match method:
        case Method.SET:
            return value
        case Method.PUSH:
            items = own([] if base is MISSING else base)
            items.append(value)
            return items
        case Method.CONCAT if base is MISSING:
            return value
        case Method.CONCAT if isinstance(base, str):
            return base + value
        case Method.CONCAT:
            items = own(base)
            items.extend(value)
            return items
        case Method.ASSIGN:
            target = own({} if base is MISSING else base)
            target.update(value)
            return target
        case Method.MERGE:
            return _merged(base, value, own)


def _merged(base: Any, value: Any, own: Own) -> Any:
    """Objects deeply; lists and scalars replace."""
    if not isinstance(value, dict) or not isinstance(base, dict):
        return value
    target = own(base)
    for key, item in value.items():
        target[key] = _merged(target.get(key, MISSING), item, own)
    return target


def verify(operation: Operation, root: Any) -> None:
    """Raise a `Conflict` where the operation cannot be applied to its kind's value (SPEC R3.4, R3.5)."""
    value = root
    for depth, segment in enumerate(operation.place.path):
        if value is MISSING:
            if depth and isinstance(segment, int) and segment > 0:
                raise _conflict(operation, value, f"index {segment} is beyond the end")
        elif isinstance(value, dict):
            value = value.get(str(segment), MISSING)
        elif not isinstance(value, list):
            raise _conflict(operation, value, f"{segment!r} is not inside it")
        elif not isinstance(segment, int):
            raise _conflict(operation, value, f"a list has no key {segment!r}")
        elif segment > len(value):
            raise _conflict(operation, value, f"index {segment} is beyond the end, {len(value)}")
        else:
            value = value[segment] if segment < len(value) else MISSING
    if not _fits(operation.method, value, operation.value):
        raise _conflict(operation, value, "")


def replaced(operation: Operation) -> Iterator[tuple[str, ...]]:
    """The keys of the places that an operation gives a new value whatever was there."""
    key = operation.place.key
    match operation.method, operation.value:
        case (Method.SET, _):
            yield key
        case (Method.ASSIGN, dict(value)):
            yield from ((*key, name) for name in value)
        case (Method.MERGE, value):
            yield from (place for place, _ in leaves(value, key))  # a deep merge replaces all but objects


def touched(operation: Operation) -> Iterator[tuple[str, ...]]:
    """The keys of the places at or below which an operation can make a difference."""
    if operation.method is Method.MERGE or operation.method is Method.ASSIGN:
        deep = operation.method is Method.MERGE
        yield from _touched_by_joining(operation.value, operation.place.key, deep=deep)
    else:
        yield operation.place.key


def _touched_by_joining(value: Any, key: tuple[str, ...], *, deep: bool) -> Iterator[tuple[str, ...]]:
    """Keys that a join touches; an empty object touches its place, where it makes an object if there is none."""
    if not isinstance(value, dict) or not value:
        yield key
        return
    for name, item in value.items():
        if deep:
            yield from _touched_by_joining(item, (*key, name), deep=True)
        else:
            yield (*key, name)


def _fits(method: Method, base: Any, value: Any) -> bool:
    match method:
        case Method.SET:
            return True
        case Method.PUSH:
            return base is MISSING or isinstance(base, list)
        case Method.CONCAT:
            same = base is MISSING or type(base) is type(value)
            return same and isinstance(value, (list, str))
        case Method.ASSIGN:
            return isinstance(value, dict) and (base is MISSING or isinstance(base, dict))
        case Method.MERGE:
            return not isinstance(value, dict) or base is MISSING or isinstance(base, dict)


def _conflict(operation: Operation, base: Any, why: str) -> Conflict:
    return Conflict(
        f"cannot {operation.method} {type_name(operation.value)} at {operation.place}: "
        f"there is {type_name(base)}{', and ' + why if why else ''} ({operation.source})",
        operation.source,
    )
