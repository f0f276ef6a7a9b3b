"""Errors (SPEC R7), of submissions and of calls; settings of a run."""

from __future__ import annotations

import json
from typing import Any

import msgpack
import pytest

from acts_celery.protocol import Limits, Problem, Rejected, check_submission
from acts_celery.protocol.engine.events import Failure
from acts_celery.protocol.errors import pointer
from acts_celery.protocol.limits import size_of
from acts_celery.protocol.plan.config import SAMPLING, SETTINGS
from acts_celery.protocol.plan.documents import decode
from acts_celery.protocol.plan.support import unsupported

from .building import (
    ANY,
    DATE,
    call,
    checked,
    executing,
    plan_submission,
    pointers,
    problems,
    problems_of,
    run,
    statuses,
    submission,
)

# SPEC R7: errors.


def nested(depth: int) -> Any:
    """A list this many levels deep."""
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


# R7.1


def test_r7_1_all_structural_errors_are_listed_at_once_in_the_order_of_the_submission() -> None:
    value = {
        "context": [{"type": "state", "_instance": "①", "a": 1}],
        "tools": {"count": {"properties": {"n": {"type": "integer"}}}, "give": {}, "bad": {"type": 1}},
        "delegates": {"d": {"context": {}, "schema": {"type": 1}}},
        "schema": 5,
        "config": [],
        "solution": {
            "calls": [
                {"_tool": "unknown", "_outputPath": "†state.n"},
                {"_tool": "count", "n": "one", "_delegate": "who"},
                {"_tool": "give", "value": ["†state..x", "†state.nowhere"], "_instance": "②"},
                {"_tool": "give", "value": "†state.nowhere"},
                {"_tool": "give", "value": "†state.q", "_outputPath": "†state.p"},
                {"_tool": "give", "value": "†state.p", "_outputPath": "†state.q"},
                {"_tool": "give", "value": "†state.n"},
                *[{"_tool": "give"}] * 4,
                {"_tool": "bad"},
                {"_tool": "give", "_activity": "who"},
            ]
        },
        "surprise": 1,
    }
    found = problems(value, activities={"give": ANY, "count": ANY}, delegates=["d"])
    assert pointers(found) == [
        "/config",
        "/delegates/d/context",
        "/delegates/d/schema/type",
        "/schema",
        "/solution/calls/0/_tool",
        "/solution/calls/1/_delegate",
        "/solution/calls/1/n",
        "/solution/calls/2/_instance",
        "/solution/calls/2/value/0",
        "/solution/calls/3/value",
        "/solution/calls/4",
        "/solution/calls/12/_activity",
        "/surprise",
        "/tools/bad/type",
    ]


def test_r7_1_errors_that_hang_on_what_cannot_be_read_are_not_made_up() -> None:
    reader = call(value="†state.a")
    for broken in (call(to="†"), call(_outputPath=7)):
        assert pointers(problems_of(reader, broken))[0].startswith("/solution/calls/1")
    # Whatever these were meant to be, it is known where they write.
    for harmless in (5, {"x": 1}, call(_scopes="state")):
        assert {at.split("/")[3] for at in pointers(problems_of(reader, harmless))} == {"0", "1"}
    assert pointers(problems_of(reader, context=["text"])) == ["/context/0"]


def test_r7_1_beside_an_expression_that_does_not_parse_the_others_of_its_call_are_looked_at() -> None:
    found = problems_of(call(first="†", then="†state.nowhere"))
    assert pointers(found) == ["/solution/calls/0/first", "/solution/calls/0/then"]


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        ({"_outputMethod": "append"}, "/_outputMethod: must be one of set, merge, assign, push, concat"),
        ({"_scopes": "state"}, "/_scopes: must be a list of kinds or references"),
        ({"_imports": [5]}, '/_imports/0: must be a kind such as "state" or a reference such as "†state.user" (found: '
         "number)"),
        ({"_activity": 5}, "/_activity: must be a string"),
    ],
)  # fmt: skip
def test_r7_1_beside_a_meta_property_that_means_nothing_the_rest_of_its_call_is_looked_at(
    broken: dict[str, Any], place: str
) -> None:
    tools = {"count": {"properties": {"n": {"type": "integer"}, **{key: {"enum": ["set"]} for key in broken}}}}
    wrong = call("count", n="one", value="†state.nowhere", to="†state.a", **broken)
    assert set(map(str, problems_of(wrong, call(value="†state.a"), tools=tools))) == {
        f"/solution/calls/0{place}",
        '/solution/calls/0/n: "one" is not of type "integer"',
        "/solution/calls/0/value: unresolvable reference †state.nowhere: it is not in the context and no other call "
        "writes it",
    }


def test_r7_1_beside_a_path_that_does_not_parse_all_that_hangs_on_no_other_call_is_reported() -> None:
    tools = {"count": {"properties": {"n": {"type": "integer"}}}}
    found = problems_of(call("count", n="one", value="†state.nowhere", _instance="②", to="†"), tools=tools)
    assert pointers(found) == [f"/solution/calls/0/{key}" for key in ("_instance", "_outputPath", "n")]


def test_r7_1_what_a_call_of_a_wrong_instance_writes_is_missed_nowhere() -> None:
    context = [{"type": "text", "_instance": "①"}]
    reader = call(value="†state.a", other="†state.nowhere", _instance="①")
    found = problems_of(call(value="†state.b", to="†state.a", _instance=1), reader, context=context)
    assert pointers(found) == ["/solution/calls/0/_instance", "/solution/calls/1/other"]


def test_r7_1_an_expression_that_does_not_parse_stands_for_any_value() -> None:
    tools = {"count": {"properties": {"n": {"type": "integer"}, "m": {"type": "integer"}}, "required": ["n"]}}
    assert list(map(str, problems_of(call("count", n="†", m="text"), tools=tools))) == [
        '/solution/calls/0/m: "text" is not of type "integer"',
        "/solution/calls/0/n: '†' does not parse: expected a kind such as state or input, starting with a letter at "
        "position 1",
    ]


def test_r7_1_a_misspelt_delegate_is_reported_once() -> None:
    tools = {"ask": {"properties": {"_delegate": {"enum": ["translator"]}}}}
    (problem,) = problems_of(
        call("ask", _delegate="trnslator"), tools=tools, delegates={"translator": {}}, registered=[]
    )
    assert problem.message == "unknown delegate 'trnslator', did you mean 'translator'?"


MISSING_ROLE = 'a message needs a "type", or "role" and "content"'


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"content": "x"}, f"/context/0: {MISSING_ROLE}"),
        ({"role": "user"}, f"/context/0: {MISSING_ROLE}"),
        ({"type": "text", "text": {"n": 2**64}}, "/context/0/text/n: is beyond 64 bits: write it as a string"),
        ({"type": "text", "text": nested(70)}, "/context/0: nested deeper than 64 levels (ACTS_LIMIT_DEPTH)"),
        ({"type": "advisor", "_instance": 5}, "/context/0/_instance: must be a non-empty string"),
    ],
)
def test_r7_1_beside_a_malformed_message_without_data_all_that_hangs_on_data_is_reported(
    message: dict[str, Any], place: str
) -> None:
    found = problems_of(call(value="†state.nowhere"), call(value=1, _instance="①"), call(value=1, _instance="②"),
                        context=[message, {"_instance": "①", "content": "y"}])  # fmt: skip
    assert list(map(str, found)) == [
        place,
        f"/context/1: {MISSING_ROLE}",
        "/solution/calls/0/value: unresolvable reference †state.nowhere: it is not in the context and no other call "
        "writes it",
        "/solution/calls/2/_instance: instance '②' is not in the context",
    ]


@pytest.mark.parametrize(
    "message", [{"a": 1}, {"type": 5}, {"type": "state", "_instance": 5}, {"type": "input", "data": 2**64}]
)
def test_r7_1_beside_a_malformed_message_that_may_bring_data_it_is_not_said_that_nothing_does(
    message: dict[str, Any],
) -> None:
    (problem,) = problems_of(call(value="†state.a"), context=[message])
    assert problem.pointer.startswith("/context/0")


def test_r7_1_the_pointers_escape_what_json_pointers_must() -> None:
    assert pointer("a/b", 0, "~", "") == "/a~1b/0/~0/"
    (problem,) = problems_of({**call(), "a/b": {"~": "†"}})
    assert problem.pointer == "/solution/calls/0/a~1b/~0"
    assert str(problem) == f"/solution/calls/0/a~1b/~0: {problem.message}"
    assert str(Problem("", "all of it")) == "/: all of it"


def test_r7_1_the_exception_lists_every_error_and_says_all_of_them() -> None:
    with pytest.raises(Rejected) as rejected:
        check_submission(submission(call(a="†"), call(b="†")))
    assert len(rejected.value.errors) == 2
    assert len(str(rejected.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        (None, ""),
        ([], ""),
        ("text", ""),
        (5, ""),
        ({}, ""),
        ({"context": None}, "/context"),
        ({"context": {}}, "/context"),
        ({"context": []}, ""),
        ({"solution": []}, "/solution"),
        ({"solution": {"calls": None}}, "/solution/calls"),
        ({"solution": {"call": [{"_tool": "give"}]}}, "/solution"),
        ({"solution": {"calls": [5]}}, "/solution/calls/0"),
        ({"context": [{"type": "plan"}]}, "/context/0"),
        ({"context": [{"type": "plan", "calls": 5}]}, "/context/0/calls"),
        ({"context": [{"type": "plan", "plan": {"calls": {}}}]}, "/context/0/plan/calls"),
        ({"solution": {"calls": []}, "delegates": []}, "/delegates"),
        ({"solution": {"calls": []}, "delegates": {"d": 5}}, "/delegates/d"),
        ({"solution": {"calls": [{"_tool": "t", "_delegate": "d"}]}, "delegates": {"d": [None]}}, "/delegates/d"),
        ({"solution": {"calls": []}, "delegates": {"d": {"context": [5]}}}, "/delegates/d/context/0"),
        ({"solution": {"calls": []}, "delegates": {"d": {"schema": 5}}}, "/delegates/d/schema"),
        ({"solution": {"calls": []}, "delegates": {"d": {"config": 5}}}, "/delegates/d/config"),
        ({"solution": {"calls": []}, "schema": {"type": 5}}, "/schema/type"),
        ({"solution": {"calls": []}, "config": 5}, "/config"),
        ({"solution": {"calls": []}, "unknown": 5}, "/unknown"),
    ],
)
def test_r7_1_a_submission_of_the_wrong_shape_is_rejected_with_the_place(value: Any, pointer: str) -> None:
    assert pointers(problems(value)) == [pointer]


def test_r7_1_where_there_is_nothing_to_run_it_is_reported_what_to_give() -> None:
    (nothing,) = problems({"context": []})
    assert nothing.message.startswith("nothing to run: give a solution, a plan message in the context, or a schema")
    (nothing,) = problems({"context": [], "schema": None})
    assert nothing.message.startswith("nothing to run")
    assert check_submission({"context": [], "schema": {"type": "string"}}).calls == ()


@pytest.mark.parametrize(
    ("output", "at"),
    [
        ({"total": 5}, []),
        (None, []),
        ({"total": "†state.sum"}, []),
        ("†state.whole", []),
        ({"total": "five"}, ["/total"]),
        ({"total": "††five"}, ["/total"]),
        ({}, [""]),
        ([1], [""]),
        ({"total": "†state.sum", "note": 5}, ["/note"]),
    ],
)
def test_r7_1_an_output_that_its_schema_forbids_is_an_error(output: Any, at: list[str]) -> None:
    note, total = {"type": "string"}, {"type": "integer"}
    schema = {"type": "object", "properties": {"total": total, "note": note}, "required": ["total"]}
    calls = [call(to="†state.sum"), call(to="†state.whole")]
    value = submission(*calls, schema=schema)
    value["solution"]["output"] = output
    if at:
        assert pointers(problems(value)) == [f"/solution/output{place}" for place in at]
    else:
        assert check_submission(value).submission.output == output


def test_r7_1_an_empty_solution_is_no_error() -> None:
    assert check_submission({"solution": {"calls": []}}).size == 0
    assert check_submission({"solution": {}}).waves == ()
    assert check_submission({"solution": {"output": 5}}).size == 0


def test_r7_1_a_solution_that_has_something_else_than_calls_is_reported_with_what_it_has() -> None:
    (problem,) = problems({"solution": {"output": 5, "steps": [], "call": []}})
    assert problem.message == 'has no "calls", but call, steps'


def test_r7_1_what_does_not_run_is_kept_with_the_submission() -> None:
    solution = {"calls": [call()], "output": {"total": 5}}
    value = submission(schema={"type": "object"}, config={"model": "small", "ticks": None}) | {"solution": solution}
    kept = check_submission(value, activities={"give": ANY}).submission
    assert (kept.output, kept.schema, kept.config) == ({"total": 5}, {"type": "object"}, {"model": "small"})


def test_r7_1_nulls_of_a_submission_count_as_left_out() -> None:
    value: dict[str, Any] = {
        "solution": {"calls": []},
        "tools": None,
        "delegates": None,
        "schema": None,
        "config": None,
    }
    assert check_submission(value).calls == ()
    assert check_submission({**plan_submission(call()), "solution": None}).submission.is_template


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (nested(65), "nested deeper than 64"),
        (2**64, "64 bits"),
        (-(2**63) - 1, "64 bits"),
        (float("nan"), "finite"),
        (float("inf"), "finite"),
        ("\ud800", "Unicode"),
        ({"\udfff": 1}, "Unicode"),
        ({1: 1}, "keys"),
        (b"bytes", "JSON"),
        ((1, 2), "JSON"),
        ({1, 2}, "JSON"),
    ],
)
def test_r7_1_what_cannot_travel_is_rejected(value: Any, word: str) -> None:
    for place in (call(value=value), call(value=[{"in": value}])):
        found = problems_of(place)
        assert found[0].pointer.startswith("/solution/calls/0")
        assert word in found[0].message
        assert str(found[0]).encode()
    solution = {"solution": {"calls": [], "output": value}}
    assert problems(solution)[0].pointer.startswith("/solution/output")
    for part in ("tools", "delegates", "schema", "config"):
        assert problems({"solution": {"calls": []}, part: {"x": value}})[0].pointer.startswith(f"/{part}")
    assert problems(submission(context=[{"type": "state", "data": value}]))[0].pointer.startswith("/context/0")


def test_r7_1_what_just_fits_travels() -> None:
    for value in (nested(62), nested(63), 2**64 - 1, -(2**63), 1e308, "\U0010ffff", {"": [None, True]}):
        assert len(checked(call(value=value)).calls) == 1
    assert "nested deeper than 64" in problems_of(call(value=nested(64)))[0].message


def test_r7_1_depth_does_not_matter_to_the_walk_that_finds_it() -> None:
    deep: Any = nested(100_000)
    try:
        assert pointers(problems_of(call(value=deep))) == ["/solution/calls/0"]
    finally:
        while deep:  # taking it apart, for even forgetting it whole would go 100,000 levels deep
            deep = deep.pop()


def test_r7_1_limits_are_reported_in_the_error() -> None:
    small = Limits(depth=10, message_bytes=100, calls=5, solution_calls=3)
    text = "x" * 200
    assert pointers(problems_of(call(value=text), context=[{"type": "state", "a": text}], limits=small)) == [
        "/context/0",
        "/solution/calls/0",
    ]
    assert "100 are allowed" in problems_of(call(value=text), limits=small)[0].message
    assert (
        problems_of(*[call()] * 4, limits=small)[0].message
        == "4 calls, where 3 are allowed (ACTS_LIMIT_SOLUTION_CALLS)"
    )
    assert "more than 3" in problems(plan_submission(*[call()] * 4), limits=small)[0].message
    context = [{"type": "text", "_instance": name} for name in ("①", "②", "③")]
    (problem,) = problems(plan_submission(call(), call(), context=context), limits=small)
    assert problem.message == "6 calls over all instances, where 5 are allowed (ACTS_LIMIT_CALLS)"
    assert check_submission(plan_submission(call(), call(_instance="①"), context=context), limits=small).size == 4


def test_r7_1_the_calls_of_a_run_are_limited_with_instances_and_without() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②③"]
    small = Limits(calls=2)
    for value in (
        submission(*[call()] * 3),
        submission(*[call()] * 3, context=context),
        plan_submission(*[call()] * 3),
    ):
        (problem,) = problems(value, limits=small)
        assert problem.message == "3 calls over all instances, where 2 are allowed (ACTS_LIMIT_CALLS)"
    for value in (
        submission(*[call()] * 2),
        submission(*[call()] * 2, context=context),
        plan_submission(*[call()] * 2),
    ):
        assert check_submission(value, limits=small).size == 2


def test_r7_1_messages_and_instances_are_counted_before_they_are_looked_at() -> None:
    small = Limits(messages=2, instances=1)
    context = [{"type": "odd\ud800", "_instance": name} for name in ("①", "②", "③")]
    assert [problem.message for problem in problems_of(call(), context=context, limits=small)] == [
        "3 messages, where 2 are allowed (ACTS_LIMIT_MESSAGES)",
        "3 instances, where 1 are allowed (ACTS_LIMIT_INSTANCES)",
    ]


def test_r7_1_what_just_fits_the_limits_is_accepted() -> None:
    context = [{"type": "text", "_instance": "①"}, {"type": "text"}]
    just = Limits(messages=2, instances=1, solution_calls=2, calls=2)
    assert check_submission(submission(call(), call(), context=context), limits=just).size == 2
    assert check_submission(plan_submission(call(), call(), context=context[:1]), limits=just).size == 2
    message, raw = {"type": "text", "text": "x" * 60}, call(value="x" * 60)
    sizes = [size_of(part) for part in (message, raw)]
    value = {"context": [message], "solution": {"calls": [raw]}}
    activities = {"give": ANY}
    assert check_submission(value, activities=activities, limits=Limits(message_bytes=max(sizes))).size == 1
    large_tool = {"give": {**ANY, "description": "x" * 1_000}}
    assert check_submission({**value, "tools": large_tool}, limits=Limits(message_bytes=max(sizes))).size == 1
    (too_large,) = problems(value, activities=activities, limits=Limits(submission_bytes=1))
    in_all = int(too_large.message.split()[0])
    assert check_submission(value, activities=activities, limits=Limits(submission_bytes=in_all)).size == 1
    assert pointers(problems(value, activities=activities, limits=Limits(submission_bytes=in_all - 1))) == [""]


def test_r7_1_a_submission_is_limited_as_a_whole_too() -> None:
    tools = {"other": {"description": "x" * 2_000}}
    context = [{"type": "text", "text": "x" * 60}] * 10
    (problem,) = problems_of(call(), context=context, tools=tools, limits=Limits(submission_bytes=2_000))
    assert (problem.pointer, "2000 are allowed" in problem.message) == ("", True)


def test_r7_1_too_many_calls_are_counted_and_not_laid_out() -> None:
    context = [{"type": "text", "_instance": str(number)} for number in range(2_000)]
    (problem,) = problems(plan_submission(*[call()] * 2_000, context=context))
    assert "4000000 calls" in problem.message


def test_r7_1_hints_are_given_as_long_as_that_does_not_take_too_long() -> None:
    context = [{"type": "text", "_instance": f"instance{number}"} for number in range(300)]
    found = problems_of(*[call(_instance=f"instanse{number}") for number in range(300)], context=context)
    assert len(found) == 300
    assert "did you mean 'instance0'?" in found[0].message
    assert "did you mean" not in found[-1].message


# Decoding


@pytest.mark.parametrize(
    "value",
    [
        {"context": [], "solution": {"calls": [call(value="†state.ключ")]}},
        *({str(number): number for number in range(size)} for size in (0, 15, 16, 2**16)),
    ],
    ids=["a submission", "0 keys", "15 keys", "16 keys", "65536 keys"],
)
def test_a_submission_is_json_or_msgpack(value: Any) -> None:
    assert decode(json.dumps(value).encode()) == value
    assert decode(json.dumps(value, ensure_ascii=False).encode()) == value
    assert decode(msgpack.packb(value)) == value


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"{", "not JSON"),
        (b"{} {}", "not JSON"),
        (b'{"context": [], # mine\n"solution": {}}', "a comment begins with //"),
        (b'{"context": [] /* mine\n}', "line 1 is not closed"),
        (b'{"context": [] /*/', "line 1 is not closed"),
        (b'{"context": [],, "solution": {}}', "not JSON"),
        (b"[1,,]", "not JSON"),
        (b"[ , ]", "not JSON"),
        (b"{/**/,}", "not JSON"),
        (b'{"a": ,}', "not JSON"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1, "a": 2}', "'a' occurs twice"),
        (b'{"x": [{"a": 1, "b": 1, "a": 2}]}', "'a' occurs twice"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"\xff\xfe\xfd", "not"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a":' * 100_000, "nested deeper"),
        (b"9" * 5_000, "not JSON: a number has too many digits: write it as a string"),
        (b"\x81", "not msgpack"),
        (b"\x80\x80", "not msgpack"),
        (b"\x81\x01\x01", "not msgpack"),
        (b"\x82\xa1a\x01\xa1a\x02", "'a' occurs twice"),
        (b"\x81\xa1a" + b"\x91" * 100_000, "not msgpack"),
        (b"\x81\xa1\xff\x01", "not msgpack"),
        (b"\xdf\xff\xff\xff\xff", "not msgpack"),
    ],
)
def test_bytes_that_are_no_submission_are_rejected(data: bytes, word: str) -> None:
    with pytest.raises(Rejected, match=word) as rejected:
        decode(data)
    assert len(rejected.value.errors) == 1


def test_calls_beside_a_context_without_a_solution_around_them_are_rejected_with_the_remedy() -> None:
    with pytest.raises(Rejected, match="solution"):
        check_submission({"context": [], "calls": []})


def test_a_long_list_of_double_keys_is_no_trouble() -> None:
    keys = ",".join(f'"{number}":0' for number in range(50_000))
    with pytest.raises(Rejected, match="'49999' occurs twice"):
        decode(("{" + keys + ',"49999":1}').encode())


# R7.2


def test_r7_2_a_failure_becomes_an_error_message_in_the_calls_instance_and_other_calls_go_on() -> None:
    context = [{"type": "text", "_instance": "①"}]
    raw = call("fail", to="†state.a", because="†input.why", _instance="①")
    result = run(raw, call(to="†state.b", value=1), call(to="†state.c", value=2, _instance="①"),
                 context=[*context, {"type": "input", "why": "no money"}])  # fmt: skip
    assert (statuses(result), statuses(result, "①")) == (["done"], ["failed", "done"])
    (message,) = result.outcome(0, "①").messages
    error = {"type": "LookupError", "message": "no money"}
    assert message == {"type": "error", "data": {"call": raw, "error": error}, "_date": DATE, "_instance": "①"}
    assert result.data["①"]["error"] == {"call": raw, "error": error}
    assert "error" not in result.data[None]


def test_r7_2_a_global_failure_is_seen_by_all_readers() -> None:
    result = run(call("fail", to="†state.a", because="x"), context=[{"type": "text", "_instance": "①"}])
    assert result.data["①"]["error"]["error"]["message"] == "x"


def test_r7_2_a_result_that_its_schema_forbids_is_a_failure() -> None:
    result = run(call(to="†state.a", value="x"), tools={"give": {"_output": {"type": "integer"}}})
    assert statuses(result) == ["failed"]
    error = result.outcome(0).error
    assert error is not None
    assert error["type"] == "OutputError"
    assert "_output" in error["message"]


def test_r7_2_an_error_message_can_always_be_stored_and_is_bounded() -> None:
    execution, _ = executing(checked(call(to="†state.a")))
    error = execution.finish(0, Failure("Odd\ud800", "\udcff" + "x" * 1_000_000), DATE).error
    assert error is not None
    assert len(str(error).encode()) < 10_000


@pytest.mark.parametrize(
    "forbidding",
    [
        {"type": "integer"},
        {"maxLength": 3},
        {"pattern": "^x"},
        {"enum": ["a", "b"]},
        {"const": "a"},
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        {"not": {"type": "string"}},
    ],
)
def test_r7_2_what_a_schema_forbids_at_run_time_is_reported_without_the_value(forbidding: dict[str, Any]) -> None:
    secret = "123-45-6789"
    reading = call("give", value="†state.ssn", to="†state.a")
    giving = call("make", to="†state.b")
    keeping = call("keep", to="†data.c")
    result = run(
        reading,
        giving,
        keeping,
        context=[
            {"type": "state", "ssn": secret},
            {"type": "data", "data": {}, "schema": {"properties": {"c": forbidding}}},
        ],
        tools={"give": {"properties": {"value": forbidding}}, "make": {"_output": forbidding}},
        functions={"make": lambda parameters, _: secret, "keep": lambda parameters, _: secret},
    )
    assert statuses(result) == ["failed"] * 3
    for index in range(3):
        assert secret not in str(result.outcome(index).error)
        assert secret not in str(result.outcome(index).messages)


@pytest.mark.parametrize("type_", ["meta", "text", "system", "advisor", "unknown", "state"])
def test_r7_1_an_instance_whose_name_is_not_unicode_is_an_error_wherever_it_stands(type_: str) -> None:
    value = {
        "context": [{"type": type_, "_instance": "\ud800"}],
        "tools": {"a": {}},
        "solution": {"calls": [{"_tool": "a"}]},
    }
    with pytest.raises(Rejected) as rejected:
        check_submission(value)
    assert [problem.pointer for problem in rejected.value.errors] == ["/context/0/_instance"]


@pytest.mark.parametrize(
    ("part", "at"),
    [
        ({"context": [{"type": "state", "_instance": "a\x1b[2J", "x": 1}]}, "/context/0/_instance"),
        ({"tools": {"a\n": {}}}, "/tools/a\n"),
        ({"delegates": {"a\x9b": {"context": []}}}, "/delegates/a\\x9b"),
    ],
)
def test_a_name_with_control_characters_is_refused(part: dict[str, Any], at: str) -> None:
    with pytest.raises(Rejected, match="no control characters") as rejected:
        check_submission({"context": [], "solution": {"calls": []}} | part)
    assert any("no control characters" in error.message for error in rejected.value.errors), at


def test_r7_1_a_property_that_a_solution_does_not_have_is_refused_with_the_nearest_name() -> None:
    value = submission(call())
    value["solution"]["otput"] = 1
    found = problems(value)
    assert pointers(found) == ["/solution/otput"]
    assert "did you mean 'output'?" in found[0].message
    value["solution"] = {"calls": [call()], "output": None, "meta": {}, "advisors": []}
    check_submission(value)


# SPEC R7.1: the settings of a submission and of a request definition, and what a backend cannot do yet.

FIT: dict[str, list[Any]] = {
    "model": ["small"],
    "temperature": [0, 0.7, 2],
    "top_p": [0.1, 1],
    "seed": [0, -5, 2**62],
    "stop": ["END", ["\n\n", "END"]],
    "reasoning_effort": ["none", "xhigh"],
    "max_output_tokens": [1, 4096],
    "ticks": [1, 8],
    "calls": [200],
    "tokens": [1_000_000],
    "money": [0.05, 2],
    "seconds": [0.5, 60],
    "request_seconds": [30],
    "promise_seconds": [3600.0],
    "approve": [[], ["*"], ["†state.user", "†state"]],
    "unknown": ["hold", "fail"],
    "approve_seconds": [60],
    "trust": [{}, {"otherwise": "hold"}, {"otherwise": "refuse"}],
    "mode": ["eager", "lazy"],
    "resolve": ["upfront"],
    "goal": ["state"],
    "partial": [True, False],
    "show": ["schema"],
    "show_bytes": [100],
    "latent": [True, False],
    "max_concurrency": [1],
    "ignore": [[], ["ACT103", "ACT299"]],
}
UNFIT: dict[str, list[Any]] = {
    "model": ["", 5],
    "temperature": [-1, "warm", True],
    "top_p": [0, 1.1, True],
    "seed": [1.0, True, 2**63],
    "stop": ["", [], [""], ["END"] * 17, 5],
    "reasoning_effort": ["", "High", 3, "a b"],
    "max_output_tokens": [0, 1.5],
    "ticks": [0, -1, True, "8"],
    "calls": [0],
    "tokens": [0.5],
    "money": [0, -1, "2", True],
    "seconds": [0, "60"],
    "request_seconds": [-1],
    "promise_seconds": [False],
    "approve": ["*", [5], [""], ["†"], ["†state.a || †state.b"]],
    "unknown": ["", "retry", True],
    "approve_seconds": [[]],
    "trust": ["refuse", {"otherwise": "ask"}, {"show": "all"}, {"otherwise": ["hold"]}],
    "mode": ["fast", True],
    "resolve": [True, "execution"],
    "goal": ["output", True, ["state"]],
    "partial": [1, "true"],
    "show": ["value", True],
    "show_bytes": [0],
    "latent": [1, "model"],
    "max_concurrency": [0, True, 1.0],
    "ignore": ["ACT103", ["race"], [103], ["ACT1"]],
}


@pytest.mark.parametrize("key", SETTINGS)
def test_r7_1_a_setting_takes_what_the_table_says_and_nothing_else(key: str) -> None:
    for value in (*FIT[key], None):
        definition = {"d": {"config": {key: value}}}
        check_submission(submission(config={key: value}, delegates=definition))
    for value in UNFIT[key]:
        definition = {"d": {"config": {key: value}}}
        found = problems(submission(config={key: value}, delegates=definition))
        assert pointers(found) == [f"/config/{key}", f"/delegates/d/config/{key}"]
        assert found[0].message == f"must be {SETTINGS[key].shape}"


@pytest.mark.parametrize("key", ["maxConcurrency", "max-concurrency", "max_concurency", "concurrency"])
def test_r7_1_an_unknown_setting_is_an_error_that_names_the_nearest_known_one(key: str) -> None:
    definition = {"d": {"config": {key: 1}}}
    found = problems(submission(config={key: 1}, delegates=definition))
    assert pointers(found) == [f"/config/{key}", f"/delegates/d/config/{key}"]
    assert found[0].message == f"unknown setting {key!r}, did you mean 'max_concurrency'?"


@pytest.mark.parametrize("config", [{"plan": "staged"}, {"slots": 3}])
def test_r12_7_staged_plans_are_taken_out_and_their_settings_unknown(config: dict[str, Any]) -> None:
    asked = {"context": [], "schema": {"type": "string"}, "tools": {}}
    (key,) = config
    found = problems({**asked, "config": config})
    assert pointers(found) == [f"/config/{key}"]
    assert "unknown setting" in found[0].message


def test_r7_1_a_setting_of_null_is_left_out() -> None:
    plan = check_submission(submission(config={"max_concurrency": None, "ticks": None}))
    assert plan.submission.config == {}
    assert unsupported(plan) == []


REQUESTS = {"model", *SAMPLING, "max_output_tokens", "request_seconds"}
PEOPLE = {"approve", "approve_seconds", "unknown"}
OTHERS = {"max_concurrency", "ignore", "latent", "mode", "partial", "promise_seconds", "resolve", "trust"}
HONOURED = {*OTHERS, *REQUESTS, *PEOPLE}


@pytest.mark.parametrize("key", SETTINGS)
def test_r7_1_a_setting_that_a_backend_cannot_honour_yet_is_refused_and_never_ignored(key: str) -> None:
    for value in FIT[key]:
        found = unsupported(check_submission(submission(config={key: value})))
        expected = [] if key in HONOURED else [f"config.{key} is not supported by this version: leave it out"]
        assert [problem.message for problem in found] == expected
        assert {problem.pointer for problem in found} <= {f"/config/{key}"}


def test_r7_1_so_it_is_for_those_of_a_request_definition() -> None:
    config = {"max_concurrency": 1, "ignore": [], "model": "small", "ticks": 8}
    plan = check_submission(submission(delegates={"d": {"config": config}, "e": {}}))
    assert pointers(unsupported(plan)) == ["/delegates/d/config/ignore", "/delegates/d/config/ticks"]


def test_r9_3_the_tools_of_a_delegate_are_read_with_the_submission() -> None:
    tool: dict[str, Any] = {"type": "tool", "tool": {"t": {"type": 5}}}
    sound = {"d": {"tools": ["price", {"t": {}}]}, "e": {"context": [{"type": "tool", "tool": {"t": {}}}]}}
    assert unsupported(check_submission(submission(delegates=sound))) == []
    broken = {"d": {"tools": {"t": []}}, "e": {"context": [{"type": "text"}, tool]}}
    found = problems(submission(delegates=broken))
    assert pointers(found) == ["/delegates/d/tools/t", "/delegates/e/context/1/tool/t/type"]


def test_r10_2_a_plan_message_with_an_instance_is_an_error() -> None:
    value = plan_submission(call(), context=[{"type": "text", "_instance": "①"}])
    value["context"][1]["_instance"] = "①"
    (problem,) = problems(value)
    assert str(problem) == "/context/1/_instance: a plan runs once for each instance: leave _instance out"
    value["solution"] = {"calls": []}
    assert pointers(problems(value)) == ["/context/1/_instance"]
    value["context"][1]["_instance"] = None
    assert check_submission(value).size == 0
