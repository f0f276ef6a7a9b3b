"""A model of a test that answers at random, within the schema of the request."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery import local, random_answers
from acts_celery.broker_config import load
from acts_celery.protocol.requests import compose
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.runner.checking import Checker

from . import six_tools

SCHEMA = compose(Checker(load()).request(six_tools.REQUEST))


def answer(seed: int, schema: Any = SCHEMA) -> Any:
    return random_answers(seed)([{"role": "user", "content": "?"}], schema, {})


@given(st.integers())
def test_an_answer_fits_the_schema_and_the_same_seed_gives_it_again(seed: int) -> None:
    found = answer(seed)
    assert compiled(SCHEMA).problems(found) == []
    assert answer(seed) == found


def test_every_tool_and_the_output_are_tried_with_odd_values() -> None:
    found = [answer(seed) for seed in range(100)]
    calls = [call for each in found for call in each["calls"]]
    tools = Counter(call["_tool"] for call in calls)
    assert set(tools) == set(six_tools.NAMES)
    assert 10 < sum(each["output"] is not None for each in found) < 60
    refunds = [call for call in calls if call["_tool"] == "refund"]
    assert {"amount" in call for call in refunds} == {True, False}
    assert any(str(value).startswith("†state.r") for call in calls for key, value in call.items() if key[0] != "_")


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "properties": {"output": {"type": "integer", "minimum": 5, "maximum": 6}},
            "required": ["output"],
        },
        {"type": "object", "properties": {"output": {"type": "string", "pattern": "^…$"}}, "required": ["output"]},
        {"type": "object", "properties": {"output": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"enum": [1, None]}}},
        {"type": "object", "properties": {"output": True}},
        None,
    ],
)
def test_a_request_without_tools_has_an_output_alone(schema: Any) -> None:
    for seed in range(20):
        found = answer(seed, schema)
        assert found.keys() == {"output"}
        assert schema is None or compiled(schema).problems(found) == []


def test_an_agent_of_six_tools_outlasts_answers_at_random() -> None:
    with local([six_tools.ACTIVITIES]) as client:
        fake = client.model(random_answers(3))
        runs = [client.submit_document(six_tools.REQUEST, tags=[str(number)]) for number in range(3)]
        results = [run.wait(timeout_seconds=60) for run in runs]
    assert {result.status for result in results} <= {"completed", "failed"}
    assert len(fake.requests) >= 3
