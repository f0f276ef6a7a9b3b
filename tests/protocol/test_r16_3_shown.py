"""What a model that can call what has effects is shown beside what others wrote, and of it (SPEC R16.3)."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import Request, read_request, render, render_tick

PAY: dict[str, Any] = {"pay": {"type": "object", "properties": {}, "_trust": {"effects": True}}}
NOTHING: dict[str, Any] = {"calls": [], "output": None}


def request(*context: dict[str, Any], **parts: Any) -> Request:
    return read_request({"context": list(context), "schema": {}, "tools": PAY, **parts}, Environment())


def shown(*context: dict[str, Any]) -> list[str]:
    """The lines below the engine's own text."""
    return [line for message in render(request(*context))[1:] for line in message["content"].splitlines()]


def wrote(path: str, kind: str, payload: dict[str, Any], *sources: str, **more: Any) -> dict[str, Any]:
    """A message that a call has written."""
    said = {"_trust": list(sources)} if sources else {}
    return {"type": kind, **payload, "_call": {"_tool": "a", "_outputPath": path}, **said, **more}


def told(*new: dict[str, Any]) -> str:
    """What follows a tick that has brought these messages."""
    (*_, last) = render_tick(request(), 0, NOTHING, (), [], new)
    text = last["content"]
    assert isinstance(text, str)
    return text


def test_r16_3_what_lies_beside_it_is_shown() -> None:
    own = wrote("†state.own.by", "state", {"own": {"by": "YAK"}}, "mail")
    assert shown({"type": "state", "task": "pay", "own": {"to": "me"}}, own) == [
        "## Data: †state",
        '{"task":"pay","own":{"to":"me"}}',
        "Not shown: †state.own.by, 5 bytes that others wrote (mail)",
    ]
    page = {"type": "state", "page": [1], "_trust": ["web"]}
    assert shown({"type": "state", "task": "pay", "page": None}, page) == [
        "## Data: †state",
        '{"task":"pay"}',
        "Not shown: †state.page, 3 bytes that others wrote (web)",
    ]


def test_r16_3_names_of_fields_are_shown_where_nobody_else_chose_them() -> None:
    page = {"type": "state", "page": [1], "YAK": "YAK", "_trust": ["web"]}
    unnamed = "Not shown: 1 field of †state, 5 bytes that others wrote (web)"
    named = "Not shown: †state.page, 3 bytes that others wrote (web)"
    owns: list[dict[str, Any]] = [{"page": []}, {"task": "pay", "schema": {"properties": {"page": {}}}}]
    for own in owns:
        assert shown({"type": "state", **own}, page)[-2:] == [named, unnamed]
    both = "Not shown: 2 fields of †state, 8 bytes that others wrote (web)"
    assert both in shown({"type": "state", "task": "pay"}, page)
    assert both in told({**page, "data": {"page": [1], "YAK": "YAK"}})
    for labelled in ([], [{"type": "state", "page": 1, "_trust": ["web"]}]):
        (*_, last) = render_tick(request(), 0, NOTHING, (), labelled, [wrote("†state.a", "state", {"a": 1})])
        assert "## Data: †state.a\n1" in last["content"]
    put = {"type": "state", "data": {"YAK": "YAK"}, "_path": "†state.YAK", "_outputMethod": "set", "_trust": ["web"]}
    assert "## Data: †state\nNot shown: 1 field of †state, 5 bytes that others wrote (web)" in told(put)


def test_r16_3_what_is_said_beside_data_of_others_is_not_shown_and_of_a_promise_its_structure() -> None:
    said = {"description": "YAK", "schema": {"title": "YAK", "properties": {"YAK": {}}}}
    assert "YAK" not in str(
        shown({"type": "state", "task": "pay"}, {"type": "state", "a": 1, "_trust": ["web"], **said})
    )
    described = {"description": "YAK", "type": "string", "enum": ["YAK"], "default": "YAK", "pattern": "YAK"}
    schema = {"type": "object", "title": "YAK", "properties": {"page": described}, "required": ["page", "YAK"]}
    lines = shown({"type": "input", "schema": schema, "description": "YAK", "_trust": ["web"]})
    assert lines == [
        "## Data: †input",
        'Schema: {"type":"object","properties":{"page":{"type":"string"}},"required":["page"]}',
    ]
    own = {"type": "state", "task": "pay", "description": "What is to do", "schema": {"title": "Tasks"}}
    lines = shown(own, {"type": "state", "a": 1, "_trust": ["web"]})
    assert lines[1:3] == ["Description: What is to do", 'Schema: {"title":"Tasks"}']


def test_r16_3_all_are_named_who_may_have_written_it_also_who_wrote_below() -> None:
    below = wrote("†state.own.by", "state", {"own": {"by": "YAK"}}, "mail")
    assert shown({"type": "state", "own": {"to": "EMU"}, "_trust": ["web", "page"]}, below) == [
        "## Data: †state",
        "{}",
        "Not shown: †state.own, 23 bytes that others wrote (mail, page, web)",
    ]


def test_r16_3_of_a_promise_what_it_names_is_left_out() -> None:
    promise = {"type": "input", "schema": {"properties": {"page": {}}}, "_trust": ["web"]}
    lines = shown(promise, {"type": "input", "page": "YAK", "task": "pay"})
    assert '{"task":"pay"}' in lines
    assert "Not shown: †input.page, 5 bytes that others wrote (web)" in lines


def test_r16_3_a_tick_tells_of_a_result_and_its_description_as_of_what_was_there() -> None:
    assert "YAK" not in told(wrote("†state.a", "state", {"a": {"b": "YAK"}}, "mail", description="YAK"))
    assert "a yak" in told(wrote("†state.a", "state", {"a": 1}, description="a yak"))


def test_r16_3_what_instances_share_is_compared_without_what_others_wrote() -> None:
    """Else whether it is shown again would say what others wrote there."""
    shared = {"type": "state", "task": "pay", "page": ""}, {"type": "state", "page": "YAK", "_trust": ["web"]}
    for word in ("YAK", "EMU"):
        lines = shown(*shared, {"type": "state", "_instance": "①", "page": word, "_trust": ["web"]})
        assert lines[-3:] == ["## Data: †state ①", "{}", "Not shown: †state.page, 5 bytes that others wrote (web)"]


def failed(type_: str, pointer: str, *sources: str) -> dict[str, Any]:
    error = {"type": type_, "message": "no YAK", "pointer": pointer}
    said = {"_trust": list(sources)} if sources else {}
    return {"type": "error", "_instance": "①", "data": {"call": {"_tool": "a"}, "error": error}, **said}


@pytest.mark.parametrize(
    ("type_", "pointer", "told_of"),
    [
        ("TooLarge", "/calls/0", '"type":"TooLarge","message":"not shown, since'),
        ("ValueError", "/calls/0", '"type":"Error","message":"not shown, since'),
        ("pay_YAK", "/calls/0", '"type":"Error","message":"not shown, since'),
        ("ValueError", "/calls/0/YAK", '(mail)"}}'),
    ],
)
def test_r16_3_an_error_that_may_quote_it_is_told_by_its_type_its_call_and_its_instance(
    type_: str, pointer: str, told_of: str
) -> None:
    text = told(failed(type_, pointer, "mail"))
    assert told_of in text
    assert '{"instance":"①","call":{"_tool":"a"}' in text
    assert "YAK" not in text
    assert "no YAK" in told(failed(type_, pointer))
