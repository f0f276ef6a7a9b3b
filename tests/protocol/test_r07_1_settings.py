"""SPEC R7.1: the settings of a submission and of a request definition, and what a backend cannot do yet."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import check_submission
from acts_celery.protocol.plan.config import SAMPLING, SETTINGS
from acts_celery.protocol.plan.support import unsupported

from .building import call, plan_submission, pointers, problems, submission

FIT: dict[str, list[Any]] = {
    "model": ["small"],
    "temperature": [0, 0.7, 2],
    "top_p": [0.1, 1],
    "seed": [0, -5, 2**62],
    "stop": ["END", ["\n\n", "END"]],
    "reasoning_effort": ["none", "xhigh"],
    "max_output_tokens": [1, 4096],
    "ticks": [1, 8],
    "calls": [200],
    "tokens": [1_000_000],
    "money": [0.05, 2],
    "seconds": [0.5, 60],
    "request_seconds": [30],
    "promise_seconds": [3600.0],
    "approve": [[], ["*"], ["†state.user", "†state"]],
    "approve_seconds": [60],
    "trust": [{}, {"otherwise": "hold"}, {"otherwise": "refuse"}],
    "mode": ["eager", "lazy"],
    "resolve": ["upfront"],
    "partial": [True, False],
    "show": ["schema"],
    "show_bytes": [100],
    "max_concurrency": [1],
    "ignore": [[], ["ACT103", "ACT299"]],
}
UNFIT: dict[str, list[Any]] = {
    "model": ["", 5],
    "temperature": [-1, "warm", True],
    "top_p": [0, 1.1, True],
    "seed": [1.0, True, 2**63],
    "stop": ["", [], [""], ["END"] * 17, 5],
    "reasoning_effort": ["", "High", 3, "a b"],
    "max_output_tokens": [0, 1.5],
    "ticks": [0, -1, True, "8"],
    "calls": [0],
    "tokens": [0.5],
    "money": [0, -1, "2", True],
    "seconds": [0, "60"],
    "request_seconds": [-1],
    "promise_seconds": [False],
    "approve": ["*", [5], [""], ["†"], ["†state.a || †state.b"]],
    "approve_seconds": [[]],
    "trust": ["refuse", {"otherwise": "ask"}, {"show": "all"}, {"otherwise": ["hold"]}],
    "mode": ["fast", True],
    "resolve": [True, "execution"],
    "partial": [1, "true"],
    "show": ["value", True],
    "show_bytes": [0],
    "max_concurrency": [0, True, 1.0],
    "ignore": ["ACT103", ["race"], [103], ["ACT1"]],
}


@pytest.mark.parametrize("key", SETTINGS)
def test_r7_1_a_setting_takes_what_the_table_says_and_nothing_else(key: str) -> None:
    for value in (*FIT[key], None):
        definition = {"d": {"config": {key: value}}}
        check_submission(submission(config={key: value}, delegates=definition))
    for value in UNFIT[key]:
        definition = {"d": {"config": {key: value}}}
        found = problems(submission(config={key: value}, delegates=definition))
        assert pointers(found) == [f"/config/{key}", f"/delegates/d/config/{key}"]
        assert found[0].message == f"must be {SETTINGS[key].shape}"


@pytest.mark.parametrize("key", ["maxConcurrency", "max-concurrency", "max_concurency", "concurrency"])
def test_r7_1_an_unknown_setting_is_an_error_that_names_the_nearest_known_one(key: str) -> None:
    definition = {"d": {"config": {key: 1}}}
    found = problems(submission(config={key: 1}, delegates=definition))
    assert pointers(found) == [f"/config/{key}", f"/delegates/d/config/{key}"]
    assert found[0].message == f"unknown setting {key!r}, did you mean 'max_concurrency'?"


@pytest.mark.parametrize("config", [{"plan": "staged"}, {"slots": 3}])
def test_r12_7_staged_plans_are_taken_out_and_their_settings_unknown(config: dict[str, Any]) -> None:
    asked = {"context": [], "schema": {"type": "string"}, "tools": {}}
    (key,) = config
    found = problems({**asked, "config": config})
    assert pointers(found) == [f"/config/{key}"]
    assert "unknown setting" in found[0].message


def test_r7_1_a_setting_of_null_is_left_out() -> None:
    plan = check_submission(submission(config={"max_concurrency": None, "ticks": None}))
    assert plan.submission.config == {}
    assert unsupported(plan) == []


REQUESTS = {"model", *SAMPLING, "max_output_tokens", "request_seconds"}
PEOPLE = {"approve", "approve_seconds"}
OTHERS = {"max_concurrency", "ignore", "mode", "partial", "promise_seconds", "resolve", "trust"}
HONOURED = {*OTHERS, *REQUESTS, *PEOPLE}


@pytest.mark.parametrize("key", SETTINGS)
def test_r7_1_a_setting_that_a_backend_cannot_honour_yet_is_refused_and_never_ignored(key: str) -> None:
    for value in FIT[key]:
        found = unsupported(check_submission(submission(config={key: value})))
        expected = [] if key in HONOURED else [f"config.{key} is not supported by this version: leave it out"]
        assert [problem.message for problem in found] == expected
        assert {problem.pointer for problem in found} <= {f"/config/{key}"}


def test_r7_1_so_it_is_for_those_of_a_request_definition() -> None:
    config = {"max_concurrency": 1, "ignore": [], "model": "small", "ticks": 8}
    plan = check_submission(submission(delegates={"d": {"config": config}, "e": {}}))
    assert pointers(unsupported(plan)) == ["/delegates/d/config/ignore", "/delegates/d/config/ticks"]


def test_r9_3_the_tools_of_a_delegate_are_read_with_the_submission() -> None:
    tool: dict[str, Any] = {"type": "tool", "tool": {"t": {"type": 5}}}
    sound = {"d": {"tools": ["price", {"t": {}}]}, "e": {"context": [{"type": "tool", "tool": {"t": {}}}]}}
    assert unsupported(check_submission(submission(delegates=sound))) == []
    broken = {"d": {"tools": {"t": []}}, "e": {"context": [{"type": "text"}, tool]}}
    found = problems(submission(delegates=broken))
    assert pointers(found) == ["/delegates/d/tools/t", "/delegates/e/context/1/tool/t/type"]


def test_r10_2_a_plan_message_with_an_instance_is_an_error() -> None:
    value = plan_submission(call(), context=[{"type": "text", "_instance": "①"}])
    value["context"][1]["_instance"] = "①"
    (problem,) = problems(value)
    assert str(problem) == "/context/1/_instance: a plan runs once for each instance: leave _instance out"
    value["solution"] = {"calls": []}
    assert pointers(problems(value)) == ["/context/1/_instance"]
    value["context"][1]["_instance"] = None
    assert check_submission(value).size == 0
