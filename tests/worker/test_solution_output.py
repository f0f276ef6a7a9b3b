"""The output of a solution is read when all calls have ended (SPEC R4.9)."""

from __future__ import annotations

from typing import Any

import pytest

from .backend import DEADLINE_SECONDS, Backend
from .test_r14_people import wait_held
from .test_retry import broken


def submitted(backend: Backend, output: Any, *calls: dict[str, Any], **parts: Any) -> Any:
    context: list[dict[str, Any]] = [{"type": "state", "name": "Alex"}, {"type": "state", "_instance": "①", "mark": 1}]
    return backend.client.submit(context, {"calls": list(calls), "output": output}, **parts)


def make(value: Any, to: str, **properties: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": to, **properties}


def test_references_in_the_output_are_replaced_by_what_is_there_in_the_end(backend: Backend) -> None:
    output = {"greeting": ["†state.greeting"], "all": "†state.missing || †state.name", "literal": "††state"}
    late = make("†state.greeting", "†state.late", _instance="①")
    run = submitted(backend, output, make("Hello", "†state.greeting"), late)
    result = run.wait(timeout_seconds=DEADLINE_SECONDS)
    assert result.status == run.status()["status"] == "completed"
    assert result.output == {"greeting": ["Hello"], "all": "Alex", "literal": "†state"}
    assert run.fork().wait(timeout_seconds=DEADLINE_SECONDS).output == result.output


def test_an_output_that_cannot_be_read_fails_the_run_and_is_named(backend: Backend) -> None:
    chosen = {"_tool": "pick", "path": "††state.other", "value": 1, "_outputPath": "†state.wanted || †state.other"}
    run = submitted(backend, ["†state.wanted"], chosen, make(1, "†state.own", _instance="①"))
    result = run.wait(timeout_seconds=DEADLINE_SECONDS)
    assert [call.status for call in result.calls] == ["done", "done"]
    assert result.status == run.status()["status"] == "failed"
    assert list(run.follow())[-1].status == "failed"
    assert result.output is None
    assert "†state.wanted" in (result.reason or "")
    assert result.to_dict()["reason"] == result.reason
    assert run.fork().status()["status"] == "failed"


def test_an_output_that_its_schema_forbids_fails_the_run_once_its_values_are_known(backend: Backend) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "made": {"type": "integer"}}}
    output = {"name": "†state.name", "made": "†state.made"}
    run = submitted(backend, output, make("many", "†state.made"), schema=schema)
    result = run.wait(timeout_seconds=DEADLINE_SECONDS)
    assert result.status == run.status()["status"] == "failed"
    assert result.reason == ('the output does not fit its schema: /output/made: the value is not of type "integer"')
    assert (result.output, run.fork().status()["status"]) == (None, "failed")
    fitting = submitted(backend, output, make(5, "†state.made"), schema=schema)
    assert fitting.wait(timeout_seconds=DEADLINE_SECONDS).output == {"name": "Alex", "made": 5}


def test_what_is_given_by_hand_counts_for_the_output_where_nothing_else_is_left(backend: Backend) -> None:
    run = submitted(backend, "†state.a", broken("output"))
    assert run.wait(timeout_seconds=DEADLINE_SECONDS).status == "failed"
    run.retry(skip=True, value="Hello")
    result = run.wait(timeout_seconds=DEADLINE_SECONDS)
    assert result.status == run.status()["status"] == "completed"
    assert result.output == "Hello"


@pytest.mark.parametrize("calls", [[], [make(1, "†state.own", _instance="①")], [{"_tool": "echo", "value": 1}]])
def test_an_output_is_looked_at_also_where_no_global_call_can_say_so(backend: Backend, calls: list[Any]) -> None:
    for output, status in (("†state.name", "completed"), ("†state", "failed")):
        run = submitted(backend, output, *calls, schema={"type": "string"})
        result = run.wait(timeout_seconds=DEADLINE_SECONDS)
        assert result.status == run.status()["status"] == status


def test_an_output_of_which_an_amendment_leaves_nothing_fails_the_run(backend: Backend) -> None:
    run = submitted(backend, "†state.made", make("Hello", "†state.made"), config={"approve": ["*"]})
    wait_held(run)
    run.amend({"calls": []})
    result = run.wait(timeout_seconds=DEADLINE_SECONDS)
    assert result.status == run.status()["status"] == "failed"


def test_an_output_with_references_is_none_as_long_as_calls_have_not_ended(backend: Backend) -> None:
    run = submitted(backend, {"made": "†state.made"}, make(1, "†state.made"))
    result = run.wait(timeout_seconds=DEADLINE_SECONDS)
    first = next(run.log()).id
    assert result.output == {"made": 1}
    assert run.result(at=first).output is None
