"""Plans written in code (`Draft`, `ref`)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from acts_celery import Draft, Ref, activity, local, ref
from acts_celery.protocol import Rejected


@activity("draftVerify")
def verify(user: str) -> str:
    return user.upper()


@activity
def draft_greet(name: str, greeting: str = "Hello") -> str:
    return f"{greeting} {name}"


CONTEXT = [{"type": "input", "user": "Alex"}]


def test_a_draft_is_the_submission_that_it_is_printed_as() -> None:
    draft = Draft(CONTEXT)
    verified = draft.call(verify, user=ref.input.user) >> (ref.state.verified | ref.state.unknown)
    draft.call(draft_greet, name=ref.state.verified, greeting="†Hi") >> ref.state["a greeting"]
    draft.output = {"said": ref.state["a greeting"]}
    assert str(verified) == "†state.verified || †state.unknown"
    assert json.loads(str(draft)) == draft.to_dict() == {
        "context": CONTEXT,
        "solution": {
            "calls": [
                {"_tool": "draftVerify", "user": "†input.user", "_outputPath": "†state.verified || †state.unknown"},
                {
                    "_tool": "draft_greet",
                    "name": "†state.verified",
                    "greeting": "††Hi",
                    "_outputPath": '†state["a greeting"]',
                },
            ],
            "output": {"said": '†state["a greeting"]'},
        },
    }  # fmt: skip
    assert draft.check().edges == ((0, 1),)


def test_a_draft_runs() -> None:
    with local() as client:
        draft = Draft(CONTEXT, client=client)
        draft.call(verify, user=ref.input.user) >> ref.state.verified
        draft.call(draft_greet, name=ref.state.verified, greeting="†Hi") >> ref.state.greeting
        result = client.submit_document(draft.to_dict()).wait(timeout_seconds=60)
    assert result.data()["state"] == {"verified": "ALEX", "greeting": "†Hi ALEX"}


def test_an_f_string_of_references_is_a_template_and_all_else_in_it_is_text() -> None:
    draft, evil = Draft(CONTEXT), "†{input.user} {ref} †abc{input.user}"
    place = ref.input.user | ref.state['a "†}" key'][0]
    draft.call(verify, user=f"Dear {place}, {evil} {ref.input.user}{{}}")
    assert draft.calls[0]["user"] == (
        'Dear †{input.user || state["a \\"\\u2020}\\" key"].0}, ††{input.user} {ref} ††abc{input.user} †{input.user}{}'
    )
    (call,) = draft.check().calls
    assert [str(expression) for expression in call.expressions] == [str(place), "†input.user"]


def test_an_f_string_runs() -> None:
    with local() as client:
        draft = Draft([{"type": "input", "user": "Alex †{input.key}", "key": "k"}], client=client)
        draft.call(draft_greet, name=f"{ref.input.user}, †", greeting="††{input.key}") >> ref.state.greeting
        draft.output = f"It says: {ref.state.greeting}"
        result = client.submit_document(draft.to_dict()).wait(timeout_seconds=60)
    assert result.output == "It says: ††{input.key} Alex †{input.key}, †"


def test_no_text_of_a_meta_property_is_read_or_escaped() -> None:
    draft = Draft(CONTEXT, tools={"think": {"type": "object"}})
    draft.call("think", _output={"†": "†x"}, _outputPath="†state.x", _reasoningForCall="† why")
    assert draft.calls == [
        {"_tool": "think", "_output": {"†": "†x"}, "_outputPath": "†state.x", "_reasoningForCall": "† why"}
    ]


def test_a_plan_runs_for_every_instance() -> None:
    draft = Draft([{**CONTEXT[0], "_instance": name} for name in "①②"], is_plan=True)
    draft.call(verify, user=ref.input.user) >> ref.state.verified
    assert [lane for lane in draft.check().lanes if lane] == ["①", "②"]


def test_a_call_that_no_other_call_can_mend_is_refused_where_it_is_written() -> None:
    draft = Draft(CONTEXT)
    with pytest.raises(Rejected, match="usr"):
        draft.call(verify, usr="Alex")
    with pytest.raises(Rejected, match="unknown tool 'verifi'"):
        draft.call("verifi", user="Alex")
    call = draft.call(verify, user=ref.state.comes_later)
    with pytest.raises(Rejected, match="does not parse"):
        call >> Ref(joined="†state..x")
    assert draft.to_dict()["solution"]["calls"] == [{"_tool": "draftVerify", "user": "†state.comes_later"}]
    with pytest.raises(Rejected, match="comes_later"):
        draft.check()


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (lambda: bool(ref.state.a), "no value before the run"),
        (lambda: [*ref.state.a], "no elements before the run"),
        (lambda: (ref.state.a | ref.state.b).c, "several places"),
        (lambda: (ref.state.a | ref.state.b) & ref.state.c, "binds tighter"),
        (lambda: f"{ref.state.a:>10}", "put in as it is"),
        (lambda: Draft().call("x", _reasoningForCall=f"{ref.state.a}"), "no text is read"),
        (lambda: Draft().call("x", value={f"{ref.state.a}": 1}), "no text is read"),
    ],
)
def test_a_reference_is_no_value(use: Callable[[], object], why: str) -> None:
    with pytest.raises(TypeError, match=why):
        use()
