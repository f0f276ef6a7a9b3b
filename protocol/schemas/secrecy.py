"""Secrecy: what is said of a value that nobody but its reader may know (SPEC R7.2).

Whoever reads the error of a call is not shown what the call was given or made. What a schema says may be told, and
names that stand in it; the value, its parts and the names in it may not, whichever keyword it is that refuses it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise, takewhile
from typing import Any, Final

from jsonschema.exceptions import ValidationError

from protocol.language.errors import Problem, pointer, shortened

from .wording import OF_THE_SCHEMA, without_value


def told_of_a_secret(error: ValidationError, value: Any, *at: str | int, known: Collection[str] = ()) -> Problem:
    """The error in a value standing at a place, without the value; names in it that are `known` anyway may be told.

    The pointer goes as far as what it leads through is known.
    """
    path = tuple(error.absolute_path)
    named = {name for keyword, name in pairwise(error.absolute_schema_path) if keyword == "properties"}
    told = tuple(takewhile(lambda key: isinstance(key, int) or key in named or key in known, path))
    below = "" if told == path else "below it, "
    return Problem(pointer(*at, *told), shortened(below + _said(error, is_name=_is_name(error, value))))


def _is_name(error: ValidationError, value: Any) -> bool:
    """Whether it is a name in the object at the error's path that is refused, and not what stands there."""
    for key in error.absolute_path:
        value = value[key]
    return isinstance(value, Mapping) and isinstance(error.instance, str)


def _said(error: ValidationError, *, is_name: bool) -> str:
    subject = "a name in it" if is_name else "the value"
    keyword = str(error.validator or "")
    begins, rest = without_value(error)
    if begins and keyword:
        return subject + rest
    if keyword in OF_THE_SCHEMA:
        return rest
    if error.validator_value is False and keyword in _UNEXPECTED:
        return f"{subject} has {_UNEXPECTED[keyword]} that are not admitted"
    return f"{subject} is not admitted" + (f" by {keyword}" if keyword else "")


_UNEXPECTED: Final[Mapping[str, str]] = {
    "items": "elements",
    "additionalProperties": "properties",
    "unevaluatedProperties": "properties",
    "unevaluatedItems": "elements",
}
"""Keywords that list what of the value they do not admit."""
