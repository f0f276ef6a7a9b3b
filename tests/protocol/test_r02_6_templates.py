"""SPEC R2.6, R2.2: texts with values in them."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Expression, ExpressionError, parse
from acts_celery.protocol.templates import Template, escaped, meaning

from .building import call, pointers, problems_of, run, statuses

CONTEXT: list[dict[str, Any]] = [
    {
        "type": "state",
        "a": 1,
        "none": None,
        "name": "Ann †state.a †{state.a}",
        "user": {"x}y": [1.5, "é", {"k": True}]},
    },
    {"type": "input", "b": ""},
]


def value_of(text: Any, *calls: dict[str, Any], context: list[dict[str, Any]] | None = None) -> Any:
    result = run(call(to="†data.out", value=text), *calls, context=CONTEXT if context is None else context)
    return result.data[None]["data"]["out"]


# Grammar


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("†{state.a}", ("†state.a",)),
        ("a †{state.a}, b", ("a ", "†state.a", ", b")),
        ("†{state.a}†{input}", ("†state.a", "†input")),
        ("†{ state.a||input.b && state }", ("†state.a || †input.b && †state",)),
        ('†{state["x}y"].0}}', ('†state["x}y"].0', "}")),
        ("†{état-2_b.{x}", ("†état-2_b.{x",)),
        ("†††{state.a}††{state.a}", ("†", "†state.a", "†{state.a}")),
        ("a† †{state}", ("a† ", "†state")),
    ],
)
def test_r2_6_a_template_is_literal_texts_and_expressions_without_daggers(text: str, parts: tuple[str, ...]) -> None:
    found = meaning(text)
    assert isinstance(found, Template)
    assert tuple(map(str, found.parts)) == parts
    assert meaning(str(found)) == found
    assert found.expressions == tuple(parse(str(part)) for part in found.parts if isinstance(part, Expression))


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("†{", 2, "a kind"),
        ("†{}", 2, "a kind"),
        ("see †{†state.a}", 6, "without †"),
        ("†{state.a", 9, '"}"'),
        ("†{state.a} and †{state.b or it}", 25, '"}"'),
        ("†{state.a || }", 13, "a kind"),
        ("†{state.a.}", 10, "a segment"),
        ("†{state[0]}", 7, ".0"),
        ('†{state["a}', 8, "in double quotes"),
        ("†{state.a}†{1}", 12, "a kind"),
    ],
)
def test_r2_6_one_that_does_not_parse_says_where_and_what_was_expected(text: str, position: int, expected: str) -> None:
    with pytest.raises(ExpressionError) as error:
        meaning(text)
    assert (error.value.text, error.value.position) == (text, position)
    assert expected in error.value.expected


def test_r2_6_it_is_a_structural_error_with_its_place() -> None:
    found = problems_of(call(a={"b": ["fine", "so †{state..x}"]}, c="†{state.a}"), context=CONTEXT)
    assert pointers(found) == ["/solution/calls/0/a/b/1"]
    assert found[0].excerpt == "so †{state..x}\n           ^"


@pytest.mark.parametrize("text", ["††{state.a}", "{state.a}", "a† {state.a}", "${state.a}", "††††{state.a}"])
def test_r2_6_without_an_unescaped_opening_it_is_a_text(text: str) -> None:
    assert value_of(text, context=[]) == text.replace("††", "†")


@pytest.mark.parametrize("text", ["", "†", "††", "a † b", "†{state.a}", "†††{", "x††"])
def test_r2_2_any_text_can_be_escaped(text: str) -> None:
    assert meaning(escaped(text)) == text


# Values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("†{state.a}", "1"),
        ("a †{state.a}.", "a 1."),
        ("[†{state.none}]", "[null]"),
        ("<†{input.b}>", "<>"),
        ('†{state.user["x}y"]}', '[1.5,"é",{"k":true}]'),
        ("†{state.no || state.a}", "1"),
        ("†{state.a && input.b}", ""),
        ("†{state.name}", "Ann †state.a †{state.a}"),
        ("††{state.a} †{state.a}††", "†{state.a} 1†"),
        ({"in": ["†{state.a}", "†state.a"], "†{state.a}": 0}, {"in": ["1", 1], "†{state.a}": 0}),
    ],
)
def test_r2_6_a_text_is_put_in_as_it_is_and_any_other_value_as_compact_json(text: Any, value: Any) -> None:
    assert value_of(text) == value


def test_r2_6_meta_properties_are_no_templates() -> None:
    thought = {"_tool": "x", "_output": "†{state.a}", "_outputPath": "†data.out", "_reasoningForCall": "†{ bad"}
    assert run(thought, activities={}).data[None]["data"]["out"] == "†{state.a}"


@pytest.mark.parametrize(
    ("properties", "at"),
    [
        ({"_outputPath": "†{state.a}"}, "_outputPath"),
        ({"_scopes": ["†{state.a}"]}, "_scopes/0"),
        ({"_each": "value"}, "_each"),
    ],
)
def test_r2_6_a_path_a_scope_and_the_list_of_each_are_no_templates(properties: dict[str, Any], at: str) -> None:
    found = problems_of(call(value="†{state.a}", **properties), context=CONTEXT)
    assert pointers(found) == [f"/solution/calls/0/{at}"]


# What it waits for


def test_r2_6_it_waits_for_everything_that_it_reads_also_listed_later() -> None:
    calls = [
        call(to="†data.out", value="†{state.x} and †{state.y}"),
        call(to="†state.y", value="†state.x"),
        call(to="†state.x", value=7),
    ]
    assert run(*calls).data[None]["data"]["out"] == "7 and 7"


def test_r2_6_what_reads_a_value_that_can_never_come_is_skipped_and_an_alternative_is_taken() -> None:
    calls = [
        call("fail", to="†state.x"),
        call(to="†data.out", value="a †{state.x}"),
        call(to="†data.other", value="a †{state.x || state.a}"),
    ]
    result = run(*calls, context=CONTEXT)
    assert statuses(result) == ["failed", "skipped", "done"]
    assert [entry.outcome.reason for entry in result.log if entry.outcome.index == 1] == [
        "†state.x is missing, and no call can write it any more: call 0 failed"
    ]
    assert result.data[None]["data"] == {"other": "a 1"}


def test_r2_6_one_whose_value_nothing_can_bring_is_refused() -> None:
    found = problems_of(call(value=["a †{state.x}"]))
    assert pointers(found) == ["/solution/calls/0/value/0"]
    assert "†state.x" in found[0].message


# Types


TOOL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^x"}]},
        "kind": {"enum": ["a 1", "b"]},
        "one": {"const": "a 1"},
        "short": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a"},
        "list": {"type": "array", "items": {"type": "number"}, "uniqueItems": True},
    },
}


@pytest.mark.parametrize(
    ("parameters", "at", "remedy"),
    [
        ({"count": "†{state.a}"}, "count", "write †state.a for the value itself"),
        ({"count": "†{state.a || input.b}"}, "count", "write †state.a || †input.b for the value itself"),
        ({"count": "a †{state.a}"}, "count", ""),
        ({"maybe": "†{state.a}"}, "maybe", "write †state.a for the value itself"),
        ({"list": [1, "†{state.a}"]}, "list/1", "write †state.a for the value itself"),
        ({"list": "†{state.a}"}, "list", "write †state.a for the value itself"),
    ],
)
def test_r2_6_where_no_text_is_admitted_a_template_is_a_structural_error(
    parameters: dict[str, Any], at: str, remedy: str
) -> None:
    (found,) = problems_of(call(**parameters), context=CONTEXT, tools={"give": TOOL})
    assert found.pointer == f"/solution/calls/0/{at}"
    assert found.message.startswith("a template is a text, and no text is admitted here")
    assert found.message.endswith(remedy)


@pytest.mark.parametrize(
    ("parameters", "status"),
    [
        ({"kind": "a †{state.a}"}, "done"),
        ({"kind": "c †{state.a}"}, "failed"),
        ({"one": "a †{state.a}"}, "done"),
        ({"one": "†{state.a}"}, "failed"),
        ({"either": "x†{state.a}"}, "done"),
        ({"either": "†{state.a}"}, "failed"),
        ({"short": "a†{state.a}"}, "done"),
        ({"short": "a†{input.b}"}, "failed"),
        ({"short": "a†{state.a}bc"}, "failed"),
    ],
)
def test_r2_6_against_enum_const_and_pattern_it_is_checked_when_it_is_resolved(
    parameters: dict[str, Any], status: str
) -> None:
    assert statuses(run(call(to="†data.out", **parameters), context=CONTEXT, tools={"give": TOOL})) == [status]
