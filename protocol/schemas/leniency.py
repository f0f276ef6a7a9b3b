"""Leniency: what a schema says of a value in which expressions stand for any values (SPEC R4.1).

Something is wrong only where no values of the expressions could put it right. For each expression a value is taken that
fits its own place; with those the whole is valid nearly always, and then nothing is wrong. Else an error counts that
has nothing to do with an expression: it is not about one nor, for a keyword that looks deeper (`const`, `not`, …),
about what holds one, and no `if` that holds one decided on it. The rest is left to the check before execution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from jsonschema_rs import ValidationError, ValidationErrorKind

from protocol.language.errors import Problem, pointer
from protocol.language.paths import lookup, parts_of
from protocol.language.references import Expression, Path

from .parts import LISTED, NAMED
from .validation import Checker, as_problems
from .work import EXCEEDED, MOST_WORK

Said = tuple[Checker, ...] | Problem
"""What speaks of a place in a value; or why nothing can stand there."""
_VALUES: Final[tuple[Any, ...]] = (None, "x", 1, True, {}, [])
_OF_ITSELF: Final = tuple(
    getattr(ValidationErrorKind, name)
    for name in (
        *("AdditionalProperties", "ExclusiveMaximum", "ExclusiveMinimum", "Format", "MaxItems", "MaxLength"),
        *("MaxProperties", "Maximum", "MinItems", "MinLength", "MinProperties", "Minimum", "MultipleOf", "Pattern"),
        *("PropertyNames", "Required", "Type"),
    )
)
"""Kinds of errors that hinge on nothing inside of an object or a list but names and their number."""
_LEFT_OVER: Final = (["unevaluatedItems"], ["unevaluatedProperties"])
_INSIDE: Final = frozenset(
    {"properties", "patternProperties", "additionalProperties", "items", "prefixItems", "contains"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords that lead to what is inside of a value."""


def lenient_problems(checker: Checker, value: Any, said_at: Callable[[Path], Said], *at: str | int) -> list[Problem]:
    """What a schema says against a value for certain; `said_at` gives what speaks of a place in it."""
    if not holds_expression(value):
        return checker.problems(value, *at)
    taken = _taken(value, (), lambda place: _fitting(said_at(place)))
    if checker.work.of(taken) > MOST_WORK:
        return [Problem(pointer(*at), EXCEEDED)]
    try:
        if checker.is_valid(taken):
            return []
        certain = [error for error in checker.errors(taken) if _is_certain(error, value, said_at)]
    except ValueError:
        return checker.problems(taken, *at)
    return as_problems(certain, *at)


def holds_expression(value: Any) -> bool:
    """Whether an expression stands somewhere in a value."""
    return any(isinstance(part, Expression) for part in parts_of(value))


def _taken(value: Any, place: Path, fitting: Callable[[Path], Any]) -> Any:
    """The value with another in place of each expression."""
    if isinstance(value, dict):
        return {key: _taken(item, (*place, key), fitting) for key, item in value.items()}
    if isinstance(value, list):
        return [_taken(item, (*place, index), fitting) for index, item in enumerate(value)]
    return fitting(place) if isinstance(value, Expression) else value


def _fitting(said: Said) -> Any:
    """A value that fits what is said of a place, if one is found."""
    if isinstance(said, Problem) or not said:
        return None
    candidates = [candidate for checker in said for candidate in checker.examples]
    for candidate in (*candidates, *_VALUES):
        if all(checker.is_valid(candidate) for checker in said):
            return candidate
    return None


def _is_certain(error: ValidationError, value: Any, said_at: Callable[[Path], Said]) -> bool:
    """Whether an error stands whatever the expressions in a value are."""
    place = tuple(error.instance_path)
    about = lookup(value, place)
    if not _is_reached(error, value):
        return False
    match error.kind:
        case ValidationErrorKind.AnyOf(branches) | ValidationErrorKind.OneOfNotValid(branches):
            return all(any(_is_certain(inner, value, said_at) for inner in branch) for branch in branches)
        case ValidationErrorKind.UnevaluatedProperties() | ValidationErrorKind.UnevaluatedItems():
            keys: Any = about if isinstance(about, dict) else range(len(about))
            return any(_is_refused(about[key], said_at((*place, key))) for key in keys)
        case ValidationErrorKind.FalseSchema():
            return not (error.schema_path[-1:] in _LEFT_OVER and holds_expression(about))
    if isinstance(error.kind, _OF_ITSELF):
        return not isinstance(about, Expression)
    return not holds_expression(about)


def _is_refused(value: Any, said: Said) -> bool:
    """Whether what speaks of the place of a value in any case refuses it."""
    if isinstance(said, Problem):
        return True
    return not holds_expression(value) and not all(checker.is_valid(value) for checker in said)


def _is_reached(error: ValidationError, value: Any) -> bool:
    """Whether the schema that an error is of is applied whatever the expressions are."""
    path, depth = iter(error.evaluation_path), 0
    for keyword in path:
        if keyword in ("then", "else") and holds_expression(lookup(value, tuple(error.instance_path[:depth]))):
            return False
        if keyword in NAMED or keyword in LISTED:  # a name or an index follows
            next(path, None)
        depth += keyword in _INSIDE
    return True
