"""Staged plans on real workers: a tick asks twice, for tools and then for their parameters (SPEC R12.7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from acts_celery import local
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.errors import NoSuchTick
from acts_celery.worker.storage.keys import Keys

from .backend import ACTIVITIES, Backend, Meeting
from .loops import Asked, loop_settings
from .test_r9_3_children import Told, ended, submit
from .test_r13_7_lazy import planned

INTEGER = {"type": "integer"}
ADD = {"add": {"type": "object", "properties": {"a": INTEGER, "b": INTEGER, "_output": INTEGER}, "required": ["a"]}}
STAGED: dict[str, Any] = {"tools": ADD, "config": {"plan": "staged"}}


@pytest.fixture(scope="module")
def loops(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    running = Backend(loop_settings(server, "staged"), meeting, tmp_path_factory.mktemp("staged"))
    with running.worker():
        yield running


def tools(*names: str, **how: Any) -> dict[str, Any]:
    """The first answer of a tick."""
    return {"answer": {"tools": list(names)}, **how}


def filled(*calls: dict[str, Any], first: int = 0, output: Any = None, **how: Any) -> dict[str, Any]:
    """The second answer of a tick."""
    named = {f"s{first + at}": {"_tool": "add", **call} for at, call in enumerate(calls)}
    return {"answer": {"calls": named, "output": output}, **how}


def test_r12_7_a_tick_asks_for_tools_and_then_for_their_parameters(loops: Backend) -> None:
    asked = Asked(
        loops,
        tools("add", "add"),
        filled({"a": 1, "b": 2}, {"a": "†state.s0", "b": 10}),
        tools("add"),
        filled({"a": "†state.s1", "b": "†state.s0"}, first=2, output="†state.s2"),
        **STAGED,
    )
    result = asked.result()
    assert (result.status, result.output) == ("completed", 16)
    assert [(call["index"], call["tick"]) for call in result.to_dict()["calls"]] == [(0, 0), (1, 0), (2, 1)]
    requests = [request["messages"] for request in asked.requests]
    assert len(requests) == 4
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(requests))
    assert "s1. add → †state.s1" in requests[1][-1]["content"]
    assert asked.requests[0]["schema"] == asked.requests[2]["schema"]


def test_r12_7_what_is_wrong_with_either_answer_is_the_error_of_its_tick(loops: Backend) -> None:
    asked = Asked(
        loops,
        tools("unheardOf"),
        tools("add"),
        filled({"a": "†state.nowhere"}),
        tools("add", "add"),
        filled({"a": "†state.s1"}, {"a": 1}, output="†state.s1"),
        tools(),
        filled(output=5),
        **STAGED,
    )
    result = asked.result()
    assert (result.status, result.output) == ("completed", 5)
    errors = [message["data"]["error"] for message in asked.messages("error")]
    assert [(error["type"], error["pointer"]) for error in errors] == [
        ("InvalidAnswer", "/tools/0"),
        ("InvalidCall", "/calls/0/a"),
        ("InvalidCall", "/calls/0/a"),
    ]
    assert errors[2]["message"] == "†state.s1 cannot be referred to here, where only what the schema lists can be"
    assert [call.status for call in result.calls] == ["done"]


def test_r12_7_both_requests_count(loops: Backend) -> None:
    paid = [tools("add", usage=[100, 5, 0]), filled({"a": 1}, output=1, usage=[200, 7, 50])]
    result = Asked(loops, *paid, **STAGED).result()
    (tick,) = result.to_dict()["ticks"]
    assert tick["usage"] == {"input": 300, "output": 12, "cached": 50}
    short = {**STAGED, "config": {"plan": "staged", "tokens": 9_000}}
    asked = Asked(loops, tools("add", usage=[8_000, 500, 0]), **short)
    result = asked.result()
    assert result.status == "failed"
    assert asked.asked == {0: 1}
    assert "(config.tokens)" in str(result.to_dict())


def test_r12_7_a_staged_plan_runs_in_every_instance(loops: Backend) -> None:
    data = [{"type": "input", "_instance": name, "n": number} for name, number in (("①", 1), ("②", 20))]
    whole = {**STAGED, "context": data}
    result = Asked(
        loops, tools("add", "add"), filled({"a": "†input.n"}, {"a": "†state.s0"}, output=1), **whole
    ).result()
    assert (result.status, result.output) == ("completed", 1)
    assert {(call.instance, call.index, call.status) for call in result.calls} == {
        (name, index, "done") for name in "①②" for index in (0, 1)
    }


def test_r12_7_a_staged_plan_waits_for_approval_in_lazy_mode(loops: Backend) -> None:
    lazy = {**STAGED, "config": {"plan": "staged", "mode": "lazy"}}
    asked = Asked(loops, tools("add"), filled({"a": 4, "b": 0}), tools(), filled(output="†state.s0"), **lazy)
    plan = planned(asked.run)
    assert plan["calls"] == [{"_tool": "add", "a": 4, "b": 0, "_outputPath": "†state.s0"}]
    asked.run.approve_plan(plan["plan"])
    assert asked.result().output == 4


def test_r12_7_what_was_asked_is_shown_of_both_requests(loops: Backend) -> None:
    asked = Asked(loops, tools("add"), filled({"a": 1}, output=1), **STAGED)
    asked.result()
    shown = asked.run.asked(0)
    for part, request in zip((shown, shown["second"]), asked.requests, strict=True):
        assert {key: part[key] for key in ("messages", "schema")} == {
            key: request[key] for key in ("messages", "schema")
        }
    with pytest.raises(NoSuchTick, match="has asked 1 times"):
        asked.run.asked(1)


def test_r12_7_the_answers_of_a_staged_run_are_a_script_that_gives_them_again(loops: Backend, tmp_path: Path) -> None:
    answers = [
        tools("add"),
        filled({"a": 1, "b": 2}),
        tools("add"),
        filled({"a": "†state.s0"}, first=1, output="†state.s1"),
    ]
    asked = Asked(loops, *answers, **STAGED)
    assert asked.result().output == 4
    file = tmp_path / "answers.json"
    file.write_text(asked.run.script(), encoding="utf-8")
    with local([str(ACTIVITIES)], model=f"scripted:{file}") as client:
        context = [{"type": "text", "message": f"topic: {asked.topic}"}]
        again = client.submit_document({"schema": {"type": "integer"}, **STAGED, "context": context})
        assert again.wait(timeout_seconds=60).output == 4
        assert json.loads(again.script()) == json.loads(file.read_text(encoding="utf-8"))


def test_r13_5_a_fork_after_the_tools_were_chosen_asks_for_their_parameters_alone(loops: Backend) -> None:
    asked = Asked(loops, tools("add"), filled({"a": 1, "b": 0}, output="†state.s0"), **STAGED)
    asked.result()
    log: Any = loops.redis.xrange(Keys(loops.settings.key_prefix, asked.run.id).log)
    ids = [id_.decode() for id_, fields in log if b"choice" in fields or b"request" in fields]  # asked, chosen, asked
    assert loops.wait(asked.run.fork(ids[1]).id).output == 1
    assert asked.asked == {0: 1, 1: 2}
    assert loops.wait(asked.run.fork(ids[2]).id).output == 1
    assert asked.asked == {0: 1, 1: 3}
    assert loops.wait(asked.run.fork(ids[0]).id).output == 1
    assert asked.asked == {0: 2, 1: 4}


def test_r13_3_a_loop_that_has_failed_while_it_asked_goes_on_with_the_same_request(loops: Backend) -> None:
    asked = Asked(loops, tools("add"), **STAGED)
    assert asked.result().status == "failed"
    asked.tell(filled({"a": 1}, output=7))
    asked.run.resume(ticks=1)
    assert asked.result().output == 7
    assert asked.asked == {0: 1, 1: 2}


def test_r12_7_a_delegate_with_tools_plans_in_stages_where_its_definition_says_so(loops: Backend) -> None:
    told = Told(loops, tools("add", usage=[50, 5]), filled({"a": 1, "b": 2}, output="†state.s0", usage=[70, 7]))
    call = {"_tool": "ask", "_delegate": "staged", "_outputPath": "†state.answer"}
    child = told.definition(tools=ADD, config={"plan": "staged", "slots": 1})
    result = ended(loops, submit(loops, [call], staged=child))
    assert result.data()["state"] == {"answer": 3}
    cost = dict(result.calls[0].cost or {})
    assert cost.pop("seconds") >= 0
    usage = {"input": 120, "output": 12, "cached": 0}
    assert cost == {"tokens": 132, "calls": 1, "requests": 2, "usage": usage}


def test_r13_3_a_staged_loop_that_repeats_itself_ends(loops: Backend) -> None:
    """Its results are stored at another place in each tick, and are the same for all that."""
    ticks = [(tools("add", "add"), filled({"a": 1}, {"a": f"†state.s{at}"}, first=at)) for at in (0, 2, 4)]
    asked = Asked(loops, *(answer for tick in ticks for answer in tick), **STAGED)
    result = asked.result()
    assert result.status == "failed"
    assert result.reason is not None
    assert "the last 3 ticks were the same" in result.reason
