"""What was hardly meant so: misspelt meta-properties, paths without a dagger, unwanted results (SPEC R6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission

from .building import ANY, call, checked, plan_submission, problems_of, submission

A_SCOPE = 'must be a kind such as "state" or a reference such as "†state.user"'
NAMED = {"give": {"type": "object", "properties": {}, "additionalProperties": False}}
"""The signature of a function that takes no whole call."""
TWO = [{"type": "text", "_instance": name} for name in "①②"]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("_outputpath", "_outputPath"),
        ("_output_path", "_outputPath"),
        ("_instnce", "_instance"),
        ("_scope", "_scopes"),
        ("_import", "_imports"),
        ("_deligate", "_delegate"),
        ("_outputMethd", "_outputMethod"),
    ],
)
def test_a_misspelt_meta_property_is_told_with_the_known_one(written: str, meant: str) -> None:
    (finding,) = checked(call(), call(**{written: "x"}), activities=NAMED).findings
    assert finding.to_dict() == {
        "severity": "warning",
        "message": f"call 1 (give) has the property {written}, which means nothing, did you mean {meant!r}?",
        "calls": [1],
        "pointer": f"/solution/calls/1/{written}",
    }


def test_a_slip_does_not_hide_what_becomes_of_its_call() -> None:
    written = call("think", "†state.n", _output=3, _outputMethod="push")
    context = [{"type": "state", "schema": {"properties": {"n": {"maxItems": 2}}}, "n": [1, 2]}]
    (told,) = checked(written, context=context, activities={}).findings
    slip, beside = checked({**written, "_outputpath": "n"}, context=context, activities={}).findings
    assert (slip.pointer, beside) == ("/solution/calls/0/_outputpath", told)


@pytest.mark.parametrize("key", ["_note", "_date", "_reason", "_id", "_input", "_" * 5_000, "outputpath"])
def test_a_meta_property_of_ones_own_is_no_slip(key: str) -> None:
    assert checked(call(**{key: "x"})).findings == ()


def test_a_meta_property_that_the_tool_speaks_of_is_no_slip() -> None:
    assert checked(call(_scope="x"), tools={"give": {"properties": {"_scope": {"type": "string"}}}}).findings == ()


def test_many_misspelt_properties_take_no_time_and_do_not_flood_the_answer() -> None:
    plan = checked(*[{"_tool": "give", f"_outputPat{number}": 1} for number in range(20_000)])
    assert 0 < len(plan.findings) <= 101


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("state.x", "†state.x"),
        ("state", "†state"),
        ("input.query", "†input.query"),
        ("†state.a && data.x", "†data.x"),
        ("state.a.b || †state.c", "†state.a.b"),
    ],
)
def test_a_path_without_a_dagger_that_begins_with_a_kind_is_told(path: str, meant: str) -> None:
    (finding,) = checked(call(to=path)).findings
    inside = meant.replace("†", "†state.")
    assert (finding.severity, finding.pointer) == ("warning", "/solution/calls/0/_outputPath")
    assert finding.message == (
        f"call 0 (give) writes to {inside}, since a path without † is one inside state, did you mean {meant}?"
    )


@pytest.mark.parametrize("path", ["†state.state.x", "x.state", "error", "data", "status", 'a["||"].state'])
def test_other_paths_are_no_slip(path: str) -> None:
    assert checked(call(to=path)).findings == ()


def test_a_path_that_somebody_reads_or_that_is_there_is_meant_so() -> None:
    assert checked(call(to="state.x"), call(value="†state.state.x")).findings == ()
    assert checked(call(to="input.x"), context=[{"type": "state", "input": {"y": 1}, "data": {}}]).findings
    assert checked(call(to="input.x"), context=[{"type": "state", "data": {"input": {}}}]).findings == ()


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"data": {"type": "object"}}},
        {"required": ["data"]},
        {"$ref": "#/$defs/s", "$defs": {"s": {"allOf": [{"properties": {"data": {}}}]}}},
    ],
)
def test_a_path_that_the_schema_of_the_state_names_is_meant_so(schema: dict[str, Any]) -> None:
    assert checked(call(to="data.x"), context=[{"type": "state", "schema": schema}]).findings == ()
    assert checked(call(to="input.x"), context=[{"type": "state", "schema": schema}]).findings != ()


def test_a_path_that_is_there_in_an_instance_is_meant_so() -> None:
    context = [{"type": "state", "_instance": "①", "input": {"a": 1}}]
    assert check_submission(plan_submission(call(to="input.x"), context=context)).findings == ()
    assert check_submission(plan_submission(call(to="data.x"), context=context)).findings != ()


@pytest.mark.parametrize("whole", [{"_scopes": ["state"]}, {"all": "†state"}])
def test_who_reads_the_whole_kind_means_it_unless_another_reads_where_it_would_lead(whole: dict[str, Any]) -> None:
    context = [{"type": "state", "x": 1}]
    assert undaggered(call(to="state.x"), call(**whole), context=context) == []
    assert (
        undaggered(call(to="state.x"), call(**whole), call(value="†state.y"), context=[{"type": "state", "y": 1}]) == []
    )
    assert undaggered(call(to="state"), call(**whole), call(value="†state.x"), context=context) == []
    assert undaggered(call(to="state.x"), call(**whole), call(value="†state.x"), context=context) == [
        "call 0 (give) writes to †state.state.x, since a path without † is one inside state, did you mean †state.x?"
    ]


def undaggered(*calls: dict[str, Any], context: list[dict[str, Any]]) -> list[str]:
    findings = checked(*calls, context=context).findings
    return [finding.message for finding in findings if (finding.pointer or "").endswith("/_outputPath")]


def test_a_path_without_a_dagger_that_begins_with_a_kind_of_ones_own_may_be_a_slip_where_another_reads_that() -> None:
    context = [{"type": "data", "kind": "profile", "data": {"name": "x"}}]
    (finding,) = checked(call(to="profile.name"), call(value="†profile.name"), context=context).findings
    assert finding.to_dict() == {
        "severity": "info",
        "message": "call 0 (give) writes to †state.profile.name, since a path without † is one inside state, did you "
        "mean †profile.name?",
        "calls": [0],
        "pointer": "/solution/calls/0/_outputPath",
    }


@pytest.mark.parametrize(
    "calls",
    [
        [call(to="profile.name")],
        [call(to="profile.name", value="†profile.name")],
        [call(to="profile.name"), call(value="†profile.age")],
        [call(to="profile.name"), call(value="†profile.name", _scopes=["state"])],
        [call(to="profile.name"), call(value="†profile.name"), call(value="†state.profile.name")],
        [call(to="profile"), call(value="†profile.name")],
    ],
)
def test_the_state_may_have_a_namesake_of_a_kind_of_ones_own(calls: list[dict[str, Any]]) -> None:
    context = [{"type": "data", "kind": "profile", "data": {"name": "x", "age": 1}}]
    assert undaggered(*calls, context=context) == []


@pytest.mark.parametrize(
    "path", ["{{state.x}}", "${state.x}", "$state.x", "$.state.x", "{state.x}", "state/x", "/state/x"]
)
def test_a_path_as_other_systems_write_it_is_told(path: str) -> None:
    (finding,) = checked(call(to=path), call(value="†state.x"), context=[{"type": "state", "x": 1}]).findings
    assert (finding.severity, finding.pointer) == ("warning", "/solution/calls/0/_outputPath")
    assert finding.message.endswith("since a path without † is one inside state, did you mean †state.x?")


@pytest.mark.parametrize("path", ["data/report", "a/b", "{{draft}}", "$", "†state.a/b", "†state.{{state.x}}"])
def test_a_path_that_names_no_kind_is_one_inside_the_state(path: str) -> None:
    assert undaggered(call(to=path), context=[{"type": "state", "x": 1}]) == []


@pytest.mark.parametrize(
    ("path", "meant"), [("†State.x", "†state.x"), ("†INPUT", "†input"), ("†Profile.x", "†profile.x")]
)
def test_an_output_path_of_a_known_kind_in_other_letters_is_told(path: str, meant: str) -> None:
    context = [{"type": "data", "kind": "profile", "data": {"name": "x"}}]
    (finding,) = checked(call(to=path), context=context).findings
    assert finding.to_dict() == {
        "severity": "info",
        "message": f"call 0 (give) writes to {path}; no message is of that kind, and nobody reads it: did you mean "
        f"{meant}?",
        "calls": [0],
        "pointer": "/solution/calls/0/_outputPath",
    }


@pytest.mark.parametrize("path", ["†states.x", "†stats.x", "†result.x", "†summary", "†Profiles.x"])
def test_an_output_path_of_a_kind_of_ones_own_is_no_slip(path: str) -> None:
    assert undaggered(call(to=path), context=[{"type": "state", "x": 1}]) == []


def test_a_kind_that_is_read_or_that_a_message_is_of_is_no_slip() -> None:
    state = {"type": "data", "kind": "State", "data": {"y": 1}}
    assert undaggered(call(to="†State.x"), call(value="†State.x"), context=[]) == []
    assert undaggered(call(to="†State.x"), call(_scopes=["State"]), context=[]) == []
    assert undaggered(call(to="†State.x"), context=[state]) == []


def test_a_path_that_a_tool_pins_is_told_at_its_call() -> None:
    (finding,) = checked(call(), tools={"give": {"_outputPath": "state.x"}}).findings
    assert finding.pointer == "/solution/calls/0"


def test_a_method_without_a_path_does_nothing() -> None:
    (finding,) = checked(call(_outputMethod="push")).findings
    assert finding.to_dict() == {
        "severity": "warning",
        "message": "call 0 (give) has an _outputMethod and no _outputPath, so that its result goes nowhere: say where "
        "it goes, or leave _outputMethod out",
        "calls": [0],
        "pointer": "/solution/calls/0/_outputMethod",
    }


def test_a_method_is_no_slip_where_there_is_a_path_or_the_call_does_not_name_it() -> None:
    assert checked(call(to="†state.x", _outputMethod="push")).findings == ()
    assert checked(call(_outputMethod=None)).findings == ()
    assert checked(call(), tools={"give": {"_outputMethod": "push"}}).findings == ()
    assert checked(call(_outputMethod="push"), tools={"give": {"_outputPath": "†state.x"}}).findings == ()


@pytest.mark.parametrize(
    ("properties", "options", "runs"),
    [
        ({}, {"activities": {"give": {}}}, "activity 'give'"),
        ({"_activity": "other"}, {}, "activity 'other'"),
        ({"_delegate": "anonymous"}, {}, "delegate 'anonymous'"),
    ],
)
@pytest.mark.parametrize("to", [{}, {"to": "†state.x"}])
def test_a_written_result_is_told_where_another_gives_it(
    properties: dict[str, Any], options: dict[str, Any], runs: str, to: dict[str, Any]
) -> None:
    (finding,) = checked(call(_output={"id": 1}, **properties, **to), **options).findings
    assert finding.to_dict() == {
        "severity": "warning",
        "message": f"call 0 (give) has an _output, which is not taken for its result: {runs} runs it; leave _output "
        "out, or call a tool that nothing runs",
        "calls": [0],
        "pointer": "/solution/calls/0/_output",
    }


def test_a_written_result_is_told_where_the_tool_is_an_activity_that_nobody_declared() -> None:
    value = {"context": [], "solution": {"calls": [call(_output=1)]}}
    (finding,) = check_submission(value, activities={"give": {}}).findings
    assert finding.pointer == "/solution/calls/0/_output"


def test_a_written_result_is_no_slip_where_nobody_is_known_to_give_another() -> None:
    assert checked(call(to="†state.x", _output=1)).findings == ()
    assert checked(call(to="†state.x", _output=1), activities={}).findings == ()
    assert checked(call(to="†state.x", _output=None), activities={"give": {}}).findings == ()


def test_an_output_that_the_schema_of_the_submission_forbids_is_told() -> None:
    value = submission(call(), schema={"properties": {"a": {"type": "string"}}})
    value["solution"]["output"] = {"a": 5}
    (finding,) = check_submission(value).findings
    assert finding.to_dict() == {
        "severity": "warning",
        "message": "the solution's output is not what the schema of the submission admits: 5 is not of type 'string'; "
        "change one of them",
        "calls": [],
        "pointer": "/solution/output/a",
    }


@pytest.mark.parametrize("parts", [{"schema": {"type": "string"}}, {"schema": {"type": "integer"}}, {}])
def test_an_output_that_is_not_given_or_is_admitted_is_no_slip(parts: dict[str, Any]) -> None:
    value = submission(call(), **parts)
    value["solution"]["output"] = 5 if parts.get("schema") != {"type": "string"} else None
    assert check_submission(value).findings == ()


@pytest.mark.parametrize(
    ("properties", "at", "message"),
    [
        ({"_tool": ""}, "_tool", 'a call needs a "_tool", the name of a tool (found: an empty text)'),
        ({"_tool": 5}, "_tool", 'a call needs a "_tool", the name of a tool (found: number)'),
        ({"_tool": None}, "_tool", 'a call needs a "_tool"'),
        ({"_outputPath": ""}, "_outputPath", "is empty: name a place such as †state.result, or leave _outputPath out"),
        ({"_outputPath": " "}, "_outputPath", "is empty: name a place such as †state.result, or leave _outputPath out"),
        ({"_instance": ""}, "_instance", "is empty: name an instance of the context, or leave _instance out"),
        ({"_scopes": [5]}, "_scopes/0", f"{A_SCOPE} (found: number)"),
        ({"_scopes": ["state", None]}, "_scopes/1", f"{A_SCOPE} (found: null)"),
        ({"_scopes": [""]}, "_scopes/0", f"{A_SCOPE} (found: an empty text)"),
    ],
)
def test_what_is_empty_or_of_another_type_is_told_with_what_is_expected(
    properties: dict[str, Any], at: str, message: str
) -> None:
    (problem,) = problems_of({**call(), **properties})
    assert (problem.pointer, problem.message) == (f"/solution/calls/0/{at}", message)


def test_a_slip_of_a_template_is_told_once_and_where_the_template_stands() -> None:
    plan = check_submission(plan_submission(call(_scope=["state"], to="state.x"), context=TWO))
    assert [finding.pointer for finding in plan.findings] == [
        "/context/2/calls/0/_scope",
        "/context/2/calls/0/_outputPath",
    ]


def test_a_misspelt_delegate_is_answered_with_the_nearest_that_is_known() -> None:
    value = submission(call(_delegate="translater"), delegates={"translator": {}})
    for registered in ((), ["other"]):
        (problem,) = problems_of(*value["solution"]["calls"], delegates=value["delegates"], registered=registered)
        assert problem.message == "unknown delegate 'translater', did you mean 'translator'?"
    (problem,) = problems_of(call(_delegate="summariser"), registered=["summarizer"])
    assert problem.message.endswith("did you mean 'summarizer'?")


def test_a_result_that_nobody_reads_is_no_finding_where_no_schema_says_what_is_wanted() -> None:
    plan = checked(call(to="†state.answer"), tools={"give": ANY})
    assert (plan.findings, plan.unread) == ((), (0,))


def test_a_parameter_that_is_nearly_one_that_the_tool_names_is_told() -> None:
    tools: dict[str, Any] = {"say": {"properties": {"text": {}, "targetLanguage": {}}}}
    (finding,) = checked(call("say", text="a", targetlanguage="de"), tools=tools).findings
    assert (finding.severity, finding.pointer) == ("info", "/solution/calls/0/targetlanguage")
    assert finding.message.endswith("which its tool does not name, did you mean 'targetLanguage'?")
    assert checked(call("say", text="a", targetLanguage="de", targetlanguage="x", note=1), tools=tools).findings == ()


def test_a_parameter_that_the_tool_names_by_a_pattern_is_named() -> None:
    names: dict[str, Any] = {"properties": {"line1": {}, "line3": {}}}
    numbered: dict[str, Any] = {"patternProperties": {r"^line\d$": {}}}
    for tool in ({**names, **numbered}, {**names, "anyOf": [numbered]}):
        assert checked(call("say", line1="a", line2="b"), tools={"say": tool}).findings == ()
    (finding,) = checked(call("say", line1="a", lineX="b"), tools={"say": {**names, **numbered}}).findings
    assert finding.pointer == "/solution/calls/0/lineX"


def test_a_pattern_for_parameters_names_no_meta_property() -> None:
    (finding,) = checked(call(_scope="x"), tools={"give": {"patternProperties": {".": {}}}}).findings
    assert finding.pointer == "/solution/calls/0/_scope"
    assert checked(call(_scope="x"), tools={"give": {"patternProperties": {"^_s": {}}}}).findings == ()


def test_of_many_calls_with_unknown_parameters_no_more_is_compared_than_of_one() -> None:
    tools: dict[str, Any] = {"say": {"properties": {f"{'text' * 20}{number}": {} for number in range(30)}}}
    alike = {"_tool": "say", f"{'text' * 20}x": 1}
    unlike = [{"_tool": "say", f"{'zyxw' * 20}{number}": 1} for number in range(3_000)]
    assert checked(*unlike, alike, tools=tools).findings == ()
    (finding,) = checked(alike, *unlike, tools=tools).findings
    assert finding.calls == (0,)
