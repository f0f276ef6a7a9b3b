"""Who can see a value, and that a delegate's calls never see more than it was given (SPEC R8, R9.2)."""

from __future__ import annotations

import pytest

from acts_celery.protocol import Context, ExpressionError, Plan, Rejected, check_submission
from acts_celery.protocol.analysis.visibility import who_sees
from acts_celery.protocol.calls.delegates import delegate_context

from .building import ANY, call, checked, plan_submission, submission

CONTEXT = [{"type": "state", "user": {"name": "Ада", "ssn": "123"}, "other": 1}, {"type": "input", "q": 1}]
SSN = "†state.user.ssn"


def seen(plan: Plan, path: str = SSN) -> tuple[list[int], list[int]]:
    """The indexes of the calls that see a place, and of those that see what was made from it."""
    visibility = who_sees(plan, path)
    return [sight.index for sight in visibility.direct], [sight.index for sight in visibility.derived]


def test_who_reads_errors_comes_by_what_they_may_tell_of() -> None:
    plan = checked(
        call(value=SSN, to="†state.x"),
        call("see", _scopes=["error"], to="†state.y"),
        call("see", value="†error.error.message || †state.other", to="†state.z"),
        call(value=SSN),
        context=CONTEXT,
    )
    assert seen(plan) == ([0, 3], [1, 2])
    assert [sight.how for sight in who_sees(plan, SSN).derived] == [("†error of call 0",)] * 2


def test_who_puts_a_value_in_a_text_sees_it_and_what_comes_of_the_text_was_made_from_it() -> None:
    plan = checked(
        call(value="no: †{state.user.ssn} †{state.user.ssn}", to="†state.x"),
        call(value=["†{state.other && state.x}"]),
        call(value="††{state.user.ssn} †{state.other}"),
        context=CONTEXT,
    )
    assert seen(plan) == ([0], [1])
    assert [sight.how for sight in who_sees(plan, SSN).direct] == [("parameter /value",)]


ERROR = {"type": "error", "data": {"error": {"message": "none yet"}}}


def test_so_it_does_by_those_of_a_call_that_is_sent_and_forgotten() -> None:
    plan = checked(call(value=SSN), call(value="†error.error.message", to="†data.x"), context=[*CONTEXT, ERROR])
    assert seen(plan) == ([0], [1])


def test_who_reads_what_comes_of_a_written_result_comes_by_what_was_read_for_it() -> None:
    written = {"_tool": "think", "about": SSN, "_output": 1, "_outputPath": "†data.t"}
    passed_on = {"_tool": "think", "about": "†data.t", "_output": 2, "_outputPath": "†data.u"}
    readers = call(value="†data.u"), call(_scopes=["error"])
    plan = checked(written, passed_on, *readers, context=CONTEXT, activities={"give": ANY})
    assert seen(plan) == ([], [2, 3])
    assert [sight.how for sight in who_sees(plan, SSN).derived] == [
        ("†data.u of call 1 (only whether it is there)",),
        ("†error of call 0",),
    ]


def test_who_reads_errors_comes_by_what_a_result_does_not_go_with() -> None:
    writing, reading = call(to=f"{SSN}.digits"), call(_scopes=["error"], to="†data.x")
    assert seen(checked(writing, reading, context=CONTEXT)) == ([], [1])
    elsewhere = call(to="†state.fresh")
    assert seen(checked(elsewhere, reading, context=CONTEXT)) == ([], [])
    told_to = {"role": "user", "content": "?", "schema": {}}
    judged = [*CONTEXT, told_to, {"type": "state", "schema": {"maxProperties": 9}}]
    assert seen(checked(elsewhere, reading, context=judged)) == ([], [1])


def test_parameters_and_scopes_at_above_or_below_a_place_see_it() -> None:
    plan = checked(
        call(value=SSN),
        call(value={"deep": ["†state.user"]}),
        call(value="†state.user.name"),
        call("see", _scopes=["state"]),
        call("see", _scopes=["†state.user.ssn"]),
        call("see", _scopes=["†state.other", "input"]),
        call("see"),
        context=CONTEXT,
    )
    assert seen(plan) == ([0, 1, 3, 4], [])
    assert [sight.how for sight in who_sees(plan, SSN).direct] == [
        ("parameter /value",),
        ("parameter /value/deep/0",),
        ("scope state",),
        ("scope †state.user.ssn",),
    ]
    assert seen(plan, "†state.user.ssn.digits")[0] == [0, 1, 3, 4]
    assert seen(plan, "state.user")[0] == [0, 1, 2, 3, 4]
    assert seen(plan, "input")[0] == [5]


def test_a_reader_of_what_they_write_is_listed_apart() -> None:
    plan = checked(
        call(value=SSN, to="†data.masked"),
        call(value="†data.masked", to="†data.sent"),
        call("see", _scopes=["data"]),
        call(value="†input.q", to="†state.count"),
        context=CONTEXT,
    )
    assert seen(plan) == ([0], [1, 2])
    assert who_sees(plan, SSN).derived[0].how == ("†data.masked of call 0",)


def test_each_is_listed_once_in_the_order_of_the_calls_by_the_first_result_it_comes_by() -> None:
    plan = checked(
        call(value="†data.two", to="†data.three"),
        call(value="†data.one", to="†data.two"),
        call(value=["†data.one", "†data.two", "†data.three"], to="†data.one.more"),
        call(value=SSN, to="†data.one"),
        context=[*CONTEXT, {"type": "data", "one": {}}],
    )
    assert [(sight.index, sight.how) for sight in who_sees(plan, SSN).derived] == [
        (0, ("†data.two of call 1",)),
        (1, ("†data.one of call 3",)),
        (2, ("†data.one of call 3",)),
    ]


@pytest.mark.parametrize("path", ["user.ssn", "usr", "State.user"])
def test_a_path_without_a_dagger_that_begins_with_no_kind_is_refused(path: str) -> None:
    with pytest.raises(ExpressionError, match=rf"begins with † \(did you mean †state\.{path}\?\)"):
        who_sees(checked(call(value="†state.user"), context=CONTEXT), path)


def test_a_path_that_begins_with_a_kind_of_ones_own_may_go_without_its_dagger() -> None:
    profile = {"type": "data", "kind": "profile", "data": {"name": "x"}}
    assert seen(checked(call(value="†profile"), context=[profile]), "profile.name") == ([0], [])
    assert seen(checked(call(to="†memory"), call(value="†memory")), "memory") == ([1], [])


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("†state.usr.ssn", ", did you mean †state.user.ssn?"),
        ("†stat.user", ", did you mean †state.user?"),
        ("†data.mail", ", did you mean †data.email?"),
        ("†state.nickname", ", did you mean †state.nicknames?"),
        ("†zzz", ""),
        ("†state.user.ssn.digits", ""),
    ],
)
def test_a_place_where_nothing_is_ever_is_reported_with_the_nearest_where_something_is(path: str, hint: str) -> None:
    context = [*CONTEXT, {"type": "state", "_instance": "①", "nicknames": []}]
    plan = checked(call(value="†state.user"), call(to="†data.email"), context=context)
    note = f"nothing is ever at {path}: the context does not hold it and no call writes it{hint}"
    assert who_sees(plan, path).note == note


@pytest.mark.parametrize("path", [SSN, "†state", "†data.email.domain", "†state.nicknames", "†error", "†error.x"])
def test_a_place_where_something_may_be_is_as_it_should_be(path: str) -> None:
    context = [*CONTEXT, {"type": "state", "_instance": "①", "nicknames": []}]
    plan = checked(call(value="†state.user"), call(to="†data.email"), context=context)
    assert who_sees(plan, path).note is None


def test_what_only_has_to_be_there_is_said_to_be_no_more() -> None:
    plan = checked(call(value="†state.user.ssn && †state.other"), context=CONTEXT)
    assert who_sees(plan, SSN).direct[0].how == ("parameter /value (only whether it is there)",)


def test_executors_are_named_and_thoughts_see_nothing() -> None:
    delegated = call("ask", _delegate="clerk", _scopes=["state"], to="†state.answer")
    plan = checked(
        delegated,
        {"_tool": "think", "about": SSN, "_scopes": ["state"]},
        {"_tool": "think", "about": SSN, "_output": 1, "_outputPath": "†data.t"},
        {"_tool": "think", "about": SSN, "_outputPath": "†data.u"},
        context=CONTEXT,
        activities={},
    )
    sights = who_sees(plan, SSN).direct
    assert [(sight.index, sight.executor.value, sight.name) for sight in sights] == [
        (0, "delegate", "clerk"),
        (3, "latent", "think"),
    ]
    assert sights[1].how == ("parameter /about", "the whole context")
    assert [(sight.index, sight.how) for sight in who_sees(plan, "†state.other").direct] == [
        (0, ("scope state",)),
        (3, ("the whole context",)),
    ]
    assert who_sees(plan, SSN).to_dict().keys() == {"path", "note", "direct", "derived"}
    assert who_sees(plan, SSN).to_dict()["path"] == SSN
    assert who_sees(plan, SSN).to_dict()["direct"][0] == {
        "index": 0,
        "tool": "ask",
        "executor": "delegate",
        "name": "clerk",
        "how": ["scope state"],
    }


def test_what_one_instance_makes_of_a_value_reaches_no_other() -> None:
    context = [*CONTEXT, {"type": "text", "_instance": "①"}, {"type": "text", "_instance": "②"}]
    calls = [
        call(value=SSN, to="†data.x", _instance="①"),
        call(value="†data.x", _instance="①"),
        call(to="†data.x", _instance="②"),
        call(value="†data.x", _instance="②"),
    ]
    assert seen(checked(*calls, context=context)) == ([0], [1])
    template = plan_submission(call(value=SSN, to="†data.x"), call(value="†data.x"), context=context)
    assert seen(check_submission(template)) == ([0], [1])


@pytest.mark.parametrize("path", ["", "†", "†state.user && †input", "†state."])
def test_a_path_that_is_no_single_reference_is_refused(path: str) -> None:
    with pytest.raises(ExpressionError):
        who_sees(checked(context=CONTEXT), path)


def test_calls_inside_a_delegate_can_only_narrow_what_it_was_given() -> None:
    parent = Context([*CONTEXT, {"type": "data", "kind": "secret", "data": 1}])
    given = delegate_context(
        [{"type": "system", "message": "m"}],
        [{"type": kind, **value} for kind, value in parent.scoped(["†state.user.name"]).items()],
        {"question": "who?"},
    )
    inner = Context(given)
    assert inner.data() == {"state": {"user": {"name": "Ада"}}, "input": {"question": "who?"}}
    wide = ["state", "input", "secret", "†state.user.ssn", "data"]
    assert inner.scoped(wide) == inner.data()
    for path in (SSN, "†state.other", "†secret"):
        with pytest.raises(Rejected) as rejected:
            check_submission(submission(call(value=path), context=given, tools={"give": ANY}))
        assert rejected.value.errors[0].message.startswith(f"unresolvable reference {path}")
