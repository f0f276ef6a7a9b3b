"""Laws of schema algebra: what is said never to fit, or never to be there, is so for every value (SPEC R4.1, R6.7)."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol.paths import MISSING, lookup
from acts_celery.protocol.references import Path
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.schemas.algebra import Algebra, is_empty

from .schema_strategies import schema_values, schemas

many_schemas = st.lists(schemas(), min_size=2, max_size=12)
segments: list[str | int] = ["a", "b", 0, 1]
paths: st.SearchStrategy[Path] = st.lists(st.sampled_from(segments), max_size=2).map(tuple)


def admitting(schemas: list[Any], value: Any) -> list[Any]:
    """The schemas that have nothing against a value."""
    return [schema for schema in schemas if not compiled(schema).problems(value)]


@given(many_schemas, schema_values)
def test_schemas_that_one_value_satisfies_fit_each_other(schemas: list[Any], value: Any) -> None:
    algebra = Algebra()
    for one, other in permutations(admitting(schemas, value), 2):
        assert algebra.fit(algebra.made_of(one), algebra.made_of(other))
        assert not is_empty(algebra.both(algebra.made_of(one), algebra.made_of(other)))


@given(many_schemas, many_schemas, schema_values, paths)
def test_a_value_inside_another_is_there_and_fits(
    outer: list[Any], inner: list[Any], value: Any, path: tuple[str | int, ...]
) -> None:
    algebra = Algebra()
    part = lookup(value, path)
    if part is MISSING:
        return
    for one in admitting(outer, value):
        inside = algebra.along(algebra.made_of(one), path)
        assert algebra.fit(algebra.only(part), inside)
        for other in admitting(inner, part):
            assert algebra.fit(inside, algebra.made_of(other))
            assert algebra.fit(algebra.made_of(other), inside)


@given(many_schemas, many_schemas, schema_values, paths)
def test_what_is_covered_by_a_schema_fits_it_whatever_it_is(
    outer: list[Any], inner: list[Any], value: Any, path: tuple[str | int, ...]
) -> None:
    algebra = Algebra()
    part = lookup(value, path)
    if part is MISSING:
        return
    for one in admitting(outer, value):
        inside = algebra.along(algebra.made_of(one), path)
        for other in inner:
            assert not algebra.covered(inside, other) or not compiled(other).problems(part)
