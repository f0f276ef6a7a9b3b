"""SPEC R6.3: promises, and R6.3a: what is skipped where a reference cannot be satisfied."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Context, Plan, check_submission
from acts_celery.protocol.engine.events import Outcome, PromisesGivenUp, Start, Status, Success
from acts_celery.protocol.plan.support import unsupported

from .building import DATE, call, checked, executing, plan_submission, pointers, problems, problems_of, run, statuses

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
    assert reasons == ["†state.x is not there and no call can bring it any more"]


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
