"""Validation: one schema of a document applied to values (SPEC R4.1, R4.6, R7.2).

`jsonschema_rs` validates, and never fetches anything. What a value has against it is asked for only where it does not
fit, and only as far as that is no work: an error holds what it is about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from jsonschema_rs import Draft202012Validator, Registry, ValidationError

from protocol.language.errors import Problem, pointer, shortened
from protocol.language.references import Path

from .parts import found, joined, reference_to
from .patterns import OPTIONS
from .wording import MASK, redacted, worded
from .work import EXCEEDED, MOST_WORK, Work

ADDRESS: Final = "schema:"
"""Under this address a validator finds the document that it is for."""
_MOST_LISTED: Final = 1_000_000
"""Where it may take more units of work to list all that is wrong, only the first is listed."""
_MOST_TRIED: Final = 10_000
"""Where it may look at one part of a value more often, only that something is."""

_LONGEST: Final = 1_000


class SchemaError(ValueError):
    """This is no schema, or one that cannot be applied; `path` says where in it."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


@dataclass(frozen=True, eq=False)
class Document:
    """A whole schema, ready for jsonschema-rs: `root`, where to find it, and what it can take."""

    root: Any
    work: Work
    registry: Registry


@dataclass(frozen=True, eq=False)
class Checker:
    """The schema at a place of a document, ready to be applied. Raises `SchemaError` where it cannot be."""

    document: Document
    place: Path
    _validator: Draft202012Validator = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_validator", self._made())

    @property
    def work(self) -> Work:
        """What it can take."""
        return self.document.work

    @cached_property
    def examples(self) -> tuple[Any, ...]:
        """Some values that it may have been made for."""
        return tuple(_examples(found(self.place, self.document.root), self.document.root))

    def is_valid(self, value: Any) -> bool:
        """Whether a value fits. Raises `ValueError` for one that is none of JSON."""
        return self._validator.is_valid(value)

    def errors(self, value: Any, *, mask: str | None = None) -> list[ValidationError]:
        """What is wrong with a value that does not fit, as far as it can be said; with a mask, without the value."""
        validator = self._validator if mask is None else self._made(mask)
        if self.work.listing(value) <= _MOST_LISTED:
            return list(validator.iter_errors(value))
        if self.work.applications > _MOST_TRIED:
            return []
        try:
            validator.validate(value)
        except ValidationError as error:
            return [error]
        return []

    def problems(
        self, value: Any, *at: str | int, is_secret: bool = False, known: Collection[object] = ()
    ) -> list[Problem]:
        """What the schema says against a value standing at a place, in a fixed order.

        What is said of a secret value holds nothing of it but those of its names that are `known` anyway.
        """
        if self.work.of(value) > MOST_WORK:
            return [Problem(pointer(*at), EXCEEDED)]
        try:
            if self._validator.is_valid(value):
                return []
            errors = self.errors(value, mask=MASK if is_secret else None)
        except ValueError as error:
            told = type(error).__name__ if is_secret else shortened(str(error))
            return [Problem(pointer(*at), f"the value is none that JSON has: {told}")]
        if not errors:
            return [Problem(pointer(*at), "the value does not fit the schema")]
        if is_secret:
            return sorted({redacted(error, *at, known=known) for error in errors})
        return as_problems(errors, *at)

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
        except ValidationError as error:
            raise SchemaError(worded(error), tuple(error.instance_path)) from None
        except ValueError as error:
            raise SchemaError(str(error)) from None


def as_problems(errors: list[ValidationError], *at: str | int) -> list[Problem]:
    """The errors in a value standing at a place, in a fixed order."""
    return sorted({Problem(pointer(*at, *error.instance_path), shortened(worded(error))) for error in errors})


def _examples(schema: Any, root: Any) -> Iterator[Any]:
    for part in joined((schema,), root):
        if isinstance(part, dict):
            yield from (part[keyword] for keyword in ("const", "default", "minimum", "maximum") if keyword in part)
            yield from part.get("enum", ())[:1]
            yield from part.get("examples", ())[:1]
            yield from (part[keyword] + 1 for keyword in ("exclusiveMinimum",) if keyword in part)
            yield "x" * min(part.get("minLength", 0), _LONGEST)
