"""The law of streaming: an answer that runs while it is written gives what it gives when it comes whole (R13.8)."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from acts_celery.protocol import Rejected, check_submission
from acts_celery.protocol.engine.events import Status
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.graph import Graph
from acts_celery.protocol.plan.layout import Layout
from acts_celery.protocol.requests import Answer, Request, read_answer, read_request
from acts_celery.protocol.requests.reading import Unreadable
from acts_celery.protocol.requests.streaming import GrowingAnswer, begin_answer, break_answer, end_answer

from . import naive
from .driver import Driver
from .strategies import SCHEMAS, TOOLS, submissions
from .test_against_naive import FUNCTIONS, compared
from .test_law_errors import first_reader

EACH = {"enum": [["value"], ["other"], ["value", "other"], ["other", "value"]]}
OPEN: dict[str, Any] = {
    "properties": {"value": {}, "other": {}, "where": {}, "_scopes": {"type": "array"}, "_each": EACH}
}
DECLARED = {name: {**OPEN, **schema} for name, schema in SCHEMAS.items()}
DECLARED["number"] = {"properties": {**OPEN["properties"], **SCHEMAS["number"]["properties"]}}


class Streamed(Driver):
    """A driver to which calls are added while others run."""

    def move(self) -> None:
        """Do something, if there is anything to do."""
        if moves := self._moves():
            assert self._random is not None
            self._random.choice(moves)()
            self._mischief(self._random)

    def extend(self, layout: Layout) -> None:
        """Go on with more calls; what is at work stays so."""
        before, self._plan = self._lanes, layout  # type: ignore[assignment]  # a plan is a layout
        self._gathers = [call.index for call in layout.calls if call.gather]
        self._lanes = {instance: self._read(instance) for instance in layout.lanes}
        for instance, lane in before.items():
            for index in lane.results:
                assert self._lanes[instance].execution.record(index, Status.RUNNING)
            self._lanes[instance].results = lane.results


def request_of(context: list[Any]) -> Request:
    return read_request({"context": context, "schema": {}, "tools": DECLARED}, Environment())


def waits_of(graph: Graph, index: int) -> dict[str, set[int]]:
    """What a call waits for, by the place or scope."""
    return {
        f"{what} {place}": {node for one in nodes for node in (graph.barriers.get(one, (one,)) if one < 0 else (one,))}
        for what, places in (("", graph.waits.get(index, {})), ("scope", graph.scopes.get(index, {})))
        for place, nodes in places.items()
    }


def ends_of_calls(text: str) -> list[int]:
    """Where the text can be cut behind a call."""
    growing, ends = GrowingAnswer(), []
    for character in text:
        if growing.feed(character):
            ends.append(len(growing.text_of_calls))
    return ends


@given(submissions().filter(lambda one: "solution" in one), st.integers(0, 2**32))
def test_r13_8_a_streamed_answer_gives_what_the_naive_evaluator_gives_of_the_whole(
    submission: dict[str, Any], seed: int
) -> None:
    context, text = submission["context"], json.dumps({**submission["solution"], "output": None})
    submission = {**submission, "tools": DECLARED}
    try:
        check_submission(submission)
    except Rejected:
        assume(False)
    assume(first_reader(submission) is None)  # the errors of a tick's calls are read in the next tick
    random, asked = Random(seed), request_of(context)
    whole = read_answer(asked, text)
    assert not whole.errors
    driver = None
    for end in sorted(random.choices([0, *ends_of_calls(text)], k=4)):
        layout = begin_answer(asked, text[:end], context, first=0)
        if driver is None:
            driver = Streamed(layout, FUNCTIONS, random=random)  # type: ignore[arg-type]
        driver.extend(layout)
        for _ in range(random.randrange(4)):
            driver.move()
    assert driver is not None
    answer = end_answer(asked, text, [call.index for call in driver._plan.calls], context, first=0)
    driver.extend(answer.layout)
    result = driver.run()
    if naive.is_deterministic(submission):
        compared(naive.evaluate(submission, TOOLS), result)


@given(submissions().filter(lambda one: "solution" in one))
def test_r13_8_what_begins_early_waits_for_the_same_calls_whatever_comes_behind_it(submission: dict[str, Any]) -> None:
    context, text = submission["context"], json.dumps({**submission["solution"], "output": None})
    asked = request_of(context)
    whole = read_answer(asked, text)
    before: set[int] = set()
    for end in ends_of_calls(text):
        layout = begin_answer(asked, text[:end], context, first=0)
        begun = {call.index for call in layout.calls}
        assert before <= begun <= {call.index for call in whole.calls}
        for instance, lane in layout.lanes.items():
            for call in lane.calls:
                assert waits_of(lane.graph, call.index) == waits_of(whole.layout.lanes[instance].graph, call.index)
        before = begun


def give(value: Any, path: str, **more: Any) -> dict[str, Any]:
    return {"_tool": "give", "value": value, "_outputPath": f"†state.{path}", **more}


@pytest.mark.parametrize(
    ("calls", "begun"),
    [
        ([give(1, "a"), give("†state.a", "b")], [0, 1]),
        ([give("†state.later", "a"), give("†state.a", "b"), give(1, "later")], [2]),
        ([give("†state.later || †state.x", "a")], []),
        ([give(["†state.x", "†input.y"], "a"), give(1, "x")], [0, 1]),
        ([give("†state.later", "a"), give(1, "b", _scopes=["†state.b"]), give(1, "c", _scopes=["state"])], [1]),
        ([give(1, "a", _instance="①"), give("†state.a", "b", _gather=True)], [0]),
        ([give("†state.own", "a", _instance="①"), give("†state.own", "a", _instance="②")], [0]),
        (
            [
                give(1, "a"),
                {"_tool": "unknown", "_outputPath": "†state.b"},
                give("†state.b", "c"),
                give("†state.a", "d"),
            ],
            [0, 3],
        ),
    ],
)
def test_r13_8_while_the_answer_is_written_an_unmet_reference_a_fallback_and_a_gathering_wait(
    calls: list[Any], begun: list[int]
) -> None:
    context = [{"type": "state", "x": 1}, {"type": "input", "y": 1}, {"type": "state", "_instance": "①", "own": 1}]
    asked = request_of([*context, {"type": "state", "_instance": "②", "z": 1}])
    text = json.dumps({"calls": calls})[:-2]
    layout = begin_answer(asked, text, asked.submission.context, first=5)
    assert [call.index - 5 for call in layout.calls] == begun


def broken(text: str) -> Answer:
    asked = request_of([])
    return break_answer(asked, text, [], first=0, why="it broke off")


def test_r13_8_of_a_broken_answer_the_calls_that_were_written_count_and_no_output() -> None:
    answer = broken(json.dumps({"calls": [give(1, "a"), give("†state.no", "b")]})[:-2])
    assert [call.index for call in answer.calls] == [0]
    assert [(error.type, error.pointer) for error in answer.errors] == [
        ("InvalidCall", "/calls/1/value"),
        ("Truncated", ""),
    ]
    assert (len(answer.solution["calls"]), answer.output) == (2, None)


@pytest.mark.parametrize(
    "rest", ["]", '], "calls": []}', '], "output": null} {"calls": []}', '], "output": null, "output": 1}']
)
def test_r13_8_what_turns_invalid_behind_a_call_is_no_answer(rest: str) -> None:
    text = json.dumps({"calls": [give(1, "a")]})[:-2]
    with pytest.raises(Unreadable):
        end_answer(request_of([]), text + rest, [0], [], first=0)
