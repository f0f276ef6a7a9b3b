"""SPEC R6.1-R6.3: which call waits for which, cycles, and what nothing can bring."""

from __future__ import annotations

from random import Random

import pytest

from acts_celery.protocol import Plan, Reference, check_submission
from acts_celery.protocol.plan.graph import SPELLED_OUT, Readers, Writers
from acts_celery.protocol.plan.waits import Waits

from .building import (
    FUNCTIONS,
    call,
    checked,
    plan_submission,
    pointers,
    problems,
    problems_of,
    run,
    statuses,
    submission,
)
from .driver import Driver

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
