"""A delegate that has tools is a run of its own (SPEC R9.3, R13.10), on real workers."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest

from acts_celery import Client, Result, Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.broker_config.tokens import Identity, TokenLimits
from acts_celery.protocol import Rejected
from acts_celery.protocol.engine.events import Failure
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.client.retrying import Choice, Extent, Retrier
from acts_celery.worker.errors import OverLimit
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.connections import read_tokens
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.run_list import PARENT, Parent, child_id

from .backend import Backend, Meeting
from .loops import Asked, answer, loop_settings

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

    Retrier(run.id, loops.redis, loops.settings).retry(Choice(Extent()), resume=resume)
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
    loops.redis.hset(keys.calls, "\x1f0", "lost")  # a message that comes now is dropped, as if it had got lost
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
