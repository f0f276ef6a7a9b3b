"""Folding: every operation applied to a copy of everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .places import Groups, Place, Segment, places

NOTHING: Any = object()


class Misfit(Exception):
    """An operation does not fit what is there."""


@dataclass
class Step:
    """One operation: a method at a place."""

    at: Place
    method: str
    value: Any


def step_of(message: Mapping[str, Any]) -> Step | None:
    """What a message of a log does."""
    kind = {"data": message.get("kind", "data")}.get(message.get("type", ""), message.get("type"))
    if message.get("type") not in ("data", "state", "input", "error"):
        return None
    if "data" in message:
        payload = message["data"]
    elif kind in ("state", "input", "error") and kind in message:
        payload = message[kind]
    else:
        reserved = ("type", "kind", "schema", "description", "title")
        payload = {key: item for key, item in message.items() if key not in reserved and not key.startswith("_")}
    method, caller = message.get("_outputMethod"), message.get("_call")
    paths = message.get("_path") if caller or method else None
    for at in (one for group in places(paths or (caller or {}).get("_outputPath") or "") for one in group):
        value = payload if at[0] == kind else NOTHING
        for segment in at[1]:
            is_the_only_one = isinstance(value, dict) and list(value) == [str(segment)]
            value = value[str(segment)] if is_the_only_one else NOTHING
        if value is not NOTHING:
            return Step(at, method or "set", value)
    return Step((str(kind), ()), "set" if kind == "error" else method or "merge", payload)


def folded(steps: Sequence[Step]) -> dict[str, Any]:
    """Kind to value after all steps, each applied to a copy of everything. Raises `Misfit`."""
    values: dict[str, Any] = {}
    for step in steps:
        values = copied(values)
        kind, path = step.at
        begun = {} if path and kind not in values else values.get(kind, NOTHING)
        values[kind] = changed(begun, path, step)
    return values


def copied(value: Any) -> Any:
    """A copy that shares nothing."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return [copied(item) for item in value] if isinstance(value, list) else value


def changed(base: Any, path: tuple[Segment, ...], step: Step) -> Any:
    """The base with the step applied at a path below it."""
    if not path:
        return combined(base, step.method, copied(step.value))
    segment, rest = path[0], path[1:]
    if base is NOTHING:
        base = [] if isinstance(segment, int) else {}
    if isinstance(base, dict):
        return {**base, str(segment): changed(base.get(str(segment), NOTHING), rest, step)}
    if isinstance(base, list) and isinstance(segment, int) and segment <= len(base):
        below = base[segment] if segment < len(base) else NOTHING
        return [*base[:segment], changed(below, rest, step), *base[segment + 1 :]]
    raise Misfit


def combined(base: Any, method: str, value: Any) -> Any:
    """What a method makes of a base and a value."""
    if method == "set":
        return value
    if method == "push" and (base is NOTHING or isinstance(base, list)):
        return [*([] if base is NOTHING else base), value]
    if method == "concat" and isinstance(value, (list, str)) and (base is NOTHING or type(base) is type(value)):
        return value if base is NOTHING else joined(base, value)
    if method == "assign" and isinstance(value, dict) and (base is NOTHING or isinstance(base, dict)):
        return {**({} if base is NOTHING else base), **value}
    if method == "merge" and not isinstance(value, dict):
        return value
    if method == "merge" and (base is NOTHING or isinstance(base, dict)):
        return merged({} if base is NOTHING else base, value)
    raise Misfit


def joined(base: Any, value: Any) -> Any:
    """Lists, or texts, end to end."""
    return base + value


def merged(base: Any, value: Any) -> Any:
    """Objects deeply; everything else replaces."""
    if not (isinstance(base, dict) and isinstance(value, dict)):
        return value
    return {**base, **{key: merged(base.get(key), item) for key, item in value.items()}}


def found(values: Mapping[str, Any], at: Place) -> Any:
    """The value at a place, or `NOTHING`."""
    value = values.get(at[0], NOTHING)
    for segment in at[1]:
        if isinstance(value, dict):
            value = value.get(str(segment), NOTHING)
        elif isinstance(value, list) and isinstance(segment, int) and segment < len(value):
            value = value[segment]
        else:
            return NOTHING
    return value


def read(values: Mapping[str, Any], groups: Groups) -> Any:
    """What an expression reads, or `NOTHING`."""
    for group in groups:
        each = [found(values, one) for one in group]
        if all(value is not NOTHING for value in each):
            return copied(each[-1])
    return NOTHING
