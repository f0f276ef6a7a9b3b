"""Leniency: what a schema says of a value in which expressions stand for any values, templates for any texts
(SPEC R4.1, R2.6).

Something is wrong only where no values of the expressions could put it right. With null for each expression, an error
counts that has nothing to do with one: it is not about one nor, for a keyword that looks deeper (`const`, `not`, …),
about what holds one, and no `if` that holds one decided on it. For a template stands an empty text, and of the errors
about it those count that hold of each text. The rest is left to the check before execution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from jsonschema_rs import ValidationError, ValidationErrorKind

from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.language.paths import lookup, parts_of
from acts_celery.protocol.language.references import Expression, Path
from acts_celery.protocol.language.templates import Template

from .elsewhere import OFFLOADED
from .validation import Checker, as_problems
from .walk import LISTED, NAMED
from .work import EXCEEDED, HEAVY_WORK, MOST_WORK_AT_SUBMISSION

Said = tuple[Checker, ...] | Problem
"""What speaks of a place in a value; or why nothing can stand there."""
_LOOKING_DEEPER: Final = tuple(
    getattr(ValidationErrorKind, name)
    for name in ("Constant", "Contains", "Enum", "Not", "OneOfMultipleValid", "UniqueItems")
)
"""Kinds of errors that hinge on what is inside of an object or a list, not on names and their number alone."""
_LEFT_OVER: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
_INSIDE: Final = _LEFT_OVER | {
    *("properties", "patternProperties", "additionalProperties", "items", "prefixItems", "contains")
}
"""Keywords that lead to what is inside of a value."""


def lenient_problems(checker: Checker, value: Any, said_at: Callable[[Path], Said], *at: str | int) -> list[Problem]:
    """What a schema says against a value for certain; `said_at` gives what speaks of a place in it."""
    known = _known(value)
    units = checker.work.of(known)
    if units > MOST_WORK_AT_SUBMISSION:
        return [Problem(pointer(*at), EXCEEDED)]
    if (
        units > HEAVY_WORK and OFFLOADED.get() is not None
    ):  # with expressions it is checked when it is to be carried out
        return [] if holds_expression(value) else checker.problems(known, *at)
    try:
        if checker.is_valid(known):
            return []
        if holds_expression(value):
            errors = [error for error in checker.errors(known) if _is_certain(error, value, said_at)]
            about = [lookup(value, tuple(error.instance_path)) for error in errors]
            plain = [error for error, part in zip(errors, about, strict=True) if not isinstance(part, Template)]
            texts = {
                pointer(*at, *error.instance_path): part
                for error, part in zip(errors, about, strict=True)
                if isinstance(part, Template)
            }
            return sorted([*as_problems(plain, *at), *(Problem(at, _no_text(part)) for at, part in texts.items())])
    except ValueError:
        pass  # said below
    return checker.problems(known, *at)


def _no_text(template: Template) -> str:
    """What is wrong with a template where no text is admitted."""
    said = "a template is a text, and no text is admitted here"
    match template.parts:
        case [Expression() as expression]:
            return f"{said}: write {expression} for the value itself"
    return said


def holds_expression(value: Any) -> bool:
    """Whether an expression or a template stands somewhere in a value."""
    return any(isinstance(part, Expression | Template) for part in parts_of(value))


def _known(value: Any) -> Any:
    """The value with null in place of each expression, and an empty text in place of each template."""
    if isinstance(value, str):
        return value
    if isinstance(value, Expression | Template):
        return None if isinstance(value, Expression) else ""
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    return [_known(item) for item in value] if isinstance(value, list) else value


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
            return not (_LEFT_OVER.intersection(error.schema_path[-1:]) and holds_expression(about))
    if isinstance(about, Template):
        return isinstance(error.kind, ValidationErrorKind.Type)
    return not (holds_expression(about) if isinstance(error.kind, _LOOKING_DEEPER) else isinstance(about, Expression))


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
