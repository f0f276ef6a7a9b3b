"""Wording: what is said of a value that does not fit, and of one that may not be shown (SPEC R7.2).

The words are those of jsonschema-rs, but for what it says unclearly. Of a secret value neither its parts nor the names
in it are shown, whichever keyword refuses it; what the schema says is no secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise, takewhile
from typing import Any, Final

from jsonschema_rs import ValidationError, ValidationErrorKind

from protocol.language.errors import Problem, pointer, shortened

MASK: Final = "the value"
"""Stands for a value that may not be shown."""
Known = Collection[object] | None
"""Of a secret value the names in it that are known anyway, and may be shown; None where nothing is secret."""
_CONTAINED: Final = {
    "contains": "no element of it is what it must contain",
    "minContains": "too few of its elements are what it must contain",
    "maxContains": "too many of its elements are what it must contain",
}
_CLOSING: Final = {
    "items": "elements",
    "unevaluatedItems": "elements",
    "additionalProperties": "properties",
    "unevaluatedProperties": "properties",
}


def worded(error: ValidationError) -> str:
    """What is wrong with a value."""
    message = error.message
    keyword: Any = next(reversed(error.schema_path), None)
    match error.kind:
        case ValidationErrorKind.FalseSchema():
            closed = f": no {_CLOSING[keyword]} are but those that the schema names" if keyword in _CLOSING else ""
            return f"{message.removeprefix('False schema does not allow ')} is not admitted{closed}"
        case ValidationErrorKind.Contains():
            return _CONTAINED.get(keyword, message)
        case ValidationErrorKind.PropertyNames():
            return f"a name in it is not admitted: {message}"
        case ValidationErrorKind.BacktrackLimitExceeded() | ValidationErrorKind.RegexEngineFailure():
            return "the pattern goes back too often in the text"
        case ValidationErrorKind.Format() if keyword != "format":
            none = "is no regular expression (ECMA-262, with Unicode) that can be matched"
            return message.replace('is not a "regex"', none)
    return message


def as_problems(errors: Iterable[ValidationError], *at: str | int, known: Known = None) -> list[Problem]:
    """The errors in a value standing at a place, in a fixed order. A masked validator finds those in a secret one.

    The pointer goes as far as what it leads through may be shown.
    """
    if known is None:
        return sorted({Problem(pointer(*at, *error.instance_path), shortened(worded(error))) for error in errors})
    problems = set[Problem]()
    for error in errors:
        path = error.instance_path
        named = {*known, *(name for keyword, name in pairwise(error.schema_path) if keyword == "properties")}
        shown = (isinstance(key, int) or key in named for key in path)
        told = path[: sum(takewhile(bool, shown))]
        below = "" if len(told) == len(path) else "below it, "
        problems.add(Problem(pointer(*at, *told), shortened(below + _redacted(error, known))))
    return sorted(problems)


def _redacted(error: ValidationError, known: Collection[object]) -> str:
    match error.kind:
        case ValidationErrorKind.AdditionalProperties(names) | ValidationErrorKind.UnevaluatedProperties(names):
            return worded(error) if {*names} <= {*known} else f"{MASK} has properties that are not admitted"
        case ValidationErrorKind.PropertyNames(inner):
            return f"a name in it is not admitted: {worded(inner)}"
    return worded(error)
