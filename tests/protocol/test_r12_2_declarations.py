"""What a request declares of a registered activity adds to its signature (SPEC R12.2)."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given

from acts_celery.protocol import Rejected
from acts_celery.protocol.calls.declarations import extended
from acts_celery.protocol.calls.tools import GRANTED, PLAIN, Tool
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import Request, compose, read_answer, read_request, render
from acts_celery.protocol.requests.widening import joined

from .schema_strategies import schema_values, schemas

TEXT: Final = {"type": "string"}
REFUND: Final[dict[str, Any]] = {
    "type": "object",
    "description": "Refund an order. Cannot be undone.",
    "properties": {
        "order_id": {**TEXT, "description": "Of the order."},
        "amount": {"type": "number"},
        "to": {"$ref": "#/$defs/Account"},
        "_scopes": {"type": "array", "items": {"enum": ["state"]}, GRANTED: ["state"]},
        "_output": {
            "properties": {"id": {"$ref": "#/$defs/Id"}},
            "$defs": {"Id": {"type": "integer"}},
            PLAIN: "always",
        },
    },
    "required": ["order_id"],
    "additionalProperties": False,
    "$defs": {"Account": {"type": "object", "properties": {"iban": TEXT}}},
}


def asked(declaration: Any) -> Request:
    tools = {"refund": declaration} if declaration is not None else ["refund"]
    return read_request({"schema": TEXT, "tools": tools}, Environment(activities={"refund": REFUND}))


def shown(declaration: Any) -> list[str]:
    tools = str(render(asked(declaration))[0]["content"]).split("\nTools\n")[1]
    return tools.split("\n\n")[0].splitlines()


def composed(declaration: Any) -> dict[str, Any]:
    call: dict[str, Any] = compose(asked(declaration))["properties"]["calls"]["items"]["anyOf"][0]
    return call


def test_a_description_replaces_that_of_the_docstring_and_the_parameters_stay() -> None:
    lines = shown({"description": "Give money back."})
    bare = shown(None)
    assert bare[1] == "  Refund an order. Cannot be undone."
    assert lines == [bare[0], "  Give money back.", *bare[2:]]
    assert bare[0] == "refund(order_id: string, amount?: number, to?: {iban?: string}) -> {id?: integer}"
    described = {key: value for key, value in composed(None).items() if key != "description"}
    assert composed({"description": "Give money back."}) == {**described, "description": "Give money back."}


def test_a_narrower_parameter_is_shown_and_held_against_both() -> None:
    declared = {"properties": {"amount": {"type": "integer", "maximum": 9, "description": "At most 9."}}}
    assert shown(declared)[0].startswith("refund(amount?: integer, order_id: string, to?: {iban?: string})")
    assert "  amount: At most 9." in shown(declared)
    amount = composed(declared)["properties"]["amount"]
    assert amount["anyOf"][0] == {"type": "integer", "maximum": 9}
    for value, fits in ((9, True), (10, False), (1.5, False)):
        call = {"_tool": "refund", "order_id": "a", "amount": value, "_outputPath": "†state.r"}
        answer = read_answer(asked(declared), {"calls": [call], "output": None}, first=0)
        assert bool(answer.errors) is not fits


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("number", "integer", {"type": "integer"}),
        (["integer", "null"], ["number", "string"], {"type": "integer"}),
        (["number", "null"], ["null", "number"], {"type": ["null", "number"]}),
        (["string", "null"], "string", {"type": "string"}),
        ("string", "null", {"allOf": [{"type": "string"}, {"type": "null"}]}),
    ],
)
def test_what_two_say_of_a_parameter_is_one_schema_without_branches(one: Any, other: Any, expected: Any) -> None:
    assert joined([{"type": one}, {"type": other}]) == expected


def test_a_parameter_that_is_declared_without_saying_anything_may_be_anything() -> None:
    assert shown({"properties": {"amount": {}}})[0].startswith("refund(amount?: any, order_id: string,")


def test_what_a_declaration_closes_or_lists_is_all_that_a_model_is_offered() -> None:
    declared = {"properties": {"order_id": {"enum": ["a", "b"]}}, "additionalProperties": False}
    assert shown(declared)[0].startswith('refund(order_id: "a" | "b") ->')
    assert {"amount", "to"}.isdisjoint(composed(declared)["properties"])


def test_definitions_of_the_same_name_are_told_apart() -> None:
    declared = {"properties": {"amount": {"$ref": "#/$defs/Account"}}, "$defs": {"Account": {"type": "integer"}}}
    assert shown(declared)[0].startswith("refund(amount?: integer, order_id: string, to?: {iban?: string})")


def test_what_it_pins_and_promises_counts_and_the_scopes_of_the_signature_are_granted() -> None:
    declared = {"_outputPath": "†state.refund", "_output": {"type": "integer"}}
    assert shown(declared)[0].endswith(" -> integer")
    assert shown(declared)[-1] == "  writes †state.refund; sees state"
    tool = asked(declared).tools["refund"]
    assert tool.constants == {"_outputPath": "†state.refund", "_scopes": ["state"]}


def test_of_several_declarations_the_last_counts() -> None:
    tools = [{"refund": {"description": "first"}}, "refund", {"refund": {"description": "last"}}]
    request = read_request({"schema": TEXT, "tools": tools}, Environment(activities={"refund": REFUND}))
    assert request.tools["refund"].description == "last"


@pytest.mark.parametrize(
    ("declared", "pointer", "text"),
    [
        (
            {"properties": {"amount": TEXT}},
            "/tools/refund/properties/amount",
            "parameter 'amount' is string here, and number by the activity 'refund': declare that, or less",
        ),
        (
            {"properties": {"sum": {}}},
            "/tools/refund/properties/sum",
            "the activity 'refund' has no parameter 'sum'; its parameters: order_id, amount, to",
        ),
        (
            {"required": ["sum"]},
            "/tools/refund",
            "the activity 'refund' has no parameter 'sum'; its parameters: order_id, amount, to",
        ),
        (
            {"properties": {"amount": {}}, "additionalProperties": False},
            "/tools/refund/additionalProperties",
            "the activity 'refund' needs 'order_id', which is shut out here",
        ),
    ],
)
def test_a_declaration_that_no_call_could_fit_is_refused(declared: Any, pointer: str, text: str) -> None:
    with pytest.raises(Rejected) as rejected:
        asked(declared)
    assert [(one.pointer, one.message) for one in rejected.value.errors] == [(pointer, text)]


def test_a_tool_whose_calls_other_code_may_carry_out_is_as_it_is_declared() -> None:
    activities = {"refund": REFUND, "pay_back": {"type": "object"}}
    declared = {"properties": {"_activity": {"enum": ["refund", "pay_back"]}, "sum": {"type": "integer"}}}
    request = read_request({"schema": TEXT, "tools": {"refund": declared}}, Environment(activities=activities))
    assert request.tools["refund"].declaration == declared


@given(schemas(), schemas(), schema_values)
def test_a_call_fits_what_was_made_of_both_where_it_fits_each(one: Any, other: Any, value: Any) -> None:
    """Also where their definitions have the same names."""

    def tool(schema: Any) -> Tool:
        """A schema that says nothing counts alone: here each says something."""
        definitions = schema.get("$defs", {}) if isinstance(schema, dict) else {}
        inside = {k: v for k, v in schema.items() if k != "$defs"} if isinstance(schema, dict) else schema
        return Tool(
            "t",
            {
                "properties": {"a": {"title": "a", **inside} if isinstance(inside, dict) else inside},
                "$defs": definitions,
            },
        )

    def fits(tool: Tool) -> bool:
        return not tool.problems({"a": value})

    declared, signature = tool(one), tool(other)
    assert fits(extended(declared, signature)) == (fits(declared) and fits(signature))
