"""The graph of a plan (SPEC R6): who waits for whom, what can never come, and its picture."""

from __future__ import annotations

import re
from math import isqrt
from random import Random
from typing import Any

import pytest

from acts_celery.protocol import Context, Output, Plan, Reference, check_submission
from acts_celery.protocol.analysis.findings import LEGEND
from acts_celery.protocol.engine.events import Outcome, PromisesGivenUp, Start, Status, Success
from acts_celery.protocol.limits import MOST_ARROWS, SPELLED_OUT
from acts_celery.protocol.plan.graph import Graph, Readers, Writers
from acts_celery.protocol.plan.support import unsupported
from acts_celery.protocol.plan.waits import LaneWaits, RetryReach, Waits

from .building import (
    ANY,
    DATE,
    FUNCTIONS,
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
from .driver import Driver

# The graph of a plan (SPEC R6): who waits for whom, what can never come, and its picture.

# SPEC R6.1-R6.3: which call waits for which, cycles, and what nothing can bring.

X = [{"type": "state", "x": 0}]


def waits(plan: Plan, index: int, lane: str | None = None) -> tuple[int, ...]:
    """The calls a call waits for."""
    return plan.lanes[lane].graph.before(index)


# R6.1


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("†state.a", "†state.a"),
        ("†state.a", "†state.a.b.c"),
        ("†state.a.b.c", "†state.a"),
        ("†state", "†state.a"),
        ("†state.a", "†state"),
        ("†state.l.0", '†state.l["0"]'),
        ("†state.no || †state.a", "†state.a"),
        ("†state.no && †state.a", "†state.a"),
        ("†state.a", "†input.p || †state.a"),
        ("†state.a", "†state.a && †input.p"),
    ],
)
def test_r6_1_a_call_waits_for_those_that_write_at_above_or_below_what_it_reads(written: str, read: str) -> None:
    plan = checked(call(to=written), call(value={"in": [read]}), context=[{"type": "input", "p": 1}])
    assert plan.edges == ((0, 1),)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("†state.ab", "†state.a"),
        ("†data.a", "†state.a"),
        ("†state.l.1", "†state.l.0"),
        ("†state.a.b", "†state.a.c"),
    ],
)
def test_r6_1_a_call_does_not_wait_for_those_that_write_elsewhere(written: str, read: str) -> None:
    context = [{"type": "state", "a": {"c": 1}, "l": [1]}]
    assert checked(call(to=written), call(value=read), context=context).edges == ()


def test_r6_1_of_several_writers_it_waits_for_those_listed_before_it() -> None:
    plan = checked(call(to="†state.a"), call(to="†state.a.b"), call(value="†state.a"), call(to="†state.a"))
    assert waits(plan, 2) == (0, 1)


def test_r6_1_only_without_one_before_it_waits_for_those_after_unless_the_context_holds_the_value() -> None:
    calls = [call(value="†state.x"), call(to="†state.x"), call(to="†state.x.y")]
    assert waits(checked(*calls), 0) == (1, 2)
    assert waits(checked(*calls, context=X), 0) == ()
    assert waits(checked(call(to="†state.x"), *calls, context=X), 1) == (0,)


def test_r6_1_a_call_never_waits_for_itself() -> None:
    plan = checked(call(to="†state.x", value="†state.x"), context=X)
    assert plan.edges == ()
    plan = checked(*[call(to="†state.x", value="†state.x")] * 3, context=X)
    assert plan.edges == ((0, 1), (0, 2), (1, 2))


def test_r6_1_calls_of_an_instance_wait_for_their_own_and_for_global_writers() -> None:
    context = [{"type": "text", "_instance": name} for name in ("①", "②")]
    plan = checked(
        call(to="†state.a"),
        call(to="†state.b", _instance="①"),
        call(to="†state.b", _instance="②"),
        call(value=["†state.a", "†state.b"], _instance="①"),
        call(value="†state.a"),
        context=context,
    )
    assert waits(plan, 3, "①") == (0, 1)
    assert waits(plan, 4) == (0,)
    assert plan.awaited == {0}


def test_r6_1_a_global_call_does_not_wait_for_those_of_instances() -> None:
    found = problems_of(
        call(to="†state.a", _instance="①"), call(value="†state.a"), context=[{"type": "text", "_instance": "①"}]
    )
    assert pointers(found) == ["/solution/calls/1/value"]


def test_r6_1_what_the_context_holds_is_asked_for_each_instance() -> None:
    context = [{"type": "state", "_instance": "①", "x": 1}, {"type": "text", "_instance": "②"}]
    readers = [call(value="†state.x", _instance=name) for name in "①②"]
    writers = [call(to="†state.x", _instance=name) for name in "①②"]
    plan = checked(*readers, *writers, context=context)
    assert (waits(plan, 0, "①"), waits(plan, 1, "②")) == ((), (3,))


def test_r6_1_the_listing_of_writers_after_readers_does_not_matter_to_the_values() -> None:
    calls = [call(to="†state.c", value="†state.b"), call(to="†state.b", value="†state.a"), call(to="†state.a", value=1)]
    assert run(*calls).data[None]["state"] == {"a": 1, "b": 1, "c": 1}


def test_r6_1_reading_and_writing_one_path_goes_in_the_order_listed() -> None:
    increment = call("increment", to="†state.x", value="†state.x")
    plan = checked(*[increment] * 20, context=X)
    functions = {"increment": lambda parameters, _: parameters["value"] + 1}
    result = Driver(plan, functions, random=Random(1)).run()
    assert result.data[None]["state"] == {"x": 20}
    assert [entry.outcome.index for entry in result.log] == list(range(20))


def test_r6_1_many_writers_are_waited_for_just_like_a_few() -> None:
    many = 3 * SPELLED_OUT
    writers = [call(to=f"†state.l.k{i}", value=i) for i in range(many)]
    plan = checked(call(value="†state.l.k0", to="†data.first"), *writers, *[call(to="†data.all", value="†state.l")] * 2)
    assert waits(plan, 0) == (1,)
    for reader in (many + 1, many + 2):
        assert waits(plan, reader) == tuple(range(1, many + 1))
        assert plan.lanes[None].graph.writers(reader, plan.calls[reader].reads[0][1].references[0]) == waits(
            plan, reader
        )
    assert plan.lanes[None].graph.awaited == set(range(1, many + 1))
    assert len(plan.waves) == 2
    result = Driver(plan, FUNCTIONS, random=Random(2)).run()
    assert result.data[None]["data"]["all"] == {f"k{i}": i for i in range(many)}


def test_r6_1_many_writers_listed_after_their_reader_are_waited_for() -> None:
    writers = [call(to=f"†state.l.k{i}", value=i) for i in range(3 * SPELLED_OUT)]
    plan = checked(call(to="†data.all", value="†state.l"), *writers)
    assert waits(plan, 0) == tuple(range(1, len(writers) + 1))
    result = Driver(plan, FUNCTIONS, random=Random(3)).run()
    assert len(result.data[None]["data"]["all"]) == len(writers)


def test_r6_1_of_many_writers_in_two_lots_the_later_reader_waits_for_both() -> None:
    many = 2 * SPELLED_OUT
    lots = [[call(to=f"†state.l.{lot}{i}", value=i) for i in range(many)] for lot in "ab"]
    plan = checked(*lots[0], call(value="†state.l"), *lots[1], call(value="†state.l"), call(value="†state.l"))
    assert waits(plan, many) == tuple(range(many))
    expected = tuple(index for index in range(2 * many + 1) if index != many)
    assert waits(plan, 2 * many + 1) == waits(plan, 2 * many + 2) == expected


# R6.2


def test_r6_2_a_cycle_is_rejected_and_names_the_calls_on_it_in_order() -> None:
    calls = [
        call("free", to="†state.z"),
        call("first", to="†state.a", value="†state.c"),
        call("second", to="†state.b", value="†state.a"),
        call("third", to="†state.c", value="†state.b"),
    ]
    (problem,) = problems_of(*calls)
    assert problem.pointer == "/solution/calls/1"
    assert (
        "call 1 (first) waits for call 3 (third) waits for call 2 (second) waits for call 1 (first)" in problem.message
    )


def test_r6_2_a_call_that_only_leads_to_a_cycle_is_not_named_as_on_it() -> None:
    leading = [call(to="†state.x", value="†state.y"), call(to="†state.y", value="†state.a")]
    pair = [call(to="†state.a", value="†state.b"), call(to="†state.b", value="†state.a")]
    (problem,) = problems_of(*leading, *pair)
    assert problem.pointer == "/solution/calls/2"
    assert problem.message.endswith("call 2 (give) waits for call 3 (give) waits for call 2 (give)")


def test_r6_2_every_cycle_is_named_at_once() -> None:
    pair = [call(to="†state.a", value="†state.b"), call(to="†state.b", value="†state.a")]
    other = [call(to="†data.a", value="†data.b"), call(to="†data.b", value="†data.a")]
    assert pointers(problems_of(*pair, *other)) == ["/solution/calls/0", "/solution/calls/2"]


def test_r6_2_a_cycle_through_many_writers_names_calls_only() -> None:
    writers = [call(to=f"†state.l.k{i}") for i in range(3 * SPELLED_OUT)]
    last = [call(to="†state.m", value="†state.l"), call(to="†state.l.more", value="†state.m")]
    found = problems_of(call(to="†state.l.first", value="†state.m"), *writers, *last)
    assert len(found) == 1
    assert "-" not in found[0].message.replace("call ", "")
    assert f"call 0 (give) waits for call {len(writers) + 1} (give) waits for call 0 (give)" in found[0].message


def test_r6_2_a_scope_closes_no_cycle() -> None:
    calls = [call(to="†state.a", value="†state.b"), call(to="†state.b", _scopes=["†state.a"])]
    plan = checked(*calls)
    assert (waits(plan, 0), waits(plan, 1)) == ((1,), ())
    assert plan.dropped_waits == ((1, 0),)


def test_r6_2_what_the_context_holds_breaks_a_cycle() -> None:
    calls = [call(to="†state.y", value="†state.x"), call(to="†state.x", value="†state.y")]
    assert "cycle" in problems_of(*calls)[0].message
    assert run(*calls, context=X).data[None]["state"] == {"x": 0, "y": 0}


# R6.3


@pytest.mark.parametrize(
    "expression",
    [
        "†state.no",
        "†state.x && †state.no",
        "†state.no && †state.x",
        "†state.no || †input.no",
        "†state.x.deep",
        "†state.out",
    ],
)
def test_r6_3_a_reference_that_nothing_can_satisfy_is_rejected(expression: str) -> None:
    found = problems_of(call(to="†state.out", value={"in": [expression]}), context=X)
    assert pointers(found) == ["/solution/calls/0/value/in/0"]
    assert str(expression) in found[0].message


@pytest.mark.parametrize(
    "expression", ["†state.no || †state.x", "†state.x || †state.no", "†state.no && †input.no || †state.later.x"]
)
def test_r6_3_unless_an_alternative_can_be_satisfied(expression: str) -> None:
    plan = checked(call(value=expression), call(to="†state.later"), context=X)
    assert len(plan.calls) == 2


def test_r6_3_what_only_other_instances_can_bring_is_rejected_naming_the_instance() -> None:
    context = [{"type": "state", "_instance": "①", "x": 1}, {"type": "text", "_instance": "②"}]
    (problem,) = problems(plan_submission(call(value="†state.x"), context=context))
    assert problem.pointer == "/context/2/calls/0/value"
    assert "②" in problem.message


def test_r6_3_a_narrow_scope_need_not_exist() -> None:
    assert statuses(run(call("see", to="†data.seen", _scopes=["†state.nowhere"]))) == ["done"]


def test_r6_1_writers_between_two_readers_are_waited_for_by_the_second_alone_where_the_value_is_there() -> None:
    writers = [call(to="†state.n", _outputMethod="push", value=number) for number in range(12)]
    calls = [call(value="†state.n"), *writers, call(value="†state.n", to="†state.all")]
    plan = check_submission(submission(*calls, context=[{"type": "state", "n": []}]))
    assert plan.lanes[None].graph.before(0) == ()
    assert plan.lanes[None].graph.before(13) == tuple(range(1, 13))


def test_r6_1_who_writes_a_whole_kind_has_readers_of_any_part_of_it() -> None:
    readers = Readers(checked(call(to="†state"), call(value="†state.a.b"), call(value="†state")).calls)
    assert set(readers.at(Reference("state", ()))) == {1, 2}
    assert set(readers.at(Reference("state", ("a",)))) == {1, 2}
    assert set(readers.at(Reference("state", ("b",)))) == {2}


def test_r11_7_graphs_of_different_readers_stand_beside_each_other() -> None:
    writers = [call(to=f"†state.x.k{index}", value=1) for index in range(20)]
    readers = [call(to=f"†data.r{index}", value="†state.x", _scopes=["state"]) for index in range(4)]
    calls = checked(*writers, *readers).calls
    graphs = [Waits(part, Writers(calls)).graph(set()) for part in (calls[:22], calls[22:])]
    joined = graphs[0].beside(graphs[1])
    assert graphs[0].barriers.keys() & graphs[1].barriers.keys()
    for index in range(len(calls)):
        assert joined.before(index) == graphs[index >= 22].before(index)
    assert {joined.before(index) for index in range(20, 24)} == {tuple(range(20))}


# SPEC R6.3: promises, and R6.3a: what is skipped where a reference cannot be satisfied.

USER = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["name"]}
SCHEMA = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "note": {"type": "string"},
        "user": {"$ref": "#/$defs/user"},
        "list": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
    },
    "required": ["query", "user"],
    "$defs": {"user": USER},
}
PROMISE = {"type": "input", "schema": SCHEMA}


def given(**values: Any) -> dict[str, Any]:
    return {"type": "input", "input": values}


def named(plan: Plan, *, needed: bool | None = None) -> list[str]:
    return [str(one.place) for one in plan.promised if needed in (None, one.needed)]


def begun(*calls: Any, context: list[Any]) -> tuple[Any, Any]:
    """An execution before anything was decided, and its fold."""
    return executing(checked(*calls, context=context))


def started(execution: Any) -> list[int]:
    """The calls that can start now; those that end without being carried out are recorded."""
    found = []
    for decision in execution.decide(DATE):
        if isinstance(decision, Start):
            found.append(decision.call.index)
        else:
            assert isinstance(decision, Outcome)
            execution.record(decision.index, decision.status)
    return found


# R6.3


@pytest.mark.parametrize("place", ["†input", "†input.query", "†input.user.name", "†input.list.0.price", "†input.list"])
def test_r6_3_a_promise_satisfies_references_to_what_its_schema_names(place: str) -> None:
    assert checked(call(value=place), context=[PROMISE]).edges == ()
    assert checked(call(value=place), context=[{"type": "data", "kind": "input", "schema": SCHEMA}]).edges == ()


@pytest.mark.parametrize("place", ["†input.other", "†input.user.other", "†input.query.x", "†state.query"])
def test_r6_3_a_promise_satisfies_nothing_else(place: str) -> None:
    assert pointers(problems_of(call(value=place), context=[PROMISE])) == ["/solution/calls/0/value"]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "state", "schema": SCHEMA},
        {"type": "input", "schema": SCHEMA, "input": {}},
        {"type": "input", "schema": SCHEMA, "data": {}},
        {"type": "input", "schema": SCHEMA, "other": 1},
    ],
)
def test_r6_3_a_schema_beside_a_value_or_of_another_kind_promises_nothing(message: dict[str, Any]) -> None:
    assert problems_of(call(value=f"†{message['type']}.query"), context=[message])
    assert checked(call(), context=[message]).promised == ()


def test_r6_3_a_promise_is_no_value() -> None:
    assert Context([PROMISE]).data() == {}
    assert Context([PROMISE]).fold().schema("input") == SCHEMA


def test_r6_3_what_is_promised_is_listed_until_it_has_a_value() -> None:
    plan = checked(call(value="†input.list.0.price"), context=[PROMISE, given(user={"age": 1})])
    assert named(plan) == ["†input.query", "†input.note", "†input.list", "†input.user.name"]
    assert named(plan, needed=False) == ["†input.note"]
    assert plan.to_dict()["promised"][0] == {
        "place": "†input.query",
        "instance": None,
        "schema": {"type": "string"},
        "needed": True,
    }
    assert (
        checked(call(), context=[PROMISE, given(query="q", note="", list=[], user={"name": "", "age": 1})]).promised
        == ()
    )


def test_r6_3_a_run_needs_what_is_required_or_read() -> None:
    assert [problem.pointer for problem in unsupported(checked(call(), context=[PROMISE]))] == ["/context/0"] * 2
    first = unsupported(checked(call(), context=[PROMISE]))[0]
    assert first.message == (
        "†input.query is promised and has no value: add a message such as "
        '{"type": "input", "input": {"query": "…"}} to the context, '
        "or set config.promise_seconds, for which the run waits for it"
    )
    assert unsupported(checked(call(), context=[PROMISE], config={"promise_seconds": 60})) == []
    whole = given(query="q", user={"name": "Ann"})
    assert unsupported(checked(call(), context=[PROMISE, whole])) == []
    assert len(unsupported(checked(call(value="†input.note"), context=[PROMISE, whole]))) == 1


def test_r6_3_a_promise_may_be_that_of_an_instance() -> None:
    context = [{"type": "text", "_instance": "①"}, {**PROMISE, "_instance": "②"}]
    plan = checked(call(value="†input.query", _instance="②"), context=context)
    assert {one.instance for one in plan.promised} == {"②"}
    assert problems_of(call(value="†input.query", _instance="①"), context=context)
    assert problems_of(call(value="†input.query"), context=context)


def test_r6_3_a_promise_that_one_instance_has_the_value_of_is_open_in_the_others() -> None:
    own = {**given(query="q", user={"name": "Ann"}), "_instance": "①"}
    calls = [call(value="†input.query", _instance=name) for name in ("①", "②")]
    plan = checked(*calls, context=[PROMISE, own, {"type": "text", "_instance": "②"}])
    assert [len(lane.graph.promises) for lane in plan.lanes.values()] == [0, 1]


def test_r6_3_a_call_waits_for_the_promised_value_that_it_reads() -> None:
    execution, fold = begun(call(value="†input.query"), call(value="†input.note"), context=[PROMISE])
    assert started(execution) == []
    assert [str(place) for place in execution.promised] == ["†input.note", "†input.query"]
    fold.append(given(query="q"), "sent")
    execution.receive()
    assert started(execution) == [0]
    assert [str(place) for place in execution.promised] == ["†input.note"]


def test_r6_3_a_scope_waits_for_what_the_schema_requires_of_it() -> None:
    seeing = [call("see", _scopes=[scope]) for scope in ("input", "†input.user.age", "†input.user", "†input.note")]
    execution, fold = begun(*seeing, context=[PROMISE])
    assert started(execution) == [3]
    fold.append(given(user={"name": "Ann"}), "sent")
    execution.receive()
    assert started(execution) == [1, 2]
    fold.append(given(query="q"), "sent")
    execution.receive()
    assert started(execution) == [0]


def test_r6_3_an_alternative_is_fallen_back_to_when_the_promise_is_given_up() -> None:
    calls = [call(to="†data.x", value="†input.query || †state.x"), call(value="†input.note"), call(_scopes=["input"])]
    execution, _ = begun(*calls, context=[PROMISE, {"type": "state", "x": 1}])
    assert started(execution) == []
    execution.apply(PromisesGivenUp())
    assert started(execution) == [0, 2]
    assert execution.status(1) is Status.SKIPPED


def test_r11_6_a_call_misses_what_it_cannot_do_without_and_nothing_else() -> None:
    calls = [
        call(to="†data.a", value="†input.query || †state.x"),
        call(to="†data.b", value="†input.note"),
        call(to="†data.c", value="†data.b"),
        call("see", to="†data.d", _scopes=["input"]),
    ]
    execution, fold = begun(*calls, context=[PROMISE, {"type": "state", "x": 1}])
    assert execution.decide(DATE) == []
    fold.append(given(query="q"), "sent")
    execution.apply(PromisesGivenUp())
    decided = {one.index if isinstance(one, Outcome) else one.call.index: one for one in execution.decide(DATE)}
    skipped = decided[1]
    assert isinstance(skipped, Outcome)
    assert [str(place) for place in execution.missed(skipped)] == ["†input.note"]
    assert skipped.reason == "†input.note is not there: it was promised and did not come in time"
    ends = [execution.finish(index, Success(1), DATE) for index in (0, 3)]
    assert [[str(place) for place in execution.missed(end)] for end in ends] == [
        [],
        ["†input.user", "†input.user.name"],
    ]
    execution.record(1, skipped.status)
    (spread,) = execution.decide(DATE)
    assert isinstance(spread, Outcome)
    assert (spread.index, execution.missed(spread)) == (2, ())


def test_r6_3_a_value_that_is_there_is_read_at_once_and_may_be_written_by_a_call() -> None:
    calls = [call(to="†input.note", value="n"), call(value="†input.note"), call(value="†input.query")]
    execution, fold = begun(*calls, context=[PROMISE, given(query="q")])
    assert started(execution) == [0, 2]
    execution.record(0, Status.RUNNING)
    outcome = execution.finish(0, Success("n"), DATE)
    for message in outcome.messages:
        fold.append(message, "result")
    execution.record(0, outcome.status)
    assert started(execution) == [1]


def test_r6_3_what_is_promised_is_waited_for_and_no_call_listed_after() -> None:
    plan = checked(
        call(to="†data.x", value="†input.query"), call(to="†input.query", value="†data.x"), context=[PROMISE]
    )
    assert plan.edges == ((0, 1),)


def test_r6_3_schemas_that_refer_to_themselves_promise_what_they_name() -> None:
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    plan = checked(call(value="†input.next.next.next"), context=[{"type": "input", "schema": schema}])
    assert named(plan) == ["†input.next"]


def test_r6_3_a_simulation_takes_what_is_promised_as_given() -> None:
    from acts_celery.protocol.analysis.simulation import simulate

    plan = checked(call(to="†data.x", value="†input.user.name"), call(_scopes=["input"]), context=[PROMISE])
    assert [one.status for one in simulate(plan).calls] == [Status.DONE, Status.SENT]


# R6.3a


def test_r6_3a_with_partial_a_call_is_skipped_where_it_cannot_read_and_so_are_those_that_need_it() -> None:
    context = [{"type": "state", "_instance": "①", "x": 1}, {"type": "text", "_instance": "②"}]
    calls = [call(to="†data.a", value="†state.x"), call(to="†data.b", value="†data.a"), call(to="†data.c")]
    value = plan_submission(*calls, context=context)
    assert pointers(problems(value)) == ["/context/2/calls/0/value"]
    plan = check_submission({**value, "config": {"partial": True}})
    assert [(one.instance, one.call, one.at) for one in plan.skipped] == [("②", 0, "/value")]


def test_r6_3a_what_is_missing_globally_is_an_error_all_the_same() -> None:
    assert problems_of(call(value="†state.x"), config={"partial": True})


def test_r6_3a_a_skipped_call_says_what_is_not_there() -> None:
    context = [{"type": "state", "_instance": "①", "x": 1}, {"type": "text", "_instance": "②"}]
    calls = [call(to="†data.a", value="†state.x", _instance=name) for name in ("①", "②")]
    result = run(*calls, call(value="†data.a", _instance="②"), context=context, config={"partial": True})
    assert (statuses(result, "①"), statuses(result, "②")) == (["done"], ["skipped", "skipped"])
    reasons = [str(entry.outcome.reason) for entry in result.log if entry.outcome.index == 1]
    assert reasons == ["†state.x is missing, and no call can write it any more"]


def test_r6_3_a_request_needs_what_is_promised_and_required_too() -> None:
    schema = {"properties": {"a": {}, "b": {}}, "required": ["a"]}
    value = {"context": [{"type": "input", "schema": schema}], "schema": {"type": "string"}}
    plan = check_submission(value)
    assert [(str(one.place), one.instance, one.needed) for one in plan.promised] == [
        ("†input.a", None, True),
        ("†input.b", None, False),
    ]
    assert [problem.pointer for problem in unsupported(plan)] == ["/context/0"]
    given = [{"type": "input", "_instance": "①", "a": 1}, {"type": "state", "_instance": "②", "x": 1}]
    partly = check_submission({**value, "context": [*value["context"], *given]})
    assert [(str(one.place), one.instance) for one in partly.promised if one.needed] == [("†input.a", None)]
    waiting = check_submission({**value, "config": {"promise_seconds": 5}})
    assert unsupported(waiting) == []


# SPEC R6.8: order without data.

# R6.8

PUT, LOOK = call(to="†state.put", value=1), call("see", "†data.seen", _scopes=["†data.none"])


@pytest.mark.parametrize("calls", [(PUT, {**LOOK, "_after": ["†state.put"]}), ({**LOOK, "_after": ["†state"]}, PUT)])
def test_r6_8_a_call_waits_for_what_writes_there_listed_before_or_after_it_and_sees_nothing_of_it(calls: Any) -> None:
    looks = next(index for index, one in enumerate(calls) if one["_tool"] == "see")
    result = run(*calls, context=X)
    assert waits(checked(*calls), looks) == (1 - looks,)
    assert result.started == ((None, 1 - looks), (None, looks))
    assert result.data[None]["data"]["seen"] == {}


def test_r6_8_it_waits_also_where_the_context_holds_a_value_or_all_of_them_are_listed_after_it() -> None:
    plan = checked({**LOOK, "_after": ["†state.x"]}, call(to="†state.x.y"), call(to="†state.x"), context=X)
    assert waits(plan, 0) == (1, 2)


@pytest.mark.parametrize("many", [3, 40])
def test_r6_8_many_may_wait_for_many_listed_on_both_sides_of_them(many: int) -> None:
    writers = [call(to=f"†state.a.k{number}") for number in range(many)]
    readers = [call(to=f"†data.r{number}", _after=["†state.a"]) for number in range(many)]
    plan = checked(*writers, *readers, *writers)
    expected = (*range(many), *range(2 * many, 3 * many))
    assert [waits(plan, many + number) for number in range(many)] == [expected] * many
    result = run(*writers, *readers, *writers)
    assert sorted(index for _, index in result.started[2 * many :]) == list(range(many, 2 * many))


@pytest.mark.parametrize(
    "writes",
    [
        (call("fail", "†state.put"),),
        (call("fail", "†state.none"), call(to="†state.put", value="†state.none")),
        (call("pick", "†state.put || †state.other", where="††state.other"),),
    ],
    ids=["failed", "skipped", "wrote elsewhere"],
)
def test_r6_8_however_those_have_ended_it_runs(writes: tuple[Any, ...]) -> None:
    functions = {**FUNCTIONS, "pick": lambda parameters, context: Output(parameters["where"], 1)}
    result = run(*writes, {**LOOK, "_after": ["†state.put"]}, functions=functions)
    assert statuses(result)[-1] == "done"
    assert result.started[-1] == (None, len(writes))


def test_r6_8_a_circle_through_it_is_rejected_and_a_scope_that_would_close_one_does_not_wait() -> None:
    circle = call(to="†state.a", _after=["†state.b"]), call(to="†state.b", value="†state.a")
    (problem,) = problems_of(*circle)
    assert (problem.pointer, "cycle" in problem.message) == ("/solution/calls/0", True)
    (own,) = problems_of(call(to="†state.a", _after=["†state.b"]), call(to="†state.b", _after=["†state.a"]))
    assert "cycle" in own.message
    plan = checked(call(to="†state.a", _after=["†data.seen"]), call("see", "†data.seen", _scopes=["†state.a"]))
    assert (waits(plan, 0), waits(plan, 1), plan.dropped_waits) == ((1,), (), ((1, 0),))


@pytest.mark.parametrize(
    ("after", "pointer", "word"),
    [
        ("†state.put", "/_after", "list"),
        (["state.put"], "/_after/0", "place"),
        (["†state.put || †state.x"], "/_after/0", "one place"),
        (["†state.put", "†state..x"], "/_after/1", "expected"),
        (["†error"], "/_after/0", "error"),
        (["†state.putt"], "/_after/0", "no other call writes it"),
        (["†data.seen"], "/_after/0", "no other call writes it"),
    ],
)
def test_r6_8_what_cannot_be_waited_for_is_an_error_at_its_place(after: Any, pointer: str, word: str) -> None:
    (problem,) = problems_of(PUT, {**LOOK, "_after": after})
    assert (problem.pointer, word in problem.message) == ("/solution/calls/1" + pointer, True)


def test_r6_8_a_tool_may_pin_it() -> None:
    tools = {"see": {"properties": {"_after": {"const": ["†state.put"]}}}}
    assert waits(checked(PUT, LOOK, tools=tools), 1) == (0,)
    (problem,) = problems_of(PUT, {**LOOK, "_after": ["†state"]}, tools=tools)
    assert problem.pointer == "/solution/calls/1/_after"


def test_r6_8_an_instance_waits_for_its_own_calls_and_global_ones_and_a_gather_call_for_those_of_all() -> None:
    context = [{"type": "state", "_instance": name, "x": 0} for name in ("①", "②")]
    calls = (
        call(to="†state.put", _instance="①"),
        call(to="†state.put"),
        call("see", "†data.one", _instance="②", _after=["†state.put"]),
        call("see", "†data.all", _gather=True, _after=["†state.put"]),
    )
    plan = checked(*calls, context=context)
    assert waits(plan, 2, "②") == (1,)
    result = run(*calls, context=context)
    assert result.started.index((None, 3)) > max(map(result.started.index, [("①", 0), (None, 1)]))


def test_r6_8_a_repeated_writer_leaves_it_as_it_is() -> None:
    plan = checked(
        call("fail", "†state.put"), {**LOOK, "_after": ["†state.put"]}, call(to="†data.x", value="†data.seen")
    )
    lanes = [LaneWaits(None, [plan.lanes[None].graph])]
    everything: dict[str | None, set[int]] = {None: {0, 1, 2}}
    extent = RetryReach(lanes, (), everything, everything).extended({None: {0}}, {None: set()})
    assert (extent.calls, extent.stale) == ({None: {0}}, {None: set()})


def test_r6_8_the_drawing_says_that_it_carries_no_value() -> None:
    assert '-.->|"after †state.put"|' in checked(PUT, {**LOOK, "_after": ["†state.put"]}).to_mermaid(annotated=True)


# SPEC R6.7: the graph without running anything.

# R6.7


def test_r6_7_waves_list_what_can_run_at_the_same_time() -> None:
    plan = checked(
        call(to="†state.a"),
        call(to="†state.c", value="†state.b"),
        call(to="†state.b", value="†state.a"),
        call(to="†state.d", value="†state.a"),
        call(event="†state.c"),
        call(),
    )
    assert plan.waves == ((0, 5), (2, 3), (1,), (4,))


def test_r6_7_waves_of_instances_come_after_the_global_calls_they_wait_for() -> None:
    context = [{"type": "text", "_instance": "①"}]
    plan = checked(
        call(to="†state.a"),
        call(to="†state.b", value="†state.a"),
        call(value="†state.b", _instance="①"),
        context=context,
    )
    assert plan.waves == ((0,), (1,), (2,))


def test_r6_7_the_graph_is_had_as_data() -> None:
    plan = checked(call(to="†state.a"), call(value="†state.a"))
    nothing: dict[str, list[Any]] = {"findings": [], "promised": [], "scopes": [], "held": []}
    assert plan.to_dict() == {"waves": [[0], [1]], "edges": [[0, 1]], **nothing}


def test_r6_7_of_many_writers_in_a_row_the_edges_name_the_nearest() -> None:
    plan = checked(*[call(to="†state.x", value="†state.x")] * 50, context=X)
    assert (48, 49) in plan.edges
    assert len(plan.edges) < 50 * SPELLED_OUT
    assert len(plan.waves) == 50


def test_r6_7_of_many_independent_writers_the_edges_name_each() -> None:
    many = 2 * SPELLED_OUT
    writers = [call(to=f"†state.l.k{i}") for i in range(many)]
    reader = call(value="†state.l")
    plan = checked(*writers, reader, *[call(to="†state.l.x")] * 3, reader)
    first, last = [(i, many) for i in range(many)], [(i, many + 4) for i in (*range(many), *range(many + 1, many + 4))]
    assert sorted(plan.edges) == sorted([*first, *last])


def test_r6_7_the_graph_is_drawn_as_a_mermaid_flowchart() -> None:
    plan = checked(
        call("find", to="†state.good || †state.bad"),
        {"_tool": 'say "<hi>" #1;', "_delegate": "d", "value": "†state.good", "_outputPath": "†state.said"},
        {"_tool": "think", "_output": 1, "_outputPath": "†state.t", "about": "†state.bad"},
        call("log", event="†state.said"),
        activities={"find": ANY, "log": ANY},
    )
    assert plan.to_mermaid().splitlines() == [
        "flowchart TD",
        '    c0["0 find"]',
        '    c1[["1 say &quot;&lt;hi&gt;&quot; #35;1;"]]',
        '    c2(["2 think"])',
        '    c3[/"3 log"/]',
        '    c0 -->|"†state.good ?"| c1',
        '    c0 -->|"†state.bad ?"| c2',
        '    c1 -->|"†state.said"| c3',
    ]


def test_r6_7_instances_of_one_call_are_one_node() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②③"]
    drawing = check_submission(plan_submission(call(), call(_instance="②"), context=context)).to_mermaid()
    assert '    c0[/"0 give<br/>× 3 instances"/]' in drawing.splitlines()
    assert '    c1[/"1 give<br/>②"/]' in drawing.splitlines()


def test_r6_7_a_graph_without_calls_is_empty() -> None:
    graph = Graph({})
    assert (graph.before(0), list(graph.cycles()), graph.levels({}), graph.awaited) == ((), [], {}, frozenset())
    assert checked().waves == ()


# The annotated drawing: branches, fan-out and executors told apart, in Mermaid that parses (SPEC R6.7).

NODE = re.compile(r'    c\d+(\["[^"]*"\]|\[\["[^"]*"\]\]|\(\["[^"]*"\]\)|\[/"[^"]*"/\])(:::[a-z]+)?')
EDGE = re.compile(r'    c\d+ (-->|-\.->)\|"[^"|]+"\| c\d+')
OTHER = re.compile(r"    (%% [^{}]*|classDef [a-z]+ [a-z0-9:#,\- ]+|style c\d+ stroke-width:3px)")


def drawn(plan: Plan) -> list[str]:
    """The lines of a drawing, each of which Mermaid's flowchart grammar knows."""
    first, *lines = plan.to_mermaid(annotated=True).splitlines()
    assert first == "flowchart TD"
    assert all(NODE.fullmatch(line) or EDGE.fullmatch(line) or OTHER.fullmatch(line) for line in lines), lines
    return lines


def test_branches_are_dashed_and_fan_out_is_bold() -> None:
    plan = checked(
        call("find", to="†state.good || †state.bad"),
        call("ask", _delegate="d", value="†state.good", to="†state.said"),
        {"_tool": "think", "_output": 1, "_outputPath": "†state.t", "about": "†state.bad"},
        call("log", event="†state.said || †state.t"),
        {"_tool": "think"},
        activities={"find": ANY, "log": ANY},
    )
    lines = drawn(plan)
    assert lines[: len(LEGEND)] == [f"    {line}" for line in LEGEND]
    assert lines[len(LEGEND) :] == [
        '    c0["0 find"]',
        '    c1[["1 ask"]]:::delegate',
        '    c2(["2 think"]):::latent',
        '    c3[/"3 log"/]:::background',
        '    c0 -.->|"if †state.good"| c1',
        '    c0 -.->|"if †state.bad"| c2',
        '    c1 -->|"†state.said"| c3',
        '    c2 -.->|"or †state.t"| c3',
        "    classDef delegate fill:#e8f0fe,stroke:#3367d6,color:#000",
        "    classDef latent fill:#fef7e0,stroke:#b06000,color:#000",
        "    classDef background fill:#f1f3f4,stroke:#80868b,color:#000,stroke-dasharray:4 3",
        "    style c0 stroke-width:3px",
    ]


def test_what_is_read_only_where_nothing_else_is_there_is_dashed() -> None:
    held = [{"type": "state", "a": 1}]
    plan = checked(call(to="†state.b"), call(value="†state.a || †state.b"), context=held)
    assert '    c0 -.->|"or †state.b"| c1' in drawn(plan)


def test_a_reader_of_either_branch_gets_a_value_for_certain() -> None:
    plan = checked(call(to="†data.a || †data.b"), call(value="†data.a || †data.b"))
    assert '    c0 -->|"†data.a, †data.b"| c1' in drawn(plan)


def test_names_and_paths_cannot_break_out_of_their_labels() -> None:
    evil = 'x"]; click c0 "javascript:1" --> c1 | <b>&#123;%% end'
    plan = checked(call(evil, to='†data["a\\"|]\\n c9"]'), call(evil, value='†data["a\\"|]\\n c9"]'))
    lines = drawn(plan)
    assert sum("-->|" in line for line in lines) == 1


def test_instances_are_one_node() -> None:
    context = [{"type": "text", "_instance": name} for name in ("①", 'a"b', "③")]
    value = plan_submission(call(), call(_instance='a"b'), context=context)
    lines = drawn(check_submission(value))
    assert '    c0[/"0 give<br/>× 3 instances"/]:::background' in lines
    assert '    c1[/"1 give<br/>a&quot;b"/]:::background' in lines


def test_the_plain_drawing_has_neither_legend_nor_styles() -> None:
    assert "%%" not in checked(call()).to_mermaid()


def test_a_drawing_says_how_many_arrows_it_leaves_out() -> None:
    many = isqrt(MOST_ARROWS) + 1
    plan = checked(*[call(to="†state.x")] * many, *[call(value="†state.x")] * many)
    assert len(plan.edges) == many**2
    left_out = f"    %% {many**2 - MOST_ARROWS} more arrows are not drawn: the edges of the plan list all"
    for lines in (drawn(plan), plan.to_mermaid().splitlines()):
        assert sum(EDGE.fullmatch(line) is not None for line in lines) == MOST_ARROWS
        assert left_out in lines
