"""Unevaluated: what of an object or a list no other keyword has spoken of (draft 2020-12, core 11).

Spoken of by a schema is what its own keywords name, and what the schemas name that it applies at the same place:
`$ref`, `allOf`, those of `anyOf` and `oneOf` that fit, what `if` decides. Where a value is not known whole, the outcome
of some of these is open (`undecided`), and all that could be spoken of counts as if it were.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from jsonschema.exceptions import ValidationError

from .calls import WholeCall, as_it_stands
from .patterns import names_matching
from .steps import count

_Speaks = Callable[[Any, Any, Any], Iterator[Any]]
"""Of a validator, a value and a schema: the names or indexes that the schema itself speaks of."""


def unevaluated_properties(
    validator: Any,
    limit: Any,
    instance: Any,
    schema: Any,
    *,
    undecided: Collection[str] = (),
    among: Collection[str] | None = None,
) -> Iterator[ValidationError]:
    """The keyword, for all properties or those `among` them; `undecided` are keywords whose outcome is open."""
    if not isinstance(instance, dict):
        return
    spoken_of = set(_all_spoken_of(validator, instance, schema, _properties, undecided))
    all_ = instance.parameters if isinstance(instance, WholeCall) else instance
    left = [name for name in (all_ if among is None else among) if name not in spoken_of]
    yield from _errors(validator, limit, {name: instance[name] for name in left}, "properties")


def unevaluated_items(
    validator: Any,
    limit: Any,
    instance: Any,
    schema: Any,
    *,
    undecided: Collection[str] = (),
    among: Collection[int] | None = None,
) -> Iterator[ValidationError]:
    """The keyword, for all elements or those `among` them; `undecided` are keywords whose outcome is open."""
    if not isinstance(instance, list):
        return
    spoken_of = set(_all_spoken_of(validator, instance, schema, _items, undecided))
    left = [index for index in (range(len(instance)) if among is None else among) if index not in spoken_of]
    yield from _errors(validator, limit, {index: instance[index] for index in left}, "items")


def _errors(validator: Any, limit: Any, left: dict[Any, Any], what: str) -> Iterator[ValidationError]:
    if limit is False:
        if left:
            told = ", ".join(map(repr, left))
            were = "was" if len(left) == 1 else "were"
            yield ValidationError(f"Unevaluated {what} are not allowed ({told} {were} unexpected)")
        return
    for name, item in left.items():
        yield from validator.descend(item, limit, path=name)


def _all_spoken_of(
    validator: Any, instance: Any, schema: Any, speaks: _Speaks, undecided: Collection[str], *, is_part: bool = False
) -> Iterator[Any]:
    if isinstance(schema, bool):
        return
    count(1)
    if is_part and ("unevaluatedProperties" if speaks is _properties else "unevaluatedItems") in schema:
        yield from instance if speaks is _properties else range(len(instance))
        return
    yield from speaks(validator, instance, schema)
    for own, part in _parts(validator, instance, schema, undecided):
        yield from _all_spoken_of(own, instance, part, speaks, undecided, is_part=True)


def _properties(validator: Any, instance: Any, schema: Any) -> Iterator[str]:
    if "additionalProperties" in schema:
        yield from instance
        return
    yield from schema.get("properties", ())
    yield from (name for name, _ in names_matching(schema.get("patternProperties", ()), instance))


def _items(validator: Any, instance: Any, schema: Any) -> Iterator[int]:
    if "items" in schema:
        yield from range(len(instance))
        return
    yield from range(len(schema.get("prefixItems", ())))
    if "contains" in schema:
        matching = validator.evolve(schema=schema["contains"])
        yield from (index for index, item in enumerate(instance) if matching.is_valid(item))


def _parts(validator: Any, instance: Any, schema: Any, undecided: Collection[str]) -> Iterator[tuple[Any, Any]]:
    """The schemas applied at the same place, as far as they fit, each with a validator at home in its document."""
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            resolved = validator._resolver.lookup(schema[keyword])  # jsonschema has no public way
            own = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
            yield own, resolved.contents
    for part in schema.get("allOf", ()):
        yield validator, part
    for keyword in ("anyOf", "oneOf"):
        for part in schema.get(keyword, ()):
            if validator.evolve(schema=part).is_valid(instance):
                yield validator, part
    for name, part in schema.get("dependentSchemas", {}).items() if isinstance(instance, dict) else ():
        if name in instance or "dependentSchemas" in undecided:
            yield validator, part
    if "if" in schema:
        fits = validator.evolve(schema=schema["if"]).is_valid(as_it_stands(instance))
        if fits:
            yield validator, schema["if"]
            yield validator, schema.get("then", True)
        if not fits or "if" in undecided:
            yield validator, schema.get("else", True)
