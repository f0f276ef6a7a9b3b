"""Every error points at something that stands in the submission (SPEC R7.1)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acts_celery.protocol import Limits, Rejected, check_submission
from acts_celery.protocol.errors import pointer, segments

from .building import ANY, call, checked, plan_submission, pointers, problems, problems_of, submission

PINNED: dict[str, Any] = {
    "properties": {
        "_outputPath": {"const": "†state.n"},
        "_imports": {"type": "array", "items": {"enum": ["state", "†input.x"]}},
        "n": {"type": "integer"},
    },
    "required": ["n", "_imports"],
    "_activity": "give",
    "_output": {"type": "integer"},
}
WHOLE: dict[str, Any] = {
    "context": [
        {"type": "input", "x": 1, "schema": {"properties": {"x": {"type": "integer"}}}},
        {"type": "state", "_instance": "①", "list": [1], "_call": {"_outputPath": "†state.list"}, "_path": "†state"},
        {"type": "data", "kind": "state", "data": {"a": 1}},
        {"type": "tool", "tool": {"pinned": PINNED, "loose": {"_imports": ["state"], "_delegate": "d"}}},
        {"type": "plan", "plan": {"calls": [{"_tool": "give"}]}},
        {"role": "user", "content": "hi"},
    ],
    "tools": {
        "give": ANY | {"_activity": {}},
        "strict": {"additionalProperties": False, "patternProperties": {"^_x": {"type": "null"}}},
    },
    "delegates": {"d": {"context": [{"type": "input", "schema": {}}], "schema": {"type": "object"}, "config": {}}},
    "schema": {"type": "object"},
    "config": {"ticks": 1},
    "solution": {
        "calls": [
            {"_tool": "pinned", "n": "†input.x", "_imports": ["state"], "_instance": "①"},
            {"_tool": "pinned", "n": 1, "_scopes": ["†input.x"], "_imports": ["†input.x"]},
            {"_tool": "loose", "deep": [{"a/b": "†state.n || †input.x"}], "_outputMethod": "push", "_outputPath": "l"},
            {"_tool": "strict", "_x~": None},
            {"_tool": "give", "_output": 1, "_activity": "give", "_outputPath": "†state.list.0 && m"},
        ],
        "output": None,
    },
}
JUNK = [None, True, -1, 1.5, 2**70, "", "†", "†state..x", "††", "①", "x", [], ["†"], {}, {"type": 5}, "\ud800", b"x"]
NAMES = ["_scopes", "_imports", "_outputPath", "_delegate", "_activity", "_instance", "_outputMethod", "_tool", "type"]


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a JSON value."""
    yield at
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in pairs:
        yield from places(below, (*at, key))


def resolves(value: Any, at: str) -> bool:
    """Whether a JSON pointer leads to something."""
    for key in segments(at):
        if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            return False
    return True


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """The whole submission with a few places replaced, removed or written under another name."""
    value = copy.deepcopy(WHOLE)
    if draw(st.booleans()):
        del value["solution"]
    for _ in range(draw(st.integers(1, 4))):
        *above, key = draw(st.sampled_from([at for at in places(value) if at]))
        container: Any = value
        for segment in above:
            container = container[segment]
        match draw(st.sampled_from(["replace", "remove", "rename", "add"])):
            case "replace":
                container[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
            case "remove":
                del container[key]
            case "rename" if isinstance(container, dict):
                container[draw(st.sampled_from([*NAMES, "\ud800", "a/~b"]))] = container.pop(key)
            case "add" if isinstance(container, dict):
                container[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(st.sampled_from(JUNK)))
    return value


@given(mutated(), st.booleans(), st.booleans())
@example({**WHOLE, "\ud800": 1}, False, False)
@example({**WHOLE, "schema": {"\ud800": {"\ud801": 1}}}, False, False)
def test_every_pointer_leads_to_something_in_the_submission(value: Any, strict_meta: bool, has_backend: bool) -> None:
    backend: dict[str, Any] = {"activities": {"give": {}}, "delegates": (), "model": False} if has_backend else {}
    try:
        check_submission(value, strict_meta=strict_meta, **backend)
    except Rejected as rejected:
        for problem in rejected.errors:
            assert resolves(value, problem.pointer), problem


def test_the_unchanged_submission_is_valid() -> None:
    assert check_submission(WHOLE).calls


@pytest.mark.parametrize(
    ("pinned", "start"),
    [
        ({"_outputPath": "†"}, "_outputPath, which its tool's schema fills in: '†' does not parse"),
        ({"_scopes": ["state", "†"]}, "_scopes, which its tool's schema fills in: '†' does not parse"),
        ({"_instance": "②"}, "_instance, which its tool's schema fills in: instance '②' is not in the context"),
        ({"_delegate": "who"}, "_delegate, which its tool's schema fills in: unknown delegate 'who'"),
        ({"_activity": "who"}, "_activity, which its tool's schema fills in: unknown activity 'who'"),
        ({"properties": {"_outputPath": {"const": "x", "pattern": "y"}}}, "_outputPath, which its tool's schema fills"),
    ],
)
def test_what_a_tool_fills_in_is_reported_at_the_call(pinned: dict[str, Any], start: str) -> None:
    for raw in (call(), {**call(), **dict.fromkeys(key for key in pinned if key.startswith("_"))}):
        (problem,) = problems_of(raw, tools={"give": pinned}, activities={"give": {}}, registered=())
        assert problem.pointer == "/solution/calls/0"
        assert problem.message.startswith(start)


def test_what_is_written_under_its_older_name_is_reported_there() -> None:
    tool = {"properties": {"_scopes": {"items": {"enum": ["state"]}}}}
    assert pointers(problems_of(call(_imports=["†"]))) == ["/solution/calls/0/_imports/0"]
    assert pointers(problems_of(call(_imports="state"))) == ["/solution/calls/0/_imports"]
    assert pointers(problems_of(call(_imports=["input"]), tools={"give": tool})) == ["/solution/calls/0/_imports/0"]
    (problem,) = problems_of(call(_imports=["†a || "]))
    assert problem.excerpt is not None


def test_both_names_of_one_property_must_say_the_same() -> None:
    (problem,) = problems_of(call(_scopes=["state"], _imports=["input"]))
    assert problem.pointer == "/solution/calls/0/_imports"
    assert problem.message == "says something else than _scopes, whose older name it is: leave it out"
    both = call(_scopes=["state"], _imports=["input"], n="x")
    found = problems_of(both, tools={"give": {"properties": {"n": {"type": "integer"}}}})
    assert pointers(found) == ["/solution/calls/0/_imports", "/solution/calls/0/n"], "and hides no other"
    assert checked(call(_scopes=["state"], _imports=["state"])).calls


@pytest.mark.parametrize(
    ("declaration", "place"),
    [
        ({"_output": {"type": 5}}, "/_output/type"),
        ({"properties": {"_output": {"type": 5}}}, "/properties/_output/type"),
        ({"properties": {}, "_imports": {"items": 5}}, "/_imports/items"),
        ({"properties": {"_imports": {"items": 5}}}, "/properties/_imports/items"),
    ],
)
def test_a_tools_wrong_schema_is_reported_where_it_is_declared(declaration: Any, place: str) -> None:
    assert pointers(problems(submission(tools={"t": declaration}))) == ["/tools/t" + place]


def test_a_tool_message_without_tools_is_reported_at_the_message() -> None:
    assert pointers(problems(submission(context=[{"type": "tool"}]))) == ["/context/0"]


def test_too_many_calls_are_reported_at_the_list_that_holds_the_first_one_too_many() -> None:
    limits = Limits(solution_calls=1)
    assert pointers(problems(submission(call(), call()), limits=limits)) == ["/solution/calls"]
    assert pointers(problems(plan_submission(call(), call()), limits=limits)) == ["/context/0/calls"]


@given(st.lists(st.text("ab/~01_")))
def test_the_segments_of_a_pointer_are_what_it_was_made_from(path: list[str]) -> None:
    assert list(segments(pointer(*path))) == path
