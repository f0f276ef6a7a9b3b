"""SPEC R11.6: data messages added to a run under way."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Limits, Rejected
from acts_celery.protocol.plan.additions import check_data

PROMISE = {"type": "input", "schema": {"properties": {"n": {"type": "integer"}}, "required": ["n", "m"]}}
LOG: list[dict[str, Any]] = [
    PROMISE,
    {"type": "state", "_instance": "①", "list": [1], "text": "x"},
    {"type": "text", "_instance": "②", "text": "y"},
]


def added(value: Any) -> tuple[Any, ...]:
    return check_data(value, LOG, Limits(), ["①", "②"])


def problems(value: Any) -> list[tuple[str, str]]:
    with pytest.raises(Rejected) as refused:
        added(value)
    return [(problem.pointer, problem.message) for problem in refused.value.errors]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "input", "n": 1},
        {"type": "input", "input": {"n": 1}, "_instance": "①"},
        {"type": "input", "m": "anything"},
        {"type": "data", "data": [1, 2]},
        {"type": "state", "_instance": "②", "list": 5},
        {"type": "state", "_instance": "①", "list": [2]},
    ],
)
def test_r11_6_a_data_message_can_be_added_alone_or_with_others(message: dict[str, Any]) -> None:
    assert added(message) == (message,)
    assert added([message, PROMISE]) == (message, PROMISE)


def test_r11_6_it_is_held_against_the_schema_of_the_promise_and_what_is_said_names_no_value() -> None:
    for instance in ({}, {"_instance": "①"}):
        ((at, message),) = problems([{"type": "input", "n": "s3cret", **instance}])
        assert at == "/0"
        assert message.startswith("the schema of input forbids it at /n:")
        assert "s3cret" not in message


def test_r11_6_an_instance_that_the_run_does_not_have_is_refused() -> None:
    assert problems([{"type": "input", "n": 1, "_instance": "③"}, {"type": "state", "_instance": "④"}]) == [
        ("/0/_instance", "instance '③' is not in the run"),
        ("/1/_instance", "instance '④' is not in the run"),
    ]


@pytest.mark.parametrize(
    ("message", "at", "word"),
    [
        ("text", "", "object"),
        ({"n": 1}, "", "type"),
        ({"type": "text", "text": "x"}, "", "only data"),
        ({"type": "plan", "calls": []}, "", "only data"),
        ({"type": "tool", "tool": {}}, "", "only data"),
        ({"role": "user", "content": "x"}, "", "only data"),
        ({"type": "state", "data": 2**70}, "/data", "64 bits"),
        ({"type": "state", "schema": {"type": 5}}, "/schema/type", "not"),
        ({"type": "state", "a": "x" * 2_000_000}, "", "bytes"),
        ({"type": "state", "data": {"a": 1}, "_call": {"_tool": "t", "_outputPath": "†state.a"}}, "/_call", "engine"),
        ({"type": "state", "a": 1, "_date": "2026-11-21"}, "/_date", "engine"),
    ],
)
def test_r11_6_what_is_no_data_message_is_refused(message: Any, at: str, word: str) -> None:
    ((pointer, said),) = problems(message)
    assert pointer == at
    assert word in said
    assert [pointer for pointer, _ in problems([{"type": "data", "data": 1}, message])] == [f"/1{at}"]


def test_r11_6_each_message_is_held_against_those_before_it() -> None:
    narrow = {"type": "state", "schema": {"properties": {"size": {"type": "integer"}}}}
    assert [at for at, _ in problems([narrow, {"type": "state", "size": "big"}])] == ["/1"]
    assert len(added([{"type": "state", "size": "big"}, narrow])) == 2
