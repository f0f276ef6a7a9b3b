"""Laws of messages (SPEC R1): no field is lost on any way, and what is rendered reads the same again."""

from __future__ import annotations

import json
from typing import Any

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Context
from acts_celery.protocol.messages import read_data, render_data
from acts_celery.protocol.plan.submission import decode
from acts_celery.protocol.state.operations import read_operation

from .laws import law
from .strategies import json_values, kinds, log_messages, made_json, texts

_TYPES = ("text", "system", "data", "input", "state", "error", "meta", "advisor", "never heard of")
_NAMES = ("data", "state", "input", "error", "_date", "_more", "description", "title", "", "†", "text", "é")
_free = st.dictionaries(st.sampled_from(_NAMES), made_json, max_size=3)
any_messages: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(lambda rest, type_: {**rest, "type": type_}, _free, st.sampled_from(_TYPES)),
    st.builds(lambda rest, content: {**rest, "role": "user", "content": content}, _free, made_json),
    log_messages,
)


@law
@given(st.lists(any_messages, max_size=2), st.sampled_from([None, "①"]))
def test_no_field_of_a_message_is_lost_on_any_way(messages: list[dict[str, Any]], instance: str | None) -> None:
    given_in = messages if instance is None else [{**message, "_instance": instance} for message in messages]
    text = json.dumps(given_in)
    for carried in (json.loads(text), msgpack.unpackb(msgpack.packb(given_in))):
        context = Context(carried)
        assert list(context.messages) == given_in
        assert json.dumps(list(context.messages)) == text, "in the same order, of the same types"
        assert context.data(instance) == Context(given_in).data(instance)


@law
@given(st.lists(any_messages, max_size=2))
def test_a_submission_means_the_same_in_json_and_in_msgpack(messages: list[dict[str, Any]]) -> None:
    value = {"context": messages}
    text = json.dumps(value)
    for carried in (text.encode(), json.dumps(value, ensure_ascii=False).encode(), msgpack.packb(value)):
        assert json.dumps(decode(carried)) == text


@given(any_messages)
def test_provenance_changes_nothing_of_what_a_message_carries(message: dict[str, Any]) -> None:
    marked = {**message, "_date": "2026-11-21T00:00:00Z", "_instance": "①"}
    bare = {key: value for key, value in message.items() if key != "_date"}
    one, other = read_data(marked), read_data(bare)
    assert (one is None) is (other is None)
    if one is not None and other is not None:
        assert (one.kind, one.payload) == (other.kind, other.payload)
    assert read_operation(marked, "m") == read_operation(bare, "m")


@given(kinds, json_values)
def test_reading_what_was_rendered_gives_kind_and_payload_back(kind: str, payload: Any) -> None:
    data = read_data(json.loads(json.dumps(render_data(kind, payload))))
    assert data is not None
    assert (data.kind, data.payload) == (kind, payload)


@given(st.dictionaries(texts, json_values, max_size=3))
def test_an_object_renders_flat_or_whole_and_reads_the_same(payload: dict[str, Any]) -> None:
    for kind in ("state", "input"):
        assert Context([render_data(kind, payload)]).data() == {kind: payload}
