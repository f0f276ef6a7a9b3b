"""SPEC R4.1: the expressions that a tool prescribes for its parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Rejected, check_submission
from acts_celery.protocol.calls.pins import Pins
from acts_celery.protocol.facade import analyse
from acts_celery.protocol.requests import compose, read_answer, render
from acts_celery.protocol.requests.tool_texts import function_schema, tool_text
from acts_celery.protocol.schemas import CompiledSchema

from .building import call, checked, pointers, problems, problems_of, run, run_plan, submission
from .test_r12_requests import call_schema, request

PLACE = "†state.currentUser.id"
CONTEXT: list[dict[str, Any]] = [{"type": "state", "currentUser": {"id": "u1"}, "other": "u2", "n": 5}]


def pinning(schema: Any, **more: Any) -> dict[str, Any]:
    """A tool `fetch` with this schema for `user`."""
    return {"fetch": {"type": "object", "properties": {"user": schema, **more}, "required": ["user"]}}


def fetched(schema: Any, context: Any = CONTEXT, **parameters: Any) -> Any:
    """What the code of `fetch` is given for `user`."""
    tools, raw = pinning(schema), call("fetch", to="†state.out", **parameters)
    functions = {"fetch": lambda given, _: given["user"]}
    return run(raw, tools=tools, context=context, functions=functions).data[None]["state"]["out"]


def refused(schema: Any, **parameters: Any) -> list[str]:
    """Where a call of `fetch` is refused before anything runs."""
    found = problems_of(call("fetch", to="†state.out", **parameters), tools=pinning(schema), context=CONTEXT)
    return [one.removeprefix("/solution/calls/0") for one in pointers(found)]


# Documents.


def test_r4_1_a_const_expression_is_filled_in_and_its_value_is_given_to_the_code() -> None:
    assert fetched({"const": PLACE}) == "u1"
    assert fetched({"const": PLACE}, user=PLACE) == "u1"
    assert fetched({"const": PLACE}, user='†state["currentUser"].id') == "u1", "it is the same place"


@pytest.mark.parametrize("user", ["u1", f"†{PLACE}", "†state.other", "†{state.currentUser.id}", {"id": PLACE}, None])
def test_r4_1_a_const_expression_admits_nothing_else(user: Any) -> None:
    assert refused({"const": PLACE}, user=user) == ["/user"]


@pytest.mark.parametrize(
    ("schema", "user", "is_admitted"),
    [
        ({"enum": [PLACE, "†state.other"]}, PLACE, True),
        ({"enum": [PLACE, "†state.other"]}, "†state.n", False),
        ({"enum": [PLACE, "†state.other"]}, "u1", False),
        ({"pattern": "^†state\\."}, "†state.other", True),
        ({"pattern": "^†state\\."}, "†input.user", False),
        ({"pattern": "^†state\\."}, "††state.other", False),
        ({"pattern": "^†state\\.[^|]*$"}, f"{PLACE} || †state.other", False),
        ({"anyOf": [{"const": PLACE}, {"type": "integer"}]}, PLACE, True),
        ({"anyOf": [{"const": PLACE}, {"type": "integer"}]}, 7, True),
        ({"anyOf": [{"const": PLACE}, {"type": "integer"}]}, "u1", False),
        ({"oneOf": [{"const": PLACE}, {"const": "†state.other"}]}, "†state.other", True),
        ({"oneOf": [{"const": PLACE}, {"const": "†state.other"}]}, "†state.n", False),
        ({"not": {"pattern": "^†state\\.other"}}, PLACE, True),
        ({"not": {"pattern": "^†state\\.other"}}, "†state.other", False),
        ({"allOf": [{"type": "string"}, {"const": PLACE}]}, PLACE, True),
        ({"allOf": [{"type": "string"}, {"const": PLACE}]}, "†state.other", False),
    ],
)
def test_r4_1_a_pin_speaks_of_the_expression_as_written_wherever_it_is(
    schema: Any, user: Any, is_admitted: bool
) -> None:
    context = [*CONTEXT, {"type": "input", "user": "u3"}]
    value = submission(call("fetch", to="†state.out", user=user), tools=pinning(schema), context=context)
    if is_admitted:
        assert fetched(schema, context, user=user) in ("u1", "u2", 7)
        check_submission(value)
    else:
        assert pointers(problems(value)) == ["/solution/calls/0/user"]


def test_r4_1_a_member_of_an_enum_that_is_no_expression_stays_a_value() -> None:
    schema = {"enum": [PLACE, "u2"]}
    assert [fetched(schema, user=user) for user in (PLACE, "u2", "†state.other")] == ["u1", "u2", "u2"]
    assert refused(schema, user="u3") == ["/user"]
    outcome = run(call("fetch", to="†state.out", user="†state.n"), tools=pinning(schema), context=CONTEXT).outcome(0)
    assert (outcome.error or {})["type"] == "InvalidParameters", "5 is none of them"


def test_r4_1_what_was_read_is_held_against_the_rest_of_the_schema() -> None:
    for rest, status in ({"type": "string"}, "done"), ({"type": "integer"}, "failed"), ({"minLength": 3}, "failed"):
        tools, functions = pinning({"const": PLACE, **rest}), {"fetch": lambda given, _: given["user"]}
        result = run(call("fetch", to="†state.out"), tools=tools, context=CONTEXT, functions=functions)
        assert result.statuses[None][0] == status, rest


def test_r4_1_data_that_reads_like_the_expression_does_not_satisfy_it() -> None:
    schema = {"anyOf": [{"const": PLACE}, {"type": "integer"}]}
    context = [{"type": "state", "currentUser": {"id": "u1"}, "trap": PLACE}]
    raw = call("fetch", to="†state.out", user="†state.trap")
    result = run(raw, tools=pinning(schema), context=context)
    assert result.statuses[None][0] == "failed"


NESTED: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"const": PLACE}, "name": {"type": "string"}},
    "required": ["id"],
    "additionalProperties": False,
}


def test_r4_1_pins_count_at_any_depth() -> None:
    assert fetched(NESTED, user={"name": "Bo"}) == {"id": "u1", "name": "Bo"}
    assert fetched(NESTED) == {"id": "u1"}, "it is required, and requires nothing else"
    assert refused(NESTED, user={"id": "u2"}) == ["/user/id"]
    listed = {"type": "array", "items": NESTED}
    assert fetched(listed, user=[{"name": "Bo"}, {}]) == [{"name": "Bo", "id": "u1"}, {"id": "u1"}]
    assert refused(listed, user=[{}, {"id": "†state.other"}]) == ["/user/1/id"]


def test_r4_1_one_reference_in_place_of_what_holds_a_pin_is_refused() -> None:
    assert refused(NESTED, user="†state.currentUser") == ["/user"]


def test_r4_1_a_pin_in_a_definition_counts() -> None:
    tool = {"properties": {"user": {"$ref": "#/$defs/user"}}, "$defs": {"user": {"enum": [PLACE, "†state.other"]}}}
    checked(call("fetch", user="†state.other"), tools={"fetch": tool}, context=CONTEXT)
    assert problems_of(call("fetch", user="†state.n"), tools={"fetch": tool}, context=CONTEXT)


def test_r4_1_a_definition_that_holds_itself_is_looked_into() -> None:
    node = {"properties": {"id": {"enum": [PLACE]}, "next": {"$ref": "#/$defs/node"}}}
    tool = {"properties": {"user": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    deep: dict[str, Any] = {"id": PLACE, "next": {"id": PLACE, "next": {"id": PLACE}}}
    raw = call("fetch", "†state.out", user=deep)
    result = run(raw, tools={"fetch": tool}, context=CONTEXT, functions={"fetch": lambda given, _: given["user"]})
    assert result.data[None]["state"]["out"] == {"id": "u1", "next": {"id": "u1", "next": {"id": "u1"}}}
    deep["next"]["next"]["id"] = "†state.other"
    found = problems_of(raw, tools={"fetch": tool}, context=CONTEXT)
    assert pointers(found) == ["/solution/calls/0/user/next/next/id"]


@pytest.mark.parametrize("keyword", ["allOf", "anyOf"])
def test_r4_1_a_schema_of_many_ways_to_one_pin_is_read_once(keyword: str) -> None:
    ways = {f"d{n}": {keyword: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    pins = Pins({"properties": {"user": {"$ref": "#/$defs/d0"}}, "$defs": {**ways, "d40": {"enum": [PLACE]}}})
    for user in PLACE, "†state.other":
        document, _ = pins.specialized({"user": user})
        assert len(str(document)) < 10_000


def test_r4_1_a_condition_that_is_known_later_is_looked_at_then() -> None:
    tool = {
        "properties": {"user": {}, "kind": {}},
        "if": {"properties": {"kind": {"const": "own"}}},
        "then": {"properties": {"user": {"const": PLACE}}},
    }
    for kind, status in ("own", "failed"), ("any", "done"):
        raw = call("fetch", to="†state.out", user="†state.other", kind="†state.which")
        context, functions = [*CONTEXT, {"type": "state", "which": kind}], {"fetch": lambda *_: 1}
        assert run(raw, tools={"fetch": tool}, context=context, functions=functions).statuses[None][0] == status


def test_r4_1_what_is_filled_in_orders_calls_and_must_come() -> None:
    tools = pinning({"const": "†state.made"})
    late = checked(call("fetch", to="†state.out"), call(to="†state.made"), tools=tools)
    assert late.edges == ((1, 0),)
    found = problems_of(call("fetch", to="†state.out"), tools=tools)
    assert pointers(found) == ["/solution/calls/0"]
    assert "†state.made" in found[0].message


def test_r4_1_an_expression_that_is_pinned_and_does_not_parse_is_refused() -> None:
    for schema in {"const": "†state..x"}, {"enum": ["†state.x", "†state..x"]}:
        found = problems_of(call("fetch", user=PLACE), tools=pinning(schema), context=CONTEXT)
        assert [one.pointer.startswith("/tools/fetch/properties/user") for one in found] == [True]


def test_r4_2_no_other_name_leads_around_a_pin() -> None:
    tools = {**pinning({"const": PLACE}), "other": {"_activity": {"const": "fetch"}}}
    assert pointers(problems_of(call("other", user="†state.other"), tools=tools, context=CONTEXT)) == [
        "/solution/calls/0/user"
    ]
    assert pointers(problems_of(call("other"), tools=tools, context=CONTEXT)) == ["/solution/calls/0"]
    checked(call("other", user=PLACE), tools=tools, context=CONTEXT)


# What check says.


def found_in(schema: Any, **parts: Any) -> list[str]:
    """The findings of a call of `fetch` that leaves `user` out."""
    raw, tools = call("fetch", to="†state.out"), pinning(schema)
    return [one.code for one in analyse(checked(raw, tools=tools, context=CONTEXT, **parts))]


def test_r4_1_check_compares_the_value_with_the_rest_of_the_schema() -> None:
    assert "ACT202" not in found_in({"const": PLACE})
    assert "ACT202" not in found_in({"const": PLACE, "type": "string"})
    assert "ACT202" in found_in({"const": PLACE, "type": "integer"})


def test_r4_1_check_knows_that_what_is_filled_in_is_there() -> None:
    signature = {"properties": {"user": {"type": "string"}}, "required": ["user"], "additionalProperties": False}
    assert "ACT209" not in found_in({"const": PLACE}, activities={"fetch": signature})


# Requests.


def test_r4_1_a_model_is_not_offered_what_is_filled_in() -> None:
    asked = request({"tools": pinning({"const": PLACE, "description": "Whose"}, body={"type": "string"})})
    shown = call_schema(asked, "fetch")
    assert "user" not in shown["properties"]
    assert "user" not in shown["required"]
    text = tool_text(asked, asked.tools["fetch"])
    assert text == f"fetch(body?: string)\n  is given user = {PLACE}"
    assert PLACE in str(render(asked))
    (function, *_) = function_schema(asked)["properties"]["calls"]["items"]["anyOf"]
    assert "user" not in function["properties"]


def test_r4_1_a_model_is_offered_the_expressions_of_an_enum_or_a_pattern_and_nothing_else() -> None:
    choice = {"enum": [PLACE, "†state.other"]}
    asked = request({"tools": pinning({"type": "integer", **choice})})
    assert call_schema(asked, "fetch")["properties"]["user"] == choice
    asked = request({"tools": pinning({"pattern": "^†state\\."})})
    composed = CompiledSchema(compose(asked))
    for user, is_admitted in (("†state.x", True), ("†input.x", False), ("x", False)):
        answer = {"calls": [{"_tool": "fetch", "user": user}], "output": None}
        assert (not composed.problems(answer)) == is_admitted


def test_r4_1_a_model_is_not_offered_what_is_filled_in_inside() -> None:
    asked = request({"tools": pinning(NESTED)})
    shown = call_schema(asked, "fetch")
    assert "user" not in shown["required"]
    assert PLACE not in str(shown)
    assert f"user.id = {PLACE}" in tool_text(asked, asked.tools["fetch"])


def test_r12_4_an_answer_may_write_what_is_filled_in_and_nothing_else_there() -> None:
    asked = request({"tools": pinning({"const": PLACE}), "context": CONTEXT})
    for user, is_valid in (
        ({}, True),
        ({"user": PLACE}, True),
        ({"user": "†state.other"}, False),
        ({"user": 1}, False),
    ):
        raw = {"_tool": "fetch", "_outputPath": "†state.out", **user}
        answer = read_answer(asked, {"calls": [raw], "output": None})
        assert (not answer.errors) == is_valid, answer.errors
        if is_valid:
            (made,) = answer.calls
            assert made.parameters == {"user": PLACE}
        else:
            assert [error.pointer for error in answer.errors] == ["/calls/0/user"]


def test_r12_4_a_call_whose_filled_in_value_an_invalid_call_was_to_write_does_not_run() -> None:
    tools = {**pinning({"const": "†state.made"}), "make": {"properties": {"n": {"type": "integer"}}}}
    calls = [call("make", to="†state.made", n="x"), call("fetch", to="†state.out")]
    answer = read_answer(request({"tools": tools}), {"calls": calls, "output": None})
    assert not answer.calls
    assert len(answer.errors) == 2


# A law: whether a call runs is what the plainest reading of its tool's schema says.

VALUES = {PLACE: "u1", "†state.other": "u2", "†state.n": 5}
_PINS: list[Any] = [{"enum": [PLACE]}, {"enum": [PLACE, "x"]}, {"pattern": "^†state\\.o"}, {"type": "string"}, True]


def _combined(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    each = st.one_of(
        *(st.builds(lambda *parts, key=key: {key: [*parts]}, below, below) for key in ("anyOf", "allOf", "oneOf")),
        st.builds(lambda one, other: {"if": one, "then": other}, below, below),
        st.builds(lambda one: {"not": one}, below),
        st.builds(lambda one: {"items": one}, below),
    )
    return st.one_of(each, st.builds(lambda one, other: {"properties": {"a": one, "b": other}}, below, below))


_schemas = st.recursive(st.sampled_from(_PINS), _combined, max_leaves=6)
_written = st.recursive(
    st.sampled_from([*VALUES, "x", 1]),
    lambda below: st.one_of(
        st.lists(below, max_size=2), st.dictionaries(st.sampled_from(["a", "b"]), below, max_size=2)
    ),
    max_leaves=4,
)


def read(written: Any) -> Any:
    """What a text comes to."""
    if isinstance(written, dict):
        return {key: read(one) for key, one in written.items()}
    if isinstance(written, list):
        return [read(one) for one in written]
    return VALUES.get(written, written)


def fits(schema: Any, written: Any) -> bool:
    """Whether a text, and what it comes to, are as a schema says."""
    if isinstance(schema, bool):
        return schema
    is_read = isinstance(written, str) and written in VALUES
    inside = written if not is_read else None
    checks: dict[str, Callable[[Any], bool]] = {
        "enum": lambda said: written in said or (read(written) in said and not str(read(written)).startswith("†")),
        "pattern": lambda said: is_read and written.startswith(said.removeprefix("^").replace("\\", "")),
        "type": lambda said: isinstance(read(written), str),
        "anyOf": lambda said: any(fits(one, written) for one in said),
        "allOf": lambda said: all(fits(one, written) for one in said),
        "oneOf": lambda said: sum(fits(one, written) for one in said) == 1,
        "not": lambda said: not fits(said, written),
        "if": lambda said: not fits(said, written) or fits(schema["then"], written),
        "then": lambda said: True,
        "items": lambda said: not isinstance(inside, list) or all(fits(said, one) for one in inside),
        "properties": lambda said: (
            not isinstance(inside, dict) or all(fits(said[key], one) for key, one in inside.items())
        ),
    }
    return all(checks[key](said) for key, said in schema.items())


def hides(schema: Any, written: Any) -> bool:
    """Whether a reference stands for what has pins inside, in every call."""
    if not isinstance(schema, dict):
        return False
    if isinstance(written, str) and written in VALUES and schema.keys() & {"items", "properties"}:
        return "†" in str(schema)
    below = [(one, written) for one in schema.get("allOf", ())]
    if isinstance(written, list) and "items" in schema:
        below += [(schema["items"], one) for one in written]
    if isinstance(written, dict):
        below += [(schema.get("properties", {}).get(key, True), one) for key, one in written.items()]
    return any(hides(*one) for one in below)


@given(_schemas, _written)
def test_law_r4_1_a_call_runs_where_its_text_and_its_values_are_as_the_schema_says(schema: Any, written: Any) -> None:
    raw, tools = call("t", to="†state.out", v=written), {"t": {"properties": {"v": schema}}}
    expected = fits(schema, written) and not hides(schema, written)
    try:
        check_submission(submission(raw, tools=tools, context=CONTEXT))
    except Rejected:
        assert not expected
        return
    functions = {"t": lambda parameters, _: parameters["v"]}
    status = run(raw, tools=tools, context=CONTEXT, functions=functions).statuses[None][0]
    assert (status == "done") == expected


# Trust (SPEC R16): a parameter that is pinned to a place is trusted as far as that place is.


@pytest.mark.parametrize(("place", "is_trusted"), [("†state.customer.email", True), ("†input.mail.sender", False)])
def test_r16_2_a_pinned_parameter_has_the_labels_of_its_place(place: str, is_trusted: bool) -> None:
    context = [
        {"type": "state", "customer": {"email": "a@shop.example"}},
        {"type": "input", "mail": {"sender": "b@evil.example", "text": "hi"}, "_trust": ["mail"]},
    ]
    tools = {
        "send": {
            "properties": {"to": {"const": place}, "body": {}},
            "_trust": {"effects": True, "content": ["body"]},
        }
    }
    raw = call("send", "†state.sent", body="†input.mail.text")
    config = {"trust": {"otherwise": "refuse"}}
    plan = checked(raw, tools=tools, context=context, config=config)
    assert ("ACT601" in {one.code for one in analyse(plan)}) != is_trusted
    status = run_plan(plan, functions={"send": lambda given, _: given["to"]}).statuses[None][0]
    assert status == ("done" if is_trusted else "failed")
