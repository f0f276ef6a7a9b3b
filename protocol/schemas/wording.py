"""Wording: what is said of a value that does not fit, and of one that may not be shown (SPEC R7.2).

The words are those of jsonschema-rs, but for what it says unclearly. Of a secret value neither its parts nor the names
in it are shown, whichever keyword refuses it; what the schema says is no secret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise, takewhile
from typing import Any, Final

from jsonschema_rs import ValidationError, ValidationErrorKind

from protocol.language.errors import Problem, pointer, shortened

MASK: Final = "the value"
"""Stands for a value that may not be shown."""
_NONE_ADMITTED: Final = "False schema does not allow "
_NO_REGEX: Final = ' is not a "regex"'
_CONTAINED: Final[Mapping[Any, str]] = {
    "contains": "no element of it is what it must contain",
    "minContains": "too few of its elements are what it must contain",
    "maxContains": "too many of its elements are what it must contain",
}
_CLOSING: Final[Mapping[Any, str]] = {
    "items": "elements",
    "unevaluatedItems": "elements",
    "additionalProperties": "properties",
    "unevaluatedProperties": "properties",
}


def worded(error: ValidationError) -> str:
    """What is wrong with a value."""
    message = error.message
    match error.kind:
        case ValidationErrorKind.FalseSchema():
            return f"{message.removeprefix(_NONE_ADMITTED)} is not admitted{_by(error)}"
        case ValidationErrorKind.Contains():
            return _CONTAINED.get(_keyword(error), message)
        case ValidationErrorKind.PropertyNames():
            return f"a name in it is not admitted: {message}"
        case ValidationErrorKind.BacktrackLimitExceeded() | ValidationErrorKind.RegexEngineFailure():
            return "the pattern goes back too often in the text"
        case ValidationErrorKind.Format() if _keyword(error) != "format":
            return (
                message.removesuffix(_NO_REGEX)
                + " is no regular expression (ECMA-262, with Unicode) that can be matched"
            )
    return message


def redacted(error: ValidationError, *at: str | int, known: Collection[object] = ()) -> Problem:
    """An error that a masked validator found in a value standing at a place; names that are `known` may be shown.

    The pointer goes as far as what it leads through is known.
    """
    path = error.instance_path
    named = {name for keyword, name in pairwise(error.schema_path) if keyword == "properties"}
    told = tuple(takewhile(lambda key: isinstance(key, int) or key in named or key in known, path))
    below = "" if len(told) == len(path) else "below it, "
    return Problem(pointer(*at, *told), shortened(below + _said(error, known)))


def _said(error: ValidationError, known: Collection[object]) -> str:
    match error.kind:
        case ValidationErrorKind.AdditionalProperties(names) | ValidationErrorKind.UnevaluatedProperties(names):
            if not set(names) <= set(known):
                return f"{MASK} has {_CLOSING[_keyword(error)]} that are not admitted"
        case ValidationErrorKind.PropertyNames(inner):
            return f"a name in it is not admitted: {worded(inner)}"
    return worded(error)


def _by(error: ValidationError) -> str:
    closed = _CLOSING.get(_keyword(error))
    return f": no {closed} are but those that the schema names" if closed else ""


def _keyword(error: ValidationError) -> str | int | None:
    return error.schema_path[-1] if error.schema_path else None
