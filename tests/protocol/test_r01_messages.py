"""Messages (SPEC R1), in every shape in which they come, hostile ones too."""

from __future__ import annotations

import copy
import json
import re
import sys
import unicodedata
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Context, Message, Output, Reference, Rejected, check_submission
from acts_celery.protocol.calls.declarations import delegate_context
from acts_celery.protocol.calls.tools import PLAIN, Tool
from acts_celery.protocol.engine.events import Decision, Failure, Outcome, Success
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.errors import INVISIBLE, json_text, one_line
from acts_celery.protocol.messages import PROVENANCE, read_data, render_data
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.documents import decode
from acts_celery.protocol.requests import read_request
from acts_celery.protocol.requests.data_blocks import compact
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.scopes import scoped_messages

from .building import ANY, DATE, call, pointers, problems, run, statuses, submission

# SPEC R1: messages.

DATA = {"type": "state", "user": {"name": "Alex"}}
CHAT = {"role": "user", "content": "hello"}


# R1.1


@pytest.mark.parametrize(
    "type_", ["text", "system", "data", "input", "state", "tool", "plan", "error", "meta", "advisor"]
)
def test_r1_1_every_accepted_type_is_accepted(type_: str) -> None:
    message: dict[str, Any] = {"type": type_}
    if type_ == "tool":
        message["tool"] = {}
    if type_ == "plan":
        message["calls"] = []
    assert check_submission(submission(context=[message])).submission.context == [message]


def test_r1_1_the_chat_shape_needs_no_type() -> None:
    assert Context([CHAT]).messages == (CHAT,)
    assert Context([CHAT]).data() == {}


def test_r1_1_an_unknown_type_is_kept_untouched_and_ignored_by_resolution() -> None:
    unknown = {"type": "hologram", "data": {"a": 1}, "_call": {"_outputPath": 5}, "kind": [], "schema": 7}
    context = Context([unknown])
    assert context.messages == (unknown,)
    assert context.data() == {}


def test_r1_1_no_field_is_dropped_on_a_round_trip() -> None:
    message = {"type": "state", "a": 1, "title": "t", "_date": "d", "_unknown": {"b": [None]}, "unknown": False}
    assert Context([message]).messages == (message,)
    assert check_submission(submission(context=[message])).context.messages == (message,)


def test_r1_1_a_context_copies_what_it_is_given() -> None:
    message = {"type": "state", "list": [1]}
    context = Context([message])
    message["list"].append(2)  # type: ignore[attr-defined]  # it is the list above
    assert context.resolve("†state.list") == [1]


@pytest.mark.parametrize(
    ("message", "pointer"),
    [
        ("text", "/context/0"),
        (None, "/context/0"),
        ({}, "/context/0"),
        ({"role": "user"}, "/context/0"),
        ({"type": None, "content": "x"}, "/context/0"),
        ({"type": 1}, "/context/0/type"),
        ({"type": ["state"]}, "/context/0/type"),
        ({"type": "data", "kind": None}, "/context/0/kind"),
        ({"type": "data", "kind": {}}, "/context/0/kind"),
        ({"type": "text", "_instance": ""}, "/context/0/_instance"),
        ({"type": "text", "_instance": ["①"]}, "/context/0/_instance"),
        ({"type": "state", "schema": 5}, "/context/0/schema"),
        ({"type": "state", "schema": {"type": "nonsense"}}, "/context/0/schema/type"),
        ({"type": "state", "_call": {"_outputPath": "†"}}, "/context/0/_call/_outputPath"),
        ({"type": "state", "_call": {"_outputPath": 5}}, "/context/0/_call/_outputPath"),
        ({"type": "state", "_call": {}, "_path": "†a.."}, "/context/0/_path"),
        ({"type": "state", "_call": {}, "_outputMethod": "shuffle"}, "/context/0/_outputMethod"),
        ({"type": "state", "_call": {}, "_outputMethod": []}, "/context/0/_outputMethod"),
    ],
)
def test_r1_1_a_malformed_message_is_a_structural_error_with_its_place(message: Any, pointer: str) -> None:
    assert pointers(problems(submission(call(), context=[message]))) == [pointer]


def test_r1_1_a_context_refuses_a_malformed_message() -> None:
    context = Context([DATA])
    with pytest.raises(Rejected, match="type"):
        context.append({"no": "type"})
    assert context.messages == (DATA,)


# R1.2


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ({"type": "data"}, "data"),
        ({"type": "data", "kind": "state"}, "state"),
        ({"type": "data", "kind": "anything"}, "anything"),
        ({"type": "state"}, "state"),
        ({"type": "state", "kind": "input"}, "state"),
        ({"type": "input"}, "input"),
        ({"type": "error"}, "error"),
    ],
)
def test_r1_2_the_kind_is_the_type_or_what_a_data_message_says(message: dict[str, Any], kind: str) -> None:
    data = read_data(message)
    assert data is not None
    assert data.kind == kind


@pytest.mark.parametrize("type_", ["text", "system", "tool", "plan", "meta", "advisor", "hologram", None])
def test_r1_2_other_messages_carry_no_data(type_: str | None) -> None:
    assert read_data({"type": type_, "kind": "state", "data": 1}) is None


@pytest.mark.parametrize("kind", ["state", "input", "error"])
def test_r1_2_a_data_message_of_a_kind_and_a_message_of_that_type_are_the_same(kind: str) -> None:
    for rest in ({"data": {"a": 1}}, {kind: {"a": 1}}, {"a": 1}, {}):
        assert read_data({"type": "data", "kind": kind, **rest}) == read_data({"type": kind, **rest})


# R1.3


def test_r1_3_the_three_shapes_of_a_payload_mean_the_same() -> None:
    payload = {"user": {"name": "Alex"}}
    shapes = [{"type": "input", "data": payload}, {"type": "input", "input": payload}, {"type": "input", **payload}]
    assert [read_data(shape) for shape in shapes] == [read_data(shapes[0])] * 3


def test_r1_3_data_comes_before_the_property_named_like_the_type() -> None:
    data = read_data({"type": "state", "data": {"a": 1}, "state": {"b": 2}, "c": 3})
    assert data is not None
    assert data.payload == {"a": 1}


def test_r1_3_a_property_named_like_a_kind_that_is_no_type_is_payload() -> None:
    data = read_data({"type": "data", "kind": "rows", "rows": [1]})
    assert data is not None
    assert data.payload == {"rows": [1]}


def test_r1_3_reserved_properties_are_no_payload() -> None:
    message = {"type": "state", "kind": "k", "schema": True, "description": "d", "title": "t", "_x": 1, "a": 1}
    data = read_data(message)
    assert data is not None
    assert data.payload == {"a": 1}


@pytest.mark.parametrize("payload", [None, 0, "", [], False, [1, 2], "text"])
def test_r1_3_a_payload_may_be_any_value_and_null_is_one(payload: Any) -> None:
    context = Context([{"type": "data", "kind": "k", "data": payload}])
    assert context.resolve("†k") == payload
    assert context.data() == {"k": payload}


# R1.4


def test_r1_4_provenance_is_in_the_log() -> None:
    (message,) = run(call(to="†state.a", value=1, _outputMethod="set"), date="2026-01-01T00:00:00Z").messages
    assert message["_call"] == {"_tool": "give", "value": 1, "_outputPath": "†state.a", "_outputMethod": "set"}
    assert (message["_date"], message["_outputMethod"]) == ("2026-01-01T00:00:00Z", "set")


def test_r1_4_provenance_and_routing_are_in_nothing_that_a_reader_is_shown() -> None:
    context = [{"type": "state", "_instance": "①", "b": 1}]
    calls = [
        call(to="†state.a && †state.c", value=1, _instance="①"),
        call("see", to="†data.seen", after="†state.a", _scopes=["state"], _instance="①"),
    ]
    result = run(*calls, context=context)
    assert result.data["①"]["data"]["seen"] == {"state": {"a": 1, "b": 1, "c": 1}}
    fold = Fold()
    for message in [*context, *result.messages]:
        fold.append(message, "message")
    shown = scoped_messages(fold, [Reference("state")])
    assert shown == [{"type": "state", "a": 1, "b": 1, "c": 1}]


def test_r1_4_a_delegates_own_messages_lose_provenance_and_routing() -> None:
    own = [{"type": "state", "a": 1, "_instance": "①", **{name: {} for name in PROVENANCE}}]
    assert delegate_context(own, [], {}) == [{"type": "state", "a": 1}]


# R1.5


@pytest.mark.parametrize("kind", ["state", "input"])
def test_r1_5_an_object_of_state_or_input_is_written_flat(kind: str) -> None:
    assert render_data(kind, {"a": 1}) == {"type": kind, "a": 1}
    assert render_data(kind, {}) == {"type": kind}


@pytest.mark.parametrize("key", ["type", "kind", "schema", "description", "title", "_x", "_call", "data", "state"])
def test_r1_5_a_payload_with_a_reserved_key_is_written_as_data(key: str) -> None:
    assert render_data("state", {key: 1}) == {"type": "data", "kind": "state", "data": {key: 1}}


@pytest.mark.parametrize(
    ("kind", "payload"), [("data", {"a": 1}), ("rows", {}), ("error", {}), ("state", [1]), ("input", None)]
)
def test_r1_5_every_other_payload_is_written_as_data(kind: str, payload: Any) -> None:
    assert render_data(kind, payload) == {"type": "data", "kind": kind, "data": payload}


def test_r1_5_a_schema_and_a_description_ride_along() -> None:
    rendered = render_data("state", {"a": 1}, schema={"type": "object"}, description="what it is")
    assert rendered == {"type": "state", "a": 1, "schema": {"type": "object"}, "description": "what it is"}
    fold = Fold()
    fold.append({"type": "state", "a": 1, "schema": {"type": "object"}, "description": "what it is"}, "message")
    assert scoped_messages(fold, [Reference("state")]) == [rendered]
    assert scoped_messages(fold, [Reference("state", ("a",))]) == [{"type": "state", "a": 1}]


# Whatever is handed in, the check either accepts it or raises `Rejected`; and what it accepts can be run.

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


# Files with comments, and the shapes that stand for a submission (INTERFACE).

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("a/*,]}\"'\\ \n†", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("k/*,", max_size=3), inner, max_size=3),
    max_leaves=12,
)
COMMENTS = st.sampled_from(['// a, ] } " /* b\n', '/* , ] " // \n **/', "/**/", " ", "\r\n", "//\n", "/*†*/"])
TOOLS = {"greet": {"type": "object"}}
GREET: dict[str, Any] = {"_tool": "greet", "name": "†input.name", "_outputPath": "†state.greeting"}
NAME = {"type": "input", "name": "Ann"}


@given(JSON, st.data())
def test_comments_and_last_commas_change_nothing(value: Any, data: st.DataObject) -> None:
    text = ""
    for token in json.JSONEncoder(ensure_ascii=False, indent=0).iterencode(value):
        is_end = token.strip()[:1] in ("]", "}") and text.rstrip()[-1:] not in ("[", "{", "")
        commas = data.draw(st.sampled_from(["", ","])) if is_end else ""
        text += data.draw(COMMENTS) + commas + data.draw(COMMENTS) + token
    assert decode((text + data.draw(COMMENTS)).encode()) == value


CONTEXT_AND_SOLUTION = """
// the context
[{"type": "input", "name": "Ann"}]

// the solution
{"calls": [{"_tool": "greet", "name": "†input.name", "_outputPath": "†state.greeting",}]}
"""


def test_a_list_of_messages_followed_by_a_solution_is_one_submission() -> None:
    assert decode(CONTEXT_AND_SOLUTION.encode()) == {"context": [NAME], "solution": {"calls": [GREET]}}
    assert decode(b'[]{"calls": [], "output": 1}') == {"context": [], "solution": {"calls": [], "output": 1}}


@pytest.mark.parametrize(
    "text",
    ['[] {"a": 1}', '[{"_tool": "x"}] {"calls": []}', '[] {"calls": []} {}', '{"calls": []} {"calls": []}',
     '{"calls": []} []', '[] {"calls": 1}', '[] {"calls": [', '[] [] {"calls": []}'],
)  # fmt: skip
def test_any_other_two_documents_are_none(text: str) -> None:
    with pytest.raises(Rejected, match="Extra data"):
        decode(text.encode())


@pytest.mark.parametrize(
    "text", ['// "a"\n{"a": 1, /* † */ "b" 2}', '{/*\n*/\n"a": [1,\n], "b" 2}', '{"a": "//", "b": [ ], "c" 2}']
)
def test_an_error_is_where_it_stands_in_the_file(text: str) -> None:
    before = text[: text.rindex("2")]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    with pytest.raises(Rejected, match=f"line {line} column {column} "):
        decode(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "/*" * 200_000,
        '"' + "/" * 400_000,
        "," * 400_000,
        "[" + ", " * 200_000,
        "[" + " " * 400_000,
        "[ " * 60_000,
        "/" * 400_000,
    ],
)
def test_a_hostile_file_is_refused_at_once(text: str) -> None:
    with pytest.raises(Rejected):
        decode(text.encode())


@pytest.mark.parametrize("value", [[], [NAME, GREET], GREET, {"calls": [GREET]}, [[]] * 70_000])
def test_each_shape_may_be_msgpack(value: Any) -> None:
    assert decode(msgpack.packb(value)) == value


@pytest.mark.parametrize(
    ("value", "call"),
    [
        ({"context": [NAME], "solution": {"calls": [GREET]}}, "/solution/calls/0"),
        ([NAME, GREET], "/1"),
        ([GREET, NAME], "/0"),
        ([NAME, GREET | {"type": "state"}], "/1"),
        ([NAME, {"type": "tool", "tool": TOOLS}, GREET, {"type": "state", "x": 1}], "/2"),
    ],
)
def test_a_list_of_messages_and_calls_is_a_submission(value: Any, call: str) -> None:
    plan = check_submission(value, activities=TOOLS)
    assert plan.context.resolve("†input.name") == "Ann"
    assert [{**each.raw, "type": ""} for each in plan.calls] == [{**GREET, "type": ""}]
    assert plan.waves == ((0,),)
    with pytest.raises(Rejected) as rejected:
        check_submission(value, activities=TOOLS, allow=[])
    assert {problem.pointer for problem in rejected.value.errors} == {f"{call}/_tool"}


@pytest.mark.parametrize(
    ("value", "pointers"),
    [
        (GREET, ["/name"]),
        ({"calls": [GREET], "output": None}, ["/calls/0/name"]),
        ({"calls": [], "output": "†state.x"}, ["/output"]),
        ([GREET, {**GREET, "_outputPath": "†"}], ["/1/_outputPath"]),
        ([{"type": 7}, {**GREET, "name": "Ann"}], ["/0/type"]),
        ([NAME, {"_tool": "gret"}], ["/1/_tool"]),
        ([NAME, {**GREET, "_delegate": "nobody"}], ["/1/_delegate"]),
        ([NAME], [""]),
        ([], [""]),
        ("text", [""]),
        ({"_outputPath": {"const": "†state.x"}}, ["", "/_outputPath"]),
    ],
)
def test_an_error_names_the_place_in_what_was_handed_in(value: Any, pointers: list[str]) -> None:
    with pytest.raises(Rejected) as rejected:
        check_submission(value, activities=TOOLS, delegates=())
    assert sorted(problem.pointer for problem in rejected.value.errors) == pointers


def test_a_finding_names_the_place_in_what_was_handed_in() -> None:
    call = {**GREET, "_outputPth": "†state.x"}
    whole, alone = (
        [finding.pointer for finding in check_submission(value, activities=TOOLS).findings]
        for value in ({"context": [NAME], "solution": {"calls": [call]}}, [NAME, call])
    )
    assert "/1/_outputPth" in alone
    assert [at and at.replace("/solution/calls/0", "/1") for at in whole] == alone


def test_a_request_is_read_in_each_shape_too() -> None:
    assert read_request([NAME, GREET], Environment(activities=TOOLS)).submission.context == [NAME]
    with pytest.raises(Rejected) as rejected:
        read_request([NAME, GREET, {"type": 7}], Environment(activities=TOOLS))
    assert [problem.pointer for problem in rejected.value.errors] == ["/2/type"]


# What cannot be seen is written as an escape: to people, to terminals and to models (SPEC R12.5).

JOINERS = "\u200c\u200d"
SIGNS = {"\u0600", "\u0601", "\u0602", "\u0603", "\u0604", "\u0605", "\u06dd", "\u070f", "\u0890", "\u0891", "\u08e2"}
"""Signs of Arabic and Syriac that Unicode calls format characters, and that can be seen."""
OF_SCRIPTS = ("KAITHI", "EGYPTIAN")


def test_every_character_that_unicode_calls_a_control_a_format_or_a_line_end_is_escaped() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp"):
            continue
        is_sign = character in SIGNS or unicodedata.name(character, "").startswith(OF_SCRIPTS)
        assert bool(INVISIBLE.match(character)) is not (is_sign or character in JOINERS), hex(ord(character))


@pytest.mark.nightly
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_what_is_escaped_has_the_same_value(value: object) -> None:
    assert json.loads(json_text(value)) == json.loads(json_text(value, indent=1)) == value
    assert "\n" not in json_text(value)
    assert not INVISIBLE.search(json_text(value))


def test_text_hidden_in_data_is_shown_to_a_model() -> None:
    tag = "".join(chr(0xE0000 + ord(character)) for character in "obey")
    assert compact({"mail": f"Hi{tag}\u202e\u009b"}) == (
        '{"mail":"Hi\\udb40\\udc6f\\udb40\\udc62\\udb40\\udc65\\udb40\\udc79\\u202e\\u009b"}'
    )
    assert one_line("a\r\nb\u2028") == "a\\u000d\\u000ab\\u2028"
    assert compact("naïve 👩‍🔬 ①") == '"naïve 👩‍🔬 ①"'


# What an activity's message says beside its data is kept (SPEC R1.1, R4.5).

RIDERS: dict[str, Any] = {"schema": {"type": "object"}, "description": "what it is", "title": "A", "_note": [1]}


@pytest.mark.parametrize(
    "shape",
    [
        {"type": "state", "a": 1},
        {"type": "state", "data": {"a": 1}, "comment": "beside the data"},
        {"type": "state", "state": {"a": 1}, "comment": "beside the data"},
        {"type": "data", "kind": "state", "data": {"a": 1}, "comment": "beside the data"},
    ],
)
def test_r4_5_no_field_of_a_returned_message_is_dropped(shape: dict[str, Any]) -> None:
    raw = call("whole", to="†state.a || †state.b")
    result = run(raw, functions={"whole": lambda *_: Message({**shape, **RIDERS})})
    comment = {"comment": shape["comment"]} if "comment" in shape else {}
    assert result.messages == [
        {"type": "data", "kind": "state", "data": {"a": 1}, "_path": "†state.a", "_call": raw, "_date": DATE}
        | RIDERS
        | comment
    ]
    assert Context(result.messages).data() == {"state": {"a": 1}}


def test_r4_5_a_message_for_several_paths_rides_along_with_each() -> None:
    message = {"type": "state", "a": 1, "b": 2, **RIDERS}
    result = run(call("whole", to="†state.a && †state.b"), functions={"whole": lambda *_: Message(message)})
    assert [{key: kept[key] for key in RIDERS} for kept in result.messages] == [RIDERS, RIDERS]


def test_r4_5_provenance_and_routing_are_the_calls_own() -> None:
    lies = {"_call": {"_tool": "lie"}, "_date": "lie", "_path": "†x", "_outputMethod": "push", "_instance": "②"}
    result = run(
        call("whole", to="†state.a"), functions={"whole": lambda *_: Message({"type": "state", "a": 1, **lies})}
    )
    (message,) = result.messages
    assert message.keys() == {"type", "kind", "data", "_call", "_date"}
    assert message["_date"] == DATE


@pytest.mark.parametrize("kind", ["state", "data", "rows"])
@pytest.mark.parametrize("schema", [{"properties": {"b": {"type": "integer"}}}, {"type": 5}, 5, None])
def test_r4_5_the_schema_of_a_returned_message_is_data_and_holds_for_nothing(kind: str, schema: Any) -> None:
    older = {"type": "data", "kind": kind, "data": {}, "schema": {"properties": {"b": {"type": "string"}}}}
    newer = {"type": "data", "kind": kind, "data": {"a": 1}, "schema": schema}
    result = run(
        call("whole", to=f"†{kind}.a"),
        call(to=f"†{kind}.b", value=7, after=f"†{kind}.a"),
        call(to=f"†{kind}.b", value="x", after=f"†{kind}.a"),
        context=[older],
        functions={"whole": lambda *_: Message(newer)},
    )
    assert statuses(result) == ["done", "failed", "done"]
    assert result.data[None][kind] == {"a": 1, "b": "x"}
    assert result.messages[0]["schema"] == schema
    assert Context(result.messages).data()[kind] == {"a": 1, "b": "x"}


# R4.6, where the schema comes from a return annotation


@pytest.mark.parametrize(("mark", "is_known"), [("always", True), ("sometimes", False), (None, True)])
@pytest.mark.parametrize("value", [1, "x"])
@pytest.mark.parametrize("how", ["plain", "output", "message"])
def test_r4_6_an_annotation_speaks_of_plain_values_only(mark: Any, is_known: bool, value: Any, how: str) -> None:
    output = {"type": "integer", **({PLAIN: mark} if mark else {})}
    activities = {"t": {"type": "object", "properties": {"_output": output}}}
    made = {"plain": value, "output": Output("†state.a", value), "message": Message({"type": "state", "a": value})}
    raw = call("t", to="†state.a")
    result = run(raw, tools={"t": ANY}, activities=activities, functions={"t": lambda *_: made[how]})
    is_admitted = value == 1 or (mark is not None and how != "plain")
    assert statuses(result) == ["done" if is_admitted else "failed"]
    assert (Tool("t", activities["t"]).output_schema is not None) is is_known, "what all its results are known to be"


@pytest.mark.parametrize(("value", "status"), [(1, "done"), ("x", "failed"), (None, "failed")])
def test_r4_6_a_declared_output_counts_instead_of_the_annotation(value: Any, status: str) -> None:
    activities = {"t": {"type": "object", "properties": {"_output": {"type": "string", PLAIN: "always"}}}}
    tools = {"t": {"properties": {"_output": {"type": "integer"}}}}
    result = run(call("t", to="†state.a"), tools=tools, activities=activities, functions={"t": lambda *_: value})
    assert statuses(result) == [status]


def test_data_as_the_content_of_a_chat_message_is_that_data() -> None:
    inner = {"type": "input", "name": "Bo"}
    chat = {"role": "user", "content": inner}
    calls = [{"_tool": "t", "value": "†input.name", "_outputPath": "†state.x"}]
    plan = check_submission({"context": [chat], "tools": {"t": {}}, "solution": {"calls": calls}})
    assert plan.submission.context == [inner]
    assert check_submission([chat, *calls], activities={"t": {}}).submission.context == [inner]


def test_what_is_wrong_with_the_content_of_a_chat_message_is_at_its_place() -> None:
    chat = {"role": "user", "content": {"type": "input", "_instance": 5}}
    with pytest.raises(Rejected) as rejected:
        check_submission({"context": [{"type": "text", "text": "Hi"}, chat], "solution": {"calls": []}})
    assert [problem.pointer for problem in rejected.value.errors] == ["/context/1/content/_instance"]
    chat = {"role": "user", "content": {"type": "state", "x": 1}, "_instance": "①"}
    with pytest.raises(Rejected, match="in place of the message around it") as rejected:
        check_submission({"context": [chat], "solution": {"calls": []}})
    assert [problem.pointer for problem in rejected.value.errors] == ["/context/0/content"]
