"""The output of a solution is read when all calls have ended (SPEC R4.9)."""

from __future__ import annotations

from typing import Any

from .backend import DEADLINE_SECONDS, Backend


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
    chosen = {"_tool": "choose", "path": "††state.other", "value": 1, "_outputPath": "†state.wanted || †state.other"}
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


def test_an_output_with_references_is_none_as_long_as_calls_have_not_ended(backend: Backend) -> None:
    run = submitted(backend, {"made": "†state.made"}, make(1, "†state.made"))
    result = run.wait(timeout_seconds=DEADLINE_SECONDS)
    first = next(run.log()).id
    assert result.output == {"made": 1}
    assert run.result(at=first).output is None
