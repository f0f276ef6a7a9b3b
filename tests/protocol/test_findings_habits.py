"""Findings: what other systems understand and this protocol does not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from protocol import check_submission

from .building import call, checked

BLANKS = " " * 100_000
SECONDS = 30
"""More than any text takes here, and nothing beside what a pattern needs that goes back in it."""
PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The signature of a function that takes no whole call."""
SENDER: dict[str, Any] = {"context": [], "schema": {}}
NOT_SHOWN: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"_delegate": "sender"}, {"delegates": {"sender": SENDER}}),
    ({}, {"activities": {}}),
]
"""Calls whose executor is given parameters only: a delegate, a model."""
HELD = [{"type": "state", "draft": "…", "approved": False}]


def told(*calls: Any, **parts: Any) -> list[str]:
    return [finding.message for finding in checked(*calls, context=HELD, **parts).findings]


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("_if", "a call is conditional by reading one of the alternatives"),
        ("_dependsOn", "calls wait for what they read"),
        ("_for_each", "a plan message runs once for each instance"),
        ("_onError", "an exception goes to the last alternative"),
        ("_inputs", "parameters stand beside _tool"),
        ("_else", "calls that are to run stand among the others"),
        ("_max_retries", "how often and how long a call is tried is said where its activity or delegate is registered"),
        ("_enabled", "every call that is listed runs"),
        ("_fallback", "whoever reads a place that may be missing names another after ||"),
    ],
)
def test_words_that_order_or_condition_elsewhere_are_told_with_what_to_do(key: str, remedy: str) -> None:
    for properties, options in NOT_SHOWN:
        (finding,) = checked(call("send", **{key: "†state.approved"}, **properties), context=HELD, **options).findings
        assert finding.message.startswith(f"call 0 (send) has the property {key}, which means nothing: {remedy}")
        assert (finding.severity, finding.pointer) == ("warning", f"/solution/calls/0/{key}")
    mentioned = {"_tool": "send", key: 1}
    assert told(mentioned, tools={"send": {"properties": {key: {}}}}) == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("_requires", "admin"), ("_map", {}), ("_timeout", 30), ("_note", "†state.draft"), ("_outputPth", "x")],
)
@pytest.mark.parametrize("options", [{}, {"activities": {"send": {"type": "object"}}}])
def test_an_activity_that_takes_the_whole_call_may_know_what_nobody_else_does(
    key: str, value: Any, options: dict[str, Any]
) -> None:
    (finding,) = checked(call("send", **{key: value}), context=HELD, **options).findings
    assert finding.severity == "info"
    assert finding.message.startswith(
        f"call 0 (send) has the property {key}, which only an activity that takes the whole call sees, and which is "
        "nothing of the protocol"
    )


@pytest.mark.parametrize(("schema", "severity"), [(PARAMETERS, "warning"), ({"type": "object"}, "info")])
def test_a_tool_that_nobody_declares_is_what_its_activity_takes(schema: dict[str, Any], severity: str) -> None:
    value = {"context": [], "solution": {"calls": [call("send", _after="2026-01-01")]}}
    (finding,) = check_submission(value, activities={"send": schema}).findings
    assert finding.severity == severity


def test_a_reference_in_a_property_that_means_nothing_is_told() -> None:
    (message,) = told(call("send", _note={"of": "†state.draft"}), activities={"send": PARAMETERS})
    assert message == (
        "call 0 (send) has the property _note, which means nothing: †state.draft is not read there, make it a parameter"
    )
    assert told(call("send", _note="by hand", _trace=[1]), activities={"send": PARAMETERS}) == []


@pytest.mark.parametrize("key", ["outputPath", "output_path"])
@pytest.mark.parametrize("path", ["state.x", "data.y", "†state.draft"])
def test_an_output_path_without_its_underscore_is_told(key: str, path: str) -> None:
    for properties, options in NOT_SHOWN:
        (finding,) = checked(call("send", **{key: path}, **properties), context=HELD, **options).findings
        assert finding.message == (
            f"call 0 (send) has the property {key}, a parameter like any other: did you mean _outputPath?"
        )
        assert finding.severity == "warning"
    (finding,) = checked(call("send", **{key: path}), context=HELD).findings
    assert finding.severity == "info"
    assert told(call("send", "x", **{key: path})) == []
    assert told(call("send", **{key: path}), tools={"send": {"properties": {key: {}}}}) == []


@pytest.mark.parametrize("value", ["/exports/slots.csv", "f.txt", "state", "slots.x", "††state.x", "", 5, {"state": 1}])
def test_a_path_that_names_no_place_is_a_parameter(value: Any) -> None:
    assert told(call("send", outputPath=value)) == []


def test_an_output_method_without_its_underscore_is_told() -> None:
    (message,) = told(call("send", outputMethod="push"))
    assert message.endswith("did you mean _outputMethod?")
    assert told(call("send", outputMethod="POST")) == []


def test_calls_inside_a_branch_of_another_are_told() -> None:
    inside = [{"_tool": "send", "body": "welcome"}]
    (message,) = told(call("send", then=inside))
    assert message.startswith(
        "call 0 (send) has the property then, a parameter like any other: the calls in it are not run here; calls that "
        "are to run stand among the others"
    )
    assert told(call("send", then="go"), call("send", calls=inside)) == []
    assert told(call("send", then=inside), tools={"send": {"properties": {"then": {}}}}) == []


@pytest.mark.parametrize(
    "text",
    [
        *(
            "{{state.draft}}",
            " {{ state.draft }}\n",
            "${state.draft}",
            "{state.draft}",
            "$state.draft",
            "$state.draft$",
        ),
        *("$.state.draft", "See {{ state.draft }}, please", "See ${state.draft}!", "{state.draft}: {state.draft}"),
        "It costs $5 {a} {{b}} ${state.draft}",
    ],
)
def test_a_place_named_as_in_a_template_is_told(text: str) -> None:
    (finding,) = checked(call("send", body=[text]), context=HELD).findings
    assert (finding.severity, finding.pointer) == ("info", "/solution/calls/0/body/0")
    assert finding.message.endswith("where a value is meant, write †state.draft, as a parameter of its own")


def test_who_is_given_a_value_may_be_the_one_who_puts_it_into_a_template() -> None:
    for text in ("Dear {{state.draft}},", "{{state.draft}}"):
        assert told(call("send", body=text, draft="†state.draft")) == []
        assert told(call("send", body=text, _scopes=["state"])) == []
        assert told(call("think", body=text), activities={}) == []
        assert len(told(call("send", body=text, draft="†state.approved"))) == 1


@pytest.mark.parametrize(
    "text",
    [
        *(
            "{{state.other}}",
            "$5.00",
            "{draft}",
            "state.draft",
            "{{ a b }}",
            "${HOME}",
            "{state}",
            "The {{state}} of it",
        ),
        *("See {{state.other}}", "{{state.draft", "{'state.draft': 1}", "for $state.draft and", "{ {state}.draft }"),
    ],
)
def test_a_text_that_names_nothing_is_a_text(text: str) -> None:
    assert told(call("send", body=text)) == []


@pytest.mark.parametrize(
    "text", ["{{" + BLANKS, "${" + BLANKS, "{{" + BLANKS + "x" + BLANKS + "}", "$" * 100_000, "{a." * 50_000]
)
def test_a_template_that_is_cut_off_is_a_text_however_long_it_is(text: str) -> None:
    begun = time.process_time()
    assert told(call("send", body=text)) == []
    assert time.process_time() - begun < SECONDS
