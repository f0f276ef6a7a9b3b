"""Runs (SPEC R11): what may be added to them, and where a value came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from acts_celery.protocol import (
    Context,
    ExpressionError,
    Limits,
    Plan,
    Reference,
    Rejected,
    check_amendment,
    check_submission,
    parse,
)
from acts_celery.protocol.analysis.provenance import Effect, Explanation, Logged, Read, explain
from acts_celery.protocol.analysis.visibility import who_sees
from acts_celery.protocol.calls.call import Call, make_call
from acts_celery.protocol.calls.declarations import delegate_context
from acts_celery.protocol.calls.tools import Executor, Runner
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.plan.additions import SoFar, check_data
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.state.fold import Fold

from .building import ANY, call, checked, plan_submission, submission
from .laws import PLACES, folded, law, read
from .strategies import STEPS, logs, message_of

# SPEC R11.6: data messages added to a run under way.

PROMISE = {"type": "input", "schema": {"properties": {"n": {"type": "integer"}}, "required": ["n", "m"]}}
LOG: list[dict[str, Any]] = [
    PROMISE,
    {"type": "state", "_instance": "①", "list": [1], "text": "x"},
    {"type": "text", "_instance": "②", "text": "y"},
]


def added(value: Any) -> tuple[Any, ...]:
    return check_data(value, LOG, Limits(), ["①", "②"])


def problems(value: Any) -> list[tuple[str, str]]:
    with pytest.raises(Rejected) as refused:
        added(value)
    return [(problem.pointer, problem.message) for problem in refused.value.errors]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "input", "n": 1},
        {"type": "input", "input": {"n": 1}, "_instance": "①"},
        {"type": "input", "m": "anything"},
        {"type": "data", "data": [1, 2]},
        {"type": "state", "_instance": "②", "list": 5},
        {"type": "state", "_instance": "①", "list": [2]},
    ],
)
def test_r11_6_a_data_message_can_be_added_alone_or_with_others(message: dict[str, Any]) -> None:
    assert added(message) == (message,)
    assert added([message, PROMISE]) == (message, PROMISE)


def test_r11_6_it_is_held_against_the_schema_of_the_promise_and_what_is_said_names_no_value() -> None:
    for instance in ({}, {"_instance": "①"}):
        ((at, message),) = problems([{"type": "input", "n": "s3cret", **instance}])
        assert at == "/0"
        assert message.startswith("the schema of input forbids it at /n:")
        assert "s3cret" not in message


def test_r11_6_an_instance_that_the_run_does_not_have_is_refused() -> None:
    assert problems([{"type": "input", "n": 1, "_instance": "③"}, {"type": "state", "_instance": "④"}]) == [
        ("/0/_instance", "instance '③' is not in the run"),
        ("/1/_instance", "instance '④' is not in the run"),
    ]


@pytest.mark.parametrize(
    ("message", "at", "word"),
    [
        ("text", "", "object"),
        ({"n": 1}, "", "type"),
        ({"type": "text", "text": "x"}, "", "only data"),
        ({"type": "plan", "calls": []}, "", "only data"),
        ({"type": "tool", "tool": {}}, "", "only data"),
        ({"role": "user", "content": "x"}, "", "only data"),
        ({"type": "state", "data": 2**70}, "/data", "64 bits"),
        ({"type": "state", "schema": {"type": 5}}, "/schema/type", "not"),
        ({"type": "state", "a": "x" * 2_000_000}, "", "bytes"),
        ({"type": "state", "data": {"a": 1}, "_call": {"_tool": "t", "_outputPath": "†state.a"}}, "/_call", "engine"),
        ({"type": "state", "a": 1, "_date": "2026-11-21"}, "/_date", "engine"),
    ],
)
def test_r11_6_what_is_no_data_message_is_refused(message: Any, at: str, word: str) -> None:
    ((pointer, said),) = problems(message)
    assert pointer == at
    assert word in said
    assert [pointer for pointer, _ in problems([{"type": "data", "data": 1}, message])] == [f"/1{at}"]


def test_r11_6_each_message_is_held_against_those_before_it() -> None:
    narrow = {"type": "state", "schema": {"properties": {"size": {"type": "integer"}}}}
    assert [at for at, _ in problems([narrow, {"type": "state", "size": "big"}])] == ["/1"]
    assert len(added([{"type": "state", "size": "big"}, narrow])) == 2


# Amendments: new calls checked against a run as it stands (SPEC R11.1, R7.1).

KNOWN = Environment(activities={"echo": {"type": "object"}}, delegates=(), model=False)


def echo(value: Any, path: str, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **meta}


def at_work(index: int, call: dict[str, Any]) -> Call:
    return make_call(index, call, {}, Runner(Executor.ACTIVITY, "echo"))


def checked_amendments(value: Any, *messages: dict[str, Any], begun: Any = None, **so_far: Any) -> Plan:
    return check_amendment(value, SoFar(messages, begun or {}, first=7, **so_far), KNOWN)


def problems_amendments(value: Any, *messages: dict[str, Any], **so_far: Any) -> list[tuple[str, str]]:
    with pytest.raises(Rejected) as refused:
        checked_amendments(value, *messages, **so_far)
    return [(problem.pointer, problem.message) for problem in refused.value.errors]


def test_new_calls_come_behind_those_that_are_there() -> None:
    plan = checked_amendments({"calls": [echo(1, "†state.a"), echo("†state.a", "†state.b")]})
    assert [call.index for call in plan.calls] == [7, 8]
    assert plan.edges == ((7, 8),)
    assert [plan.submission.place(index) for index in (7, 8)] == [("solution", "calls", 0), ("solution", "calls", 1)]


def test_a_call_at_work_counts_as_a_writer_and_waits_for_no_call() -> None:
    running = at_work(3, echo("†state.b", "†state.a"))
    plan = checked_amendments({"calls": [echo("†state.a", "†state.b")]}, begun={None: (running,)})
    assert plan.lanes[None].graph.before(7) == (3,)


def test_a_call_at_work_in_an_instance_is_a_writer_there_and_nowhere_else() -> None:
    messages = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②"]
    running = at_work(0, echo(1, "†state.a"))
    ((at, message),) = problems_amendments(
        {"calls": [echo("†state.a", "†state.b")]}, *messages, begun={"①": (running,)}, is_template=True
    )
    assert at == "/calls/0/value"
    assert "instance '②'" in message


def test_a_global_call_at_work_is_a_writer_for_instances() -> None:
    running = at_work(2, echo(1, "†state.a"))
    new = {"calls": [echo("†state.a", "†state.b", _instance="①")]}
    plan = checked_amendments(new, {"type": "state", "_instance": "①", "mark": 1}, begun={None: (running,)})
    assert plan.lanes["①"].graph.awaited == {2}


def test_a_call_that_stays_where_others_are_added_is_a_writer_and_so_is_one_at_work() -> None:
    stays, running = at_work(4, echo("†state.a", "†state.b")), at_work(3, echo(1, "†state.a"))
    added = {"calls": [echo(["†state.a", "†state.b"], "†state.c")]}
    plan = checked_amendments(added, begun={None: (running,)}, kept={None: (stays,)})
    assert plan.lanes[None].graph.before(7) == (3, 4)


def test_calls_added_to_an_ended_run_read_what_it_has_written_and_nothing_that_it_has_not() -> None:
    written = {"type": "data", "kind": "state", "data": {"a": 1}, "_call": echo(1, "†state.a"), "_date": "2026-11-21"}
    assert checked_amendments({"calls": [echo("†state.a", "†state.b")]}, written).size == 1
    assert problems_amendments({"calls": [echo("†state.never", "†state.b")]}, written)[0][0] == "/calls/0/value"


def test_an_amendment_can_call_nothing_that_the_run_does_not_allow() -> None:
    calls = [echo(1, "†state.a"), {"_tool": "other", "_output": 1, "_outputPath": "†state.b"}]
    value = {"calls": calls, "tools": {"other": {}}}
    assert checked_amendments(value, allow=frozenset({"echo", "other"})).size == 2
    assert problems_amendments(value, allow=frozenset({"echo"})) == [
        ("/calls/1/_tool", "tool 'other' is not allowed here")
    ]
    with pytest.raises(Rejected):
        check_amendment(value, SoFar((), {}, 0, allow=frozenset({"echo", "other"})), replace(KNOWN, allow=frozenset()))


def test_what_calls_have_written_can_be_read() -> None:
    written = {"type": "data", "kind": "state", "data": {"a": 1}, "_call": echo(1, "†state.a"), "_date": "2026-11-21"}
    assert checked_amendments({"calls": [echo("†state.a", "†state.b")]}, written).lanes[None].graph.before(7) == ()


def test_errors_point_into_the_amendment_in_both_of_its_shapes() -> None:
    calls = [echo("†state.a", "†state.b"), {"_tool": "unknown"}]
    assert [at for at, _ in problems_amendments({"calls": calls})] == ["/calls/0/value", "/calls/1/_tool"]
    assert [at for at, _ in problems_amendments({"solution": {"calls": calls}})] == [
        "/solution/calls/0/value",
        "/solution/calls/1/_tool",
    ]


@pytest.mark.parametrize("value", [None, [], {}, {"calls": [], "solution": {"calls": []}}, {"call": []}])
def test_what_is_no_amendment_is_refused(value: Any) -> None:
    ((at, message),) = problems_amendments(value)
    assert at == ""
    assert "an amendment must be an object" in message


def test_a_property_that_an_amendment_does_not_have_is_an_error() -> None:
    assert problems_amendments({"calls": [], "context": []})[0][0] == "/context"
    assert problems_amendments({"calls": "none"})[0][0] == "/calls"


def test_tools_of_the_run_and_of_the_amendment_are_known() -> None:
    calls = [{"_tool": "old", "_output": 1, "_outputPath": "†state.a"}, {"_tool": "new", "_output": 1}]
    plan = checked_amendments({"calls": calls, "tools": {"new": {"type": "object"}}}, tools={"old": {"type": "object"}})
    assert set(plan.tools) == {"old", "new"}


def test_limits_of_input_hold_for_what_is_handed_in_and_not_for_the_log() -> None:
    known = replace(KNOWN, limits=Limits(depth=5, message_bytes=400, submission_bytes=1000, messages=2, containers=20))
    deep: Any = 1
    for _ in range(9):
        deep = {"a": deep}
    log = [{"type": "state", "deep": deep}, *({"type": "state", f"n{n}": "x" * 500} for n in range(9))]
    plan = check_amendment({"calls": [echo("†state.n3", "†state.b")]}, SoFar(log, {}, first=7), known)
    assert [call.index for call in plan.calls] == [7]
    for calls in (
        [echo(deep, "†state.b")],
        [echo("x" * 500, "†state.b")],
        [echo(n, f"†state.b{n}") for n in range(30)],
    ):
        with pytest.raises(Rejected, match="ACTS_LIMIT_"):
            check_amendment({"calls": calls}, SoFar(log, {}, first=7), known)


def test_a_call_without_a_path_is_not_added_whose_delegate_is_a_run() -> None:
    value = {"calls": [{"_tool": "write", "_delegate": "writer"}], "delegates": {"writer": {"context": []}}}
    known = Environment(activities={}, delegates=(), model=True)
    for config in ({}, {"tokens": 1000}):
        assert check_amendment(value, SoFar((), {}, first=0, config=config), known).calls
    child = {**value, "delegates": {"writer": {"context": [], "tools": {"t": {}}}}}
    with pytest.raises(Rejected, match=r"/calls/0: delegate 'writer' has tools.*give the call an _outputPath"):
        check_amendment(child, SoFar((), {}, first=0), known)


# Where a value came from (SPEC R11.2): the messages, what is left of each, what their calls had read.

CONTRIBUTES, OVERWRITTEN, REMOVES, CONFLICT = Effect


def log_of(*messages: Mapping[str, Any]) -> list[Logged]:
    """Messages with ids `0`, `1`, …; those of calls are each by a call of its own."""
    return [
        Logged(str(number), message, number if "_call" in message else None) for number, message in enumerate(messages)
    ]


def written(path: str, result: Any, method: str = "set", **properties: Any) -> dict[str, Any]:
    """What a call with these properties wrote."""
    data = result
    for segment in reversed(parse(path).references[0].path):
        data = {str(segment): data}
    call = {"_tool": "t", "_outputPath": path, "_outputMethod": method, **properties}
    kind = parse(path).references[0].kind
    message = {"type": "data", "kind": kind, "data": data, "_outputMethod": method, "_call": call}
    return message | ({"_instance": properties["_instance"]} if "_instance" in properties else {})


def effects(path: str, *messages: Mapping[str, Any], instance: str | None = None) -> list[tuple[str, Effect]]:
    """Which messages did something to a place, and what is left of it."""
    found = explain(parse(path).references[0], log_of(*messages), instance=instance)
    return [(origin.logged.id, origin.effect) for origin in found.origins]


def test_a_value_that_was_set_again_came_from_the_last_message() -> None:
    messages = [{"type": "state", "a": 1}, written("†state.a", 2), written("†state.a", 3)]
    assert effects("†state.a", *messages) == [("0", OVERWRITTEN), ("1", OVERWRITTEN), ("2", CONTRIBUTES)]


def test_messages_that_do_nothing_to_the_place_are_left_out() -> None:
    others = ({"type": "state", "b": 1}, {"type": "text", "text": "x"}, {"type": "data", "data": {"a": 1}})
    assert effects("†state.a", *others, {"type": "state", "a": 1}, written("†state.c", 1)) == [("3", CONTRIBUTES)]


def test_what_is_joined_contributes_besides_what_was_there() -> None:
    messages = [
        {"type": "state", "text": "a", "items": [1], "user": {"name": "Alex", "age": 1}},
        written("†state.text", "b", "concat"),
        written("†state.items", 2, "push"),
        written("†state.user", {"age": 2}, "merge"),
    ]
    assert effects("†state.text", *messages) == [("0", CONTRIBUTES), ("1", CONTRIBUTES)]
    assert effects("†state.items", *messages) == [("0", CONTRIBUTES), ("2", CONTRIBUTES)]
    assert effects("†state.items.1", *messages) == [("2", CONTRIBUTES)]
    assert effects("†state.user", *messages) == [("0", CONTRIBUTES), ("3", CONTRIBUTES)]
    assert effects("†state.user.age", *messages) == [("0", OVERWRITTEN), ("3", CONTRIBUTES)]


def test_an_object_of_which_every_part_was_replaced_is_overwritten() -> None:
    messages = [written("†state.user", {"age": 1}), written("†state.user.age", 2)]
    assert effects("†state.user", *messages) == [("0", OVERWRITTEN), ("1", CONTRIBUTES)]


def test_a_message_that_sets_something_above_removes_the_value() -> None:
    messages = [written("†state.user.name", "Alex"), written("†state.user", {"age": 1})]
    assert effects("†state.user.name", *messages) == [("0", OVERWRITTEN), ("1", REMOVES)]
    assert effects("†state.user.name", *messages, written("†state.user.name", "Bo")) == [
        ("0", OVERWRITTEN),
        ("1", OVERWRITTEN),
        ("2", CONTRIBUTES),
    ]


def test_an_instances_messages_come_after_the_global_ones_whatever_came_first() -> None:
    messages = [written("†state.a", 1, _instance="①"), written("†state.a", 2), written("†state.a", 3, _instance="②")]
    assert effects("†state.a", *messages, instance="①") == [("1", OVERWRITTEN), ("0", CONTRIBUTES)]
    assert effects("†state.a", *messages) == [("1", CONTRIBUTES)]


def test_an_instances_own_errors_hide_the_global_ones_whole() -> None:
    first, own, last = ({"type": "error", "data": {"error": {"type": type_}}} for type_ in "abc")
    messages = [first, {**own, "_instance": "①"}, last]
    assert effects("†error", *messages) == [("0", OVERWRITTEN), ("2", CONTRIBUTES)]
    assert effects("†error", *messages, instance="①") == [("1", CONTRIBUTES)]
    assert effects("†error", *messages, instance="②") == [("0", OVERWRITTEN), ("2", CONTRIBUTES)]


def test_a_conflict_is_reported_with_the_message_it_came_from() -> None:
    found = explain(Reference("state", ("a",)), log_of({"type": "state", "a": 1}, written("†state.a", 2, "push")))
    assert found.value is MISSING
    assert found.conflict == "cannot push number at †state.a: there is number (message 1)"
    assert [origin.effect for origin in found.origins] == [CONTRIBUTES, CONFLICT]


def test_what_no_call_wrote_has_no_origins() -> None:
    found = explain(Reference("state", ("a",)), log_of({"type": "state", "b": 1}))
    assert found == Explanation(Reference("state", ("a",)), MISSING, None, ())


def test_what_a_call_had_read_is_reported_as_it_was_then() -> None:
    (origin,) = explain(
        Reference("state", ("c",)),
        log_of(
            {"type": "state", "a": 1, "user": {"name": "Alex"}},
            written("†state.a", 2),
            written(
                "†state.c",
                0,
                value=["†state.a", {"deep": "†state.b || †state.a"}],
                missing="†state.b",
                _scopes=["state", "†state.user"],
            ),
            written("†state.a", 3),
        ),
    ).origins
    assert origin.reads == (
        Read("†state.a", 2),
        Read("†state.b", MISSING),
        Read("†state.user", {"name": "Alex"}),
    )


def test_a_call_that_writes_where_it_reads_had_read_what_was_there_before_all_its_messages() -> None:
    call = {"_tool": "t", "value": "†state.a", "_outputPath": "†state.a && †state.b"}
    parts = [{"type": "data", "kind": "state", "data": {key: 2}, "_call": call} for key in "ab"]
    log = [Logged("0", {"type": "state", "a": 1}), Logged("1", parts[0], 7), Logged("2", parts[1], 7)]
    (origin,) = explain(Reference("state", ("b",)), log).origins
    assert (origin.logged.id, origin.reads) == ("2", (Read("†state.a", 1),))


def test_a_call_of_an_instance_had_read_what_the_instance_saw() -> None:
    log = log_of({"type": "state", "a": 1}, {"type": "state", "a": 2, "_instance": "①"}, {"type": "state", "a": 3})
    log += [Logged("3", written("†state.b", 0, _instance="①", value="†state.a"), 3)]
    (origin,) = explain(Reference("state", ("b",)), log, instance="①").origins
    assert origin.reads == (Read("†state.a", 2),)


@law
@given(logs, st.sampled_from(PLACES))
def test_the_explained_value_is_the_folded_one(messages: list[dict[str, Any]], place: Reference) -> None:
    found = explain(place, log_of(*messages))
    seen = found.value if found.conflict is None else found.conflict
    assert seen == read(folded(messages), place)


# An index means something only in the list that was there: without the messages before it another, or nothing.
_WITHOUT_INDEXES = [step for step in STEPS if not any(isinstance(segment, int) for segment in step.at[1])]
_PLACES = [place for place in PLACES if not any(isinstance(segment, int) for segment in place.path)]


def _readable(messages: Sequence[Mapping[str, Any]], place: Reference) -> Any:
    fold: Fold = folded(messages)
    assume(not fold.conflicts())
    return fold.value(place)


def _parts(found: Explanation, *wanted: Effect) -> Iterator[Mapping[str, Any]]:
    return (origin.logged.message for origin in found.origins if origin.effect in wanted)


@law
@given(st.lists(st.sampled_from(_WITHOUT_INDEXES), max_size=6), st.sampled_from(_PLACES))
def test_the_messages_that_contribute_are_enough_for_the_value(steps: list[Any], place: Reference) -> None:
    messages = [message_of(step) for step in steps]
    value = _readable(messages, place)
    found = explain(place, log_of(*messages))
    if value is MISSING:
        assert not list(_parts(found, CONTRIBUTES))
    else:
        assert folded(list(_parts(found, CONTRIBUTES))).value(place) == value


# Who can see a value, and that a delegate's calls never see more than it was given (SPEC R8, R9.2).

CONTEXT = [{"type": "state", "user": {"name": "Ада", "ssn": "123"}, "other": 1}, {"type": "input", "q": 1}]
SSN = "†state.user.ssn"


def seen(plan: Plan, path: str = SSN) -> tuple[list[int], list[int]]:
    """The indexes of the calls that see a place, and of those that see what was made from it."""
    visibility = who_sees(plan, path)
    return [sight.index for sight in visibility.direct], [sight.index for sight in visibility.derived]


def test_who_reads_errors_comes_by_what_they_may_tell_of() -> None:
    plan = checked(
        call(value=SSN, to="†state.x"),
        call("see", _scopes=["error"], to="†state.y"),
        call("see", value="†error.error.message || †state.other", to="†state.z"),
        call(value=SSN),
        context=CONTEXT,
    )
    assert seen(plan) == ([0, 3], [1, 2])
    assert [sight.how for sight in who_sees(plan, SSN).derived] == [("†error of call 0",)] * 2


def test_who_puts_a_value_in_a_text_sees_it_and_what_comes_of_the_text_was_made_from_it() -> None:
    plan = checked(
        call(value="no: †{state.user.ssn} †{state.user.ssn}", to="†state.x"),
        call(value=["†{state.other && state.x}"]),
        call(value="††{state.user.ssn} †{state.other}"),
        context=CONTEXT,
    )
    assert seen(plan) == ([0], [1])
    assert [sight.how for sight in who_sees(plan, SSN).direct] == [("parameter /value",)]


ERROR = {"type": "error", "data": {"error": {"message": "none yet"}}}


def test_so_it_does_by_those_of_a_call_that_is_sent_and_forgotten() -> None:
    plan = checked(call(value=SSN), call(value="†error.error.message", to="†data.x"), context=[*CONTEXT, ERROR])
    assert seen(plan) == ([0], [1])


def test_who_reads_what_comes_of_a_written_result_comes_by_what_was_read_for_it() -> None:
    written = {"_tool": "think", "about": SSN, "_output": 1, "_outputPath": "†data.t"}
    passed_on = {"_tool": "think", "about": "†data.t", "_output": 2, "_outputPath": "†data.u"}
    readers = call(value="†data.u"), call(_scopes=["error"])
    plan = checked(written, passed_on, *readers, context=CONTEXT, activities={"give": ANY})
    assert seen(plan) == ([], [2, 3])
    assert [sight.how for sight in who_sees(plan, SSN).derived] == [
        ("†data.u of call 1 (only whether it is there)",),
        ("†error of call 0",),
    ]


def test_who_reads_errors_comes_by_what_a_result_does_not_go_with() -> None:
    writing, reading = call(to=f"{SSN}.digits"), call(_scopes=["error"], to="†data.x")
    assert seen(checked(writing, reading, context=CONTEXT)) == ([], [1])
    elsewhere = call(to="†state.fresh")
    assert seen(checked(elsewhere, reading, context=CONTEXT)) == ([], [])
    told_to = {"role": "user", "content": "?", "schema": {}}
    judged = [*CONTEXT, told_to, {"type": "state", "schema": {"maxProperties": 9}}]
    assert seen(checked(elsewhere, reading, context=judged)) == ([], [1])


def test_parameters_and_scopes_at_above_or_below_a_place_see_it() -> None:
    plan = checked(
        call(value=SSN),
        call(value={"deep": ["†state.user"]}),
        call(value="†state.user.name"),
        call("see", _scopes=["state"]),
        call("see", _scopes=["†state.user.ssn"]),
        call("see", _scopes=["†state.other", "input"]),
        call("see"),
        context=CONTEXT,
    )
    assert seen(plan) == ([0, 1, 3, 4], [])
    assert [sight.how for sight in who_sees(plan, SSN).direct] == [
        ("parameter /value",),
        ("parameter /value/deep/0",),
        ("scope state",),
        ("scope †state.user.ssn",),
    ]
    assert seen(plan, "†state.user.ssn.digits")[0] == [0, 1, 3, 4]
    assert seen(plan, "state.user")[0] == [0, 1, 2, 3, 4]
    assert seen(plan, "input")[0] == [5]


def test_a_reader_of_what_they_write_is_listed_apart() -> None:
    plan = checked(
        call(value=SSN, to="†data.masked"),
        call(value="†data.masked", to="†data.sent"),
        call("see", _scopes=["data"]),
        call(value="†input.q", to="†state.count"),
        context=CONTEXT,
    )
    assert seen(plan) == ([0], [1, 2])
    assert who_sees(plan, SSN).derived[0].how == ("†data.masked of call 0",)


def test_each_is_listed_once_in_the_order_of_the_calls_by_the_first_result_it_comes_by() -> None:
    plan = checked(
        call(value="†data.two", to="†data.three"),
        call(value="†data.one", to="†data.two"),
        call(value=["†data.one", "†data.two", "†data.three"], to="†data.one.more"),
        call(value=SSN, to="†data.one"),
        context=[*CONTEXT, {"type": "data", "one": {}}],
    )
    assert [(sight.index, sight.how) for sight in who_sees(plan, SSN).derived] == [
        (0, ("†data.two of call 1",)),
        (1, ("†data.one of call 3",)),
        (2, ("†data.one of call 3",)),
    ]


@pytest.mark.parametrize("path", ["user.ssn", "usr", "State.user"])
def test_a_path_without_a_dagger_that_begins_with_no_kind_is_refused(path: str) -> None:
    with pytest.raises(ExpressionError, match=rf"begins with † \(did you mean †state\.{path}\?\)"):
        who_sees(checked(call(value="†state.user"), context=CONTEXT), path)


def test_a_path_that_begins_with_a_kind_of_ones_own_may_go_without_its_dagger() -> None:
    profile = {"type": "data", "kind": "profile", "data": {"name": "x"}}
    assert seen(checked(call(value="†profile"), context=[profile]), "profile.name") == ([0], [])
    assert seen(checked(call(to="†memory"), call(value="†memory")), "memory") == ([1], [])


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("†state.usr.ssn", ", did you mean †state.user.ssn?"),
        ("†stat.user", ", did you mean †state.user?"),
        ("†data.mail", ", did you mean †data.email?"),
        ("†state.nickname", ", did you mean †state.nicknames?"),
        ("†zzz", ""),
        ("†state.user.ssn.digits", ""),
    ],
)
def test_a_place_where_nothing_is_ever_is_reported_with_the_nearest_where_something_is(path: str, hint: str) -> None:
    context = [*CONTEXT, {"type": "state", "_instance": "①", "nicknames": []}]
    plan = checked(call(value="†state.user"), call(to="†data.email"), context=context)
    note = f"nothing is ever at {path}: the context does not hold it and no call writes it{hint}"
    assert who_sees(plan, path).note == note


@pytest.mark.parametrize("path", [SSN, "†state", "†data.email.domain", "†state.nicknames", "†error", "†error.x"])
def test_a_place_where_something_may_be_is_as_it_should_be(path: str) -> None:
    context = [*CONTEXT, {"type": "state", "_instance": "①", "nicknames": []}]
    plan = checked(call(value="†state.user"), call(to="†data.email"), context=context)
    assert who_sees(plan, path).note is None


def test_what_only_has_to_be_there_is_said_to_be_no_more() -> None:
    plan = checked(call(value="†state.user.ssn && †state.other"), context=CONTEXT)
    assert who_sees(plan, SSN).direct[0].how == ("parameter /value (only whether it is there)",)


def test_executors_are_named_and_thoughts_see_nothing() -> None:
    delegated = call("ask", _delegate="clerk", _scopes=["state"], to="†state.answer")
    plan = checked(
        delegated,
        {"_tool": "think", "about": SSN, "_scopes": ["state"]},
        {"_tool": "think", "about": SSN, "_output": 1, "_outputPath": "†data.t"},
        {"_tool": "think", "about": SSN, "_outputPath": "†data.u"},
        context=CONTEXT,
        activities={},
    )
    sights = who_sees(plan, SSN).direct
    assert [(sight.index, sight.executor.value, sight.name) for sight in sights] == [
        (0, "delegate", "clerk"),
        (3, "latent", "think"),
    ]
    assert sights[1].how == ("parameter /about", "the whole context")
    assert [(sight.index, sight.how) for sight in who_sees(plan, "†state.other").direct] == [
        (0, ("scope state",)),
        (3, ("the whole context",)),
    ]
    assert who_sees(plan, SSN).to_dict().keys() == {"path", "note", "direct", "derived"}
    assert who_sees(plan, SSN).to_dict()["path"] == SSN
    assert who_sees(plan, SSN).to_dict()["direct"][0] == {
        "index": 0,
        "tool": "ask",
        "executor": "delegate",
        "name": "clerk",
        "how": ["scope state"],
    }


def test_what_one_instance_makes_of_a_value_reaches_no_other() -> None:
    context = [*CONTEXT, {"type": "text", "_instance": "①"}, {"type": "text", "_instance": "②"}]
    calls = [
        call(value=SSN, to="†data.x", _instance="①"),
        call(value="†data.x", _instance="①"),
        call(to="†data.x", _instance="②"),
        call(value="†data.x", _instance="②"),
    ]
    assert seen(checked(*calls, context=context)) == ([0], [1])
    template = plan_submission(call(value=SSN, to="†data.x"), call(value="†data.x"), context=context)
    assert seen(check_submission(template)) == ([0], [1])


@pytest.mark.parametrize("path", ["", "†", "†state.user && †input", "†state."])
def test_a_path_that_is_no_single_reference_is_refused(path: str) -> None:
    with pytest.raises(ExpressionError):
        who_sees(checked(context=CONTEXT), path)


def test_calls_inside_a_delegate_can_only_narrow_what_it_was_given() -> None:
    parent = Context([*CONTEXT, {"type": "data", "kind": "secret", "data": 1}])
    given = delegate_context(
        [{"type": "system", "message": "m"}],
        [{"type": kind, **value} for kind, value in parent.scoped(["†state.user.name"]).items()],
        {"question": "who?"},
    )
    inner = Context(given)
    assert inner.data() == {"state": {"user": {"name": "Ада"}}, "input": {"question": "who?"}}
    wide = ["state", "input", "secret", "†state.user.ssn", "data"]
    assert inner.scoped(wide) == inner.data()
    for path in (SSN, "†state.other", "†secret"):
        with pytest.raises(Rejected) as rejected:
            check_submission(submission(call(value=path), context=given, tools={"give": ANY}))
        assert rejected.value.errors[0].message.startswith(f"unresolvable reference {path}")
