"""The loop (SPEC R13), what people decide (R14), and contracts (R17)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery import Cost
from acts_celery.protocol import Context, check_submission
from acts_celery.protocol.calls.call import read_approvals
from acts_celery.protocol.calls.declarations import CONTRACT_CHANGED, SEVERAL, Contract, merged
from acts_celery.protocol.calls.tools import GRANTED
from acts_celery.protocol.engine.costs import Estimate
from acts_celery.protocol.engine.events import (
    CallDecided,
    CallHeld,
    Decision,
    Failure,
    FanOut,
    FanOutBegun,
    Hold,
    Outcome,
    Ruling,
    Start,
    Status,
    Verdict,
    narrowed,
    scope_problems,
)
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.engine.loop import (
    TRANSITIONS,
    Answered,
    BrokenLog,
    Loop,
    LoopEnded,
    LoopExtended,
    LoopLimits,
    RequestRecorded,
    Stage,
    TickClosed,
    TickError,
)
from acts_celery.protocol.engine.outcomes import judge_output
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.scopes import read_scope, scoped

from .building import DATE, call, checked, pointers, problems, submission

# The state of a loop, its limits, and what an output comes to (SPEC R13.1, R13.3).

SOLUTION = {"type": "solution", "solution": {"calls": [], "output": None}}


ASKED = RequestRecorded((), {}, 100, "digest")
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
    with pytest.raises(BrokenLog, match=r"RequestRecorded follows where it is asked:0"):
        Loop().apply(ASKED).apply(ASKED)
    with pytest.raises(BrokenLog, match=r"RequestRecorded follows where it is ended:0"):
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


def test_r12_5_an_output_that_comes_before_the_state_is_filled_is_set_aside_and_names_the_places() -> None:
    verdict = judge_output(1, {"type": "integer"}, values(), (), lambda: ["†state.language (detectLanguage)"])
    assert not verdict.is_accepted
    (error,) = verdict.errors
    assert (error.type, error.pointer) == ("Unfilled", "/output")
    assert "†state.language (detectLanguage)" in (verdict.set_aside or "")
    assert judge_output(1, {"type": "integer"}, values(), (), list).is_accepted


@pytest.mark.parametrize("pointer", ["/calls/0", "/output", ""])
def test_r13_1_an_output_is_set_aside_where_its_tick_has_an_error(pointer: str) -> None:
    verdict = judge_output(1, {"type": "integer"}, values(), [TickError("ValueError", "no", pointer)])
    assert not verdict.is_accepted
    assert verdict.set_aside


# SPEC R14: which calls a person decides on, and what a decision means to the engine.

STATE = {"type": "state", "user": {"name": "Ann", "age": 5}, "other": 1}
READING = {
    "tool": call("pay", to="†data.a"),
    "code": call("other", to="†data.a", _activity="pay"),
    "below": call(value="†state.user.name", to="†data.a"),
    "above": call(value={"deep": ["†state"]}, to="†data.a"),
    "fallback": call(value="†data.none || †state.user", to="†data.a"),
    "scope": call(_scopes=["state"], to="†data.a"),
    "slice": call(_scopes=["†state.user.age"], to="†data.a"),
    "registered": call("ask", _delegate="elsewhere", to="†data.a"),
    "beside": call(value="†state.other", _scopes=["†state.other"], to="†data.a"),
}


def held(approve: list[str], *names: str, **parts: Any) -> list[str]:
    plan = checked(*map(READING.__getitem__, names or READING), context=[STATE], config={"approve": approve}, **parts)
    return [list(names or READING)[index] for index in plan.held]


def execution(*calls: Any, approve: list[str], **parts: Any) -> tuple[Execution, Fold]:
    """An execution of the global lane, and its fold."""
    plan = checked(*calls, config={"approve": approve}, **parts)
    fold = plan.context.fold()
    lane, approvals = plan.lanes[None], read_approvals(plan.submission.config)
    return Execution.of(plan, lane, fold, approvals=approvals), fold


def only_hold(one: Execution) -> Hold:
    (hold,) = one.decide(DATE)
    assert isinstance(hold, Hold)
    one.apply(CallHeld(hold.call.index, hold.snapshot))
    assert one.decide(DATE) == []
    return hold


def ruled(one: Execution, ruling: Ruling, index: int = 0) -> Decision:
    one.apply(CallDecided(index, ruling))
    (decision,) = one.decide(DATE)
    return decision


def test_r14_1_a_name_holds_for_the_tool_and_for_the_code_that_runs_a_call() -> None:
    assert held(["pay"]) == ["tool", "code"]


def test_r14_1_a_reference_holds_for_parameters_and_scopes_that_overlap_it() -> None:
    assert held(["†state.user"]) == ["below", "above", "fallback", "scope", "slice"]
    assert held(["†state.user.age"]) == ["above", "fallback", "scope", "slice"]
    assert held(["†state"]) == ["below", "above", "fallback", "scope", "slice", "beside"]
    assert held([]) == []


def test_r14_1_a_star_holds_for_all_but_passing_thoughts() -> None:
    assert held(["*"]) == list(READING)
    tools: dict[str, Any] = {"think": {"_output": {}}}
    value = submission(call("think"), call("think", to="†state.a", _output=1), config={"approve": ["*"]}, tools=tools)
    assert check_submission(value, activities={}).held == (1,)


def test_r14_1_a_name_that_no_tool_has_is_an_error_that_names_the_nearest() -> None:
    found = problems(submission(call("transfer"), config={"approve": ["*", "†state.x", "trasnfer"]}))
    assert pointers(found) == ["/config/approve/2"]
    assert found[0].message == "unknown tool 'trasnfer': no call would be held for it, did you mean 'transfer'?"
    known = {"context": [{"type": "tool", "tool": {"later": {"type": "object"}}}], "config": {"approve": ["later"]}}
    check_submission({**submission(call("transfer")), **known})


def test_r14_2_a_call_is_held_when_it_is_ready_with_what_it_reads_then() -> None:
    one, fold = execution(
        call(to="†state.a"), call(value="†state.a", _scopes=["state"], to="†state.b"), approve=["†state.a"]
    )
    (start,) = one.decide(DATE)
    assert type(start) is Start
    fold.append({"type": "state", "a": 1}, "result")
    one.record(0, Status.DONE)
    hold = only_hold(one)
    assert (hold.snapshot.parameters, hold.snapshot.scopes) == ({"value": 1}, {"state": {"a": 1}})
    assert (one.status(1), one.is_finished) == (Status.HELD, False)
    fold.append({"type": "state", "a": 2}, "sent")
    approved = ruled(one, Ruling(Verdict.APPROVED), 1)
    assert isinstance(approved, Start)
    assert (approved.parameters, one.scoped(approved.call)) == ({"value": 1}, {"state": {"a": 1}})


def test_r14_2_a_delegate_is_given_the_messages_that_were_shown() -> None:
    context = [{"type": "text", "text": "hello"}, {"type": "state", "a": 1, "schema": {"type": "object"}}]
    asking = call(_delegate="d", _scopes=["state", "text"], to="†data.b")
    one, fold = execution(asking, approve=["*"], context=context)
    hold = only_hold(one)
    fold.append({"type": "state", "a": 2}, "sent")
    approved = ruled(one, Ruling(Verdict.APPROVED))
    assert isinstance(approved, Start)
    assert one.scoped_messages(approved.call) == list(hold.snapshot.messages) == context


def test_r14_2_parameters_that_were_changed_are_validated_before_the_call_begins() -> None:
    tools = {"give": {"properties": {"n": {"type": "integer"}}}}
    for changed, expected in (({"n": 2}, Start), ({"n": "two"}, Outcome)):
        one, _ = execution(call(n=1, to="†state.a"), approve=["give"], tools=tools)
        only_hold(one)
        decision = ruled(one, Ruling(Verdict.APPROVED, changed))
        assert type(decision) is expected
        if isinstance(decision, Outcome):
            assert decision.error is not None
            assert decision.error["type"] == "InvalidParameters"


def test_r2_6_parameters_that_a_person_gives_are_no_templates_and_those_shown_are_resolved() -> None:
    given = {"n": "†{state.user.name}", "list": ["†state.user", "††"]}
    one, _ = execution(call(n="Dear †{state.user.name}", to="†state.a"), approve=["†state.user"], context=[STATE])
    assert only_hold(one).snapshot.parameters == {"n": "Dear Ann"}
    decision = ruled(one, Ruling(Verdict.APPROVED, given))
    assert isinstance(decision, Start)
    assert decision.parameters == given


def test_r14_1_parameters_that_the_tool_refuses_are_shown_to_no_person() -> None:
    tools = {"give": {"properties": {"n": {"type": "integer"}}}}
    one, _ = execution(
        call(n="†state.n", to="†state.a"), approve=["*"], tools=tools, context=[{"type": "state", "n": "x"}]
    )
    (outcome,) = one.decide(DATE)
    assert isinstance(outcome, Outcome)


@pytest.mark.parametrize(
    ("path", "status"), [("†state.a", Status.FAILED), ("†state.a || †state.b", Status.DONE), (None, Status.FAILED)]
)
def test_r14_2_a_rejection_goes_where_an_exception_would(path: str | None, status: Status) -> None:
    one, _ = execution(call(to=path), approve=["*"])
    only_hold(one)
    outcome = ruled(one, Ruling(Verdict.REJECTED, reason="no"))
    assert isinstance(outcome, Outcome)
    assert outcome.status is status
    error = {"type": "Rejected", "message": "no"}
    written = outcome.messages[0]["data"]
    assert (written["error"] if status is Status.FAILED else written) == (
        error if status is Status.FAILED else {"b": error}
    )


def test_r14_2_a_result_that_a_model_wrote_is_appended_when_it_is_approved() -> None:
    tools = {"judge": {"_output": {"type": "integer"}}}
    value = submission(call("judge", to="†state.a", _output=3), config={"approve": ["judge"]}, tools=tools)
    plan = check_submission(value, activities={})
    lane, approvals = plan.lanes[None], read_approvals(plan.submission.config)
    one = Execution.of(plan, lane, plan.context.fold(), approvals=approvals)
    only_hold(one)
    outcome = ruled(one, Ruling(Verdict.APPROVED))
    assert isinstance(outcome, Outcome)
    assert outcome.messages[0]["data"] == {"a": 3}


def test_r14_2_what_the_log_says_again_or_too_late_changes_nothing() -> None:
    one, _ = execution(call(to="†state.a"), approve=["*"])
    one.apply(CallDecided(0, Ruling(Verdict.APPROVED)))
    hold = only_hold(one)
    one.apply(CallDecided(0, Ruling(Verdict.APPROVED)))
    one.apply(CallDecided(0, Ruling(Verdict.REJECTED, reason="late")))
    (start,) = one.decide(DATE)
    assert type(start) is Start
    one.record(0, Status.RUNNING)
    one.record(0, Status.DONE)
    one.apply(CallHeld(0, hold.snapshot))
    assert one.status(0) is Status.DONE


def test_r14_1_the_tools_of_delegates_may_be_named_too() -> None:
    asking = call(_delegate="d", to="†state.a")
    definition = {"tools": ["first", {"second": {}}], "context": [{"type": "tool", "tool": {"third": {}}}]}
    for name in ("first", "second", "third"):
        check_submission(submission(asking, config={"approve": [name]}, delegates={"d": definition}))
    wrong = submission(asking, config={"approve": ["fourth"]}, delegates={"d": definition})
    assert pointers(problems(wrong)) == ["/config/approve/0"]
    assert held(["whatever a registered delegate declares"], "registered") == []


def test_r14_2_a_call_that_is_held_anew_waits_for_another_decision() -> None:
    one, _ = execution(call("pay", to="†state.a"), approve=["pay"])
    hold = only_hold(one)
    one.apply(CallDecided(0, Ruling(Verdict.REJECTED, reason="no")))
    one.apply(CallHeld(0, hold.snapshot))
    assert one.decide(DATE) == []
    assert isinstance(ruled(one, Ruling(Verdict.APPROVED)), Start)


# SPEC R14.2: whoever approves a held call may narrow its scopes; what was shown is what runs, and less of it.

USER = {"name": "Ann", "age": 5, "letters": ["a", "b"]}
CONTEXT: list[Any] = [
    {"type": "system", "message": "be brief"},
    {"type": "text", "text": "hello"},
    {"type": "state", "user": USER, "other": 1, "schema": {"type": "object"}},
    {"type": "input", "n": 2},
]


def held_narrower_scopes(*scopes: str, **how: Any) -> tuple[Any, Any]:
    one, fold = execution(call(_scopes=list(scopes), to="†data.b", **how), approve=["*"], context=CONTEXT)
    return one, fold


def test_what_runs_is_the_part_of_what_was_shown() -> None:
    one, fold = held_narrower_scopes("state", "input")
    only_hold(one)
    fold.append({"type": "state", "user": {"name": "Bob"}}, "sent")
    approved = ruled(one, Ruling(Verdict.APPROVED, scopes=("†state.user.name",)))
    assert isinstance(approved, Start)
    assert one.scoped(approved.call) == {"state": {"user": {"name": "Ann"}}}


def test_a_delegate_gets_the_messages_of_what_is_left() -> None:
    for scopes, expected in (
        (("†state", "†text"), [CONTEXT[1], CONTEXT[2]]),
        (("†state.user.letters.1", "†system"), [CONTEXT[0], {"type": "state", "user": {"letters": {"1": "b"}}}]),
        ((), []),
    ):
        one, _ = held_narrower_scopes("state", "text", "system", "input", _delegate="d")
        only_hold(one)
        approved = ruled(one, Ruling(Verdict.APPROVED, scopes=scopes))
        assert isinstance(approved, Start)
        assert one.scoped_messages(approved.call) == expected


@pytest.mark.parametrize(
    ("given", "pointer", "text"),
    [
        ("state", "", "must be a list"),
        (["†state.user", "data"], "/1", "†data is wider than the scopes of the call, which are †state.user, †input"),
        (["state"], "/0", "†state is wider"),
        (["†state.user.nmae"], "/0", "†state.user.nmae is not in what was shown: see `acts held`"),
        (["†state.user || †input"], "/0", "a kind or one reference"),
        ([3], "/0", "must be a kind"),
    ],
)
def test_scopes_that_are_no_narrower_ones_are_refused(given: Any, pointer: str, text: str) -> None:
    one, _ = held_narrower_scopes("†state.user", "input")
    hold = only_hold(one)
    (problem,) = scope_problems(given, hold.call, hold.snapshot)
    assert problem.pointer == pointer
    assert text in problem.message


def test_the_scopes_of_a_call_are_narrow_enough_whatever_is_there() -> None:
    one, _ = held_narrower_scopes("†state.user", "†state.none", "data", "text")
    hold = only_hold(one)
    assert not list(scope_problems(["†state.none", "data", "text"], hold.call, hold.snapshot))
    assert narrowed(hold.snapshot, hold.call, ["†state.none", "data"]).scopes == {}


def test_a_gather_call_is_given_a_kind_whole_or_not_at_all() -> None:
    context = [{"type": "state", "_instance": "①", "a": 1, "b": 2}, {"type": "input", "n": 1}]
    gathering = call(_gather=True, _scopes=["†state.a", "†state.b", "input"], to="†data.x")
    plan = checked(gathering, context=context, config={"approve": ["*"]})
    (one,) = plan.lanes[None].calls
    from acts_celery.protocol.engine.events import Snapshot

    shown = Snapshot({}, {"state": {"①": {"a": 1, "b": 2}}, "input": {"n": 1}})
    assert not list(scope_problems(["†state.a", "†state.b"], one, shown))
    assert narrowed(shown, one, ["†state.a", "†state.b"]).scopes == {"state": {"①": {"a": 1, "b": 2}}}
    (problem,) = scope_problems(["†state.a"], one, shown)
    assert "or nothing of it" in problem.message


PLACES = ["†state", "†state.user", "†state.user.name", "†state.user.letters.0", "†state.other", "†input", "†input.n"]


@given(st.lists(st.sampled_from(PLACES), unique=True), st.lists(st.sampled_from(PLACES), unique=True))
def test_what_is_narrowed_equals_what_the_narrower_scopes_would_have_been_shown(
    own: list[str], less: list[str]
) -> None:
    one, fold = held_narrower_scopes(*own)
    hold = only_hold(one)
    if list(scope_problems(less, hold.call, hold.snapshot)):
        return
    assert narrowed(hold.snapshot, hold.call, less).scopes == scoped(fold, [read_scope(text) for text in less])


# What a contract has against a call that was checked under another one (SPEC R17).

Json = dict[str, Any]


def contract(required: tuple[str, ...] = (), scopes: tuple[str, ...] = (), **parameters: Json) -> Contract:
    granted = {"_scopes": {"type": "array", "items": {"enum": [*scopes]}, GRANTED: [*scopes]}} if scopes else {}
    properties = {**parameters, **granted}
    schema: Json = {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}
    return Contract("pay", schema)


INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
OLD = contract(("n",), n=INTEGER)


def told(new: Contract, call: Json, old: Contract = OLD) -> list[str]:
    return [str(problem) for problem in new.problems(call, old.mark)]


def test_the_contract_that_a_call_was_checked_under_admits_it_unseen() -> None:
    assert told(contract(("n",), n=INTEGER), {"n": "whatever"}) == []


def test_a_contract_that_admits_more_admits_a_call_and_one_that_does_not_says_why_without_the_value() -> None:
    assert told(contract(("n",), n={}, note=TEXT), {"n": 1, "_outputPath": "†state.a", "_tool": "p"}) == []
    (narrower,) = told(contract(("n",), n={"type": "integer", "maximum": 10}), {"n": 123_456})
    assert "/n" in narrower
    assert "123456" not in narrower
    (gone,) = told(contract(m=INTEGER), {"n": 1})
    assert "n" in gone
    (missing,) = told(contract(("n", "m"), n=INTEGER, m=INTEGER), {"n": 1})
    assert "m" in missing


def test_scopes_that_the_code_asks_for_newly_are_given_or_the_call_waits() -> None:
    new = contract(("n",), n=INTEGER, scopes=("state",))
    assert told(new, {"n": 1}) == ["/_scopes: the code asks for state, which it is not given"]
    assert told(new, {"n": 1, "_scopes": ["†state.user"]}) == []
    (more,) = told(new, {"n": 1, "_scopes": ["state", "input"]})
    assert "_scopes" in more
    before = contract(n=INTEGER, scopes=("state",))
    assert told(new, {"n": 1, "_scopes": []}, before) == [], "a declaration had narrowed them before, too"


def test_calls_that_were_checked_under_several_contracts_are_held_against_each() -> None:
    other = contract(n=TEXT)
    marks = merged({"pay": OLD.mark, "ask": "x"}, {"pay": other.mark, "ask": "x"})
    assert marks == {"pay": SEVERAL, "ask": "x"}
    assert OLD.problems({"n": "1"}, SEVERAL)
    assert other.problems({"n": "1"}, SEVERAL) == []


def test_a_changed_contract_goes_to_no_alternative_of_a_call_or_of_its_elements() -> None:
    gone = Failure(CONTRACT_CHANGED, "x", is_for_no_alternative=True)
    context: list[Json] = [{"type": "state", "n": [1, 2], "m": 1}]
    plan = checked(
        call("pay", "†state.a || †state.b", n="†state.m"),
        call("pay", "†state.a || †state.b", n="†state.n", _each="n"),
        context=context,
    )
    execution = Execution.of(plan, plan.lanes[None], Context(context).fold(None))
    start, spread = execution.decide(DATE)
    assert isinstance(start, Start)
    assert isinstance(spread, FanOut)
    assert execution.finish(0, gone, DATE).status is Status.FAILED
    assert execution.finish(0, replace(gone, is_for_no_alternative=False), DATE).is_rescued
    execution.apply(FanOutBegun(1, spread.snapshot))
    for element in execution.decide(DATE):
        assert isinstance(element, Start)
        for event in execution.finish(element.call.index, gone, DATE).events:
            execution.apply(event)
    (outcome,) = execution.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert (outcome.status, (outcome.error or {})["type"]) == (Status.FAILED, CONTRACT_CHANGED)
