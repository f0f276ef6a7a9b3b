"""The wire: what only a provider's format requires is dropped again (SPEC R12.6).

Strict formats want every property of an object there, so that one which is optional is sent as null. Such a null is
dropped: where a property may be left out, and what the request says of it admits no null. A value that would be made
wrong by that stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from acts_celery.protocol.calls.tools import ALIASES
from acts_celery.protocol.schemas import compiled, excerpt
from acts_celery.protocol.schemas.addresses import normalized
from acts_celery.protocol.schemas.parts import parts_at
from acts_celery.protocol.schemas.walk import Schema, applied

from .request import Request


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
