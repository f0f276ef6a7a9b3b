"""Call schemas: what a model may write as a call of a tool, and what check makes of it (SPEC R12.4)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from acts_celery.protocol import Rejected, check_submission
from acts_celery.protocol.requests import Answer, Request, compose, read_answer, render
from acts_celery.protocol.schemas import CompiledSchema

from .building import call, problems_of
from .test_r12_6_answers import answered as called
from .test_r12_requests import call_schema, request

INSTANCES: list[dict[str, Any]] = [{"type": "state", "_instance": name, "x": 1} for name in ("①", "②")]
TEXT = {"type": "string"}


def admits(asked: Any, **properties: Any) -> bool:
    """Whether the composed schema admits a call of the tool `t`."""
    return not CompiledSchema(compose(asked)).problems({"calls": [{"_tool": "t", **properties}], "output": None})


def errors(asked: Any, *calls: Any) -> list[str]:
    """What is wrong with an answer of these calls."""
    return [error.pointer for error in read_answer(asked, {"calls": list(calls), "output": None}).errors]


def test_r12_4_a_reference_is_admitted_for_values_at_any_depth_and_not_for_keys_constants_or_results() -> None:
    shape = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "c": {"const": 1}},
        "additionalProperties": False,
    }
    asked = request({"tools": {"t": {"properties": {"a": {"type": "array", "items": shape}, "_output": shape}}}})
    assert admits(asked, a="†state.x", _outputPath="†state.y")
    assert admits(asked, a=["†state.x", {"n": "†state.x || †input.y"}], _outputPath="†state.y")
    assert not admits(asked, a=[{"n": "state.x"}], _outputPath="†state.y")
    assert not admits(asked, a=[{"n": "††state.x"}], _outputPath="†state.y")
    assert not admits(asked, a=[{"c": "†state.x"}], _outputPath="†state.y")
    assert not admits(asked, a=[{"†state.x": 1}], _outputPath="†state.y")
    assert admits(asked, _output={"n": 1}, _outputPath="†state.y")
    assert not admits(asked, _output={"n": "†state.x"}, _outputPath="†state.y")


def test_r12_4_instance_and_gather_are_shown_where_there_are_instances_and_exclude_each_other() -> None:
    tools: dict[str, Any] = {"t": {"properties": {"a": {}}}}
    assert not admits(request({"tools": tools}), _gather=True)
    asked = request({"tools": tools, "context": INSTANCES})
    assert admits(asked, _instance="①")
    assert admits(asked, _gather=True)
    assert not admits(asked, _instance="③")
    assert not admits(asked, _instance="①", _gather=True)
    pinned = request({"tools": {"t": {"properties": {"_instance": {"const": "②"}}}}, "context": INSTANCES})
    shown = call_schema(pinned, "t")["properties"]
    assert (shown["_instance"], "_gather" in shown) == ({"const": "②"}, False)


CHOICES = {"enum": ["†state.a", "†state.b"]}


@pytest.mark.parametrize(
    ("path", "to_code", "to_a_model"),
    [
        (None, {"$ref": "#/$defs/reference"}, {"$ref": "#/$defs/reference"}),
        ({"const": "†state.a"}, {"const": "†state.a"}, {"const": "†state.a"}),
        (CHOICES, {"enum": ["†state.a", "†state.b", "†state.a || †state.b"]}, CHOICES),
        ({**CHOICES, "maxLength": 8}, {**CHOICES, "maxLength": 8}, {**CHOICES, "maxLength": 8}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (False, None, None),
    ],
)
def test_r12_4_a_place_is_offered_and_not_demanded_and_code_may_choose_among_those_that_are_listed(
    path: Any, to_code: Any, to_a_model: Any
) -> None:
    tool: dict[str, Any] = {"properties": {"_output": {"type": "integer"}}}
    if path is not None:
        tool["properties"]["_outputPath"] = path
    for activities, shown in (({"t": tool}, to_code), ({}, to_a_model)):
        schema = call_schema(request({"tools": {"t": tool}}, activities=activities), "t")
        assert schema["properties"].get("_outputPath") == shown
        assert "_outputPath" not in schema["required"]
    demanded = {**tool, "required": ["_outputPath"]}
    asked = request({"tools": {"t": demanded}}, activities={"t": tool})
    assert ("_outputPath" in call_schema(asked, "t")["required"]) == (to_code not in (None, {"const": "†state.a"}))


def test_r12_4_only_an_eager_latent_tool_shows_a_result() -> None:
    tools = {"t": {"properties": {"_output": TEXT}}}
    assert "_output" in call_schema(request({"tools": tools}), "t")["properties"]
    assert "_output" not in call_schema(request({"tools": tools}, activities=tools), "t")["properties"]
    lazy = request({"tools": tools, "config": {"mode": "lazy"}})
    assert "_output" not in call_schema(lazy, "t")["properties"]
    plan = {"type": "plan", "mode": "eager", "calls": []}
    eager = request({"tools": tools, "config": {"mode": "lazy"}, "context": [plan]})
    assert "_output" in call_schema(eager, "t")["properties"]


def test_r12_4_a_latent_call_chooses_one_of_the_places_that_its_tool_pins() -> None:
    tools = {"t": {"properties": {"_output": TEXT}, "_outputPath": {"const": "†state.a || †state.b && †data.b"}}}
    asked = request({"tools": tools})
    assert call_schema(asked, "t")["properties"]["_outputPath"] == {"enum": ["†state.a", "†state.b && †data.b"]}
    for path in ("†state.a", "†state.b && †data.b"):
        assert errors(asked, {"_tool": "t", "_output": "x", "_outputPath": path}) == []
    assert errors(asked, {"_tool": "t", "_output": "x"}) == []
    assert errors(asked, {"_tool": "t", "_output": "x", "_outputPath": "†state.c"}) == ["/calls/0/_outputPath"]
    plan = check_submission(
        {"context": [], "tools": tools, "solution": {"calls": [call("t", "†state.a", _output="x")]}}, activities={}
    )
    assert [str(place) for place in plan.calls[0].written] == ["†state.a"]
    assert problems_of(call("t", "†state.a"), tools=tools, activities={"t": {}})


def test_r12_4_a_latent_result_written_before_what_it_refers_to_has_run_is_an_error() -> None:
    tools = {"get": {"properties": {}}, "t": {"properties": {"about": {}}}}
    asked = request({"tools": tools, "context": [{"type": "state", "old": 1}]}, activities={"get": {}})
    get = {"_tool": "get", "_outputPath": "†state.new"}
    early = {"_tool": "t", "about": "†state.new", "_output": "guessed", "_outputPath": "†state.guess"}
    assert errors(asked, get, early) == ["/calls/1/_output"]
    assert errors(asked, get, {key: value for key, value in early.items() if key != "_output"}) == []
    assert errors(asked, get, {**early, "about": "†state.old"}) == []


def latent(name: str, to: str, **more: Any) -> dict[str, Any]:
    return {"_tool": "t", "_output": name, "_outputPath": f"†state.{to}", **more}


def test_r4_8a_a_latent_result_may_refer_to_those_written_before_it_in_a_chain() -> None:
    tools: dict[str, Any] = {"get": {"properties": {}}, "t": {"properties": {"about": {}}}}
    asked = request({"tools": tools, "context": [{"type": "state", "old": 1}]}, activities={"get": {}})
    one, two = latent("one", "a"), latent("two", "b", about="†state.a")
    three = latent("three", "c", about={"of": ["†state.b", "†state.a", "†state.old"]})
    assert errors(asked, one, two, three) == []
    assert errors(asked, one, latent("x", "old"), two, latent("three", "c", about="†state.old")) == []
    assert errors(asked, two, one) == ["/calls/0/_output"]
    assert errors(asked, {"_tool": "get", "_outputPath": "†state.a"}, two, three) == [
        "/calls/1/_output",
        "/calls/2/_output",
    ]
    also = {"_tool": "get", "_outputPath": "†state.a.more"}
    assert errors(asked, one, two, also) == ["/calls/1/_output"]
    assert errors(asked, one, latent("x", "b", about="†state.old"), {**also, "_outputPath": "†state.old"}) == []
    without = {key: value for key, value in one.items() if key != "_output"}
    assert errors(asked, without, two) == ["/calls/1/_output"]


WRITTEN = st.lists(
    st.tuples(st.booleans(), st.sampled_from("abc"), st.lists(st.sampled_from("abco"), max_size=2)),
    min_size=1,
    max_size=6,
)


@given(WRITTEN)
def test_r4_8a_law_a_result_is_refused_where_it_reads_what_another_than_a_result_before_it_writes(calls: Any) -> None:
    tools: dict[str, Any] = {"get": {"properties": {"about": {}}}, "t": {"properties": {"about": {}}}}
    asked = request({"tools": tools, "context": [{"type": "state", "o": 1}]}, activities={"get": {}})
    written = []
    for is_latent, to, read in calls:
        about = [f"†state.{one}" for one in read]
        call = latent("x", to, about=about)
        written.append(call if is_latent else {**{k: v for k, v in call.items() if k != "_output"}, "_tool": "get"})
    refused: set[int] = set()
    for at, (is_latent, _, read) in enumerate(calls):
        for one in read if is_latent else ():
            writers = [other for other, (_, to, _) in enumerate(calls) if to == one and other != at]
            answered = [other for other in writers if calls[other][0]]
            if writers and (answered != writers or min({*answered} - refused, default=at) >= at):
                refused.add(at)
    expected = [f"/calls/{at}/_output" for at in sorted(refused)]
    found = errors(asked, *written)
    assume(all(one.endswith("/_output") for one in found))  # else the graph has no order, or a call reads itself alone
    assert found == expected


def test_r4_8a_what_another_instance_writes_is_none_of_it() -> None:
    tools: dict[str, Any] = {"get": {"properties": {}}, "t": {"properties": {"about": {}}}}
    context = [{"type": "state", "_instance": name, "old": 1} for name in "ab"]
    asked = request({"tools": tools, "context": context}, activities={"get": {}})
    one, two = latent("one", "x", _instance="a"), latent("two", "y", _instance="a", about="†state.x")
    for instance, expected in (("a", ["/calls/1/_output"]), ("b", []), (None, ["/calls/1/_output"])):
        other = {"_tool": "get", "_outputPath": "†state.x", **({"_instance": instance} if instance else {})}
        assert errors(asked, one, two, other) == expected


def test_r4_8a_a_result_of_every_instance_may_refer_to_what_is_in_each() -> None:
    tools: dict[str, Any] = {"get": {"properties": {}}, "t": {"properties": {"about": {}}}}
    context = [{"type": "state", "_instance": name, "old": 1} for name in "ab"]
    asked = request({"tools": tools, "context": context}, activities={"get": {}})
    one, two = latent("one", "x", _instance="*"), latent("two", "y", _instance="a", about="†state.x")
    every = {**two, "_instance": "*"}
    assert errors(asked, one, two) == errors(asked, one, every) == []
    assert errors(asked, {**one, "_instance": "a"}, {**one, "_instance": "b"}, every) == []
    get = {"_tool": "get", "_outputPath": "†state.x", "_instance": "*"}
    assert errors(asked, get, two) == errors(asked, get, every) == ["/calls/1/_output"]
    assert errors(asked, {**every, "about": "†state.old"}, {**get, "_outputPath": "†state.old"}) == []
    assert errors(asked, {**get, "_outputPath": "†nowhere["}, {**every, "about": "†state.old"}) == [
        "/calls/0/_outputPath"
    ]


def test_r12_4_code_is_offered_where_the_tool_lists_it_and_filled_in_where_it_is_pinned() -> None:
    tools = {
        "t": {"properties": {"_delegate": {"enum": ["one", "two"]}}},
        "pinned": {"properties": {"_delegate": {"const": "one"}}},
        "open": {"properties": {"_delegate": TEXT}},
    }
    asked = request({"tools": tools}, delegates=("one", "two"))
    shown = [call_schema(asked, name)["properties"].get("_delegate") for name in tools]
    assert shown == [{"enum": ["one", "two"]}, None, None]
    allowed = request({"tools": tools}, delegates=("one", "two"), allow=frozenset({"t", "one", "open"}))
    assert list(allowed.tools) == ["t", "open"]
    assert call_schema(allowed, "t")["properties"]["_delegate"] == {"enum": ["one"]}


def test_r12_2_the_last_declaration_of_a_tool_counts_and_a_bare_name_is_one() -> None:
    declared = {"type": "tool", "tool": {"t": {"properties": {"a": {}}}, "u": {"properties": {"b": {}}}}}
    asked = request({"context": [declared], "tools": ["t"]}, activities={"t": {"properties": {"z": {}}}})
    assert list(asked.tools) == ["t", "u"]
    assert "z" in call_schema(asked, "t")["properties"]
    assert "a" not in call_schema(asked, "t")["properties"]


def test_r12_4_what_the_schema_says_of_a_call_as_a_whole_it_goes_on_saying() -> None:
    tool = {
        "properties": {"a": {}, "b": {}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        "dependentRequired": {"a": ["c"]},
        "if": {"properties": {"b": {"const": 1}}, "required": ["b"]},
        "then": {"properties": {"d": {"type": "integer"}}, "required": ["d"]},
    }
    asked = request({"tools": {"t": tool}})
    assert admits(asked, a=1, c=2)
    assert not admits(asked, a=1)
    assert not admits(asked, a=1, c=1, b=1)
    assert admits(asked, b=1, d="†state.x")
    assert not admits(asked, b=1, d="x")
    assert not admits(asked, b=2, e=1)


def test_r12_4_a_scope_that_the_code_refuses_is_not_shown() -> None:
    code = {"t": {"properties": {"_scopes": {"type": "array", "items": {"enum": ["state"]}}}}}
    listed = {"type": "array", "items": {"enum": ["state", "input", "†state.user"]}}
    asked = request({"tools": {"t": {"properties": {"_scopes": listed}}}}, activities=code)
    assert call_schema(asked, "t")["properties"]["_scopes"]["items"] == {"enum": ["state", "†state.user"]}
    none = request({"tools": {"t": {"properties": {"_scopes": {"items": {"enum": ["input"]}}}}}}, activities=code)
    assert call_schema(none, "t")["properties"]["_scopes"]["maxItems"] == 0


def test_r12_4_a_template_is_admitted_wherever_a_text_may_stand_and_nowhere_else() -> None:
    shape = {
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "kind": {"enum": ["a", "b"]},
            "size": {"enum": [1, 2]},
            "c": {"const": "a"},
            "either": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 99}]},
            "any": {},
            "text": TEXT,
        },
    }
    asked = request({"schema": {"enum": ["a", "b"]}, "tools": {"t": {"properties": {"a": shape, "_output": shape}}}})
    for text in ("†{state.x}", "a †{state.x}\n††{ †{input.y}", "†††{state.x}"):
        for name in ("kind", "either", "any", "text"):
            assert admits(asked, a={name: text}, _outputPath="†state.y")
        for name in ("count", "size", "c"):
            assert not admits(asked, a={name: text}, _outputPath="†state.y")
        assert not admits(asked, _output={"kind": text}, _outputPath="†state.y")
        assert not admits(asked, a={}, _outputPath=text)
        assert not CompiledSchema(compose(asked)).problems({"calls": [], "output": text})
    for text in ("††{state.x}", "{state.x}", "a †state.x", "††††{state.x}"):
        assert not admits(asked, a={"kind": text}, _outputPath="†state.y")


def test_r12_4_titles_that_repeat_a_name_are_left_out_and_others_stay() -> None:
    inside = {"type": "object", "properties": {"zip_code": {"type": "string", "title": "Zip Code"}}, "title": "Address"}
    properties = {"home": {**inside, "title": "Home"}, "title": {"type": "string", "title": "What it is called"}}
    shown = call_schema(request({"tools": {"t": {"properties": properties}}}), "t")["properties"]
    assert "Zip Code" not in str(shown["home"])
    assert ("title" in shown["home"], "What it is called" in str(shown["title"])) == (False, True)


def runs_in_a_plan(made: Any, tool: Any) -> bool:
    """Whether a submission of this call alone is valid."""
    value = {"context": [{"type": "state", "s": 1}], "tools": {"t": tool}, "solution": {"calls": [made]}}
    try:
        check_submission(value)
    except Rejected:
        return False
    return True


@pytest.mark.parametrize(
    ("tool", "taken", "refused"),
    [
        ({"additionalProperties": True}, [{"x": 1}, {"x": {"y": "†state.s"}}, {"": 1}, {}], []),
        ({"additionalProperties": {"type": "integer"}}, [{"x": 1}, {"x": "†state.s"}], [{"x": "text"}]),
        ({"allOf": [{"additionalProperties": TEXT}]}, [{"x": "text"}], [{"x": 1}]),
        ({"unevaluatedProperties": {"type": "integer"}}, [{"x": 1}], [{"x": "text"}]),
        ({"patternProperties": {"^x": {"type": "integer"}}}, [{"x1": 1}], [{"x1": "text"}, {"y": 1}]),
        ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": TEXT}, [{"x1": 1, "y": "t"}], []),
        ({"minProperties": 1}, [{"x": 1}], [{}]),
        ({"properties": {"a": TEXT}, "minProperties": 2}, [{"a": "t", "x": 1}], [{"a": "t"}]),
        ({"properties": {"a": TEXT}, "minProperties": 1}, [{"a": "t"}], [{"x": 1}]),
        ({"additionalProperties": True, "allOf": [{"additionalProperties": False}]}, [{}], [{"x": 1}]),
        ({"properties": {"a": TEXT}}, [{"a": "t"}], [{"x": 1}]),
    ],
)
def test_r12_4_what_a_tool_declares_open_is_open_to_a_model_for_parameters_and_validated_as_in_a_plan(
    tool: Any, taken: Any, refused: Any
) -> None:
    asked = request({"tools": {"t": tool}, "context": [{"type": "state", "s": 1}]})
    path = {"_tool": "t", "_outputPath": "†state.y"}
    for parameters in taken:
        assert errors(asked, {**path, **parameters}) == []
        assert errors(asked, {**path, **parameters, "_unknown": 1}) != []
        assert runs_in_a_plan({**path, **parameters}, tool)
    for parameters in refused:
        assert errors(asked, {**path, **parameters}) != []


def test_r12_4_a_tool_says_to_a_model_that_it_is_open() -> None:
    tools = {"t": {"properties": {"a": TEXT}, "additionalProperties": {"type": "integer"}}, "u": {}}
    shown = str(render(request({"tools": tools}))[0]["content"])
    assert "t(a?: string, [name]: integer)" in shown
    assert "u()" in shown


NAMES = st.sampled_from(("a", "b", "x1", "x2", "", "_own", "_foo"))
SAID = st.sampled_from(({}, {"type": "integer"}, TEXT, True, False))
OPEN_TOOLS = st.fixed_dictionaries(
    {},
    optional={
        "properties": st.dictionaries(st.sampled_from(("a", "_own")), SAID, max_size=2),
        "patternProperties": st.dictionaries(st.sampled_from(("^x", "1$")), SAID, max_size=2),
        "additionalProperties": SAID,
        "minProperties": st.integers(0, 2),
        "allOf": st.lists(st.fixed_dictionaries({}, optional={"additionalProperties": SAID}), min_size=1, max_size=2),
    },
)


@given(OPEN_TOOLS, st.dictionaries(NAMES, st.sampled_from((1, "text", {"z": 1})), max_size=3))
def test_r12_4_law_what_a_plan_may_say_a_model_may_where_the_tool_is_open_and_no_more(
    tool: dict[str, Any], parameters: dict[str, Any]
) -> None:
    asked = request({"tools": {"t": tool}, "context": []})
    made = {"_tool": "t", "_outputPath": "†state.y", **parameters}
    in_an_answer = errors(asked, made)
    if not runs_in_a_plan(made, tool):
        assert in_an_answer
        return
    parts = [tool, *tool.get("allOf", ())]
    is_open = any("additionalProperties" in part for part in parts)
    if is_open and not any(name.startswith("_") for name in parameters):
        assert not in_an_answer


# One grammar: what a submission may say a model may answer, on both wires, and it means the same.

GIVEN: list[dict[str, Any]] = [{"type": "state", "s": 1, "list": ["a"]}]
FLOW = {"solution": {"calls": [{"_tool": "send", "to": "x", "_outputPath": "†state.sent"}], "output": "†state.sent"}}
DELEGATES: dict[str, Any] = {"helper": {"context": [], "schema": TEXT}, "flow": FLOW}
CODE: dict[str, Any] = {"send": {"properties": {"to": TEXT, "_output": {"type": "integer"}}}}
THINK = {"properties": {"about": TEXT, "_output": TEXT}}
TELL = {"properties": {"about": TEXT, "_delegate": {"const": "helper"}}}
PINNED = {"properties": {"to": {"const": "†state.s || †state.t"}, "more": {}}}
INSIDE = {"properties": {"of": {"const": "†state.s"}, "n": {}}, "required": ["of"], "additionalProperties": False}
LISTED = {"properties": {"to": {"const": "†state.list"}, "more": {}, "_each": {"const": "to"}}}
INTEGER = {"type": "integer"}
LINES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a passing thought": ({"think": THINK}, {"_tool": "think", "about": "x", "_output": "so"}),
    "a thought without a result": ({"think": THINK}, {"_tool": "think", "about": "x"}),
    "sent and forgotten": ({"send": {}}, {"_tool": "send", "to": "x"}),
    "a delegate that is forgotten": ({"tell": TELL}, {"_tool": "tell", "about": "x"}),
    "code that chooses among an enum": (
        {"send": {"properties": {"_outputPath": {"enum": ["†state.success", "†state.failure"]}}}},
        {"_tool": "send", "to": "x", "_outputPath": "†state.failure || success"},
    ),
    "code that chooses among oneOf": (
        {"send": {"properties": {"_outputPath": {"oneOf": [{"const": "success"}, {"const": "failure"}]}}}},
        {"_tool": "send", "to": "x", "_outputPath": "success || failure"},
    ),
    "a delegate that is pinned": (
        {"tell": TELL},
        {"_tool": "tell", "_delegate": "helper", "_outputPath": "†state.told"},
    ),
    "an activity that is pinned": (
        {"say": {"properties": {"to": TEXT, "_activity": {"const": "send"}}}},
        {"_tool": "say", "_activity": "send", "to": "x", "_outputPath": "†state.told"},
    ),
    "a pinned delegate that is forgotten": ({"tell": TELL}, {"_tool": "tell", "_delegate": "helper"}),
    "a place that is pinned": (
        {"think": {**THINK, "_outputPath": {"const": "†state.a || †state.b"}}},
        {"_tool": "think", "_output": "so", "_outputPath": "a||b"},
    ),
    "a bare path": ({"send": {}}, {"_tool": "send", "to": "x", "_outputPath": "user.summary"}),
    "an older name": (
        {"tell": {**TELL, "_scopes": {"items": {"enum": ["state"]}}}},
        {"_tool": "tell", "_imports": ["†state.s"], "_outputPath": "†state.told"},
    ),
    "an older name in the tool": (
        {"tell": {**TELL, "_imports": {"const": ["state"]}}},
        {"_tool": "tell", "_scopes": ["state"], "_outputPath": "†state.told"},
    ),
    "nulls": ({"send": {}}, {"_tool": "send", "to": "x", "_scopes": None, "_each": None, "_outputPath": "†state.x"}),
    "an input that is pinned": ({"send": PINNED}, {"_tool": "send", "_outputPath": "†state.x"}),
    "an input that is pinned, in other words": ({"send": PINNED}, {"_tool": "send", "to": "†state.s||†state.t"}),
    "an input that is pinned deeper": (
        {"think": {"properties": {"about": INSIDE}, "required": ["about"]}},
        {"_tool": "think", "about": {"of": "†state.s", "n": 1}},
    ),
    "an object with nothing but a pinned input": (
        {"think": {"properties": {"about": INSIDE}, "required": ["about"]}},
        {"_tool": "think"},
    ),
    "an input that is one of several": (
        {"send": {"properties": {"to": {"enum": ["†state.s || †state.t", "me"]}}}},
        {"_tool": "send", "to": "†state.s||†state.t"},
    ),
    "elements of an input that is pinned": ({"send": LISTED}, {"_tool": "send", "_outputPath": "†state.x"}),
    "elements of an input that is pinned, written": (
        {"send": LISTED},
        {"_tool": "send", "to": "†state.list", "_each": "to", "_outputPath": "†state.x"},
    ),
    "elements of two inputs, one pinned": (
        {"send": {"properties": {**LISTED["properties"], "_each": {"enum": [["to", "more"]]}}}},
        {"_tool": "send", "more": "†state.list", "_each": ["to", "more"], "_outputPath": "†state.x"},
    ),
    "a pinned input, of which one is required": (
        {"send": {**PINNED, "anyOf": [{"required": ["to"]}, {"required": ["more"]}]}},
        {"_tool": "send"},
    ),
    "a pinned input that another requires": (
        {"send": {**PINNED, "dependentRequired": {"more": ["to"]}, "if": {"required": ["more"]}, "then": {}}},
        {"_tool": "send", "more": 1},
    ),
    "a reference by whose value one of two holds": (
        {
            "think": {
                "properties": {"about": {}},
                "oneOf": [{"properties": {"about": kind}} for kind in (INTEGER, TEXT)],
            }
        },
        {"_tool": "think", "about": "†state.s"},
    ),
    "a reference that has no value to refuse yet": (
        {"think": {"properties": {"about": {}}, "not": {"properties": {"about": TEXT}}}},
        {"_tool": "think", "about": "†state.s"},
    ),
    "a workflow": (
        {"flow": {"properties": {"n": INTEGER, "_delegate": {"const": "flow"}, "_each": {"const": "n"}}}},
        {"_tool": "flow", "n": "†state.list", "_outputPath": "sent"},
    ),
    "a workflow by an older name": (
        {"flow": {"properties": {"_module": {"enum": ["helper", "flow"]}}}},
        {"_tool": "flow", "_module": "flow", "_outputPath": "†state.sent"},
    ),
    "a choice without code": (
        {"choose": {}},
        {"_tool": "choose", "value": "†state.s", "cases": [INTEGER], "_outputPath": "†state.yes || no"},
    ),
    "a moment": ({"wait": {}}, {"_tool": "wait", "until": "2030-01-01T00:00:00Z", "_outputPath": "†state.x"}),
    "no gathering": ({"send": {}}, {"_tool": "send", "to": "x", "_gather": False, "_outputPath": "†state.x"}),
}


def asked_in_grammar(tools: dict[str, Any], wire: str, **more: Any) -> Request:
    asked = request(
        {"context": GIVEN, "tools": tools, "delegates": DELEGATES, **more},
        activities=CODE,
    )
    return replace(asked, is_native=wire == "tools")


def answered(asked: Request, made: dict[str, Any]) -> Answer:
    """What comes of a call as an answer; as a function's it says by null that its result goes nowhere."""
    if not asked.is_native:
        return read_answer(asked, json.dumps({"calls": [made]}))
    arguments = {"_outputPath": None, **{key: value for key, value in made.items() if key != "_tool"}}
    return read_answer(asked, called(asked, (made["_tool"], arguments)))


def meaning(call: Any) -> list[Any]:
    """What a call does: parameters, places and code."""
    parts = [call.parameters, call.output, call.method, call.scopes, call.instance, call.gather, call.each]
    return [*parts, call.runner, call.given, call.is_thought, call.is_fire_and_forget]


@pytest.mark.parametrize("wire", ["json", "tools"])
@pytest.mark.parametrize("line", LINES)
def test_r12_4_what_a_submission_may_say_a_model_may_answer(line: str, wire: str) -> None:
    tools, made = LINES[line]
    value = {"context": GIVEN, "tools": tools, "delegates": DELEGATES, "solution": {"calls": [made]}}
    plan = check_submission(value, activities=CODE, delegates=())
    answer = answered(asked_in_grammar(tools, wire), made)
    assert [error.message for error in answer.errors] == []
    assert list(map(meaning, answer.calls)) == list(map(meaning, plan.calls))


def test_r12_4_what_names_alone_decide_is_decided_at_once() -> None:
    one_of_two = {"properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    asked = asked_in_grammar({"think": one_of_two}, "json")
    assert errors(asked, {"_tool": "think", "a": "†state.s"}) == []
    assert errors(asked, {"_tool": "think", "a": "†state.s", "b": "†state.s"}) == ["/calls/0"]
    pinned = {**PINNED, "oneOf": [{"required": ["to"]}, {"required": ["more"]}]}
    assert errors(asked_in_grammar({"send": pinned}, "json"), {"_tool": "send", "more": 1}) == ["/calls/0"]


@pytest.mark.parametrize(
    "text",
    [
        '{"calls": [{"_tool": "send", "to": "x", /* whom */ "_outputPath": "†state.x",},], // all\n}',
        '[{"_tool": "send", "to": "x", "_outputPath": "†state.x"}]',
        '{"_tool": "send", "to": "x", "_outputPath": "†state.x"}',
        '```json\n[{"_tool": "send", "to": "x", "_outputPath": "x"}]\n```',
    ],
)
def test_r12_4_comments_and_bare_calls_are_read_in_an_answer(text: str) -> None:
    answer = read_answer(asked_in_grammar({"send": {}}, "json"), text)
    assert answer.errors == ()
    assert [(call.tool, [str(place) for place in call.written]) for call in answer.calls] == [("send", ["†state.x"])]


def test_r12_4_bare_calls_that_come_as_a_value_are_an_answer() -> None:
    asked, made = asked_in_grammar({"send": {}}, "json"), {"_tool": "send", "to": "x"}
    assert [call.raw for call in read_answer(asked, made).calls] == [made]
    assert [call.raw for call in read_answer(asked, [made, made]).calls] == [made, made]  # type: ignore[arg-type]  # a model's
    assert [error.type for error in read_answer(asked, [made, 1]).errors] == ["InvalidAnswer"]  # type: ignore[arg-type]


SLICE = {"_scopes": ["state"]}
ON_PURPOSE: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "R12.2 a tool that is not declared": ({}, {"_tool": "send", "to": "x"}, "/calls/0/_tool"),
    "R12.4 a parameter that a closed call schema has not": (
        {"think": THINK},
        {"_tool": "think", "more": 1},
        "/calls/0",
    ),
    "R12.4 an unknown meta-property": ({"think": THINK}, {"_tool": "think", "_note": 1}, "/calls/0"),
    "R12.4 scopes that the tool does not list": ({"think": THINK}, {"_tool": "think", **SLICE}, "/calls/0"),
    "R12.4 elements that the tool does not list": (
        {"send": {}},
        {"_tool": "send", "to": "†state.l", "_each": "to"},
        "/calls/0",
    ),
    "R12.4 code that the tool does not list": (
        {"tell": {"properties": {"_delegate": TEXT}}},
        {"_tool": "tell", "_delegate": "helper"},
        "/calls/0",
    ),
    "R12.4 a reference in place of a constant": (
        {"think": {"properties": {"about": {"const": "x"}}}},
        {"_tool": "think", "about": "†state.s"},
        "/calls/0/about",
    ),
    "R12.6b a text that is meant as a reference": (
        {"think": THINK},
        {"_tool": "think", "about": "state.s"},
        "/calls/0/about",
    ),
    "R12.6b a path that is meant as a reference": (
        {"send": {}},
        {"_tool": "send", "to": "x", "_outputPath": "state.x"},
        "/calls/0/_outputPath",
    ),
    "R16.3 sources of its own": ({"send": {}}, {"_tool": "send", "to": "x", "_trust": ["mail"]}, "/calls/0"),
}
"""What is valid in a submission, and in an answer an error by a rule of requests."""


@pytest.mark.parametrize("line", ON_PURPOSE)
def test_r12_4_what_requests_forbid_on_purpose_is_an_error_of_its_call(line: str) -> None:
    tools, made, place = ON_PURPOSE[line]
    context = [{"type": "state", "s": "x", "l": ["a"]}]
    value = {"context": context, "tools": tools, "delegates": DELEGATES, "solution": {"calls": [made]}}
    assert check_submission(value, activities=CODE, delegates=()).calls
    asked = request({"context": context, "tools": tools, "delegates": DELEGATES}, activities=CODE)
    assert errors(asked, made) == [place]
