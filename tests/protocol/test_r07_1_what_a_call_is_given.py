"""SPEC R7.1: what one call is given is bounded, and measured before it is copied."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest

from acts_celery.protocol import Limits, Rejected
from acts_celery.protocol.engine.events import Decision, Outcome, Start
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.plan.submission import decode
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.templates import as_text

from .building import DATE, call, checked

MANY = {f"p{number}": "†data.big" for number in range(200)}


def decided(value: Any, limits: Limits, **properties: Any) -> Decision:
    """What is decided about a call where `†data.big` is the value."""
    context = [{"type": "data", "data": {"big": value, "small": 1}}]
    plan = checked(call(to="†state.a", **properties), context=context)
    fold = Fold()
    for number, message in enumerate(plan.submission.context):
        fold.append(message, f"message {number}")
    (decision,) = Execution.of(plan, plan.lanes[None], fold, limits=limits).decide(DATE)
    return decision


def refusal(decision: Decision) -> tuple[str, str]:
    assert isinstance(decision, Outcome)
    assert decision.error is not None
    return decision.error["type"], decision.error["message"]


@pytest.mark.parametrize("properties", [MANY, {"list": [*MANY.values()]}, {"_scopes": ["data"] * 200}])
def test_a_large_value_read_many_times_is_refused(properties: dict[str, Any]) -> None:
    limits = Limits(call_bytes=100_000)
    assert refusal(decided("x" * 1_000, limits, **properties)) == (
        "TooLarge",
        "it is given more than 100000 bytes (ACTS_LIMIT_CALL_BYTES)",
    )
    assert isinstance(decided("x" * 100, limits, **properties), Start)


@pytest.mark.parametrize("properties", [MANY, {"_scopes": ["data"] * 200}])
def test_objects_and_lists_are_counted_whatever_their_bytes(properties: dict[str, Any]) -> None:
    limits = Limits(containers=10_000)
    type_, message = refusal(decided([[]] * 1_000, limits, **properties))
    assert (type_, "more than 10000 objects and lists" in message) == ("TooLarge", True)
    assert isinstance(decided([0] * 1_000, limits, **properties), Start)
    assert isinstance(decided([[]] * 40, limits, **properties), Start)


@pytest.mark.parametrize("value", ["x" * 400, [None] * 90, {"é": [True] * 90}])
def test_what_a_template_comes_to_is_measured_as_it_is_written_out(value: Any) -> None:
    text = as_text(value)
    limits = Limits(call_bytes=2 * len(text.encode()) + 10)
    twice = decided(value, limits, p="†{data.big}: †{data.big}")
    assert isinstance(twice, Start)
    assert twice.parameters == {"p": f"{text}: {text}"}
    refused = decided(value, limits, p="†{data.big}", q=["†{data.big} †{data.big}"])
    assert refusal(refused) == ("TooLarge", f"it is given more than {limits.call_bytes} bytes (ACTS_LIMIT_CALL_BYTES)")


@pytest.mark.nightly
def test_nothing_is_copied_before_it_is_measured() -> None:
    limits = Limits(call_bytes=1_000_000)
    value = [[0]] * 100_000
    tracemalloc.start()
    try:
        assert refusal(decided(value, limits, **MANY))[0] == "TooLarge"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    one = 100_000 * 72
    assert peak < 10 * one, f"{peak} bytes, where 200 copies have {200 * one}"


@pytest.mark.parametrize("make", [msgpack.packb, lambda value: repr(value).encode()], ids=["msgpack", "json"])
def test_the_objects_and_lists_of_a_submission_are_counted_before_they_are_made(make: Any) -> None:
    limits = Limits(containers=1_000, submission_bytes=16_000)
    just, beyond = make({"context": [[]] * 1_998}), make({"context": [[]] * 1_999})
    with_brackets = make({"context": ["[{" * 1_000]}).replace(b"'", b'"')
    assert decode(just.replace(b"'", b'"'), limits) == {"context": [[]] * 1_998}
    assert decode(with_brackets, limits) == {"context": ["[{" * 1_000]}
    with pytest.raises(Rejected, match="more than 2000 objects and lists"):
        decode(beyond.replace(b"'", b'"'), limits)
