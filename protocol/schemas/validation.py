"""Validation: one schema of a document applied to values (SPEC R4.1, R4.6, R7.2).

`jsonschema_rs` validates, and never fetches anything. What a value has against it is asked for only where it does not
fit, and only as far as that is no work: an error holds what it is about.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, Registry, ValidationError

from protocol.language.errors import Problem, pointer, shortened
from protocol.language.references import Path

from .parts import SchemaError, reference_to
from .patterns import OPTIONS
from .wording import MASK, Known, as_problems, worded
from .work import EXCEEDED, MOST_WORK, Work

ADDRESS: Final = "schema:"
"""Under this address a validator finds the document that it is for."""
_MOST_LISTED: Final = 1_000_000
"""Where it may take more units of work to list all that is wrong, only the first is listed."""
_MOST_TRIED: Final = 10_000
"""Where it may look at one part of a value more often, only that something is."""


@dataclass(frozen=True, eq=False)
class Checker:
    """The schema at a place of a document, ready to be applied. Raises `SchemaError` where it cannot be.

    `work` is what the document can take from where it is entered.
    """

    registry: Registry
    work: Work
    place: Path
    _validator: Draft202012Validator = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_validator", self._made())

    def is_valid(self, value: Any) -> bool:
        """Whether a value fits. Raises `ValueError` for one that is none of JSON."""
        return self._validator.is_valid(value)

    def errors(self, value: Any, *, mask: str | None = None) -> list[ValidationError]:
        """What is wrong with a value that does not fit, as far as it can be said; with a mask, without the value."""
        validator = self._validator if mask is None else self._made(mask)
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
        if self.work.of(value) > MOST_WORK:
            return [Problem(pointer(*at), EXCEEDED)]
        try:
            if self._validator.is_valid(value):
                return []
            errors = self.errors(value, mask=None if known is None else MASK)
        except ValueError as error:
            told = shortened(str(error)) if known is None else type(error).__name__
            return [Problem(pointer(*at), f"the value is none that JSON has: {told}")]
        if not errors:
            return [Problem(pointer(*at), "the value does not fit the schema")]
        return as_problems(errors, *at, known=known)

    def at(self, place: Path) -> Checker:
        """The schema at another place of the document."""
        return replace(self, place=place)

    def _made(self, mask: str | None = None) -> Draft202012Validator:
        try:
            return Draft202012Validator(
                {"$ref": ADDRESS + reference_to(self.place)},
                registry=self.registry,
                mask=mask,
                pattern_options=OPTIONS,
                validate_formats=False,
                offline=True,
            )
        except ValueError as error:
            raise schema_error(error) from None


def schema_error(error: ValueError) -> SchemaError:
    """What an error says of the schema that it is about."""
    if isinstance(error, ValidationError):
        return SchemaError(worded(error), tuple(error.instance_path))
    return error if isinstance(error, SchemaError) else SchemaError(str(error))
