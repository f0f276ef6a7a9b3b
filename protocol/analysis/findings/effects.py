"""Effects: what is at a place once a call has written there, as far as schemas tell (SPEC R3.2, R4.4, R4.6).

A method that fails leaves everything as it was, so where one has succeeded more is known than of the result alone: what
was pushed onto is a list, what was assigned to is an object, and so is whatever holds a key that was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protocol.calls.call import Call
from protocol.calls.tools import Executor, Runner, Tool
from protocol.language.errors import Conflict
from protocol.language.paths import MISSING, copied
from protocol.language.references import Path, Reference
from protocol.schemas import Schema
from protocol.state.fold import Fold
from protocol.state.operations import Method

from .cases import Shape, shape_at
from .types import json_types

RAISED: Final[Schema] = {
    "type": "object",
    "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
    "required": ["message", "type"],
    "additionalProperties": False,
}
"""What is written where an activity raises (SPEC R4.4)."""
_APPLICABLE: Final[Mapping[Method, tuple[type, ...]]] = {
    Method.PUSH: (list,),
    Method.CONCAT: (list, str),
    Method.ASSIGN: (dict,),
    Method.MERGE: (dict,),
}
"""What is sure to take a method; where nothing is, each of them makes something."""
_MOST_HELD: Final = 7
_DEFINITIONS: Final = ("$defs", "definitions")


Source = tuple[str, Runner] | int
"""What tells of a result: the tool and who runs it; or the call, where a model has written it already."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What one call does to one place. Equal effects leave the same there."""

    source: Source
    method: Method
    inside: Path
    """From the place written down to the one looked at."""
    around: Path
    """From the place looked at down to the one written, where that lies below it."""
    is_first: bool
    """Whether nobody else writes there, and nothing was there before."""
    may_raise: bool
    """Whether it may also be what an exception leaves."""
    pushes: int
    """How many calls push there and do nothing else, where it is only those; else 0."""
    onto: Reference | None
    """The list of the context that is pushed onto, if any."""


def effect_on(place: Reference, writer: Call, writers: Sequence[Call], fold: Fold) -> Effect | None:
    """What a call of those that write at, above or below a place does to it; None where that cannot be told."""
    targets = _targets(writer, place)
    if writer.output is None or len(targets) != 1:
        return None
    (target,) = targets
    may_raise = len(writer.output.alternatives) > 1 and target in writer.output.alternatives[-1]
    inside, around = place.path[len(target.path) :], target.path[len(place.path) :]
    try:
        there = fold.value(place) if writer.method is not Method.SET or around else MISSING
        held = fold.value(target) if writer.method is not Method.SET else MISSING
    except Conflict:
        return None
    if writer.method is not Method.SET and (may_raise or not _takes(held, _APPLICABLE[writer.method])):
        return None
    if around and not _takes(there, (dict,) if isinstance(around[0], str) else (dict, list)):
        return None
    are_pushes = all(each.method is Method.PUSH and _targets(each, place) == [target] for each in writers)
    return Effect(
        source=source_of(writer),
        method=writer.method,
        inside=inside,
        around=around,
        is_first=len(writers) == 1 and there is MISSING,
        may_raise=may_raise,
        pushes=len(writers) if are_pushes else 0,
        onto=target if are_pushes and held is not MISSING else None,
    )


def source_of(call: Call) -> Source:
    """What tells of the result of a call."""
    return (call.tool, call.runner) if call.given is MISSING else call.index


def result_schema(writer: Call, tools: Mapping[str, Tool], delegates: Mapping[str, Any]) -> Schema:
    """What a call promises of its result: by its tool, or else by its delegate."""
    if writer.given is not MISSING:
        return {"const": writer.given}
    tool = tools.get(writer.tool)
    schema = tool.output_schema if tool is not None else None
    schema = delegate_schema(writer, delegates) if schema is None else schema
    return True if schema is None else schema


def delegate_schema(call: Call, delegates: Mapping[str, Any]) -> Schema | None:
    """What the answer of a call's delegate is held against, where the submission defines one (SPEC R9.3)."""
    definition = delegates.get(call.runner.name) if call.runner.executor is Executor.DELEGATE else None
    schema = definition.get("schema") if isinstance(definition, Mapping) else None
    return schema if isinstance(schema, (dict, bool)) else None


def shapes_left(effect: Effect, result: Schema, fold: Fold) -> Iterator[Shape]:
    """What is there afterwards, around or at the place written: one of these, whatever becomes of the call."""
    yield shape_at(_within(effect.around, _left(effect, result, fold)))
    if effect.may_raise:
        yield shape_at(_within(effect.around, RAISED))


def _targets(writer: Call, place: Reference) -> list[Reference]:
    return [target for target in writer.output.references if target.overlaps(place)] if writer.output else []


def _takes(held: Any, types: tuple[type, ...]) -> bool:
    return held is MISSING or isinstance(held, types)


def _left(effect: Effect, result: Schema, fold: Fold) -> Schema:
    """What is there where the call wrote."""
    match effect.method:
        case Method.PUSH if effect.pushes:
            return _pushed(effect, result, fold)
        case Method.PUSH:
            return {"type": "array"}
        case Method.SET:
            return result
        case _ if effect.is_first:
            return result
        case Method.CONCAT:
            types = shape_at(result).types & {"array", "string"}
            return {"type": json_types(types or {"array", "string"})}
        case Method.ASSIGN:
            return _joined(result, exact=True)
        case Method.MERGE:
            return _joined(result, exact=False)


def _pushed(effect: Effect, result: Schema, fold: Fold) -> Schema:
    """A list of what was held and of results; any of those who push may have come first."""
    held = fold.value(effect.onto) if effect.onto is not None else []
    known = {"items": _movable(result), "prefixItems": [{"const": copied(item)} for item in held]}
    return {
        "type": "array",
        "minItems": len(held) + 1,
        "maxItems": len(held) + effect.pushes,
        **({key: part for key, part in known.items() if part != []} if len(held) <= _MOST_HELD else {}),
        **_definitions(result),
    }


def _joined(result: Schema, *, exact: bool) -> Schema:
    """An object into which another was joined, or what replaced it; with `exact`, its properties are not joined."""
    shape = shape_at(result)
    if exact:
        shape = shape.only("object")
    if shape.types != {"object"}:
        return {"type": json_types(shape.types)}
    below = {key: shape.below(key) for key in shape.required} if _movable(result) is not True else {}
    properties = {
        key: _schema_of(part) if exact or "object" not in part.types else {"type": json_types(part.types)}
        for key, part in below.items()
    }
    return {"type": "object", "required": sorted(below), "properties": properties, **_definitions(result)}


def _schema_of(shape: Shape) -> Schema:
    return {"anyOf": [{"allOf": [True, *case.parts]} for case in shape.cases]} if shape.cases else False


def _within(around: Path, schema: Schema) -> Schema:
    """What holds what a schema speaks of, at a path."""
    definitions, schema = _definitions(schema), _movable(schema) if around else schema
    for segment in reversed(around):
        if isinstance(segment, int):
            schema = {"type": ["array", "object"]}
        else:
            schema = {"type": "object", "required": [segment], "properties": {segment: schema}}
    return {**schema, **definitions} if isinstance(schema, dict) else schema


def _definitions(schema: Schema) -> dict[str, Any]:
    """What the references of a schema that was moved into another one lead to."""
    return {key: schema[key] for key in _DEFINITIONS if key in schema} if isinstance(schema, dict) else {}


def _movable(schema: Schema) -> Schema:
    """The schema, where it may stand inside another one that has its definitions; else `true`."""
    stack: list[Any] = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            reference = part.get("$ref", "#/$defs/")
            is_local = isinstance(reference, str) and reference.startswith(("#/$defs/", "#/definitions/"))
            if not is_local or not part.keys().isdisjoint(("$id", "$anchor", "$dynamicAnchor", "$dynamicRef")):
                return True
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)
    return schema
