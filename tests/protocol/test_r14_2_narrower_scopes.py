"""SPEC R14.2: whoever approves a held call may narrow its scopes; what was shown is what runs, and less of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol.engine.events import Ruling, Start, Verdict, narrowed, scope_problems
from acts_celery.protocol.state.scopes import read_scope, scoped

from .building import call, checked
from .test_r14_people import execution, only_hold, ruled

USER = {"name": "Ann", "age": 5, "letters": ["a", "b"]}
CONTEXT: list[Any] = [
    {"type": "system", "message": "be brief"},
    {"type": "text", "text": "hello"},
    {"type": "state", "user": USER, "other": 1, "schema": {"type": "object"}},
    {"type": "input", "n": 2},
]


def held(*scopes: str, **how: Any) -> tuple[Any, Any]:
    one, fold = execution(call(_scopes=list(scopes), to="†data.b", **how), approve=["*"], context=CONTEXT)
    return one, fold


def test_what_runs_is_the_part_of_what_was_shown() -> None:
    one, fold = held("state", "input")
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
        one, _ = held("state", "text", "system", "input", _delegate="d")
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
    one, _ = held("†state.user", "input")
    hold = only_hold(one)
    (problem,) = scope_problems(given, hold.call, hold.snapshot)
    assert problem.pointer == pointer
    assert text in problem.message


def test_the_scopes_of_a_call_are_narrow_enough_whatever_is_there() -> None:
    one, _ = held("†state.user", "†state.none", "data", "text")
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
    one, fold = held(*own)
    hold = only_hold(one)
    if list(scope_problems(less, hold.call, hold.snapshot)):
        return
    assert narrowed(hold.snapshot, hold.call, less).scopes == scoped(fold, [read_scope(text) for text in less])
