"""The state of a loop, its limits, and what an output comes to (SPEC R13.1, R13.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acts_celery import Cost
from acts_celery.protocol.engine.costs import Estimate
from acts_celery.protocol.engine.loop import (
    TRANSITIONS,
    Answered,
    Asked,
    BrokenLog,
    Loop,
    LoopEnded,
    LoopExtended,
    LoopLimits,
    Stage,
    TickClosed,
    TickError,
)
from acts_celery.protocol.engine.outcomes import judge_output
from acts_celery.protocol.state.fold import Fold

SOLUTION = {"type": "solution", "solution": {"calls": [], "output": None}}


ASKED = Asked((), {}, 100, "digest")
FAILED = LoopEnded("failed", "a limit", None)


def answered(*, charged: int = 0, runs: int = 0) -> Answered:
    return Answered(SOLUTION, 0, runs, (), {"tokens": charged})


def ran(loop: Loop, *, charged: int = 0, runs: int = 0) -> Loop:
    """The loop with one more tick that is over."""
    return loop.apply(ASKED).apply(answered(charged=charged, runs=runs)).apply(TickClosed(0, None))


def test_r13_3_the_defaults_are_eight_ticks_and_two_hundred_calls() -> None:
    limits = LoopLimits.of({})
    assert (limits.ticks, limits.calls, limits.tokens, limits.seconds) == (8, 200, None, None)


def test_r4_2a_a_config_can_only_tighten_what_an_operator_has_set() -> None:
    most = {"ticks": 5, "calls": None, "tokens": 1_000, "seconds": 60}
    limits = LoopLimits.of({"ticks": 3, "calls": 10, "tokens": 2_000}, most)
    assert (limits.ticks, limits.calls, limits.tokens, limits.seconds) == (3, 10, 1_000, 60)


def test_r13_1_a_loop_goes_from_stage_to_stage() -> None:
    loop = Loop()
    assert loop.name == "new:0"
    loop = loop.apply(ASKED)
    assert loop.name == "asked:0"
    loop = loop.apply(answered(charged=90, runs=2))
    assert (loop.name, loop.spent, loop.calls) == ("ran:0", 90, 2)
    loop = loop.apply(TickClosed(1, None))
    assert (loop.name, loop.ticks[0].errors) == ("new:1", 1)
    loop = loop.apply(FAILED)
    assert (loop.name, loop.ended) == ("ended:1", FAILED)


def test_r13_1_an_event_that_cannot_come_next_breaks_the_log() -> None:
    with pytest.raises(BrokenLog, match=r"Asked follows where it is asked:0"):
        Loop().apply(ASKED).apply(ASKED)
    with pytest.raises(BrokenLog, match=r"Asked follows where it is ended:0"):
        Loop().apply(FAILED).apply(ASKED)


def test_r13_3_a_tick_beyond_the_limit_is_not_asked() -> None:
    limits, loop = LoopLimits(ticks=2), ran(ran(Loop()))
    limit = limits.tick_limit(loop)
    assert limit is not None
    assert "2 ticks (config.ticks)" in limit
    loop = loop.apply(FAILED).apply(LoopExtended(1))
    assert (loop.stage, limits.tick_limit(loop)) == (Stage.NEW, None)
    assert limits.tick_limit(ran(loop)) is not None


def test_r13_3_no_request_begins_whose_estimate_does_not_fit_what_is_left() -> None:
    limits = LoopLimits(tokens=10_000)
    loop = ran(Loop(), charged=6_000)
    assert limits.request_limit(loop, Estimate(4_000)) is None
    assert limits.request_limit(loop, Estimate(4_001)) is not None


def test_r13_3_an_attempt_whose_answer_was_lost_is_charged_whole() -> None:
    limits = LoopLimits(tokens=10_000)
    assert limits.request_limit(Loop(), Estimate(4_000), losses=1) is None
    assert limits.request_limit(Loop(), Estimate(4_000), losses=2) is not None
    assert Cost.of_request({"input": 10, "output": 5}, Estimate(4_000), losses=1) == Cost(
        2, 4_015, 4_000, 10, 5, unpriced=2
    )


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"input": 5},
        {"input": None, "output": 3},
        {"input": -9, "output": 3},
        {"input": 10**30, "output": 3},
        {"input": True, "output": 3},
        {"input": float("nan"), "output": 3},
        {"input": "5", "output": "3"},
        {"input": 5, "output": 3, "cached": -1},
        "much",
    ],
)
def test_r13_3_unknown_usage_is_charged_whole(usage: Any) -> None:
    assert Cost.of_request(usage, Estimate(4_000)) == Cost(1, 4_000, 4_000, unpriced=1)


def test_r13_3_of_usage_that_is_not_whole_the_input_counts_and_the_most_output() -> None:
    usage, estimate = {"input": 100, "output": 7, "cached": 90, "is_whole": False}, Estimate(4_000, 40, 1_000)
    assert Cost.of_request(usage, estimate, amount=9) == Cost(1, 1_100, 993, 100, 7, 90, 9)
    assert Cost.of_request(usage, estimate, losses=1, amount=9) == Cost(2, 5_100, 4_993, 100, 7, 90, 49)
    unknown = Estimate(4_000)  # of a version that did not note how many of the tokens are of the answer
    assert Cost.of_request(usage, unknown) == Cost(1, 4_000, 4_000, unpriced=1)
    assert Cost.of_request({**usage, "output": 2_000}, estimate).tokens == 2_100


def test_r13_3_what_is_billed_beyond_the_limit_ends_the_run() -> None:
    limits = LoopLimits(tokens=100)
    assert limits.spending_limit(Loop(), Cost(1, 100)) is None
    limit = limits.spending_limit(Loop(), Cost(1, 101))
    assert limit is not None
    assert "101 tokens were billed" in limit


def test_r13_3_a_solution_that_would_pass_the_calls_starts_none() -> None:
    limits, loop = LoopLimits(calls=3), ran(Loop(), runs=2)
    assert limits.call_limit(loop, 1) is None
    assert limits.call_limit(loop, 2) is not None


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.ENDED])
def test_r13_3_a_loop_that_has_reached_a_limit_goes_on_from_where_it_was(stage: Stage) -> None:
    loop = replace(ran(Loop()), stage=stage)
    ended = loop.apply(FAILED)
    assert ended.stage is Stage.ENDED
    extended = ended.apply(LoopExtended(4))
    assert (extended.name, extended.added_ticks) == (f"{stage}:1", 4)
    assert extended.stage is loop.apply(LoopExtended(4)).stage


def test_r13_1_every_stage_has_its_transitions() -> None:
    assert TRANSITIONS.keys() == set(Stage)


def values(**state: Any) -> Fold:
    fold = Fold()
    fold.append({"type": "state", "state": state}, "message 0")
    return fold


def test_r13_1_an_output_is_accepted_that_can_be_read_and_fits_its_schema() -> None:
    verdict = judge_output({"n": "†state.n"}, {"type": "object"}, values(n=1), ())
    assert (verdict.is_accepted, verdict.output) == (True, {"n": 1})


def test_r13_1_null_is_no_output_though_the_schema_admits_it() -> None:
    verdict = judge_output(None, {"type": ["integer", "null"]}, values(), ())
    assert not verdict.is_accepted
    assert verdict.errors == ()


@pytest.mark.parametrize(
    ("output", "pointer"), [("†state.missing", "/output"), ("†state.text", "/output"), ({"a": "b"}, "/output")]
)
def test_r13_1_an_output_that_cannot_be_read_or_does_not_fit_is_set_aside(output: Any, pointer: str) -> None:
    verdict = judge_output(output, {"type": "integer"}, values(text="three"), ())
    assert not verdict.is_accepted
    assert verdict.set_aside
    assert [error.pointer for error in verdict.errors] == [pointer]


@pytest.mark.parametrize("pointer", ["/calls/0", "/output", ""])
def test_r13_1_an_output_is_set_aside_where_its_tick_has_an_error(pointer: str) -> None:
    verdict = judge_output(1, {"type": "integer"}, values(), [TickError("ValueError", "no", pointer)])
    assert not verdict.is_accepted
    assert verdict.set_aside
