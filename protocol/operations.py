"""Operations: what one message of the log does to the values (SPEC R3.1, R3.2, R3.4).

A message written by a call is its method applied at its output path to its value; any other data message is a deep
merge of its payload at the root of its kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .errors import Conflict
from .messages import Message, read_data
from .paths import MISSING, type_name, unnest
from .references import Reference, parse_output_path


class Method(StrEnum):
    """How a result combines with what is there (SPEC R3.2)."""

    SET = "set"
    MERGE = "merge"
    ASSIGN = "assign"
    PUSH = "push"
    CONCAT = "concat"


@dataclass(frozen=True, slots=True)
class Operation:
    """One change: a method applied at a place to a value. `source` names the message, for errors."""

    place: Reference
    method: Method
    value: Any
    source: str


def read_operation(message: Message, source: str) -> Operation | None:
    """The operation a message stands for, or None where it carries no data (SPEC R3.1)."""
    data = read_data(message)
    if data is None:
        return None
    written = _written_place(message, data.kind, data.payload)
    if written is None:
        return Operation(Reference(data.kind), Method.MERGE, data.payload, source)
    place, value = written
    return Operation(place, Method(message.get("_outputMethod", Method.SET)), value, source)


def _written_place(message: Message, kind: str, payload: Any) -> tuple[Reference, Any] | None:
    """Where a call wrote, and what: `_path` where the message says it, else the declared path its data nests at."""
    call = message.get("_call")
    declared = message.get("_path") or (call.get("_outputPath") if isinstance(call, dict) else None)
    if not isinstance(declared, str):
        return None
    for place in parse_output_path(declared).references:
        value = unnest(payload, place.path) if place.kind == kind else MISSING
        if value is not MISSING:
            return place, value
    return None


def verify(operation: Operation, root: Any) -> None:
    """Raise a `Conflict` where the operation cannot be applied to its kind's value (SPEC R3.4, R3.5)."""
    value = root
    for segment in operation.place.path:
        if value is MISSING:
            if isinstance(segment, int) and segment > 0:
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


def replaces(method: Method, value: Any, below: tuple[str, ...]) -> bool:
    """Whether an operation gives the place `below` its own place a new value whatever was there."""
    match method:
        case Method.SET:
            return True
        case Method.ASSIGN:
            return bool(below) and below[0] in value
        case Method.MERGE:
            for key in below:
                if not isinstance(value, dict):
                    return True
                if key not in value:
                    return False
                value = value[key]
            return not isinstance(value, dict)
    return False


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
        f"there is {type_name(base)}{', and ' + why if why else ''} ({operation.source})"
    )
