"""Bounds: keywords of JSON Schema that cannot take for ever (SPEC R7.1).

Schemas come with submissions, and so does what they are applied to. Python's `re` may need time exponential in the
length of a text, `$ref` may double the work with each step, and comparing all elements of a list with each other is
quadratic. So patterns are matched by the engine of pydantic, whose time is linear (it has no look-around and no
backreferences), and every application of a keyword is counted, up to `MOST_STEPS` for one value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaError as PatternError
from pydantic_core import SchemaValidator, core_schema

Validator = Any
"""One of jsonschema; its protocol leaves out what keywords need."""
Keyword = Callable[[Validator, Any, Any, Any], Iterator[ValidationError]]
_Original = Callable[[Validator, Any, Any, Any], Iterator[ValidationError] | None]

MOST_STEPS: Final = 1_000_000
"""Keywords applied to one value, with what it holds: some seconds of work."""


class TooCostly(Exception):
    """More steps than are granted: `most`."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} steps")
        self.most = most


@dataclass
class _Budget:
    """Steps granted, and what they are part of."""

    most: int
    within: _Budget | None
    taken: int = 0


@contextmanager
def bounded(most: int = MOST_STEPS) -> Iterator[None]:
    """Count the steps of what is done inside, for what is around this too. There `TooCostly` may be raised."""
    token = _budget.set(_Budget(most, _budget.get()))
    try:
        yield
    finally:
        _budget.reset(token)


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern occurs in a text, in time linear in its length. One that cannot be matched matches nothing."""
    compiled = _compiled(pattern)
    try:
        return compiled is not None and compiled.isinstance_python(text)
    except UnicodeEncodeError:  # a lone surrogate: no pattern speaks of those
        return False


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> SchemaValidator | None:
    try:
        return _compile(pattern)
    except (PatternError, UnicodeEncodeError):
        return None


def _compile(pattern: str) -> SchemaValidator:
    return SchemaValidator(core_schema.str_schema(pattern=pattern, strict=True))


FORMATS: Final = FormatChecker(())
"""The formats that the schema of schemas asks for: patterns must be such that `matches` can match them."""


@FORMATS.checks("regex", raises=(PatternError, UnicodeEncodeError))
def _is_pattern(value: object) -> bool:
    return not isinstance(value, str) or _compile(value) is not None


_budget: ContextVar[_Budget | None] = ContextVar("budget", default=None)


def _count(steps: int) -> None:
    budget = _budget.get()
    while budget is not None:
        budget.taken += steps
        if budget.taken > budget.most:
            raise TooCostly(budget.most)
        budget = budget.within


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (dict, list)) else 0


def _counted(name: str, keyword: _Original) -> Keyword:
    """A keyword that counts what it looks at each time it is applied."""
    looks_at_all = name in _LOOKING_AT_ALL
    own = _REFERENCE if name in ("$ref", "$dynamicRef") else 1

    def counted(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        _count(own + _size(limit) + (_size(instance) if looks_at_all else 0))
        for error in keyword(validator, limit, instance, schema) or ():
            _count(_ERROR)
            yield error

    return counted


def _pattern(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str):
        _count(len(instance) // _CHARACTERS)
        if not matches(limit, instance):
            yield ValidationError(f"{instance!r} does not match {limit!r}")


def _pattern_properties(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    for key, pattern in _matching(limit, instance):
        yield from validator.descend(instance[key], limit[pattern], path=key, schema_path=pattern)


def _additional_properties(validator: Validator, limit: Any, instance: Any, schema: Any) -> Any:
    """The keyword itself, shown neither patterns nor the properties that match one."""
    if patterns := schema.get("patternProperties"):
        matching = {key for key, _ in _matching(patterns, instance)}
        schema = {key: value for key, value in schema.items() if key != "patternProperties"}
        if matching:
            instance = {key: value for key, value in instance.items() if key not in matching}
    return _ORIGINAL["additionalProperties"](validator, limit, instance, schema)


def _matching(patterns: Mapping[str, Any], instance: Any) -> Iterator[tuple[str, str]]:
    """The properties that match patterns, each with the pattern."""
    for key in instance if isinstance(instance, dict) else ():
        for pattern in patterns:
            _count(1 + len(key) // _CHARACTERS)
            if matches(pattern, key):
                yield key, pattern


def _enum(validator: Validator, limit: Any, instance: Any, schema: Any) -> Any:
    _count(len(limit) * _size(instance))
    return _ORIGINAL["enum"](validator, limit, instance, schema)


def _unique_items(validator: Validator, limit: Any, instance: Any, schema: Any) -> Any:
    types = set(map(type, instance)) if isinstance(instance, list) else {str}
    if not (types == {str} or types <= {int, float}):
        _count(len(instance) ** 2 // 2)  # what cannot be sorted is compared one by one
    return _ORIGINAL["uniqueItems"](validator, limit, instance, schema)


def _multiple_of(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """As the numbers are written: in binary fractions 0.07 is no multiple of 0.01."""
    if validator.is_type(instance, "number") and Fraction(repr(instance)) % Fraction(repr(limit)):
        yield ValidationError(f"{instance!r} is not a multiple of {limit!r}")


def _unevaluated(name: str) -> _Original:
    def unevaluated(validator: Validator, limit: Any, instance: Any, schema: Any) -> Any:
        _count(_size(instance) ** 2 // _CHARACTERS)  # each is searched in a list of those evaluated
        return _ORIGINAL[name](validator, limit, instance, schema)

    return unevaluated


def _is_boolean(checker: object, value: object) -> bool:
    """Asked for each schema met on the way to what is unevaluated, which applies no keyword."""
    _count(1)
    return isinstance(value, bool)


_REFERENCE: Final = 10
"""Steps in whose time a reference is followed."""
_ERROR: Final = 10
"""Steps in whose time an error is handed up."""
_CHARACTERS: Final = 500
"""As many are looked at in the time of one step."""
_LOOKING_AT_ALL: Final = frozenset(
    {"items", "contains", "uniqueItems", "propertyNames", "additionalProperties", "patternProperties"}
)
"""Keywords that look at every element or property."""

_ORIGINAL: Final[dict[str, _Original]] = dict(Draft202012Validator.VALIDATORS)
KEYWORDS: Final[dict[str, Keyword]] = {
    name: _counted(name, keyword)
    for name, keyword in {
        **_ORIGINAL,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "enum": _enum,
        "multipleOf": _multiple_of,
        "uniqueItems": _unique_items,
        **{name: _unevaluated(name) for name in ("unevaluatedItems", "unevaluatedProperties")},
    }.items()
}
"""Every keyword of draft 2020-12, bounded."""
BoundedValidator: Final = extend(  # type: ignore[no-untyped-call]  # jsonschema leaves it untyped
    Draft202012Validator,
    KEYWORDS,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("boolean", _is_boolean),
)
"""jsonschema's validator of the draft, bounded."""
