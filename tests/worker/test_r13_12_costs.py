"""What a loop has cost is in its result, and its money is limited (SPEC R13.3, R13.12), on a real worker."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator, Mapping
from decimal import Decimal
from threading import Event
from typing import Any

import pytest

from acts_celery import Answer, Client, Cost, LocalClient, Usage
from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.broker_config.tokens import Identity, TokenLimits
from acts_celery.protocol import Rejected
from acts_celery.worker.cli import main
from acts_celery.worker.errors import OverLimit
from acts_celery.worker.runner.checking import Checker

from .backend import Backend, Meeting
from .loops import Asked, answer, loop_settings
from .test_r9_3_children import Told

SUM = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}
PRICE = json.dumps({"input": 2, "output": 10, "cached": 1})


@pytest.fixture(scope="module")
def loops(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    settings = loop_settings(server, "costs", model_price=PRICE)
    running = Backend(settings, meeting, tmp_path_factory.mktemp("costs"))
    with running.worker():
        yield running


def asking(backend: Backend, *answers: Mapping[str, Any], **request: Any) -> Asked:
    tools: dict[str, Any] = {
        "add": {"type": "object", "properties": {"a": {}, "b": {}}},
        "waitAtGate": {"type": "object", "properties": {"gate": {}, "value": {}}},
    }
    for name in request.get("delegates", ()):
        tools[name] = {"type": "object", "properties": {"_delegate": {"const": name}, "after": {}}}
    return Asked(backend, *answers, tools=tools, **request)


def without_seconds(cost: Cost | Mapping[str, Any] | None) -> dict[str, Any]:
    shown = dict(cost.to_dict() if isinstance(cost, Cost) else cost or {})
    assert shown.pop("seconds") >= 0
    return shown


def test_r13_12_a_result_says_what_each_tick_and_all_of_it_has_cost_with_calls_and_child_runs(
    loops: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {"schema": {"type": "integer"}, "context": [{"type": "text", "message": f"topic: {secrets.token_hex(4)}"}]}
    topic = plain["context"][0]["message"].removeprefix("topic: ")  # type: ignore[index]
    loops.meeting.redis.rpush(f"answers:{topic}", json.dumps(answer(output=4, usage=[300, 30])))
    child = Told(loops, answer(SUM, usage=[200, 20]), answer(output="†state.sum", usage=[200, 20]))
    calls = [{"_tool": name, "_outputPath": f"†state.{name}"} for name in ("plain", "child")]
    asked = asking(
        loops,
        answer(*calls, usage=[1_000, 100, 500]),
        answer(output=7, usage=[2_000, 10]),
        delegates={"plain": plain, "child": child.definition()},
    )
    result = asked.result()
    first, second = result.ticks or ()
    assert without_seconds(first.cost) == {
        "requests": 1,
        "tokens": 1_100,
        "usage": {"input": 1_000, "output": 100, "cached": 500},
        "money": "0.0025",
        "currency": "USD",
    }
    assert second.cost is not None
    assert second.cost.money == "0.0041"
    assert without_seconds(result.calls[0].cost)["money"] == "0.0009"
    assert without_seconds(result.calls[1].cost)["money"] == "0.0012"
    whole = {
        "requests": 5,
        "tokens": 3_880,
        "usage": {"input": 3_700, "output": 180, "cached": 500},
        "money": "0.0087",
        "currency": "USD",
    }
    assert without_seconds(result.cost) == whole
    document = result.to_dict()
    assert without_seconds(document["cost"]) == whole
    assert without_seconds(document["ticks"][0]["cost"])["money"] == "0.0025"
    (summary,) = (each for each in loops.client.runs() if each.run == asked.run.id)
    assert without_seconds(summary.cost) == whole
    payer = Identity("payer", TokenLimits(money=Decimal("0.0009")))
    with Client(loops.settings.acting_for("payer", payer)) as client:
        solution = {"calls": [{"_tool": "x", "_delegate": "plain", "_outputPath": "†state.a"}]}
        alone = client.submit(solution=solution, delegates={"plain": plain})
        cost = loops.wait(alone.id).cost
        with pytest.raises(OverLimit, match=r"taken 0\.0009 USD, and its limit is 0\.0009 a day \(money=0\.0009"):
            client.submit(solution=solution, delegates={"plain": plain})
    assert cost is not None
    assert (cost.requests, cost.money) == (1, "0.0009")
    assert loops.run([SUM]).cost is None


def test_r13_3_no_request_begins_that_may_cost_more_than_is_left_of_the_money(loops: Backend) -> None:
    config = {"money": 0.17, "max_output_tokens": 10_000}  # 0.1 for an answer
    asked = asking(loops, answer(SUM, usage=[20_000, 100]), answer(SUM, usage=[40_000, 100]), config=config)
    result = asked.result()
    assert result.status == "failed"
    assert asked.asked == {0: 1}
    assert "of 0.17 USD (config.money) are left" in (result.reason or "")
    beyond = asking(
        loops, answer(SUM, usage=[20_000, 20_000]), config={"money": 0.1, "max_output_tokens": 1_000}
    ).result()
    assert beyond.reason == "0.24 USD were billed, where 0.1 USD (config.money) are allowed"


def test_r13_3_parent_and_children_draw_on_one_pool_of_money(loops: Backend) -> None:
    most = {"config": {"max_output_tokens": 1_000}}
    child = Told(loops, answer(SUM, usage=[5_000, 4_000]), answer(output=1, usage=[5_000, 10]))
    plain = {"schema": {"type": "integer"}, "context": [{"type": "text", "message": "topic: none"}], **most}
    calls = [
        {"_tool": "child", "_outputPath": "†state.a"},
        {"_tool": "plain", "_outputPath": "†state.b || †state.c", "after": "†state.a"},
    ]
    asked = asking(
        loops,
        answer(*calls, usage=[1_000, 100]),
        answer(output=1, usage=[10, 10]),
        delegates={"child": child.definition(**most), "plain": plain},
        config={"money": 0.08, "max_output_tokens": 1_000},
    )
    result = asked.result()
    error = result.calls[0].error or {}
    assert error["type"] == "ChildFailed"
    assert "(config.money)" in error["message"]
    assert sum(child.asked.values()) == 1
    assert result.calls[0].cost is not None
    assert result.calls[0].cost["money"] == "0.05"


def test_r13_3_money_without_a_known_price_is_refused_with_the_remedy(server: EmbeddedServer) -> None:
    settings = load(
        env_file=None, model="house:x", models=json.dumps({"p": {"model": "house:y", "price": json.loads(PRICE)}})
    )
    request = {"context": [], "schema": {"type": "integer"}, "tools": {"t": {}}}
    checker = Checker(settings)
    with pytest.raises(Rejected) as refused:
        checker.check_submission({**request, "config": {"money": 1}})
    (problem,) = refused.value.errors
    assert problem.pointer == "/config/money"
    assert "no price is known of house:x" in problem.message
    assert "ACTS_MODEL_PRICE" in problem.message
    checker.check_submission({**request, "config": {"money": 1, "model": "p"}})
    delegates = {"d": {"config": {"model": "house:x"}, "schema": {"type": "integer"}}}
    with pytest.raises(Rejected, match="house:x, which /delegates/d/config asks"):
        checker.check_submission({**request, "delegates": delegates, "config": {"money": 1, "model": "p"}})


def test_r13_12_a_run_that_is_cancelled_keeps_what_its_request_may_have_used_and_says_that_it_is_an_estimate(
    loops: Backend,
) -> None:
    gate = secrets.token_hex(4)
    asked = asking(loops, answer(SUM, usage=[1_000, 100]), answer(output=1, gate=gate))
    asked.wait_until_asked(1)
    assert asked.run.result().cost is not None
    asked.run.cancel()
    cost = asked.result().cost
    loops.meeting.open_gate(gate)
    assert cost is not None
    assert (cost.requests, cost.input) == (2, 1_000)
    assert cost.estimated > 4_096
    assert cost.tokens == 1_100 + cost.estimated


def test_r13_12_what_child_runs_have_cost_counts_also_where_their_parent_is_cancelled(acts: LocalClient) -> None:
    asked = Event()

    async def answers(messages: Any, *_: Any) -> Answer:
        if "# Tick 0" not in str(messages):
            said = {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]}
            return Answer(json.dumps(said), "m", Usage(1_000, 100))
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("it waits for ever")

    acts.model(answers)
    desk = {"context": [], "schema": {}, "tools": ["echo"]}
    ask = {"type": "object", "properties": {"_delegate": {"const": "desk"}}}
    call = {"_tool": "ask", "_outputPath": "†state.x"}
    run = acts.submit([], {"calls": [call]}, tools={"ask": ask}, delegates={"desk": desk})
    assert asked.wait(60)
    run.cancel()
    cost = run.wait(timeout_seconds=60).cost
    assert cost is not None
    assert (cost.requests, cost.input) == (2, 1_000)
    assert cost.tokens == 1_100 + cost.estimated > 4_096
    assert run.result().cost == cost


def test_r13_12_what_was_asked_when_the_time_was_over_counts_also_when_more_ticks_are_added(loops: Backend) -> None:
    gate = secrets.token_hex(4)
    asked = asking(loops, answer(output=1, gate=gate, usage=[100, 10]), config={"seconds": 1})
    failed = asked.result()
    loops.meeting.open_gate(gate)
    assert failed.status == "failed"
    assert failed.cost is not None
    assert failed.cost.requests == 1
    assert failed.cost.estimated == failed.cost.tokens > 4_096


def test_acts_show_and_acts_runs_say_what_a_loop_has_cost(
    loops: Backend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asking(loops, answer(output=1, usage=[1_000, 100]))
    asked.result()
    for name, value in loops.environment().items():
        monkeypatch.setenv(name, value)
    capsys.readouterr()
    for command in (["show", asked.run.id], ["runs", "--limit", "1"]):
        assert main(command) == 0
        assert "0.003 USD, 1100 tokens in 1 request" in capsys.readouterr().out
