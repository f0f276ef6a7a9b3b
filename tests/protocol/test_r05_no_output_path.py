"""SPEC R5: calls without an output path."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import check_submission
from acts_celery.protocol.engine.events import Failure, Outcome, Start, Status, Success

from .building import ANY, DATE, call, checked, executing, pointers, problems_of, run, statuses, submission

THOUGHT = {"_tool": "think", "about": "†state.nowhere", "_output": {"plan": 1}}


# R5.1


@pytest.mark.parametrize(
    "raw", [{"_tool": "log"}, {"_tool": "log", "_delegate": "d"}, {"_tool": "log", "_activity": "a"}]
)
def test_r5_1_an_explicit_call_without_an_output_path_is_sent_and_forgotten(raw: dict[str, str]) -> None:
    result = run({**raw, "event": "†state.event", "_scopes": ["state"]}, context=[{"type": "state", "event": "login"}])
    assert statuses(result) == ["sent"]
    assert result.messages == []
    assert [(s.parameters, s.context) for s in result.sent] == [({"event": "login"}, {"state": {"event": "login"}})]


def test_r5_1_nothing_is_stored_not_even_what_the_sender_hears() -> None:
    execution, _ = executing(checked(call()))
    assert execution.finish(0, Success({"type": "state", "a": 1}), DATE) == Outcome(0, Status.SENT)


def test_r5_1_it_waits_for_what_it_reads_and_is_skipped_without_it() -> None:
    result = run(
        call(event="†state.a"), call(event="†state.b"), call(to="†state.a", value=1), call("fail", to="†state.b")
    )
    assert statuses(result) == ["sent", "skipped", "done", "failed"]
    assert [s.parameters for s in result.sent] == [{"event": 1}]


def test_r5_1_no_call_can_depend_on_it() -> None:
    found = problems_of(call("first"), call(value="†state.first"))
    assert pointers(found) == ["/solution/calls/1/value"]
    assert checked(call("first"), call()).edges == ()


def test_r5_1_one_that_cannot_be_sent_fails_and_the_others_go_on() -> None:
    execution, _ = executing(checked(call(), call(to="†state.a")))
    assert all(isinstance(start, Start) for start in execution.decide(DATE))
    outcome = execution.finish(0, Failure("BrokerDown", "nobody listens"), DATE)
    assert (outcome.status, outcome.error) == (Status.FAILED, {"type": "BrokerDown", "message": "nobody listens"})


# R5.2


@pytest.mark.parametrize("output", [{}, {"_output": 1}])
def test_r5_2_a_latent_call_without_an_output_path_is_a_passing_thought(output: dict[str, int]) -> None:
    result = run({"_tool": "think", **output}, activities={}, model=False)
    assert statuses(result) == ["latent"]
    assert (result.messages, result.started, result.sent) == ([], (), ())


def test_r5_2_a_thought_waits_for_nothing_and_is_no_error_whatever_it_reads() -> None:
    result = run(THOUGHT, {"_tool": "think", "about": "†state.a"}, call(to="†state.a"), activities={"give": ANY})
    assert statuses(result) == ["latent", "latent", "done"]


def test_r5_2_a_thought_is_in_no_wave_and_no_drawing() -> None:
    plan = checked(call(to="†state.a"), {"_tool": "think", "about": "†state.a"}, activities={"give": ANY})
    assert plan.waves == ((0,),)
    assert plan.edges == ()
    assert "think" not in plan.to_mermaid()


# R5.1: what goes nowhere

TEXT = {"type": "string"}
DEFINITION = {"context": [{"type": "system", "message": "Sum up."}], "schema": {}}


@pytest.mark.parametrize(
    ("raw", "more", "words"),
    [
        (call("sum"), {"tools": {"sum": {"_output": TEXT}}}, "its tool 'sum' says what it gives"),
        (call("sum"), {"activities": {"sum": {"properties": {"_output": TEXT}}}, "tools": {}}, "its tool 'sum'"),
        (
            call("sum", _activity="code"),
            {"activities": {"code": {"properties": {"_output": TEXT}}}},
            "its activity 'code' says what it gives",
        ),
        (call("sum", _delegate="model"), {"delegates": {"model": DEFINITION}}, "its delegate 'model' gives one"),
    ],
)
def test_r5_1_check_warns_of_a_result_that_goes_nowhere(raw: dict[str, Any], more: Any, words: str) -> None:
    value = submission(raw, **{key: part for key, part in more.items() if key not in ("activities", "delegates")})
    value = {**value, **({"delegates": more["delegates"]} if "delegates" in more else {})}
    if more.get("tools") == {}:
        value["tools"] = {}
    known = {"activities": more["activities"]} if "activities" in more else {}
    (finding,) = check_submission(value, **known).findings
    assert (finding.code, finding.severity, words in finding.message) == ("ACT405", "warning", True)
    assert finding.remedy == 'add an _outputPath, such as "†state.sum"'
    value["solution"]["calls"][0]["_outputPath"] = "†state.sum"
    assert check_submission(value, **known).findings == ()


@pytest.mark.parametrize("tool", [{}, {"_output": {"type": "null"}}, {"_output": {"const": None}}, {"_output": True}])
def test_r5_1_what_gives_nothing_loses_nothing(tool: dict[str, Any]) -> None:
    assert checked(call("log"), tools={"log": {**ANY, **tool}}).findings == ()


def test_r5_2_a_passing_thought_loses_nothing() -> None:
    assert checked({"_tool": "think", "_output": "x"}, tools={"think": {"_output": TEXT}}, activities={}).findings == ()
