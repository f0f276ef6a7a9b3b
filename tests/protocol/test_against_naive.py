"""Runs of drawn plans come to what a naive evaluator says, those that gather (SPEC R10.4) too."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Output, Rejected, check_submission
from acts_celery.protocol.analysis.simulation import simulate
from acts_celery.protocol.calls.call import element_of
from acts_celery.protocol.engine.events import Status
from acts_celery.protocol.templates import as_text

from . import naive
from .building import (
    call,
    checked,
    plan_submission,
    pointers,
    problems_of,
    run,
    run_plan,
    statuses,
    submission,
    without_errors,
)
from .driver import Driver, Function, Result
from .strategies import INSTANCES, SCHEMAS, TOOLS, submissions

# Whole submissions, run in random order with duplicates and losses, against the naive evaluator.


def adapted(function: naive.Function) -> Function:
    """The function as the core knows them."""

    def call(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        result = function(parameters, context)
        return Output(result.path, result.value) if isinstance(result, naive.To) else result

    return call


_ERROR = '{"call":'
FUNCTIONS = {name: adapted(function) for name, function in TOOLS.items()}


def compared(verdict: naive.Verdict, result: Result) -> None:
    """Statuses and values must be the same."""
    statuses = {
        lane: {index: status.value for index, status in calls.items()} for lane, calls in result.statuses.items()
    }
    assert statuses == {lane: calls for lane, calls in verdict.statuses.items() if lane in statuses}
    assert not any(calls for lane, calls in verdict.statuses.items() if lane not in statuses)
    assert {reader: alike(without_errors(values)) for reader, values in result.data.items()} == {
        reader: alike(without_errors(values)) for reader, values in verdict.data.items()
    }


def alike(value: Any) -> Any:
    """The value without what the core says of a result that is refused, and in an error: the naive evaluator has no
    words for it.
    """
    if isinstance(value, dict):
        return {key: alike(item) for key, item in value.items() if key != "error" or "call" not in value}
    if isinstance(value, list):
        return [alike(item) for item in value]
    if not isinstance(value, str):
        return value
    if naive.ALL_FAILED in value:
        return naive.ALL_FAILED
    value, begin = value.partition(naive.REFUSED)[0], -1
    while (begin := value.find(_ERROR, begin + 1)) >= 0:  # an error in a text (SPEC R2.6)
        with suppress(json.JSONDecodeError):
            error, end = json.JSONDecoder().raw_decode(value, begin)
            value = value[:begin] + as_text(alike(error)) + value[end:]
    return value


@settings(max_examples=2 * settings().max_examples)
@given(submissions(), st.integers(0, 2**32))
def test_any_order_gives_what_the_naive_evaluator_gives_where_the_order_does_not_matter(
    submission: dict[str, Any], seed: int
) -> None:
    try:
        plan = check_submission(submission)
    except Rejected:
        assume(False)
        return
    assume(naive.is_deterministic(submission))
    verdict = naive.evaluate(submission, TOOLS)
    compared(verdict, Driver(plan, FUNCTIONS, random=Random(seed)).run())
    compared(verdict, Driver(plan, FUNCTIONS).run())


@given(submissions(), st.integers(0, 2**32), st.booleans())
def test_r4_1_an_expression_does_the_same_whether_a_call_writes_it_or_its_tool_pins_it(
    submission: dict[str, Any], seed: int, is_left_out: bool
) -> None:
    pinned, tool = with_a_pin(submission, seed, is_left_out=is_left_out)
    assume(tool is not None and naive.is_deterministic(pinned))
    assert naive.faults(pinned) == naive.faults(submission)
    try:
        plan = check_submission(pinned)
    except Rejected:
        with pytest.raises(Rejected):
            check_submission(submission)
        return
    known, pin = check_submission(submission), f"pinned {tool}"
    assert plan.edges == known.edges
    verdict = naive.evaluate(pinned, {**TOOLS, pin: TOOLS[str(tool)]})
    compared(verdict, Driver(plan, {**FUNCTIONS, pin: FUNCTIONS[str(tool)]}, random=Random(seed)).run())
    assert verdict.statuses == naive.evaluate(submission, TOOLS).statuses


def with_a_pin(submission: dict[str, Any], seed: int, *, is_left_out: bool) -> tuple[dict[str, Any], str | None]:
    """The submission with a tool of its own for one of its calls, which pins an expression; and what that tool was."""
    made = copy.deepcopy(submission)
    calls = made["solution"]["calls"] if "solution" in made else made["context"][-1]["calls"]
    own = TOOLS.keys() - {"number"}
    able = [one for one in calls if naive.is_expression(one.get("value")) and one["_tool"] in own]
    if not able:
        return made, None
    chosen = Random(seed).choice(able)
    tool, text = chosen["_tool"], chosen["value"]
    if is_left_out and "_each" not in chosen:
        del chosen["value"]
    chosen["_tool"] = f"pinned {tool}"
    made["tools"] = {**made["tools"], chosen["_tool"]: {"type": "object", "properties": {"value": {"const": text}}}}
    return made, tool


@given(submissions(), st.integers(0, 2**32))
def test_every_run_ends_with_every_call_ended_once(submission: dict[str, Any], seed: int) -> None:
    try:
        plan = check_submission(submission)
    except Rejected:
        return
    result = Driver(plan, FUNCTIONS, random=Random(seed)).run()
    ended = [(entry.lane, entry.outcome.index) for entry in result.log]
    assert len(ended) == len(set(ended))
    assert len([index for _, index in ended if element_of(index) is None]) == plan.size


@given(submissions())
def test_the_check_finds_the_faults_of_the_graph_that_the_naive_one_finds(submission: dict[str, Any]) -> None:
    found = set()
    try:
        check_submission(submission)
    except Rejected as rejected:
        found = {fault(problem.message) for problem in rejected.errors}
    assert found - {"schema"} == naive.faults(submission)


def fault(message: str) -> str:
    """Which of the faults that the naive evaluator knows is told; a schema where it is none of them."""
    if "unresolvable reference" in message:
        return "nothing"
    return "cycle" if "in a cycle" in message else "schema"


CASES: dict[str, dict[str, Any]] = {
    "a chain": {"calls": [
        {"_tool": "wrap", "value": 1, "_outputPath": "a"},
        {"_tool": "wrap", "value": "†state.a", "_outputPath": "b"},
        {"_tool": "give", "value": ["†state.b.k.k", "†state.a.k"], "_outputPath": "†data.c"},
    ]},
    "a branch that is joined": {"calls": [
        {"_tool": "pick", "where": "††state.no", "value": 1, "_outputPath": "yes || no"},
        {"_tool": "wrap", "value": "†state.yes", "_outputPath": "then"},
        {"_tool": "wrap", "value": "†state.no", "_outputPath": "else"},
        {"_tool": "give", "value": "†state.then || †state.else", "_outputPath": "joined"},
    ]},
    "failures and their readers": {"calls": [
        {"_tool": "fail", "_outputPath": "a"},
        {"_tool": "fail", "_outputPath": "b || c && †data.c"},
        {"_tool": "give", "value": "†state.a", "_outputPath": "d"},
        {"_tool": "give", "value": "†state.d || †state.c.message", "_outputPath": "e"},
        {"_tool": "stray", "_outputPath": "f"},
        {"_tool": "number", "value": "†state.c", "_outputPath": "g"},
    ]},
    "one path read and written again and again": {"calls": [
        {"_tool": "number", "value": "†input.p", "_outputPath": "n"},
        *[{"_tool": "number", "value": "†state.n", "_outputPath": "n"}] * 12,
    ]},
    "writers after readers": {"calls": [
        {"_tool": "give", "value": "†state.b", "_outputPath": "c"},
        {"_tool": "list", "value": "†state.a", "_outputPath": "b", "_outputMethod": "concat"},
        {"_tool": "list", "value": 1, "_outputPath": "a"},
    ]},
    "an error in one of several places": {"calls": [
        {"_tool": "give", "value": 5, "_outputPath": "n"},
        {"_tool": "list", "value": "†state.n", "_outputPath": "†data.l && n", "_outputMethod": "push"},
        {"_tool": "give", "value": ["†state.n", "††state.n"], "_outputPath": "seen"},
    ]},
    "places that are chosen by schemas": {"calls": [
        {"_tool": "choose", "value": "†input.p", "cases": [{"type": "string"}], "_outputPath": "text || number"},
        {"_tool": "give", "value": "†state.text", "_outputPath": "said"},
        {"_tool": "number", "value": "†state.number", "_outputPath": "counted"},
        {"_tool": "choose", "value": "x", "cases": [{"const": 1}, {}], "_outputPath": "one || other && †data.x"},
    ]},
    "moments, and an order without data": {"calls": [
        {"_tool": "wait", "seconds": 5, "_outputPath": "later"},
        {"_tool": "wait", "until": "1970-01-01T00:00:00Z", "_outputPath": "past", "_after": ["†state.later"]},
        {"_tool": "see", "_scopes": ["†data.never"], "_after": ["†state.past", "†data.last"], "_outputPath": "seen"},
        {"_tool": "fail", "_after": ["†state.later"], "_outputPath": "†data.last"},
    ]},
    "scopes": {"calls": [        {"_tool": "wrap", "value": {"deep": 1}, "_outputPath": "a"},
        {"_tool": "see", "_scopes": ["†state.a.k"], "_outputPath": "†data.slice"},
        {"_tool": "fail", "_outputPath": "b"},
        {"_tool": "see", "_scopes": ["state", "input"], "_outputPath": "†data.whole"},
    ]},
    "a scope wait that would close a cycle": {"calls": [
        {"_tool": "give", "value": "†data.last", "_outputPath": "first"},
        {"_tool": "give", "value": 1, "_outputPath": "†data.middle"},
        {"_tool": "give", "value": "†data.middle", "_scopes": ["state"], "_outputPath": "†data.last"},
    ]},
    "results that are refused": {"calls": [
        {"_tool": "give", "value": 1, "_outputPath": "text || number || other"},
        {"_tool": "give", "value": "†state.number", "_outputPath": "words && text || also"},
        {"_tool": "pick", "where": "††state.count", "value": "x", "_outputPath": "count || refused"},
        {"_tool": "give", "value": "†state.refused.type", "_outputPath": "total || †data.seen"},
        {"_tool": "list", "value": "†data.seen", "_outputPath": "sum"},
        {"_tool": "give", "value": "†state.also", "_outputMethod": "push", "_outputPath": "label || list"},
    ]},
    "elements": {"calls": [
        {"_tool": "give", "value": [1, "x", 3], "_outputPath": "l"},
        {"_tool": "number", "value": "†state.l", "_each": ["value"], "_outputPath": "some"},
        {"_tool": "fail", "value": "†state.l", "_each": "value", "_outputPath": "none || why"},
        {"_tool": "echo", "value": "†state.l", "other": "†state.some", "_each": ["value", "other"], "_outputPath": "z"},
        {"_tool": "give", "value": "†state.some", "_each": "value", "_outputPath": "all", "_outputMethod": "concat"},
        {"_tool": "give", "value": "†state.none || †state.why.type", "_outputPath": "read"},
        {"_tool": "give", "value": [], "_outputPath": "empty"},
        {"_tool": "fail", "value": "†state.empty", "_each": "value", "_outputPath": "nothing"},
        {"_tool": "give", "value": "†state.read", "_each": "value", "_outputPath": "never"},
        {"_tool": "pick", "value": "†state.l", "where": "††state.x", "_each": "value", "_outputPath": "y || x"},
        {"_tool": "number", "value": "†state.l", "_each": "value"},
        {"_tool": "see", "value": "†state.l", "_scopes": ["†state.some"], "_each": "value", "_outputPath": "seen"},
    ]},
    "instances": {"calls": [
        {"_tool": "give", "value": "†state.g", "_instance": name, "_outputPath": "mine"} for name in INSTANCES
    ] + [{"_tool": "wrap", "value": "†input.p", "_outputPath": "g"}]},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_known_shapes_come_out_as_the_naive_evaluator_says(name: str, seed: int) -> None:
    kept = {"text": "string", "label": "string", "number": "integer", "count": "integer", "total": "integer"}
    schema = {"properties": {key: {"type": type_} for key, type_ in {**kept, "sum": "integer"}.items()}}
    context = [
        {"type": "input", "p": 0},
        {"type": "state", "schema": schema},
        *({"type": "state", "_instance": one, "own": one} for one in INSTANCES),
    ]
    submission = {"context": context, "solution": CASES[name], "tools": SCHEMAS}
    assert naive.faults(submission) == set()
    assert naive.is_deterministic(submission)
    plan = check_submission(submission)
    compared(naive.evaluate(submission, TOOLS), Driver(plan, FUNCTIONS, random=Random(seed)).run())
    as_plan = {"context": [*context, {"type": "plan", **CASES[name]}], "tools": SCHEMAS}
    compared(naive.evaluate(as_plan, TOOLS), Driver(check_submission(as_plan), FUNCTIONS, random=Random(seed)).run())


# SPEC R10.4: calls that read in every instance.

CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "rate": 2},
    {"type": "state", "_instance": "①", "price": 1},
    {"type": "state", "_instance": "②", "price": 3},
    {"type": "text", "_instance": "③"},
]


def test_r10_4_an_expression_gives_the_values_of_the_instances_that_have_one() -> None:
    result = run(call(to="†data.all", value="†state.price", _gather=True), context=CONTEXT)
    assert result.data[None]["data"]["all"] == {"①": 1, "②": 3}


def test_r10_4_what_no_instance_has_of_its_own_is_read_plainly() -> None:
    result = run(
        call("echo", to="†data.all", rate="†state.rate", of={"price": ["†state.price"]}, _gather=True), context=CONTEXT
    )
    assert result.data[None]["data"]["all"] == {"rate": 2, "of": {"price": [{"①": 1, "②": 3}]}}


def test_r10_4_scopes_are_gathered_too() -> None:
    result = run(call("see", to="†data.all", _scopes=["state"], _gather=True), context=CONTEXT)
    each = {"①": {"rate": 2, "price": 1}, "②": {"rate": 2, "price": 3}, "③": {"rate": 2}}
    assert result.data[None]["data"]["all"] == {"state": each}
    plain = run(call("see", to="†data.all", _scopes=["†state.rate"], _gather=True), context=CONTEXT)
    assert plain.data[None]["data"]["all"] == {"state": {"rate": 2}}


def test_r10_4_it_waits_in_every_instance_for_what_writes_there() -> None:
    calls = [call(to="†state.x", value=name, _instance=name) for name in ("①", "②")]
    for order in ([*calls, "gather"], ["gather", *calls]):
        listed = [call(to="†data.all", value="†state.x", _gather=True) if one == "gather" else one for one in order]
        result = run(*listed, context=CONTEXT)
        assert result.data[None]["data"]["all"] == {"①": "①", "②": "②"}
        at = order.index("gather")
        assert checked(*listed, context=CONTEXT).edges == tuple((index, at) for index in range(3) if index != at)


def test_r10_4_in_a_plan_it_runs_once_globally_and_others_may_read_what_it_writes() -> None:
    calls = [
        call(to="†state.n", value="†state.price || †state.rate"),
        call(to="†data.all", value="†state.n", _gather=True),
        call(to="†state.back", value="†data.all"),
    ]
    plan = check_submission(plan_submission(*calls, context=CONTEXT))
    assert (plan.size, plan.waves) == (7, ((0,), (1,), (2,)))
    result = run_plan(plan)
    assert result.data["③"]["state"]["back"] == {"①": 1, "②": 3, "③": 2}


def test_r10_4_it_is_skipped_only_if_no_instance_has_a_value() -> None:
    calls = [call("fail", to="†state.x", _instance="①"), call(to="†data.all", value="†state.x", _gather=True)]
    result = run(*calls, context=CONTEXT)
    assert statuses(result) == ["skipped"]
    one = call(to="†state.x", _instance="②")
    assert run(one, *calls, context=CONTEXT).data[None]["data"]["all"] == {"②": None}


@pytest.mark.parametrize("gather", ["yes", 1, ["①"]])
def test_r10_4_gather_is_true_or_false(gather: Any) -> None:
    assert pointers(problems_of(call(_gather=gather), context=CONTEXT)) == ["/solution/calls/0/_gather"]


def test_r10_4_gather_excludes_an_instance_and_needs_instances() -> None:
    found = problems_of(call(_gather=True, _instance="①"), context=CONTEXT)
    assert pointers(found) == ["/solution/calls/0/_gather"]
    assert pointers(problems_of(call(_gather=True))) == ["/solution/calls/0/_gather"]
    assert checked(call(_gather=False)).edges == ()
    assert checked(call(_gather=True), context=CONTEXT, tools={"give": {"additionalProperties": False}}).size == 1


def test_r10_4_what_no_instance_can_have_is_rejected() -> None:
    found = problems_of(call(value="†state.nowhere", _gather=True), context=CONTEXT)
    assert pointers(found) == ["/solution/calls/0/value"]


def test_r10_4_a_cycle_through_an_instance_is_rejected() -> None:
    calls = [
        call(to="†data.all", value="†state.x", _gather=True),
        call(to="†state.x", value="†data.all", _instance="②"),
    ]
    assert "in a cycle" in problems_of(*calls, context=CONTEXT)[0].message


def test_r10_4_lanes_of_the_same_calls_share_what_is_waited_for() -> None:
    context = [{"type": "state", "_instance": str(number), "price": 1} for number in range(50)]
    calls = [call(to="†state.n", value="†state.price"), call(to="†data.all", value="†state.n", _gather=True)]
    plan = check_submission(plan_submission(*calls, context=context))
    assert len({id(lane.gathers) for lane in plan.lanes.values() if lane.instance is not None}) == 1


def test_r10_4_a_simulation_gathers() -> None:
    calls = [
        call(to="†state.n", value="†state.price || †state.rate"),
        call(to="†data.all", value="†state.n", _gather=True),
        call(to="†state.back", value="†data.all"),
    ]
    ended = simulate(check_submission(plan_submission(*calls, context=CONTEXT)))
    assert {one.status for one in ended.calls} == {Status.DONE}
    assert [one.instance for one in ended.calls if one.index == 1] == [None]
    assert ended.data[None]["data"]["all"] == ended.data["①"]["state"]["back"]


def test_r10_4_a_simulation_gathers_what_is_promised() -> None:
    promise = {"type": "input", "schema": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}
    plan = checked(call(to="†data.all", value="†input.n", _gather=True), context=[promise, *CONTEXT])
    assert [one.status for one in simulate(plan).calls] == [Status.DONE]


def test_r10_4_a_lane_waits_only_for_gather_calls_that_read_what_is_written_there() -> None:
    calls = [call(to="†state.n", value=1, _instance="①"), call(to="†data.all", value="†state.n", _gather=True)]
    lanes = checked(*calls, call(to="†data.x", value="†state.price", _gather=True), context=CONTEXT).lanes
    waiting = {name: lane.gathers.waiting for name, lane in lanes.items() if lane.gathers is not None}
    assert waiting == {"①": (1,), "②": (), "③": ()}


def test_r10_4_errors_are_gathered_from_every_instance_that_has_one() -> None:
    calls = [
        call("fail", to="†state.a", _instance="①"),
        call("give", to="†state.b", value=1, _instance="②"),
        call("fail", to="†data.c"),
        call(to="†data.all", value="†error.call._outputPath", _gather=True),
    ]
    result = run(*calls, context=CONTEXT)
    assert result.data[None]["data"]["all"] == dict.fromkeys("②③", "†data.c") | {"①": "†state.a"}
    result = run(*calls[1:], context=CONTEXT)
    assert result.data[None]["data"]["all"] == "†data.c", "what no instance has of its own is read plainly"
    result = run(calls[1], calls[3], context=CONTEXT)
    assert result.statuses[None] == {1: Status.SKIPPED}


@st.composite
def gathering(draw: st.DrawFn) -> dict[str, Any]:
    """Submissions in which calls of instances, global ones and gather calls read each other's results."""
    number = draw(st.integers(2, 6))
    places = [f"†{draw(st.sampled_from(['state', 'data']))}.k{index}" for index in range(number)]
    calls = []
    for index, place in enumerate(places):
        reads = st.sampled_from(
            ["†state.price", "†state.rate", *places[:index], *places[:index], *places[index + 1 :][:1]]
        )
        value = draw(st.one_of(reads, reads, st.builds("{} || {}".format, reads, reads)))
        lanes: list[dict[str, Any]] = [{}, {"_instance": "①"}, {"_instance": "②"}, {"_gather": True}, {"_gather": True}]
        where = draw(st.sampled_from(lanes))
        if where == lanes[-1] and index == number - 1:  # which error is the newest hangs on the order
            value = draw(st.sampled_from([value, f"†error && {value} || †state.rate", f"†error && {value}"]))
        seen = draw(st.sampled_from([[], [], [draw(st.sampled_from(["†state.price", *places[:index]]))]]))
        scopes: dict[str, Any] = {"_scopes": seen}
        tool = draw(st.sampled_from(["give", "give", "echo", "fail", "see"]))
        calls.append(call(tool, to=place, value=value, **where, **scopes))
    make = plan_submission if draw(st.booleans()) else submission
    return make(*calls, context=CONTEXT, tools=SCHEMAS)


@given(gathering(), st.integers(0, 2**32))
def test_r10_4_any_order_gives_what_the_naive_evaluator_gives(submitted: dict[str, Any], seed: int) -> None:
    try:
        plan = check_submission(submitted)
    except Rejected:
        assume(False)
        return
    assume(not plan.dropped_waits)
    verdict = naive.evaluate(submitted, TOOLS)
    compared(verdict, Driver(plan, FUNCTIONS).run())
    compared(verdict, Driver(plan, FUNCTIONS, random=Random(seed)).run())


def test_r4_1_a_pinned_gather_is_filled_in() -> None:
    value = {
        "context": [{"type": "state", "_instance": "①", "x": 1}],
        "tools": {"g": {"properties": {"_gather": {"const": True}}}},
        "solution": {"calls": [{"_tool": "g", "v": "†state.x", "_outputPath": "†state.y"}]},
    }
    assert check_submission(value).calls[0].gather


def test_r10_4_a_template_puts_in_the_object_of_the_instances_values() -> None:
    text = "†{state.price} at †{state.rate} or †{state.none || state.rate}"
    result = run(call(to="†data.all", value=text, _gather=True), context=CONTEXT)
    assert result.data[None]["data"]["all"] == '{"①":1,"②":3} at 2 or 2'
