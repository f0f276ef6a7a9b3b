"""Compilation: a schema is made ready once, and never fetches anything (SPEC R4.1, R4.6).

One schema is applied in three ways: *strictly*; *leniently*, at submission, when a value still holds expressions; and
*in part*, while a value still grows. What the keywords mean then stands in `keywords`.

A schema is foreign: whatever goes wrong while it is applied is a problem of the schema, never an exception.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs
from jsonschema import Draft202012Validator, SchemaError
from jsonschema.protocols import Validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from protocol.language.errors import Problem, pointer, shortened
from protocol.language.references import Path

from .bounds import FORMATS, BoundedValidator
from .growth import growing
from .keywords import GrowingValidator, LenientValidator
from .parts import NAMED, VALUES, Schema, admits_type, joined, parts_at, referred
from .patterns import is_pattern
from .secrecy import told_of_a_secret
from .steps import TooCostly, bounded, count
from .wording import worded

_STEPS_PER_SCHEMA: Final = 5
"""Steps in whose time each schema inside a schema is looked at."""

_NO_REMOTE: Final[Registry[Any]] = Registry()
_META: Final = jsonschema_rs.Draft202012Validator(dict(Draft202012Validator.META_SCHEMA))


class CompiledSchema:
    """A schema and its validators, kept. Raises `SchemaError` where the schema itself is wrong."""

    def __init__(self, schema: Schema) -> None:
        check_schema(schema)
        self.schema = schema
        self._plain = _plain(schema)
        self._strict = BoundedValidator(self._plain, registry=_NO_REMOTE)
        self._lenient = LenientValidator(self._plain, registry=_NO_REMOTE)
        self._growing = GrowingValidator(self._plain, registry=_NO_REMOTE)

    def problems(
        self,
        value: Any,
        *at: str | int,
        lenient: bool = False,
        partial: bool = False,
        is_secret: bool = False,
        known: Collection[str] = (),
    ) -> list[Problem]:
        """What the schema says against a value standing at a place, in a fixed order.

        With `lenient`, expressions inside the value stand for any value. With `partial`, the value can still grow, in
        the places that `growth` has marked or, where it has not, anywhere. What is said of a secret value holds
        nothing of it but those of its names that are `known` anyway (see `secrecy`).
        """
        if partial:
            return _problems([self._growing], growing(value), at, is_secret=is_secret, known=known)
        return _problems([self._lenient if lenient else self._strict], value, at, is_secret=is_secret, known=known)

    def problems_at(self, path: Path, value: Any) -> list[Problem]:
        """What the parts of the schema that speak of a path say against a value standing there."""
        for length in range(len(path)):
            container = "array" if isinstance(path[length], int) else "object"
            if not all(admits_type(part, container) for part in self.parts(path[:length])):
                return [Problem(pointer(*path[:length]), f"the schema does not admit an {container} here")]
        return _problems((self._strict.evolve(schema=part) for part in parts_at(self._plain, path)), value, ())

    def parts(self, path: Path) -> tuple[Schema, ...]:
        """The parts of the schema that speak of a path, with those that they join by `$ref` and `allOf`."""
        return joined(parts_at(self._plain, path), self._plain)


def compiled(schema: Schema) -> CompiledSchema:
    """The compiled form of a schema; equal schemas share one."""
    return _compiled(json.dumps(schema, sort_keys=True))


@lru_cache(maxsize=4_096)
def _compiled(text: str) -> CompiledSchema:
    count(_STEPS_PER_SCHEMA * sum(map(text.count, ("{", "true", "false"))))
    return CompiledSchema(json.loads(text))


def check_schema(schema: Any) -> None:
    """Raise `SchemaError` where this is not a JSON Schema, or one that cannot be applied in bounded time.

    What is right is seen at once; what is wrong with another, jsonschema says better.
    """
    if _is_schema(schema):
        return
    try:
        Draft202012Validator.check_schema(schema, format_checker=FORMATS)
    except SchemaError as error:
        if error.validator == "format":
            told = shortened(repr(error.instance))
            error.message = f"{told} is no regular expression (ECMA-262, with Unicode) that can be matched"
        raise


def _is_schema(schema: Any) -> bool:
    """Whether it is one for sure; all that is called a pattern in it is taken for one."""
    try:
        if not _META.is_valid(schema):
            return False
    except ValueError:  # what cannot be told to it: numbers and texts that JSON does not have
        return False
    stack = [schema]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            patterns = [part.get("pattern"), *_mapping(part.get("patternProperties"))]
            if not all(is_pattern(pattern) for pattern in patterns if isinstance(pattern, str)):
                return False
        stack.extend(part.values() if isinstance(part, dict) else part if isinstance(part, list) else ())
    return True


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def schema_problem(schema: Any, *at: str | int) -> Problem | None:
    """What is wrong with a schema standing at a place, if anything."""
    if not isinstance(schema, (dict, bool)):
        return Problem(pointer(*at), "must be a JSON Schema: an object, true or false")
    try:
        compiled(schema)
        check_references(schema)
    except SchemaError as error:
        return Problem(pointer(*at, *error.absolute_path), f"not a JSON Schema: {shortened(worded(error))}")
    return None


def check_references(schema: Any) -> None:
    """Raise `SchemaError` where a `$ref` names what is not there, or no schema.

    In a document whose parts have names of their own that is found when they are applied.
    """
    plain = _plain(schema)
    found = list(_parts_with_places(plain))
    if any("$id" in part for _, part in found):
        return
    anchors = {part[key]: part for _, part in found for key in ("$anchor", "$dynamicAnchor") if key in part}
    seen = {id(part) for _, part in found}
    for place, part in found:
        if not isinstance(reference := part.get("$ref"), str):
            continue
        target = anchors.get(reference[1:]) if reference.startswith("#") else None
        target = _referred(reference, plain) if target is None else target
        if target is None:
            hint = f", did you mean '#{reference}'?" if _referred("#" + reference, plain) is not None else ""
            message = f"{reference!r} is referred to, and is not in it{hint}"
            raise SchemaError(message, path=(*place, "$ref"))
        if id(target) in seen or not reference.startswith("#"):
            continue
        try:
            check_schema(target)
        except SchemaError as error:
            message = f"{reference!r} is referred to, and is no schema: {worded(error)}"
            raise SchemaError(message, path=(*place, "$ref")) from None
        seen.add(id(target))
        found += (((*place, "$ref"), below) for _, below in _parts_with_places(target))


def _referred(reference: str, schema: Schema) -> Any:
    """What a `$ref` points at, in the document or in one of JSON Schema's own; None where that is nothing."""
    target = referred(reference, schema)
    if target is not None or (reference.startswith("#") and "%" not in reference):
        return target
    try:
        return BoundedValidator(schema, registry=_NO_REMOTE)._resolver.lookup(reference).contents
    except Unresolvable:
        return None


def _parts_with_places(schema: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every schema inside a schema, and itself; what stands in values or unknown keywords is none."""
    stack: list[tuple[Path, Any]] = [((), schema)]
    while stack:
        place, part = stack.pop()
        if not isinstance(part, dict):
            continue
        yield place, part
        for key, below in part.items():
            if key in NAMED and isinstance(below, dict):
                stack.extend(((*place, key, name), item) for name, item in below.items())
            elif key in _LISTED and isinstance(below, list):
                stack.extend(((*place, key, index), item) for index, item in enumerate(below))
            elif key in _SINGLE:
                stack.append(((*place, key), below))


def _problems(
    validators: Iterable[Validator],
    value: Any,
    at: tuple[str | int, ...],
    *,
    is_secret: bool = False,
    known: Collection[str] = (),
) -> list[Problem]:
    try:
        with bounded():
            errors = [error for validator in validators for error in validator.iter_errors(value)]
    except TooCostly as costly:
        return [Problem(pointer(*at), f"the schema takes too long to apply: {costly}")]
    except Unresolvable as unresolvable:
        return [Problem(pointer(*at), f"the schema refers to {unresolvable.ref!r}, which is not in it")]
    except RecursionError:
        return [Problem(pointer(*at), "the schema refers to itself without end")]
    except Exception as error:  # a $ref can make a schema of anything, and then anything can be raised
        told = type(error).__name__ if is_secret else f"{type(error).__name__}: {error}"
        return [Problem(pointer(*at), f"the schema cannot be applied: {told}")]
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # so a library in Rust passes on a RecursionError
            raise
        return [Problem(pointer(*at), "the schema refers to itself without end")]
    if is_secret:
        return sorted({told_of_a_secret(error, value, *at, known=known) for error in errors})
    return sorted(Problem(pointer(*at, *error.absolute_path), shortened(worded(error))) for error in errors)


def _plain(schema: Any) -> Any:
    """The schema in the form in which jsonschema does what is wanted.

    Without `$schema`: on meeting one it goes on with that dialect's own validator, not ours. `false` for a property is
    wrapped: of a bare one it does not say where it stands. What only describes is `true`, which costs nothing.
    """
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in NAMED and isinstance(value, dict):
            plain[key] = {name: _plain_property(part) for name, part in value.items()}
        elif key != "$schema":
            plain[key] = value if key in VALUES else _plain(value)
    return plain


def _plain_property(schema: Any) -> Any:
    if schema is False:
        return {"allOf": [False]}
    return _plain(schema) if not isinstance(schema, dict) or schema.keys() - _DESCRIBING else True


_LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords that hold lists of schemas."""
_SINGLE: Final = frozenset(
    {"not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords that hold one schema."""
_DESCRIBING: Final = frozenset({"title", "description", "default", "examples", "$comment"})
"""Keywords that admit everything."""
