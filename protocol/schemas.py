"""JSON Schema (draft 2020-12): compiled once, never fetching anything (SPEC R4.1, R4.6).

At submission a value may still hold expressions. A lenient validator lets each of them stand in for any value: every
keyword accepts an `Expression`, and the keywords whose outcome could hinge on one inside (`not`, `oneOf`, `if`,
`const`, `enum`, …) give the benefit of the doubt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

from .errors import Problem, pointer
from .paths import MISSING
from .references import Expression

Schema = dict[str, Any] | bool
_Keyword = Callable[[Validator, Any, Any, Any], Iterator[ValidationError]]

_NO_REMOTE: Final[Registry[Any]] = Registry()
_PRESENCE: Final = frozenset({"required", "minItems", "minProperties", "minLength", "dependentRequired"})
"""Keywords that a part of a value may miss while the whole is still being built."""


class CompiledSchema:
    """A schema and its validators, kept. Raises `SchemaError` where the schema itself is wrong."""

    def __init__(self, schema: Schema) -> None:
        check_schema(schema)
        self.schema = schema
        self._strict = Draft202012Validator(schema, registry=_NO_REMOTE)
        self._lenient = _LenientValidator(schema, registry=_NO_REMOTE)

    def problems(self, value: Any, *at: str | int, lenient: bool = False, partial: bool = False) -> list[Problem]:
        """What the schema says against a value standing at a place, in a fixed order.

        With `lenient`, expressions inside the value stand for any value. With `partial`, what is not there yet is no
        error.
        """
        validator = self._lenient if lenient else self._strict
        try:
            errors = [error for error in validator.iter_errors(value) if not (partial and error.validator in _PRESENCE)]
        except Unresolvable as unresolvable:
            return [Problem(pointer(*at), f"the schema refers to {unresolvable.ref!r}, which is not in it")]
        return sorted(_problem(error, at) for error in errors)


def compiled(schema: Schema) -> CompiledSchema:
    """The compiled form of a schema; equal schemas share one."""
    return _compiled(json.dumps(schema, sort_keys=True))


@lru_cache(maxsize=4_096)
def _compiled(text: str) -> CompiledSchema:
    return CompiledSchema(json.loads(text))


def check_schema(schema: Any) -> None:
    """Raise `SchemaError` where this is not a JSON Schema."""
    Draft202012Validator.check_schema(schema)


def schema_problem(schema: Any, *at: str | int) -> Problem | None:
    """What is wrong with a schema standing at a place, if anything."""
    try:
        check_schema(schema)
    except SchemaError as error:
        return Problem(pointer(*at, *error.absolute_path), f"not a JSON Schema: {_shortened(error.message)}")
    return None


def subschema(schema: Any, path: tuple[str | int, ...]) -> Any:
    """The schema that speaks of the value at a path, or `MISSING` where none does (SPEC R4.6)."""
    root = schema
    for segment in path:
        schema = _step(_dereferenced(schema, root), segment)
        if schema is MISSING:
            return MISSING
    schema = _dereferenced(schema, root)
    if isinstance(schema, dict) and isinstance(root, dict) and schema is not root and "$defs" in root:
        return {**schema, "$defs": root["$defs"]}
    return schema


def _step(schema: Any, segment: str | int) -> Any:
    if not isinstance(schema, dict):
        return False if schema is False else MISSING
    properties = schema.get("properties", {})
    if isinstance(properties, dict) and str(segment) in properties:
        return properties[str(segment)]
    if isinstance(segment, int) and ("items" in schema or "prefixItems" in schema):
        prefix = schema.get("prefixItems", [])
        return prefix[segment] if segment < len(prefix) else schema.get("items", MISSING)
    return schema.get("additionalProperties", MISSING)


def _dereferenced(schema: Any, root: Any) -> Any:
    """Follow a `$ref` into the same schema, as far as it goes."""
    for _ in range(16):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        target = root
        for key in reference[2:].split("/"):
            target = (
                target.get(key.replace("~1", "/").replace("~0", "~"), MISSING) if isinstance(target, dict) else MISSING
            )
        if target is MISSING:
            return schema
        schema = target
    return schema


def _problem(error: ValidationError, at: tuple[str | int, ...]) -> Problem:
    return Problem(pointer(*at, *error.absolute_path), _shortened(error.message))


def _shortened(text: str, most: int = 300) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def _holds_expression(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_expression, value.values()))
    if isinstance(value, list):
        return any(map(_holds_expression, value))
    return isinstance(value, Expression)


def _accepting(keyword: _Keyword) -> _Keyword:
    """A keyword that has nothing against an expression."""

    def accepting(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, Expression):
            yield from keyword(validator, limit, instance, schema) or ()

    return accepting


def _doubting(keyword: _Keyword) -> _Keyword:
    """A keyword that has nothing against a value in which an expression could make the difference."""

    def doubting(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not _holds_expression(instance):
            yield from keyword(validator, limit, instance, schema) or ()

    return doubting


_DOUBTFUL: Final = frozenset({"not", "if", "oneOf", "const", "enum", "contains", "uniqueItems", "unevaluatedItems"})

_LenientValidator: Final = extend(  # type: ignore[no-untyped-call]  # jsonschema leaves it untyped
    Draft202012Validator,
    {
        name: _doubting(keyword) if name in _DOUBTFUL else _accepting(keyword)
        for name, keyword in Draft202012Validator.VALIDATORS.items()
    },
)
