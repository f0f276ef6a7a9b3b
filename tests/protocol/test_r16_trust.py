"""What others wrote decides nothing that has an effect (SPEC R16.1, R16.2, R16.4, R16.5)."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Output, Plan
from acts_celery.protocol.calls.trust import ToolTrust
from acts_celery.protocol.engine.events import FanOut, FanOutBegun, Hold, Outcome, Start, Status, Success
from acts_celery.protocol.engine.execution import UNTRUSTED, Execution
from acts_celery.protocol.engine.outcomes import Terms

from .building import DATE, call, checked, executing, pointers, problems_of, run_plan
from .driver import Result

MAIL: dict[str, Any] = {"_trust": {"result": ["mail"]}}
PAY: dict[str, Any] = {"_trust": {"effects": True, "content": ["note"]}}
TOOLS = {"fetch": MAIL, "pay": PAY}
FUNCTIONS: dict[str, Any] = {
    "fetch": lambda parameters, context: {"iban": "DE1", "text": "hello"},
    "pay": lambda parameters, context: "paid",
    "see": lambda parameters, context: dict(context),
    "choose": lambda parameters, context: Output(parameters["where"], parameters.get("value")),
    "fail": lambda parameters, context: (_ for _ in ()).throw(ValueError(parameters["value"])),
}
REFUSE = {"trust": {"otherwise": "refuse"}}
FETCH = call("fetch", "†state.mail")


def refusing(*calls: Any, **parts: Any) -> tuple[Plan, Result]:
    """A plan that refuses what others would decide, and what comes of it."""
    plan = checked(*calls, **{"tools": TOOLS, "config": REFUSE, **parts})
    return plan, run_plan(plan, functions=FUNCTIONS)


def is_refused(result: Result, index: int, lane: str | None = None) -> bool:
    error = result.outcome(index, lane).error
    return error is not None and error["type"] == UNTRUSTED


CASES: dict[str, tuple[dict[str, Any], ...]] = {
    "a parameter": (FETCH, call("pay", "†state.paid", account="†state.mail.iban")),
    "a template": (FETCH, call("pay", "†state.paid", account="account †{state.mail.iban}")),
    "something deep in a parameter": (FETCH, call("pay", "†state.paid", account={"all": ["†state.mail.iban"]})),
    "a result of a result": (
        FETCH,
        call("give", "†state.upper", value="†state.mail.text"),
        call("pay", "†state.paid", account="†state.upper"),
    ),
    "a part of what was written whole": (
        FETCH,
        call("give", "†state.copy", value={"of": "†state.mail"}),
        call("pay", "†state.paid", account="†state.copy.of.iban"),
    ),
    "scopes that a result was made of": (
        FETCH,
        call("see", "†data.seen", _scopes=["†state.mail"]),
        call("pay", "†state.paid", account="†data.seen"),
    ),
    "scopes of its own": (FETCH, call("pay", "†state.paid", account="me", _scopes=["†state.mail"])),
    "an element of a list that others wrote to": (
        call("give", "†state.list", value=["a"]),
        call("fetch", "†state.list", _outputMethod="push", after="†state.list"),
        call("pay", "†state.paid", account="†state.list.0", after="†state.list.1"),
    ),
    "an element beside one that others wrote": (
        call("give", "†state.list", value=["a", "b"]),
        call("fetch", "†state.list.1", after="†state.list"),
        call("pay", "†state.paid", account="†state.list.0", note="†state.list.1"),
    ),
    "the say of a choice": (
        FETCH,
        call("choose", "†state.a || †state.b", where="††state.a", value=1, by="†state.mail"),
        call("pay", "†state.paid", account="me", note="†state.a"),
    ),
    "the say of a choice, further on": (
        FETCH,
        call("choose", "†state.a || †state.b", where="††state.a", value=1, by="†state.mail"),
        call("give", "†state.c", value="†state.a"),
        call("pay", "†state.paid", account="me", note="†state.c"),
    ),
    "what was not chosen": (
        FETCH,
        call("choose", "†state.a || †state.b", where="††state.b", value=1, by="†state.mail"),
        call("give", "†state.own", value="me"),
        call("pay", "†state.paid", account="†state.a || †state.own"),
    ),
    "what was skipped since it was not chosen": (
        FETCH,
        call("choose", "†state.a || †state.b", where="††state.b", value=1, by="†state.mail"),
        call("give", "†state.c", value="†state.a"),
        call("give", "†state.own", value="me"),
        call("pay", "†state.paid", account="†state.c || †state.own"),
    ),
    "what failed instead": (
        FETCH,
        call("fail", "†state.a", value="†state.mail.text"),
        call("give", "†state.own", value="me"),
        call("pay", "†state.paid", account="†state.a || †state.own"),
    ),
    "an error that tells of it": (
        FETCH,
        call("fail", "†state.a", value="†state.mail.text"),
        call("pay", "†state.paid", account="me", note="†error.error.message"),
    ),
    "what stands where another value was to be written": (
        call("fetch", "†state.a"),
        call("give", "†state.a && †state.x", _outputMethod="push", value="you"),
        call("give", "†state.own", value="me"),
        call("pay", "†state.paid", account="†state.x || †state.own"),
    ),
    "what is missing in scopes": (
        FETCH,
        call("choose", "†state.a || †state.b", where="††state.b", value=1, by="†state.mail"),
        call("pay", "†state.paid", account="me", _scopes=["†state.a"]),
    ),
    "what is missing in a value": (
        FETCH,
        call("give", "†state.own.to", value="me"),
        call("choose", "†state.own.by || †state.b", where="††state.b", value=1, by="†state.mail"),
        call("pay", "†state.paid", account="†state.own"),
    ),
    "what did not replace a value": (
        FETCH,
        call("give", "†state.own", value="me"),
        call("fail", "†state.own", value="†state.mail.text"),
        call("pay", "†state.paid", account="†state.own"),
    ),
    "what others did not merge": (
        call("give", "†state.own", value={"to": "me"}),
        call("fetch", "†state.own", _outputMethod="merge", after="†state.own"),
        call("pay", "†state.paid", account="†state.own.to"),
    ),
    "the older name of scopes": (FETCH, call("pay", "†state.paid", account="me", _imports=["state"])),
    "a key that is written as an index": (
        call("fetch", '†state.copy["0"]'),
        call("pay", "†state.paid", account="†state.copy.0.iban"),
    ),
    "the length of a list": (
        call("fetch", "†state.items", _outputMethod="push"),
        call("pay", "†state.paid", account="me", note="†state.items", _each="note"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_r16_4_what_others_wrote_does_not_decide(name: str) -> None:
    plan, result = refusing(*CASES[name])
    last = len(CASES[name]) - 1
    assert is_refused(result, last)
    assert {finding.calls for finding in plan.findings if finding.code in ("ACT601", "ACT602")} == {(last,)}


TRUSTED: dict[str, tuple[dict[str, Any], ...]] = {
    "what nobody else wrote": (FETCH, call("pay", "†state.paid", account="me", note="hello")),
    "content": (FETCH, call("pay", "†state.paid", account="me", note="†state.mail.text")),
    "a template as content": (FETCH, call("pay", "†state.paid", account="me", note="They say: †{state.mail.text}")),
    "another place of the same object": (
        FETCH,
        call("give", "†state.own.to", value="me"),
        call("pay", "†state.paid", account="†state.own.to", note="†state.mail.text"),
    ),
    "a first alternative that is there": (
        FETCH,
        call("give", "†state.own", value="me"),
        call("pay", "†state.paid", account="†state.own || †state.other"),
        call("give", "†state.other", value="you"),
    ),
}


@pytest.mark.parametrize("name", TRUSTED)
def test_r16_4_what_nobody_else_wrote_and_content_start_a_call(name: str) -> None:
    plan, result = refusing(*TRUSTED[name])
    pays = [index for index, one in enumerate(TRUSTED[name]) if one["_tool"] == "pay"]
    assert [result.outcome(index).status for index in pays] == [Status.DONE]
    assert not [finding for finding in plan.findings if finding.code.startswith("ACT6")]


def test_r16_5_a_finding_has_the_source_the_effect_and_the_calls_between() -> None:
    plan, _ = refusing(*CASES["a result of a result"])
    (finding,) = [finding for finding in plan.findings if finding.code == "ACT601"]
    said = finding.to_dict()
    assert (said["source"], said["effect"], said["way"]) == ({"label": "mail", "call": 0}, 2, [1])
    assert said["pointer"] == "/solution/calls/2/account"
    assert "call 0 (fetch) → call 1 (give)" in said["message"]


def test_r16_4_a_call_is_held_with_the_way_to_it_and_runs_as_it_was_shown_when_it_is_approved() -> None:
    execution, fold = executing(checked(*CASES["a result of a result"], tools=TOOLS))
    for index, value in ((0, {"iban": "DE1", "text": "hello"}), (1, "hello")):
        execution.decide(DATE)
        outcome = execution.finish(index, Success(value), DATE)
        for event in outcome.events:
            if event.message is not None:
                fold.append(event.message, "result")
            execution.apply(event)
    (held,) = execution.decide(DATE)
    assert isinstance(held, Hold)
    assert held.doubt is not None
    assert held.doubt.to_dict() == {"chosen": [], "parameters": {"account": ["mail"]}, "ways": {"mail": [0, 1]}}
    assert held.snapshot.parameters == {"account": "hello"}


def test_r16_1_data_that_is_handed_in_and_promised_names_its_sources() -> None:
    context = [{"type": "input", "page": "x", "_trust": ["web"]}, {"type": "state", "own": "me"}]
    plan, result = refusing(
        call("pay", "†state.a", account="†input.page"), call("pay", "†state.b", account="†state.own"), context=context
    )
    assert (is_refused(result, 0), is_refused(result, 1)) == (True, False)
    (finding,) = [finding for finding in plan.findings if finding.code == "ACT601"]
    assert finding.to_dict()["source"] == {"label": "web", "message": 0}
    promise = {"type": "input", "schema": {"properties": {"page": {}}, "required": ["page"]}, "_trust": ["web"]}
    late = {"type": "input", "page": "late"}
    _, result = refusing(call("pay", "†state.a", account="†input.page"), context=[promise, late])
    assert is_refused(result, 0)


def test_r16_2_what_is_written_says_its_sources_in_the_log_and_shows_them_to_nobody() -> None:
    _, result = refusing(FETCH, call("see", "†data.seen", _scopes=["state"]))
    assert [message["_trust"] for message in result.messages] == [["mail"], ["mail"]]
    assert "_trust" not in str(result.data[None]["data"]["seen"])


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ("mail", ""),
        ({"effect": True}, "/effect"),
        ({"effects": "yes"}, "/effects"),
        ({"result": "mail"}, "/result"),
        ({"result": [""]}, "/result"),
        ({"result": ["a\x00"]}, "/result"),
        ({"effects": True, "content": "note"}, "/content"),
        ({"content": ["note"]}, "/content"),
    ],
)
def test_r16_1_what_a_tool_says_of_itself_in_another_shape_is_refused(said: Any, where: str) -> None:
    found = problems_of(call("pay"), tools={"pay": {"_trust": said}})
    assert pointers(found) == [f"/tools/pay/_trust{where}"]


def test_r16_1_sources_of_a_message_in_another_shape_and_of_a_text_are_refused() -> None:
    context: list[Any] = [{"type": "state", "a": 1, "_trust": "mail"}, {"type": "text", "text": "x", "_trust": ["a"]}]
    assert pointers(problems_of(call("give", value=1), context=context)) == ["/context/0/_trust", "/context/1/_trust"]


def test_r16_1_a_declaration_takes_nothing_away_from_what_the_code_says() -> None:
    activities = {"pay": {"type": "object", **PAY}, "fetch": {"type": "object", **MAIL}}
    for tools in (
        {"pay": {"type": "object"}, "fetch": {"type": "object"}},
        {"pay": {"_trust": {"effects": True, "content": ["account", "note"]}}, "fetch": {"_trust": {"result": []}}},
        {"pay": {"_trust": {"effects": False}}, "fetch": {}},
    ):
        _, result = refusing(*CASES["a parameter"], tools=tools, activities=activities)
        assert is_refused(result, 1)
    other = {"settle": {"type": "object", "properties": {"_activity": {"const": "pay"}}}}
    _, result = refusing(
        FETCH,
        call("settle", "†state.paid", account="†state.mail.iban"),
        tools={**TOOLS, **other},
        activities=activities,
    )
    assert is_refused(result, 1)


def test_r16_2_a_gathered_value_has_the_sources_of_all_instances() -> None:
    context: list[Any] = [{"type": "state", "_instance": name, "n": 1} for name in "①②"]
    context[1]["_trust"] = ["page"]
    gather = call("pay", "†data.paid", account="†state.n", _gather=True)
    plan, result = refusing(gather, context=context)
    assert is_refused(result, 0)
    assert [finding.calls for finding in plan.findings if finding.code == "ACT601"] == [(0,)]


def test_r16_2_an_instance_does_not_see_the_sources_of_another() -> None:
    context: list[Any] = [{"type": "state", "_instance": name, "n": 1} for name in "①②"]
    context[1]["_trust"] = ["page"]
    calls = [call("pay", "†state.paid", account="†state.n", _instance=name) for name in "①②"]
    _, result = refusing(*calls, context=context)
    assert (is_refused(result, 0, "①"), is_refused(result, 1, "②")) == (False, True)


def test_r16_4_refused_goes_where_an_exception_would() -> None:
    _, result = refusing(FETCH, call("pay", "†state.paid || †state.refused", account="†state.mail.iban"))
    assert result.data[None]["state"]["refused"]["type"] == UNTRUSTED
    assert isinstance(result.outcome(1), Outcome)
    assert result.outcome(1).is_rescued


def test_r16_2_a_result_keeps_the_sources_of_what_was_read_where_a_better_alternative_comes_meanwhile() -> None:
    calls = (
        FETCH,
        call("choose", "†state.a || †state.z"),
        call("give", "†state.out", value="†state.a || †state.mail"),
        call("give", "†state.a", value="me"),
        call("pay", "†state.paid", account="†state.out"),
    )
    execution, fold = executing(checked(*calls, tools=TOOLS))

    def end(index: int, value: Any) -> Outcome:
        execution.decide(DATE)
        outcome = execution.finish(index, Success(value), DATE)
        for event in outcome.events:
            if event.message is not None:
                fold.append(event.message, "result")
            execution.apply(event)
        return outcome

    end(0, {"iban": "DE1"})
    end(1, Output("†state.z", 1))
    (begun,) = execution.decide(DATE)
    assert isinstance(begun, Start)
    assert begun.parameters == {"value": {"iban": "DE1"}}
    end(3, "me")
    assert end(2, {"iban": "DE1"}).labels == {"mail"}
    (held,) = execution.decide(DATE)
    assert isinstance(held, Hold)


@pytest.mark.parametrize(
    "declaration",
    [
        {"allOf": [MAIL]},
        {"$ref": "#/$defs/said", "$defs": {"said": MAIL}},
        {"anyOf": [{"required": ["a"], **MAIL}, {}]},
        {"properties": {"_trust": {"const": MAIL["_trust"]}}},
    ],
)
def test_r16_1_trust_that_stands_where_nothing_reads_it_is_refused(declaration: dict[str, Any]) -> None:
    (problem,) = problems_of(FETCH, tools={"fetch": declaration})
    assert (problem.pointer, "move it there" in problem.message) == ("/tools/fetch", True)


def test_r16_1_what_fetches_is_read_by_a_delegate_and_answered_to_a_fixed_address_without_a_question() -> None:
    reader = {"context": [{"type": "system", "text": "Summarize."}], "schema": {"properties": {"answer": {}}}}
    tools = {**TOOLS, "ask": {"type": "object", "properties": {"_delegate": {"const": "reader"}}}}
    plan = checked(
        FETCH,
        call("ask", "†state.read", _delegate="reader", text="†state.mail.text"),
        call("pay", "†state.paid", account="anna", note="Dear Anna, †{state.read.answer}"),
        tools=tools,
        delegates={"reader": reader},
        config=REFUSE,
    )
    assert not [finding for finding in plan.findings if finding.code.startswith("ACT6")]
    result = run_plan(plan, functions={**FUNCTIONS, "reader": lambda parameters, context: {"answer": "yes"}})
    assert result.outcome(2).status is Status.DONE


ASSISTANTS: dict[str, Any] = {
    "reader": {"context": [{"type": "system", "text": "Summarize."}], "schema": {"type": "string"}},
    "payer": {"context": [], "schema": {}, "tools": {"pay": PAY}},
    "boss": {"context": [], "schema": {}, "tools": {"ask": {"properties": {"_delegate": {"const": "payer"}}}}},
    "asker": {"context": [], "schema": {}, "tools": {"ask": {"properties": {"_delegate": {"pattern": "r$"}}}}},
    "mailer": {"context": [], "schema": {}, "tools": {"fetch": MAIL}},
    "any": {"context": [], "schema": {}, "tools": {"do": {"properties": {"_activity": {}}}}},
    "some": {"context": [], "schema": {}, "tools": {"do": {"properties": {"_activity": {"pattern": "^s"}}}}},
    "knowing": {"context": [{"type": "state", "page": "x", "_trust": ["web"]}], "schema": {}},
}
ASK: dict[str, Any] = {"ask": {"type": "object", "properties": {"_delegate": {}}}, **TOOLS}


@pytest.mark.parametrize(
    ("delegate", "is_held"),
    [
        ("reader", False),
        ("payer", True),
        ("boss", True),
        ("asker", True),
        ("any", True),
        ("some", True),
        ("mailer", False),
    ],
)
def test_r16_3_a_delegate_that_is_given_what_others_wrote_reaches_no_tool_with_effects(
    delegate: str, is_held: bool
) -> None:
    asking = call("ask", "†state.summary", _delegate=delegate, text="†state.mail.text")
    parts: dict[str, Any] = {"tools": ASK, "delegates": ASSISTANTS, "config": REFUSE}
    plan = checked(FETCH, asking, activities={"send": {"type": "object", **PAY}}, **parts)
    result = run_plan(plan, functions={**FUNCTIONS, delegate: lambda parameters, context: "short"})
    assert is_refused(result, 1) is is_held
    assert {finding.calls for finding in plan.findings if finding.code == "ACT601"} == ({(1,)} if is_held else set())


def test_r16_2_what_a_delegate_answers_has_the_sources_of_what_it_was_given_and_can_read() -> None:
    parts: dict[str, Any] = {"tools": ASK, "delegates": ASSISTANTS, "config": REFUSE}
    pay = call("pay", "†state.paid", account="†state.summary")
    for delegate, given in (("reader", "†state.mail.text"), ("mailer", "hello"), ("knowing", "hello")):
        plan = checked(FETCH, call("ask", "†state.summary", _delegate=delegate, text=given), pay, **parts)
        assert is_refused(run_plan(plan, functions={**FUNCTIONS, delegate: lambda parameters, context: "short"}), 2)
    plan = checked(FETCH, call("ask", "†state.summary", _delegate="reader", text="hello"), pay, **parts)
    result = run_plan(plan, functions={**FUNCTIONS, "reader": lambda parameters, context: "short"})
    assert result.outcome(2).status is Status.DONE


def test_r16_1_elements_that_have_not_begun_when_labels_are_added_do_not_begin() -> None:
    """Their call would have been held; one that was begun with these labels goes on."""
    context = [{"type": "input", "ibans": ["DE1", "DE2"], "_trust": ["mail"]}]
    plan = checked(call("pay", "†state.paid", account="†input.ibans", _each="account"), context=context)
    lane, fold = plan.lanes[None], plan.context.fold(None)
    (fan_out,) = Execution.of(plan, lane, fold).decide(DATE)
    assert isinstance(fan_out, FanOut)
    said = {"pay": ToolTrust(effects=True)}
    for added, kind in ((said, Outcome), ({}, Start)):
        execution = Execution(lane.calls, lane.graph, fold, Terms(plan.tools, trust=said, added=added))
        execution.apply(FanOutBegun(0, fan_out.snapshot))
        assert [type(decision) for decision in execution.decide(DATE)] == [kind, kind]
