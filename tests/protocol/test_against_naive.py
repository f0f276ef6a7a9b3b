"""Whole submissions, run in random order with duplicates and losses, against the naive evaluator."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Output, Rejected, check_submission
from acts_celery.protocol.calls.call import element_of
from acts_celery.protocol.templates import as_text

from . import naive
from .building import without_errors
from .driver import Driver, Function, Result
from .strategies import INSTANCES, SCHEMAS, TOOLS, submissions


def adapted(function: naive.Function) -> Function:
    """The function as the core knows them."""

    def call(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        result = function(parameters, context)
        return Output(result.path, result.value) if isinstance(result, naive.To) else result

    return call


_ERROR = '{"call":'
FUNCTIONS = {name: adapted(function) for name, function in TOOLS.items()}


def compared(verdict: naive.Verdict, result: Result) -> None:
    """Statuses and values must be the same."""
    statuses = {
        lane: {index: status.value for index, status in calls.items()} for lane, calls in result.statuses.items()
    }
    assert statuses == {lane: calls for lane, calls in verdict.statuses.items() if lane in statuses}
    assert not any(calls for lane, calls in verdict.statuses.items() if lane not in statuses)
    assert {reader: alike(without_errors(values)) for reader, values in result.data.items()} == {
        reader: alike(without_errors(values)) for reader, values in verdict.data.items()
    }


def alike(value: Any) -> Any:
    """The value without what the core says of a result that is refused, and in an error: the naive evaluator has no
    words for it.
    """
    if isinstance(value, dict):
        return {key: alike(item) for key, item in value.items() if key != "error" or "call" not in value}
    if isinstance(value, list):
        return [alike(item) for item in value]
    if not isinstance(value, str):
        return value
    if naive.ALL_FAILED in value:
        return naive.ALL_FAILED
    value, begin = value.partition(naive.REFUSED)[0], -1
    while (begin := value.find(_ERROR, begin + 1)) >= 0:  # an error in a text (SPEC R2.6)
        with suppress(json.JSONDecodeError):
            error, end = json.JSONDecoder().raw_decode(value, begin)
            value = value[:begin] + as_text(alike(error)) + value[end:]
    return value


@settings(max_examples=2 * settings().max_examples)
@given(submissions(), st.integers(0, 2**32))
def test_any_order_gives_what_the_naive_evaluator_gives_where_the_order_does_not_matter(
    submission: dict[str, Any], seed: int
) -> None:
    try:
        plan = check_submission(submission)
    except Rejected:
        assume(False)
        return
    assume(naive.is_deterministic(submission))
    verdict = naive.evaluate(submission, TOOLS)
    compared(verdict, Driver(plan, FUNCTIONS, random=Random(seed)).run())
    compared(verdict, Driver(plan, FUNCTIONS).run())


@given(submissions(), st.integers(0, 2**32))
def test_every_run_ends_with_every_call_ended_once(submission: dict[str, Any], seed: int) -> None:
    try:
        plan = check_submission(submission)
    except Rejected:
        return
    result = Driver(plan, FUNCTIONS, random=Random(seed)).run()
    ended = [(entry.lane, entry.outcome.index) for entry in result.log]
    assert len(ended) == len(set(ended))
    assert len([index for _, index in ended if element_of(index) is None]) == plan.size


@given(submissions())
def test_the_check_finds_the_faults_of_the_graph_that_the_naive_one_finds(submission: dict[str, Any]) -> None:
    found = set()
    try:
        check_submission(submission)
    except Rejected as rejected:
        found = {fault(problem.message) for problem in rejected.errors}
    assert found - {"schema"} == naive.faults(submission)


def fault(message: str) -> str:
    """Which of the faults that the naive evaluator knows is told; a schema where it is none of them."""
    if "unresolvable reference" in message:
        return "nothing"
    return "cycle" if "in a cycle" in message else "schema"


CASES: dict[str, dict[str, Any]] = {
    "a chain": {"calls": [
        {"_tool": "wrap", "value": 1, "_outputPath": "a"},
        {"_tool": "wrap", "value": "†state.a", "_outputPath": "b"},
        {"_tool": "give", "value": ["†state.b.k.k", "†state.a.k"], "_outputPath": "†data.c"},
    ]},
    "a branch that is joined": {"calls": [
        {"_tool": "choose", "where": "††state.no", "value": 1, "_outputPath": "yes || no"},
        {"_tool": "wrap", "value": "†state.yes", "_outputPath": "then"},
        {"_tool": "wrap", "value": "†state.no", "_outputPath": "else"},
        {"_tool": "give", "value": "†state.then || †state.else", "_outputPath": "joined"},
    ]},
    "failures and their readers": {"calls": [
        {"_tool": "fail", "_outputPath": "a"},
        {"_tool": "fail", "_outputPath": "b || c && †data.c"},
        {"_tool": "give", "value": "†state.a", "_outputPath": "d"},
        {"_tool": "give", "value": "†state.d || †state.c.message", "_outputPath": "e"},
        {"_tool": "stray", "_outputPath": "f"},
        {"_tool": "number", "value": "†state.c", "_outputPath": "g"},
    ]},
    "one path read and written again and again": {"calls": [
        {"_tool": "number", "value": "†input.p", "_outputPath": "n"},
        *[{"_tool": "number", "value": "†state.n", "_outputPath": "n"}] * 12,
    ]},
    "writers after readers": {"calls": [
        {"_tool": "give", "value": "†state.b", "_outputPath": "c"},
        {"_tool": "list", "value": "†state.a", "_outputPath": "b", "_outputMethod": "concat"},
        {"_tool": "list", "value": 1, "_outputPath": "a"},
    ]},
    "an error in one of several places": {"calls": [
        {"_tool": "give", "value": 5, "_outputPath": "n"},
        {"_tool": "list", "value": "†state.n", "_outputPath": "†data.l && n", "_outputMethod": "push"},
        {"_tool": "give", "value": ["†state.n", "††state.n"], "_outputPath": "seen"},
    ]},
    "scopes": {"calls": [
        {"_tool": "wrap", "value": {"deep": 1}, "_outputPath": "a"},
        {"_tool": "see", "_scopes": ["†state.a.k"], "_outputPath": "†data.slice"},
        {"_tool": "fail", "_outputPath": "b"},
        {"_tool": "see", "_scopes": ["state", "input"], "_outputPath": "†data.whole"},
    ]},
    "a scope wait that would close a cycle": {"calls": [
        {"_tool": "give", "value": "†data.last", "_outputPath": "first"},
        {"_tool": "give", "value": 1, "_outputPath": "†data.middle"},
        {"_tool": "give", "value": "†data.middle", "_scopes": ["state"], "_outputPath": "†data.last"},
    ]},
    "results that are refused": {"calls": [
        {"_tool": "give", "value": 1, "_outputPath": "text || number || other"},
        {"_tool": "give", "value": "†state.number", "_outputPath": "words && text || also"},
        {"_tool": "choose", "where": "††state.count", "value": "x", "_outputPath": "count || refused"},
        {"_tool": "give", "value": "†state.refused.type", "_outputPath": "total || †data.seen"},
        {"_tool": "list", "value": "†data.seen", "_outputPath": "sum"},
        {"_tool": "give", "value": "†state.also", "_outputMethod": "push", "_outputPath": "label || list"},
    ]},
    "elements": {"calls": [
        {"_tool": "give", "value": [1, "x", 3], "_outputPath": "l"},
        {"_tool": "number", "value": "†state.l", "_each": ["value"], "_outputPath": "some"},
        {"_tool": "fail", "value": "†state.l", "_each": "value", "_outputPath": "none || why"},
        {"_tool": "echo", "value": "†state.l", "other": "†state.some", "_each": ["value", "other"], "_outputPath": "z"},
        {"_tool": "give", "value": "†state.some", "_each": "value", "_outputPath": "all", "_outputMethod": "concat"},
        {"_tool": "give", "value": "†state.none || †state.why.type", "_outputPath": "read"},
        {"_tool": "give", "value": [], "_outputPath": "empty"},
        {"_tool": "fail", "value": "†state.empty", "_each": "value", "_outputPath": "nothing"},
        {"_tool": "give", "value": "†state.read", "_each": "value", "_outputPath": "never"},
        {"_tool": "choose", "value": "†state.l", "where": "††state.x", "_each": "value", "_outputPath": "y || x"},
        {"_tool": "number", "value": "†state.l", "_each": "value"},
        {"_tool": "see", "value": "†state.l", "_scopes": ["†state.some"], "_each": "value", "_outputPath": "seen"},
    ]},
    "instances": {"calls": [
        {"_tool": "give", "value": "†state.g", "_instance": name, "_outputPath": "mine"} for name in INSTANCES
    ] + [{"_tool": "wrap", "value": "†input.p", "_outputPath": "g"}]},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_known_shapes_come_out_as_the_naive_evaluator_says(name: str, seed: int) -> None:
    kept = {"text": "string", "label": "string", "number": "integer", "count": "integer", "total": "integer"}
    schema = {"properties": {key: {"type": type_} for key, type_ in {**kept, "sum": "integer"}.items()}}
    context = [
        {"type": "input", "p": 0},
        {"type": "state", "schema": schema},
        *({"type": "state", "_instance": one, "own": one} for one in INSTANCES),
    ]
    submission = {"context": context, "solution": CASES[name], "tools": SCHEMAS}
    assert naive.faults(submission) == set()
    assert naive.is_deterministic(submission)
    plan = check_submission(submission)
    compared(naive.evaluate(submission, TOOLS), Driver(plan, FUNCTIONS, random=Random(seed)).run())
    as_plan = {"context": [*context, {"type": "plan", **CASES[name]}], "tools": SCHEMAS}
    compared(naive.evaluate(as_plan, TOOLS), Driver(check_submission(as_plan), FUNCTIONS, random=Random(seed)).run())
