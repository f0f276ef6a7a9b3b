"""Validation: one schema of a document applied to values (SPEC R4.1, R4.6, R7.2).

`jsonschema_rs` validates, and never fetches anything. Errors are listed only for a value that does not fit, and only
where that takes little: each error holds a copy of what it is about.

Messages are those of jsonschema-rs, except where these are unclear. Neither the parts of a secret value nor the names
in it are shown, whichever keyword refuses it; the schema itself is no secret.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from contextvars import ContextVar, Token
from dataclasses import astuple, dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import pairwise, takewhile
from typing import Any, Final, NamedTuple

import jsonschema_rs
from jsonschema_rs import Draft202012Validator, Registry, ValidationError, ValidationErrorKind

from .. import limits
from ..errors import Problem, pointer, shortened
from ..paths import lookup, parts_of
from ..references import Expression, Path
from ..templates import Template
from . import walk
from .costs import EXCEEDED, HEAVY_WORK, METER, MOST_WORK, MOST_WORK_AT_SUBMISSION, Work, reading, work_of

# Offloaded checks: those that are too heavy for the process that runs the engine, and are made in another one.
#
# The core stays pure. Where the caller of the engine has entered `OffloadedChecks`, a heavy check is only noted, and
# counts as passed. The caller drops what was decided meanwhile, has the checks made, and decides again with their
# results. Checks are known by their texts, so that none is made twice.


class Check(NamedTuple):
    """A value to be validated: everything that the result depends on, as three texts of JSON, each of one line."""

    how: str
    """The schema's place in its document, its work, the value's place, and which names in the value may be shown."""
    document: str
    value: str


@dataclass(slots=True)
class OffloadedChecks:
    """The results of heavy checks, and those to be made; in force inside `with`, where nothing may be awaited."""

    found: dict[Check, list[Problem]] = field(default_factory=dict)
    asked: dict[Check, None] = field(default_factory=dict)
    """The checks that have to be made before any decision counts."""
    _bytes: int = 0
    _last: tuple[Any, str] = (None, "null")
    _token: Token[OffloadedChecks | None] | None = None

    def __enter__(self) -> None:
        self.asked, self._bytes = {}, 0
        self._token = OFFLOADED.set(self)

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        OFFLOADED.reset(self._token)
        self._last = None, "null"

    def of(self, how: list[Any], document: str, value: Any) -> list[Problem] | None:
        """The problems of a value; None where the check has to be made first."""
        if self._last[0] is not value:  # many schemas may be applied to one value
            self._last = value, json.dumps(value)
        check = Check(json.dumps(how), document, self._last[1])
        if (problems := self.found.get(check)) is not None:
            return problems
        if not self.asked or self._bytes + len(check.value) <= limits.MOST_BYTES:
            self.asked[check] = None
            self._bytes += len(check.value)
        return None


OFFLOADED: Final[ContextVar[OffloadedChecks | None]] = ContextVar("OFFLOADED", default=None)


ADDRESS: Final = "schema:"
"""The address under which a validator finds its document."""


MASK: Final = "the value"
"""Shown in place of a secret value."""
Known = Collection[object] | None
"""The names in a secret value that are known anyway and may be shown; None where the value is no secret."""
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
    """A document, read once for all its validators. Raises `ValueError` where it cannot be read."""

    schema: walk.Schema
    registry: Registry = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "registry", Registry([(ADDRESS, self.schema)]))

    @cached_property
    def text(self) -> str:
        """The document as JSON."""
        return json.dumps(self.schema)


@dataclass(frozen=True, eq=False)
class Checker:
    """The schema at a place of a document, ready to be applied. Raises `SchemaError` where it cannot be applied.

    `work` bounds the work of the whole document from where it is entered.
    """

    document: Document
    work: Work
    place: Path
    _validator: Draft202012Validator = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_validator", self._made())

    def is_valid(self, value: Any) -> bool:
        """Whether a value fits. Raises `ValueError` for one that JSON does not have."""
        return self._validator.is_valid(value)

    @cached_property
    def _masked(self) -> Draft202012Validator:
        """The validator whose messages do not show the value."""
        return self._made(MASK)

    def errors(self, value: Any, *, is_secret: bool = False) -> list[ValidationError]:
        """The errors of a value that does not fit, as far as listing them takes little."""
        validator = self._masked if is_secret else self._validator
        if self.work.listing(value) <= limits.VALIDATION_MOST_LISTED:
            return list(validator.iter_errors(value))
        try:
            if self.work.applications <= limits.VALIDATION_MOST_TRIED:
                validator.validate(value)
        except ValidationError as error:
            return [error]
        return []

    def problems(self, value: Any, *at: str | int, known: Known = None) -> list[Problem]:
        """The problems of a value at a place, in a fixed order, within the bounds on work."""
        units = self.work.of(value)
        found: list[Problem] | None = None
        offloaded = OFFLOADED.get() if units <= MOST_WORK else None
        if offloaded is not None:
            if units <= HEAVY_WORK and self._plainly_fits(value):
                found = []
            elif (listing := self.work.listing(value)) > limits.HEAVY_LISTED:
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
        """The problems of a value at a place, however much work that takes."""
        try:
            if self._validator.is_valid(value):
                return []
            errors = self.errors(value, is_secret=known is not None)
        except ValueError as error:
            why = shortened(str(error)) if known is None else type(error).__name__
            return [Problem(pointer(*at), f"the value is not a JSON value: {why}")]
        if not errors:
            return [Problem(pointer(*at), "the value does not fit the schema")]
        return as_problems(errors, *at, known=known)

    def _plainly_fits(self, value: Any) -> bool:
        try:
            return self._validator.is_valid(value)
        except ValueError:
            return False

    def at(self, place: Path) -> Checker:
        """The checker for another place of the document."""
        return replace(self, place=place)

    def _made(self, mask: str | None = None) -> Draft202012Validator:
        try:
            return Draft202012Validator(
                {"$ref": ADDRESS + walk.reference_to(self.place)},
                registry=self.document.registry,
                mask=mask,
                pattern_options=walk.OPTIONS,
                validate_formats=False,
                offline=True,
            )
        except ValueError as error:
            raise schema_error(error) from None


def verdict_of(check: Check) -> list[Problem]:
    """The result of an offloaded check, which is what a check in this process would find."""
    place, (levels, *work), at, known = json.loads(check.how)
    checker = Checker(_document(check.document), Work(tuple(levels), *work), tuple(place))
    return checker.verdict(json.loads(check.value), *at, known=known)


@lru_cache(maxsize=2)  # one may take a hundred megabytes
def _document(text: str) -> Document:
    return Document(json.loads(text))


def schema_error(error: ValueError) -> walk.SchemaError:
    """The error of a schema that jsonschema-rs does not take."""
    if isinstance(error, ValidationError):
        return walk.SchemaError(worded(error), tuple(error.instance_path))
    return error if isinstance(error, walk.SchemaError) else walk.SchemaError(str(error))


def worded(error: ValidationError) -> str:
    """The message of an error."""
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
    """The problems for errors of a value at a place, in a fixed order. `known` is given for a secret value.

    A pointer ends before the first name that may not be shown.
    """
    if known is None:
        return sorted({Problem(pointer(*at, *error.instance_path), shortened(worded(error))) for error in errors})
    problems = set[Problem]()
    for error in errors:
        path = error.instance_path
        named = {*known, *(name for keyword, name in pairwise(error.schema_path) if keyword == "properties")}
        shown = (isinstance(key, int) or key in named for key in path)
        named_path = path[: sum(takewhile(bool, shown))]
        below = "" if len(named_path) == len(path) else "below it, "
        problems.add(Problem(pointer(*at, *named_path), shortened(below + _redacted(error, known))))
    return sorted(problems)


def _redacted(error: ValidationError, known: Collection[object]) -> str:
    match error.kind:
        case ValidationErrorKind.AdditionalProperties(names) | ValidationErrorKind.UnevaluatedProperties(names):
            return worded(error) if {*names} <= {*known} else f"{MASK} has properties that are not admitted"
        case ValidationErrorKind.PropertyNames(inner):
            return f"a name in it is not admitted: {worded(inner)}"
    return worded(error)


# Leniency: values in which expressions may have any value, and templates may be any text (SPEC R4.1, R2.6).
#
# An error counts only where no values of the expressions could avoid it. The value is validated with null in place of
# each expression. An error then counts unless it is about an expression or, for a keyword that looks deeper (`const`,
# `not`, …), about a value that holds one, or an `if` about such a value led to it. A template is replaced by an empty
# text, and only its errors that hold for every text count. The rest is left to the check before the call runs.

CheckersAt = tuple[Checker, ...] | Problem
"""The checkers for a place in a value, or the problem if no value is admitted there."""
_LOOKING_DEEPER: Final = tuple(
    getattr(ValidationErrorKind, name)
    for name in ("Constant", "Contains", "Enum", "Not", "OneOfMultipleValid", "UniqueItems")
)
"""Kinds of errors that depend on the values inside an object or a list, not only on their names and number."""
_LEFT_OVER: Final = frozenset({"unevaluatedItems", "unevaluatedProperties"})
_INSIDE: Final = _LEFT_OVER | {
    *("properties", "patternProperties", "additionalProperties", "items", "prefixItems", "contains")
}
"""Keywords for the values inside an object or a list."""


def lenient_problems(
    checker: Checker, value: Any, checkers_at: Callable[[Path], CheckersAt], *at: str | int
) -> list[Problem]:
    """The problems of a value that are certain; `checkers_at` finds the checkers for a place in it."""
    known = _known(value)
    units = checker.work.of(known)
    if units > MOST_WORK_AT_SUBMISSION:
        return [Problem(pointer(*at), EXCEEDED)]
    if units > HEAVY_WORK and OFFLOADED.get() is not None:  # with expressions it is checked when the call is to run
        return [] if holds_expression(value) else checker.problems(known, *at)
    try:
        if checker.is_valid(known):
            return []
        if holds_expression(value):
            errors = [error for error in checker.errors(known) if _is_certain(error, value, checkers_at)]
            about = [lookup(value, tuple(error.instance_path)) for error in errors]
            plain = [error for error, part in zip(errors, about, strict=True) if not isinstance(part, Template)]
            texts = {
                pointer(*at, *error.instance_path): part
                for error, part in zip(errors, about, strict=True)
                if isinstance(part, Template)
            }
            return sorted([*as_problems(plain, *at), *(Problem(at, _no_text(part)) for at, part in texts.items())])
    except ValueError:
        pass  # `problems` says so
    return checker.problems(known, *at)


def _no_text(template: Template) -> str:
    """The message for a template where no text is admitted."""
    message = "a template is a text, and no text is admitted here"
    match template.parts:
        case [Expression() as expression]:
            return f"{message}: write {expression} for the value itself"
    return message


def holds_expression(value: Any) -> bool:
    """Whether a value contains an expression or a template."""
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


def _is_certain(error: ValidationError, value: Any, checkers_at: Callable[[Path], CheckersAt]) -> bool:
    """Whether an error remains whatever the expressions in a value are."""
    place = tuple(error.instance_path)
    about = lookup(value, place)
    if not _is_reached(error, value):
        return False
    match error.kind:
        case ValidationErrorKind.AnyOf(branches) | ValidationErrorKind.OneOfNotValid(branches):
            return all(any(_is_certain(inner, value, checkers_at) for inner in branch) for branch in branches)
        case ValidationErrorKind.UnevaluatedProperties() | ValidationErrorKind.UnevaluatedItems():
            keys: Any = about if isinstance(about, dict) else range(len(about))
            return any(_is_refused(about[key], checkers_at((*place, key))) for key in keys)
        case ValidationErrorKind.FalseSchema():
            return not (_LEFT_OVER.intersection(error.schema_path[-1:]) and holds_expression(about))
    if isinstance(about, Template):
        return isinstance(error.kind, ValidationErrorKind.Type)
    return not (holds_expression(about) if isinstance(error.kind, _LOOKING_DEEPER) else isinstance(about, Expression))


def _is_refused(value: Any, checkers: CheckersAt) -> bool:
    """Whether a value is refused whatever its expressions are."""
    if isinstance(checkers, Problem):
        return True
    return not holds_expression(value) and not all(checker.is_valid(value) for checker in checkers)


def _is_reached(error: ValidationError, value: Any) -> bool:
    """Whether the schema of an error is applied whatever the expressions are."""
    path, depth = iter(error.evaluation_path), 0
    for keyword in path:
        if keyword in ("then", "else") and holds_expression(lookup(value, tuple(error.instance_path[:depth]))):
            return False
        if keyword in walk.NAMED or keyword in walk.LISTED:  # a name or an index follows
            next(path, None)
        depth += keyword in _INSIDE
    return True


# Compilation: a schema is made ready once for all values that it is applied to (SPEC R4.1, R4.6).
#
# One schema is applied in three ways: to a value that is known whole; *leniently*, at submission, while a value holds
# expressions; and *at a path*, to what is written into a value that is still under way.

_KEPT: Final[dict[int | str, tuple[Any, CompiledSchema]]] = {}
"""Compiled schemas by text, and by the identity of the schema, which is kept so that no other gets its identity."""
_bytes_kept = 0
_OWN_SCHEMAS: Final = "https://json-schema.org/draft/2020-12/"
_DIALECT: Final = _OWN_SCHEMAS + "schema"


class CompiledSchema:
    """A schema and its validators. Raises `SchemaError` where the schema itself is wrong.

    `document` is the schema as jsonschema-rs takes it (see `normalized`). `entry` is the place of the part that is
    applied, if not the whole schema is; such a schema is normalized already. `applied` is that part.
    """

    def __init__(self, schema: walk.Schema, *, entry: Path = ()) -> None:
        if reading(schema).is_too_large():
            raise walk.SchemaError(f"{EXCEEDED}: it is too large to be read")
        try:  # it is read as of this dialect, and no address in it is opened
            schema = schema if entry else walk.modern(schema)
            jsonschema_rs.meta.validate({**schema, "$schema": _DIALECT} if isinstance(schema, dict) else schema)
            self.document = schema if entry else walk.normalized(schema)
            self.applied = walk.value_at(entry, self.document)
            reached = list(walk.reachable(self.document, entry))
            _check_references(reached, self.document)
            self.work = work_of(reached, self.document)
            self._whole = Checker(Document(self.document), self.work, entry)
        except ValueError as error:
            raise schema_error(error) from None
        self._places = {id(part): place for place, part in reached}
        self._checker = cache(self._whole.at)
        self._checkers_at = lru_cache(maxsize=limits.PATHS_KEPT)(self._looked_up)
        self.admits = lru_cache(maxsize=limits.PATHS_KEPT)(self._admits)

    def problems(self, value: Any, *at: str | int, lenient: bool = False, known: Known = None) -> list[Problem]:
        """The problems of a value at a place, in a fixed order.

        With `lenient`, expressions inside the value stand for any value.
        """
        if lenient:
            return lenient_problems(self._whole, value, self._checkers_at, *at)
        return self._whole.problems(value, *at, known=known)

    def problems_at(self, path: Path, value: Any, *at: str | int, known: Known = None) -> list[Problem]:
        """The problems of a value at a path inside a value of the schema."""
        checkers = self._checkers_at(path)
        if isinstance(checkers, Problem):
            is_above = pointer(*at).startswith(checkers.pointer)
            return [Problem(checkers.pointer if is_above else pointer(*at), checkers.message)]
        return sorted({problem for checker in checkers for problem in checker.problems(value, *at, known=known)})

    def checker(self, place: Path) -> Checker:
        """The checker for a place of the document."""
        return self._checker(place)

    def parts(self, path: Path) -> list[dict[str, Any]]:
        """The objects among the parts of the schema for a path, with those that they apply by `allOf`."""
        return walk.conjuncts(self.parts_at(path), self.document)

    def parts_at(self, path: Path) -> list[walk.Schema]:
        """The parts of the schema for a path."""
        return walk.parts_at(self.applied, path, self.document)

    def excerpt_at(self, path: Path) -> dict[str, Any] | None:
        """The part of the schema for a path, as a schema of its own; None where it has none."""
        parts = self.parts_at(path)
        objects = [part for part in parts if isinstance(part, dict) and part]
        if not objects or False in parts:
            return None
        return walk.excerpt(walk.all_of(objects), self.document)

    def _admits(self, path: Path, type_: str) -> bool:
        """Whether the types in the schema admit a value of a type at a path."""
        is_closed = isinstance(self._checkers_at(path), Problem)
        return not is_closed and all(walk.admits_type(part, type_) for part in self.parts(path))

    def _looked_up(self, path: Path) -> CheckersAt:
        for length, segment in enumerate(path):
            types = ("array", "object") if isinstance(segment, int) else ("object",)
            if not all(walk.admits_type(part, *types) for part in self.parts(path[:length])):
                return Problem(pointer(*path[:length]), f"the schema does not admit an {types[0]} here")
        parts = self.parts_at(path)
        if False in parts:
            return Problem(pointer(*path), "the schema admits nothing here")
        places = dict.fromkeys(self._places[id(part)] for part in parts if isinstance(part, dict))
        return tuple(map(self._checker, places))


def compiled(schema: walk.Schema) -> CompiledSchema:
    """The compiled form of a schema that does not change; equal schemas share one. Raises `SchemaError`."""
    global _bytes_kept
    kept = _KEPT.get(id(schema))
    if kept is not None and kept[0] is schema:
        return kept[1]
    try:
        text = json.dumps(schema, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise walk.SchemaError(str(error)) from None
    equal = _KEPT.get(text) or (text, CompiledSchema(json.loads(text)))
    _bytes_kept += limits.BYTES_EACH + reading(schema).bytes
    if _bytes_kept > limits.MOST_BYTES_KEPT:
        forget()
    _KEPT[text] = equal
    _KEPT[id(schema)] = schema, equal[1]
    return equal[1]


def forget() -> None:
    """Drop all compiled schemas."""
    global _bytes_kept
    _bytes_kept = 0
    _KEPT.clear()


def schema_problem(schema: Any, *at: str | int) -> Problem | None:
    """The problem of a schema at a place, if it has one."""
    if not isinstance(schema, (dict, bool)):
        return Problem(pointer(*at), "must be a JSON Schema: an object, true or false")
    try:
        compiled(schema)
    except walk.SchemaError as error:
        return Problem(pointer(*at, *error.path), f"not a JSON Schema: {shortened(error.message)}")
    return None


def _check_references(parts: Iterable[tuple[Path, dict[str, Any]]], document: walk.Schema) -> None:
    """Raise `SchemaError` where a reference of these parts of a document leads nowhere."""
    for place, part in parts:
        for keyword in walk.REFERENCES:
            reference = part.get(keyword, _OWN_SCHEMAS)
            if not reference.startswith(_OWN_SCHEMAS) and walk.referred(reference, document) is None:
                is_slip = walk.referred("#" + reference, document) is not None
                hint = f", did you mean '#{reference}'?" if is_slip else ""
                raise walk.SchemaError(f"{reference!r} is referred to, and is not in it{hint}", (*place, keyword))
