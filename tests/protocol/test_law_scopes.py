"""Laws of scopes (SPEC R8): what is given out lies inside the scopes, and what lies inside is given out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Context, Reference
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.state.scopes import scoped, scoped_messages

from . import naive
from .laws import folded, law
from .strategies import SMALL_PATHS, small_paths, small_values

SCOPES = ("state", "data", "†state.a", "†state.b", "†state.a.a", "†data.a.0", "†data.b", "†state.0", '†state["a b"]')


def _marked(number: int, kind: str, path: tuple[str | int, ...]) -> dict[str, Any]:
    """A message whose values are marks of its own, so that one knows them again wherever they turn up."""
    value: Any = {"a": f"mark {number} a", "b": [f"mark {number} b"]}
    for segment in reversed(path):
        value = {str(segment): value}
    return {"type": "data", "kind": kind, "data": value}


_places = st.sampled_from([(kind, path) for kind in ("state", "data") for path in SMALL_PATHS])


@law
@given(
    st.lists(st.tuples(st.sampled_from([None, "①", "②"]), _places), max_size=8),
    st.lists(st.sampled_from(SCOPES), max_size=3),
    st.sampled_from([None, "①"]),
)
def test_scoped_output_never_holds_a_value_from_outside_the_scopes(
    written: list[tuple[str | None, tuple[str, tuple[str | int, ...]]]], scopes: list[str], reader: str | None
) -> None:
    context = Context()
    for number, (name, place) in enumerate(written):
        message = _marked(number, *place)
        context.append(message if name is None else {**message, "_instance": name})
    places = [naive.place(scope if scope.startswith("†") else f"†{scope}") for scope in scopes]
    allowed = {mark for place in places for mark in _marks(naive.found(context.data(reader), place))}
    references = [Reference(kind, path) for kind, path in places]
    assert set(_marks(context.scoped(scopes, instance=reader))) == allowed
    assert set(_marks(scoped_messages(context.fold(reader), references))) == allowed


def _marks(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("mark "):
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _marks(item)


@given(
    st.dictionaries(st.sampled_from(["state", "data"]), small_values),
    st.lists(st.builds(Reference, st.sampled_from(["state", "data", "input"]), small_paths), max_size=4),
)
def test_a_scoped_context_holds_what_is_at_the_scopes_and_nothing_from_outside(
    values: dict[str, Any], scopes: list[Reference]
) -> None:
    fold = folded([{"type": kind, "data": value} for kind, value in values.items()])
    given_out = scoped(fold, scopes)
    for leaf in _leaves(given_out):
        if leaf:
            assert any(leaf[: len(scope.key)] == scope.key for scope in scopes), "inside a scope"
            here, there = naive.found(given_out, _place(leaf)), naive.found(values, _place(leaf))
            assert here == there, "and the same as in the context"
    for scope in scopes:
        if (value := fold.value(scope)) is not MISSING:
            place = _place(tuple(map(str, scope.key)))
            assert naive.found(given_out, place) == value, "whatever is at a scope is given"


def _leaves(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, (dict, list)) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(item, (*at, str(key)))
    else:
        yield at


def _place(key: tuple[str, ...]) -> naive.Place:
    return key[0], tuple(int(part) if naive.INDEX.fullmatch(part) else part for part in key[1:])
