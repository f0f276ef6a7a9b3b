"""The wire: what only a provider's format requires is taken out again (SPEC R12.6).

Strict formats want every property of an object there, so that one which is optional is sent as null. Such a null is
dropped: where a property may be left out, and what the request says of it admits no null. A value that would be made
wrong by that stays as it is.

They know no object whose properties they are not told. What it has besides those stands in one more, `_json`, as the
text of a JSON object; where nothing else is there, the text may be of any value, which stands in the object's place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from acts_celery.protocol.calls.tools import ALIASES
from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.schemas import compiled, excerpt
from acts_celery.protocol.schemas.addresses import normalized
from acts_celery.protocol.schemas.parts import parts_at
from acts_celery.protocol.schemas.walk import Schema, applied

from .answer_texts import Unreadable, decoded
from .request import Request

AS_TEXT: Final = "_json"
"""The property whose text holds what a strict format cannot say."""


def with_texts_read(answer: Mapping[str, Any], *at: str | int) -> tuple[dict[str, Any], list[Problem]]:
    """An answer with what its `_json` texts hold, and what is wrong with those; `at` is where it stands. What is in
    such a text is taken as it is.
    """
    read = {key: value_with_texts_read(value, *at, key) for key, value in answer.items()}
    return {key: value for key, (value, _) in read.items()}, [each for _, found in read.values() for each in found]


def value_with_texts_read(value: Any, *at: str | int) -> tuple[Any, list[Problem]]:
    """A value in the same way."""
    if isinstance(value, list):
        items = [value_with_texts_read(item, *at, index) for index, item in enumerate(value)]
        return [item for item, _ in items], [problem for _, found in items for problem in found]
    if not isinstance(value, dict):
        return value, []
    beside, problems = with_texts_read({key: item for key, item in value.items() if key != AS_TEXT}, *at)
    text = value.get(AS_TEXT)
    if text is None:
        return beside, problems
    try:
        return _joined(beside, text), problems
    except Unreadable as error:
        return beside, [*problems, Problem(pointer(*at, AS_TEXT), f"it should hold JSON as a text: {error}")]


def _joined(beside: dict[str, Any], text: Any) -> Any:
    """What a `_json` text holds, with what stands beside it. Raises `Unreadable`."""
    held = decoded(text) if isinstance(text, str) else text
    if not beside:
        return held
    if not isinstance(held, dict):
        raise Unreadable("other properties stand beside it, so it has to be of an object")
    if twice := beside.keys() & held.keys():
        raise Unreadable(f"{min(twice)!r} stands in it and beside it")
    return {**beside, **held}


def without_nulls(request: Request, answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer without the nulls that stand for what was left out."""
    cleaned = dict(answer)
    if isinstance(calls := answer.get("calls"), list):
        cleaned["calls"] = [_call_without(request, call) for call in calls]
    if "output" in answer:
        cleaned["output"] = value_without_nulls(request.schema, answer["output"])
    return cleaned


def value_without_nulls(schema: Any, value: Any) -> Any:
    """A value that a schema speaks of, in the same way."""
    if not isinstance(value, (dict, list)):
        return value
    return _cleaned(value, normalized(schema))


def _call_without(request: Request, call: Any) -> Any:
    """A call; its meta-properties are never null but for `_output`."""
    tool = request.tools.get(call["_tool"]) if isinstance(call, dict) and isinstance(call.get("_tool"), str) else None
    if tool is None:
        return call
    kept = {
        key: value
        for key, value in call.items()
        if value is not None or not (key.startswith("_") or key in ALIASES) or key in ("_tool", "_output")
    }
    return _cleaned(kept, tool.document)


def _cleaned(value: Any, schema: Schema) -> Any:
    """A value without such nulls; as it is, where it fits the schema with them alone (`const`, `minProperties`)."""
    cleaned = _without(value, [schema], schema)
    if cleaned == value:
        return value
    fitting = compiled(schema)
    return value if fitting.problems(cleaned) and not fitting.problems(value) else cleaned


def _without(value: Any, schemas: Sequence[Schema], root: Schema) -> Any:
    """A value at a place of which these schemas speak."""
    if not isinstance(value, (dict, list)):
        return value
    parts = applied(schemas, root)
    required = {name for part in parts for name in part.get("required", ())}
    if isinstance(value, list):
        return [_without(item, _below(parts, index, root), root) for index, item in enumerate(value)]
    kept = {}
    for key, item in value.items():
        below = _below(parts, key, root)
        if item is not None or key in required or not below or _admit_null(below, root):
            kept[key] = _without(item, below, root)
    return kept


def _below(parts: Sequence[dict[str, Any]], segment: str | int, root: Schema) -> list[Schema]:
    """What the parts say of a property or an element."""
    return [below for part in parts for below in parts_at(part, (segment,), root)]


def _admit_null(schemas: Sequence[Schema], root: Schema) -> bool:
    """Whether one of them admits null."""
    return any(
        schema is True or (isinstance(schema, dict) and not compiled(excerpt(schema, root)).problems(None))
        for schema in schemas
    )
