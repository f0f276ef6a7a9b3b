"""SPEC R14: which calls a person decides on, and what a decision means to the engine."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import check_submission
from acts_celery.protocol.calls.call import read_approvals
from acts_celery.protocol.engine.events import (
    CallDecided,
    CallHeld,
    Decision,
    Hold,
    Outcome,
    Ruling,
    Start,
    Status,
    Verdict,
)
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.state.fold import Fold

from .building import DATE, call, checked, pointers, problems, submission

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
    for given, expected in (({"n": 2}, Start), ({"n": "two"}, Outcome)):
        one, _ = execution(call(n=1, to="†state.a"), approve=["give"], tools=tools)
        only_hold(one)
        decision = ruled(one, Ruling(Verdict.APPROVED, given))
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
