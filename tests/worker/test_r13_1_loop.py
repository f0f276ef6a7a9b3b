"""The loop on real workers: a model is asked, its calls run, its output is looked at (SPEC R13.1, R13.2, R13.5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acts_celery import Client, local
from acts_celery.protocol import Rejected

from .backend import ACTIVITIES, Backend
from .loops import ADD, Asked, answer

SUM = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}
MORE = {"_tool": "add", "a": "†state.sum", "b": 10, "_outputPath": "†state.more"}


def test_r13_1_a_request_is_asked_until_an_output_is_there(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM), answer(MORE), answer(output="†state.more"))
    result = asked.result()
    assert (result.status, result.output) == ("completed", 13)
    assert asked.asked == {0: 1, 1: 1, 2: 1}
    document = result.to_dict()
    assert [(call["index"], call["tick"], call["status"]) for call in document["calls"]] == [
        (0, 0, "done"),
        (1, 1, "done"),
    ]
    assert [(tick["tick"], tick["calls"], tick["errors"]) for tick in document["ticks"]] == [
        (0, [0], 0),
        (1, [1], 0),
        (2, [], 0),
    ]


def test_r13_1_an_output_is_read_when_the_calls_that_came_with_it_have_ended(loops: Backend) -> None:
    result = Asked(loops, answer(SUM, MORE, output="†state.more")).result()
    assert (result.status, result.output, len(result.ticks or ())) == ("completed", 13, 1)


def test_r13_1_the_messages_of_a_tick_begin_with_those_of_the_one_before(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM), answer(MORE), answer(output=13))
    asked.result()
    first, second, third = (request["messages"] for request in asked.requests)
    assert second[: len(first)] == first
    assert third[: len(second)] == second
    assert [message["role"] for message in second[len(first) :]] == ["assistant", "user"]
    assert json.loads(second[-2]["content"]) == {"calls": [SUM], "output": None}
    assert "## Data: †state.sum\n3" in second[-1]["content"]
    assert "0. add: done" in second[-1]["content"]
    assert all(request["schema"] == asked.requests[0]["schema"] for request in asked.requests)


def test_r4_10_a_model_has_a_call_carried_out_for_each_element_of_a_list_that_a_call_wrote(loops: Backend) -> None:
    listed = {"type": "array", "items": {"type": ["integer", "null"]}}
    adding = {**ADD, "properties": {"a": {}, "b": {}, "_each": {"enum": ["a"]}}}
    echoing = {"type": "object", "properties": {"value": {}}, "required": ["value"], "additionalProperties": False}
    give = {"_tool": "echo", "value": [1, "x", 3], "_outputPath": "†state.found"}
    take = {"_tool": "add", "a": "†state.found", "b": 10, "_each": "a", "_outputPath": "†state.sums"}
    tools = {"add": adding, "echo": echoing}
    asked = Asked(loops, answer(give, take), answer(output="†state.sums"), tools=tools, schema=listed)
    result = asked.result()
    assert (result.status, result.output, asked.asked) == ("completed", [11, None, 13], {0: 1, 1: 1})
    (call,) = (call for call in result.calls if call.tool == "add")
    assert call.to_dict()["elements"] == {"total": 3, "ended": 3, "failed": 1}
    receipt = asked.requests[1]["messages"][-1]["content"]
    assert "1 of 3 elements failed" in receipt
    assert "## Data: †state.sums\n[11,null,13]" in receipt


def test_r13_1_no_calls_and_no_output_cost_a_tick(loops: Backend) -> None:
    result = Asked(loops, answer(), answer(output=1)).result()
    assert (result.status, result.output, len(result.ticks or ())) == ("completed", 1, 2)


def test_r13_1_the_errors_of_a_tick_are_there_at_its_end_in_the_order_of_the_calls(loops: Backend) -> None:
    calls: list[dict[str, Any]] = [
        {"_tool": "add", "a": "no number", "_outputPath": "†state.first"},
        {"_tool": "unheardOf", "_outputPath": "†state.second"},
        SUM,
        {"_tool": "add", "a": "†state.second", "_outputPath": "†state.third"},
    ]
    asked = Asked(loops, answer(*calls), answer(output="†state.sum"))
    result = asked.result()
    assert (result.status, result.output) == ("completed", 3)
    errors = [message["data"] for message in asked.messages("error")]
    assert [(error["call"], error["error"]["pointer"][:8]) for error in errors] == [
        (calls[0], "/calls/0"),
        (calls[1], "/calls/1"),
        (calls[3], "/calls/3"),
    ]
    assert [status.status for status in result.calls] == ["failed", "done"]
    log = [entry.message["type"] for entry in asked.run.log()]
    assert log == ["text", "solution", "data", "error", "error", "error", "solution"]
    assert "no number" in asked.requests[1]["messages"][-1]["content"]


def test_r13_1_an_output_is_set_aside_where_a_call_that_came_with_it_failed(loops: Backend) -> None:
    bad = {"_tool": "add", "a": "no number", "_outputPath": "†state.first"}
    result = Asked(loops, answer(bad, output=1), answer(output=2)).result()
    assert (result.status, result.output) == ("completed", 2)
    first, second = result.to_dict()["ticks"]
    assert (first["errors"], second["errors"]) == (1, 0)
    assert "failed" in first["set_aside"]
    assert "set_aside" not in second


GOAL: dict[str, Any] = {
    "context": [{"type": "state", "schema": {"type": "object", "required": ["sum", "more"]}}],
    "tools": {"add": {**ADD, "properties": {"a": {}, "b": {}, "_outputPath": {"enum": ["†state.sum", "†state.more"]}}}},
    "config": {"goal": "state"},
}


def test_r12_5_an_output_that_leaves_required_places_of_the_state_empty_is_set_aside(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM, output=1), answer(output=2), answer(MORE, output="†state.more"), **GOAL)
    result = asked.result()
    assert (result.status, result.output, asked.asked) == ("completed", 13, {0: 1, 1: 1, 2: 1})
    first, second, third = result.to_dict()["ticks"]
    assert "†state.more (add)" in first["set_aside"]
    assert "†state.sum" not in first["set_aside"]
    assert "†state.more" in second["set_aside"]
    assert "set_aside" not in third
    told = asked.requests[1]["messages"][-1]["content"]
    assert "Unfilled" in told
    assert "Your calls must still fill: †state.more (add)" in told


def test_r12_5_every_instance_has_to_be_filled(loops: Backend) -> None:
    context = [*GOAL["context"], *({"type": "state", "_instance": name} for name in ("①", "②"))]
    first = [{**call, "_instance": "①"} for call in (SUM, MORE)]
    second = [{**call, "_instance": "②"} for call in (SUM, MORE)]
    result = Asked(loops, answer(*first, output=1), answer(*second, output=2), **{**GOAL, "context": context}).result()
    assert (result.status, result.output) == ("completed", 2)
    assert "in 1 of 2 instances" in result.to_dict()["ticks"][0]["set_aside"]


def test_r12_5_without_the_goal_an_output_is_accepted_whatever_is_empty(loops: Backend) -> None:
    result = Asked(loops, answer(output=1), **{**GOAL, "config": {}}).result()
    assert (result.status, result.output) == ("completed", 1)


@pytest.mark.parametrize(
    "context",
    [[], [{"type": "state"}], [{"type": "state", "schema": {"type": "object"}}],
     [{"type": "state", "schema": {"required": ["a"]}, "_trust": ["mail"]}]],
)  # fmt: skip
def test_r12_5_a_goal_needs_a_state_that_requires_something(loops: Backend, context: list[Any]) -> None:
    with pytest.raises(Rejected) as rejected:
        loops.client.submit_document({**GOAL, "context": context, "schema": {"type": "integer"}})
    assert [problem.pointer for problem in rejected.value.errors] == ["/config/goal"]


def test_r13_1_an_output_that_does_not_fit_its_schema_is_set_aside_and_asked_again(loops: Backend) -> None:
    text = {"_tool": "echo", "value": "three", "_outputPath": "†state.text"}
    asked = Asked(
        loops,
        answer(output="three"),
        answer(text, output="†state.text"),
        answer(output="†state.nowhere"),
        answer(output=3),
        tools=["echo"],
    )
    result = asked.result()
    assert (result.status, result.output) == ("completed", 3)
    errors = [message["data"] for message in asked.messages("error")]
    assert [(error["call"], error["error"]["type"]) for error in errors] == [(None, "InvalidOutput")] * 3


def test_r13_1_an_output_is_accepted_whatever_failed_in_earlier_ticks(loops: Backend) -> None:
    bad = {"_tool": "add", "a": "no number", "_outputPath": "†state.first"}
    result = Asked(loops, answer(bad), answer(output=1)).result()
    assert (result.status, result.output) == ("completed", 1)


def test_r13_2_an_answer_that_cannot_be_read_is_the_error_of_its_tick(loops: Backend) -> None:
    asked = Asked(loops, {"text": "I would rather " + "talk " * 200}, {"refuses": "no"}, answer(output=1))
    result = asked.result()
    assert (result.status, result.output, asked.asked) == ("completed", 1, {0: 1, 1: 1, 2: 1})
    unread, refused = (message["data"] for message in asked.messages("error"))
    assert unread["call"] is None
    assert unread["error"]["type"] == "InvalidAnswer"
    assert 400 < unread["error"]["message"].count("") < 700
    assert (refused["call"], refused["error"]["type"]) == (None, "Refused")


def test_r13_11_a_request_is_rejected_where_no_model_is_configured(loops: Backend) -> None:
    settings = loops.settings.model_copy(update={"model": None})
    with Client(settings) as client, pytest.raises(Rejected, match="set ACTS_MODEL, or give a solution"):
        client.submit_document({"context": [], "schema": {"type": "integer"}})


def test_r13_4_a_request_that_the_provider_will_not_take_fails_the_run_in_its_words(loops: Backend) -> None:
    result = Asked(loops).result()
    assert result.status == "failed"
    assert result.reason is not None
    assert "nothing is laid down for tick 0" in result.reason


def test_r13_5_what_was_asked_and_answered_is_in_the_log(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM, usage=[100, 20, 60]), answer(output=3))
    result = asked.result()
    first, second = asked.messages("solution")
    assert first["tick"] == 0
    assert first["solution"] == {"calls": [SUM], "output": None}
    assert first["model"] == "told"
    assert first["usage"] == {"input": 100, "output": 20, "cached": 60}
    assert first["request"] != second["request"]
    assert first["_date"]
    assert result.to_dict()["ticks"][0]["usage"] == first["usage"]


def test_r12_2_a_model_may_call_what_its_request_declares_and_nothing_else(loops: Backend) -> None:
    asked = Asked(
        loops, answer({"_tool": "echo", "value": 1, "_outputPath": "†state.x"}), answer(output=1), tools={"add": ADD}
    )
    assert asked.result().status == "completed"
    (error,) = asked.messages("error")
    assert "declares no tool 'echo'" in error["data"]["error"]["message"]


def test_r13_1_many_instances_are_worked_on_in_one_request(loops: Backend) -> None:
    context = [{"type": "state", "_instance": name, "n": n} for n, name in enumerate("①②③")]
    calls = [
        {"_tool": "add", "_instance": name, "a": "†state.n", "b": 1, "_outputPath": "†state.next"} for name in "①②③"
    ]
    every = {"_tool": "echo", "value": "†state.next", "_gather": True, "_outputPath": "†state.every"}
    asked = Asked(
        loops,
        answer(*calls, every),
        answer(output="†state.every"),
        context=context,
        tools=["add", "echo"],
        schema={"type": "object"},
    )
    result = asked.result()
    assert (result.status, result.output) == ("completed", {"①": 1, "②": 2, "③": 3})
    assert [result.data(name)["state"]["next"] for name in "①②③"] == [1, 2, 3]
    assert asked.asked == {0: 1, 1: 1}


def test_r13_1_a_failure_in_one_instance_is_reported_there_and_leaves_the_others(loops: Backend) -> None:
    context = [{"type": "state", "_instance": name, "n": value} for name, value in (("①", 1), ("②", "two"))]
    calls = [{"_tool": "add", "_instance": name, "a": "†state.n", "_outputPath": "†state.next"} for name in "①②"]
    asked = Asked(loops, answer(*calls), answer(output=1), context=context)
    result = asked.result()
    assert result.status == "completed"
    assert result.data("①")["state"]["next"] == 2
    assert "error" not in result.data("①")
    assert result.data("②")["error"]["error"]["type"]


def test_the_answers_of_a_run_are_a_script_that_gives_them_again(loops: Backend, tmp_path: Path) -> None:
    asked = Asked(loops, answer(SUM), answer(MORE), answer(output="†state.more"))
    first = asked.result()
    file = tmp_path / "answers.json"
    file.write_text(asked.run.script(), encoding="utf-8")
    with local([str(ACTIVITIES)], model=f"scripted:{file}") as client:
        document = {"schema": {"type": "integer"}, "tools": {"add": ADD}}
        document["context"] = [{"type": "text", "message": f"topic: {asked.topic}"}]
        again = client.submit_document(document)
        assert again.wait(timeout_seconds=60).output == first.output == 13
        assert json.loads(again.script()) == json.loads(file.read_text(encoding="utf-8"))
        document["context"] = [{"type": "text", "message": "another"}]
        other = client.submit_document(document).wait(timeout_seconds=60)
        assert "has no answer to this request; of 3 recorded requests the nearest is number 1" in str(other.reason)


def test_r13_1_no_instance_of_a_request_has_the_name_of_the_loops_lane(loops: Backend) -> None:
    with pytest.raises(Rejected, match=r"/context/1/_instance: '[?]' is the loop's own"):
        Asked(loops, context=[{"type": "state", "_instance": "?", "a": 1}])


def test_r12_4_a_model_thinks_forgets_and_leaves_the_choice_to_the_code_as_a_submission_does(loops: Backend) -> None:
    tools = {
        "think": {"properties": {"about": {}, "_output": {"type": "string"}}},
        "add": ADD,
        "pick": {"properties": {"_outputPath": {"enum": ["†state.success", "†state.failure"]}}},
    }
    chosen = {"path": "††state.failure", "value": 4, "_outputPath": "success || failure"}
    asked = Asked(
        loops,
        {
            "text": json.dumps(
                [
                    {"_tool": "think", "about": "it", "_output": "so"},
                    {"_tool": "add", "a": 1},
                    {"_tool": "pick", **chosen},
                    {"_tool": "add", "a": 1, "b": 2, "_outputPath": "sum"},
                ]
            )
        },
        answer(output="†state.sum"),
        tools=tools,
    )
    result = asked.result()
    assert (result.status, result.output) == ("completed", 3)
    assert result.data()["state"] == {"failure": 4, "sum": 3}
    told = asked.requests[1]["messages"][-1]["content"]
    assert [line for line in told.splitlines() if line[:2] in ("0.", "1.", "2.", "3.")] == [
        "0. think: latent (its result was not kept)",
        "1. add: sent (its result was not kept)",
        "2. pick: done → †state.success || †state.failure",
        "3. add: done → †state.sum",
    ]
    assert "is sent and forgotten" in asked.requests[0]["messages"][0]["content"]
    assert "is only a thought" in asked.requests[0]["messages"][0]["content"]
