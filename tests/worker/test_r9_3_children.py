"""Child runs (SPEC R9.3), and what a loop costs and may cost (R13.3, R13.12)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import signal
import string
import time
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from threading import Event
from typing import Any, cast

import pytest
import redis.asyncio

from acts_celery import Answer, Client, Cost, LocalClient, Result, Run, Usage
from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.broker_config.tokens import Identity, TokenLimits
from acts_celery.protocol import Rejected
from acts_celery.protocol.engine.events import Failure
from acts_celery.protocol.engine.loop import RequestRecorded as Request
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.cli import main
from acts_celery.worker.client.retrying import Choice, Retrier, RetryScope
from acts_celery.worker.errors import OverLimit
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.runner.checking import Checker
from acts_celery.worker.runner.remote import child_config
from acts_celery.worker.store.connections import read_tokens
from acts_celery.worker.store.keys import Condition, Keys, Kind
from acts_celery.worker.store.log import LogTerms, MessageLog
from acts_celery.worker.store.run_list import PARENT, Parent, child_id
from acts_celery.worker.store.run_store import RunStore
from acts_celery.worker.store.slots import Budget, Reservation, Shortfall, left_of, sum_fields

from .backend import Backend, Meeting
from .loops import ADD, Asked, answer, loop_settings
from .test_r13_5_steering import gated

# A delegate that has tools is a run of its own (SPEC R9.3, R13.10), on real workers.

SUM = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}
ASK = {"_tool": "ask", "_delegate": "researcher", "question": "1+2", "_outputPath": "†state.answer"}


@pytest.fixture(scope="module")
def loops(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """With short leases, so that what is lost is found soon."""
    short = {"lease_seconds": 1.5, "sweep_interval_seconds": 0.2, "limit_child_depth": 2}
    running = Backend(loop_settings(server, "children", **short), meeting, tmp_path_factory.mktemp("children"))
    with running.worker():
        yield running


class Told:
    """Answers that are laid down for a topic, which the definition of a delegate names."""

    def __init__(self, backend: Backend, *answers: Mapping[str, Any]) -> None:
        self.topic = secrets.token_hex(4)
        self._backend = backend
        Asked.tell(self, *answers)  # type: ignore[arg-type]  # it uses nothing but these two

    def definition(self, **more: Any) -> dict[str, Any]:
        """A delegate that has tools."""
        context = [{"type": "text", "message": f"topic: {self.topic}"}]
        return {"context": context, "schema": {"type": "integer"}, "tools": ["add"], **more}

    @property
    def asked(self) -> dict[int, int]:
        """How often each tick was asked."""
        found: Any = self._backend.meeting.redis.hgetall(f"asked:{self.topic}")
        return {int(tick): int(times) for tick, times in sorted(found.items())}


def submit(backend: Backend, calls: Sequence[Mapping[str, Any]], context: Sequence[Any] = (), **delegates: Any) -> Run:
    return backend.client.submit(context, {"calls": [dict(call) for call in calls]}, delegates=delegates)


def ended(backend: Backend, run: Run) -> Result:
    return backend.wait(run.id)


def test_r9_3_a_delegate_with_tools_answers_by_a_run_of_its_own(loops: Backend) -> None:
    told = Told(loops, answer(SUM), answer(output="†state.sum"))
    more = {"_tool": "add", "a": "†state.answer", "b": 10, "_outputPath": "†state.more"}
    run = submit(loops, [ASK, more], researcher=told.definition())
    result = ended(loops, run)
    assert result.data()["state"] == {"answer": 3, "more": 13}
    assert told.asked == {0: 1, 1: 1}
    child = result.calls[0].child
    assert child == child_id(CallId(run.id, None, 0))
    of_child = loops.client.run(child)
    assert of_child.status()["parent"] == {"run": run.id, "call": "0"}
    assert of_child.result().data()["state"] == {"sum": 3}
    assert "sum" not in result.data()["state"]  # what the child has come to is its own


def test_the_calls_of_a_child_count_for_who_has_submitted_the_run_above_it(loops: Backend) -> None:
    told = Told(loops, answer(SUM), answer(output="†state.sum"))
    with Client(loops.settings.acting_for("ray", Identity("ray", TokenLimits(calls=2)))) as ray:
        run = ray.submit([], {"calls": [ASK]}, delegates={"researcher": told.definition()})
        assert ended(loops, run).status == "completed"
        with pytest.raises(OverLimit, match=r"have taken 2 calls, this one has 1 more"):
            ray.submit([], {"calls": [SUM]})


def test_r4_10_each_element_of_a_list_has_a_run_of_its_own(loops: Backend) -> None:
    told = Told(loops, answer(output=7))
    each = {**ASK, "question": "†state.asked", "_each": "question"}
    run = submit(loops, [each], [{"type": "state", "asked": ["a", "b"]}], researcher=told.definition())
    assert ended(loops, run).data()["state"]["answer"] == [7, 7]
    assert told.asked == {0: 2}


def test_r13_10_a_child_sees_its_own_messages_what_is_scoped_and_the_parameters(loops: Backend) -> None:
    told = Told(loops, answer(output=1))
    context = [{"type": "state", "open": "yes", "secret": "no"}, {"type": "profile", "kind": "x"}]
    ended(loops, submit(loops, [{**ASK, "_scopes": ["†state.open"]}], context, researcher=told.definition()))
    (request,) = Asked.requests.fget(told)  # type: ignore[attr-defined]  # as above
    said = "\n".join(message["content"] for message in request["messages"])
    assert '"open":"yes"' in said
    assert '"question":"1+2"' in said
    assert "secret" not in said


def test_r9_2_the_parameters_of_a_child_need_not_fit_the_input_that_its_definition_declares(loops: Backend) -> None:
    told = Told(loops, answer(output=1))
    definition = told.definition()
    schema = {"properties": {"deadline": {"type": "string"}}, "required": ["deadline"]}
    definition["context"].append({"type": "input", "schema": schema})
    result = ended(loops, submit(loops, [ASK], researcher=definition))
    assert result.data()["state"] == {"answer": 1}


def test_r9_3_each_instance_has_a_child_of_its_own_and_children_may_have_children(loops: Backend) -> None:
    inner = Told(loops, answer(output=7), answer(output=7))
    ask = {"_tool": "deeper", "_outputPath": "†state.seven"}
    outer = Told(loops, answer(ask), answer(output="†state.seven"))
    tools = {"deeper": {"type": "object", "properties": {"_delegate": {"const": "inner"}}}}
    calls = [{**ASK, "_instance": name} for name in "①②"]
    context = [{"type": "state", "_instance": name} for name in "①②"]
    run = submit(loops, calls, context, researcher=outer.definition(tools=tools), inner=inner.definition())
    result = ended(loops, run)
    assert [result.data(name)["state"]["answer"] for name in "①②"] == [7, 7]
    assert len({call.child for call in result.calls}) == 2


def test_r9_3_children_stand_only_so_deep(loops: Backend) -> None:
    ask = {"_tool": "again", "_outputPath": "†state.seven"}
    told = Told(loops, answer(ask), answer(output=1))
    tools = {"again": {"type": "object", "properties": {"_delegate": {"const": "researcher"}}}}
    run = submit(loops, [ASK], researcher=told.definition(tools=tools))
    assert ended(loops, run).data()["state"]["answer"] == 1
    inner = loops.client.run(child_id(CallId(child_id(CallId(run.id, None, 0)), None, 0)))
    failed = inner.result().calls[0]
    assert (failed.error or {})["type"] == "TooDeep"


def test_r9_3_the_failure_of_a_child_is_that_of_the_call(loops: Backend) -> None:
    told = Told(loops, answer())
    run = submit(loops, [ASK], researcher=told.definition(config={"ticks": 1}))
    error = ended(loops, run).calls[0].error or {}
    assert error["type"] == "ChildFailed"
    assert "config.ticks" in error["message"]
    again = Told(loops, answer())
    path = "†state.answer || †state.trouble"
    rescued = submit(loops, [{**ASK, "_outputPath": path}], researcher=again.definition(config={"ticks": 1}))
    assert ended(loops, rescued).data()["state"]["trouble"]["type"] == "ChildFailed"


def test_r9_3_a_call_that_is_retried_by_hand_has_another_child(loops: Backend) -> None:
    told = Told(loops, answer())
    run = submit(loops, [ASK], researcher=told.definition(config={"ticks": 1}))
    first = ended(loops, run).calls[0].child
    loops.meeting.redis.delete(f"answers:{told.topic}")
    Asked.tell(told, answer(output=5))  # type: ignore[arg-type]  # as above
    run.retry()
    result = ended(loops, run)
    assert result.data()["state"]["answer"] == 5
    assert result.calls[0].child != first


def test_r9_3_a_call_that_is_retried_by_hand_has_another_child_though_a_worker_was_lost_with_it(loops: Backend) -> None:
    told = Told(loops, answer())
    run = submit(loops, [ASK], researcher=told.definition(config={"ticks": 1}))
    ended(loops, run)
    loops.meeting.redis.delete(f"answers:{told.topic}")
    Asked.tell(told, answer(output=5))  # type: ignore[arg-type]  # as above
    keys = Keys(loops.settings.key_prefix, run.id)

    def resume() -> None:
        """As if a worker had claimed the call, and died before it wrote a child down."""
        last: Any = loops.redis.hget(keys.lanes, "")
        loops.redis.hset(keys.lanes, "", last.removesuffix(b":0") + b":1")
        loops.redis.hset(keys.calls, "\x1f0", "lost:1:0:")
        run.resume()

    Retrier(run.id, loops.redis, loops.settings).retry(Choice(RetryScope()), resume=resume)
    assert ended(loops, run).data()["state"]["answer"] == 5


def test_r9_3_a_late_answer_of_the_child_before_is_not_that_of_a_call_that_is_retried_by_hand(loops: Backend) -> None:
    gate = secrets.token_hex(4)
    told = Told(loops, answer())
    run = submit(loops, [ASK], researcher=told.definition(config={"ticks": 1}))
    first = ended(loops, run).calls[0].child
    assert first is not None
    requests = loops.meeting.redis
    requests.delete(f"answers:{told.topic}", f"requests:{told.topic}")
    Asked.tell(told, answer(output=5, gate=gate))  # type: ignore[arg-type]  # as above
    run.retry()
    assert requests.blpop([f"requests:{told.topic}"], 60) is not None
    parent: Any = Parent.read(loops.redis.hget(Keys(loops.settings.key_prefix, first).state, PARENT))
    tokens = read_tokens(loops.redis, loops.settings.key_prefix)
    late = parent.answer(first, Failure("ChildFailed", "late"), tokens, loops.settings.queue_instances)
    Publisher(make_client_application(loops.settings)).deliver([late])  # taken before what the gate lets through
    loops.meeting.open_gate(gate)
    assert ended(loops, run).data()["state"]["answer"] == 5


def test_r9_3_children_are_paused_resumed_and_cancelled_with_their_run(loops: Backend) -> None:
    gate = secrets.token_hex(4)
    told = Told(loops, answer(SUM, gate=gate), answer(output=1))
    run = submit(loops, [ASK], researcher=told.definition())
    child = await_child(loops, run, told)
    run.pause()
    assert child.status()["status"] == "paused"
    run.resume()
    assert child.status()["status"] == "running"
    assert run.status()["calls"] == {"running": 1}
    run.cancel()
    assert child.status()["status"] == "cancelled"
    loops.meeting.open_gate(gate)
    assert told.asked == {0: 1}


def await_child(backend: Backend, run: Run, told: Told) -> Run:
    """The child of a run's first call, once its model is asked."""
    key = f"requests:{told.topic}"
    assert backend.meeting.redis.blmove(key, key, 60, "LEFT", "LEFT") is not None
    return backend.client.run(child_id(CallId(run.id, None, 0)))


def test_r9_3_what_a_child_answers_is_not_lost_with_its_message(loops: Backend) -> None:
    gate = secrets.token_hex(4)
    told = Told(loops, answer(output=9, gate=gate))
    run = submit(loops, [ASK], researcher=told.definition())
    child = await_child(loops, run, told)
    keys = Keys(loops.settings.key_prefix, run.id)
    while not (entry := cast("bytes", loops.redis.hget(keys.calls, "\x1f0"))).startswith(b"child:"):
        time.sleep(0.01)  # its child is asked a moment before
    # A message that comes now is dropped, as if it had got lost, and the sweep does not take the call for ended.
    loops.redis.hset(keys.calls, "\x1f0", str(Condition(Kind.RUNNING, holder="another")))
    loops.meeting.open_gate(gate)
    loops.wait(child.id)
    loops.redis.hset(keys.calls, "\x1f0", entry)
    assert ended(loops, run).data()["state"]["answer"] == 9
    assert told.asked == {0: 1}


def test_r9_3_a_worker_that_dies_while_a_child_is_at_work_costs_no_answer(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    backend = Backend(loop_settings(server, "orphans"), meeting, tmp_path_factory.mktemp("orphans"))
    gate = secrets.token_hex(4)
    told = Told(backend, answer(SUM, gate=gate), answer(output="†state.sum"))
    run = submit(backend, [ASK], researcher=told.definition())
    with backend.worker() as process:
        await_child(backend, run, told)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    meeting.open_gate(gate)
    with backend.worker():
        assert ended(backend, run).data()["state"]["answer"] == 3
    assert told.asked[0] <= 2
    assert told.asked[1] == 1


def test_r9_3_what_is_wrong_with_a_delegates_tools_is_found_before_anything_runs(loops: Backend) -> None:
    told = Told(loops)
    with pytest.raises(Rejected, match="unheard"):
        submit(loops, [ASK], researcher=told.definition(tools=["unheard"]))
    with pytest.raises(Rejected, match="give the call an _outputPath"):
        submit(
            loops, [{key: value for key, value in ASK.items() if key != "_outputPath"}], researcher=told.definition()
        )


# What a loop costs and may cost (SPEC R13.3, R13.12).

# A loop and all that stands below it draw on one budget (SPEC R13.3), on real workers.

PLAIN = {"schema": {"type": "integer"}}


@pytest.fixture(scope="module")
def loops_budget(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    settings = loop_settings(server, "budget", sweep_interval_seconds=1.0)
    running = Backend(settings, meeting, tmp_path_factory.mktemp("budget"))
    with running.worker():
        yield running


def ask(delegate: str, path: str, **parameters: Any) -> dict[str, Any]:
    return {"_tool": delegate, "_outputPath": path, **parameters}


def asking(backend: Backend, *answers: Mapping[str, Any], delegates: Mapping[str, Any], **config: Any) -> Asked:
    """A request whose tools are delegates."""
    tools: dict[str, Any] = {
        name: {"type": "object", "properties": {"_delegate": {"const": name}, "after": {}}} for name in delegates
    }
    tools |= {"add": ADD, "waitAtGate": {"type": "object", "properties": {"gate": {}, "value": {}}}}
    return Asked(backend, *answers, delegates=delegates, tools=tools, config=config)


def test_r13_3_what_a_child_has_cost_is_charged_to_its_parent(loops_budget: Backend) -> None:
    inner = Told(loops_budget, answer(SUM, usage=[5_000, 500]), answer(output="†state.sum", usage=[69_500, 1_000]))
    asked = asking(
        loops_budget,
        answer(ask("inner", "†state.a"), usage=[5_000, 100]),
        delegates={"inner": inner.definition()},
        tokens=85_000,
    )
    result = asked.result()
    assert result.data()["state"] == {"a": 3}
    cost = dict(result.calls[0].cost or {})
    assert cost.pop("seconds") >= 0
    usage = {"input": 74_500, "output": 1_500, "cached": 0}
    assert cost == {"tokens": 76_000, "calls": 1, "requests": 2, "usage": usage}
    assert (result.status, asked.asked) == ("failed", {0: 1})
    assert result.reason is not None
    assert "3900 of 85000 (config.tokens) are left" in result.reason


def test_r13_3_children_at_once_reserve_what_they_may_take_and_wait_for_what_others_give_back(
    loops_budget: Backend,
) -> None:
    gate = secrets.token_hex(4)
    most = {"config": {"max_output_tokens": 40_000}}
    one, two = (Told(loops_budget, answer(output=n, usage=[1_000, 10], gate=gate)) for n in (1, 2))
    asked = asking(
        loops_budget,
        answer(ask("one", "†state.a"), ask("two", "†state.b"), usage=[1_000, 100]),
        answer(output="†state.b", usage=[1_000, 10]),
        delegates={"one": one.definition(**most), "two": two.definition(**most)},
        tokens=70_000,
    )
    keys = [f"requests:{told.topic}" for told in (one, two)]
    assert loops_budget.meeting.redis.blpop(keys, 60) is not None
    budget = Keys(loops_budget.settings.key_prefix, asked.run.id).budget
    waiting = [child_id(CallId(asked.run.id, None, index)) for index in (0, 1)]
    conditions: list[str] = []
    while not any(condition.startswith("retry:") for condition in conditions):  # one of them waits
        assert "failed" not in asked.run.status()["calls"]
        conditions = [
            str(loops_budget.redis.hget(Keys(loops_budget.settings.key_prefix, run).calls, "?\x1f0")) for run in waiting
        ]
        conditions = [condition.removeprefix("b'") for condition in conditions]
    assert sorted(sum(told.asked.values()) for told in (one, two)) == [0, 1]
    loops_budget.meeting.open_gate(gate)
    result = asked.result()
    assert (result.status, result.output) == ("completed", 2)
    drawn: Any = loops_budget.redis.hmget(budget, "=tokens", "=open", "=calls")
    assert list(map(int, drawn)) == [2_020, 0, 2]  # the loop's own two


def test_r13_3_children_start_no_more_calls_than_all_of_them_may(loops_budget: Backend) -> None:
    two_calls = [{**SUM, "_outputPath": f"†state.s{n}"} for n in range(2)]
    one = Told(loops_budget, answer(*two_calls), answer(output=1))
    two = Told(loops_budget, answer(SUM), answer(output=2))
    calls = ask("one", "†state.a"), ask("two", "†state.b || †state.trouble", after="†state.a")
    asked = asking(
        loops_budget,
        answer(*calls),
        answer(output=7),
        delegates={"one": one.definition(), "two": two.definition()},
        calls=5,
    )
    result = asked.result()
    assert (result.status, result.data()["state"]["a"]) == ("completed", 1)
    assert [call.cost and call.cost["calls"] for call in result.calls] == [2, 1]
    more = asking(
        loops_budget,
        answer(ask("one", "†state.a"), SUM, usage=[1_000, 10]),
        answer(output=7),
        delegates={"one": Told(loops_budget, answer(*two_calls)).definition()},
        calls=3,
    )
    failed = more.result().calls[0].error
    assert failed is not None
    assert "2 calls, where 1 (config.calls) are allowed" in failed["message"]


def test_r13_3_a_single_request_of_a_delegate_is_charged_and_logged(loops_budget: Backend) -> None:
    topic = secrets.token_hex(4)
    definition = {**PLAIN, "context": [{"type": "text", "message": f"topic: {topic}"}]}
    loops_budget.meeting.redis.rpush(f"answers:{topic}", '{"answer": {"output": 4}, "usage": [60000, 10]}')
    asked = asking(
        loops_budget,
        answer(ask("plain", "†state.a"), usage=[1_000, 10]),
        delegates={"plain": definition},
        tokens=65_000,
    )
    result = asked.result()
    (call,) = result.calls
    cost = dict(call.cost or {})
    assert cost.pop("seconds") >= 0
    assert cost == {
        "requests": 1,
        "tokens": 60_010,
        "model": "told",
        "usage": {"input": 60_000, "output": 10, "cached": 0},
    }
    assert (result.status, asked.asked) == ("failed", {0: 1})
    assert call.to_dict()["cost"] == call.cost
    alone = loops_budget.client.submit(
        solution={"calls": [{**ask("x", "†state.a"), "_delegate": "plain"}]}, delegates={"plain": definition}
    )
    assert (loops_budget.wait(alone.id).calls[0].cost or {})["tokens"] == 60_010


def test_r13_3_what_a_call_had_taken_before_it_was_carried_out_again_counts(loops_budget: Backend) -> None:
    topic = secrets.token_hex(4)
    definition = {**PLAIN, "context": [{"type": "text", "message": f"topic: {topic}"}]}
    for _ in range(2):
        loops_budget.meeting.redis.rpush(f"answers:{topic}", '{"answer": {"output": "none"}, "usage": [2000, 10]}')
    asked = asking(
        loops_budget,
        answer(ask("plain", "†state.a"), usage=[1_000, 10]),
        answer(output=1, usage=[1_000, 10]),
        delegates={"plain": definition},
        tokens=65_000,
    )
    assert asked.result().calls[0].status == "failed"
    asked.run.retry()
    assert (asked.result().calls[0].cost or {})["tokens"] == 2 * 2_010
    drawn: Any = loops_budget.redis.hget(Keys(loops_budget.settings.key_prefix, asked.run.id).budget, "=tokens")
    assert int(drawn) == 2 * 2_010


def test_r13_3_a_single_request_that_does_not_fit_what_is_left_is_not_asked(loops_budget: Backend) -> None:
    topic = secrets.token_hex(4)
    config = {"max_output_tokens": 90_000}
    definition = {**PLAIN, "context": [{"type": "text", "message": f"topic: {topic}"}], "config": config}
    asked = asking(
        loops_budget,
        answer(ask("plain", "†state.a"), usage=[1_000, 10]),
        answer(output=1, usage=[1_000, 10]),
        delegates={"plain": definition},
        tokens=60_000,
    )
    result = asked.result()
    error = result.calls[0].error or {}
    assert (result.status, error["type"], result.calls[0].cost) == ("completed", "LimitReached", None)
    assert "58990 are left of those that run" in error["message"]
    assert not loops_budget.meeting.redis.exists(f"asked:{topic}")


def test_r13_3_a_child_starts_with_what_is_left_and_its_definition_only_tightens(server: EmbeddedServer) -> None:
    settings = load(env_file=None, limit_tokens=500, limit_loop_calls=50)
    left = {"tokens": 300, "calls": 60, "seconds": 4.5}
    own = {"tokens": 1_000, "calls": 10}
    assert child_config({}, own, left, settings) == {"tokens": 300, "calls": 10, "seconds": 4.5}
    assert child_config({}, {}, {}, settings) == {"tokens": 500, "calls": 50}


def test_r13_3_a_draw_counts_once_and_none_is_taken_from_a_run_that_is_over(server: EmbeddedServer) -> None:
    async def draws() -> None:
        client = redis.asyncio.Redis.from_url(server.redis_url)
        log = MessageLog(client, "draws", LogTerms(published_seconds=1, lease_seconds=1, window=1))
        budget, keys = Budget("r", 100, 3), Keys("draws", "r")
        is_over = Shortfall("run r, which it is to answer, is over", may_pass=False)
        assert await log.reserve([budget], Reservation("a", 1)) == is_over
        await client.hset(keys.state, "status", "running")
        for _ in range(2):
            assert await log.reserve([budget], Reservation("a", 60, 60, 1)) is None
        shortfall = await log.reserve([budget], Reservation("b", 50, 50))
        assert shortfall is not None
        assert (shortfall.may_pass, "40 are left" in shortfall.text) == (True, True)
        assert await log.reserve([budget], Reservation("a", 30, 0)) is None
        assert await log.reserve([budget], Reservation("b", 50, 50)) is None
        assert await log.reserve([budget], Reservation("b", 120, 0)) is None  # what was billed counts, also beyond
        shortfall = await log.reserve([budget], Reservation("a", 31, 1))
        assert shortfall is not None
        assert (shortfall.may_pass, "0 are left" in shortfall.text) == (False, True)
        assert await log.reserve([budget], Reservation("b", 120, 0, 2)) is None
        assert await log.reserve([budget], Reservation("a", 30, 0, 2)) is not None
        # Of the same tick another process knows more.
        assert await log.reserve([budget], Reservation("b", calls=1)) is None
        assert await log.reserve([budget], Reservation("a", calls=2)) is not None
        assert await log.reserve([budget], Reservation("b", calls=1, tick=1)) is None
        assert await log.reserve([budget], Reservation("a", calls=2)) is None
        assert await log.reserve([budget], Reservation("b", calls=2)) is None  # late: its step is not taken
        drawn = await client.hmget(keys.budget, "a", "b", "=tokens", "=open", "=calls")
        assert drawn == [b"30:0:2:0", b"120:0:1:1", b"150", b"0", b"3"]
        await client.hset(keys.state, "status", "failed")
        assert await log.reserve([budget], Reservation("c", 1)) is not None
        await client.aclose()

    asyncio.run(draws())


def test_r13_3_a_child_with_limits_of_its_own_shares_them_with_what_stands_below_it(server: EmbeddedServer) -> None:
    async def reservations() -> None:
        client = redis.asyncio.Redis.from_url(server.redis_url)
        log = MessageLog(client, "nested", LogTerms(published_seconds=1, lease_seconds=1, window=1))
        outer, child, keys = Budget("r", 100, 9), Budget("c", 40, 3), Keys("nested", "r")
        await client.hset(keys.state, "status", "running")
        assert await log.reserve([child, outer], Reservation("below", 30, 30)) is None
        shortfall = await log.reserve([child, outer], Reservation("beside", 20, 20))
        assert shortfall is not None
        assert (shortfall.may_pass, "10 are left of those that run c" in shortfall.text) == (True, True)
        assert await log.reserve([outer], Reservation("elsewhere", 60, 60)) is None
        shortfall = await log.reserve([child, outer], Reservation("beside", 11, 11))
        assert shortfall is not None
        assert "10 are left of those that run c" in shortfall.text
        assert await log.reserve([child, outer], Reservation("c", 10, 10, 2)) is None  # its own count above it alone
        assert await log.reserve([child, outer], Reservation("below", 30, 0, 1)) is None
        shortfall = await log.reserve([child, outer], Reservation("below", 30, 0, 2))
        assert shortfall is not None
        assert shortfall.text.startswith("0 calls are left of those that run c")
        left = left_of([child, outer], await client.hmget(keys.budget, sum_fields([child, outer])))
        assert left == {"tokens": 10, "calls": 0}
        assert await client.exists(Keys("nested", "c").budget) == 0
        await client.aclose()

    asyncio.run(reservations())


def test_r9_3_a_run_of_the_version_before_knows_its_parent_without_budgets() -> None:
    parent = Parent(CallId("r", "①", 3), 2, 1, (Budget("r", 5, None),))
    assert Parent.read(parent.to_fields()["parent"]) == parent
    assert Parent.read(b'["r", null, 3, 2, 1]') == Parent(CallId("r", None, 3), 2, 1)


def test_r9_3_a_child_run_that_nobody_would_wait_for_is_refused_in_an_answer_and_the_others_run(
    loops_budget: Backend,
) -> None:
    child = Told(loops_budget, answer(output=1))
    asked = asking(
        loops_budget,
        answer(SUM, {"_tool": "inner"}),
        answer(output="†state.sum"),
        delegates={"inner": child.definition()},
        tokens=1_000_000,
    )
    result = asked.result()
    assert (result.status, result.output) == ("completed", 3)
    assert [(call.tool, call.status) for call in result.calls] == [("add", "done")]
    (error,) = (error["data"]["error"] for error in asked.messages("error"))
    assert "delegate 'inner' has tools, and is a run: give the call an _outputPath" in error["message"]
    assert not child.asked


def test_r13_3_a_request_that_is_sent_and_forgotten_is_charged_whole_and_not_sent_where_it_does_not_fit(
    loops_budget: Backend,
) -> None:
    told = Told(loops_budget, answer(output=1, usage=[10, 1]))
    plain = {**PLAIN, "context": [{"type": "text", "message": f"topic: {told.topic}"}]}
    asked = asking(
        loops_budget,
        answer({"_tool": "plain"}, SUM, usage=[1_000, 100]),
        answer(output="†state.sum", usage=[1_000, 100]),
        delegates={"plain": plain},
        tokens=1_000_000,
    )
    result = asked.result()
    assert (result.status, result.output) == ("completed", 3)
    forgotten, _ = result.calls
    assert forgotten.status == "sent"
    assert (forgotten.cost or {})["estimated"] > 4_096
    assert "0. plain: sent (its result was not kept)" in str(asked.requests[1]["messages"])
    loops_budget.meeting.take(f"asked:{told.topic}:0")
    spent = asking(
        loops_budget, answer({"_tool": "plain"}, usage=[60_000, 100]), delegates={"plain": plain}, tokens=64_200
    )
    (refused,) = spent.result().calls
    assert (refused.status, (refused.error or {})["type"]) == ("failed", "LimitReached")
    assert told.asked == {0: 1}


def test_r13_3_a_child_that_starts_while_another_has_all_reserved_waits_for_what_it_gives_back(
    loops_budget: Backend, meeting: Meeting
) -> None:
    gate, later = secrets.token_hex(4), secrets.token_hex(4)
    most = {"config": {"max_output_tokens": 40_000}}
    one = Told(loops_budget, answer(output=1, usage=[1_000, 10], gate=gate))
    two = Told(loops_budget, answer(output=2, usage=[1_000, 10]))
    asked = asking(
        loops_budget,
        answer(
            ask("one", "†state.a"),
            gated(later, 1),
            ask("two", "†state.b", after=f"†state.{later}"),
            usage=[1_000, 100],
        ),
        answer(output="†state.b", usage=[1_000, 10]),
        delegates={"one": one.definition(**most), "two": two.definition(**most)},
        tokens=70_000,
    )
    assert loops_budget.meeting.redis.blpop([f"requests:{one.topic}"], 60) is not None
    meeting.take(f"at:{later}")
    meeting.open_gate(later)
    keys = Keys(loops_budget.settings.key_prefix, child_id(CallId(asked.run.id, None, 2)))
    until = time.monotonic() + 60
    while b"retry:" not in (cast(Any, loops_budget.redis.hget(keys.calls, "?\x1f0")) or b""):
        assert time.monotonic() < until, asked.run.status()
        assert "failed" not in asked.run.status()["calls"]
    loops_budget.meeting.open_gate(gate)
    assert (asked.result().status, asked.result().output) == ("completed", 2)


def test_r13_3_what_calls_have_asked_for_before_a_fork_counts_for_those_behind_it(loops_budget: Backend) -> None:
    child = Told(loops_budget, answer(SUM, usage=[5_000, 500]), answer(output="†state.sum", usage=[40_000, 500]))
    plain = {**PLAIN, "context": [{"type": "text", "message": "topic: none" + " " * 25_000}]}
    asked = asking(
        loops_budget,
        answer(ask("child", "†state.a"), usage=[1_000, 100]),
        answer(output=1, usage=[1_000, 100]),
        answer(ask("plain", "†state.b"), usage=[1_000, 100]),
        answer(output=2, usage=[1_000, 100]),
        delegates={"child": child.definition(), "plain": plain},
        tokens=70_000,
        max_output_tokens=1_000,
    )
    assert asked.result().cost == asked.run.result().cost
    fork = asked.run.fork()
    fork.say("and now?")
    result = loops_budget.wait(fork.id)
    error = result.calls[1].error or {}
    assert error["type"] == "LimitReached"
    assert "are left of those that run" in error["message"]
    assert result.cost is not None
    assert result.cost.tokens == 46_000 + 4 * 1_100


# How much of its tokens a loop can use: estimates follow from what the model has reported (SPEC R13.3).

NOTE = {"type": "object", "properties": {"about": {"type": "string"}}}
TOKENS = 200_000


@pytest.fixture(scope="module")
def loops_estimates(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    running = Backend(loop_settings(server, "estimates"), meeting, tmp_path_factory.mktemp("estimates"))
    with running.worker():
        yield running


def note(number: int, text: str) -> dict[str, Any]:
    return {"_tool": "note", "about": f"n{number}", "_output": text, "_outputPath": f"†state.n{number}"}


def asking_estimates(backend: Backend, *answers: Mapping[str, Any], **config: Any) -> Asked:
    tools = {"add": ADD, "note": NOTE}
    return Asked(backend, *answers, tools=tools, config={"ticks": 500, "tokens": TOKENS, **config})


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_r13_3_a_loop_of_small_requests_uses_nearly_all_of_its_tokens_and_no_more(
    loops_estimates: Backend, seed: int
) -> None:
    chosen = random.Random(seed)
    letters = string.ascii_letters + " äöü" * (seed % 2)
    written = ("".join(chosen.choices(letters, k=chosen.randrange(250))) for _ in range(120))
    answers = [answer(note(number, text), usage="counted") for number, text in enumerate(written)]
    result = asking_estimates(loops_estimates, *answers, max_output_tokens=chosen.choice([300, 700])).result()
    assert "(config.tokens) are left" in (result.reason or "")
    used = [tick.usage["input"] + tick.usage["output"] for tick in result.ticks or () if tick.usage]
    assert len(used) > 20
    assert max(used) <= TOKENS / 20
    assert TOKENS * 0.85 <= sum(used) <= TOKENS


def test_r13_3_what_a_request_is_estimated_to_take_is_never_less_than_what_it_takes(loops_estimates: Backend) -> None:
    answers: list[dict[str, Any]] = [
        answer(note(0, "x" * 3_000), usage="counted"),
        {"text": "no JSON at all", "usage": "counted"},
        answer({"_tool": "add", "a": 1, "b": "†state.nowhere", "_outputPath": "†state.sum"}, usage="counted"),
        answer(usage=[10, 10]),  # less than it was
        {"refuses": "I will not"},
        answer(note(6, "ü" * 2_000)),  # usage that is not known
        answer(note(7, "y"), usage="counted"),
        answer(output=7, usage="counted"),
    ]
    asked = asking_estimates(loops_estimates, *answers)
    result = asked.result()
    assert (result.status, result.output) == ("completed", 7)
    history = RunStore(loops_estimates.redis, Keys(loops_estimates.settings.key_prefix, asked.run.id))
    events = (event for entry in history.entries() for event in entry.loop)
    estimates = [event.estimate for event in events if isinstance(event, Request)]
    ticks = result.ticks or ()
    for estimate, tick in zip(estimates, ticks, strict=True):
        if tick.usage is not None:
            assert tick.usage["input"] <= estimate - 4_096 or tick.tick == 4, tick  # 4 follows a report that is too low
    assert estimates[3] < estimates[0]  # the schema and the tools do not count by their bytes again
    assert estimates[6] > 2 * estimates[7] - 4_096  # all of it by its bytes, where the usage before is not known


# What a loop has cost is in its result, and its money is limited (SPEC R13.3, R13.12), on a real worker.

PRICE = json.dumps({"input": 2, "output": 10, "cached": 1})


@pytest.fixture(scope="module")
def loops_costs(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    settings = loop_settings(server, "costs", model_price=PRICE)
    running = Backend(settings, meeting, tmp_path_factory.mktemp("costs"))
    with running.worker():
        yield running


def asking_costs(backend: Backend, *answers: Mapping[str, Any], **request: Any) -> Asked:
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
    loops_costs: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {"schema": {"type": "integer"}, "context": [{"type": "text", "message": f"topic: {secrets.token_hex(4)}"}]}
    topic = plain["context"][0]["message"].removeprefix("topic: ")  # type: ignore[index]
    loops_costs.meeting.redis.rpush(f"answers:{topic}", json.dumps(answer(output=4, usage=[300, 30])))
    child = Told(loops_costs, answer(SUM, usage=[200, 20]), answer(output="†state.sum", usage=[200, 20]))
    calls = [{"_tool": name, "_outputPath": f"†state.{name}"} for name in ("plain", "child")]
    asked = asking_costs(
        loops_costs,
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
    (summary,) = (each for each in loops_costs.client.runs() if each.run == asked.run.id)
    assert without_seconds(summary.cost) == whole
    payer = Identity("payer", TokenLimits(money=Decimal("0.0009")))
    with Client(loops_costs.settings.acting_for("payer", payer)) as client:
        solution = {"calls": [{"_tool": "x", "_delegate": "plain", "_outputPath": "†state.a"}]}
        alone = client.submit(solution=solution, delegates={"plain": plain})
        cost = loops_costs.wait(alone.id).cost
        with pytest.raises(OverLimit, match=r"taken 0\.0009 USD, and its limit is 0\.0009 a day \(money=0\.0009"):
            client.submit(solution=solution, delegates={"plain": plain})
    assert cost is not None
    assert (cost.requests, cost.money) == (1, "0.0009")
    assert loops_costs.run([SUM]).cost is None


def test_r13_3_no_request_begins_that_may_cost_more_than_is_left_of_the_money(loops_costs: Backend) -> None:
    config = {"money": 0.17, "max_output_tokens": 10_000}  # 0.1 for an answer
    asked = asking_costs(loops_costs, answer(SUM, usage=[20_000, 100]), answer(SUM, usage=[40_000, 100]), config=config)
    result = asked.result()
    assert result.status == "failed"
    assert asked.asked == {0: 1}
    assert "of 0.17 USD (config.money) are left" in (result.reason or "")
    beyond = asking_costs(
        loops_costs, answer(SUM, usage=[20_000, 20_000]), config={"money": 0.1, "max_output_tokens": 1_000}
    ).result()
    assert beyond.reason == "0.24 USD were billed, where 0.1 USD (config.money) are allowed"


def test_r13_3_parent_and_children_draw_on_one_pool_of_money(loops_costs: Backend) -> None:
    most = {"config": {"max_output_tokens": 1_000}}
    child = Told(loops_costs, answer(SUM, usage=[5_000, 4_000]), answer(output=1, usage=[5_000, 10]))
    plain = {"schema": {"type": "integer"}, "context": [{"type": "text", "message": "topic: none"}], **most}
    calls = [
        {"_tool": "child", "_outputPath": "†state.a"},
        {"_tool": "plain", "_outputPath": "†state.b || †state.c", "after": "†state.a"},
    ]
    asked = asking_costs(
        loops_costs,
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
    loops_costs: Backend,
) -> None:
    gate = secrets.token_hex(4)
    asked = asking_costs(loops_costs, answer(SUM, usage=[1_000, 100]), answer(output=1, gate=gate))
    asked.wait_until_asked(1)
    assert asked.run.result().cost is not None
    asked.run.cancel()
    cost = asked.result().cost
    loops_costs.meeting.open_gate(gate)
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


def test_r13_12_what_was_asked_when_the_time_was_over_counts_also_when_more_ticks_are_added(
    loops_costs: Backend,
) -> None:
    gate = secrets.token_hex(4)
    asked = asking_costs(loops_costs, answer(output=1, gate=gate, usage=[100, 10]), config={"seconds": 1})
    failed = asked.result()
    loops_costs.meeting.open_gate(gate)
    assert failed.status == "failed"
    assert failed.cost is not None
    assert failed.cost.requests == 1
    assert failed.cost.estimated == failed.cost.tokens > 4_096


def test_acts_show_and_acts_runs_say_what_a_loop_has_cost(
    loops_costs: Backend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asking_costs(loops_costs, answer(output=1, usage=[1_000, 100]))
    asked.result()
    for name, value in loops_costs.environment().items():
        monkeypatch.setenv(name, value)
    capsys.readouterr()
    for command in (["show", asked.run.id], ["runs", "--limit", "1"]):
        assert main(command) == 0
        assert "0.003 USD, 1100 tokens in 1 request" in capsys.readouterr().out
