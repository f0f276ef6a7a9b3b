"""References that stay text although what they name is there (SPEC R2.2, R2.4)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission

from .building import call, checked, plan_submission, submission

THERE = [{"type": "state", "x": 1, "user": {"first-name": "Bo"}}]


@pytest.mark.parametrize("text", [" †state.x", "\n†state.x", "\u00a0 †state.x || †input.y"])
def test_white_space_before_a_dagger_is_told(text: str) -> None:
    (finding,) = checked(call(value={"in": [1, text]}), context=[{"type": "state", "x": 1}]).findings
    assert finding.to_dict() == {
        "severity": "warning",
        "message": "call 0 (give) reads nothing here: white space before the † makes it a text, did you mean "
        f"{text.strip()}?",
        "calls": [0],
        "pointer": "/solution/calls/0/value/in/1",
    }


@pytest.mark.parametrize(
    "text", [" †", " † died 1852", " †deceased", " ††state.x", "see ††state.x", "†† †state", "see †state.y"]
)
def test_a_text_with_a_dagger_in_it_is_no_slip(text: str) -> None:
    assert checked(call(value=text), context=[{"type": "state", "x": 1}]).findings == ()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Hello †state.x!", "†state.x"),
        ("(†state.x)", "†state.x"),
        ("†† of †state.user.first-name.", "†state.user.first-name"),
        ("of †state.x, †state.x and †state.nowhere", "†state.x"),
        ("the new †data.made.part", "†data.made.part"),
    ],
)
def test_a_reference_inside_a_longer_text_is_told_where_something_is_there(text: str, place: str) -> None:
    (finding,) = checked(call(value={"in": [text]}), call(to="†data.made"), context=THERE).findings
    assert finding.to_dict() == {
        "severity": "info",
        "message": f"call 0 (give) hands on {place} as it stands, since only a parameter that begins with † is read: "
        "where its value is meant, make it a parameter of its own",
        "calls": [0],
        "pointer": "/solution/calls/0/value/in/0",
    }


def test_a_reference_inside_a_text_is_no_slip_where_the_scopes_show_its_place() -> None:
    text = "Make a summary of †state.x"
    assert checked(call(value=text), context=THERE).findings != ()
    for scope in ("state", "†state.x"):
        assert checked(call(value=text, _scopes=[scope]), context=THERE).findings == ()


def test_the_texts_of_a_call_whose_result_is_written_already_are_no_slip() -> None:
    text = "Hello †state.x!"
    for more in ({}, {"to": "†state.y"}):
        assert checked(call("think", value=text, _output="Hello", **more), context=THERE, activities={}).findings == ()


def test_a_reference_in_a_written_result_is_told() -> None:
    calls = call("think", "†state.y", _output={"sum": ["†state.x || †input.z"]}), call(to="†input.z")
    (finding,) = checked(*calls, context=THERE, activities={"give": {}}).findings
    assert finding.to_dict() == {
        "severity": "warning",
        "message": "call 0 (think) writes the text †state.x || †input.z, since nothing is read in an _output: where "
        "its value is meant, write the value, or leave _output out and make it a parameter",
        "calls": [0],
        "pointer": "/solution/calls/0/_output/sum/0",
    }


def test_a_reference_inside_a_text_of_a_written_result_may_be_meant_so() -> None:
    (finding,) = checked(call("think", "†state.y", _output="Hello †state.x!"), context=THERE, activities={}).findings
    assert (finding.severity, finding.pointer) == ("info", "/solution/calls/0/_output")
    assert finding.message.startswith("call 0 (think) writes the text †state.x, since")


@pytest.mark.parametrize(
    "output",
    [
        "†state.nowhere",
        "† 1852",
        "††state.x",
        {"calls": [{"_tool": "give", "value": "†state.x", "_outputPath": "†state.y"}]},
        5,
    ],
)
def test_other_results_are_no_slip(output: Any) -> None:
    assert checked(call("think", "†state.y", _output=output), context=THERE, activities={}).findings == ()


def test_what_a_thought_holds_is_no_slip() -> None:
    assert checked(call("think", _output="†state.x"), context=THERE, activities={}).findings == ()


def test_a_reference_in_the_output_of_the_solution_is_told() -> None:
    value = submission(call(to="†state.y"))
    for output, severity in (("†state.y", "warning"), ({"a": ["†state.y"]}, "warning"), ("it is †state.y", "info")):
        value["solution"]["output"] = output
        (finding,) = check_submission(value).findings
        assert (finding.severity, finding.calls) == (severity, ())
        assert finding.pointer == "/solution/output" + ("/a/0" if isinstance(output, dict) else "")
        assert finding.message == (
            "the solution's output has the text †state.y, since nothing is read there: where its value is meant, write "
            "the value, or leave the output null and look for it in what the run holds"
        )
    value["solution"]["output"] = "†state.z"
    assert check_submission(value).findings == ()


def test_a_reference_counts_wherever_its_place_is() -> None:
    context = [{"type": "state", "_instance": name, name: 1} for name in ("a", "b")]
    found = check_submission(plan_submission(call(value="see †state.b"), context=context)).findings
    assert [finding.pointer for finding in found] == ["/context/2/calls/0/value"]


def test_a_reference_among_the_values_of_a_message_is_told_once_for_all_of_them() -> None:
    user = {"type": "input", "user": {"name": "Bo"}}
    texts = {"owner": "†input.user.name", "others": ["†input.user", {"of": "†input.user || †input.user.name"}]}
    for message, at in (
        ({"type": "state", **texts}, "owner"),
        ({"type": "state", "data": texts}, "data/owner"),
        ({"type": "data", "kind": "notes", "_instance": "①", "data": texts}, "data/owner"),
    ):
        (finding,) = checked(call("give"), context=[user, message]).findings
        assert finding.to_dict() == {
            "severity": "info",
            "message": "the message holds the text †input.user.name (and 2 more), since nothing is read in a message: "
            "where its value is meant, make it a parameter of the call that needs it",
            "calls": [],
            "pointer": f"/context/1/{at}",
        }


@pytest.mark.parametrize(
    "message",
    [
        {"type": "state", "owner": "†input.other"},
        {"type": "state", "owner": "† 1852"},
        {"type": "state", "owner": "††state.x"},
        {"type": "state", "owner": "see †state.x"},
        {"type": "state", "schema": {"const": "†state.x"}},
        {"type": "state", "then": {"_tool": "give", "value": "†state.x"}},
        {"type": "text", "text": "†state.x"},
        {"role": "system", "content": "†state.x"},
        {"type": "error", "data": {"call": {"_tool": "give"}, "error": {"type": "†state.x"}}},
        {"type": "data", "kind": "state", "data": {"y": "†state.x"}, "_call": {"_tool": "t", "_outputPath": "y"}},
    ],
)
def test_what_else_messages_say_is_no_slip(message: Any) -> None:
    delegates = {"who": {"context": [message]}}
    assert checked(call("give"), context=[*THERE, message], delegates=delegates).findings == ()


def test_a_reference_in_the_definition_of_a_delegate_is_told() -> None:
    own = [{"type": "state", "style": {"tone": "dry"}}, {"type": "system", "message": "†input.topic"}]
    calls = [call("ask", "†state.y", _delegate="who", topic="†state.x")]
    for text in ("†input.topic.name", "†state.style.tone", "†state.user"):
        message = {"type": "data", "kind": "notes", "data": {"about": text}}
        definition = {"context": [*own, message]}
        (finding,) = checked(*calls, context=THERE, delegates={"who": definition}).findings
        assert finding.to_dict() == {
            "severity": "info",
            "message": f"delegate 'who' is given the text {text}, since nothing is read in the messages of a "
            "definition: where its value is meant, hand it over in a parameter or the _scopes of the call",
            "calls": [],
            "pointer": "/delegates/who/context/2/data/about",
        }
    unknown = {"context": [{"type": "data", "data": ["†input.other", "†input", "†notes.x"]}]}
    assert checked(*calls, context=THERE, delegates={"who": unknown}).findings == ()


def test_of_messages_full_of_references_only_the_first_are_looked_at() -> None:
    context = [{"type": "data", "kind": f"k{n}", "data": [f"†gone.x{n}.{m}" for m in range(5_000)]} for n in range(20)]
    there = {"type": "state", "x": "†state.x"}
    assert len(checked(call("give"), context=[there, *context]).findings) == 1
    assert checked(call("give"), context=[*context, there]).findings == ()
    many = {"type": "state", "x": ["†state.x"] * 1_000}
    (finding,) = checked(call("give"), context=[many]).findings
    assert "†state.x (and 100 more at least), since" in finding.message
