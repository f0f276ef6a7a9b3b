"""What the messages of a context hold and nobody can read (SPEC R1.3, R2, R3.4)."""

from __future__ import annotations

from typing import Any

import pytest

from .building import call, checked


@pytest.mark.parametrize(
    ("messages", "unfit"),
    [
        ([{"type": "state", "data": 5}, {"type": "state", "a": 1}], [1]),
        ([{"type": "state", "data": None}, {"type": "state", "a": 1}], [1]),
        ([{"type": "state", "data": 5}, {"type": "state", "data": 6}], []),
        ([{"type": "state", "a": 5}, {"type": "state", "a": {"b": 1}}], []),
        ([{"type": "state", "data": 5}, {"type": "state", "a": 1, "_instance": "①"}], [1]),
        ([{"type": "state", "data": 5, "_instance": "①"}, {"type": "state", "a": 1, "_instance": "②"}], []),
        ([{"type": "state", "data": [], "_instance": "①"}, {"type": "state", "a": 1}], []),
    ],
)
def test_messages_of_the_context_that_do_not_fit_what_is_there_are_told(
    messages: list[dict[str, Any]], unfit: list[int]
) -> None:
    findings = checked(context=messages).findings
    assert [finding.pointer for finding in findings] == [f"/context/{index}" for index in unfit]
    for finding in findings:
        assert finding.message.startswith("cannot merge object at †state: there is ")
        assert "(message 1); whoever reads there fails" in finding.message


def test_a_message_that_a_call_wrote_is_told_with_its_method() -> None:
    written = {"type": "state", "data": {"n": 1}, "_outputMethod": "push", "_call": {"_outputPath": "n"}}
    (finding,) = checked(context=[{"type": "state", "n": 5}, written]).findings
    assert finding.message.startswith("cannot push number at †state.n: there is number (message 1)")


@pytest.mark.parametrize("kind", ["my kind", "2024", "a.b", "†state", "state ", "", "-x"])
def test_a_kind_that_no_reference_can_name_is_told_once(kind: str) -> None:
    message = {"type": "data", "kind": kind, "data": {"a": 1}}
    (finding,) = checked(context=[{"type": "text"}, message, {**message, "_instance": "①"}]).findings
    assert finding.to_dict() == {
        "severity": "info",
        "message": f"no reference and no scope can name the kind {kind!r}, so no call is shown what is of it: name it "
        "by letters, digits, _ and -, a letter first",
        "calls": [],
        "pointer": "/context/1/kind",
    }


@pytest.mark.parametrize("kind", ["data", "profile", "my-kind_2", "вид", "error"])
def test_a_kind_that_a_reference_can_name_is_no_slip(kind: str) -> None:
    assert checked(context=[{"type": "data", "kind": kind, "data": {"a": 1}}]).findings == ()


@pytest.mark.parametrize(
    ("message", "names", "holder", "them"),
    [
        ({"type": "state", "data": {"a": 1}, "b": 2}, "b", "data", "it"),
        ({"type": "input", "input": "hi", "language": "en", "tone": 1}, "language, tone", "input", "them"),
    ],
)
def test_what_stands_beside_the_payload_is_told_once(
    message: dict[str, Any], names: str, holder: str, them: str
) -> None:
    (finding,) = checked(context=[message, {**message, "_instance": "①"}]).findings
    assert finding.to_dict() == {
        "severity": "info",
        "message": f"{names}: no part of the message's value, which is what its property {holder} holds; to have "
        f"{them} read, put all of the value inside data",
        "calls": [],
        "pointer": f"/context/0/{names.split(',')[0]}",
    }


def test_what_stands_beside_the_payload_is_told_for_sure_where_somebody_reads_it() -> None:
    context = [{"type": "data", "kind": "user", "data": {"a": 1}, "name": "Bo"}]
    (finding,) = checked(call(value="†user.name || †user.a"), context=context).findings
    assert (finding.severity, finding.pointer) == ("warning", "/context/0/name")


@pytest.mark.parametrize(
    "message",
    [
        {"type": "data", "data": {"a": 1}, "id": 5},
        {"type": "state", "data": {"a": 1}, "schema": {}, "description": "d", "title": "t", "_note": 1},
        {"type": "state", "a": 1, "b": 2},
        {"type": "text", "data": 1, "b": 2},
        {"type": "state", "data": {"a": 1}, "_call": {"_tool": "t", "_outputPath": "a"}, "confidence": 0.5},
    ],
)
def test_other_properties_of_a_message_are_no_slip(message: dict[str, Any]) -> None:
    assert checked(call(value="†data || †state"), context=[message, {"type": "data", "x": 1}]).findings == ()
