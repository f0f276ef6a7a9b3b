"""Reach: what a model can do by a request, proven before it is asked (SPEC R12.8)."""

from __future__ import annotations

from typing import Any

from acts_celery.protocol import parse
from acts_celery.protocol.analysis.visibility import ToolReach, reach_of
from acts_celery.protocol.calls.tools import Executor

from .test_r12_requests import request

TEXT = {"type": "string"}
TOOLS: dict[str, Any] = {
    "pay": {
        "properties": {"to": TEXT},
        "_outputPath": {"const": "†state.paid || †state.failed"},
        "_scopes": {"type": "array", "items": {"enum": ["†state.account", "input"]}},
    },
    "ask": {
        "properties": {"_delegate": {"enum": ["expert", "coded"]}, "_outputPath": False},
        "required": ["_delegate"],
    },
    "note": {"properties": {"text": TEXT}, "_outputPath": {"anyOf": [{"const": "†data.a"}, {"enum": ["†data.b"]}]}},
    "think": {"properties": {"text": TEXT}},
}
CODE: dict[str, Any] = {"pay": {"type": "object"}, "note": {"type": "object"}}


def test_r12_8_who_runs_a_tool_what_it_writes_and_what_it_sees() -> None:
    reach = reach_of(request({"tools": TOOLS}, activities=CODE, delegates=("expert", "coded")))
    assert reach.tools == (
        ToolReach(
            "pay",
            ((Executor.ACTIVITY, "pay"),),
            ("†state.paid", "†state.failed"),
            ("†state.account", "input"),
            takes=True,
        ),
        ToolReach("ask", ((Executor.DELEGATE, "expert"), (Executor.DELEGATE, "coded")), (), (), takes=False),
        ToolReach("note", ((Executor.ACTIVITY, "note"),), ("†data.a", "†data.b"), (), takes=True),
        ToolReach("think", ((Executor.LATENT, "think"),), None, None, takes=True),
    )


def test_r12_8_a_value_may_be_passed_to_what_takes_parameters_or_has_it_in_scope() -> None:
    tools = {
        "taking": {"properties": {"a": {}}, "_scopes": {"const": []}},
        "seeing": {"_scopes": {"const": ["†state.user"]}},
        "blind": {"_scopes": {"const": ["input"]}},
    }
    reach = reach_of(request({"tools": tools}, activities={name: {"type": "object"} for name in tools}))
    (ssn,) = parse("†state.user.ssn").references
    (other,) = parse("†state.other").references
    assert reach.passed(ssn) == ("taking", "seeing")
    assert reach.passed(other) == ("taking",)


def test_r12_8_the_most_calls_and_requests_follow_from_the_limits() -> None:
    config = {"ticks": 3, "calls": 10, "tokens": 5_000, "money": 0.5}
    coded = reach_of(request({"tools": {"pay": TOOLS["pay"]}, "config": config}, activities=CODE))
    assert (coded.calls, coded.requests, coded.tokens, coded.money) == (10, 3, 5_000, 0.5)
    latent = request({"tools": {"think": TOOLS["think"]}, "config": config})
    assert reach_of(latent).requests == 13
    helped = {"tools": {"ask": TOOLS["ask"]}, "config": config, "delegates": {"expert": {"tools": {"x": {}}}}}
    asking = request(helped, activities=CODE, delegates=("coded",))
    assert reach_of(asking, code=("coded",)).requests == 3 + 10 * 3
    assert reach_of(request({"config": config})).requests == 3


def test_r12_8_the_most_requests_count_elements_and_what_child_runs_ask() -> None:
    config = {"ticks": 3, "calls": 10}
    each = {"ask": {"properties": {"_delegate": {"const": "plain"}, "x": TEXT, "_each": {"const": "x"}}}}
    spread = request({"tools": each, "config": config, "delegates": {"plain": {}}})
    assert reach_of(spread).requests == 3 + 10 * 10_000
    helped = {"properties": {"_delegate": {"const": "short"}}}
    below = {"short": {"tools": {"x": {}}, "config": {"ticks": 1}}, "long": {"tools": {"y": {}}}}
    assert reach_of(request({"tools": {"ask": helped}, "config": config, "delegates": below})).requests == 3 + 10 * 3
