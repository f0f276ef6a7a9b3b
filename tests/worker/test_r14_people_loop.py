"""People decide on calls that a model has chosen (SPEC R14 with R13.1, R13.2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.errors import RunNotFound
from acts_celery.worker.storage.child_links import child_id
from acts_celery.worker.wire.attempts import CallId

from .backend import Backend, Meeting
from .loops import Asked, answer, loop_settings
from .test_r9_3_children import Told
from .test_r14_people import wait_held


@pytest.fixture(scope="module")
def loops(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    running = Backend(loop_settings(server, "held"), meeting, tmp_path_factory.mktemp("held"))
    with running.worker():
        yield running


SUM = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}


def test_r14_1_the_next_tick_waits_for_the_person(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM), answer(output="†state.sum"), config={"approve": ["add"]})
    (held,) = wait_held(asked.run)
    assert (held["tool"], held["parameters"], asked.asked) == ("add", {"a": 1, "b": 2}, {0: 1})
    asked.run.approve(held["call"], parameters={"a": 40, "b": 2})
    assert (asked.result().output, asked.asked) == (42, {0: 1, 1: 1})


def test_r14_2_a_rejection_is_told_to_the_model_and_sets_the_output_aside(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM, output=1), answer(output=2), config={"approve": ["*"]})
    wait_held(asked.run)
    asked.run.reject(0, "we do not add here")
    result = asked.result()
    assert (result.status, result.output) == ("completed", 2)
    assert [message["data"]["error"]["type"] for message in asked.messages("error")] == ["Rejected"]
    assert "we do not add here" in asked.requests[1]["messages"][-1]["content"]


def test_r14_a_model_may_ask_a_person(loops: Backend) -> None:
    question = {"_tool": "ask_human", "question": "How many?", "_outputPath": "†state.many"}
    asked = Asked(loops, answer(question), answer(output="†state.many"), tools=["ask_human"])
    wait_held(asked.run)
    asked.run.answer(0, 7)
    assert asked.result().output == 7


def test_r14_1_what_the_parent_approves_is_held_in_child_runs_too(loops: Backend) -> None:
    told = Told(loops, answer(SUM), answer(output="†state.sum"))
    asking = {"_tool": "ask", "_delegate": "researcher", "_outputPath": "†state.answer"}
    calls = [asking, {"_tool": "own", "_output": 1, "_outputPath": "†state.own"}]
    document = {
        "solution": {"calls": calls},
        "tools": {"own": {"_output": {}}},
        "delegates": {"researcher": told.definition()},
        "config": {"approve": ["add", "own"]},
    }
    run = loops.client.submit_document(document)
    wait_held(run)
    child = loops.client.run_of(child_id(CallId(run.id, None, 0)))
    while True:
        with suppress(RunNotFound):
            child.status()
            break
    (held,) = wait_held(child)
    assert held["tool"] == "add"
    run.approve(1)
    child.approve(0)
    assert loops.wait(run.id).data()["state"] == {"answer": 3, "own": 1}
