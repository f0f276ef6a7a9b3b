"""Trust (SPEC R16): what others wrote decides nothing that has effects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Output, Plan, Rejected, check_submission, parse
from acts_celery.protocol.calls.trust import ToolTrust, tool_trust_of
from acts_celery.protocol.engine.events import CallEnded, FanOut, FanOutBegun, Hold, Outcome, Start, Status, Success
from acts_celery.protocol.engine.execution import UNTRUSTED, Execution
from acts_celery.protocol.engine.outcomes import LaneConfig
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import Request, read_request, render, render_tick
from acts_celery.protocol.state.labels import FieldLabels

from . import naive
from .authoring import ACTIVITIES, EXPLICIT, Author, carry_out
from .building import DATE, call, checked, executing, pointers, problems_of, run_plan
from .building import call as call_of
from .building import submission as submission_of
from .driver import Driver, Result
from .laws import TIMES, law
from .simulator import Lane, World
from .simulator.log import Entry
from .strategies import SCHEMAS, submissions
from .test_against_naive import CONTEXT, FUNCTIONS, adapted, gathering
from .test_law_errors import told
from .test_law_retries import Faulty

# What others wrote decides nothing that has an effect (SPEC R16.1, R16.2, R16.4, R16.5).

MAIL: dict[str, Any] = {"_trust": {"result": ["mail"]}}
PAY: dict[str, Any] = {"_trust": {"effects": True, "content": ["note"]}}
TOOLS = {"fetch": MAIL, "pay": PAY}
FUNCTIONS_TRUST: dict[str, Any] = {
    "fetch": lambda parameters, context: {"iban": "DE1", "text": "hello"},
    "pay": lambda parameters, context: "paid",
    "see": lambda parameters, context: dict(context),
    "pick": lambda parameters, context: Output(parameters["where"], parameters.get("value")),
    "fail": lambda parameters, context: (_ for _ in ()).throw(ValueError(parameters["value"])),
}
REFUSE = {"trust": {"otherwise": "refuse"}}
FETCH = call("fetch", "†state.mail")


def refusing(*calls: Any, **parts: Any) -> tuple[Plan, Result]:
    """A plan that refuses what others would decide, and what comes of it."""
    plan = checked(*calls, **{"tools": TOOLS, "config": REFUSE, **parts})
    return plan, run_plan(plan, functions=FUNCTIONS_TRUST)


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
        call("pick", "†state.a || †state.b", where="††state.a", value=1, by="†state.mail"),
        call("pay", "†state.paid", account="me", note="†state.a"),
    ),
    "the say of a choice, further on": (
        FETCH,
        call("pick", "†state.a || †state.b", where="††state.a", value=1, by="†state.mail"),
        call("give", "†state.c", value="†state.a"),
        call("pay", "†state.paid", account="me", note="†state.c"),
    ),
    "what was not chosen": (
        FETCH,
        call("pick", "†state.a || †state.b", where="††state.b", value=1, by="†state.mail"),
        call("give", "†state.own", value="me"),
        call("pay", "†state.paid", account="†state.a || †state.own"),
    ),
    "what was skipped since it was not chosen": (
        FETCH,
        call("pick", "†state.a || †state.b", where="††state.b", value=1, by="†state.mail"),
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
        call("pick", "†state.a || †state.b", where="††state.b", value=1, by="†state.mail"),
        call("pay", "†state.paid", account="me", _scopes=["†state.a"]),
    ),
    "what is missing in a value": (
        FETCH,
        call("give", "†state.own.to", value="me"),
        call("pick", "†state.own.by || †state.b", where="††state.b", value=1, by="†state.mail"),
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
    "what chose whether the calls ran that it comes after": (
        FETCH,
        call("give", "†state.found || †state.none", value="†state.mail"),
        call("give", "†state.noted", value="†state.none"),
        call("pay", "†state.paid", account="DE01", _after=["†state.noted"]),
    ),
    "what chose that, further on": (
        FETCH,
        call("give", "†state.found || †state.none", value="†state.mail"),
        call("give", "†state.read", value="†state.none"),
        call("give", "†state.noted", value="†state.read"),
        call("pay", "†state.paid", account="DE01", _after=["†state.noted"]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_r16_4_what_others_wrote_does_not_decide(name: str) -> None:
    plan, result = refusing(*CASES[name])
    last = len(CASES[name]) - 1
    assert is_refused(result, last)
    assert {finding.calls for finding in plan.findings if finding.code in ("ACT601", "ACT602")} == {(last,)}


TRUSTED: dict[str, tuple[dict[str, Any], ...]] = {
    "what others wrote to the calls that it only comes after": (
        FETCH,
        call("give", "†state.noted", value="†state.mail.text"),
        call("pay", "†state.paid", account="me", _after=["†state.noted", "†state.mail"]),
    ),
    "a moment that others name, when it only comes after that": (
        FETCH,
        call("wait", "†state.waited", until="†state.mail.text"),
        call("pay", "†state.paid", account="me", _after=["†state.waited"]),
    ),
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


@pytest.mark.parametrize("name", [name for name in TRUSTED if "only comes after" in name])
def test_r16_5_a_call_starts_after_one_that_is_skipped_since_others_left_out_what_it_reads(name: str) -> None:
    plan = checked(*TRUSTED[name], tools=TOOLS, config=REFUSE)
    result = run_plan(plan, functions={**FUNCTIONS_TRUST, "fetch": lambda parameters, context: {}})
    assert [result.outcome(index).status for index in (1, 2)] == [Status.SKIPPED, Status.DONE]


def test_r6_8_a_call_of_an_instance_knows_who_chose_among_the_places_of_a_global_call() -> None:
    noted = call("give", "†state.noted", value="†state.none", _instance="①")
    pay = call("pay", "†state.paid", account="DE01", _after=["†state.noted"], _instance="①")
    choice = call("give", "†state.found || †state.none", value="†state.mail")
    plan, result = refusing(FETCH, choice, noted, pay, context=[{"type": "state", "_instance": "①", "x": 1}])
    assert is_refused(result, 3, "①")
    assert ways(plan) == {3}


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
        call("pick", "†state.a || †state.z"),
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
    result = run_plan(plan, functions={**FUNCTIONS_TRUST, "reader": lambda parameters, context: {"answer": "yes"}})
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
    result = run_plan(plan, functions={**FUNCTIONS_TRUST, delegate: lambda parameters, context: "short"})
    assert is_refused(result, 1) is is_held
    assert {finding.calls for finding in plan.findings if finding.code == "ACT601"} == ({(1,)} if is_held else set())


def test_r16_2_what_a_delegate_answers_has_the_sources_of_what_it_was_given_and_can_read() -> None:
    parts: dict[str, Any] = {"tools": ASK, "delegates": ASSISTANTS, "config": REFUSE}
    pay = call("pay", "†state.paid", account="†state.summary")
    for delegate, sent in (("reader", "†state.mail.text"), ("mailer", "hello"), ("knowing", "hello")):
        plan = checked(FETCH, call("ask", "†state.summary", _delegate=delegate, text=sent), pay, **parts)
        assert is_refused(
            run_plan(plan, functions={**FUNCTIONS_TRUST, delegate: lambda parameters, context: "short"}), 2
        )
    plan = checked(FETCH, call("ask", "†state.summary", _delegate="reader", text="hello"), pay, **parts)
    result = run_plan(plan, functions={**FUNCTIONS_TRUST, "reader": lambda parameters, context: "short"})
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
        execution = Execution(lane.calls, lane.graph, fold, LaneConfig(plan.tools, trust=said, added=added))
        execution.apply(FanOutBegun(0, fan_out.snapshot))
        assert [type(decision) for decision in execution.decide(DATE)] == [kind, kind]


def test_r16_2_the_sources_that_come_with_the_answers_of_elements_are_those_of_the_list_by_field() -> None:
    calls = [call("give", "†state.l", value="†input.n", _each="value"), call("pay", "†state.paid", account="†state.l")]
    plan = checked(*calls, tools=TOOLS, context=[{"type": "input", "n": [1, 2]}])
    execution, fold = executing(plan)
    (fan_out,) = execution.decide(DATE)
    assert isinstance(fan_out, FanOut)
    execution.apply(FanOutBegun(0, fan_out.snapshot))
    said = FieldLabels.read({"text": ["mail"], "*": []})
    answers = (Success({"id": 1}), Success({"id": 2, "text": "x"}, labels=said.all, fields=frozenset({said})))
    for start, answer in zip(execution.decide(DATE), answers, strict=True):
        assert isinstance(start, Start)
        (event,) = execution.finish(start.call.index, answer, DATE).events
        execution.apply(event)
    (outcome,) = execution.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert outcome.labels == {"mail"}
    fold.append(outcome.messages[0], "result")
    assert [fold.marks(parse(f"†state.l.1.{field}").references[0]).labels for field in ("id", "text")] == [
        frozenset(),
        {"mail"},
    ]


# What a model that can call what has effects is shown beside what others wrote, and of it (SPEC R16.3).

PAY_SHOWN: dict[str, Any] = {"pay": {"type": "object", "properties": {}, "_trust": {"effects": True}}}
NOTHING: dict[str, Any] = {"calls": [], "output": None}


def request(*context: dict[str, Any], **parts: Any) -> Request:
    return read_request({"context": list(context), "schema": {}, "tools": PAY_SHOWN, **parts}, Environment())


def shown(*context: dict[str, Any]) -> list[str]:
    """The lines below the engine's own text."""
    return [line for message in render(request(*context))[1:] for line in message["content"].splitlines()]


def wrote(path: str, kind: str, payload: dict[str, Any], *sources: str, **more: Any) -> dict[str, Any]:
    """A message that a call has written."""
    said = {"_trust": list(sources)} if sources else {}
    return {"type": kind, **payload, "_call": {"_tool": "a", "_outputPath": path}, **said, **more}


def told_shown(*new: dict[str, Any]) -> str:
    """What follows a tick that has brought these messages."""
    (*_, last) = render_tick(request(), 0, NOTHING, (), new, new)
    text = last["content"]
    assert isinstance(text, str)
    return text


def test_r16_3_what_lies_beside_it_is_shown() -> None:
    own = wrote("†state.own.by", "state", {"own": {"by": "YAK"}}, "mail")
    assert shown({"type": "state", "task": "pay", "own": {"to": "me"}}, own) == [
        "## Data: †state",
        '{"task":"pay","own":{"to":"me"}}',
        "Not shown: †state.own.by, 5 bytes that others wrote (mail)",
    ]
    page = {"type": "state", "page": [1], "_trust": ["web"]}
    assert shown({"type": "state", "task": "pay", "page": None}, page) == [
        "## Data: †state",
        '{"task":"pay"}',
        "Not shown: †state.page, 3 bytes that others wrote (web)",
    ]


def test_r16_3_names_of_fields_are_shown_where_nobody_else_chose_them() -> None:
    page = {"type": "state", "page": [1], "YAK": "YAK", "_trust": ["web"]}
    unnamed = "Not shown: 1 field of †state, 5 bytes that others wrote (web)"
    named = "Not shown: †state.page, 3 bytes that others wrote (web)"
    owns: list[dict[str, Any]] = [{"page": []}, {"task": "pay", "schema": {"properties": {"page": {}}}}]
    for own in owns:
        assert shown({"type": "state", **own}, page)[-2:] == [named, unnamed]
    both = "Not shown: 2 fields of †state, 8 bytes that others wrote (web)"
    assert both in shown({"type": "state", "task": "pay"}, page)
    assert both in told_shown({**page, "data": {"page": [1], "YAK": "YAK"}})
    for labelled in ([], [{"type": "state", "page": 1, "_trust": ["web"]}]):
        new = [wrote("†state.a", "state", {"a": 1})]
        (*_, last) = render_tick(request(), 0, NOTHING, (), [*labelled, *new], new)
        assert "## Data: †state.a\n1" in last["content"]
    put = {"type": "state", "data": {"YAK": "YAK"}, "_path": "†state.YAK", "_outputMethod": "set", "_trust": ["web"]}
    assert "## Data: †state\nNot shown: 1 field of †state, 5 bytes that others wrote (web)" in told_shown(put)


def test_r16_3_what_is_said_beside_data_of_others_is_not_shown_and_of_a_promise_its_structure() -> None:
    said = {"description": "YAK", "schema": {"title": "YAK", "properties": {"YAK": {}}}}
    assert "YAK" not in str(
        shown({"type": "state", "task": "pay"}, {"type": "state", "a": 1, "_trust": ["web"], **said})
    )
    described = {"description": "YAK", "type": "string", "enum": ["YAK"], "default": "YAK", "pattern": "YAK"}
    schema = {"type": "object", "title": "YAK", "properties": {"page": described}, "required": ["page", "YAK"]}
    lines = shown({"type": "input", "schema": schema, "description": "YAK", "_trust": ["web"]})
    assert lines == [
        "## Data: †input",
        'Schema: {"type":"object","properties":{"page":{"type":"string"}},"required":["page"]}',
    ]
    own = {"type": "state", "task": "pay", "description": "What is to do", "schema": {"title": "Tasks"}}
    lines = shown(own, {"type": "state", "a": 1, "_trust": ["web"]})
    assert lines[1:3] == ["Description: What is to do", 'Schema: {"title":"Tasks"}']


def test_r16_3_all_are_named_who_may_have_written_it_also_who_wrote_below() -> None:
    below = wrote("†state.own.by", "state", {"own": {"by": "YAK"}}, "mail")
    assert shown({"type": "state", "own": {"to": "EMU"}, "_trust": ["web", "page"]}, below) == [
        "## Data: †state",
        "{}",
        "Not shown: †state.own, 23 bytes that others wrote (mail, page, web)",
    ]


def test_r16_3_of_a_promise_what_it_names_is_left_out() -> None:
    promise = {"type": "input", "schema": {"properties": {"page": {}}}, "_trust": ["web"]}
    lines = shown(promise, {"type": "input", "page": "YAK", "task": "pay"})
    assert '{"task":"pay"}' in lines
    assert "Not shown: †input.page, 5 bytes that others wrote (web)" in lines


def test_r16_3_a_tick_tells_of_a_result_and_its_description_as_of_what_was_there() -> None:
    assert "YAK" not in told_shown(wrote("†state.a", "state", {"a": {"b": "YAK"}}, "mail", description="YAK"))
    assert "a yak" in told_shown(wrote("†state.a", "state", {"a": 1}, description="a yak"))


def test_r16_3_what_instances_share_is_compared_without_what_others_wrote() -> None:
    """Else whether it is shown again would say what others wrote there."""
    shared = {"type": "state", "task": "pay", "page": ""}, {"type": "state", "page": "YAK", "_trust": ["web"]}
    for word in ("YAK", "EMU"):
        lines = shown(*shared, {"type": "state", "_instance": "①", "page": word, "_trust": ["web"]})
        assert lines[-3:] == ["## Data: †state ①", "{}", "Not shown: †state.page, 5 bytes that others wrote (web)"]


def failed(type_: str, pointer: str, *sources: str) -> dict[str, Any]:
    error = {"type": type_, "message": "no YAK", "pointer": pointer}
    said = {"_trust": list(sources)} if sources else {}
    return {"type": "error", "_instance": "①", "data": {"call": {"_tool": "a"}, "error": error}, **said}


@pytest.mark.parametrize(
    ("type_", "pointer", "told_of"),
    [
        ("TooLarge", "/calls/0", '"type":"TooLarge","message":"not shown, since'),
        ("ValueError", "/calls/0", '"type":"Error","message":"not shown, since'),
        ("pay_YAK", "/calls/0", '"type":"Error","message":"not shown, since'),
        ("ValueError", "/calls/0/YAK", '(mail)"}}'),
    ],
)
def test_r16_3_an_error_that_may_quote_it_is_told_by_its_type_its_call_and_its_instance(
    type_: str, pointer: str, told_of: str
) -> None:
    text = told_shown(failed(type_, pointer, "mail"))
    assert told_of in text
    assert '{"instance":"①","call":{"_tool":"a"}' in text
    assert "YAK" not in text
    assert "no YAK" in told_shown(failed(type_, pointer))


# Laws of trust (SPEC R16): the proof finds whatever a run refuses, and what others wrote starts no effect.

LABELLED: dict[str, Any] = {
    **SCHEMAS,
    "fetch": {"type": "object", "_trust": {"result": ["mail"]}},
    "act": {"type": "object", "_trust": {"effects": True, "content": ["other"]}},
    "pick": {"type": "object"},
}
CONFIG = {"trust": {"otherwise": "refuse"}}


@st.composite
def _crossing(draw: st.DrawFn) -> dict[str, Any]:
    """A call that gathers one of few things: what two instances were given, and what a call of each writes."""
    places = ["†state.k0", "†state.k1", "†state.price"]
    calls = [call_of("give", to=place, value=1, _instance=name) for place, name in zip(places, "①②", strict=False)]
    one, other = draw(st.permutations(places))[:2]
    value = draw(st.sampled_from([one, one, f"{one} || {other}"]))
    return submission_of(*calls, call_of("give", to="†data.k2", value=value, _gather=True), context=CONTEXT)


@st.composite
def labelled(draw: st.DrawFn) -> dict[str, Any]:
    """A submission of which some data and results come from others, and some calls have effects.

    There are few sources, and most are read by a call with effects: where there are many, or an effect has several ways
    to one, whatever the check overlooks is hidden behind what it finds.
    """
    submission = draw(
        st.one_of(_crossing(), _crossing(), _crossing(), submissions(), submissions(), gathering(), told())
    )
    context: list[dict[str, Any]] = [{**message} for message in submission["context"]]  # some share theirs
    given = [message for message in context if message["type"] in ("state", "input")]
    plans = [message for message in context if message["type"] == "plan"]
    calls = (plans[0] if plans else submission["solution"])["calls"]
    effect = draw(st.sampled_from([call for call in calls if "_gather" in call or "_each" in call] or calls))
    likely = [one for one in (*given, *calls) if one is not effect and _is_named(one, str(effect))]
    any_ = st.sampled_from([*likely, *likely, *likely, *given, *calls])
    sources = [draw(any_) for _ in range(draw(st.sampled_from([1, 1, 1, 1, 2, 0])))]
    for source in sources:
        if "type" in source:
            source["_trust"] = [draw(st.sampled_from(["page", "mail"]))]
    for each in calls:
        alternatives = each.get("_outputPath", "").split(" || ")
        kinds = ["act", "carry"] if each is effect else ["as it is", "as it is", "as it is", "act", "carry", "pick"]
        kind = "fetch" if any(each is source for source in sources) else draw(st.sampled_from(kinds))
        if kind == "pick" and len(alternatives) > 1:
            each |= {"_tool": "pick", "paths": [f"†{one.split(' && ')[0]}" for one in alternatives]}
        elif kind in ("act", "carry", "fetch"):
            each.pop("where", None)
            each["_tool"] = "fetch" if kind == "fetch" else "act"
        if kind == "carry" and "value" in each:  # as content, which decides nothing
            each["other"] = each.pop("value")
            if "_each" in each:
                each["_each"] = ["other"]
    return {**submission, "context": context, "tools": LABELLED, "config": CONFIG}


@st.composite
def coming_after(draw: st.DrawFn) -> dict[str, Any]:
    """An effect that only comes after calls that read what others wrote, of which one may be skipped."""
    to = draw(st.sampled_from(["†state.b", "†state.b", "†state.b || †state.x", "†state.x || †state.b"]))
    calls = [
        call_of("fetch", to="†state.a"),
        call_of("give", to=to, value=draw(st.sampled_from(["†state.a.k", "†state.a.k", "†state.a", 1]))),
        call_of("give", to="†state.c", value=draw(st.sampled_from(["†state.b", "†state.x || †state.b"]))),
        call_of("act", to="†data.d", value=1, _after=[draw(st.sampled_from(["†state.b", "†state.c"]))]),
    ]
    return submission_of(*calls, tools=LABELLED, config=CONFIG)


def _is_named(one: dict[str, Any], text: str) -> bool:
    """Whether a text names a place that a message or a call may write."""
    if "type" in one:
        return any(f"†{one['type']}.{key}" in text for key in one if key != "type")
    return any(place in text for place in re.findall(r"[\w.]+", one.get("_outputPath", "")))


def varied(value: Any) -> Any:
    """Another value of the same shape and size."""
    if isinstance(value, dict):
        return {key: varied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [varied(item) for item in value]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return "".join(chr(ord(letter) ^ 1) for letter in value) if isinstance(value, str) else value


def with_other_values(submission: Mapping[str, Any]) -> dict[str, Any]:
    """A submission whose labelled data messages have other values of the same shape and size."""
    context = [
        {
            key: value if key in ("type", "schema") or key.startswith("_") else varied(value)
            for key, value in one.items()
        }
        if one.get("_trust")
        else one
        for one in submission["context"]
    ]
    return {**submission, "context": context}


def _pick(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """Chooses where it writes by all that it was given."""
    return Output(parameters["paths"][len(repr((parameters, context)).replace("1", "22")) % 2], 1)


class Watched(Driver):
    """Notes which effects have begun, with what decides."""

    def __init__(self, plan: Plan, fetched: Any, **options: Any) -> None:
        self.acts: list[tuple[str | None, int, Mapping[str, Any]]] = []
        functions = {
            **FUNCTIONS,
            "fetch": lambda parameters, context: fetched,
            "act": lambda parameters, context: parameters.get("value"),
            "pick": _pick,
        }
        super().__init__(plan, functions, **options)

    def _start(self, instance: str | None, start: Start) -> None:
        if start.call.tool == "act":
            given = {name: value for name, value in start.parameters.items() if name != "other"}
            self.acts.append((instance, start.call.index, given))
        super()._start(instance, start)


def refused(result: Result) -> list[int]:
    """The calls that were, for trust."""
    errors = ((entry.outcome.index, entry.outcome.error) for entry in result.log)
    return [index for index, error in errors if error is not None and error["type"] == UNTRUSTED]


def _checked(submission: dict[str, Any]) -> Plan:
    try:
        return check_submission(submission)
    except Rejected:
        assume(False)
        raise


@settings(max_examples=2 * TIMES * settings().max_examples)
@given(st.one_of(labelled(), coming_after()), st.integers(0, 2**32))
def test_r16_5_where_the_check_reports_no_way_no_run_refuses_a_call(submission: dict[str, Any], seed: int) -> None:
    plan = _checked(submission)
    fetched: dict[str, Any] = Random(seed).choice(({"k": 1}, {}))
    for random in (None, Random(seed)):
        assert set(refused(Watched(plan, fetched, random=random).run())) <= ways(plan)


@law
@given(labelled())
def test_r16_6_other_values_from_others_start_the_same_effects_with_the_same_that_decides(
    submission: dict[str, Any],
) -> None:
    assume(naive.is_deterministic({**submission, "tools": SCHEMAS}))
    other = with_other_values(submission)
    one, two = Watched(_checked(submission), {"k": 1}), Watched(_checked(other), {"k": 2})
    one.run()
    two.run()
    assert one.acts == two.acts


# Schedules and trust: where the check reports no way, no schedule holds or refuses a call, whatever goes wrong and
# whatever is retried (SPEC R16.5).

BATCH = 40
BATCHES = [0, *(pytest.param(batch, marks=pytest.mark.nightly) for batch in range(1, 50))]
FUNCTIONS_TRUST_SCHEDULES = {
    name: adapted(function) for name, function in {**EXPLICIT, "stamp": EXPLICIT["give"]}.items()
}


class Wide(Author):
    """Also has calls for each element, and calls that gather."""

    def _shape(self) -> None:
        gather = self._gather if self._instances else self._elements
        self._random.choice((super()._shape, self._elements, gather, self._come_after))()

    def _come_after(self) -> None:
        """One that only comes after others, and sees none of what they write."""
        place, known = self._place(), [*self._known.get(None, ()), *self._known.get(self._lane, ())]
        self._add("stamp", place, value=self._value(), _after=[self._random.choice(known[-4:] or ["†state.g"])])
        self._make(place)

    def _elements(self) -> None:
        parts, place = self._place(), self._place()
        self._add("list", parts, value=self._value())
        self._add(self._random.choice(("give", "wrap", "fail")), place, value=parts, _each="value")
        self._known.setdefault(self._lane, []).append(place)
        self._make(f"{place} || †state.g")

    def _gather(self) -> None:
        """One who reads what instances have written, or what was given to them."""
        known = [place for places in self._known.values() for place in places[-2:]]
        one, other = (self._random.choice(["†state.mine", "†state.g", *known]) for _ in range(2))
        lane, self._lane = self._lane, None
        place = self._place()
        self._add(self._plain(), place, value=self._random.choice((one, f"{one} || {other}")), _gather=True)
        self._known.setdefault(None, []).append(place)
        self._lane = lane
        self._make(place)


def labelled_trust_schedules(seed: int, author: type[Author] = Author) -> Plan:
    """A plan of which some tools have effects, and others write to some results and data. Where the check reports a way
    its call is refused. Where it reports none, a call would be held, and whoever runs it fails.
    """
    random = Random(seed)
    submission = author(random).submission()
    given, fetched = random.choice(((0.05, 0.05), (0.02, 0.1), (0.3, 0.1)))

    def trust(sources: float) -> dict[str, Any]:
        result = [name for name in ("mail", "page") if random.random() < sources]
        effects = random.random() < 0.3
        content = ["value"] if effects and random.random() < 0.7 else []
        return {"result": result, "effects": effects, "content": content}

    for message in submission["context"]:
        if message["type"] in ("state", "input"):
            message["_trust"] = trust(given)["result"]
    activities = {name: {**schema, "_trust": trust(fetched)} for name, schema in ACTIVITIES.items()}
    refusing = check_submission({**submission, "config": {"trust": {"otherwise": "refuse"}}}, activities=activities)
    return refusing if ways(refusing) else check_submission(submission, activities=activities)


def ways(plan: Plan) -> set[int]:
    """The calls with effects that others would decide, by the check."""
    return {call for finding in plan.findings if finding.code in ("ACT601", "ACT602") for call in finding.calls}


def refused_trust_schedules(plan: Plan, seed: int) -> set[int]:
    """The calls that one schedule refuses for trust."""
    random = Random(seed)
    share = random.choice((0, 0, 0.3, 1.0))
    calls = [
        (lane, call.index) for lane, one in plan.lanes.items() for call in one.calls if not call.is_fire_and_forget
    ]
    world = World(
        plan,
        lambda start, lane, attempt, context: carry_out(start, attempt, context),
        random,
        processes=random.choice((1, 2, 3)),
        misfortunes=random.choice((0, 4, 10, 30)),
        faulty={call for call in calls if random.random() < share},
    )
    world.run()
    ends = [entry.outcome for journal in world.log.journals.values() for entry in journal if isinstance(entry, Entry)]
    return {end.index for end in ends if end.error is not None and end.error["type"] == UNTRUSTED}


class Alone(Faulty):
    """Nobody is there to decide on what is held."""

    def held(self, instance: Lane, hold: Hold) -> None:
        raise AssertionError(f"call {hold.call.index} is held, and nobody is there")


def refused_in_any_order(plan: Plan, seed: int) -> set[int]:
    """The same of one order, in which calls that have failed at first are carried out again, and what was stale."""
    random = Random(seed)
    share = random.choice((0, 0.3, 1.0))
    driver = Alone(plan, lambda where: random.random() < share, random, functions=FUNCTIONS_TRUST_SCHEDULES)
    driver.run()
    ends = [event for _, event in driver.events if isinstance(event, CallEnded)]
    return {end.call for end in ends if end.error is not None and end.error["type"] == UNTRUSTED}


@pytest.mark.parametrize(
    ("author", "run", "schedules"), [(Author, refused_trust_schedules, 10), (Wide, refused_in_any_order, 5)]
)
@pytest.mark.parametrize("batch", BATCHES)
def test_r16_5_where_the_check_reports_no_way_no_schedule_holds_or_refuses_a_call(
    batch: int, author: type[Author], run: Callable[[Plan, int], set[int]], schedules: int
) -> None:
    free = stopped = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        plan = labelled_trust_schedules(seed, author)
        said, found = ways(plan), set[int]()
        for schedule in range(schedules):
            found |= run(plan, schedules * seed + schedule)
            assert found <= said, f"plan {seed}, schedule {schedule}"
        trust = [tool_trust_of(plan.trust, call.tool, call.runner.name) for call in plan.calls]
        sources = [one.result for one in trust] + [message.get("_trust") for message in plan.submission.context]
        free += any(one.effects for one in trust) and any(sources) and not said
        stopped += bool(found)
    if batch == 0:  # of forty others it may be none
        assert free, "some have effects and a source, and no way"
        assert stopped
