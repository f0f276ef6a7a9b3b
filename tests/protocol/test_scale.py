"""Ten thousand calls: checking them and driving them to the end takes steps in proportion to their number.

Steps are counted and no clock is looked at: four times the calls may take hardly more than four times the steps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from protocol import Plan, Rejected, check_submission
from protocol.execution import Execution, Outcome, Start, Success
from protocol.resolution import Fold

from .building import call, plan_submission, submission

TEXT = [{"type": "text", "_instance": "①"}]


def chain(number: int) -> dict[str, Any]:
    """Each call reads what the one before it wrote."""
    calls = [call(to=f"†state.k{i}", value=f"†state.k{i - 1}" if i else 0) for i in range(number)]
    return submission(*calls)


def backward_chain(number: int) -> dict[str, Any]:
    """Each call reads what the one listed after it writes."""
    return submission(*reversed(chain(number)["solution"]["calls"]))


def one_path(number: int) -> dict[str, Any]:
    """Each call reads and writes the same path."""
    return submission(*[call(to="†state.n", value="†state.n")] * number, context=[{"type": "state", "n": 0}])


def wide(number: int) -> dict[str, Any]:
    """Nothing waits for anything."""
    return submission(*[call(to=f"†state.k{i}") for i in range(number)])


def fan_in(number: int) -> dict[str, Any]:
    """One call reads what all others write, one by one; another reads all of it at once."""
    each = call(value=[f"†state.all.k{i}" for i in range(number)], to="†data.each")
    return submission(
        *[call(to=f"†state.all.k{i}") for i in range(number)], each, call(value="†state.all.k0 && †state")
    )


def fan_in_of_alternatives(number: int) -> dict[str, Any]:
    """One call reads one of two places for every other call."""
    writers = [call(to=f"†state.a{i} || †state.b{i}") for i in range(number)]
    return submission(*writers, call(value=[f"†state.b{i} || †state.a{i}" for i in range(number)]))


def fan_out(number: int) -> dict[str, Any]:
    """All calls read what one wrote."""
    return submission(call(to="†state.x"), *[call(value="†state.x") for _ in range(number)])


def pushes(number: int) -> dict[str, Any]:
    """All calls push to one list, and one reads it."""
    return submission(*[call(to="†state.l", _outputMethod="push")] * number, call(value="†state.l"))


def many_by_many(number: int) -> dict[str, Any]:
    """Half of the calls wait for the whole other half."""
    half = number // 2
    writers = [call(to=f"†state.l.k{i}") for i in range(half)]
    return submission(
        *writers, *[call(value="†state.l.k0", _scopes=["†state.l.no"], about="†state.l.k1") for _ in range(half)]
    )


def above_and_below(number: int) -> dict[str, Any]:
    """All calls merge at the root, and each reads a path of its own below it."""
    calls = [call(to="†state", value=f"†state.k{i}", _outputMethod="merge") for i in range(number)]
    return submission(*calls, context=[{"type": "state", **{f"k{i}": {} for i in range(number)}}])


def whole_kinds(number: int) -> dict[str, Any]:
    """A chain whose every call has a whole kind in its scopes."""
    value = chain(number)
    for each in value["solution"]["calls"]:
        each["_scopes"] = ["data"]
    return value


def branches(number: int) -> dict[str, Any]:
    """If and else, again and again, half of it skipped."""
    calls = []
    for i in range(number // 4):
        calls.append(call(to=f"†state.yes{i} || †state.no{i}", value=f"†state.end{i - 1}" if i else 0))
        calls.append(call(to=f"†state.then{i}", value=f"†state.yes{i}"))
        calls.append(call(to=f"†state.else{i}", value=f"†state.no{i}"))
        calls.append(call(to=f"†state.end{i}", value=f"†state.then{i} || †state.else{i}"))
    return submission(*calls)


def plan_of_instances(number: int) -> dict[str, Any]:
    """A plan of two calls, and half as many instances."""
    context = [{"type": "state", "_instance": f"i{i}", "a": i} for i in range(number // 2)]
    return plan_submission(
        call(to="†state.b", value="†state.a"), call(to="†state.c", value="†state.b"), context=context
    )


def solution_of_instances(number: int) -> dict[str, Any]:
    """One call for each instance, all reading what a few global calls write."""
    context = [{"type": "state", "_instance": f"i{i}", "a": i} for i in range(number)]
    shared = [call(to=f"†data.g{i}") for i in range(50)]
    own = [
        call(to="†state.b", value=["†state.a", "†data.g7"], _instance=f"i{i}", _scopes=["data"]) for i in range(number)
    ]
    return submission(*shared, *own, context=context)


def pinned_plan(number: int) -> dict[str, Any]:
    """A plan with one call for each instance."""
    context = [{"type": "state", "_instance": f"i{i}", "a": i} for i in range(number)]
    return plan_submission(*[call(to="†state.b", _instance=f"i{i}") for i in range(number)], context=context)


def globals_between(number: int) -> dict[str, Any]:
    """A lane that hears of a new global value before each of its calls."""
    shared = [call(to=f"†data.g{i}") for i in range(number // 2)]
    own = [call(to=f"†state.k{i}", value=f"†data.g{i}", _instance="①") for i in range(number // 2)]
    return submission(*[one for pair in zip(shared, own, strict=True) for one in pair], context=TEXT)


SHAPES = [
    chain,
    backward_chain,
    one_path,
    wide,
    fan_in,
    fan_in_of_alternatives,
    fan_out,
    pushes,
    many_by_many,
    above_and_below,
    whole_kinds,
    branches,
    plan_of_instances,
    solution_of_instances,
    pinned_plan,
    globals_between,
]


def steps(function: Callable[[], object]) -> int:
    """How many functions are called, built-in ones too."""
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def drive(plan: Plan) -> None:
    """Drive all lanes to the end, call by call in turns; results carry nothing that grows."""
    shared = Fold()
    folds: dict[str | None, Fold] = {None: shared} | {name: Fold(shared) for name in plan.context.instances}
    for message in plan.submission.context:
        folds[message.get("_instance")].append(message, "a message")
    lanes = {
        name: Execution(lane.calls, lane.graph, folds[name], plan.tools, instance=name)
        for name, lane in plan.lanes.items()
    }
    queue = {name: iter(_outcomes(lane)) for name, lane in lanes.items()}
    awaiting = [name for name in plan.lanes if name is not None and plan.awaited] if len(plan.lanes) < 10 else []
    while queue:
        for name in list(queue):
            outcome = next(queue[name], None)
            if outcome is None:
                del queue[name]
                if name is None and len(plan.lanes) >= 10:
                    for other in lanes:
                        if other is not None:
                            for index, status in lanes[None].statuses.items():
                                lanes[other].record(index, status)
                            queue[other] = iter(_outcomes(lanes[other]))
                continue
            for message in outcome.messages:
                folds[name].append(message, "a result")
            lanes[name].record(outcome.index, outcome.status)
            if name is None:
                for other in awaiting:
                    lanes[other].record(outcome.index, outcome.status)
                    queue.setdefault(other, iter(_outcomes(lanes[other])))
    assert all(lane.is_finished for lane in lanes.values())


def _outcomes(execution: Execution) -> Iterator[Outcome]:
    while decisions := execution.decide("now"):
        for decision in decisions:
            if isinstance(decision, Start):
                yield execution.finish(decision.call.index, Success({}), "now")
            else:
                yield decision


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_checking_and_driving_take_steps_in_proportion_to_the_calls(shape: Callable[[int], dict[str, Any]]) -> None:
    counts = []
    for number in (100, 400):
        value = shape(number)
        check_submission(value)
        plans: list[Plan] = []
        checking = steps(lambda: plans.append(check_submission(value)))  # noqa: B023  # called at once
        looking = steps(lambda: (plans[0].waves, plans[0].awaited))  # noqa: B023  # called at once
        driving = steps(lambda: drive(plans[0]))  # noqa: B023  # called at once
        counts.append((checking, looking, driving))
    for few, many in zip(*counts, strict=True):
        assert many < 5 * few, counts


def test_ten_thousand_errors_are_told_in_proportion_to_their_number() -> None:
    def rejected(number: int) -> Callable[[], None]:
        context = [{"type": "state", "_instance": f"instance{i}"} for i in range(number)]
        wrong = [{"_tool": f"giev{i}", "_instance": f"instanse{i}", "value": f"†state.no{i}"} for i in range(number)]
        tools = {f"give{i}": {} for i in range(20)}
        value = {"context": context, "solution": {"calls": wrong}, "tools": tools}

        def check() -> None:
            with pytest.raises(Rejected):
                check_submission(value)

        return check

    assert steps(rejected(4_000)) < 5 * steps(rejected(1_000))


def test_conflicts_without_number_are_told_apart_in_proportion_to_their_number() -> None:
    def folding(number: int) -> Callable[[], None]:
        messages: list[dict[str, Any]] = [{"type": "state", "n": 5}]
        for i in range(number):
            path = f"†state.n.k{i}"
            messages.append({"type": "state", "data": {"n": {f"k{i}": 1}}, "_call": {"_outputPath": path}})
            messages.append({"type": "state", "other": i})

        def fold() -> None:
            whole = Fold()
            for message in messages:
                whole.append(message, "a message")
            assert len(whole.conflicts()) == number
            assert whole.snapshot() == {"state": {"n": 5, "other": number - 1}}

        return fold

    assert steps(folding(400)) < 5 * steps(folding(100))
