"""What a person is told beyond the error itself: a caret, and the nearest name there is (SPEC R7.1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts_celery.protocol import Rejected, check_submission

from .building import call, plan_submission, problems, problems_of, submission

CONTEXT: list[dict[str, Any]] = [{"type": "state", "user": {"name": "Ада"}}, {"type": "text", "_instance": "room-1"}]
TEXT = {"type": "string"}
NOTHING = "it is not in the context and no other call writes it"


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("†stat.user", "†state.user"),
        ("†state.usr.name", "†state.user.name"),
        ("†stat.usr.nam", "†state.user.name"),
        ("†state.user.nmae", "†state.user.name"),
        ("†data.reslt", "†data.result"),
    ],
)
def test_a_misspelt_kind_or_path_is_answered_with_the_nearest(path: str, meant: str) -> None:
    (problem,) = problems_of(call(value=path), call(to="†data.result"), context=CONTEXT)
    assert problem.message == f"unresolvable reference {path}: {NOTHING}, did you mean {meant}?"


def test_a_misspelt_part_of_a_submission_and_a_misspelt_tool_property_are_answered() -> None:
    (problem,) = problems({"contxt": [], "solution": {"calls": []}})
    assert problem.message.endswith(", did you mean 'context'?")
    for tool in ("_tol", "tool"):
        (problem,) = problems({"solution": {"calls": [{tool: "use", "_outputPath": "x"}]}})
        assert problem.message == 'a call needs a "_tool"; write _tool'
    (problem,) = problems_of(call(to="†data.b", receipt="†state.a", _each="reciept"), call(to="†state.a"))
    assert problem.message.endswith("not a parameter of the call, did you mean 'receipt'?")


def test_a_hundred_misspelt_paths_among_a_hundred_are_all_answered() -> None:
    context = [{"type": "state", **{f"user{i:03}": i for i in range(100)}}]
    found = problems_of(*[call(value=f"†state.usr{i:03}") for i in range(100)], context=context)
    assert [problem.message.endswith(f"did you mean †state.user{i:03}?") for i, problem in enumerate(found)] == [
        True
    ] * 100


@pytest.mark.parametrize("path", ['†input.rows["1"]', "†input.rows.01"])
def test_an_element_of_a_list_is_meant_by_its_number(path: str) -> None:
    (problem,) = problems_of(call(value=path), context=[{"type": "input", "rows": ["a", "b"]}])
    assert problem.message.endswith("did you mean †input.rows.1?")


@pytest.mark.parametrize("path", ["†input.7", "†input.a && †input.7", "†input.a || †input.7"])
def test_what_only_an_instance_holds_is_reported_to_a_call_without_one(path: str) -> None:
    context = [{"type": "text", "_instance": "②"}, {"type": "input", "_instance": "①", "7": "x"}]
    (problem,) = problems_of(call(value=path), context=[*context, {"type": "input", "_instance": "①", "a": 1}])
    assert (
        problem.message
        == f"unresolvable reference {path}: {NOTHING}; instance '①' holds it, and the call has no _instance: "
        'write that one, or "*" for a call in each instance'
    )


def test_what_another_instance_holds_is_not_reported_to_a_call_of_an_instance() -> None:
    context = [{"type": "input", "_instance": "①", "a": "x"}, {"type": "text", "_instance": "②"}]
    nothing = "unresolvable reference †input.a: it is not in the context of instance '②' and no other call writes it"
    for value in (plan_submission(call(value="†input.a"), context=context),
                  submission(call(value="†input.a", _instance="②"), context=context)):  # fmt: skip
        (problem,) = problems(value)
        assert problem.message.partition(";")[0] == nothing
        assert "①" not in problem.message


def test_no_place_is_suggested_that_the_reader_cannot_see() -> None:
    context = [{"type": "state", "_instance": "①", "user": {"name": 1}}, {"type": "state", "user": {"age": 1}}]
    (problem,) = problems_of(call(value="†state.user.nam"), context=context)
    assert problem.message == f"unresolvable reference †state.user.nam: {NOTHING}; †state.user has 'age'"
    (problem,) = problems_of(call(value="†state.user.nam", _instance="①"), context=context)
    assert problem.message.endswith("writes it, did you mean †state.user.name?")
    elsewhere = call(to="†state.user.name", _instance="②"), call(to="name", _instance="②")
    (problem,) = problems_of(*elsewhere, call(value="†state.user.nam"), context=[{"type": "state", "_instance": "②"}])
    assert problem.message == f"unresolvable reference †state.user.nam: {NOTHING}"


def test_what_only_an_instance_holds_is_reported_to_an_output_as_what_it_does_not_read() -> None:
    context = [{"type": "state", "_instance": "①", "x": 1}]
    (problem,) = problems({"context": context, "solution": {"calls": [], "output": "†state.x"}})
    assert problem.message.endswith("instance '①' holds it, and the output reads only what all instances share")


def test_of_what_a_call_writes_in_another_instance_it_is_reported_which_and_where() -> None:
    context = [{"type": "state", "_instance": "①"}, {"type": "state", "_instance": "②"}]
    writing = call(to="†state.x", _instance="①")
    (problem,) = problems_of(writing, call(value="†state.x"), context=context)
    assert problem.message == (
        f"unresolvable reference †state.x: {NOTHING}; call 0 writes †state.x in instance '①', "
        "and the call has no _instance"
    )
    (problem,) = problems_of(writing, call(value="†state.x.y || †state.z", _instance="②"), context=context)
    assert problem.message == (
        "unresolvable reference †state.x.y || †state.z: it is not in the context of instance '②' and no other call "
        "writes it; call 0 writes †state.x.y in instance '①', whose data the call does not see"
    )


def test_what_only_the_reader_itself_writes_is_not_reported_as_of_another_instance() -> None:
    context = [{"type": "state", "_instance": "①"}]
    (problem,) = problems_of(call(value="†state.x", to="†state.x", _instance="①"), context=context)
    assert problem.message.endswith("of instance '①' and no other call writes it")


@pytest.mark.parametrize("to", ["†state.totals", "state.total", "†stata.total"])
def test_what_only_the_call_itself_writes_is_not_suggested(to: str) -> None:
    (problem,) = problems_of(call(value="†state.total", to=to))
    assert problem.message == f"unresolvable reference †state.total: {NOTHING}"
    (problem,) = problems_of(call(value="†state.total", to="†state.totals"), call(to="†state.totals"))
    assert problem.message == f"unresolvable reference †state.total: {NOTHING}, did you mean †state.totals?"


@pytest.mark.parametrize(
    ("written", "read"),
    [("state.x", "†state.x"), ("state.x", "†state.x.name"), ("state.x.name", "†state.x"), ("input.x", "†input.x")],
)
def test_what_only_a_dagger_is_missing_from_is_reported_to_whoever_reads_there(written: str, read: str) -> None:
    (problem,) = problems_of(call(value=read), call(to=written))
    assert problem.message == (
        f"unresolvable reference {read}: {NOTHING}; call 1 (give) writes to †state.{written}, since a path without † "
        f"is one inside state, did you mean †{written}?"
    )


def test_a_path_without_a_dagger_explains_nothing_that_is_missing_elsewhere() -> None:
    (problem,) = problems_of(call(value="†state.y"), call(to="state.x"))
    assert problem.message == f"unresolvable reference †state.y: {NOTHING}"


@pytest.mark.parametrize(
    ("path", "meant"),
    [("†user.name", "†state.user.name"), ("†user.nam", "†state.user.name"), ("†made.x", "†data.made.x")],
)
def test_a_reference_without_its_kind_is_completed(path: str, meant: str) -> None:
    (problem,) = problems_of(call(value=path), call(to="†data.made"), context=[{"type": "state", "user": {"name": 1}}])
    assert problem.message == f"unresolvable reference {path}: {NOTHING}, did you mean {meant}?"


@pytest.mark.parametrize("path", ["†zebra.user", "†state.zebra"])
def test_what_is_like_nothing_there_gets_no_hint(path: str) -> None:
    (problem,) = problems_of(call(value=path), context=CONTEXT)
    assert problem.message == f"unresolvable reference {path}: {NOTHING}"


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("†state.user.phone", "†state.user has 'name', 'e\\nmail'"),
        ("†state.user.phone.home", "†state.user has 'name', 'e\\nmail'"),
        ("†state.user.name.x", "†state.user.name is a string"),
        (
            "†state.rows.sku",
            "†state.rows is a list of 2: †state.rows.0.sku is of its first element, †state.rows is the whole list, and "
            "no reference reads a part of each",
        ),
        (
            "†state.rows.*.sku",
            "†state.rows is a list of 2: †state.rows.0.sku is of its first element, †state.rows is the whole list, and "
            "no reference reads a part of each",
        ),
        ("†state.nothing.x", "†state.nothing is an object without fields"),
        ("†state.wide.x", "'f10', 'f11' and 8 more"),
        ("†state.user.phone || †state.rows.9", "†state.user has 'name', 'e\\nmail'"),
    ],
)
def test_where_a_field_is_not_there_those_that_are_there_are_named(path: str, told: str) -> None:
    wide = {f"f{number}": number for number in range(20)}
    state = {"user": {"name": "Ann", "e\nmail": "a@b"}, "rows": [1, 2], "nothing": {}, "wide": wide}
    (problem,) = problems_of(call(value=path), context=[{"type": "state", **state}])
    assert problem.message.startswith(f"unresolvable reference {path}: {NOTHING}; ")
    assert problem.message.endswith(told)


def test_where_the_call_that_was_to_write_a_value_has_failed_its_error_is_named() -> None:
    failed = {"_tool": "refund", "order": "A7", "_outputPath": "refund"}
    error = {"call": failed, "error": {"type": "Failed", "message": "order A7 is closed", "pointer": "/calls/0"}}
    (problem,) = problems_of(call(value="†state.refund.id"), context=[{"type": "error", "data": error}])
    assert problem.message.endswith("; refund, which was to write it, failed: order A7 is closed")


def test_misspelt_tools_and_instances_are_answered_too() -> None:
    value = submission(call("giev"), call(_instance="rom-1"), context=CONTEXT)
    del value["tools"]["giev"]
    assert [str(problem) for problem in problems(value)] == [
        "/solution/calls/0/_tool: unknown tool 'giev', did you mean 'give'?",
        "/solution/calls/1/_instance: instance 'rom-1' is not in the context, did you mean 'room-1'?",
    ]


def test_hints_know_the_data_of_instances() -> None:
    context = [{"type": "state", "_instance": "①", "text": "x"}]
    (problem,) = problems(plan_submission(call(value="†state.txt"), context=context))
    assert problem.message.endswith("of instance '①' and no other call writes it, did you mean †state.text?")


@pytest.mark.parametrize(
    ("raw", "excerpt"),
    [
        (call(value="†state. name"), "†state. name\n       ^"),
        (call(value=[{"deep": "†state.a | b"}]), "†state.a | b\n         ^"),
        (call(to="†state..a"), "†state..a\n       ^"),
        (call(_scopes=["†a && †b ||"]), "†a && †b ||\n           ^"),
    ],
)
def test_an_expression_that_does_not_parse_comes_with_a_caret(raw: dict[str, Any], excerpt: str) -> None:
    (problem,) = problems_of(raw, context=CONTEXT)
    assert problem.excerpt == excerpt
    assert "\n" not in problem.message


def test_other_problems_have_no_excerpt() -> None:
    assert [problem.excerpt for problem in problems_of(call(value="†x"))] == [None]


SUMMARY: dict[str, Any] = {"_output": {"properties": {"total": {}, "open": {}}}}


@pytest.mark.parametrize(
    ("pathless", "tools", "path", "meant"),
    [
        (call("summary"), {}, "†state.summary.total", "†state.summary"),
        (
            call("count"),
            {"count": {"_outputPath": {"enum": ["†state.a", "done.all"]}}},
            "†state.done",
            "†state.done.all",
        ),
        (call("getSummary"), {}, "†data.summary", "†data.summary"),
        (call("look"), {"look": SUMMARY}, "†state.found.total", "†state.found"),
        ({"_tool": "summary", "_output": 1}, {}, "†state.summary", "†state.summary"),
    ],
)
def test_r6_3_the_call_that_lacks_an_output_path_is_named(pathless: Any, tools: Any, path: str, meant: str) -> None:
    (problem,) = problems_of(call("other"), pathless, call("tell", value=path), tools=tools)
    assert problem.pointer == "/solution/calls/2/value"
    told = f'; call 1 ({pathless["_tool"]}) has no _outputPath: give it "_outputPath": "{meant}"'
    assert problem.message == f"unresolvable reference {path}: {NOTHING}{told}"


def test_r6_3_the_only_call_without_an_output_path_is_named_where_nothing_else_is_near() -> None:
    (problem,) = problems_of(call("collect"), call("tell", value="†state.x"))
    assert problem.message.endswith("; call 0 (collect) has no _outputPath: add one if its result is meant")
    (problem,) = problems_of(call("tell", value="†state.x"), call("collect"))
    assert problem.message.endswith(NOTHING)


def test_r6_3_a_plan_that_is_context_beside_a_solution_is_named() -> None:
    plan = {"type": "plan", "calls": [call("get", "†state.other"), call("read", "†state.read")]}
    (problem,) = problems_of(call("tell", value="†state.read.x"), context=[plan])
    assert "; the plan at /context/0/calls/1 writes it, and beside a solution a plan is context" in problem.message
    assert "_gather" not in problem.message
    instance = {"type": "state", "_instance": "①", "x": 1}
    (problem,) = problems_of(call("tell", value="†state.read"), context=[instance, plan])
    assert '"_gather": true' in problem.message


@pytest.mark.parametrize("path", ["†input.user.name", "†input.a || †state.b"])
def test_r6_3_a_promise_is_offered_for_an_input(path: str) -> None:
    (problem,) = problems_of(call("tell", value=path))
    assert "; if it comes later, promise it by a message " in problem.message
    promise = json.loads(problem.message.rpartition("message ")[2])
    assert check_submission(submission(call("tell", value=path), context=[promise])).promised


def test_r6_3_what_is_near_counts_before_what_is_only_likely() -> None:
    context = [{"type": "input", "user": 1}]
    (problem,) = problems_of(call("collect"), call("tell", value="†input.usr"), context=context)
    assert problem.message.endswith("did you mean †input.user?")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("†{†state.user.name}", "did you mean '†{state.user.name}'?"),
        ("see †{†state.a || †state.b}", "did you mean 'see †{state.a || state.b}'?"),
        ("†{{state.user.name}}", "did you mean '†{state.user.name}'?"),
        ("†{{user.name}}!", "did you mean '†{state.user.name}!'?"),
        ("a †{state.user.name", "did you mean 'a †{state.user.name}'?"),
        ("† at †{state.user.name", "did you mean '†† at †{state.user.name}'?"),
        ("Dear †{state.user.name, ††!", "did you mean 'Dear †{state.user.name}, ††!'?"),
        ("a †{state.user.name and †{state.user}", "did you mean 'a †{state.user.name} and †{state.user}'?"),
        ("†state.user.name ①", "did you mean '†state.user.name'?"),
        ("Dear †{state.user.name ①}!", "did you mean 'Dear †{state.user.name}!'?"),
        ("†state.user.name, welcome", "did you mean '†{state.user.name}, welcome'?"),
        ("†state.user.name and {†state.user}", "did you mean '†{state.user.name} and †{state.user}'?"),
    ],
)
def test_a_template_that_does_not_parse_is_answered_with_the_one_that_was_meant(text: str, hint: str) -> None:
    (problem,) = problems_of(call(value=text), context=CONTEXT)
    assert problem.message.endswith(f"; {hint}")


@pytest.mark.parametrize("text", ["†state.a | †state.b", "†{state.a b}", "†{}", "†{state.a.}", "†{state.a || }", "†.x"])
def test_where_it_is_not_plain_what_was_meant_nothing_is_said(text: str) -> None:
    (problem,) = problems_of(call(value=text), context=CONTEXT)
    assert ";" not in problem.message


@pytest.mark.parametrize(
    ("properties", "hint"),
    [
        ({"_outputPath": "†{state.out}"}, "; write †state.out"),
        ({"_scopes": ["†{state.user}"]}, "; write †state.user"),
        ({"_outputPath": "†{state.out}.†{state.user.name}"}, "; no template is read here"),
    ],
)
def test_a_template_where_none_is_read_is_answered_with_the_reference(properties: dict[str, Any], hint: str) -> None:
    (problem,) = problems_of(call(**properties), context=CONTEXT)
    assert problem.message.endswith(hint)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("Dear {{user.name}}.", "write 'Dear †{state.user.name}.'"),
        (
            "Dear †state.user.name, {state.user} ${state.user.name}",
            "write 'Dear †{state.user.name}, †{state.user} †{state.user.name}'",
        ),
        (
            "†{state.user.name}: {†state.user}, {†state.user.name}",
            "write '†{state.user.name}: †{state.user}, †{state.user.name}'",
        ),
        ("Dear †{state.user.name}, ††state.user.name ††{state.user.name} {user}", None),
    ],
)
def test_what_was_meant_to_be_read_in_a_text_is_found_and_the_template_named(text: str, remedy: str | None) -> None:
    try:
        plan = check_submission(submission(call(to="†state.out", value=text), context=CONTEXT))
    except Rejected as rejected:
        (problem,) = rejected.errors
        assert "†state.user" in text, "a reference to a known place is an error"
        assert problem.message.count("write ") == 1
        assert f": {remedy}; " in problem.message
    else:
        found = [finding.remedy for finding in plan.findings if finding.code == "ACT305"]
        assert found == ([remedy] if remedy is not None else [])


def test_what_a_template_reads_is_looked_at_and_its_type_is_not() -> None:
    context = [{"type": "state", "user": {"name": "Ada", "tags": ["a"]}}]
    tools = {"give": {"type": "object", "properties": {"value": {"type": "string"}}}}
    for text, codes in (("†state.user.tags", ["ACT202"]), ("<†{state.user.tags}>", []), ("†{state.user.tags}", [])):
        plan = check_submission(submission(call(to="†state.out", value=text), context=context, tools=tools))
        assert [finding.code for finding in plan.findings] == codes
    made = {"properties": {"_output": {"type": "object", "properties": {"name": TEXT}, "additionalProperties": False}}}
    calls = [call("make", to="†state.it"), call(to="†state.out", value="<†{state.it.nmae}>")]
    plan = check_submission(submission(*calls, tools={**tools, "make": made}))
    assert [(finding.code, finding.calls) for finding in plan.findings] == [("ACT204", (0, 1))]


def test_a_kind_of_ones_own_in_scopes_that_is_meant_as_a_parameter_is_answered_with_how_to_get_it() -> None:
    tools = {"see": {"type": "object", "properties": {"profile": {}}, "required": ["profile"]}}
    context = [{"type": "data", "kind": "profile", "data": {"a": 1}}]
    (problem,) = problems_of(call("see", _scopes=["†profile.a"]), context=context, tools=tools)
    assert '"profile": "†profile"' in problem.message
    assert "(call, context)" in problem.message
    (problem,) = problems_of(call("see", _scopes=["state"]), context=context, tools=tools)
    assert "(call, context)" not in problem.message
