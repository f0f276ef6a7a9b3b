"""Laws of the core, tested on generated data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol import Conflict, Context, ExpressionError, Reference, check_submission, parse
from protocol.messages import read_data, render_data
from protocol.operations import read_operation
from protocol.paths import MISSING, lookup, nest, unnest
from protocol.references import Expression, parse_output_path
from protocol.resolution import Fold
from protocol.schemas import CompiledSchema
from protocol.scopes import scoped

from . import naive
from .building import FUNCTIONS, call, run, submission
from .driver import Driver
from .strategies import (
    expressions,
    json_values,
    kinds,
    log_messages,
    references,
    schema_values,
    schemas,
    small_paths,
    small_values,
    texts,
)

PLACES = [
    Reference(kind, path) for kind in ("state", "data") for path in ((), ("a",), ("a", "b"), ("a", 0), ("b", "0"), (0,))
]


def folded(messages: Sequence[Mapping[str, Any]], base: Fold | None = None) -> Fold:
    """A fold that was fed everything before anybody looked."""
    fold = Fold(base)
    for position, message in enumerate(messages):
        fold.append(message, f"message {position}")
    return fold


def shown(fold: Fold) -> Any:
    """All that a reader can learn from a fold."""
    return fold.snapshot(), sorted(map(str, fold.conflicts())), [_read(fold, place) for place in PLACES]


def _read(fold: Fold, place: Reference) -> Any:
    try:
        return fold.value(place)
    except Conflict as conflict:
        return str(conflict)


# R3: folding


@given(st.lists(log_messages, max_size=8))
def test_folding_step_by_step_is_folding_all_at_once_at_every_prefix(messages: list[dict[str, Any]]) -> None:
    before = json.dumps(messages)
    fold = Fold()
    for position, message in enumerate(messages):
        fold.append(message, f"message {position}")
        assert shown(fold) == shown(folded(messages[: position + 1]))
    assert json.dumps(messages) == before, "no message is changed"


@given(st.lists(log_messages, max_size=8))
def test_folding_is_applying_each_operation_to_a_copy(messages: list[dict[str, Any]]) -> None:
    steps: list[naive.Step] = []
    fold = Fold()
    for position, message in enumerate(messages):
        operation = read_operation(message, "message")
        assert operation is not None
        step = naive.Step((operation.place.kind, operation.place.path), operation.method, operation.value)
        try:
            naive.folded([*steps, step])
        except naive.Misfit:
            assert _conflicts(fold, operation)
            continue
        assert not _conflicts(fold, operation)
        steps.append(step)
        fold.append(message, f"message {position}")
        assert fold.snapshot() == naive.folded(steps)


def _conflicts(fold: Fold, operation: Any) -> bool:
    try:
        fold.verify(operation)
    except Conflict:
        return True
    return False


@given(st.lists(st.tuples(st.booleans(), log_messages), max_size=8), st.lists(st.booleans(), max_size=8))
def test_an_instances_values_are_its_own_operations_on_top_of_the_global_ones_whenever_they_came(
    arrivals: list[tuple[bool, dict[str, Any]]], looks: list[bool]
) -> None:
    shared = Fold()
    mine = Fold(shared)
    for (is_global, message), looking in zip(arrivals, [*looks, *[False] * len(arrivals)], strict=False):
        (shared if is_global else mine).append(message, "message")
        if looking:
            mine.snapshot()
    general = [message for is_global, message in arrivals if is_global]
    special = [message for is_global, message in arrivals if not is_global]
    afresh = Fold()
    for message in [*general, *special]:
        afresh.append(message, "message")
    assert shown(mine) == shown(afresh)
    assert shown(shared)[0] == folded(general).snapshot()


@given(st.lists(st.tuples(st.sampled_from([None, "①", "②"]), log_messages), max_size=8))
def test_instances_are_isolated(arrivals: list[tuple[str | None, dict[str, Any]]]) -> None:
    messages = [message if name is None else {**message, "_instance": name} for name, message in arrivals]
    for reader in (None, "①", "②"):
        visible = [message for message in messages if message.get("_instance") in (None, reader)]
        assert Context(messages).data(reader) == Context(visible).data(reader)


@given(st.lists(log_messages, max_size=6), log_messages)
def test_a_conflict_touches_nothing_beside_its_place(messages: list[dict[str, Any]], last: dict[str, Any]) -> None:
    operation = read_operation(last, "message")
    assert operation is not None
    before, after = folded(messages), folded([*messages, last])
    if _conflicts(before, operation):
        assert after.snapshot() == before.snapshot()
        for place in PLACES:
            if not place.overlaps(operation.place):
                assert _read(after, place) == _read(before, place)


# R2: references


@given(expressions)
def test_parsing_what_was_printed_gives_the_same_expression(expression: Expression) -> None:
    assert parse(str(expression)) == expression
    assert parse_output_path(str(expression)) == expression
    assert str(parse(str(expression))) == str(expression)


@given(expressions)
def test_the_parser_agrees_with_a_reader_of_its_own(expression: Expression) -> None:
    assert naive.places(str(expression)) == [[(r.kind, r.path) for r in group] for group in expression.alternatives]


@given(st.text("†ab.0[]\"\\ |&u d8'", max_size=12))
def test_a_text_either_parses_and_prints_the_same_again_or_is_an_error_with_a_place_in_it(text: str) -> None:
    for parser in (parse, parse_output_path):
        try:
            expression = parser(text)
        except ExpressionError as error:
            position = error.position
        else:
            assert parser(str(expression)) == expression
            position = len(text)
        assert 0 <= position <= len(text)


@given(json_values, references)
def test_a_value_nested_at_a_path_is_found_there(value: Any, reference: Reference) -> None:
    nested = nest(value, reference.path)
    assert lookup(nested, reference.path) == value
    assert unnest(nested, reference.path) == value


@given(small_values, small_paths)
def test_looking_up_is_going_step_by_step(value: Any, path: tuple[str | int, ...]) -> None:
    assert (lookup(value, path) is MISSING) is (naive.found({"k": value}, ("k", path)) is naive.NOTHING)


@given(references, references)
def test_overlapping_is_mutual_and_means_that_one_path_begins_the_other(one: Reference, other: Reference) -> None:
    assert one.overlaps(other) is other.overlaps(one)
    assert one.overlaps(one)
    assert one.overlaps(other) is naive.overlap((one.kind, one.path), (other.kind, other.path))


@given(json_values)
def test_data_is_never_resolved_whatever_it_looks_like(value: Any) -> None:
    calls = [call(to="†state.copy", value="†input.v"), call(to="†state.again", value={"in": ["†state.copy"]})]
    result = run(*calls, context=[{"type": "input", "input": {"v": value}}, {"type": "state", "a": "secret"}])
    assert result.data[None]["state"] == {"a": "secret", "copy": value, "again": {"in": [value]}}


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return "†" + value if value.startswith("†") else value
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return {key: _escaped(item) for key, item in value.items()} if isinstance(value, dict) else value


@given(json_values)
def test_every_value_can_be_written_as_a_literal_parameter(value: Any) -> None:
    assert run(call(to="†state.v", value=_escaped(value))).data[None]["state"] == {"v": value}


# R1: messages


@given(kinds, json_values)
def test_reading_what_was_rendered_gives_kind_and_payload_back(kind: str, payload: Any) -> None:
    data = read_data(json.loads(json.dumps(render_data(kind, payload))))
    assert data is not None
    assert (data.kind, data.payload) == (kind, payload)


@given(st.dictionaries(texts, json_values, max_size=3))
def test_an_object_renders_flat_or_whole_and_reads_the_same(payload: dict[str, Any]) -> None:
    for kind in ("state", "input"):
        assert Context([render_data(kind, payload)]).data() == {kind: payload}


# R8: scopes


def _leaves(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, (dict, list)) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(item, (*at, str(key)))
    else:
        yield at


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


def _place(key: tuple[str, ...]) -> naive.Place:
    return key[0], tuple(int(part) if naive.INDEX.fullmatch(part) else part for part in key[1:])


# R4.1: schemas


@given(schemas(), schema_values)
def test_without_expressions_leniency_changes_nothing(schema: Any, value: Any) -> None:
    compiled = CompiledSchema(schema)
    assert compiled.problems(value, lenient=True) == compiled.problems(value)


@given(schemas(), schema_values, st.randoms(use_true_random=False))
def test_what_some_values_make_valid_is_admitted_while_expressions_stand_for_them(
    schema: Any, value: Any, random: Random
) -> None:
    compiled = CompiledSchema(schema)
    if not compiled.problems(value):
        assert not compiled.problems(_with_expressions(value, random), lenient=True)


def _with_expressions(value: Any, random: Random) -> Any:
    if random.random() < 0.3:
        return parse("†state.x")
    if isinstance(value, dict):
        return {key: _with_expressions(item, random) for key, item in value.items()}
    return [_with_expressions(item, random) for item in value] if isinstance(value, list) else value


@given(schemas(), schema_values, st.randoms(use_true_random=False))
def test_what_is_valid_when_complete_is_admitted_while_properties_are_missing(
    schema: Any, value: Any, random: Random
) -> None:
    compiled = CompiledSchema(schema)
    if not compiled.problems(value):
        assert not compiled.problems(_partly(value, random), partial=True)


def _partly(value: Any, random: Random) -> Any:
    if isinstance(value, dict):
        return {key: _partly(item, random) for key, item in value.items() if random.random() < 0.7}
    return value


# R6: order


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=7), st.integers(0, 2**32))
def test_every_allowed_order_gives_the_same_where_no_independent_calls_write_overlapping_paths(
    shape: list[tuple[int, bool]], seed: int
) -> None:
    calls = []
    for index, (read, is_branch) in enumerate(shape):
        value = (
            f"†state.k{read}.no || †state.k{read} || †input.i" if read < len(shape) and read != index else "†input.i"
        )
        to = f"†state.k{index} || †data.k{index}" if is_branch else f"†state.k{index}"
        calls.append(call("fail" if read == 5 else "give", to=to, value=value))
    submitted = submission(*calls, context=[{"type": "input", "i": 0}])
    if naive.faults(submitted):
        return
    plan = check_submission(submitted)
    orderly = Driver(plan, FUNCTIONS).run()
    shuffled = Driver(plan, FUNCTIONS, random=Random(seed)).run()
    assert shuffled.statuses == orderly.statuses
    assert _without_errors(shuffled.data[None]) == _without_errors(orderly.data[None])


def _without_errors(data: Mapping[str, Any]) -> dict[str, Any]:
    return {kind: value for kind, value in data.items() if kind != "error"}
