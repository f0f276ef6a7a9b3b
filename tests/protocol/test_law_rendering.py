"""Laws of rendering: a model that reads from top to bottom knows the newest value of everything (SPEC R12.5)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Context, Limits
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.requests import Fate, Request, render, render_tick
from acts_celery.protocol.requests.rendering import render_context
from acts_celery.protocol.submission.checking import Environment
from acts_celery.protocol.submission.submission import read_submission

from .strategies import json_values, log_messages

instances = st.sampled_from([None, None, "①", "②"])


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """A message of a log, of any instance."""
    message: Any = draw(log_messages)
    instance = draw(instances)
    return {**message, "_instance": instance} if instance is not None else dict(message)


def request(context: list[Any]) -> Request:
    """A request that begins with this context."""
    submission, problems = read_submission({"context": context, "schema": {"type": "string"}}, Limits())
    assert problems == []
    return Request(submission, Environment())


def last_values(rendered: list[dict[str, Any]]) -> dict[str, Any]:
    """Heading to the value that stands last below it."""
    values: dict[str, Any] = {}
    for message in rendered[1:]:
        for block in message["content"].split("\n\n"):
            heading, *below = block.split("\n")
            if heading.startswith("## Data: ") and below:
                values[heading.removeprefix("## Data: ")] = json.loads(below[-1])
    return values


@given(st.lists(messages(), max_size=4), st.lists(st.lists(messages(), max_size=3), max_size=3))
def test_the_last_value_that_is_shown_of_every_identity_is_the_folded_one(first: list[Any], ticks: list[Any]) -> None:
    asked = request(first)
    rendered, so_far = render(asked), first
    for number, new in enumerate(ticks):
        rendered = [*rendered, *render_tick(asked, number, (), so_far, new)]
        so_far = [*so_far, *new]
    context = Context.trusted(so_far)
    shown = last_values(rendered)
    for message in so_far:
        kind = message.get("kind", "data") if message["type"] == "data" else message["type"]
        instance = message.get("_instance")
        value = context.fold(instance).root(kind)
        if kind != "error" and value is not MISSING:
            assert shown[f"†{kind}" + (f" {instance}" if instance else "")] == json.loads(json.dumps(value))


@given(st.lists(st.tuples(st.text(max_size=12), json_values), max_size=3), st.text(max_size=12))
def test_whatever_data_holds_it_forges_no_heading(pairs: list[Any], instance: str) -> None:
    context: list[Any] = [{"type": "data", "kind": f"k{kind}", "data": value} for kind, value in pairs]
    context += [
        {"type": "state", "_instance": "\n## Data: †input" + instance, "description": "\r# x", "a": "\u2028# y"}
    ]
    context += [{"type": "data", "kind": "state ①", "schema": {"title": "\n## x"}, "data": 1}]
    for message in render_context(context):
        headings = [line for line in message["content"].splitlines() if line.startswith("#")]
        assert len(headings) == 1, message


def test_r12_5_behind_a_tick_stand_a_receipt_the_changed_values_every_error_and_the_plan() -> None:
    first: list[Any] = [
        {"type": "plan", "calls": [{"_tool": "price", "item": "†input.item"}]},
        {"type": "input", "item": "pear"},
        {"type": "state", "_instance": "①", "own": 1},
    ]
    call = {"_tool": "price", "_outputPath": "†state.price"}
    new: list[Any] = [
        {"type": "data", "kind": "state", "data": {"price": 3}, "_call": call, "_date": "d"},
        {"type": "solution", "solution": {"calls": [], "output": None}},
        {
            "type": "error",
            "data": {"call": call, "error": {"type": "X", "message": "a\nb", "pointer": ""}},
            "_date": "d",
        },
    ]
    fates = [Fate(0, "price", None, "done", "†state.price"), Fate(1, "buy", "①", "skipped", None, "no †state.money")]
    asked = request(first)
    (told,) = render_tick(asked, 0, fates, first, new, [call])
    assert told == {
        "role": "user",
        "content": "\n".join(
            [
                "# Tick 0: what became of your calls",
                "0. price: done → †state.price",
                "1. buy ①: skipped (no †state.money)",
                "",
                "## Data: †state ①",
                '{"price":3,"own":1}',
                "",
                "## Data: †state",
                '{"price":3}',
                "",
                '## Error: {"call":{"_tool":"price","_outputPath":"†state.price"},'
                '"error":{"type":"X","message":"a\\nb","pointer":""}}',
                "",
                "## Plan (replaces every earlier plan; only the calls of your next answer run)",
                '{"_tool":"price","_outputPath":"†state.price"}',
            ]
        ),
    }


def test_r12_5_what_is_only_promised_is_shown_by_its_schema_and_long_values_are_cut() -> None:
    promise = {"type": "input", "schema": {"type": "object", "properties": {"a": {}}}, "description": "The\nneed"}
    context: list[Any] = [promise, {"type": "state", "text": "é" * 20}]
    promised, cut = render_context(context, show_bytes=12)
    assert promised["content"] == (
        '## Data: †input\nDescription: The need\nSchema: {"type":"object","properties":{"a":{}}}'
    )
    assert cut["content"] == '## Data: †state\n{"text":"é… (cut: 51 bytes, of which the first 11 are shown)'
