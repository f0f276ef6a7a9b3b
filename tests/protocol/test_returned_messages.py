"""What an activity's message says beside its data is kept (SPEC R1.1, R4.5)."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Context, Message, Output
from acts_celery.protocol.calls.tools import PLAIN, Tool

from .building import ANY, DATE, call, run, statuses

RIDERS: dict[str, Any] = {"schema": {"type": "object"}, "description": "what it is", "title": "A", "_note": [1]}


@pytest.mark.parametrize(
    "shape",
    [
        {"type": "state", "a": 1},
        {"type": "state", "data": {"a": 1}, "comment": "beside the data"},
        {"type": "state", "state": {"a": 1}, "comment": "beside the data"},
        {"type": "data", "kind": "state", "data": {"a": 1}, "comment": "beside the data"},
    ],
)
def test_r4_5_no_field_of_a_returned_message_is_dropped(shape: dict[str, Any]) -> None:
    raw = call("whole", to="†state.a || †state.b")
    result = run(raw, functions={"whole": lambda *_: Message({**shape, **RIDERS})})
    comment = {"comment": shape["comment"]} if "comment" in shape else {}
    assert result.messages == [
        {"type": "data", "kind": "state", "data": {"a": 1}, "_path": "†state.a", "_call": raw, "_date": DATE}
        | RIDERS
        | comment
    ]
    assert Context(result.messages).data() == {"state": {"a": 1}}


def test_r4_5_a_message_for_several_paths_rides_along_with_each() -> None:
    message = {"type": "state", "a": 1, "b": 2, **RIDERS}
    result = run(call("whole", to="†state.a && †state.b"), functions={"whole": lambda *_: Message(message)})
    assert [{key: kept[key] for key in RIDERS} for kept in result.messages] == [RIDERS, RIDERS]


def test_r4_5_provenance_and_routing_are_the_calls_own() -> None:
    lies = {"_call": {"_tool": "lie"}, "_date": "lie", "_path": "†x", "_outputMethod": "push", "_instance": "②"}
    result = run(
        call("whole", to="†state.a"), functions={"whole": lambda *_: Message({"type": "state", "a": 1, **lies})}
    )
    (message,) = result.messages
    assert message.keys() == {"type", "kind", "data", "_call", "_date"}
    assert message["_date"] == DATE


@pytest.mark.parametrize("kind", ["state", "data", "rows"])
@pytest.mark.parametrize("schema", [{"properties": {"b": {"type": "integer"}}}, {"type": 5}, 5, None])
def test_r4_5_the_schema_of_a_returned_message_is_data_and_holds_for_nothing(kind: str, schema: Any) -> None:
    older = {"type": "data", "kind": kind, "data": {}, "schema": {"properties": {"b": {"type": "string"}}}}
    newer = {"type": "data", "kind": kind, "data": {"a": 1}, "schema": schema}
    result = run(
        call("whole", to=f"†{kind}.a"),
        call(to=f"†{kind}.b", value=7, after=f"†{kind}.a"),
        call(to=f"†{kind}.b", value="x", after=f"†{kind}.a"),
        context=[older],
        functions={"whole": lambda *_: Message(newer)},
    )
    assert statuses(result) == ["done", "failed", "done"]
    assert result.data[None][kind] == {"a": 1, "b": "x"}
    assert result.messages[0]["schema"] == schema
    assert Context(result.messages).data()[kind] == {"a": 1, "b": "x"}


# R4.6, where the schema comes from a return annotation


@pytest.mark.parametrize(("mark", "is_known"), [("always", True), ("sometimes", False), (None, True)])
@pytest.mark.parametrize("value", [1, "x"])
@pytest.mark.parametrize("how", ["plain", "output", "message"])
def test_r4_6_an_annotation_speaks_of_plain_values_only(mark: Any, is_known: bool, value: Any, how: str) -> None:
    output = {"type": "integer", **({PLAIN: mark} if mark else {})}
    activities = {"t": {"type": "object", "properties": {"_output": output}}}
    made = {"plain": value, "output": Output("†state.a", value), "message": Message({"type": "state", "a": value})}
    raw = call("t", to="†state.a")
    result = run(raw, tools={"t": ANY}, activities=activities, functions={"t": lambda *_: made[how]})
    is_admitted = value == 1 or (mark is not None and how != "plain")
    assert statuses(result) == ["done" if is_admitted else "failed"]
    assert (Tool("t", activities["t"]).output_schema is not None) is is_known, "what all its results are known to be"


@pytest.mark.parametrize(("value", "status"), [(1, "done"), ("x", "failed"), (None, "failed")])
def test_r4_6_a_declared_output_counts_instead_of_the_annotation(value: Any, status: str) -> None:
    activities = {"t": {"type": "object", "properties": {"_output": {"type": "string", PLAIN: "always"}}}}
    tools = {"t": {"properties": {"_output": {"type": "integer"}}}}
    result = run(call("t", to="†state.a"), tools=tools, activities=activities, functions={"t": lambda *_: value})
    assert statuses(result) == [status]
