"""Findings: what other systems understand and this protocol does not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .building import call, checked

BLANKS = " " * 100_000
SECONDS = 30
"""More than any text takes here, and nothing beside what a pattern needs that goes back in it."""
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
    ],
)
def test_words_that_order_or_condition_elsewhere_are_told_with_what_to_do(key: str, remedy: str) -> None:
    (message,) = told({"_tool": "send", key: "†state.approved"})
    assert message.startswith(f"call 0 (send) has the property {key}, which means nothing: {remedy}")
    mentioned = {"_tool": "send", key: 1}
    assert told(mentioned, tools={"send": {"properties": {key: {}}}}) == []


def test_a_reference_in_a_property_that_means_nothing_is_told() -> None:
    (message,) = told(call("send", _note={"of": "†state.draft"}))
    assert message == (
        "call 0 (send) has the property _note, which means nothing, so that nobody reads †state.draft there: make it a "
        "parameter"
    )
    assert told(call("send", _note="by hand", _trace=[1])) == []


def test_an_output_path_without_its_underscore_is_told() -> None:
    (message,) = told(call("send", outputPath="state.x"))
    assert message.endswith("has the property outputPath, a parameter like any other: did you mean _outputPath?")
    assert told(call("send", "x", output_path="f.txt")) == []
    assert told(call("send", outputPath="f.txt"), tools={"send": {"properties": {"outputPath": {}}}}) == []


@pytest.mark.parametrize(
    "text", ["{{state.draft}}", " {{ state.draft }}\n", "${state.draft}", "$state.draft", "$state.draft$"]
)
def test_a_place_named_as_in_a_template_is_told(text: str) -> None:
    (finding,) = checked(call("send", body=[text]), context=HELD).findings
    assert (finding.severity, finding.pointer) == ("info", "/solution/calls/0/body/0")
    assert finding.message.endswith("where a value is meant, write †state.draft")


@pytest.mark.parametrize("text", ["{{state.other}}", "$5.00", "{draft}", "state.draft", "{{ a b }}", "${HOME}"])
def test_a_text_that_names_nothing_is_a_text(text: str) -> None:
    assert told(call("send", body=text)) == []


@pytest.mark.parametrize("text", ["{{" + BLANKS, "${" + BLANKS, "{{" + BLANKS + "x" + BLANKS + "}", "$" * 100_000])
def test_a_template_that_is_cut_off_is_a_text_however_long_it_is(text: str) -> None:
    begun = time.monotonic()
    assert told(call("send", body=text)) == []
    assert time.monotonic() - begun < SECONDS
