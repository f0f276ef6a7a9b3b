"""Whatever is handed in, the check either accepts it or raises `Rejected`; and what it accepts can be run."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Output, Rejected, check_submission
from acts_celery.protocol.calls.delegates import delegate_context
from acts_celery.protocol.engine.events import Decision, Failure, Outcome, Success
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.plan.submission import decode
from acts_celery.protocol.state.fold import Fold

WORDS = re.findall(
    r"\S+",
    """† †† †{ †{state.a} †{†state} †state †state.a †state.a.b||†input.x †state.0
    state ① data input tool plan t _call const # #/properties/x
    object string set push http://[ http://x/y ( (a anonymous""",
)
KEYS = re.findall(
    r"\S+",
    """type kind data state input schema _instance _call _outputPath _outputMethod _path context solution calls tools
    delegates config output plan tool properties required const enum items anyOf allOf oneOf not if then else $ref $defs
    $id $schema $anchor $dynamicRef $dynamicAnchor additionalProperties patternProperties dependentSchemas contains
    unevaluatedProperties prefixItems minLength pattern multipleOf uniqueItems propertyNames _tool _scopes _imports
    _delegate _activity _output role content t a x 0 default format minimum""",
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=4),
    st.sampled_from([*WORDS, "\ud800", "9" * 5_000, 0, 1, -1]),
)
keys = st.one_of(st.sampled_from(KEYS), st.text(max_size=3), st.sampled_from(["7" * 5_000, "\udfff"]))
anything = st.recursive(
    scalars, lambda below: st.lists(below, max_size=4) | st.dictionaries(keys, below, max_size=5), max_leaves=25
)

VALID: list[dict[str, Any]] = [
    {
        "context": [
            {"type": "state", "_instance": "①", "a": 1, "schema": {"properties": {"a": {"type": "integer"}}}},
            {"type": "state", "_instance": "②", "a": {"b": 2}},
            {"type": "input", "input": {"x": 1}},
            {
                "type": "data",
                "kind": "state",
                "data": {"n": [1]},
                "_call": {"_tool": "t", "_outputPath": "†state.n"},
                "_outputMethod": "push",
                "_path": "†state.n",
            },
            {
                "type": "tool",
                "tool": {
                    "t": {
                        "type": "object",
                        "properties": {"x": {"type": "integer"}, "y": {"oneOf": [{"type": "string"}, {"enum": [{}]}]}},
                        "_outputPath": {"pattern": "^†"},
                        "_output": {"type": "integer"},
                        "required": ["x"],
                    }
                },
            },
        ],
        "solution": {
            "calls": [
                {
                    "_tool": "t",
                    "x": "†state.a",
                    "y": {"z": "†input.x", "w": "a †{input.x || state.a} ††"},
                    "_outputPath": "†state.b || †state.c",
                    "_instance": "①",
                },
                {
                    "_tool": "t",
                    "x": 1,
                    "_outputPath": "†state.d && †data.d",
                    "_outputMethod": "push",
                    "_scopes": ["state"],
                },
                {"_tool": "d", "_delegate": "q", "_imports": ["†input.x"], "_instance": "②"},
                {"_tool": "u", "_output": {"k": "††x"}, "_outputPath": "e.f"},
            ],
            "output": None,
        },
        "tools": {"u": {"properties": {}, "additionalProperties": False}},
        "delegates": {"q": {"context": [{"type": "system", "message": "m"}], "schema": {"type": "string"}}},
        "config": {},
        "schema": {"type": "object"},
    },
    {
        "context": [
            {"type": "state", "_instance": "①", "a": 1},
            {
                "type": "plan",
                "calls": [
                    {"_tool": "t", "x": "†state.a || †state.z", "_outputPath": "†state.b"},
                    {"_tool": "t", "x": ["†state.b"], "_outputPath": "†state.c"},
                ],
            },
            {"type": "plan", "plan": {"calls": [{"_tool": "t", "_instance": "①"}]}},
        ],
        "tools": {
            "t": {
                "$defs": {"q": {"$ref": "#"}},
                "properties": {"x": {"anyOf": [{"$ref": "#/$defs/q"}, {"type": "integer"}, {"type": "array"}]}},
                "if": {"required": ["x"]},
                "then": {"properties": {"x": True}},
            }
        },
    },
]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value."""
    yield at
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*at, key))


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A valid submission with one to three places changed, removed or added to."""
    value = copy.deepcopy(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 3))):
        *above, last = draw(st.sampled_from([place for place in places(value) if place]))
        container = value
        for key in above:
            container = container[key]
        match draw(st.sampled_from(["replace", "replace", "remove", "add"])):
            case "replace":
                container[last] = draw(anything)
            case "remove":
                del container[last]
            case "add" if isinstance(container, dict):
                container[draw(keys)] = draw(anything)
            case "add":
                container.insert(last, draw(anything))
    return value


def answer(value: Any, choice: int) -> bool:
    """Whether the check accepts it; everything that it says must be fit to be printed."""
    try:
        plan = check_submission(
            value,
            activities=[None, {"t": {"type": "object"}}, {}][choice % 3],
            delegates=None if choice % 2 else {"q"},
            model=choice % 5 > 0,
            strict_meta=choice % 7 == 0,
        )
    except Rejected as rejected:
        problems = rejected.errors
    else:
        said = (plan.waves, plan.edges, plan.to_mermaid(), plan.to_dict(), plan.awaited, plan.size)
        assert str(said).encode()
        return True
    assert problems
    assert str(problems).encode()
    return False


@settings(max_examples=2 * settings().max_examples)
@given(anything, st.integers(0, 209))
def test_any_json_value_is_accepted_or_rejected(value: Any, choice: int) -> None:
    answer(value, choice)


@settings(max_examples=2 * settings().max_examples)
@given(st.dictionaries(st.sampled_from(["context", "solution", "tools", "delegates", "schema"]), anything))
def test_any_parts_of_a_submission_are_accepted_or_rejected(value: Any) -> None:
    answer(value, 0)


@settings(max_examples=5 * settings().max_examples)
@given(mutated(), st.integers(0, 209))
def test_any_change_of_a_valid_submission_is_accepted_or_rejected(value: Any, choice: int) -> None:
    answer(value, choice)


@given(st.dictionaries(st.sampled_from(KEYS), anything, max_size=4), st.dictionaries(keys, anything, max_size=3))
def test_any_schema_is_accepted_or_rejected(schema: Any, call: Any) -> None:
    for tool in ({"properties": {"a": schema}}, schema):
        answer({"tools": {"t": tool}, "solution": {"calls": [{**call, "_tool": "t"}, {"_tool": "t", "a": {}}]}}, 0)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_rejected(data: bytes) -> None:
    try:
        answer(decode(data), 0)
    except Rejected as rejected:
        problems = rejected.errors
        assert len(problems) == 1


@pytest.mark.parametrize("number", range(len(VALID)))
def test_the_submissions_that_are_changed_are_valid_before(number: int) -> None:
    assert answer(VALID[number], 1)


@settings(max_examples=3 * settings().max_examples)
@given(mutated(), st.integers(0, 209), st.lists(anything, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_whatever_calls_return_what_was_accepted_runs_to_its_end(
    value: Any, choice: int, results: list[Any], random: Any
) -> None:
    if not answer(value, 3 * choice):
        return
    plan = check_submission(value)
    shared = Fold()
    folds = {name: Fold(shared) for name in plan.context.instances}
    for message in plan.submission.context:
        folds.get(str(message.get("_instance")), shared).append(message, "a message")
    statuses: dict[int, Any] = {}
    for instance in sorted(plan.lanes, key=lambda name: name or ""):
        fold = shared if instance is None else folds[instance]
        lane = plan.lanes[instance]
        execution = Execution.of(plan, lane, fold)
        for index, status in statuses.items():
            execution.record(index, status)
        while decisions := execution.decide("now"):
            for decision in decisions:
                _carry_out(execution, fold, decision, random.choice(results), random.randrange(6))
        assert execution.is_finished
        assert str(fold.snapshot())
        if instance is None:
            statuses = dict(execution.statuses)


def _carry_out(execution: Execution, fold: Fold, decision: Decision, value: Any, choice: int) -> None:
    outcome = decision if isinstance(decision, Outcome) else None
    if not isinstance(decision, Outcome):
        execution.scoped(decision.call)
        delegate_context([], execution.scoped_messages(decision.call), decision.parameters)
        declared = decision.call.output.references if decision.call.output is not None else ()
        results: list[Success | Failure] = [
            Success(value),
            Success(Output(str(declared[-1]) if declared else "", value)),
            Success(Output(value, value)),
            Success({"type": "data", "kind": value, "data": value}),
            Success({"type": value, "a": 1}),
            Failure("Odd\ud800", "\udcff"),
        ]
        outcome = execution.finish(decision.call.index, results[choice], "now")
    assert outcome is not None
    for message in outcome.messages:
        fold.append(message, "a result")
    assert execution.record(outcome.index, outcome.status)
    assert not execution.record(outcome.index, outcome.status)


@pytest.mark.parametrize("key", ["approve_seconds", "promise_seconds", "request_seconds", "max_concurrency"])
@pytest.mark.parametrize("number", [2**63, 1e300, float("inf"), 10**400, 0, -1, True])
def test_a_setting_beyond_what_is_reckoned_with_is_refused(key: str, number: Any) -> None:
    with pytest.raises(Rejected) as refused:
        check_submission({"config": {key: number}, "solution": {"calls": []}})
    assert any(problem.pointer in (f"/config/{key}", "/config", "") for problem in refused.value.errors)
