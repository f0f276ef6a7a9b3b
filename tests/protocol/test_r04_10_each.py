"""Calls that are carried out for each element of the lists they are given (SPEC R4.10)."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Context, Limits, Output
from acts_celery.protocol.analysis.simulation import simulate
from acts_celery.protocol.analysis.values import value_findings
from acts_celery.protocol.calls.call import ASK_HUMAN, Approvals, call_of, element_index, element_of
from acts_celery.protocol.engine.events import (
    CallDecided,
    CallHeld,
    FanOut,
    FanOutBegun,
    Hold,
    Outcome,
    Ruling,
    Snapshot,
    Start,
    Status,
    Success,
    Verdict,
)
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.requests import compose, read_answer, render
from acts_celery.protocol.schemas import CompiledSchema

from .building import DATE, call, checked, problems_of, run
from .test_r12_requests import call_schema, request

CONTEXT: list[dict[str, Any]] = [{"type": "state", "urls": ["a", "b"], "n": [1, 2], "one": 1, "none": []}]
EACH = call("fetch", "†state.r", url="†state.urls", _each="url")
TEXT = {"type": "string"}
FETCH: dict[str, Any] = {
    "type": "object",
    "properties": {"url": TEXT, "n": {"type": "integer"}, "_each": {"enum": ["url", ["url", "n"]]}, "_output": TEXT},
    "required": ["url"],
}


def execution(*calls: Any, **parts: Any) -> Execution:
    """The global lane of a plan."""
    plan = checked(*calls, context=CONTEXT)
    lane = plan.lanes[None]
    return Execution.of(plan, lane, Context(CONTEXT).fold(None), **parts)


def test_an_element_has_a_number_of_its_own_beyond_all_calls() -> None:
    assert [call_of(element_index(3, 5)), element_of(element_index(3, 5))] == [3, 5]
    assert [call_of(3), element_of(3)] == [3, None]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"_each": 1}, "must be the name of a parameter"),
        ({"_each": []}, "must be the name of a parameter"),
        ({"_each": ["url", 1]}, "must be the name of a parameter"),
        ({"_each": "uri"}, "names 'uri', which is not a parameter"),
        ({"_each": "_scopes", "_scopes": ["state"]}, "names '_scopes', which is not a parameter"),
        ({"_each": ["url", "url"]}, "twice"),
        ({"_each": "url", "url": ["a"]}, "must be a reference to a list"),
        ({"_each": "url", "url": "††state.urls"}, "must be a reference to a list"),
    ],
)
def test_r4_10_it_names_parameters_that_are_references(given: dict[str, Any], words: str) -> None:
    (problem,) = problems_of({**EACH, **given}, context=CONTEXT)
    assert (problem.pointer, words in problem.message) == ("/solution/calls/0/_each", True)


def test_r4_10_it_excludes_gathering_and_what_a_model_or_a_person_gives() -> None:
    instances = [{"type": "state", "_instance": "①", "urls": []}]
    (problem,) = problems_of({**EACH, "_gather": True}, context=instances)
    assert "cannot stand beside _gather" in problem.message
    (problem,) = problems_of(
        {**EACH, "_tool": "think"}, context=CONTEXT, activities={}, model=True, tools={"think": {}}
    )
    assert problem.pointer == "/solution/calls/0/_each"
    asking = {**EACH, "_tool": ASK_HUMAN}
    (problem,) = problems_of(asking, context=CONTEXT, activities={ASK_HUMAN: {}}, tools={ASK_HUMAN: {}})
    assert (problem.pointer, "a question is asked once" in problem.message) == ("/solution/calls/0/_each", True)


def test_r4_10_a_tool_that_pins_it_need_not_be_told() -> None:
    pinned = {"fetch": {**FETCH, "properties": {**FETCH["properties"], "_each": {"const": "url"}}}}
    written = call("fetch", "†state.r", url="†state.urls")
    result = run(written, context=CONTEXT, tools=pinned, functions={"fetch": lambda given, _: given["url"] * 2})
    assert result.data[None]["state"]["r"] == ["aa", "bb"]


def test_r4_6_output_holds_for_each_element() -> None:
    results = iter(["x", 1])
    result = run(EACH, context=CONTEXT, tools={"fetch": FETCH}, functions={"fetch": lambda *_: next(results)})
    assert result.data[None]["state"]["r"] == ["x", None]
    error = result.data[None]["error"]["error"]
    assert (error["type"], error["element"]) == ("OutputError", 1)


def test_r4_4_an_element_names_no_path_and_where_all_fail_the_last_alternative_is_told() -> None:
    chosen = {**EACH, "_outputPath": "†state.r || †state.why"}
    result = run(chosen, context=CONTEXT, functions={"fetch": lambda *_: Output("†state.why", 1)})
    why = result.data[None]["state"]["why"]
    assert (why["type"], why["message"].partition(";")[0]) == ("ElementsFailed", "2 of 2 elements failed (0, 1)")


def test_r4_6_a_place_whose_schema_forbids_null_takes_no_list_with_a_failed_element() -> None:
    strict = [*CONTEXT, {"type": "state", "schema": {"properties": {"r": {"type": "array", "items": TEXT}}}}]
    results = iter(["x", 1])
    result = run(EACH, context=strict, tools={"fetch": FETCH}, functions={"fetch": lambda *_: next(results)})
    assert result.statuses[None][0] is Status.FAILED
    assert "r" not in result.data[None]["state"]


def test_r4_10_the_list_is_taken_once_and_the_results_are_written_once() -> None:
    adding = call("take", "†state.urls", url="†state.urls", _each="url", _outputMethod="concat")
    result = run(adding, context=CONTEXT, functions={"take": lambda given, _: given["url"].upper()})
    assert result.data[None]["state"]["urls"] == ["a", "b", "A", "B"]
    assert len([message for message in result.messages if message["_call"]["_tool"] == "take"]) == 1


def test_r7_1_the_number_of_elements_is_bounded() -> None:
    lane = execution(EACH, limits=Limits(elements=1))
    (outcome,) = lane.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert outcome.error is not None
    assert (outcome.status, "ACTS_LIMIT_ELEMENTS" in outcome.error["message"]) == (Status.FAILED, True)


def test_r7_1_the_results_together_are_no_more_than_a_call_may_be_given() -> None:
    lane = execution(EACH, limits=Limits(call_bytes=100))
    (spread,) = lane.decide(DATE)
    assert isinstance(spread, FanOut)
    lane.apply(FanOutBegun(0, spread.snapshot))
    for start in lane.decide(DATE):
        assert isinstance(start, Start)
        lane.record(start.call.index, Status.RUNNING)
        for event in lane.finish(start.call.index, Success("x" * 60), DATE).events:
            assert lane.apply(event)
    (outcome,) = lane.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert (outcome.status, outcome.error and outcome.error["type"]) == (Status.FAILED, "TooLarge")


def test_r4_10_no_element_shares_what_it_is_given_with_another() -> None:
    def spoil(given: Any, context: Any) -> Any:
        given["more"].append(1)
        context["state"]["one"] = 2
        return [given["more"], sorted(context["state"])]

    spoiling = call("spoil", "†state.r", url="†state.urls", more=[], _each="url", _scopes=["†state.one"])
    result = run(spoiling, context=CONTEXT, functions={"spoil": spoil})
    assert result.data[None]["state"]["r"] == [[[1], ["one"]]] * 2


def test_r14_1_it_is_held_as_a_whole_and_changed_parameters_are_lists() -> None:
    lane = execution(EACH, approvals=Approvals(frozenset({"fetch"})))
    (held,) = lane.decide(DATE)
    assert isinstance(held, Hold)
    assert not isinstance(held, FanOut)
    assert held.snapshot == Snapshot({"url": ["a", "b"]}, {})
    lane.apply(CallHeld(0, held.snapshot))
    lane.apply(CallDecided(0, Ruling(Verdict.APPROVED, {"url": "a"})))
    (outcome,) = lane.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert outcome.status is Status.FAILED


def test_r12_4_it_is_offered_where_the_tool_lists_it_and_demands_references() -> None:
    asked = request({"tools": {"fetch": FETCH}}, activities={"fetch": FETCH})
    schema = CompiledSchema(compose(asked))

    def is_admitted(**properties: Any) -> bool:
        written = {"_tool": "fetch", "_outputPath": "†state.r", **properties}
        return not schema.problems({"calls": [written], "output": None})

    assert list(call_schema(asked, "fetch")["properties"])[:3] == ["_tool", "_reasoningForCall", "_each"]
    assert is_admitted(url="a")
    assert is_admitted(url="†state.urls", _each="url")
    assert is_admitted(url="†state.urls", n="†state.n", _each=["url", "n"])
    assert not is_admitted(url="a", _each="url")
    assert not is_admitted(url="†state.urls", n=1, _each=["url", "n"])
    assert not is_admitted(url="†state.urls", n="†state.n", _each="n")
    assert '"_each" names a parameter' in render(asked)[0]["content"]
    plain = {**FETCH, "properties": {key: part for key, part in FETCH["properties"].items() if key != "_each"}}
    without = request({"tools": {"fetch": plain}}, activities={"fetch": plain})
    assert "_each" not in call_schema(without, "fetch")["properties"]
    assert "_each" not in render(without)[0]["content"]


def test_r12_4_what_is_pinned_is_shown_may_be_left_out_and_demands_references_all_the_same() -> None:
    pinned = {**FETCH, "properties": {**FETCH["properties"], "_each": {"const": "url"}}}
    asked = request({"tools": {"fetch": pinned}}, activities={"fetch": pinned})
    written = {"_tool": "fetch", "_outputPath": "†state.r", "url": "†state.urls"}
    context = {"context": CONTEXT}
    shown = call_schema(asked, "fetch")
    assert shown["properties"]["_each"] == {"const": "url"}
    assert "_each" not in shown["required"]
    assert CompiledSchema(compose(asked)).problems({"calls": [{**written, "url": "a"}], "output": None})
    found = read_answer(
        request({"tools": {"fetch": pinned}, **context}, activities={"fetch": pinned}),
        {"calls": [written], "output": None},
    )
    assert found.errors == ()


def lists_of(schema: Any) -> dict[str, Any]:
    """A tool whose result is a list."""
    return {"_output": {"type": "array", "items": schema}}


@pytest.mark.parametrize(
    ("makes", "words", "codes"),
    [
        (lists_of({"type": "integer"}), {}, [("ACT201", (0, 1))]),
        ({"_output": TEXT}, {}, [("ACT201", (0, 1))]),
        (lists_of(TEXT), {"type": "array"}, []),
        (lists_of(TEXT), {"type": "array", "items": TEXT}, []),
        (lists_of(TEXT), TEXT, [("ACT201", (1, 2))]),
    ],
)
def test_check_looks_at_the_elements_of_what_is_read_and_at_lists_of_what_is_written(
    makes: Any, words: Any, codes: Any
) -> None:
    calls = call("make", to="†state.urls"), EACH, call("join", words="†state.r")
    tools = {"make": makes, "fetch": FETCH, "join": {"properties": {"words": words}}}
    assert [(one.code, one.calls) for one in value_findings(checked(*calls, tools=tools))] == codes


def test_a_simulation_makes_lists_up() -> None:
    calls = call("make", to="†state.urls"), EACH, call("join", words="†state.r", to="†state.all")
    join = {"join": {"properties": {"words": {"type": "array", "minItems": 1, "items": TEXT}}}}
    simulated = simulate(checked(*calls, tools={"fetch": FETCH, **join}))
    assert {one.status for one in simulated.calls} == {Status.DONE}
    assert isinstance(simulated.data[None]["state"]["r"], list)


def test_a_template_beside_the_list_is_read_once_and_an_element_is_none() -> None:
    context = [{"type": "state", "urls": ["†{state.key}", "††"], "key": "k"}]
    result = run(call("echo", "†data.r", url="†state.urls", note="of †{state.urls}", _each="url"), context=context)
    assert result.data[None]["data"]["r"] == [
        {"url": url, "note": 'of ["†{state.key}","††"]'} for url in ("†{state.key}", "††")
    ]
    (problem,) = problems_of(call("fetch", "†state.r", url="†{state.urls}", _each="url"), context=CONTEXT)
    assert "must be a reference to a list" in problem.message
