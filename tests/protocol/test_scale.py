"""Time and memory grow no faster than the plan and its values."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from acts_celery.protocol import Context, Plan, Reference, Rejected, check_submission, references
from acts_celery.protocol.analysis.sample_values import DemandedShapes
from acts_celery.protocol.analysis.simulation import simulate
from acts_celery.protocol.calls import meta_properties
from acts_celery.protocol.engine.events import Decision, Outcome, Status, Success
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import read_answer, read_request
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.operations import Method, Operation

from .building import call, plan_submission, problems, submission

# Ten thousand calls: checking them and driving them to the end takes steps in proportion to their number.


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
]


def steps(function: Callable[[], object]) -> int:
    """How many functions are called, built-in ones too, once what is cached is there."""
    function()
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
    """Drive all lanes to the end, the global one first; results carry nothing that grows."""
    folds = read(plan)
    ended: dict[int, Status] = {}
    for name in sorted(plan.lanes, key=lambda name: name or ""):
        lane = plan.lanes[name]
        execution = Execution.of(plan, lane, folds[name])
        for index in plan.awaited if name is not None else ():
            execution.record(index, ended[index])
        go_on(execution, folds[name])
        assert execution.is_finished
        if name is None:
            ended = execution.statuses


def look(plan: Plan) -> None:
    """Ask for what is worked out only when asked for, but who waits for whom: see below."""
    assert len(plan.waves) + len(plan.awaited) >= 1


def read(plan: Plan) -> dict[str | None, Fold]:
    """The context as each lane's reader sees it."""
    shared = Fold()
    folds: dict[str | None, Fold] = {None: shared} | {name: Fold(shared) for name in plan.context.instances}
    for message in plan.submission.context:
        folds[message.get("_instance")].append(message, "a message")
    return folds


def go_on(execution: Execution, fold: Fold) -> None:
    """Carry out whatever can be."""
    while decisions := execution.decide("now"):
        for decision in decisions:
            commit(execution, fold, decision)


def commit(execution: Execution, fold: Fold, decision: Decision) -> Outcome:
    """Carry out one decision."""
    if not isinstance(decision, Outcome):
        return commit(execution, fold, execution.finish(decision.call.index, Success({}), "now"))
    for message in decision.messages:
        fold.append(message, "a result")
    assert execution.record(decision.index, decision.status)
    return decision


@pytest.mark.nightly
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_checking_and_driving_take_steps_in_proportion_to_the_calls(shape: Callable[[int], dict[str, Any]]) -> None:
    counts = []
    for number in (100, 400):
        value = shape(number)
        plans: list[Plan] = []
        checking = steps(lambda: plans.append(check_submission(value)))  # noqa: B023  # called at once
        looking = steps(lambda: look(plans.pop()))  # noqa: B023  # called at once
        plan = check_submission(value)
        driving = steps(lambda: drive(plan))  # noqa: B023  # called at once
        counts.append((checking, looking, driving))
    for few, many in zip(*counts, strict=True):
        assert many < 5 * few, counts


@pytest.mark.nightly
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_who_waits_for_whom_is_reported_and_drawn_in_steps_in_proportion_to_the_calls(
    shape: Callable[[int], dict[str, Any]],
) -> None:
    """Where many wait for many the pairs are too many to be drawn, but to know them takes no more than elsewhere."""

    def telling(number: int) -> Callable[[], object]:
        plans = [check_submission(shape(number)) for _ in range(2)]
        if shape is many_by_many:
            return lambda: plans.pop().readers
        return lambda: plans.pop().to_mermaid(annotated=True)

    assert steps(telling(400)) < 5 * steps(telling(100))


@pytest.mark.nightly
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_simulation_takes_steps_in_proportion_to_the_calls(shape: Callable[[int], dict[str, Any]]) -> None:
    def simulating(number: int) -> Callable[[], object]:
        plan = check_submission(shape(number))
        return lambda: simulate(plan)

    assert steps(simulating(400)) < 5 * steps(simulating(100))


@pytest.mark.nightly
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_findings_take_steps_in_proportion_to_the_calls(shape: Callable[[int], dict[str, Any]]) -> None:
    assert steps(finding(shape(400))) < 5 * steps(finding(shape(100)))


def finding(value: dict[str, Any]) -> Callable[[], object]:
    """Ask for the findings of a submission, twice at most."""
    plans = [check_submission(value) for _ in range(2)]
    return lambda: plans.pop().findings


WAYS: dict[str, Any] = {
    "anyOf": [{"type": "object", "title": str(way), "properties": {"b": {"type": "integer"}}} for way in range(15)]
}
"""A schema that takes some steps to be read."""


def written_under_a_schema(schema: dict[str, Any], instances: int) -> dict[str, Any]:
    """Calls that write below what the state has a schema for."""
    state = {"type": "state", "data": {}, "schema": {"properties": {f"k{i}": schema for i in range(10)}}}
    context = [state, *({"type": "text", "_instance": str(number)} for number in range(instances))]
    return plan_submission(*[call(to=f"†state.k{i}.b") for i in range(10)], context=context)


def promised_by_a_schema(schema: dict[str, Any], instances: int) -> dict[str, Any]:
    """Calls that read what others promise."""
    context = [{"type": "text", "_instance": str(number)} for number in range(instances)]
    takes = [call("take", value=f"†state.k{i}", to=f"†state.k{i + 1}") for i in range(9)]
    tools = {"make": {"_output": schema}, "take": {"properties": {"value": schema}, "_output": schema}}
    return plan_submission(call("make", to="†state.k0"), *takes, context=context, tools=tools)


@pytest.mark.parametrize("plan", [written_under_a_schema, promised_by_a_schema], ids=lambda plan: plan.__name__)
def test_schemas_are_read_once_for_all_instances(plan: Callable[[dict[str, Any], int], dict[str, Any]]) -> None:
    """A schema that is more to read costs as much more for many instances as for one, beside the trial runs."""
    light, heavy = (
        [steps(finding(plan(schema, instances))) for instances in (40, 400)] for schema in ({"type": "object"}, WAYS)
    )
    assert heavy[1] - heavy[0] < 1.5 * (light[1] - light[0])


@pytest.mark.nightly
def test_findings_end_however_much_there_is_to_read_in_schemas() -> None:
    """The budget of the algebra is one for all schemas, and where it is spent that is reported."""
    schema = {"anyOf": [{"type": "object", "properties": {"b": {"const": way}}} for way in range(500)]}

    def chain_of_tools(number: int) -> dict[str, Any]:
        tools = {f"tool{i}": {"properties": {"value": schema}, "_output": schema} for i in range(number)}
        calls = [call(f"tool{i}", value=f"†state.k{i - 1}" if i else {}, to=f"†state.k{i}") for i in range(number)]
        return submission(*calls, tools=tools)

    assert [found.code for found in check_submission(chain_of_tools(10)).findings] == ["ACT299"]


def test_a_simulation_takes_steps_in_proportion_to_the_references_of_an_expression() -> None:
    def simulating(number: int) -> Callable[[], object]:
        reader = call(value=" && ".join(f"†state.k{i}" for i in range(number)))
        plan = check_submission(submission(*[call(to=f"†state.k{i}") for i in range(number)], reader))
        return lambda: simulate(plan)

    assert steps(simulating(200)) < 5 * steps(simulating(50))


def readers_of_the_whole(number: int) -> dict[str, Any]:
    """Half of the calls read at once what the other half writes, piece by piece."""
    half = number // 2
    writers = [call(to=f"†state.k{i}") for i in range(half)]
    return submission(*writers, *[call(value="†state", about=["†state"] * 3, to=f"†data.k{i}") for i in range(half)])


def test_what_readers_of_the_whole_need_of_each_piece_is_found_in_steps_in_proportion_to_the_pieces() -> None:
    def asking(number: int) -> Callable[[], object]:
        plan = check_submission(readers_of_the_whole(number))
        fold, writers = plan.context.fold(), plan.calls[: number // 2]
        return lambda: [
            shapes.value(call, call.written, fold, None) for shapes in [DemandedShapes(plan)] for call in writers
        ]

    assert steps(asking(400)) < 5 * steps(asking(100))


def test_a_lane_that_hears_of_a_new_global_value_before_each_of_its_calls_takes_no_more() -> None:
    def driving(number: int) -> Callable[[], None]:
        shared = [call(to=f"†data.g{i}") for i in range(number)]
        own = [call(to=f"†state.k{i}", value=f"†data.g{i}", _instance="①") for i in range(number)]
        plan = check_submission(submission(*shared, *own, context=[{"type": "text", "_instance": "①"}]))

        def drive_in_turns() -> None:
            folds = read(plan)
            general, special = (Execution.of(plan, plan.lanes[name], folds[name]) for name in (None, "①"))
            for decision in general.decide("now"):
                outcome = commit(general, folds[None], decision)
                special.record(outcome.index, outcome.status)
                go_on(special, folds["①"])
            assert special.is_finished

        return drive_in_turns

    assert steps(driving(400)) < 5 * steps(driving(100))


@pytest.mark.nightly
def test_ten_thousand_errors_are_reported_in_proportion_to_their_number() -> None:
    def rejected(number: int) -> Callable[[], None]:
        context = [{"type": "state", "_instance": f"instance{i}"} for i in range(number)]
        wrong = [{"_tool": f"giev{i}", "_instance": f"instanse{i}", "value": f"†state.no{i}"} for i in range(number)]
        tools: dict[str, Any] = {f"give{i}": {} for i in range(20)}
        value = {"context": context, "solution": {"calls": wrong}, "tools": tools}

        def check() -> None:
            with pytest.raises(Rejected):
                check_submission(value)

        return check

    assert steps(rejected(2_000)) < 5 * steps(rejected(500))


def instances_of_many_places(number: int, places: int) -> dict[str, Any]:
    """Instances with a value of their own each, and calls that read any of many places, some held by all."""
    context = [{"type": "state", "_instance": f"i{i}", f"own{i}": i} for i in range(number)]
    held: list[dict[str, Any]] = [{"type": "state", "all": {f"k{i}": i for i in range(places)}}]
    calls = [
        call(value=" || ".join(f"†{path}.k{i}" for i in range(places)) + " || †state")
        for path in ("state", "state.own1", "state.all", "input")
    ]
    return plan_submission(*calls, context=[*held, *context])


def instances_of_other_places(number: int, places: int) -> dict[str, Any]:
    """Readers listed before their writers, and instances of which each holds another one of the places."""
    context = [{"type": "state", "_instance": f"i{i}", f"k{i % places}": i} for i in range(number)]
    readers = [call(value=[f"†state.k{j}" for j in range(i, i + 10)]) for i in range(0, places, 10)]
    return plan_submission(*readers, *[call(to=f"†state.k{i}") for i in range(places)], context=context)


def test_what_many_instances_hold_of_many_places_is_not_asked_of_each_place_in_each_instance() -> None:
    few, many = (
        [steps(checking(instances_of_many_places(number, places))) for number in (50, 250)] for places in (10, 200)
    )
    assert many[1] - many[0] < 1.5 * (few[1] - few[0])


def test_what_nothing_can_bring_to_many_instances_is_not_asked_of_each_place_in_each_instance() -> None:
    def rejected(number: int, places: int) -> Callable[[], object]:
        path = " || ".join(f"†input.k{i}" for i in range(places))
        context = [{"type": "input", "_instance": f"i{i}", "a": i} for i in range(number)]
        return lambda: problems(plan_submission(call(value=path), context=context))

    few, many = ([steps(rejected(number, places)) for number in (50, 250)] for places in (10, 200))
    assert many[1] - many[0] < 1.5 * (few[1] - few[0])


def test_instances_that_hold_other_places_share_what_they_wait_for_elsewhere() -> None:
    """The graph of each is its own, but what a call waits for is found out once."""
    few, many = (
        [steps(checking(instances_of_other_places(number, places))) for number in (50, 250)] for places in (50, 250)
    )
    assert many[1] - many[0] < 5 * (few[1] - few[0])
    assert (many[1] - many[0]) / 200 < 10 * 250, "a few steps for each call of an instance"


def checking(value: dict[str, Any]) -> Callable[[], object]:
    """Check a submission."""
    return lambda: check_submission(value)


def test_who_waits_for_whom_is_asked_once_where_instances_share_it() -> None:
    def telling(number: int) -> Callable[[], object]:
        plans = [check_submission(instances_of_other_places(number, 200)) for _ in range(2)]
        return lambda: plans.pop().readers

    assert steps(telling(100)) < 3 * steps(telling(20)), "five times as many, were each asked anew"


def test_looking_for_near_names_ends_however_many_are_misspelt_and_however_long_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("acts_celery.protocol.errors.PATIENCE", 100_000)

    def rejected(known: int) -> Callable[[], object]:
        context = [{"type": "state", **{f"{'ab' * 45}{i}": 1 for i in range(known)}}]
        path = " || ".join(f"†state.{'a' * 45}{'b' * 45}{i}" for i in range(50))  # of the same letters
        return lambda: problems(submission(*[call(value=path)] * 50, context=context))

    assert steps(rejected(200)) < 2 * steps(rejected(0))


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


@pytest.mark.parametrize("is_reversed", [False, True])
def test_what_cannot_run_without_a_wrong_call_is_found_in_steps_in_proportion_to_the_calls(is_reversed: bool) -> None:
    asked = read_request({"tools": {"t": {"properties": {"x": {"type": "integer"}}}}, "schema": {}}, Environment())

    def reading(number: int) -> Callable[[], object]:
        chain = [{"_tool": "t", "x": f"†state.k{i + 1}", "_outputPath": f"†state.k{i}"} for i in range(number)]
        calls = [*chain, {"_tool": "t", "x": "wrong", "_outputPath": f"†state.k{number}"}]
        answer = {"calls": calls[::-1] if is_reversed else calls, "output": None}
        assert len(read_answer(asked, answer).errors) == number + 1
        return lambda: read_answer(asked, answer)

    assert steps(reading(400)) < 5 * steps(reading(100))


def test_an_answer_that_is_one_cycle_is_read_in_steps_in_proportion_to_its_calls() -> None:
    asked = read_request({"tools": {"t": {"properties": {"x": {}}}}, "schema": {}}, Environment())

    def reading(number: int) -> Callable[[], object]:
        answer = {"calls": [{"_tool": "t", "x": "†state", "_outputPath": "†state"}] * number, "output": None}
        assert len(read_answer(asked, answer).errors) == number
        return lambda: read_answer(asked, answer)

    assert steps(reading(400)) < 5 * steps(reading(100))


# Folding and planning keep what they have: counted in steps, bytes and constructions, without a clock (SPEC R3).


def operation(path: str, value: Any, method: Method = Method.SET) -> Operation:
    (place,) = references.parse(path).references
    return Operation(place, method, value, "a message")


def bytes_kept(function: Callable[[], object]) -> int:
    """How much is allocated and kept by what a function returns."""
    tracemalloc.start()
    try:
        kept = function()
        size = tracemalloc.get_traced_memory()[0]
        del kept
        return size
    finally:
        tracemalloc.stop()


def test_instances_hold_no_copy_of_a_large_global_value() -> None:
    def reading(keys: int) -> Callable[[], Context]:
        large = {f"k{n}": n for n in range(keys)}

        def read() -> Context:
            context = Context([{"type": "input", "all": large}])
            for n in range(200):
                context.append({"type": "input", "_instance": f"i{n}", "all": {"name": n}})
                assert context.resolve("†input.all.name", instance=f"i{n}") == n
                assert context.resolve("†input.all.k7", instance=f"i{n}") == 7
            return context

        return read

    assert bytes_kept(reading(10_000)) < 3 * bytes_kept(reading(100))


def test_a_value_laid_over_a_large_one_is_read_like_any_other() -> None:
    large = {f"k{n}": n for n in range(100)}
    context = Context(
        [{"type": "input", "all": large}, {"type": "input", "_instance": "①", "all": {"k7": "mine", "more": [1]}}]
    )
    mine = {**large, "k7": "mine", "more": [1]}
    assert context.resolve("†input.all", instance="①") == mine
    assert context.scoped(["input"], instance="①") == {"input": {"all": mine}}
    seen = context.fold("①").value(Reference("input", ("all",)))
    assert seen == mine
    assert mine == seen
    assert seen != large
    assert len(seen) == 101
    assert list(seen) == list(mine)
    assert context.data() == {"input": {"all": large}}


def test_an_instance_hears_of_global_values_of_the_same_kind_without_starting_anew() -> None:
    def taking_turns(number: int) -> Callable[[], None]:
        shared = [operation(f"†state.g.k{n}", n) for n in range(number)]
        own = [operation(f"†state.o.k{n}", n) for n in range(number)]

        def take_turns() -> None:
            base = Fold()
            fold = Fold(base)
            for n in range(number):
                fold.apply(own[n])
                base.apply(shared[n])
                assert fold.value(shared[n].place) == fold.value(own[n].place) == n

        return take_turns

    few, many = steps(taking_turns(100)), steps(taking_turns(400))
    assert many < 5 * few


def test_what_comes_to_a_global_value_later_still_lies_below_an_instances_own() -> None:
    base = Fold()
    fold = Fold(base)
    base.apply(operation("†state", {"list": [1], "text": "a", "name": "global"}, Method.MERGE))
    fold.apply(operation("†state.name", "mine"))
    fold.apply(operation("†state.text", "z", Method.CONCAT))
    assert fold.snapshot() == {"state": {"list": [1], "text": "az", "name": "mine"}}
    base.apply(operation("†state.list", 2, Method.PUSH))
    assert fold.snapshot() == {"state": {"list": [1, 2], "text": "az", "name": "mine"}}
    base.apply(operation("†state.text", "b", Method.CONCAT))
    base.apply(operation("†state.name", "global again"))
    assert fold.snapshot() == {"state": {"list": [1, 2], "text": "abz", "name": "mine"}}
    assert base.snapshot() == {"state": {"list": [1, 2], "text": "ab", "name": "global again"}}


def test_schemas_are_compiled_and_expressions_parsed_once_for_all_calls() -> None:
    calls = [call(to=f"†state.place{n % 20}", value="†input.once") for n in range(2_000)]
    value = submission(*calls, context=[{"type": "input", "once": 1}], tools={"give": {"required": ["value"]}})
    kept = (meta_properties._written, references.parse, references.parse_output_path)
    before = [cache.cache_info().misses for cache in kept]
    check_submission(value)
    check_submission(value)
    built, parsed, parsed_outputs = (cache.cache_info().misses - then for cache, then in zip(kept, before, strict=True))
    assert built <= 1
    assert parsed <= 21, "what is read, and the places written, which are parsed like any that could be read"
    assert parsed_outputs <= 20
