"""Validation: one schema of a document applied to values (SPEC R4.1, R4.6, R7.2).

`jsonschema_rs` validates, and never fetches anything. What a value has against it is asked for only where it does not
fit, and only as far as that is no work: an error holds what it is about.

The words are those of jsonschema-rs, but for what it says unclearly. Of a secret value neither its parts nor the names
in it are shown, whichever keyword refuses it; what the schema says is no secret.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise, takewhile
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, Registry, ValidationError, ValidationErrorKind

from acts_celery.protocol.language.errors import Problem, pointer, shortened
from acts_celery.protocol.language.references import Path

from .elsewhere import OFFLOADED, Check
from .parts import SchemaError
from .patterns import OPTIONS
from .walk import Schema, reference_to
from .work import EXCEEDED, HEAVY_WORK, METER, MOST_WORK, Work

ADDRESS: Final = "schema:"
"""Under this address a validator finds the document that it is for."""
_MOST_LISTED: Final = 1_000_000
"""Where it may take more units of work to list all that is wrong, only the first is listed."""
_HEAVY_LISTED: Final = 30_000
"""Units from which on what is wrong is listed in another process where there is one: an error takes some microseconds,
and one of `anyOf` holds those of all its branches."""
_MOST_TRIED: Final = 10_000
"""Where it may look at one part of a value more often, only that something is."""


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


@dataclass(frozen=True, eq=False)
class Document:
    """A document, read once for all validators that it is for. Raises `ValueError` where it cannot be."""

    schema: Schema
    registry: Registry = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "registry", Registry([(ADDRESS, self.schema)]))

    @cached_property
    def text(self) -> str:
        """The document as JSON."""
        return json.dumps(self.schema)


@dataclass(frozen=True, eq=False)
class Checker:
    """The schema at a place of a document, ready to be applied. Raises `SchemaError` where it cannot be.

    `work` is what the document can take from where it is entered.
    """

    document: Document
    work: Work
    place: Path
    _validator: Draft202012Validator = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_validator", self._made())

    def is_valid(self, value: Any) -> bool:
        """Whether a value fits. Raises `ValueError` for one that is none of JSON."""
        return self._validator.is_valid(value)

    @cached_property
    def _masked(self) -> Draft202012Validator:
        """What says what is wrong with a secret value."""
        return self._made(MASK)

    def errors(self, value: Any, *, is_secret: bool = False) -> list[ValidationError]:
        """What is wrong with a value that does not fit, as far as it can be said; of a secret one, without it."""
        validator = self._masked if is_secret else self._validator
        if self.work.listing(value) <= _MOST_LISTED:
            return list(validator.iter_errors(value))
        try:
            if self.work.applications <= _MOST_TRIED:
                validator.validate(value)
        except ValidationError as error:
            return [error]
        return []

    def problems(self, value: Any, *at: str | int, known: Known = None) -> list[Problem]:
        """What the schema says against a value standing at a place, in a fixed order."""
        units = self.work.of(value)
        found: list[Problem] | None = None
        offloaded = OFFLOADED.get() if units <= MOST_WORK else None
        if offloaded is not None:
            if units <= HEAVY_WORK and self._plainly_fits(value):
                found = []
            elif (listing := self.work.listing(value)) > _HEAVY_LISTED:
                how = [self.place, astuple(self.work), at, None if known is None else [*known]]
                found = offloaded.of(how, self.document.text, value)
                if found is None:
                    return []  # the code that has entered `OFFLOADED` drops what is decided by this
                units = min(max(units, listing), MOST_WORK) if found else units
        if units and (meter := METER.get()) is not None:
            meter.units += min(units, MOST_WORK)
        if units > MOST_WORK:
            return [Problem(pointer(*at), EXCEEDED)]
        return self.verdict(value, *at, known=known) if found is None else found

    def verdict(self, value: Any, *at: str | int, known: Known = None) -> list[Problem]:
        """The same, whatever it takes."""
        try:
            if self._validator.is_valid(value):
                return []
            errors = self.errors(value, is_secret=known is not None)
        except ValueError as error:
            told = shortened(str(error)) if known is None else type(error).__name__
            return [Problem(pointer(*at), f"the value is not a JSON value: {told}")]
        if not errors:
            return [Problem(pointer(*at), "the value does not fit the schema")]
        return as_problems(errors, *at, known=known)

    def _plainly_fits(self, value: Any) -> bool:
        try:
            return self._validator.is_valid(value)
        except ValueError:
            return False

    def at(self, place: Path) -> Checker:
        """The schema at another place of the document."""
        return replace(self, place=place)

    def _made(self, mask: str | None = None) -> Draft202012Validator:
        try:
            return Draft202012Validator(
                {"$ref": ADDRESS + reference_to(self.place)},
                registry=self.document.registry,
                mask=mask,
                pattern_options=OPTIONS,
                validate_formats=False,
                offline=True,
            )
        except ValueError as error:
            raise schema_error(error) from None


def verdict_of(check: Check) -> list[Problem]:
    """What comes of a check that was asked for: the same, with the same words, as where it was asked for."""
    place, (levels, *work), at, known = json.loads(check.how)
    checker = Checker(_document(check.document), Work(tuple(levels), *work), tuple(place))
    return checker.verdict(json.loads(check.value), *at, known=known)


@lru_cache(maxsize=2)  # one may take a hundred megabytes
def _document(text: str) -> Document:
    return Document(json.loads(text))


def schema_error(error: ValueError) -> SchemaError:
    """What an error says of the schema that it is about."""
    if isinstance(error, ValidationError):
        return SchemaError(worded(error), tuple(error.instance_path))
    return error if isinstance(error, SchemaError) else SchemaError(str(error))


def worded(error: ValidationError) -> str:
    """What is wrong with a value."""
    message = error.message
    keyword: Any = next(reversed(error.schema_path), None)
    match error.kind:
        case ValidationErrorKind.FalseSchema():
            closed = f": only {_CLOSING[keyword]} the schema names are allowed" if keyword in _CLOSING else ""
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
