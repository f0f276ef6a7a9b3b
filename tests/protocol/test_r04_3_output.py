"""SPEC R4.3-R4.5: where results go and what messages they become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from acts_celery.protocol import Message, Output, check_submission

from .building import (
    DATE,
    call,
    checked,
    problems,
    run,
    run_plan,
    statuses,
)

# R4.3


def test_r4_3_a_call_appends_one_message_for_each_path_all_at_once() -> None:
    raw = call(to="†state.user.name && †data.copy", value=["†input.n"], _outputMethod="push", _instance="①")
    result = run(raw, context=[{"type": "input", "n": 7, "_instance": "①"}])
    (entry,) = result.log
    common = {"_call": raw, "_date": DATE, "_outputMethod": "push", "_instance": "①"}
    assert list(entry.outcome.messages) == [
        {"type": "data", "kind": "state", "data": {"user": {"name": [7]}}, **common, "_path": "†state.user.name"},
        {"type": "data", "data": {"copy": [7]}, **common, "_path": "†data.copy"},
    ]


def test_r4_3_what_is_not_given_is_not_in_the_message() -> None:
    raw = call(to="user", value=1)
    (message,) = run(raw).messages
    assert message == {"type": "data", "kind": "state", "data": {"user": 1}, "_call": raw, "_date": DATE}


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("†state", 1),
        ("†state.a.b", {"a": {"b": 1}}),
        ("†state.list.0", {"list": {"0": 1}}),
        ('†state["a.b"][""]', {"a.b": {"": 1}}),
    ],
)
def test_r4_3_the_value_is_nested_at_the_path(path: str, data: Any) -> None:
    (message,) = run(call(to=path, value=1)).messages
    assert message["data"] == data


def test_r4_3_written_messages_read_back_as_what_was_written() -> None:
    calls = [
        call(to="†state.a && †state.a.b && †state", value={"b": {"a": 1}}),
        call(to='†state["x.y"].0', value=[1]),
        call(to='†data["0"]', value={"0": 1}),
    ]
    assert run(*calls).data[None] == {"state": {"b": {"a": 1}, "x.y": [[1]]}, "data": {"0": {"0": 1}}}


# R4.4


BRANCH = "†state.good || †state.bad"


def test_r4_4_a_plain_value_goes_to_the_first_alternative() -> None:
    assert run(call(to=BRANCH, value=1)).data[None] == {"state": {"good": 1}}


@pytest.mark.parametrize("path", ["†state.bad", "bad", '†state["bad"]'])
def test_r4_4_the_activity_may_choose_one_of_the_declared_paths(path: str) -> None:
    result = run(call("pick", to=BRANCH), functions={"pick": lambda *_: Output(path, 1)})
    assert result.data[None] == {"state": {"bad": 1}}


def test_r4_4_choosing_one_of_joined_paths_writes_to_all_of_them() -> None:
    to = "†state.a || †state.b && †data.c"
    result = run(call("pick", to=to), functions={"pick": lambda *_: Output("†data.c", 1)})
    assert result.data[None] == {"state": {"b": 1}, "data": {"c": 1}}


def test_r4_4_of_several_alternatives_with_a_path_the_one_that_is_just_that_path_is_chosen() -> None:
    to = "†state.a && †state.b || †state.a || †state.a && †data.c"
    result = run(call("pick", to=to), functions={"pick": lambda *_: Output("†state.a", 1)})
    assert result.data[None] == {"state": {"a": 1}}


@pytest.mark.parametrize(
    "path", ["†state.other", "†data.good", "†state.good.x", "†state", BRANCH, "†", "", 5, None, ["good"]]
)
def test_r4_4_a_path_that_was_not_declared_is_an_error(path: Any) -> None:
    result = run(call("pick", to=BRANCH), functions={"pick": lambda *_: Output(path, 1)})
    assert statuses(result) == ["failed"]
    error = result.outcome(0).error
    assert error is not None
    assert error["type"] == "OutputError"
    assert "state" not in result.data[None]


def test_r4_4_an_exception_goes_to_the_last_of_several_alternatives_and_is_no_failure() -> None:
    result = run(call("fail", to="†state.a || †state.b || †state.c && †data.d", because="no"))
    assert statuses(result) == ["done"]
    error = {"type": "LookupError", "message": "no"}
    assert result.data[None] == {"state": {"c": error}, "data": {"d": error}}


@pytest.mark.parametrize("to", ["†state.a", "†state.a && †state.b"])
def test_r4_4_with_one_alternative_an_exception_is_a_failure(to: str) -> None:
    result = run(call("fail", to=to, because="no"))
    assert statuses(result) == ["failed"]
    assert "state" not in result.data[None]


def test_r4_4_an_exception_that_does_not_fit_the_last_alternative_fails_the_call_under_its_own_name() -> None:
    context = [{"type": "state", "schema": {"properties": {"bad": {"type": "integer"}}}}]
    result = run(call("fail", to=BRANCH, because="the real reason"), context=context)
    assert statuses(result) == ["failed"]
    assert result.outcome(0).error == {"type": "LookupError", "message": "the real reason"}


def limited(**types: str) -> list[Any]:
    """A context whose state has values of these types."""
    return [{"type": "state", "schema": {"properties": {key: {"type": type_} for key, type_ in types.items()}}}]


@pytest.mark.parametrize(
    ("value", "data"),
    [(1, {"good": 1}), ("x", {"bad": "x"}), ({"x": 1}, None)],
    ids=["the first admits it", "the second does", "none does"],
)
def test_r4_4_a_plain_value_goes_to_the_first_alternative_whose_place_admits_it(value: Any, data: Any) -> None:
    result = run(call(to=BRANCH, value=value), context=limited(good="integer", bad="string"))
    if data is None:
        assert "the schema of state forbids the value at †state.good" in (result.outcome(0).error or {})["message"]
    else:
        assert result.data[None]["state"] == data


def test_r4_4_of_joined_paths_every_place_must_admit_the_value() -> None:
    to = "†state.a && †state.b || †state.c && †state.d || †state.e"
    result = run(call(to=to, value=1), context=limited(b="string", d="integer"))
    assert result.data[None]["state"] == {"c": 1, "d": 1}


def test_r4_4_where_no_schema_speaks_of_its_place_the_first_alternative_admits_anything() -> None:
    assert run(call(to=BRANCH, value="x"), context=limited(bad="string")).data[None]["state"] == {"good": "x"}


def test_r4_4_an_activity_that_chooses_is_not_given_another_alternative() -> None:
    context = limited(good="integer", bad="string", worst="object")
    choose = {"pick": lambda *_: Output("†state.good", "x")}
    result = run(call("pick", to=f"{BRANCH} || †state.worst"), context=context, functions=choose)
    assert result.data[None]["state"]["worst"]["type"] == "OutputError"


@pytest.mark.parametrize("to", ["†state.a", "†state.a || †state.b"])
def test_r4_4_a_result_that_is_refused_is_an_exception(to: str) -> None:
    tools = {"give": {"type": "object", "properties": {"_output": {"type": "integer"}}}}
    result = run(call(to=to, value="x"), tools=tools)
    error = result.data[None]["state"]["b"] if "||" in to else result.outcome(0).error or {}
    assert statuses(result) == ["done" if "||" in to else "failed"]
    assert error["type"] == "OutputError"
    assert "_output promises" in error["message"]


def test_r4_4_a_result_that_does_not_fit_what_is_there_is_no_exception() -> None:
    result = run(call(to=BRANCH, value=1, _outputMethod="push"), context=[{"type": "state", "good": "text"}])
    assert statuses(result) == ["failed"]
    assert (result.outcome(0).error or {})["type"] == "Conflict"


def test_r4_4_the_seeds_verify_user_writes_what_it_found_or_what_failed() -> None:
    def verify(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        if parameters["userId"] == "perfect-stranger":
            return Output("†state.user.failed", {"reason": "unknown"})
        return {"id": parameters["userId"]}

    to = "†state.user.verified || †state.user.failed"
    for user, written in (("perfect-stranger", {"failed": {"reason": "unknown"}}), ("u", {"verified": {"id": "u"}})):
        result = run(call("verifyUser", to=to, userId=user), functions={"verifyUser": verify})
        assert result.data[None] == {"state": {"user": written}}


def test_r4_4_an_exception_that_the_calls_method_does_not_fit_is_set_and_the_message_says_no_other_method() -> None:
    raw = call("fail", to="†state.good || †state.bad", because="no", _outputMethod="push")
    result = run(raw, context=[{"type": "state", "bad": {"x": 1}}])
    assert result.data[None] == {"state": {"bad": {"type": "LookupError", "message": "no"}}}
    assert "_outputMethod" not in result.messages[0]


# R4.5


@pytest.mark.parametrize(
    ("message", "data"),
    [
        ({"type": "state", "a": 1}, {"state": {"a": 1}}),
        ({"type": "state", "state": {"a": 1}}, {"state": {"a": 1}}),
        ({"type": "data", "kind": "state", "data": {"a": {"deep": [1]}}}, {"state": {"a": {"deep": [1]}}}),
        ({"type": "state", "a": 1, "b": 2}, {"state": {"a": 1, "b": 2}}),
        ({"type": "data", "c": None}, {"data": {"c": None}}),
        ({"type": "state", "a": 1, "_instance": "②", "_call": {"_tool": "lie"}, "_date": "lie"}, {"state": {"a": 1}}),
    ],
)
def test_r4_5_a_whole_data_message_is_appended_with_provenance_to_the_calls_own_instance(
    message: dict[str, Any], data: dict[str, Any]
) -> None:
    raw = call("whole", to="†state.a && †state.b || †data.c", _instance="①")
    context = [{"type": "text", "_instance": name} for name in ("①", "②")]
    result = run(raw, context=context, functions={"whole": lambda *_: Message(message)})
    assert (result.data["①"], result.data["②"]) == (data, {})
    assert all((m["_call"], m["_date"], m["_instance"]) == (raw, DATE, "①") for m in result.messages)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "state"},
        {"type": "state", "other": 1},
        {"type": "state", "a": 1, "other": 1},
        {"type": "state", "data": 5},
        {"type": "state", "data": None},
        {"type": "state", "data": [1]},
        {"type": "input", "a": 1},
        {"type": "data", "a": 1},
        {"type": "error", "data": {"a": 1}},
        {"type": "state", "a": 1, "c": 1},
        {"type": "data", "kind": ["state"], "a": 1},
        {"type": "data", "kind": None, "a": 1},
    ],
)
def test_r4_5_kind_and_path_of_a_returned_message_must_be_declared(message: dict[str, Any]) -> None:
    result = run(call("whole", to="†state.a && †state.b || †data.c"), functions={"whole": lambda *_: Message(message)})
    assert statuses(result) == ["failed"]
    assert result.data[None].keys() == {"error"}


@pytest.mark.parametrize(
    ("value", "status"), [({"b": 1}, "done"), ({"b": {"x": 1}}, "done"), ({"b": 1, "c": 2}, "failed"), (1, "failed")]
)
def test_r4_5_a_returned_message_may_say_nothing_beside_a_declared_path(value: Any, status: str) -> None:
    message = {"type": "state", "a": value}
    result = run(call("whole", to="†state.a.b"), functions={"whole": lambda *_: Message(message)})
    assert statuses(result) == [status]
    assert result.data[None].get("state") == ({"a": value} if status == "done" else None)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "state", "a": 1},
        {"type": "data", "kind": "data", "data": {"c": 1}, "_instance": "②", "_outputMethod": "push"},
        {"type": "error", "data": {}},
        {"path": "†data.c", "value": 1},
        {"type": "text", "a": 1},
        {"type": ["state"]},
    ],
)
def test_r4_5_a_plain_object_is_always_a_value_whatever_its_keys_are(value: Any) -> None:
    result = run(call("raw", to="†state.a || †data.c"), functions={"raw": lambda *_: value})
    assert result.data[None] == {"state": {"a": value}}


@pytest.mark.parametrize("content", [{"type": "text", "a": 1}, {"type": ["state"]}, {"type": None}, {}, [], None, "x"])
def test_r4_5_a_message_must_be_a_data_message(content: Any) -> None:
    result = run(call("whole", to="†state.a"), functions={"whole": lambda *_: Message(content)})
    assert statuses(result) == ["failed"]
    assert "no data message" in (result.outcome(0).error or {})["message"]


def test_r4_5_a_value_of_a_message_that_a_schema_forbids_is_refused() -> None:
    message = {"type": "state", "a": "x"}
    whole = {"whole": lambda *_: Message(message)}
    result = run(call("whole", to="†state.a"), context=limited(a="integer"), functions=whole)
    assert "forbids the value at †state.a" in (result.outcome(0).error or {})["message"]


def test_r4_5_a_model_cannot_smuggle_a_message_into_a_latent_calls_output() -> None:
    message = {"type": "state", "other": 1}
    result = run({"_tool": "t", "_output": message, "_outputPath": "†state.a"}, activities={})
    assert result.data[None] == {"state": {"a": message}}


# R4.12

SIZES = "†state.small || †state.medium && †data.m || †state.large"


def sized(value: Any, *cases: Any, **more: Any) -> dict[str, Any]:
    return call("choose", SIZES, value=value, cases=list(cases) or [{"maximum": 10}, {"type": "number"}], **more)


@pytest.mark.parametrize("tools", [{}, {"choose": {"properties": {"_outputPath": {"const": SIZES}}}}])
@pytest.mark.parametrize(
    ("value", "written"),
    [
        (7, {"state": {"small": 7}}),
        (70, {"state": {"medium": 70}, "data": {"m": 70}}),
        ("70", {"state": {"large": "70"}}),
        (None, {"state": {"large": None}}),
    ],
)
def test_r4_12_choose_writes_to_the_first_place_whose_case_admits_the_value_else_to_the_last(
    value: Any, written: dict[str, Any], tools: dict[str, Any]
) -> None:
    cases = [{"type": "number", "maximum": 10}, {"type": "number"}]
    result = run(sized(value, *cases), call(to="†data.after", value="†state.small"), tools=tools)
    ended = "done" if value == 7 else "skipped"
    assert (statuses(result), result.started) == (["done", ended], ((None, 1),) if value == 7 else ())
    assert result.data[None] == ({**written, "data": {"after": 7}} if value == 7 else written)


def test_r4_12_choose_is_known_without_a_declaration_and_takes_what_is_read() -> None:
    raw = {"_tool": "choose", "value": "†input.n", "cases": [True, False], "_outputPath": "†state.a || †state.b"}
    value = {"context": [{"type": "input", "n": {"x": "††"}}], "solution": {"calls": [raw]}}
    result = run_plan(check_submission(value, activities={}))
    assert result.data[None]["state"] == {"a": {"x": "††"}}


def test_r4_12_a_place_that_forbids_the_value_fails_as_for_an_activity() -> None:
    context = [{"type": "state", "schema": {"properties": {"small": {"type": "string"}}}}]
    assert run(sized(7, {"maximum": 10}, True), context=context).data[None]["state"]["large"]["type"] == "OutputError"


@pytest.mark.parametrize(
    ("change", "pointer", "word"),
    [
        ({"cases": [{}]}, "/cases", "3 places"),
        ({"cases": [{}, {}, {}, {}]}, "/cases", "3 places"),
        ({"cases": [{}, {"type": "nothing"}]}, "/cases/1/type", "JSON Schema"),
        ({"cases": [{}, {"const": "†input.n"}]}, "/cases/1/const", "no reference"),
        ({"cases": "†input.n"}, "/cases", "no reference"),
        ({"cases": [{}, 5]}, "/cases/1", "type"),
        ({"case": [{}]}, "", "case"),
        ({"_each": "value", "value": "†input.n"}, "/_each", "one value"),
        ({"_outputPath": None}, "", "_outputPath"),
    ],
)
@pytest.mark.parametrize("tools", [{}, {"tools": {"choose": {}}}])
def test_r4_12_what_choose_cannot_do_is_an_error_at_its_place(
    change: dict[str, Any], pointer: str, word: str, tools: dict[str, Any]
) -> None:
    raw = {**sized(7), **change}
    value = {"context": [{"type": "input", "n": [1]}], "solution": {"calls": [raw]}, **tools}
    found = problems(value, activities={})
    assert [(one.pointer, word in one.message) for one in found] == [("/solution/calls/0" + pointer, True)]


def test_r4_12_choose_is_drawn_and_found_as_any_other_tool() -> None:
    plan = checked(sized(7), call(to="†data.x", value="†state.small"))
    assert [finding.code for finding in plan.findings] == ["ACT210", "ACT210"]


@pytest.mark.parametrize(
    ("change", "pointer", "word"),
    [
        ({"until": "tomorrow"}, "/until", "ISO 8601"),
        ({"until": "2026-12-01T09:00:00"}, "/until", "offset"),
        ({"until": "2026-02-29T09:00:00Z"}, "/until", "ISO 8601"),
        ({"until": "2026-12-01T09:00:00+25:00"}, "/until", "ISO 8601"),
        ({"seconds": -1}, "/seconds", "minimum"),
        ({"seconds": 1e12}, "/seconds", "maximum"),
        ({"seconds": 1, "until": "2026-12-01T09:00:00Z"}, "", "properties"),
        ({}, "", "properties"),
        ({"seconds": 1, "minutes": 1}, "", "minutes"),
        ({"seconds": "†input.n", "_each": "seconds"}, "/_each", "once"),
        ({"seconds": 1, "_outputPath": None}, "", "_outputPath"),
    ],
)
@pytest.mark.parametrize("tools", [{}, {"tools": {"wait": {}}}])
def test_r4_12_what_wait_cannot_do_is_an_error_at_its_place(
    change: dict[str, Any], pointer: str, word: str, tools: dict[str, Any]
) -> None:
    raw = {**call("wait", "†state.w"), **change}
    value = {"context": [{"type": "input", "n": [1]}], "solution": {"calls": [raw]}, **tools}
    found = problems(value, activities={})
    assert ("/solution/calls/0" + pointer, True) in [(one.pointer, word in one.message) for one in found]


@pytest.mark.parametrize("tools", [{}, {"wait": {}}])
@pytest.mark.parametrize(
    ("when", "value"),
    [
        *[("seconds", value) for value in ("x", None, [1], True, -1, 1e308)],
        *[("until", value) for value in (5, None, "soon", "2026-12-01T09:00:00", "9999-01-01T00:00:00Z")],
    ],
)
def test_r4_12_a_wait_fails_whose_moment_is_none_when_it_is_read(when: str, value: Any, tools: dict[str, Any]) -> None:
    result = run(
        call("wait", "†state.w || †state.x", **{when: "†input.n"}), context=[{"type": "input", "n": value}], tools=tools
    )
    error = result.outcome(0).error
    assert error is not None
    assert (error["type"], error["message"].startswith(f"/{when}")) == ("InvalidParameters", True)


@pytest.mark.parametrize(
    ("text", "ended"), [("2026-11-20T23:00:00-01:00", "2026-11-21"), ("0001-01-01T00:00:00.5+14:00", "2026-11-21")]
)
def test_r4_12_a_wait_for_what_is_past_ends_at_once_with_the_moment_at_which_it_has(text: str, ended: str) -> None:
    result = run(call("wait", "†state.w", until="†input.n"), context=[{"type": "input", "n": text}])
    assert result.data[None]["state"]["w"].startswith(ended)
    assert result.started == ()
