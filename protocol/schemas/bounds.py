"""Bounds: keywords of JSON Schema that cannot take for ever (SPEC R7.1).

Schemas come with submissions, and so does what they are applied to. A pattern may need time exponential in the length
of a text, `$ref` may double the work with each step, and comparing all elements of a list with each other is quadratic.
So every application of a keyword is counted in `steps`; `patterns` and `unevaluated` are our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from .calls import of_calls
from .patterns import is_pattern, names_matching, occurs
from .steps import count
from .unevaluated import unevaluated_items, unevaluated_properties

Validator = Any
"""One of jsonschema; its protocol leaves out what keywords need."""
Keyword = Callable[[Validator, Any, Any, Any], Iterator[ValidationError]]
_Original = Callable[[Validator, Any, Any, Any], Iterator[ValidationError] | None]

FORMATS: Final = FormatChecker(())
"""The formats that the schema of schemas asks for: patterns must be such as can be matched."""


@FORMATS.checks("regex")
def _is_pattern(value: object) -> bool:
    return not isinstance(value, str) or is_pattern(value)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, (dict, list)) else 0


def _counted(name: str, keyword: _Original) -> Keyword:
    """A keyword that counts what it looks at each time it is applied."""
    looks_at_all = name in _LOOKING_AT_ALL
    own = _REFERENCE if name in ("$ref", "$dynamicRef") else 1
    each = _PART if name == "allOf" else 1

    def counted(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        count(own + each * _size(limit) + (_size(instance) if looks_at_all else 0))
        for error in keyword(validator, limit, instance, schema) or ():
            count(_ERROR)
            yield error

    return counted


def _pattern(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not occurs(limit, instance):
        yield ValidationError(f"{instance!r} does not match {limit!r}")


def _pattern_properties(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    for key, pattern in names_matching(limit, instance) if isinstance(instance, dict) else ():
        yield from validator.descend(instance[key], limit[pattern], path=key, schema_path=pattern)


def _additional_properties(validator: Validator, limit: Any, instance: Any, schema: Any) -> Any:
    """The keyword itself, shown neither patterns nor the properties that match one."""
    if (patterns := schema.get("patternProperties")) and isinstance(instance, dict):
        matching = {key for key, _ in names_matching(patterns, instance)}
        schema = {key: value for key, value in schema.items() if key != "patternProperties"}
        if matching:
            instance = {key: value for key, value in instance.items() if key not in matching}
    return _ORIGINAL["additionalProperties"](validator, limit, instance, schema)


def _enum(validator: Validator, limit: Any, instance: Any, schema: Any) -> Any:
    count(len(limit) * _size(instance))
    return _ORIGINAL["enum"](validator, limit, instance, schema)


def _unique_items(validator: Validator, limit: Any, instance: Any, schema: Any) -> Any:
    types = set(map(type, instance)) if isinstance(instance, list) else {str}
    if not (types == {str} or types <= {int, float}):
        count(len(instance) ** 2 // 2)  # what cannot be sorted is compared one by one
    return _ORIGINAL["uniqueItems"](validator, limit, instance, schema)


def _multiple_of(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """As the numbers are written: in binary fractions 0.07 is no multiple of 0.01."""
    if validator.is_type(instance, "number") and Fraction(repr(instance)) % Fraction(repr(limit)):
        yield ValidationError(f"{instance!r} is not a multiple of {limit!r}")


_REFERENCE: Final = 10
"""Steps in whose time a reference is followed."""
_PART: Final = 10
"""Steps in whose time a part is gone into that has nothing against the value; of others the errors are counted."""
_ERROR: Final = 10
"""Steps in whose time an error is handed up."""
_LOOKING_AT_ALL: Final = frozenset(
    {"items", "contains", "uniqueItems", "propertyNames", "additionalProperties", "patternProperties"}
)
"""Keywords that look at every element or property."""

_ORIGINAL: Final[dict[str, _Original]] = dict(Draft202012Validator.VALIDATORS)
KEYWORDS: Final[dict[str, Keyword]] = {
    name: _counted(name, keyword)
    for name, keyword in of_calls(
        {
            **_ORIGINAL,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional_properties,
            "enum": _enum,
            "multipleOf": _multiple_of,
            "uniqueItems": _unique_items,
            "unevaluatedItems": unevaluated_items,
            "unevaluatedProperties": unevaluated_properties,
        }
    ).items()
}
"""Every keyword of draft 2020-12, bounded."""
BoundedValidator: Final = extend(Draft202012Validator, KEYWORDS)  # type: ignore[no-untyped-call]  # jsonschema's
"""jsonschema's validator of the draft, bounded."""
