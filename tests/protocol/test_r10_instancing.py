"""Delegates (SPEC R9), instances and plans (R10)."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given

from acts_celery.protocol import Context, Limits, Reference, Rejected, check, check_submission
from acts_celery.protocol.calls.declarations import child_context, delegate_context, input_misfit
from acts_celery.protocol.engine.events import Start, Status
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.graph import Audience
from acts_celery.protocol.requests import compose, read_request
from acts_celery.protocol.state.fold import Fold

from .building import (
    DATE,
    FUNCTIONS,
    call,
    checked,
    executing,
    plan_submission,
    pointers,
    problems,
    problems_of,
    run,
    run_plan,
    statuses,
    submission,
)
from .driver import Driver
from .strategies import submissions
from .test_against_naive import FUNCTIONS as FUNCTIONS_OF_LAWS

# SPEC R9: delegates. (Solving them, and their own runs, are the worker's.)

SYSTEM = {"type": "system", "message": "Ты — переводчик."}
CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "_instance": "①", "text": "Привет", "_date": "d"},
    {"type": "state", "_instance": "②", "text": "Bonjour"},
    {"type": "input", "secret": "not in scope"},
    {"type": "text", "text": "nor this"},
]


def delegated(raw: dict[str, Any], own: list[Any], context: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The context that the delegate of a call is given."""
    plan = checked({"_delegate": "d", **raw}, context=context)
    (instance,) = plan.lanes
    shared = Fold()
    fold = Fold(shared) if instance is not None else shared
    for message in context:
        if message.get("_instance") in (None, instance):
            (shared if message.get("_instance") is None else fold).append(message, "message")
    execution = Execution.of(plan, plan.lanes[instance], fold)
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    return delegate_context(own, execution.scoped_messages(start.call), start.parameters)


# R9.1


def test_r9_1_an_unknown_delegate_is_a_structural_error() -> None:
    assert pointers(problems_of(call(_delegate="d"), registered=[])) == ["/solution/calls/0/_delegate"]
    assert checked(call(_delegate="d"), registered=["d"]).calls[0].runner.name == "d"


def test_r9_1_anonymous_needs_no_registration_but_a_tool() -> None:
    assert checked(call(_delegate="anonymous"), registered=[]).calls[0].runner.name == "anonymous"
    found = problems_of({"_tool": "t", "_delegate": "anonymous"}, tools={"t": None}, registered=[])
    assert "/tools/t" in pointers(found)


@pytest.mark.parametrize(("key", "word"), [("schem", "did you mean 'schema'?"), ("note", "it has context, schema")])
def test_r9_4_a_property_that_a_definition_does_not_have_is_refused(key: str, word: str) -> None:
    (problem,) = problems_of(call(_delegate="d"), delegates={"d": {key: {"type": "string"}}})
    assert problem.pointer == f"/delegates/d/{key}"
    assert word in problem.message


def test_r9_1_a_definition_of_the_submission_is_checked_with_it() -> None:
    bad = {"d": {"context": [SYSTEM, {"no": "type"}], "schema": {"type": "nonsense"}}}
    found = problems_of(call(_delegate="d"), delegates=bad)
    assert pointers(found) == ["/delegates/d/context/1", "/delegates/d/schema/type"]


def test_r9_1_a_call_of_a_delegate_needs_no_tool_for_its_parameters_to_be_resolved() -> None:
    calls = [{"_tool": "t", "_delegate": "d", "value": "†input.x", "_outputPath": "†state.a"}]
    plan = check_submission({"context": [{"type": "input", "x": 1}], "solution": {"calls": calls}}, delegates=["d"])
    execution, _ = executing(plan)
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    assert start.parameters == {"value": 1}


# R9.4

NAME = {"type": "input", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
FLOW: dict[str, Any] = {
    "context": [NAME],
    "solution": {"calls": [{"_tool": "t", "value": "†input.n", "_outputPath": "†state.a"}], "output": "†state.a"},
}


def of_flow(**more: Any) -> dict[str, Any]:
    return {"_tool": "f", "_delegate": "f", "_outputPath": "†state.x", **more}


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"n": 1}, None),
        ({"n": "†state.n"}, None),
        ({"n": "one"}, "/solution/calls/0/n"),
        ({}, "/solution/calls/0"),
        ({"_scopes": ["†input.n"]}, None),
        ({"n": 1, "_outputPath": None}, "/solution/calls/0"),
    ],
)
def test_r9_4_the_parameters_of_a_workflow_are_held_against_its_input(given: Any, pointer: str | None) -> None:
    context = [{"type": "state", "n": 1}, {"type": "input", "n": 1}]
    if pointer is None:
        assert checked(of_flow(**given), context=context, delegates={"f": FLOW}).size == 1
        return
    found = problems_of(of_flow(**given), context=context, delegates={"f": FLOW})
    assert pointers(found) == [pointer]
    assert all("workflow 'f'" in problem.message or "is a workflow" in problem.message for problem in found)


def test_r9_4_resolution_upfront_says_a_misfit_once() -> None:
    found = problems_of(of_flow(n="one"), delegates={"f": FLOW}, config={"resolve": "upfront"})
    assert len([problem for problem in found if "integer" in problem.message]) == 1


def test_r9_4_a_workflow_with_tools_or_with_an_unknown_property_of_its_solution_is_refused() -> None:
    both = {**FLOW, "tools": ["t"]}
    assert pointers(problems_of(of_flow(n=1), delegates={"f": both})) == ["/delegates/f/solution"]
    odd = {**FLOW, "solution": {"calls": [], "otput": 1}}
    (problem,) = problems_of(of_flow(n=1), delegates={"f": odd})
    assert (problem.pointer, "output" in problem.message) == ("/delegates/f/solution/otput", True)
    assert pointers(problems_of(of_flow(n=1), delegates={"f": {"solution": []}})) == ["/delegates/f/solution"]


def test_r9_4_a_name_in_approve_may_be_that_of_a_call_of_a_workflow() -> None:
    config = {"approve": ["only_there"]}
    inner = {"solution": {"calls": [{"_tool": "only_there", "_delegate": "anonymous", "_outputPath": "†state.a"}]}}
    assert checked(of_flow(), delegates={"f": inner}, config=config).submission.config == config


@pytest.mark.parametrize("name", ["_delegate", "_module"])
@pytest.mark.parametrize("is_plan", [True, False])
def test_r9_4_a_workflow_has_the_effects_of_all_that_its_calls_name(is_plan: bool, name: str) -> None:
    calls = [{"_tool": "pay", "_outputPath": "†state.a"}]
    pays = {"context": [{"type": "plan", "calls": calls}]} if is_plan else {"solution": {"calls": calls}}
    outer = {"solution": {"calls": [{"_tool": "p", name: "p", "_outputPath": "†state.a"}]}}
    activities = {"pay": {"_trust": {"effects": True}}, "t": {}}
    document = {"solution": {"calls": [of_flow()]}, "delegates": {"f": outer, "p": pays}}
    plan = check_submission(document, activities=activities)
    assert plan.trust["f"].effects
    assert not check_submission({**document, "delegates": {"f": FLOW | {"context": []}}}, activities=activities).trust


def test_r9_4_the_context_of_a_workflow_keeps_the_instances_of_its_own_messages() -> None:
    own = [{"type": "state", "_instance": "①", "a": 1}]
    found = child_context(own, [], {"n": 1}, frozenset({"mail"}), has_instances=True)
    assert found == [*own, {"type": "input", "n": 1, "_trust": ["mail"]}]


# R9.2


@pytest.mark.parametrize(("instance", "text"), [("①", "Привет"), ("②", "Bonjour")])
def test_r9_2_the_seeds_delegates_get_their_own_messages_and_the_scoped_state_of_their_instance(
    instance: str, text: str
) -> None:
    raw = {"_tool": "translate", "_instance": instance, "_scopes": ["state"]}
    assert delegated(raw, [SYSTEM], CONTEXT) == [SYSTEM, {"type": "state", "text": text}]


def test_r9_2_without_scopes_and_parameters_there_is_nothing_but_its_own() -> None:
    assert delegated({"_tool": "t"}, [SYSTEM], CONTEXT[2:]) == [SYSTEM]
    assert delegated({"_tool": "t"}, [], CONTEXT[2:]) == []


def test_r9_2_the_parameters_come_last_as_input_with_the_declared_input_schema() -> None:
    schema = {"type": "object", "required": ["of"]}
    own = [{"type": "input", "schema": {}}, {"type": "data", "kind": "input", "schema": schema}, SYSTEM]
    own += [{"type": "state", "schema": {"required": ["other"]}}, {"type": "input", "given": 0}]
    raw = {"_tool": "t", "of": "†state.a", "deep": [{"in": "††x"}], "_scopes": ["state"], "_outputPath": "†data.x"}
    context = [{"type": "state", "a": 1}]
    assert delegated(raw, own, context) == [
        *own,
        {"type": "state", "a": 1},
        {"type": "input", "of": 1, "deep": [{"in": "†x"}], "schema": schema},
    ]
    assert delegated({"_tool": "t", "of": 1}, own[:1], []) == [own[0], {"type": "input", "of": 1, "schema": {}}]


def test_r9_2_parameters_named_like_reserved_words_are_kept_apart() -> None:
    raw = {"_tool": "t", "type": "x", "schema": 1}
    assert delegated(raw, [], []) == [{"type": "data", "kind": "input", "data": {"type": "x", "schema": 1}}]


def test_r9_2_a_whole_kind_brings_its_schema_and_description_and_no_provenance() -> None:
    context = [{"type": "state", "a": 1, "schema": {"type": "object"}, "description": "d", "_call": 5, "_date": "x"}]
    expected = {"type": "state", "a": 1, "schema": {"type": "object"}, "description": "d"}
    assert delegated({"_tool": "t", "_scopes": ["state"]}, [], context) == [expected]


TALK: list[dict[str, Any]] = [
    {"type": "system", "message": "Be brief.", "note": {"kept": True}},
    {"type": "state", "a": 1},
    {"type": "text", "text": "first", "_date": "d"},
    {"role": "user", "content": "no kind of its own"},
    {"type": "text", "_instance": "①", "text": "own"},
    {"type": "system", "message": "Be exact."},
    {"type": "text", "_instance": "②", "text": "another's"},
]


@pytest.mark.parametrize(
    ("scopes", "given"),
    [
        (["text"], [{"type": "text", "text": "first"}, {"type": "text", "text": "own"}]),
        (["†system"], [TALK[0], TALK[5]]),
        (
            ["state", "text", "system"],
            [TALK[0], {"type": "text", "text": "first"}, TALK[5], {"type": "text", "text": "own"}, TALK[1]],
        ),
        (["†text.text", "†system.message"], []),
    ],
)
def test_r8_3_texts_and_system_messages_in_scope_are_given_as_they_are(scopes: list[str], given: list[Any]) -> None:
    raw = {"_tool": "t", "_instance": "①", "_scopes": scopes}
    assert delegated(raw, [], TALK) == given


DEFINITION: dict[str, Any] = {
    "context": [SYSTEM, {"type": "input", "schema": {"required": ["of"], "properties": {"of": {"type": "integer"}}}}]
}


@pytest.mark.parametrize(
    ("parameters", "at"), [({"of": 1}, []), ({"of": "†state.a"}, []), ({"of": "one"}, ["/of"]), ({"off": 1}, [""])]
)
def test_r9_2_parameters_need_not_fit_a_delegates_input_unless_they_are_resolved_upfront(
    parameters: dict[str, Any], at: list[str]
) -> None:
    raw = call(_delegate="d", **parameters)
    context = [{"type": "state", "a": "text"}]
    plan = checked(raw, delegates={"d": DEFINITION}, context=context)
    assert pointers(input_misfit(DEFINITION, plan.calls[0])) == at
    upfront: dict[str, Any] = {"delegates": {"d": DEFINITION}, "context": context, "config": {"resolve": "upfront"}}
    if at:
        assert pointers(problems_of(raw, **upfront)) == [f"/solution/calls/0{place}" for place in at]
    else:
        assert checked(raw, **upfront).size == 1


def test_r9_2_a_delegate_that_declares_no_input_takes_any() -> None:
    plan = checked(call(_delegate="d", of=1), delegates={"d": {"context": [SYSTEM]}}, config={"resolve": "upfront"})
    assert input_misfit({"context": [SYSTEM]}, plan.calls[0]) == []
    broken = {"d": {"context": [{"type": "input", "schema": {"type": 5}}]}}
    found = problems_of(call(_delegate="d", of=1), delegates=broken, config={"resolve": "upfront"})
    assert pointers(found) == ["/delegates/d/context/0/schema/type"]


def test_r9_2_what_was_given_can_be_changed_without_harm() -> None:
    own = [{"type": "state", "a": 1}]
    delegate_context(own, [], {})[0]["a"] = 2
    assert own == [{"type": "state", "a": 1}]


UPFRONT: dict[str, Any] = {"config": {"resolve": "upfront"}}
ASKING = {
    "context": [
        {
            "type": "input",
            "schema": {
                "type": "object",
                "properties": {"of": {"type": "string"}, "by": {"type": "integer"}},
                "required": ["of"],
                "additionalProperties": False,
            },
        }
    ],
    "schema": {"type": "integer"},
}


def test_r9_2_upfront_a_tool_takes_what_its_delegate_takes_and_gives_what_it_gives() -> None:
    tools = {"ask": {"properties": {"_delegate": {"const": "d"}, "of": {"minLength": 2}}, "_output": {"minimum": 3}}}
    parts = {"tools": tools, "delegates": {"d": ASKING}, **UPFRONT}
    plan = checked({"_tool": "ask", "of": "one", "_outputPath": "†state.a"}, **parts)
    declaration = plan.tools["ask"].declaration
    assert declaration["properties"]["of"] == {"allOf": [{"minLength": 2}, {"type": "string"}]}
    assert declaration["properties"]["by"] == {"type": "integer"}
    assert (declaration["required"], declaration["additionalProperties"]) == (["of"], False)
    assert declaration["_output"] == {"allOf": [{"minimum": 3}, {"type": "integer"}]}
    for wrong, at in (({"of": "x"}, "/of"), ({"of": 12}, "/of"), ({"of": "one", "more": 1}, "/more"), ({}, "")):
        found = problems_of({"_tool": "ask", "_outputPath": "†state.a", **wrong}, **parts)
        assert [place.removeprefix("/solution/calls/0") for place in pointers(found)] in ([at], [""]), wrong
    again = checked(
        {"_tool": "ask", "of": "one", "_outputPath": "†state.a"}, **{**parts, "tools": {"ask": declaration}}
    )
    assert again.tools["ask"].declaration == declaration


def test_r9_2_upfront_a_tool_is_narrowed_by_the_one_delegate_that_its_calls_name() -> None:
    plan = checked(call(_delegate="d", of="one"), delegates={"d": ASKING}, **UPFRONT)
    (tool,) = plan.tools.values()
    assert tool.declaration["required"] == ["of"]
    assert tool.declaration["_output"] == {"type": "integer"}


def test_r9_2_upfront_a_definition_with_references_into_itself_is_refused() -> None:
    schema = {"properties": {"of": {"$ref": "#/$defs/text"}}, "$defs": {"text": {"type": "string"}}}
    definition = {"context": [{"type": "input", "schema": schema}]}
    found = problems_of(call(_delegate="d", of="one"), delegates={"d": definition}, **UPFRONT)
    assert pointers(found) == ["/delegates/d"]


def test_r9_2_upfront_the_model_is_shown_what_the_delegate_takes() -> None:
    tools = {"ask": {"properties": {"_delegate": {"const": "d"}}}}
    value = {"context": [], "schema": {}, "tools": tools, "delegates": {"d": ASKING}, **UPFRONT}
    shown = json.dumps(compose(read_request(value, Environment(activities={}, delegates=()))))
    assert '"by"' in shown
    value.pop("config")
    assert '"by"' not in json.dumps(compose(read_request(value, Environment(activities={}, delegates=()))))


# SPEC R10: instancing and plans.

TEXTS = {"①": "Привет", "②": "Bonjour"}
CONTEXT_INSTANCING = [{"type": "state", "_instance": name, "text": text} for name, text in TEXTS.items()]
COPY = call(to="†state.copy", value="†state.text")


# R10.1


def test_r10_1_a_call_with_an_instance_reads_and_writes_only_there() -> None:
    result = run({**COPY, "_instance": "②"}, context=CONTEXT_INSTANCING)
    assert result.data == {
        None: {},
        "①": {"state": {"text": "Привет"}},
        "②": {"state": {"text": "Bonjour", "copy": "Bonjour"}},
    }


def test_r10_1_the_instance_must_occur_in_the_context() -> None:
    context = [{"type": "state", "_instance": "first", "text": ""}]
    (problem,) = problems_of({**COPY, "_instance": "frist"}, context=context)
    assert problem.pointer == "/solution/calls/0/_instance"
    assert "did you mean 'first'?" in problem.message
    assert pointers(problems_of(call(_instance="①"))) == ["/solution/calls/0/_instance"]


def test_r10_1_any_message_makes_an_instance_occur() -> None:
    assert checked(call(_instance="①"), context=[{"type": "hologram", "_instance": "①"}]).size == 1


# R10.2


def test_r10_2_a_plan_runs_once_for_each_instance() -> None:
    result = run_plan(check_submission(plan_submission(COPY, context=CONTEXT_INSTANCING)))
    assert {name: statuses(result, name) for name in TEXTS} == {"①": ["done"], "②": ["done"]}
    for name, text in TEXTS.items():
        assert result.data[name]["state"]["copy"] == text
    assert result.data[None] == {}


def test_r10_2_or_once_globally_where_there_is_none() -> None:
    plan = check_submission(plan_submission(COPY, context=[{"type": "state", "text": "x"}]))
    assert list(plan.lanes) == [None]
    assert run_plan(plan).data[None]["state"] == {"text": "x", "copy": "x"}


def test_r10_2_globals_feed_every_instance_of_a_plan() -> None:
    value = plan_submission(
        call(to="†state.both", value=["†state.text", "†input.shared"]),
        context=[*CONTEXT_INSTANCING, {"type": "input", "shared": 1}],
    )
    result = run_plan(check_submission(value))
    assert [result.data[name]["state"]["both"] for name in TEXTS] == [["Привет", 1], ["Bonjour", 1]]


def test_r10_2_a_plans_call_may_be_for_one_instance_only() -> None:
    value = plan_submission({**COPY, "_instance": "②"}, call(to="†state.all", value=1), context=CONTEXT_INSTANCING)
    plan = check_submission(value)
    assert {name: [c.index for c in lane.calls] for name, lane in plan.lanes.items()} == {"①": [1], "②": [0, 1]}
    assert plan.size == 3
    unknown = plan_submission({**COPY, "_instance": "③"}, context=CONTEXT_INSTANCING)
    assert pointers(problems(unknown)) == ["/context/2/calls/0/_instance"]


def test_r10_2_calls_of_a_solution_run_once_where_they_say() -> None:
    plan = checked(COPY | {"_instance": "①"}, call(to="†state.g", value=1), context=CONTEXT_INSTANCING)
    assert {name: len(lane.calls) for name, lane in plan.lanes.items()} == {"①": 1, None: 1}


def test_r10_2_beside_a_solution_plan_messages_are_context() -> None:
    broken = {"type": "plan", "calls": [{"_tool": "nobody", "x": "†"}, 5]}
    plan = check_submission(submission(call(), context=[broken]))
    assert [c.tool for c in plan.calls] == ["give"]


def test_r10_2_in_a_request_plan_messages_are_context_and_are_not_run() -> None:
    request = plan_submission(call(), context=CONTEXT_INSTANCING, schema={"type": "string"})
    request["context"][-1]["calls"] = [{"_tool": "nobody", "x": "†"}]
    plan = check_submission(request)
    assert (plan.calls, plan.waves, plan.size) == ((), (), 0)


def test_r10_2_several_plans_are_one_after_the_other_and_may_be_wrapped() -> None:
    value = plan_submission(call(to="†state.a", value=1))
    value["context"].append({"type": "plan", "plan": {"calls": [call(to="†state.b", value="†state.a")]}})
    plan = check_submission(value)
    assert [c.index for c in plan.calls] == [0, 1]
    assert plan.edges == ((0, 1),)
    value["context"][1]["plan"]["calls"][0]["value"] = "†state.c"
    assert pointers(problems(value)) == ["/context/1/plan/calls/0/value"]


def test_r10_2_instances_that_hold_different_things_wait_for_different_calls() -> None:
    context = [{"type": "state", "_instance": "①", "a": 1}, {"type": "state", "_instance": "②"}]
    calls = [call(to="†state.b", value="†state.a"), call(to="†state.a", value=2)]
    plan = check_submission(plan_submission(*calls, context=context))
    assert (plan.lanes["①"].graph.before(0), plan.lanes["②"].graph.before(0)) == ((), (1,))
    assert plan.waves == ((1,), (0,)), "a call stands in the last wave that it has in any instance"
    assert {str(place) for place in plan.lanes["①"].held} == {"†state.a"}
    for seed in range(10):
        data = Driver(plan, FUNCTIONS, random=Random(seed)).run().data
        assert data["②"]["state"] == {"a": 2, "b": 2}


def test_r10_2_instances_that_hold_the_same_share_their_graph() -> None:
    context = [{"type": "state", "_instance": str(number), "text": number} for number in range(100)]
    plan = check_submission(plan_submission(COPY, call(to="†state.x"), context=context))
    assert len({id(lane.graph) for lane in plan.lanes.values()}) == 1
    assert plan.size == 200


# R10.3


def test_r10_3_one_instances_failure_does_not_affect_another() -> None:
    context = [{"type": "state", "_instance": "①", "n": 1}, {"type": "state", "_instance": "②", "n": "no number"}]
    calls = [call("double", to="†state.twice", n="†state.n"), call(to="†state.last", value="†state.twice")]
    tools = {"double": {"properties": {"n": {"type": "integer"}}}}
    plan = check_submission(plan_submission(*calls, context=context, tools=tools))
    functions = {**FUNCTIONS, "double": lambda parameters, _: 2 * parameters["n"]}
    for seed in range(10):
        result = Driver(plan, functions, random=Random(seed)).run()
        assert (statuses(result, "①"), statuses(result, "②")) == (["done", "done"], ["failed", "skipped"])
        assert result.data["①"] == {"state": {"n": 1, "twice": 2, "last": 2}}


def test_r10_3_globals_are_waited_for_by_every_instance_that_reads_them() -> None:
    calls = [call(to="†state.g", value="†state.h"), call(to="†state.h", value=1)]
    own = [call(to="†state.mine", value=["†state.g", "†state.text"], _instance=name) for name in TEXTS]
    plan = checked(*own, *calls, context=CONTEXT_INSTANCING)
    for seed in range(10):
        data = Driver(plan, FUNCTIONS, random=Random(seed)).run().data
        assert [data[name]["state"]["mine"] for name in TEXTS] == [[1, "Привет"], [1, "Bonjour"]]


def test_r10_3_what_a_global_call_did_not_bring_skips_its_readers_in_every_instance() -> None:
    result = run(
        call("fail", to="†state.g"),
        *[call(value="†state.g", _instance=name) for name in TEXTS],
        context=CONTEXT_INSTANCING,
    )
    assert [statuses(result, name) for name in (None, *TEXTS)] == [["failed"], ["skipped"], ["skipped"]]


# The public functions


def test_check_takes_a_context_or_its_messages_and_a_solution_apart() -> None:
    solution = {"calls": [COPY | {"_instance": "①"}]}
    for context in (Context(CONTEXT_INSTANCING), CONTEXT_INSTANCING):
        plan = check(context, solution, tools={"give": {}})
        assert (plan.waves, plan.edges, plan.findings) == (((0,),), (), ())
    assert check([*CONTEXT_INSTANCING, {"type": "plan", "calls": [COPY]}], tools={"give": {}}).size == 2


@pytest.mark.parametrize("tool", ["give", "other"])
def test_check_without_a_word_on_activities_takes_every_declared_tool_for_backed(tool: str) -> None:
    plan = check([], {"calls": [call(tool, to="†state.a")]}, tools={tool: {}})
    assert plan.calls[0].runner.executor == "activity"
    assert plan.tools.keys() == {tool}


# R10.1: in every instance


BOTH: list[dict[str, Any]] = [{"type": "state", "_instance": name, "x": x} for name, x in (("①", 1), ("②", 2))]


def test_r10_1_a_call_of_every_instance_runs_once_in_each_as_a_call_of_a_plan() -> None:
    each = call("give", "†state.y", value="†state.x", _instance="*")
    after = call("wrap", "†state.z", value="†state.y", _instance="②")
    plan = checked(each, after, call("give", "†data.g", value=0), context=BOTH)
    assert plan.size == 4
    assert {name: [one.index for one in lane.calls] for name, lane in plan.lanes.items()} == {
        None: [2],
        "①": [0],
        "②": [0, 1],
    }
    assert plan.edges == ((0, 1),)
    result = run_plan(plan, functions={"wrap": lambda given, _: {"k": given["value"]}})
    assert [result.data[name]["state"] for name in ("①", "②")] == [{"x": 1, "y": 1}, {"x": 2, "y": 2, "z": {"k": 2}}]
    assert "y" not in result.data[None].get("state", {})
    assert {m["_instance"] for m in result.messages if m["_call"].get("_instance") == "*"} == {"①", "②"}


def test_r10_1_each_has_errors_of_its_own() -> None:
    def half(given: Any, _: Any) -> Any:
        if given["value"] == 1:
            raise ValueError("one")
        return given["value"]

    each = call("half", "†state.y", value="†state.x", _instance="*")
    result = run(each, context=BOTH, functions={"half": half})
    assert [result.statuses[name][0] for name in ("①", "②")] == [Status.FAILED, Status.DONE]
    assert "error" in result.data["①"]
    assert "error" not in result.data["②"]


def test_r10_1_what_every_instance_writes_can_be_gathered() -> None:
    each = call("give", "†state.y", value="†state.x", _instance="*")
    result = run(each, call("give", "†data.all", value="†state.y", _gather=True), context=BOTH)
    assert result.data[None]["data"]["all"] == {"①": 1, "②": 2}


def test_r10_1_a_reference_has_to_be_satisfied_in_every_instance() -> None:
    context = [BOTH[0], {"type": "state", "_instance": "②", "other": 2}]
    (problem,) = problems_of(call("give", "†state.y", value="†state.x", _instance="*"), context=context)
    assert "it is not in the context of instance '②'" in problem.message
    each = call("give", "†state.y", value=1, _instance="*")
    (problem,) = problems_of(each, call("give", "†data.g", value="†state.y"), context=BOTH)
    assert "call 0 writes †state.y in every instance, and the call has no _instance" in problem.message


@pytest.mark.parametrize(
    ("raw", "context", "at", "words"),
    [
        (call("give", "†state.y", _instance="*"), [], "/_instance", "has no instances: leave _instance out"),
        (call("give", "†state.y", _instance="*", _gather=True), BOTH, "/_gather", "cannot be combined with _instance"),
    ],
)
def test_r10_1_it_needs_instances_and_does_not_gather(raw: Any, context: Any, at: str, words: str) -> None:
    (problem,) = problems_of(raw, context=context)
    assert (problem.pointer, words in problem.message) == (f"/solution/calls/0{at}", True)


def test_r10_1_it_stands_in_no_plan_message_and_no_instance_has_its_name() -> None:
    (problem,) = problems(plan_submission(call("give", "†state.y", _instance="*"), context=BOTH))
    assert "a plan runs in every instance anyway: leave _instance out" in problem.message
    (problem,) = problems(submission(call("give"), context=[{"type": "state", "_instance": "*", "x": 1}]))
    assert problem.pointer == "/context/0/_instance"


def test_r10_1_a_tool_that_pins_its_instances_does_not_admit_all() -> None:
    pinned = {"give": {"properties": {"_instance": {"enum": ["①", "②"]}}}}
    assert pointers(problems_of(call("give", "†state.y", _instance="*"), context=BOTH, tools=pinned)) == [
        "/solution/calls/0/_instance"
    ]


def test_r10_1_its_calls_count_over_all_instances() -> None:
    each = call("give", "†state.y", value=1, _instance="*")
    (problem,) = problems_of(each, each, context=BOTH, limits=Limits(calls=3))
    assert "4 calls over all instances" in problem.message
    assert "× 2 instances" in checked(each, context=BOTH).to_mermaid()


def test_r10_1_who_can_read_is_who_is_in_an_instance() -> None:
    writer = call("give", "†state.y || †state.n", value=1, _instance="*")
    readers = [call("see", "†data.a", _scopes=["state"], _instance="①"), call("see", "†data.b", _scopes=["state"])]
    gather = call("give", "†data.c", value="†state.y", _gather=True)
    plan = checked(writer, *readers, gather, context=BOTH)
    audience = Audience(plan.calls, is_template=False)
    assert sorted({*audience.of(plan.calls[0], Reference("state", ("y",)))}) == [1, 3]


@given(submissions().filter(lambda one: "solution" not in one and any("_instance" in m for m in one["context"])))
def test_r10_1_law_a_plan_is_a_solution_of_calls_of_every_instance(value: dict[str, Any]) -> None:
    *context, plan = value["context"]
    calls = [one if {"_instance", "_gather"} & one.keys() else {**one, "_instance": "*"} for one in plan["calls"]]
    try:
        of_plan = run_plan(check_submission(value), functions=FUNCTIONS_OF_LAWS)
    except Rejected:
        with pytest.raises(Rejected):
            check_submission({"context": context, "solution": {"calls": calls}, "tools": value["tools"]})
        return
    written = check_submission({"context": context, "solution": {"calls": calls}, "tools": value["tools"]})
    of_calls = run_plan(written, functions=FUNCTIONS_OF_LAWS)
    assert {name: dict(found) for name, found in of_calls.statuses.items() if found} == {
        name: dict(found) for name, found in of_plan.statuses.items() if found
    }
    for name, kinds in of_plan.data.items():
        assert {kind: one for kind, one in of_calls.data[name].items() if kind != "error"} == {
            kind: one for kind, one in kinds.items() if kind != "error"
        }
