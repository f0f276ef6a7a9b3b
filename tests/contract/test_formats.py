"""Shapes of submissions (INTERFACE "A submission"; SPEC R1, R10.2): what is taken, and where errors point."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from acts_celery.protocol import Context, Rejected, Unresolved, check, check_submission
from tests.acceptance.command import acts
from tests.worker.backend import ACTIVITIES

CALL = {"_tool": "echo", "value": "†state.text", "_instance": "①", "_outputPath": "†state.copy"}
MESSAGE = {"type": "state", "_instance": "①", "text": "Привет"}
TOOL = {"type": "tool", "tool": {"echo": {"type": "object"}}}
SHAPES: dict[str, Any] = {
    "context and solution": {"context": [MESSAGE], "solution": {"calls": [CALL]}},
    "a plan in the context": {"context": [MESSAGE, {"type": "plan", "calls": [{**CALL, "_instance": "①"}]}]},
    "a tool in the context": {"context": [MESSAGE, TOOL], "solution": {"calls": [CALL], "output": None}},
    "calls among messages": [MESSAGE, CALL],
    "tools beside": {"context": [MESSAGE], "solution": {"calls": [CALL]}, "tools": {"echo": {"type": "object"}}},
}


def checked(content: bytes) -> Any:
    """What `acts check - --json` says of these bytes."""
    return acts("check", "-", "--json", "--activities", str(ACTIVITIES), stdin=content)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_submission_is_taken_in_each_shape_as_json_and_as_msgpack(shape: str) -> None:
    for content in (json.dumps(SHAPES[shape]).encode(), msgpack.packb(SHAPES[shape])):
        found = checked(content)
        assert (found.code, found.json["valid"], found.json["waves"]) == (0, True, [[0]]), found


@pytest.mark.parametrize("document", [[{"_tool": "add", "a": 1}], {"_tool": "add", "a": 1}])
def test_calls_alone_are_a_submission(document: Any) -> None:
    assert checked(json.dumps(document).encode()).json["valid"] is True


def test_json_may_have_comments_and_errors_point_into_the_file() -> None:
    good = '{"solution": {"calls": [{"_tool": "add", "a": 1}]}} // what is to be done'
    assert checked(good.encode()).code == 0
    bad = checked(b'{"solution": {"calls": [{"_tool": "ad", "a": 1}, {"_tool": "add"}]}}')
    assert bad.code == 2
    assert [error["pointer"] for error in bad.json["errors"]] == [
        "/solution/calls/0/_tool",
        "/solution/calls/1",
    ]
    assert all(error["message"] for error in bad.json["errors"])


def test_all_errors_are_found_at_once() -> None:
    calls = [
        {"_tool": "echo", "value": "†state.", "_outputPath": "†state.a"},
        {"_tool": "echo", "value": "†state.none", "_outputPath": "†state.b"},
    ]
    with pytest.raises(Rejected) as refused:
        check_submission({"solution": {"calls": calls}, "tools": {"echo": {"type": "object"}}})
    assert [error.pointer for error in refused.value.errors] == [
        "/solution/calls/0/value",
        "/solution/calls/1/value",
    ]


def test_the_pure_core_folds_resolves_and_narrows() -> None:
    context = Context([{"type": "data", "data": {"user": {"name": "Alex"}}}, MESSAGE])
    assert context.resolve("†data.user.name") == "Alex"
    with pytest.raises(Unresolved):
        context.resolve("†data.user.age")
    assert context.scoped(["state"], instance="①") == {"state": {"text": "Привет"}}


def test_a_plan_has_waves_edges_findings_and_a_picture() -> None:
    calls = [
        {"_tool": "t", "a": "†state.b", "_outputPath": "†state.c"},
        {"_tool": "t", "a": 1, "_outputPath": "†state.b"},
    ]
    plan = check([], {"calls": calls}, tools={"t": {"type": "object"}})
    assert plan.waves == ((1,), (0,))
    assert plan.to_mermaid().startswith("flowchart")
    assert {"waves", "edges", "findings", "promised"} <= set(plan.to_dict())


def test_a_finding_has_a_code_a_place_and_a_remedy() -> None:
    calls = [{"_tool": "t", "a": number, "_outputPath": "†state.b"} for number in (1, 2)]
    (race,) = (
        finding.to_dict()
        for finding in check([], {"calls": calls}, tools={"t": {"type": "object"}}).findings
        if finding.code == "ACT103"
    )
    assert set(race) >= {"code", "name", "severity", "message", "calls", "pointer", "remedy", "rule"}
    assert (race["name"], race["severity"], race["calls"]) == ("race", "warning", [0, 1])
