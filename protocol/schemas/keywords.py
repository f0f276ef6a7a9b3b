"""Keywords: what those of JSON Schema say of a value that is not known whole (SPEC R4.1, R4.6).

*Leniently*, at submission, a value holds expressions: each stands in for any value, and the keywords whose outcome
could hinge on one inside (`not`, `if`, `const`, `enum`, …) give the benefit of the doubt.

*While it grows*, a value holds what `growth` marks. Judged is what is new, and what all of it says together: types,
names, `maxItems`, `maxProperties`, `maxLength`, `maxContains`, `uniqueItems`. Of what can still come nothing is said:
`required`, `dependentRequired`, `minItems`, `minProperties`, `minLength`, `minContains`, and `const`, `enum` and
`pattern` of what can still change. Of `anyOf` and `oneOf` one alternative must be possible, together with what is there
already. A `not` refuses what is sure to stay as it is, and an `if` decides once it is sure or impossible; until then
`then` or `else` must be possible. Sure is what types, `required` and the `properties` that are there make so.
Everything else (`$ref`, `$dynamicRef`, `allOf`, `dependentSchemas`) passes on to those.

Not enforced while a value grows: that *only* one alternative of `oneOf` fits. What any outcome of an `if` or of
`dependentSchemas` could speak of is not `unevaluated`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from protocol.language.references import Expression

from .bounds import KEYWORDS, BoundedValidator, Keyword, Validator
from .growth import Grown, GrownList, GrownObject
from .unevaluated import unevaluated_items, unevaluated_properties

# Leniently.


def _holds_expression(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_expression, value.values()))
    if isinstance(value, list):
        return any(map(_holds_expression, value))
    return isinstance(value, Expression)


def _accepting(keyword: Keyword) -> Keyword:
    """A keyword that has nothing against an expression."""

    def accepting(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if not isinstance(instance, Expression):
            yield from keyword(validator, limit, instance, schema)

    return accepting


def _doubting(keyword: Keyword, otherwise: Keyword | None = None) -> Keyword:
    """A keyword that holds a milder one, or none, against a value in which an expression could make the difference."""

    def doubting(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        applied = otherwise if _holds_expression(instance) else keyword
        if applied is not None:
            yield from applied(validator, limit, instance, schema)

    return doubting


_IN_PLACE: Final = frozenset({"allOf", "anyOf", "$ref", "$dynamicRef"})
"""Keywords that only pass a value on to other schemas."""
_DOUBTFUL: Final = frozenset({"not", "if", "const", "enum", "contains", "uniqueItems"})

LenientValidator: Final = extend(  # type: ignore[no-untyped-call]  # jsonschema leaves it untyped
    BoundedValidator,
    {name: _accepting(keyword) for name, keyword in KEYWORDS.items() if name not in _IN_PLACE}
    | {name: _doubting(KEYWORDS[name]) for name in _DOUBTFUL}
    | {"oneOf": _doubting(KEYWORDS["oneOf"], KEYWORDS["anyOf"])}
    | {
        "unevaluatedItems": _doubting(KEYWORDS["unevaluatedItems"], partial(unevaluated_items, undecided=("if",))),
        "unevaluatedProperties": _doubting(
            KEYWORDS["unevaluatedProperties"], partial(unevaluated_properties, undecided=("if",))
        ),
    },
)


# While it grows.


def _on_the_grown(name: str, keyword: Keyword, possible: Keyword) -> Keyword:
    """A keyword that says of a grown value whether it can be valid yet, or is sure to be."""

    def on_the_grown(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        applied = keyword
        if isinstance(instance, Grown):
            applied = _SURE.get(name, _unsure) if instance.is_sure else possible
        yield from applied(validator, limit, instance, schema)

    return on_the_grown


def _silent(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Nothing can be said yet."""
    return iter(())


def _unsure(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """What is true now need not stay so."""
    yield ValidationError("can still change")


def _of_the_new(keyword: Keyword) -> Keyword:
    """A keyword that looks at entries of an object: only the new ones."""

    def of_the_new(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, GrownObject):
            yield from keyword(validator, limit, instance.news(), schema)

    return of_the_new


def _new_items(validator: Validator, items: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    first = len(schema.get("prefixItems", ()))
    for index in instance.new if isinstance(instance, GrownList) else ():
        if index >= first:
            yield from validator.descend(instance[index], items, path=index)


def _new_prefix_items(validator: Validator, prefix: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    for index in instance.new if isinstance(instance, GrownList) else ():
        if index < len(prefix):
            yield from validator.descend(instance[index], prefix[index], path=index, schema_path=index)


def _new_unevaluated_items(validator: Validator, limit: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, GrownList):
        yield from unevaluated_items(
            validator, limit, instance.whole(), schema, undecided=_UNDECIDED, among=instance.new
        )


def _new_unevaluated_properties(
    validator: Validator, limit: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if isinstance(instance, GrownObject):
        yield from unevaluated_properties(
            validator, limit, instance.whole(), schema, undecided=_UNDECIDED, among=instance.new
        )


def _not_too_many(validator: Validator, contains: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    errors = KEYWORDS["contains"](validator, contains, instance, schema)
    yield from (error for error in errors if error.validator == "maxContains")


def _one_is_possible(validator: Validator, schemas: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    yield from KEYWORDS["anyOf"](validator, schemas, instance.whole(), schema)


def _is_not_sure(validator: Validator, refused: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    yield from KEYWORDS["not"](validator, refused, instance.whole(is_sure=True), schema)


def _as_decided(validator: Validator, condition: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """What follows from an `if`, or where that is open, that one of both can."""
    decided = validator.evolve(schema=condition)
    then, otherwise = schema.get("then", True), schema.get("else", True)
    if decided.is_valid(instance.whole(is_sure=True)):
        yield from validator.descend(instance, then, schema_path="then")
    elif not decided.is_valid(instance.whole()):
        yield from validator.descend(instance, otherwise, schema_path="else")
    else:
        yield from KEYWORDS["anyOf"](validator, [then, otherwise], instance, schema)


def _present(validator: Validator, properties: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """A property that is not there can still come, and be another."""
    yield from KEYWORDS["required"](validator, list(properties), instance, schema)
    yield from KEYWORDS["properties"](validator, properties, instance, schema)


_UNDECIDED: Final = ("if", "dependentSchemas")
"""Keywords that speak of other properties once more is known."""
_SURE: Final[Mapping[str, Keyword]] = {
    name: KEYWORDS[name] for name in (*_IN_PLACE, "type", "required", "minProperties")
} | {"properties": _present}
_POSSIBLE: Final[Mapping[str, Keyword]] = (
    dict.fromkeys(("required", "dependentRequired", "minItems", "minProperties", "minLength"), _silent)
    | dict.fromkeys(("const", "enum", "pattern"), _silent)
    | {
        name: _of_the_new(KEYWORDS[name])
        for name in (
            "properties",
            "patternProperties",
            "additionalProperties",
            "propertyNames",
        )
    }
    | {"items": _new_items, "prefixItems": _new_prefix_items, "contains": _not_too_many}
    | {"unevaluatedItems": _new_unevaluated_items, "unevaluatedProperties": _new_unevaluated_properties}
    | {"anyOf": _one_is_possible, "oneOf": _one_is_possible, "not": _is_not_sure, "if": _as_decided}
)

GrowingValidator: Final = extend(  # type: ignore[no-untyped-call]  # as above
    BoundedValidator,
    {name: _on_the_grown(name, keyword, _POSSIBLE.get(name, keyword)) for name, keyword in KEYWORDS.items()},
)
