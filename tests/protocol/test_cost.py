"""What a run will cost, known before it starts (SPEC R6.7)."""

from __future__ import annotations

from dataclasses import replace

from acts_celery.protocol import check_submission

from .building import call, checked, plan_submission


def test_tasks_are_lanes_sends_and_two_for_each_request() -> None:
    plan = checked(
        call(to="†data.a"),
        call("ask", _delegate="d", value="†data.a", to="†data.b"),
        {"_tool": "think", "_outputPath": "†data.c"},
        {"_tool": "think", "_output": 1, "_outputPath": "†data.d"},
        {"_tool": "think"},
        call(value="†data.b"),
        activities={"give": {}},
    )
    assert plan.cost.to_dict() == {
        "calls": 5,
        "lanes": 1,
        "tasks": 1 + 1 + 2 * (1 + 1),
        "wake_ups": 0,
        "queued_activities": 0,
        "delegate_requests": 1,
        "model_requests": 1,
        "background_sends": 1,
        "depth": 3,
        "width": 3,
    }


def test_a_plan_costs_as_much_as_it_has_instances() -> None:
    context = [{"type": "text", "_instance": str(number)} for number in range(50)]
    calls = call("ask", _delegate="d", to="†data.a"), call(value="†data.a")
    cost = check_submission(plan_submission(*calls, context=context)).cost
    assert (cost.calls, cost.lanes, cost.depth, cost.width) == (100, 50, 2, 50)
    assert (cost.delegate_requests, cost.background_sends, cost.tasks) == (50, 50, 50 + 50 + 100)
    assert cost.wake_ups == 0, "instances wait for calls of their own only"


def test_an_instance_without_calls_costs_nothing() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②"]
    cost = check_submission(plan_submission(call(to="†data.a", _instance="②"), context=context)).cost
    assert (cost.calls, cost.lanes, cost.tasks) == (1, 1, 1)


def test_depth_runs_through_global_calls_and_width_over_all_lanes() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②"]
    calls = [call(to="†data.a"), *(call(value="†data.a", _instance=name) for name in "①②")]
    cost = checked(*calls, context=context).cost
    assert (cost.lanes, cost.depth, cost.width) == (3, 2, 2)


def test_a_call_that_gathers_stands_behind_those_of_all_instances() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②③"]
    own = call(to="†data.a"), call(value="†data.a", to="†data.b")
    gathering = call(value="†data.b", _gather=True, to="†data.c")
    plan = check_submission(plan_submission(*own, gathering, context=context))
    assert plan.waves == ((0,), (1,), (2,))
    assert (plan.cost.depth, plan.cost.width) == (3, 3)


def test_an_activity_with_a_queue_of_its_own_takes_a_task_there_and_one_back() -> None:
    plan = checked(call(to="†data.a"), call("count", to="†data.b"), call("count"))
    assert plan.cost.tasks == 1 + 1
    cost = replace(plan, queued=frozenset({"count"})).cost
    assert (cost.tasks, cost.queued_activities, cost.background_sends) == (1 + 1 + 2, 1, 1)


def test_each_awaited_global_call_can_wake_each_lane_that_waits() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②③"]
    shared = call(to="†data.a"), call(to="†data.b"), call(to="†data.c")
    readers = [call(value=f"†data.{key}", _instance=name) for key, name in zip("aba", "①②③", strict=True)]
    cost = checked(*shared, *readers, context=context).cost
    assert (cost.wake_ups, cost.tasks) == (3 * 2, 4 + 3)
    assert checked(*shared, call(_instance="③"), context=context).cost.wake_ups == 0


def test_nothing_costs_nothing() -> None:
    assert set(checked().cost.to_dict().values()) == {0}
