"""SPEC R2: references and expressions."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Context, ExpressionError, Reference, Unresolved, parse
from acts_celery.protocol.limits import MAX_REFERENCES, MAX_SEGMENTS
from acts_celery.protocol.references import parse_output_path

from .building import call, pointers, problems_of, run

CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "a": 1, "none": None, "user": {"first name": "Ann", "x.y": 2, "0": "zero", "": "empty"}},
    {"type": "state", "list": [{"k": "v"}, [10, 20]], "text": "†state.a", "deep": {"0": {"1": "digits"}}},
    {"type": "input", "b": 2},
]


def resolve(expression: str) -> Any:
    return Context(CONTEXT).resolve(expression)


# Grammar


@pytest.mark.parametrize(
    ("text", "kind", "path"),
    [
        ("†state", "state", ()),
        ("†state.user.id", "state", ("user", "id")),
        ("†état-2_b.x", "état-2_b", ("x",)),
        ("†state.list.0.k", "state", ("list", 0, "k")),
        ("†state.00.-1.1a", "state", ("00", "-1", "1a")),
        ('†state["first name"].x', "state", ("first name", "x")),
        ('†state["a.b"]["c"]', "state", ("a.b", "c")),
        ('†state["0"]', "state", ("0",)),
        (r'†state["q\"uo\\te A"]', "state", ('q"uo\\te A',)),
        ('†state["☃ ]"]', "state", ("☃ ]",)),
        ('†state[""]', "state", ("",)),
        ("†state.ключ.名", "state", ("ключ", "名")),
        ('†state.a"b', "state", ('a"b',)),
        ("†state.9999999999999999999999", "state", ("9999999999999999999999",)),
    ],
)
def test_r2_a_reference_is_a_kind_and_a_path(text: str, kind: str, path: tuple[str | int, ...]) -> None:
    assert parse(text).references == (Reference(kind, path),)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("†", 1),
        ("†.a", 1),
        ("†1a", 1),
        ("†_a", 1),
        ("† state", 1),
        ("††", 1),
        ("†state.", 7),
        ("†state..a", 7),
        ("†state.a b", 9),
        ("†state.a.", 9),
        ("†state.[", 7),
        ("†state[a]", 7),
        ("†state[0]", 6),
        ('†state["a"', 10),
        ('†state["a]', 7),
        (r'†state["\x"]', 7),
        ('†state["\n"]', 7),
        (r'†state["\ud800"]', 7),
        ("†a |", 3),
        ("†a | †b", 3),
        ("†a & †b", 3),
        ("†a ||", 5),
        ("†a || b", 6),
        ("†a && ", 6),
        ("|| †a", 0),
        ("†a †b", 3),
        ("†a†b", 2),
        ("†a)", 2),
        ("a", 0),
        ("", 0),
    ],
)
def test_r2_2_what_does_not_parse_is_an_error_saying_where_and_what_was_expected(text: str, position: int) -> None:
    with pytest.raises(ExpressionError) as error:
        parse(text)
    assert (error.value.text, error.value.position) == (text, position)
    assert error.value.expected
    assert error.value.expected in str(error.value)
    assert error.value.caret.splitlines()[1].index("^") == position


def test_r2_1_an_index_in_brackets_is_reported_how_it_is_written() -> None:
    (problem,) = problems_of(call(value="†state.l[10].x"))
    assert problem.message == (
        "'†state.l[10].x' does not parse: expected .10 (an element of a list, not [10]) at position 8"
    )
    assert problem.excerpt == "†state.l[10].x\n        ^"


@pytest.mark.parametrize("several", ["[*]", "[]", "[-1]", "[0:2]", "[:]", "[::2]"])
def test_r2_1_elements_of_a_list_as_other_systems_name_them_are_reported_with_what_there_is(several: str) -> None:
    (problem,) = problems_of(call(value=f"†state.l{several}.x"))
    assert problem.message == (
        f"'†state.l{several}.x' does not parse: expected the end (a list is read whole) or .0 (one element of it), "
        f"not {several} at position 8"
    )


def test_r2_an_error_far_inside_a_long_text_shows_only_what_is_around_it() -> None:
    with pytest.raises(ExpressionError) as error:
        parse("†state." + "a" * 5_000 + " b\n" + "c" * 5_000)
    assert error.value.position == 5_008
    first, second = error.value.caret.splitlines()
    assert len(first) < 80
    assert first[second.index("^")] == "b"


def test_r2_paths_and_expressions_have_a_longest_length() -> None:
    assert len(parse("†state" + ".a" * MAX_SEGMENTS).references[0].path) == MAX_SEGMENTS
    assert len(parse(" || ".join(["†state"] * MAX_REFERENCES)).references) == MAX_REFERENCES
    with pytest.raises(ExpressionError, match="segments"):
        parse("†state" + ".a" * (MAX_SEGMENTS + 1))
    with pytest.raises(ExpressionError, match="references"):
        parse(" && ".join(["†state"] * (MAX_REFERENCES + 1)))


# R2.1


@pytest.mark.parametrize("text", ["†a||†b&&†c", "†a || †b && †c", "  †a\n||\t†b  &&\u2003†c  "])
def test_r2_1_white_space_around_operators_is_free_and_and_binds_tighter_than_or(text: str) -> None:
    assert parse(text).alternatives == ((Reference("a"),), (Reference("b"), Reference("c")))


def test_r2_1_expressions_print_as_they_read() -> None:
    text = '†state.list.0["first name"] && †b || †c["0"]'
    assert str(parse(text)) == text


# R2.2


def test_r2_2_expressions_are_found_at_any_depth_of_objects_and_lists() -> None:
    value = {"a": [{"b": "†state.a"}, ["†input.b", "plain"]], "†state.a": "keys are not values"}
    result = run(call(to="†data.out", value=value), context=CONTEXT)
    expected = {"a": [{"b": 1}, [2, "plain"]], "†state.a": "keys are not values"}
    assert result.data[None]["data"]["out"] == expected


def test_r2_2_a_string_is_an_expression_only_when_it_starts_with_a_dagger() -> None:
    values = ["see †state.absent", " †state.absent", "†state.a", "state.a", "a || b"]
    result = run(call(to="†data.out", value=values), context=CONTEXT)
    assert result.data[None]["data"]["out"] == ["see †state.absent", " †state.absent", 1, "state.a", "a || b"]


@pytest.mark.parametrize(
    ("text", "literal"),
    [("††state.a", "†state.a"), ("††", "†"), ("†††", "††"), ("††† x", "†† x"), ("††††", "††"), ("a ††", "a †")],
)
def test_r2_2_two_daggers_are_the_escape_for_a_text_with_one(text: str, literal: str) -> None:
    result = run(call(to="†data.out", value={"in": [text]}))
    assert result.data[None]["data"]["out"] == {"in": [literal]}


def test_r2_2_a_bad_expression_is_a_structural_error_with_its_place() -> None:
    found = problems_of(call(a={"b/c": ["fine", {"~": "†state..x"}]}, d="†"), context=CONTEXT)
    assert pointers(found) == ["/solution/calls/0/a/b~1c/1/~0", "/solution/calls/0/d"]
    assert "†state..x" in found[0].message
    assert "position 7" in found[0].message


def test_r2_2_meta_properties_are_no_expressions() -> None:
    result = run({"_tool": "x", "_output": "†state.a", "_outputPath": "†data.out", "_note": "† bad"}, activities={})
    assert result.data[None]["data"]["out"] == "†state.a"


# R2.3


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("†state.a", 1),
        ('†state.user["first name"]', "Ann"),
        ('†state.user["x.y"]', 2),
        ('†state.user[""]', "empty"),
        ("†state.user.0", "zero"),
        ('†state.user["0"]', "zero"),
        ("†state.deep.0.1", "digits"),
        ("†state.list.0.k", "v"),
        ("†state.list.1.1", 20),
        ("†state.list.1", [10, 20]),
        ("†input", {"b": 2}),
        ("†state.none", None),
        ("†state.no || †input.b", 2),
        ("†state.a || †state.no", 1),
        ("†state.none || †input.b", None),
        ("†state.a && †input.b", 2),
        ("†input.b && †state.a", 1),
        ("†state.no && †state.a || †input.b", 2),
        ("†state.a && †state.no || †state.no || †input.b && †state.none", None),
    ],
)
def test_r2_3_the_first_alternative_whose_parts_all_exist_is_read_and_its_last_part_is_the_value(
    text: str, value: Any
) -> None:
    assert resolve(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "†state.no",
        "†none",
        "†state.a.b",
        "†state.none.b",
        "†state.list.2",
        "†state.list.k",
        '†state.list["0"]',
        "†state.text.0",
        "†state.a && †state.no",
        "†state.no || †none",
        "†State.a",
    ],
)
def test_r2_3_what_is_not_there_is_unresolved(text: str) -> None:
    with pytest.raises(Unresolved):
        resolve(text)


def test_r2_3_only_an_expression_can_be_resolved() -> None:
    for text in ("state.a", "††state.a", ""):
        with pytest.raises(ExpressionError):
            resolve(text)


def test_r2_3_what_is_read_is_a_copy() -> None:
    context = Context(CONTEXT)
    context.resolve("†state.list").append("changed")
    assert context.resolve("†state.list") == [{"k": "v"}, [10, 20]]


# R2.4


def test_r2_4_data_that_looks_like_a_reference_stays_text() -> None:
    calls = [
        call(to="†state.copy", value="†state.text"),
        call(to="†state.again", value=["†state.copy"]),
        call(to="†state.escaped", value="††state.a"),
        call(to="†state.last", value="†state.escaped"),
    ]
    state = run(*calls, context=CONTEXT).data[None]["state"]
    assert (state["copy"], state["again"]) == ("†state.a", ["†state.a"])
    assert (state["escaped"], state["last"]) == ("†state.a", "†state.a")


def test_r2_4_a_result_that_looks_like_an_escape_is_not_unescaped() -> None:
    state = run(call(to="†state.a", value="†††x"), call(to="†state.b", value="†state.a")).data[None]["state"]
    assert state == {"a": "††x", "b": "††x"}


# R2.5


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("user.name", "†state.user.name"),
        ("†data.x", "†data.x"),
        ('["first name"].x', '†state["first name"].x'),
        ("a || b && †data.c", "†state.a || †state.b && †data.c"),
        ("0", "†state.0"),
        ("state", "†state.state"),
        ("†state", "†state"),
    ],
)
def test_r2_5_a_path_without_a_dagger_is_a_path_inside_the_state(text: str, printed: str) -> None:
    assert str(parse_output_path(text)) == printed


@pytest.mark.parametrize("text", ["", " ", "a.", ".a", "a b", "††a", "a ||", "&& a", "a["])
def test_r2_5_a_bad_output_path_is_a_structural_error(text: str) -> None:
    assert pointers(problems_of(call(to=text))) == ["/solution/calls/0/_outputPath"]


def test_r2_5_and_writes_to_every_path_and_or_to_exactly_one() -> None:
    result = run(call(to="†state.a && †data.b", value=1), call(to="†state.c || †state.d", value=2))
    assert result.data[None] == {"state": {"a": 1, "c": 2}, "data": {"b": 1}}
