"""Of what the kind `error` holds nothing is said: failures are written there too (SPEC R7.2, R6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from .building import call, checked, run, statuses

TOOLS: dict[str, Any] = {
    "count": {"_output": {"type": "integer"}},
    "take": {"properties": {"value": {"type": "string"}}},
}
ONE_OF_TWO = call(to="†KIND.a || †KIND.b")
SCHEMA = {"properties": {"z": {"type": "string"}}}


def of_kind(part: Any, kind: str) -> Any:
    """The same, with the name of a kind filled in."""
    if isinstance(part, str):
        return part.replace("KIND", kind)
    if isinstance(part, list):
        return [of_kind(each, kind) for each in part]
    return {key: of_kind(each, kind) for key, each in part.items()} if isinstance(part, dict) else part


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([call(to="†KIND.text.x")], "can never write its result"),
        ([call(to="†KIND.l.0"), call(value="†KIND.l.0", to="†KIND.l.3")], "can never write †state.l.3"),
        ([ONE_OF_TWO, call(value="†KIND.a && †KIND.b")], "can never run"),
        ([call(to="†KIND.x"), call(to="†KIND.x")], "in no certain order"),
        ([call("count", to="†KIND.x"), call("take", value="†KIND.x")], "gives what does not fit"),
        ([call("count", to="†KIND.z")], "forbids"),
        ([call("take", value="†KIND.number")], "does not fit"),
    ],
)
def test_what_is_told_of_other_kinds_is_not_told_of_errors(calls: list[Any], message: str) -> None:
    held = {"type": "KIND", "data": {"text": "a", "number": 5}, "schema": SCHEMA}

    def told(kind: str) -> list[str]:
        plan = checked(*of_kind(calls, kind), context=[of_kind(held, kind)], tools=TOOLS)
        return [finding.message for finding in plan.findings if finding.severity == "warning"]

    assert [message in found for found in told("state")] == [True]
    assert told("error") == []


def test_a_failure_may_clear_the_way_for_a_call_that_writes_to_errors() -> None:
    calls = [call("fail", to="†state.q"), call(value=1, to="†error.error.note")]
    context = [{"type": "error", "data": {"error": "text"}}]
    assert not any("never" in finding.message for finding in checked(*calls, context=context).findings)
    assert statuses(run(*calls, context=context)) == ["failed", "done"]
