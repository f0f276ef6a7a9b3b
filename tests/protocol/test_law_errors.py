"""Laws of errors that are read (SPEC R3.1): who reads `error` waits for the calls of its instance listed before it."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from acts_celery.protocol import Rejected, check_submission

from . import naive
from .driver import Driver
from .laws import law
from .strategies import INSTANCES, SCHEMAS, TOOLS
from .test_against_naive import FUNCTIONS, compared, fault

_TELLING = (
    "†error",
    "†error.call._tool",
    "†error || {}",
    "{} || †error.call",
    "†error && {}",
    "{} && †error || †input.p",
    "so: †{{error.call._tool}}",
)


@st.composite
def told(draw: st.DrawFn) -> dict[str, Any]:
    """A submission whose calls fail now and then, and in which others read errors; most are ordered."""
    instances = draw(st.sampled_from([(), INSTANCES[:1], INSTANCES]))
    is_plan = draw(st.booleans())
    context: list[dict[str, Any]] = [{"type": "input", "p": 1, "items": [1, "x"]}]
    context += [{"type": "state", "_instance": name, "own": name} for name in instances]
    if draw(st.sampled_from([False, False, False, True])):
        context.append({"type": "error", "data": {"call": {"_tool": "earlier"}}})
    calls: list[dict[str, Any]] = []
    for index in range(draw(st.integers(2, 7))):
        before = draw(st.sampled_from([*range(max(0, index - 2), index)] or [None]))
        ordered = "†input.p" if before is None else f"†state.k{before} || †input.p"
        plain = "†input.p" if before is None else f"†state.k{before}"
        value = draw(st.sampled_from([ordered, ordered, plain, "tells" if index else ordered]))
        if value == "tells":
            value = draw(st.sampled_from(_TELLING)).format(plain)
        call: dict[str, Any] = {"_tool": draw(st.sampled_from(["give", "give", "fail", "number", "pick"]))}
        call["value"] = value
        call["_outputPath"] = draw(st.sampled_from(["†state.k{0}", "†state.k{0}", "†state.k{0} || †data.k{0}"]))
        call["_outputPath"] = call["_outputPath"].format(index)
        if call["_tool"] == "pick":
            call["where"] = f"††state.k{index}"
        elif draw(st.sampled_from([False, False, False, True])):
            call |= {"_tool": "see", "_scopes": [draw(st.sampled_from(["†error.call._tool", "†state.k0"]))]}
        if draw(st.sampled_from([False, False, False, False, True])):
            call |= {"_tool": "number", "value": "†input.items", "other": value, "_each": "value"}
        if not is_plan and instances:
            where = draw(st.sampled_from(["", *instances, "*", instances[0], instances[0]]))
            call |= {"_instance": where} if where else {}
        calls.append(call)
    if is_plan:
        return {"context": [*context, {"type": "plan", "calls": calls}], "tools": SCHEMAS}
    return {"context": context, "solution": {"calls": calls}, "tools": SCHEMAS}


def first_reader(submission: dict[str, Any]) -> int | None:
    """The first call that reads errors, if any does."""
    return min((index for _, index in error_readers(submission)), default=None)


def error_readers(submission: dict[str, Any]) -> list[tuple[str | None, int]]:
    """The calls that read errors, each with its lane."""
    lanes = naive.World(submission, {}).lanes().items()
    calls = ((lane, index, call) for lane, own in lanes for index, call in own.items())
    return [(lane, index) for lane, index, call in calls if any(at[0] == "error" for at in naive.places_seen(call))]


@law
@given(told().filter(lambda submission: first_reader(submission) is not None), st.integers(0, 2**32))
def test_r3_1_errors_are_read_as_the_naive_evaluator_says_in_any_order(submission: dict[str, Any], seed: int) -> None:
    found, plan = set[str](), None
    try:
        plan = check_submission(submission)
    except Rejected as rejected:
        found = {fault(problem.message) for problem in rejected.errors}
    assert found - {"schema"} == naive.faults(submission)
    if plan is None:
        return
    assume(naive.is_deterministic(submission))
    verdict = naive.evaluate(submission, TOOLS)
    compared(verdict, Driver(plan, FUNCTIONS).run())
    compared(verdict, Driver(plan, FUNCTIONS, random=Random(seed)).run())
