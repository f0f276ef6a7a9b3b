"""What a latent call and a delegate without tools ask a model (SPEC R4.4, R4.7, R8.3, R9.2, R12.5)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from acts_celery import Output
from acts_celery.protocol import Plan
from acts_celery.protocol.calls.call import read_approvals
from acts_celery.protocol.calls.outputs import chosen
from acts_celery.protocol.engine.events import CallDecided, CallHeld, Failure, Hold, Ruling, Start, Success, Verdict
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.requests.rendering import ResultRequest, result_request
from acts_celery.protocol.schemas import CompiledSchema

from .building import DATE, checked

TOOLS: Final[dict[str, Any]] = {
    "judge": {
        "description": "Say whether the mail is a complaint.",
        "properties": {"about": {"type": "string"}, "_output": {"type": "boolean"}},
    }
}
CONTEXT: Final[list[dict[str, Any]]] = [
    {"type": "system", "message": "Be brief."},
    {"role": "assistant", "content": "Hello."},
    {"type": "state", "mail": "Where is it?†{state.x}", "_date": "2026-01-01"},
    {"type": "text", "message": "for all"},
    {"type": "input", "language": "en", "schema": {"properties": {"language": {"type": "string"}}}},
    {"type": "data", "data": {"own": 1}, "_instance": "①"},
    {"type": "text", "message": "for ② alone", "_instance": "②"},
    {"type": "state", "mail": "other mail", "_instance": "②"},
]


def planned(*calls: Mapping[str, Any], context: Sequence[Any] = CONTEXT, **parts: Any) -> Plan:
    given: dict[str, Any] = {"tools": TOOLS, "activities": {}, **parts}
    return checked(*calls, context=context, **given)


def started(plan: Plan, instance: str | None = "①") -> tuple[Execution, Start]:
    fold = plan.context.fold(instance)
    execution = Execution.of(plan, plan.lanes[instance], fold, approvals=read_approvals(plan.submission.config))
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    return execution, start


def asked(plan: Plan, instance: str | None = "①", **options: Any) -> ResultRequest:
    return request_of(plan, *started(plan, instance), **options)


def request_of(plan: Plan, execution: Execution, start: Start, **options: Any) -> ResultRequest:
    call, delegates = start.call, plan.submission.delegates
    return result_request(
        call,
        start.parameters,
        execution.scoped_messages(call),
        execution.alternatives(call),
        tool=plan.tools.get(call.tool),
        definition=delegates.get(call.runner.name, {}),
        **options,
    )


def contents(request: ResultRequest) -> list[str]:
    return [str(message["content"]) for message in request.messages]


def judging(**properties: Any) -> dict[str, Any]:
    return {"_tool": "judge", "_instance": "①", "_outputPath": "†state.verdict", **properties}


def test_r8_3_a_latent_call_sees_the_whole_context_and_its_scopes_last() -> None:
    first, *rest = contents(asked(planned(judging(about="†state.mail", _scopes=["†state.mail", "text"]))))
    answer, more = first.split(". ", 1)
    assert answer == 'Answer with one JSON object and nothing else: {"output": ...}'
    assert more.startswith('"output" is the result of the call at the end.\n')
    assert first.endswith("\nTools\njudge(about?: string) -> boolean\n  Say whether the mail is a complaint.")
    assert rest == [
        "Be brief.",
        "Hello.",
        '## Data: †input\nSchema: {"properties":{"language":{"type":"string"}}}\n{"language":"en"}',
        '## Data: †data\n{"own":1}',
        "for all",
        '## Data: †state\n{"mail":"Where is it?†{state.x}"}',
        "# Give the result of this call\n"
        '{"_tool":"judge","about":"Where is it?†{state.x}"}\nLook first at: †state.mail',
    ]
    roles = [message["role"] for message in asked(planned(judging())).messages]
    assert roles == ["system", "system", "assistant", "user", "user", "user", "user", "user"]


def test_what_is_beside_the_scopes_of_a_latent_call_is_cut_above_show_bytes() -> None:
    context = [{"type": "state", "long": "x" * 500}, {"type": "input", "long": "y" * 500}, *CONTEXT[5:6]]
    texts = contents(asked(planned(judging(_scopes=["input"]), context=context), show_bytes=100))
    (state,) = (text for text in texts if text.startswith("## Data: †state"))
    assert "(†state is cut here: it has 511 bytes" in state
    assert f'"{"y" * 500}"' in texts[-2]


def test_a_gather_call_that_is_latent_sees_what_all_share_and_what_it_gathers() -> None:
    call = {"_tool": "judge", "_gather": True, "_scopes": ["†state.mail"], "_outputPath": "†data.all"}
    plan = planned(call, context=[*CONTEXT, {"type": "state", "mail": "mine", "_instance": "①"}])
    folds = {name: plan.context.fold(name) for name in ("①", "②")}
    execution = Execution.of(plan, plan.lanes[None], plan.context.fold(), gather=lambda _: folds)
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    texts = contents(request_of(plan, execution, start))
    assert texts[-3:-1] == [
        '## Data: †state\n{"mail":"Where is it?†{state.x}"}',
        '## Data: †state\nDescription: of each instance, by its name\n{"①":{"mail":"mine"},"②":{"mail":"other mail"}}',
    ]
    assert not any("for ②" in text or "own" in text for text in texts)


def test_r14_2_a_held_latent_call_runs_with_what_was_there_when_it_was_held() -> None:
    plan = planned(judging(), config={"approve": ["judge"]})
    fold = plan.context.fold("①")
    execution = Execution.of(plan, plan.lanes["①"], fold, approvals=read_approvals(plan.submission.config))
    (hold,) = execution.decide(DATE)
    assert isinstance(hold, Hold)
    execution.apply(CallHeld(0, hold.snapshot))
    fold.append({"type": "state", "mail": "later"}, "later")
    execution.apply(CallDecided(0, Ruling(Verdict.APPROVED)))
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    texts = contents(request_of(plan, execution, start))
    assert texts[1:-1] == contents(asked(planned(judging())))[1:-1]


KINDS = st.sampled_from(["state", "input", "data", "note", "text", "system", "chat", "error"])


@given(
    st.lists(st.tuples(KINDS, st.sampled_from([None, "①", "②", "③"]), st.sampled_from(["a", "b"])), max_size=12),
    st.lists(st.sampled_from(["state", "input", "text", "†state.a", "†data.b", "†note"]), max_size=3),
    st.integers(min_value=1) | st.none(),
)
def test_nothing_of_another_instance_reaches_a_latent_call_and_all_of_its_own_does(
    written: list[tuple[str, str | None, str]], scopes: list[str], show_bytes: int | None
) -> None:
    """Of values that replace each other the last counts: each has a key of its own."""
    context: list[dict[str, Any]] = [{"type": "state", "_instance": "①"}]
    for number, (kind, instance, key) in enumerate(written):
        mark, own = f"mark-{number}-{instance}.", {"_instance": instance} if instance is not None else {}
        match kind:
            case "text" | "system":
                context.append({"type": kind, "message": mark, **own})
            case "chat":
                context.append({"role": "user", "content": mark, **own})
            case _:
                context.append({"type": "data", "kind": kind, "data": {f"{key}{number}": mark}, **own})
    request = asked(planned(judging(_scopes=scopes), context=context), show_bytes=show_bytes)
    shown = json.dumps(request.messages, ensure_ascii=False)
    assert not any(f"mark-{n}-{instance}." in shown for n in range(12) for instance in ("②", "③"))
    assert "②" not in shown
    if show_bytes is None:
        for number, (kind, instance, _) in enumerate(written):
            is_last_error = kind == "error" and any(
                later == "error" and name in ("①", instance) for later, name, _ in written[number + 1 :]
            )
            is_hidden_error = kind == "error" and instance is None and ("error", "①") in [w[:2] for w in written]
            if instance in (None, "①") and not is_last_error and not is_hidden_error:
                assert f"mark-{number}-{instance}." in shown


CHOICE: Final = "†state.approved || †state.refused && †data.why || †state.error"
SCHEMA: Final = {"properties": {"approved": {"$ref": "#/$defs/Amount"}}, "$defs": {"Amount": {"type": "integer"}}}


def choosing(**parts: Any) -> Plan:
    call = {"_tool": "decide", "_delegate": "judge", "_outputPath": CHOICE}
    delegates = {
        "judge": {"context": [{"type": "system", "message": "Judge."}], "schema": {"type": ["integer", "string"]}}
    }
    return planned(call, context=[{"type": "state", "schema": SCHEMA}], delegates=delegates, tools={}, **parts)


def test_r4_4_alternatives_are_shown_with_their_schemas() -> None:
    request = asked(choosing(), None)
    assert request.choices == {
        "state.approved": "†state.approved",
        "state.refused && data.why": "†state.refused && †data.why",
        "state.error": "†state.error",
    }
    assert (
        '"output" is {"path": PLACE, "value": RESULT}. Choose one of "state.approved", "state.refused && data.why", '
        '"state.error".' in contents(request)[0]
    )
    schema = CompiledSchema(request.schema)
    for path, value, fits in (
        ("state.approved", 1, True),
        ("state.approved", "no integer", False),
        ("state.refused && data.why", "text", True),
        ("state.error", None, False),
        ("state.other", 1, False),
    ):
        assert bool(schema.problems({"path": path, "value": value})) is not fits
    assert schema.problems(1)


def test_r4_4_a_choice_is_written_to_its_places_and_what_was_not_shown_is_an_error() -> None:
    plan = choosing()
    names = asked(plan, None).choices

    def written(result: Any) -> Any:
        execution, start = started(plan, None)
        outcome = execution.finish(start.call.index, result, DATE)
        return outcome.error or [(m.get("kind", "data"), m["data"]) for m in outcome.messages]

    for path in ("state.refused && data.why", "†state.refused && †data.why"):
        choice = chosen({"path": path, "value": "no"}, names)
        assert choice == Output("†state.refused && †data.why", "no")
        assert written(Success(choice)) == [("state", {"refused": "no"}), ("data", {"why": "no"})]
    undeclared = chosen({"path": "state.other", "value": 1}, names)
    assert written(Success(undeclared))["type"] == "OutputError"
    assert written(Failure("InvalidAnswer", "x")) == [("state", {"error": {"type": "InvalidAnswer", "message": "x"}})]
    for none in (1, "x", {"path": 1, "value": 1}, {"path": "state.error"}, {"path": "a", "value": 1, "more": 1}):
        assert chosen(none, names) is None


def test_r9_1_an_anonymous_delegate_is_told_its_tool() -> None:
    tools = {"judge": {**TOOLS["judge"], "properties": {**TOOLS["judge"]["properties"], "_delegate": {}}}}
    plan = planned(judging(_delegate="anonymous", about="it"), tools=tools)
    assert contents(asked(plan))[1:] == ['## Data: †input\n{"about":"it"}']
    assert "\nTools\njudge(about?: string) -> boolean\n" in contents(asked(plan))[0]
