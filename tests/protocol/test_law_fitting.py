"""Laws of fitting: whatever is said never to fit, or never to be there, is so for every value (SPEC R4.1, R6.7)."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol.analysis.findings.cases import shape_at
from protocol.analysis.findings.fitting import misfit
from protocol.language.paths import MISSING, lookup
from protocol.language.references import Path
from protocol.schemas import compiled

from .schema_strategies import schema_values, schemas

many_schemas = st.lists(schemas(), min_size=2, max_size=12)
segments: list[str | int] = ["a", "b", 0, 1]
paths: st.SearchStrategy[Path] = st.lists(st.sampled_from(segments), max_size=2).map(tuple)


def admitting(schemas: list[Any], value: Any) -> list[Any]:
    """The schemas that have nothing against a value."""
    return [schema for schema in schemas if not compiled(schema).problems(value)]


@given(many_schemas, schema_values)
def test_schemas_that_one_value_satisfies_fit_each_other(schemas: list[Any], value: Any) -> None:
    for one, other in permutations(admitting(schemas, value), 2):
        assert misfit(shape_at(one), shape_at(other)) is None


@given(many_schemas, many_schemas, schema_values, paths)
def test_a_value_inside_another_is_there_and_fits(
    outer: list[Any], inner: list[Any], value: Any, path: tuple[str | int, ...]
) -> None:
    part = lookup(value, path)
    if part is MISSING:
        return
    for one in admitting(outer, value):
        shape = shape_at(one, path)
        assert not shape.is_impossible
        assert shape.admits(part)
        for other in admitting(inner, part):
            assert misfit(shape, shape_at(other)) is None
            assert misfit(shape_at(other), shape) is None
