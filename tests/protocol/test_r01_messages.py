"""SPEC R1: messages."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Context, Reference, Rejected, check_submission
from acts_celery.protocol.calls.delegates import delegate_context
from acts_celery.protocol.messages import PROVENANCE, read_data, render_data
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.scopes import scoped_messages

from .building import call, pointers, problems, run, submission

DATA = {"type": "state", "user": {"name": "Alex"}}
CHAT = {"role": "user", "content": "hello"}


# R1.1


@pytest.mark.parametrize(
    "type_", ["text", "system", "data", "input", "state", "tool", "plan", "error", "meta", "advisor"]
)
def test_r1_1_every_accepted_type_is_accepted(type_: str) -> None:
    message: dict[str, Any] = {"type": type_}
    if type_ == "tool":
        message["tool"] = {}
    if type_ == "plan":
        message["calls"] = []
    assert check_submission(submission(context=[message])).submission.context == [message]


def test_r1_1_the_chat_shape_needs_no_type() -> None:
    assert Context([CHAT]).messages == (CHAT,)
    assert Context([CHAT]).data() == {}


def test_r1_1_an_unknown_type_is_kept_untouched_and_ignored_by_resolution() -> None:
    unknown = {"type": "hologram", "data": {"a": 1}, "_call": {"_outputPath": 5}, "kind": [], "schema": 7}
    context = Context([unknown])
    assert context.messages == (unknown,)
    assert context.data() == {}


def test_r1_1_no_field_is_dropped_on_a_round_trip() -> None:
    message = {"type": "state", "a": 1, "title": "t", "_date": "d", "_unknown": {"b": [None]}, "unknown": False}
    assert Context([message]).messages == (message,)
    assert check_submission(submission(context=[message])).context.messages == (message,)


def test_r1_1_a_context_copies_what_it_is_given() -> None:
    message = {"type": "state", "list": [1]}
    context = Context([message])
    message["list"].append(2)  # type: ignore[attr-defined]  # it is the list above
    assert context.resolve("†state.list") == [1]


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ("text", "/context/0"),
        (None, "/context/0"),
        ({}, "/context/0"),
        ({"role": "user"}, "/context/0"),
        ({"type": None, "content": "x"}, "/context/0"),
        ({"type": 1}, "/context/0/type"),
        ({"type": ["state"]}, "/context/0/type"),
        ({"type": "data", "kind": None}, "/context/0/kind"),
        ({"type": "data", "kind": {}}, "/context/0/kind"),
        ({"type": "text", "_instance": ""}, "/context/0/_instance"),
        ({"type": "text", "_instance": ["①"]}, "/context/0/_instance"),
        ({"type": "state", "schema": 5}, "/context/0/schema"),
        ({"type": "state", "schema": {"type": "nonsense"}}, "/context/0/schema/type"),
        ({"type": "state", "_call": {"_outputPath": "†"}}, "/context/0/_call/_outputPath"),
        ({"type": "state", "_call": {"_outputPath": 5}}, "/context/0/_call/_outputPath"),
        ({"type": "state", "_call": {}, "_path": "†a.."}, "/context/0/_path"),
        ({"type": "state", "_call": {}, "_outputMethod": "shuffle"}, "/context/0/_outputMethod"),
        ({"type": "state", "_call": {}, "_outputMethod": []}, "/context/0/_outputMethod"),
    ],
)
def test_r1_1_a_malformed_message_is_a_structural_error_with_its_place(message: Any, pointer: str) -> None:
    assert pointers(problems(submission(call(), context=[message]))) == [pointer]


def test_r1_1_a_context_refuses_a_malformed_message() -> None:
    context = Context([DATA])
    with pytest.raises(Rejected, match="type"):
        context.append({"no": "type"})
    assert context.messages == (DATA,)


# R1.2


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"type": "data"}, "data"),
        ({"type": "data", "kind": "state"}, "state"),
        ({"type": "data", "kind": "anything"}, "anything"),
        ({"type": "state"}, "state"),
        ({"type": "state", "kind": "input"}, "state"),
        ({"type": "input"}, "input"),
        ({"type": "error"}, "error"),
    ],
)
def test_r1_2_the_kind_is_the_type_or_what_a_data_message_says(message: dict[str, Any], kind: str) -> None:
    data = read_data(message)
    assert data is not None
    assert data.kind == kind


@pytest.mark.parametrize("type_", ["text", "system", "tool", "plan", "meta", "advisor", "hologram", None])
def test_r1_2_other_messages_carry_no_data(type_: str | None) -> None:
    assert read_data({"type": type_, "kind": "state", "data": 1}) is None


@pytest.mark.parametrize("kind", ["state", "input", "error"])
def test_r1_2_a_data_message_of_a_kind_and_a_message_of_that_type_are_the_same(kind: str) -> None:
    for rest in ({"data": {"a": 1}}, {kind: {"a": 1}}, {"a": 1}, {}):
        assert read_data({"type": "data", "kind": kind, **rest}) == read_data({"type": kind, **rest})


# R1.3


def test_r1_3_the_three_shapes_of_a_payload_mean_the_same() -> None:
    payload = {"user": {"name": "Alex"}}
    shapes = [{"type": "input", "data": payload}, {"type": "input", "input": payload}, {"type": "input", **payload}]
    assert [read_data(shape) for shape in shapes] == [read_data(shapes[0])] * 3


def test_r1_3_data_comes_before_the_property_named_like_the_type() -> None:
    data = read_data({"type": "state", "data": {"a": 1}, "state": {"b": 2}, "c": 3})
    assert data is not None
    assert data.payload == {"a": 1}


def test_r1_3_a_property_named_like_a_kind_that_is_no_type_is_payload() -> None:
    data = read_data({"type": "data", "kind": "rows", "rows": [1]})
    assert data is not None
    assert data.payload == {"rows": [1]}


def test_r1_3_reserved_properties_are_no_payload() -> None:
    message = {"type": "state", "kind": "k", "schema": True, "description": "d", "title": "t", "_x": 1, "a": 1}
    data = read_data(message)
    assert data is not None
    assert data.payload == {"a": 1}


@pytest.mark.parametrize("payload", [None, 0, "", [], False, [1, 2], "text"])
def test_r1_3_a_payload_may_be_any_value_and_null_is_one(payload: Any) -> None:
    context = Context([{"type": "data", "kind": "k", "data": payload}])
    assert context.resolve("†k") == payload
    assert context.data() == {"k": payload}


# R1.4


def test_r1_4_provenance_is_in_the_log() -> None:
    (message,) = run(call(to="†state.a", value=1, _outputMethod="set"), date="2026-01-01T00:00:00Z").messages
    assert message["_call"] == {"_tool": "give", "value": 1, "_outputPath": "†state.a", "_outputMethod": "set"}
    assert (message["_date"], message["_outputMethod"]) == ("2026-01-01T00:00:00Z", "set")


def test_r1_4_provenance_and_routing_are_in_nothing_that_a_reader_is_shown() -> None:
    context = [{"type": "state", "_instance": "①", "b": 1}]
    calls = [
        call(to="†state.a && †state.c", value=1, _instance="①"),
        call("see", to="†data.seen", after="†state.a", _scopes=["state"], _instance="①"),
    ]
    result = run(*calls, context=context)
    assert result.data["①"]["data"]["seen"] == {"state": {"a": 1, "b": 1, "c": 1}}
    fold = Fold()
    for message in [*context, *result.messages]:
        fold.append(message, "message")
    shown = scoped_messages(fold, [Reference("state")])
    assert shown == [{"type": "state", "a": 1, "b": 1, "c": 1}]


def test_r1_4_a_delegates_own_messages_lose_provenance_and_routing() -> None:
    own = [{"type": "state", "a": 1, "_instance": "①", **{name: {} for name in PROVENANCE}}]
    assert delegate_context(own, [], {}) == [{"type": "state", "a": 1}]


# R1.5


@pytest.mark.parametrize("kind", ["state", "input"])
def test_r1_5_an_object_of_state_or_input_is_written_flat(kind: str) -> None:
    assert render_data(kind, {"a": 1}) == {"type": kind, "a": 1}
    assert render_data(kind, {}) == {"type": kind}


@pytest.mark.parametrize("key", ["type", "kind", "schema", "description", "title", "_x", "_call", "data", "state"])
def test_r1_5_a_payload_with_a_reserved_key_is_written_as_data(key: str) -> None:
    assert render_data("state", {key: 1}) == {"type": "data", "kind": "state", "data": {key: 1}}


@pytest.mark.parametrize(
    ("kind", "payload"), [("data", {"a": 1}), ("rows", {}), ("error", {}), ("state", [1]), ("input", None)]
)
def test_r1_5_every_other_payload_is_written_as_data(kind: str, payload: Any) -> None:
    assert render_data(kind, payload) == {"type": "data", "kind": kind, "data": payload}


def test_r1_5_a_schema_and_a_description_ride_along() -> None:
    rendered = render_data("state", {"a": 1}, schema={"type": "object"}, description="what it is")
    assert rendered == {"type": "state", "a": 1, "schema": {"type": "object"}, "description": "what it is"}
    fold = Fold()
    fold.append({"type": "state", "a": 1, "schema": {"type": "object"}, "description": "what it is"}, "message")
    assert scoped_messages(fold, [Reference("state")]) == [rendered]
    assert scoped_messages(fold, [Reference("state", ("a",))]) == [{"type": "state", "a": 1}]
