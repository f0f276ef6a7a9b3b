"""Findings about reads and scopes that depend on timing (SPEC R6.1, R8.3a, R6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from .building import call, checked

BRANCHING = call(to="†data.good || †data.bad")


def told(*calls: Any, **parts: Any) -> list[str]:
    """What is said of timing."""
    messages = [finding.message for finding in checked(*calls, **parts).findings]
    return [message for message in messages if "depends on timing" in message]


def seeing(**properties: Any) -> dict[str, Any]:
    """A call that sees the whole of `state`."""
    return call("see", _scopes=["state"], **properties)


@pytest.mark.parametrize(
    "calls",
    [
        [call(value="†data.x", to="a"), seeing(to="†data.x")],
        [call(value="†data.x", to="†data.y"), call(value="†data.y", to="a"), seeing(to="†data.x")],
    ],
)
def test_whoever_waits_for_the_reader_has_never_written_before_it(calls: list[Any]) -> None:
    assert told(*calls) == []


def test_whoever_runs_on_another_branch_only_has_never_written_before_it() -> None:
    assert told(BRANCHING, call(value="†data.good", to="a"), seeing(q="†data.bad")) == []
    assert len(told(BRANCHING, call(value="†data.good", to="a"), seeing(q="†data.good"))) == 1


def test_only_those_that_may_have_written_are_named() -> None:
    (message,) = told(call(value="†data.x", to="a"), call(to="b"), call(to="c"), seeing(to="†data.x"))
    assert "calls 1, 2 may or may not have written there" in message


def test_an_instance_may_see_what_global_calls_write_and_those_before_these_have_written() -> None:
    context = [{"type": "text", "_instance": "①"}]
    shared = [call(to="a"), call(value="†state.a", to="†data.x"), call(to="b")]
    (message,) = told(*shared, seeing(q="†data.x", _instance="①"), context=context)
    assert "call 2 may or may not have written there" in message


def test_what_lies_below_the_value_of_the_instance_itself_is_not_seen_and_so_not_named() -> None:
    own = [{"type": "state", "n": 1, "_instance": "①"}]
    assert told(call(to="n"), seeing(_instance="①"), context=own) == []
    assert len(told(call(to="m"), seeing(_instance="①"), context=own)) == 1


HELD = [{"type": "data", "x": {"y": 1}}]


@pytest.mark.parametrize("reading", [{"value": "†data.x"}, {"value": "†data.x || †data.y"}, {"_scopes": ["†data.x"]}])
@pytest.mark.parametrize("place", ["†data.x", "†data.x.y", "†data"])
def test_a_value_of_the_context_is_read_before_or_after_a_writer_that_is_listed_later(
    reading: dict[str, Any], place: str
) -> None:
    (message,) = told(call("see", "†state.a", **reading), call(to=place), context=HELD)
    assert message == (
        "what call 0 (see) reads at †data.x depends on timing: call 1, listed after it, "
        "may or may not have written there; list the reader after the writer to wait for it, or let the writer read "
        "what call 0 writes"
    )


def test_a_writer_that_leaves_what_is_read_alone_changes_nothing() -> None:
    context = [
        {"type": "data", "l": [1], "u": {"name": "Alex"}},
        {"type": "data", "_instance": "①", "u": {"name": "Bo"}},
    ]
    assert told(call(value="†data.l.0", to="a"), call(to="†data.l", _outputMethod="push"), context=context) == []
    other = call("think", "†data.u", _output={"age": 5}, _outputMethod="merge")
    assert told(call(value="†data.u.name", to="a"), other, context=context, activities={"give": {}}) == []
    closed = {"type": "object", "properties": {"age": {}}, "additionalProperties": False}
    enriching = call("enrich", "†data.u", _outputMethod="merge")
    tools = {"enrich": {"properties": {"_output": closed}}}
    assert told(call(value="†data.u.name", to="a"), enriching, context=context, tools=tools) == []
    assert told(call(value="†data.u.name", to="a", _instance="①"), call(to="†data.u.name"), context=context) == []


@pytest.mark.parametrize(
    "calls",
    [
        [call(value="†data.x", to="a"), call(value="†state.a", to="†data.x")],
        [call(to="†data.x"), call(value="†data.x", to="a")],
        [call(value="†data.x", to="†data.x"), call(value="†data.x", to="†data.x")],
        [call(value="†data.y || †data.x", to="a"), call(to="†data.x"), call(to="†data.y")],
        [call(value="†data.z", to="a"), call(to="†data.z")],
        [call(value="†data.z || †data.x", to="a"), call(to="†data.z")],
        [BRANCHING, call(value=["†data.good", "†data.x"]), call(value="†data.bad", to="†data.x")],
    ],
)
def test_a_reader_in_order_with_the_writers_reads_one_thing(calls: list[Any]) -> None:
    assert told(*calls, context=HELD) == []


def test_what_an_earlier_call_writes_is_read_before_or_after_a_writer_that_is_listed_later() -> None:
    assert len(told(call(to="†data.y"), call(value="†data.y", to="a"), call(to="†data.y.z", after="†data.y"))) == 1
    revised = call(to="†data.y", value="†state.a")
    assert told(call(to="†data.y"), call(value="†data.y", to="a"), revised) == []
