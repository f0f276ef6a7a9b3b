"""Files with comments, and the shapes that stand for a submission (INTERFACE)."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Rejected, check_submission
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.submission import decode
from acts_celery.protocol.requests import read_request

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("a/*,]}\"'\\ \n†", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("k/*,", max_size=3), inner, max_size=3),
    max_leaves=12,
)
COMMENTS = st.sampled_from(['// a, ] } " /* b\n', '/* , ] " // \n **/', "/**/", " ", "\r\n", "//\n", "/*†*/"])
TOOLS = {"greet": {"type": "object"}}
GREET: dict[str, Any] = {"_tool": "greet", "name": "†input.name", "_outputPath": "†state.greeting"}
NAME = {"type": "input", "name": "Ann"}


@given(JSON, st.data())
def test_comments_and_last_commas_change_nothing(value: Any, data: st.DataObject) -> None:
    text = ""
    for token in json.JSONEncoder(ensure_ascii=False, indent=0).iterencode(value):
        is_end = token.strip()[:1] in ("]", "}") and text.rstrip()[-1:] not in ("[", "{", "")
        commas = data.draw(st.sampled_from(["", ","])) if is_end else ""
        text += data.draw(COMMENTS) + commas + data.draw(COMMENTS) + token
    assert decode((text + data.draw(COMMENTS)).encode()) == value


@pytest.mark.parametrize(
    "text", ['// "a"\n{"a": 1, /* † */ "b" 2}', '{/*\n*/\n"a": [1,\n], "b" 2}', '{"a": "//", "b": [ ], "c" 2}']
)
def test_an_error_is_where_it_stands_in_the_file(text: str) -> None:
    before = text[: text.rindex("2")]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    with pytest.raises(Rejected, match=f"line {line} column {column} "):
        decode(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "/*" * 200_000,
        '"' + "/" * 400_000,
        "," * 400_000,
        "[" + ", " * 200_000,
        "[" + " " * 400_000,
        "[ " * 60_000,
        "/" * 400_000,
    ],
)
def test_a_hostile_file_is_refused_at_once(text: str) -> None:
    with pytest.raises(Rejected):
        decode(text.encode())


@pytest.mark.parametrize("value", [[], [NAME, GREET], GREET, {"calls": [GREET]}, [[]] * 70_000])
def test_each_shape_may_be_msgpack(value: Any) -> None:
    assert decode(msgpack.packb(value)) == value


@pytest.mark.parametrize(
    ("value", "call"),
    [
        ({"context": [NAME], "solution": {"calls": [GREET]}}, "/solution/calls/0"),
        ([NAME, GREET], "/1"),
        ([GREET, NAME], "/0"),
        ([NAME, GREET | {"type": "state"}], "/1"),
        ([NAME, {"type": "tool", "tool": TOOLS}, GREET, {"type": "state", "x": 1}], "/2"),
    ],
)
def test_a_list_of_messages_and_calls_is_a_submission(value: Any, call: str) -> None:
    plan = check_submission(value, activities=TOOLS)
    assert plan.context.resolve("†input.name") == "Ann"
    assert [{**each.raw, "type": ""} for each in plan.calls] == [{**GREET, "type": ""}]
    assert plan.waves == ((0,),)
    with pytest.raises(Rejected) as rejected:
        check_submission(value, activities=TOOLS, allow=[])
    assert {problem.pointer for problem in rejected.value.errors} == {f"{call}/_tool"}


@pytest.mark.parametrize(
    ("value", "pointers"),
    [
        (GREET, ["/name"]),
        ({"calls": [GREET], "output": None}, ["/calls/0/name"]),
        ({"calls": [], "output": "†state.x"}, ["/output"]),
        ([GREET, {**GREET, "_outputPath": "†"}], ["/1/_outputPath"]),
        ([{"type": 7}, {**GREET, "name": "Ann"}], ["/0/type"]),
        ([NAME, {"_tool": "gret"}], ["/1/_tool"]),
        ([NAME, {**GREET, "_delegate": "nobody"}], ["/1/_delegate"]),
        ([NAME], [""]),
        ([], [""]),
        ("text", [""]),
        ({"_outputPath": {"const": "†state.x"}}, ["", "/_outputPath"]),
    ],
)
def test_an_error_names_the_place_in_what_was_handed_in(value: Any, pointers: list[str]) -> None:
    with pytest.raises(Rejected) as rejected:
        check_submission(value, activities=TOOLS, delegates=())
    assert sorted(problem.pointer for problem in rejected.value.errors) == pointers


def test_a_finding_names_the_place_in_what_was_handed_in() -> None:
    call = {**GREET, "_outputPth": "†state.x"}
    whole, alone = (
        [finding.pointer for finding in check_submission(value, activities=TOOLS).findings]
        for value in ({"context": [NAME], "solution": {"calls": [call]}}, [NAME, call])
    )
    assert "/1/_outputPth" in alone
    assert [at and at.replace("/solution/calls/0", "/1") for at in whole] == alone


def test_a_request_is_read_in_each_shape_too() -> None:
    assert read_request([NAME, GREET], Environment(activities=TOOLS)).submission.context == [NAME]
    with pytest.raises(Rejected) as rejected:
        read_request([NAME, GREET, {"type": 7}], Environment(activities=TOOLS))
    assert [problem.pointer for problem in rejected.value.errors] == ["/2/type"]
