"""SPEC R10: instancing and plans."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given

from acts_celery.protocol import Context, Limits, Reference, Rejected, check, check_submission
from acts_celery.protocol.engine.events import Status
from acts_celery.protocol.plan.graph import Audience

from .building import (
    FUNCTIONS,
    call,
    checked,
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

TEXTS = {"①": "Привет", "②": "Bonjour"}
CONTEXT = [{"type": "state", "_instance": name, "text": text} for name, text in TEXTS.items()]
COPY = call(to="†state.copy", value="†state.text")


# R10.1


def test_r10_1_a_call_with_an_instance_reads_and_writes_only_there() -> None:
    result = run({**COPY, "_instance": "②"}, context=CONTEXT)
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
    result = run_plan(check_submission(plan_submission(COPY, context=CONTEXT)))
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
        context=[*CONTEXT, {"type": "input", "shared": 1}],
    )
    result = run_plan(check_submission(value))
    assert [result.data[name]["state"]["both"] for name in TEXTS] == [["Привет", 1], ["Bonjour", 1]]


def test_r10_2_a_plans_call_may_be_for_one_instance_only() -> None:
    value = plan_submission({**COPY, "_instance": "②"}, call(to="†state.all", value=1), context=CONTEXT)
    plan = check_submission(value)
    assert {name: [c.index for c in lane.calls] for name, lane in plan.lanes.items()} == {"①": [1], "②": [0, 1]}
    assert plan.size == 3
    unknown = plan_submission({**COPY, "_instance": "③"}, context=CONTEXT)
    assert pointers(problems(unknown)) == ["/context/2/calls/0/_instance"]


def test_r10_2_calls_of_a_solution_run_once_where_they_say() -> None:
    plan = checked(COPY | {"_instance": "①"}, call(to="†state.g", value=1), context=CONTEXT)
    assert {name: len(lane.calls) for name, lane in plan.lanes.items()} == {"①": 1, None: 1}


def test_r10_2_beside_a_solution_plan_messages_are_context() -> None:
    broken = {"type": "plan", "calls": [{"_tool": "nobody", "x": "†"}, 5]}
    plan = check_submission(submission(call(), context=[broken]))
    assert [c.tool for c in plan.calls] == ["give"]


def test_r10_2_in_a_request_plan_messages_are_context_and_are_not_run() -> None:
    request = plan_submission(call(), context=CONTEXT, schema={"type": "string"})
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
    plan = checked(*own, *calls, context=CONTEXT)
    for seed in range(10):
        data = Driver(plan, FUNCTIONS, random=Random(seed)).run().data
        assert [data[name]["state"]["mine"] for name in TEXTS] == [[1, "Привет"], [1, "Bonjour"]]


def test_r10_3_what_a_global_call_did_not_bring_skips_its_readers_in_every_instance() -> None:
    result = run(
        call("fail", to="†state.g"), *[call(value="†state.g", _instance=name) for name in TEXTS], context=CONTEXT
    )
    assert [statuses(result, name) for name in (None, *TEXTS)] == [["failed"], ["skipped"], ["skipped"]]


# The public functions


def test_check_takes_a_context_or_its_messages_and_a_solution_apart() -> None:
    solution = {"calls": [COPY | {"_instance": "①"}]}
    for context in (Context(CONTEXT), CONTEXT):
        plan = check(context, solution, tools={"give": {}})
        assert (plan.waves, plan.edges, plan.findings) == (((0,),), (), ())
    assert check([*CONTEXT, {"type": "plan", "calls": [COPY]}], tools={"give": {}}).size == 2


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
        (call("give", "†state.y", _instance="*", _gather=True), BOTH, "/_gather", "cannot stand beside _instance"),
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
