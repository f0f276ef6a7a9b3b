"""Analysis: a slip in a plan is found wherever it is made, and what was meant is named (SPEC R6.7).

Plans that were not made for this get one slip each, in every way of writing it.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acts_celery.protocol import Reference, Rejected, check_submission
from acts_celery.protocol.references import expression_in

from . import naive
from .foreign_plans import calls_of, nestful, of_nestful, of_pages

FOREIGN = [*of_pages(), *of_nestful(most=60)]
KNOWN = {"ACT201", "ACT204", "ACT205"}
"""What the specifications of NESTFUL's own tools contradict each other in."""
EMBEDDED = "ACT305"
"""A reference of NESTFUL's inside a longer text, which its conversion leaves as it is."""


def said_of(value: dict[str, Any]) -> list[str]:
    """The warnings on a submission, or its errors, with what to do."""
    try:
        plan = check_submission(value)
    except Rejected as rejected:
        return [problem.message for problem in rejected.errors]
    return [f"{found.message}; {found.remedy}" for found in plan.findings if found.severity == "warning"]


def plain(text: str) -> str:
    return text.removeprefix("†")


def inside(text: str) -> str:
    return text.removeprefix("†state.")


def with_segment(text: str, position: int, segment: str) -> str:
    """The reference with a segment put in at a position, counted from the end."""
    head, _, tail = text.rpartition(".")
    return f"{head}.{segment}.{tail}" if position else f"{head}.{segment}"


TEXTS: dict[str, Callable[[str], str]] = {
    "no dagger": plain,
    "white space before the dagger": lambda text: f" {text}",
    "double braces": lambda text: "{{" + plain(text) + "}}",
    "double braces with blanks": lambda text: "{{ " + plain(text) + " }}",
    "double braces without the kind": lambda text: "{{" + inside(text) + "}}",
    "dollar and braces": lambda text: "${" + plain(text) + "}",
    "dollar": lambda text: f"${plain(text)}",
    "dollars around": lambda text: f"${inside(text)}$",
    "angle brackets": lambda text: f"<{plain(text)}>",
    "braces": lambda text: "{" + plain(text) + "}",
}
REFERENCES: dict[str, Callable[[str], str]] = {
    "no kind": lambda text: f"†{inside(text)}",
    "a field with a letter too many": lambda text: f"{text}s",
    "a field with a letter missing": lambda text: text[:-1],
    "an index into an object": lambda text: with_segment(text, 1, "0"),
}
PROPERTIES = ["_outputpath", "_output_path", "outputPath", "output_path", "_outputPaht", "_OutputPath"]


def reads(value: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """The parameters that read part of a result in the state: the call, the parameter, the reference."""
    for call in calls_of(value):
        for key, text in call.items():
            expression = expression_in(text) if not key.startswith("_") and isinstance(text, str) else None
            place = expression.references[0] if expression is not None else Reference("none")
            if place.kind == "state" and len(place.path) > 1 and str(place) == text and isinstance(place.path[-1], str):
                yield call, key, text


def slipped(value: dict[str, Any], slip: Callable[[str], str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The submission with the slip in its first parameter that reads part of a result, and what was meant."""
    changed = copy.deepcopy(value)
    for call, key, text in reads(changed):
        call[key] = slip(text)
        yield text, changed
        return


def takes_texts(value: dict[str, Any]) -> bool:
    """Whether a text in place of a reference is no error by itself: the parameter's type admits it."""
    try:
        check_submission(value)
    except Rejected:
        return False
    return True


@pytest.mark.parametrize("slip", TEXTS)
def test_a_reference_written_as_a_text_is_found_and_the_reference_named(slip: str) -> None:
    made = [each for _, value in FOREIGN for each in slipped(value, TEXTS[slip])]
    looked_at = [(meant, value) for meant, value in made if takes_texts(value)]
    assert looked_at
    assert [meant for meant, value in looked_at if not any(meant in said for said in said_of(value))] == []


@pytest.mark.parametrize("slip", REFERENCES)
def test_a_wrong_reference_is_found_and_the_right_one_named(slip: str) -> None:
    plans = [value for _, value in FOREIGN if slip == "no kind" or (promises(value) and said_of(value) == [])]
    made = [each for value in plans for each in slipped(value, REFERENCES[slip]) if not each[0].endswith("]")]
    assert [meant for meant, value in made if not any(meant in said for said in said_of(value))] == []


def promises(value: dict[str, Any]) -> bool:
    """Whether the tools of a submission say what they give."""
    return all("_output" in tool.get("properties", {}) for tool in value["tools"].values())


@pytest.mark.parametrize("name", PROPERTIES)
def test_a_misspelt_property_is_found_and_the_right_one_named(name: str) -> None:
    for _, value in FOREIGN:
        changed = copy.deepcopy(value)
        call = next((call for call in reversed(calls_of(changed)) if "_outputPath" in call), None)
        if call is not None:
            path = call.pop("_outputPath")
            call[name] = path if name.startswith("_") else plain(path)
            assert any("_outputPath" in said for said in said_of(changed))


@pytest.mark.parametrize("value", [value for _, value in of_pages()], ids=[name for name, _ in of_pages()])
def test_the_plans_of_the_documentation_give_no_warning(value: dict[str, Any]) -> None:
    assert said_of(value) == []


def test_nestful_gives_only_the_contradictions_of_its_own_tools_and_each_once() -> None:
    value = nestful()
    if value is None:
        pytest.skip("the data is not there")
    found = [finding for finding in check_submission(value).findings if finding.severity == "warning"]
    assert {finding.code for finding in found} == KNOWN | {EMBEDDED}
    assert len(found) < 50
    calls = value["solution"]["calls"]
    pairs = [
        (finding.code, *(calls[index]["_tool"] for index in finding.calls), *(finding.pointer or "").split("/")[4:5])
        for finding in found
        if finding.code != EMBEDDED
    ]
    assert len(set(pairs)) == len(pairs)
    assert all(re.search(r"\$var\d", finding.message) for finding in found if finding.code == EMBEDDED)


TAKES = {"type": "object", "properties": {"userId": {}}, "_output": {"type": "object", "properties": {"name": {}}}}


@pytest.mark.parametrize("key", ["parameters", "arguments", "args"])
def test_parameters_inside_a_property_of_their_own_are_reported(key: str) -> None:
    call = {"_tool": "get", key: {"userId": "†input.id"}, "_outputPath": "†state.user"}
    plan = check_submission(
        {"context": [{"type": "input", "id": 1}], "tools": {"get": TAKES}, "solution": {"calls": [call]}}
    )
    assert [(finding.code, finding.remedy) for finding in plan.findings] == [
        ("ACT304", "parameters belong beside _tool")
    ]


@pytest.mark.parametrize("text", ["state.user", "{{state.user}}", "$state.user.name"])
def test_a_text_of_the_output_that_was_meant_to_be_read_is_reported(text: str) -> None:
    call = {"_tool": "get", "userId": 1, "_outputPath": "†state.user"}
    plan = check_submission({"tools": {"get": TAKES}, "solution": {"calls": [call], "output": {"user": text}}})
    (finding,) = plan.findings
    assert (finding.pointer, finding.severity) == ("/solution/output/user", "warning")
    assert str(finding.remedy).startswith("write †state.user")


@pytest.mark.parametrize(("text", "meant"), [("†user", "†state.user"), ("†state.usr", "†state.user")])
def test_a_misspelt_reference_of_the_output_is_answered(text: str, meant: str) -> None:
    call = {"_tool": "get", "userId": 1, "_outputPath": "†state.user"}
    with pytest.raises(Rejected) as rejected:
        check_submission({"tools": {"get": TAKES}, "solution": {"calls": [call], "output": text}})
    assert rejected.value.errors[0].message.endswith(f"did you mean {meant}?")


@pytest.mark.parametrize("text", ["state.user.name", "{{state.user.name}}", "Dear {{state.user.name}}"])
def test_where_a_tool_says_that_a_parameter_is_taken_as_it_stands_there_is_no_slip(text: str) -> None:
    found = {}
    for literal in (True, False):
        tool = {"type": "object", "properties": {"code": {"type": "string", "_literal": literal}}}
        call = {"_tool": "run", "code": text, "_outputPath": "†state.out"}
        context = [{"type": "state", "user": {"name": "Ann"}}]
        plan = check_submission({"context": context, "tools": {"run": tool}, "solution": {"calls": [call]}})
        found[literal] = [finding.code for finding in plan.findings if finding.severity != "note"]
    assert found[True] == []
    assert found[False] in (["ACT301"], ["ACT302"], ["ACT305"])


def greeting(name: Any, **parts: Any) -> dict[str, Any]:
    """A submission that greets somebody by a text."""
    tool = {"type": "object", "properties": {"name": {}, "code": {"type": "string", "_literal": True}}}
    calls = [{"_tool": "greet", "name": name, "_outputPath": "†state.greeting", **parts}]
    context = [{"type": "input", "name": "Ann"}, {"type": "input", "_instance": "b", "own": 1}]
    return {"tools": {"greet": tool}, "context": context, "solution": {"calls": calls}}


@pytest.mark.parametrize(
    ("text", "is_fault", "codes"),
    [
        ("Dear †input.name", True, []),
        ("†{input.name}, dear †input.name", True, []),
        ("see †state.greeting", True, []),  # nobody has written it yet
        ("Dear †input.own", True, []),  # an instance has it
        ("Dear ††input.name", False, []),
        ("Dear †input.nobody", False, ["ACT305"]),
        ("Dear {{input.name}}", False, ["ACT305"]),
    ],
)
def test_r2_6_a_reference_to_what_may_be_there_is_an_error_in_the_middle_of_a_text(
    text: str, is_fault: bool, codes: list[str]
) -> None:
    submission = greeting({"in": [text]})
    assert ("inside" in naive.faults(submission)) is is_fault
    if is_fault:
        with pytest.raises(Rejected, match=r"^/solution/calls/0/name/in/0: .*write .*†\{"):
            check_submission(submission)
    else:
        found = check_submission(submission).findings
        assert [finding.code for finding in found if finding.severity == "warning"] == codes


def test_r2_6_a_text_with_references_passes_where_it_is_taken_as_it_stands_or_the_code_sees_the_place() -> None:
    check_submission(greeting("x", code="print('Dear †input.name')"))
    check_submission(greeting("Dear †input.name", _scopes=["input"]))
    submission = greeting("x")
    submission["solution"]["output"] = "It is †input.name"
    with pytest.raises(Rejected, match=r"/solution/output: .* write 'It is †\{input.name\}'"):
        check_submission(submission)


def test_chat_messages_beside_a_misspelt_kind_are_no_data() -> None:
    call = {"_tool": "get", "userId": "†input.id", "_outputPath": "†stat.user"}
    context = [{"role": "user", "content": "hello"}, {"type": "input", "id": 1}]
    plan = check_submission({"context": context, "tools": {"get": TAKES}, "solution": {"calls": [call]}})
    assert "ACT414" in {finding.code for finding in plan.findings}
