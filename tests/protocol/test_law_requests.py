"""Laws of requests (SPEC R12, R13.8): what a model is shown and may answer, whole or while it is written."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import msgpack
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Conflict, Context, Limits, Reference, Rejected, Unresolved, check_submission, parse
from acts_celery.protocol.analysis.visibility import reach_of
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.engine.events import Status
from acts_celery.protocol.engine.loop import RequestRecorded, entries_quoted, quoted, read_quotes, with_quotes
from acts_celery.protocol.paths import nest
from acts_celery.protocol.plan.checked_plan import CheckedPlan
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.graph import Graph
from acts_celery.protocol.plan.submission import null_problems, read_submission
from acts_celery.protocol.references import is_expression
from acts_celery.protocol.requests import Answer, Fate, Request, compose, read_answer, read_request, render, render_tick
from acts_celery.protocol.requests.data_blocks import Budget
from acts_celery.protocol.requests.reading import FunctionAnswer, Unreadable
from acts_celery.protocol.requests.rendering import render_context
from acts_celery.protocol.requests.streaming import GrowingAnswer, begin_answer, break_answer, end_answer
from acts_celery.protocol.requests.tool_texts import function_schema, functions_of
from acts_celery.protocol.requests.widening import Definitions, Widening
from acts_celery.protocol.schemas import CompiledSchema
from acts_celery.protocol.schemas.walk import reachable
from acts_celery.protocol.templates import standing_in

from . import naive
from .composed_samples import READ, TEMPLATES, answers
from .driver import Driver
from .schema_strategies import schema_values, schemas
from .strategies import SCHEMAS, TOOLS, json_values, log_messages, submissions
from .test_against_naive import FUNCTIONS, compared
from .test_law_errors import first_reader
from .test_r12_4_calls import meaning

# Laws of requests: the composed schema and the reading of answers are two sides of one thing (SPEC R12).

CONTEXT: list[dict[str, Any]] = [{"type": "state", "x": 1}, {"type": "input", "y": "z"}]
INSTANCES: list[dict[str, Any]] = [{"type": "state", "_instance": name, "own": 1} for name in ("①", "②")]
output_schemas: st.SearchStrategy[Any] = schemas().filter(lambda schema: not [*null_problems(schema)])
"""One that admits null alone is refused."""


def widened(schema: Any) -> CompiledSchema:
    """A schema in which references stand for values."""
    definitions = Definitions()
    document = CompiledSchema(schema).document
    whole = Widening("it", document, definitions).value(document)
    return CompiledSchema({"allOf": [whole], "$defs": definitions.schemas})


def with_references(value: Any, random: Random) -> Any:
    """A value with references in place of some parts."""
    if random.random() < 0.3:
        return random.choice([*READ, *TEMPLATES])
    if isinstance(value, dict):
        return {key: with_references(item, random) for key, item in value.items()}
    return [with_references(item, random) for item in value] if isinstance(value, list) else value


@given(schemas(), schema_values, st.randoms(use_true_random=False))
def test_what_a_widened_schema_admits_can_be_right(schema: Any, value: Any, random: Random) -> None:
    value = with_references(value, random)
    if not widened(schema).problems(value):
        assert not CompiledSchema(schema).problems(standing_in(value), lenient=True)


@given(schemas(), schema_values)
def test_without_references_a_widened_schema_says_the_same(schema: Any, value: Any) -> None:
    assert bool(widened(schema).problems(value)) == bool(CompiledSchema(schema).problems(value))


plain_schemas: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(
        [{"type": "integer"}, {"type": "string"}, {"type": ["null", "boolean"]}, {"enum": ["x", 1]}, {"minLength": 1}]
    ),
    lambda below: st.one_of(
        st.builds(lambda items: {"type": "array", "items": items}, below),
        st.builds(lambda one, other: {"anyOf": [one, other]}, below, below),
        st.builds(lambda one, other: {"oneOf": [one, other]}, below, below),
        st.builds(
            lambda named, rest: {"type": "object", "properties": named, "additionalProperties": rest},
            st.dictionaries(st.sampled_from("abc"), below, max_size=3),
            st.booleans() | below,
        ),
    ),
    max_leaves=6,
)


def with_parts(value: Any, random: Random) -> Any:
    """A value with references in place of some parts, and templates in place of some texts."""
    if random.random() < 0.3:
        return random.choice(READ)
    if isinstance(value, str) and random.random() < 0.4:
        return random.choice(TEMPLATES)
    if isinstance(value, dict):
        return {key: with_parts(item, random) for key, item in value.items()}
    return [with_parts(item, random) for item in value] if isinstance(value, list) else value


@given(plain_schemas, schema_values, st.randoms(use_true_random=False))
def test_a_reference_may_stand_for_every_part_of_a_value_and_a_template_for_every_text(
    schema: Any, value: Any, random: Random
) -> None:
    if not CompiledSchema(schema).problems(value):
        assert not widened(schema).problems(with_parts(value, random))


paths: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"_outputPath": {"const": "†data.pinned"}},
        {"_outputPath": {"const": "†data.p || †data.q"}},
        {"_outputPath": {"enum": ["†data.a", "†data.b"]}},
        {"_outputPath": {"type": ["string", "null"], "pattern": "^†data"}},
        {"_outputPath": False},
    ]
)
others: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "_output": st.sampled_from([{"type": "integer"}, {}, False, {"$ref": "#/$defs/d"}, {"items": {"const": 1}}]),
        "_scopes": st.sampled_from([{"const": ["state"]}, {"type": "array", "items": {"enum": ["state", "input"]}}]),
        "_outputMethod": st.sampled_from([{"const": "set"}, {"enum": ["set", "merge"]}]),
        "_delegate": st.sampled_from([{"const": "helper"}, {"enum": ["helper", "other"]}]),
        "_instance": st.sampled_from([{"const": "①"}, {"enum": ["②", "③"]}]),
        "_note": st.sampled_from([{"type": "string"}, {"$ref": "#/$defs/base"}, {"const": 5}]),
    },
)


prescribed: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"const": "†state.x"},
        {"const": "†input.y||†state.x", "type": ["string", "integer"]},
        {"enum": ["†state.x", "†state.x && †input.y"]},
        {"enum": ["†input.y || †state.x", "x", 1]},
        {"pattern": "^†(state|input)"},
        {"properties": {"a": {"const": "†state.x"}, "b": {}}, "required": ["a", "b"]},
        {"properties": {"a": {"const": "†state.x"}}, "required": ["a"], "additionalProperties": False},
        {"anyOf": [{"const": "†state.x"}, {"type": "integer"}]},
        {"items": {"properties": {"a": {"const": "†state.x"}}}},
    ]
)


@st.composite
def tools(draw: st.DrawFn) -> dict[str, Any]:
    """A tool, its parameters of any schemas, some of which prescribe expressions."""
    named = draw(st.dictionaries(st.sampled_from("abc"), schemas(), max_size=2))
    named |= draw(st.dictionaries(st.sampled_from("ab"), prescribed, max_size=1))
    definitions = [part.pop("$defs") for part in named.values() if isinstance(part, dict) and "$defs" in part]
    tool: dict[str, Any] = {"type": "object", "properties": {**named, **draw(paths), **draw(others)}}
    whole: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {"required": ["a"]},
                {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
                {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
                {"if": {"required": ["a"]}, "then": {"required": ["b"], "properties": {"b": {"type": "integer"}}}},
                {"allOf": [{"$ref": "#/$defs/base"}]},
                {"additionalProperties": False},
                {"dependentRequired": {"a": ["b"]}},
            ]
        )
    )
    base = {"properties": {"c": {"type": "string"}}, "required": ["c"]}
    return {**tool, **whole, "$defs": {"d": (definitions or [{"d": True}])[0]["d"], "base": base}}


@settings(max_examples=settings().max_examples // 2)  # each draws schemas, and then values by them
@given(st.data(), st.lists(tools(), min_size=1, max_size=2), output_schemas, st.booleans(), st.booleans())
def test_what_is_drawn_from_the_composed_schema_is_read_back_without_an_error(
    data: st.DataObject, declared: list[dict[str, Any]], schema: Any, has_instances: bool, is_code: bool
) -> None:
    names = ["first", "second"][: len(declared)]
    for tool in declared if not has_instances else ():
        tool["properties"].pop("_instance", None)  # a tool that is pinned to an instance needs one
    value = {
        "context": [*CONTEXT, *(INSTANCES if has_instances else ())],
        "schema": schema,
        "tools": dict(zip(names, declared, strict=True)),
    }
    submission, problems = read_submission(value, Limits())
    assert problems == []
    code: dict[str, Any] = {"first": {"type": "object"}} if is_code else {}
    asked = Request(submission, Environment(activities=code, delegates=("helper", "other")))
    answer = read_answer(asked, data.draw(answers(compose(asked))))
    assert [error.message for error in answer.errors] == []
    reach = {tool.tool: tool for tool in reach_of(asked).tools}
    for call in answer.calls:  # SPEC R12.8
        bound = reach[call.tool]
        assert (call.runner.executor, call.runner.name) in bound.code
        assert bound.writes is None or {*map(str, call.written)} <= {*bound.writes}
        assert bound.sees is None or {scope.kind for scope in call.scopes} <= {*bound.sees}


def mutated(value: Any, random: Random) -> Any:
    """A value with some parts replaced, left out or given other names."""
    if random.random() < 0.15:
        return random.choice([None, 5, True, "†", "†nowhere.x", "††", [], {}, {"_tool": "first"}, 2**70, "\ud800", "①"])
    if isinstance(value, dict):
        return {random.choice([key, key, key, "_x", "_gather"]): mutated(item, random) for key, item in value.items()}
    return [mutated(item, random) for item in value] if isinstance(value, list) else value


@given(st.data(), tools(), st.booleans(), st.randoms(use_true_random=False))
def test_whatever_a_model_answers_is_read_and_what_may_run_is_valid(
    data: st.DataObject, tool: dict[str, Any], has_instances: bool, random: Random
) -> None:
    context = [*CONTEXT, *(INSTANCES if has_instances else ())]
    value = {"context": context, "schema": {"type": "string"}, "tools": {"first": tool}}
    submission, _ = read_submission(value, Limits())
    asked = Request(submission, Environment(activities={}, delegates=("helper", "other")))
    base = {"calls": [{"_tool": "first", "a": "†state.x", "_outputPath": "†data.out"}] * 3, "output": "†data.out"}
    drawn = mutated(data.draw(st.just(base) | answers(compose(asked)).map(dict)), random)
    answer = read_answer(asked, drawn)
    again = read_answer(asked, {"calls": [call.raw for call in answer.calls], "output": answer.output})
    assert again.errors == ()
    assert len(answer.positions) == len(answer.calls)
    if isinstance(drawn, dict) and isinstance(drawn.get("calls"), list) and len(answer.calls) < len(drawn["calls"]):
        assert answer.errors


@given(st.text(st.sampled_from('{}[]",:calsout 0†\\'), max_size=40))
def test_whatever_text_a_model_answers_is_read(text: str) -> None:
    submission, _ = read_submission({"context": [], "schema": {"type": "string"}}, Limits())
    answer = read_answer(Request(submission, Environment()), text)
    assert answer.errors
    assert answer.calls == ()


# Laws of rendering: a model that reads from top to bottom knows the newest value of everything (SPEC R12.5).

NOTHING: dict[str, Any] = {"calls": [], "output": None}
instances = st.sampled_from([None, None, "①", "②"])


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """A message of a log, of any instance."""
    message: Any = draw(log_messages)
    instance = draw(instances)
    return {**message, "_instance": instance} if instance is not None else dict(message)


def request(context: list[Any]) -> Request:
    """A request that begins with this context."""
    submission, problems = read_submission({"context": context, "schema": {"type": "string"}}, Limits())
    assert problems == []
    return Request(submission, Environment())


def read_blocks(rendered: list[dict[str, Any]], ticks_at: int) -> list[dict[str, Any]]:
    """The blocks of data as a reader understands them who goes by the engine's text: as messages of a log."""
    read: list[dict[str, Any]] = []
    for number, message in enumerate(rendered[1:], 1):
        for block in message["content"].split("\n\n"):
            heading, *below = block.split("\n")
            if heading.startswith("## Data: ") and below:
                read += read_block(heading, json.loads(below[-1].replace("††", "†")), is_first=number < ticks_at)
    return read


def read_block(heading: str, value: Any, *, is_first: bool) -> list[dict[str, Any]]:
    """One of them; at first an instance's names are each its own."""
    found = re.fullmatch(r"## Data: (.*?)(?: ([①②]))?(?: \((\w+)\))?", heading)
    assert found is not None
    place, instance, method = parse(found[1]).references[0], found[2], found[3]
    to = {"type": "data", "kind": place.kind, **({"_instance": instance} if instance else {})}
    if is_first and instance and method is None and isinstance(value, dict):
        names = (Reference(place.kind, (key,)) for key in value)
        return [
            {**to, "data": {}, "_outputMethod": "merge"},  # an object is there, if with nothing in it
            *(
                {**to, "data": {one.path[0]: value[one.path[0]]}, "_outputMethod": "set", "_path": str(one)}
                for one in names
            ),
        ]
    at = {"_path": str(place)} if place.path else {}
    return [{**to, "data": nest(value, place.path), "_outputMethod": method or "set", **at}]


def values(messages: list[Any], instance: str | None) -> dict[str, Any]:
    """Each kind's folded value, but for errors."""
    return {kind: value for kind, value in Context.trusted(messages).data(instance).items() if kind != "error"}


def told(first: list[Any], ticks: list[Any]) -> tuple[list[Any], list[Any]]:
    """A log in which every write fits, and what a reader knows who is shown it tick by tick."""
    assume(not Context.trusted([*first, *(one for new in ticks for one in new)]).conflicts())
    return shown(first, ticks)


def shown(first: list[Any], ticks: list[Any]) -> tuple[list[Any], list[Any]]:
    """The same of any log."""
    asked = request(first)
    rendered, so_far = render(asked), first
    ticks_at = len(rendered)
    for number, new in enumerate(ticks):
        rendered = [*rendered, *render_tick(asked, number, NOTHING, (), [*so_far, *new], new)]
        so_far = [*so_far, *new]
    return so_far, read_blocks(rendered, ticks_at)


# Quotes: what a request shows and its log holds is named in the log (SPEC R13.5).


@given(st.lists(messages(), max_size=4), st.lists(messages(), min_size=1, max_size=4), st.integers(1, 30))
def test_r13_5_a_request_that_quotes_its_log_is_the_one_that_was_made(
    first: list[Any], new: list[Any], least: int
) -> None:
    asked, said = request([*first, {"type": "text", "message": "†what to do"}]), [*first, *new]
    rendered = [*render(asked), *render_tick(asked, 0, {"calls": [], "output": "†state"}, (), said, new)]
    known = {f"{number}-0": message for number, message in enumerate(said)}
    with patch("acts_celery.protocol.engine.loop.QUOTES_LEAST_CHARACTERS", least):
        left, quotes = quoted(rendered, known)
    packed = msgpack.unpackb(msgpack.packb([left, quotes]))
    read = RequestRecorded(packed[0], {}, 0, "", quotes=read_quotes(packed[1], len(left)))
    assert with_quotes(read, known.get).messages == rendered
    assert {*entries_quoted(read)} <= known.keys()


def test_r13_5_a_request_writes_no_long_value_that_its_log_holds_once_more() -> None:
    text, value, given = "Do it. " * 100, {"a": ["†x " * 100]}, {"b": "y" * 300}
    context: list[Any] = [{"type": "text", "message": text}, {"type": "state", "data": given}]
    solution: dict[str, Any] = {"calls": [], "output": "z" * 300}
    written = {"type": "state", "data": {"n": {"m": value}}, "_call": {}, "_path": "†state.n.m"}
    new: list[Any] = [{"type": "solution", "solution": solution}, written]
    asked, log = request(context), [*context, *new]
    rendered = [*render(asked), *render_tick(asked, 0, solution, (), log, new)]
    known = {f"{number}-0": message for number, message in enumerate(log)}
    left, quotes = quoted(rendered, known)
    quoting = RequestRecorded(left, {}, 0, "", quotes=quotes)
    assert [*entries_quoted(quoting)] == ["0-0", "1-0", "2-0", "3-0"]
    assert all(part not in json.dumps([left, quotes]) for part in (text, "y" * 300, "x" * 300, "z" * 300, "††x "))
    assert with_quotes(quoting, known.get).messages == rendered
    del known["3-0"]
    shown_before = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("†", "††")
    gone = with_quotes(quoting, known.get).messages[-1]["content"]
    assert gone == rendered[-1]["content"].replace(shown_before, "[deleted]")


@pytest.mark.parametrize(
    "quotes",
    [[1], [[0]], [[7, ["a"]]], [[-1, ["a"]]], [["0", ["a"]]], [[0, [1]]], [[0, [["1-0", []]]]], [[0, [["1-0", [1]]]]],
     [[0, [["1-0", "data"]]]], [[0, [["1-0", ["data"]]] * 65]]],
)  # fmt: skip
def test_r13_5_quotes_that_no_request_has_are_refused(quotes: list[Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        read_quotes(quotes, 1)


@given(st.lists(messages(), max_size=4), st.lists(st.lists(messages(), max_size=3), max_size=3))
def test_who_reads_from_top_to_bottom_knows_every_global_value(first: list[Any], ticks: list[Any]) -> None:
    log, read = told(first, ticks)
    assert values(read, None) == values(log, None)


@given(
    st.lists(messages(), max_size=4),
    st.lists(st.lists(messages().map(lambda one: {**one, "_instance": "①"}), max_size=3), max_size=3),
)
def test_who_reads_from_top_to_bottom_knows_what_an_instance_sees(first: list[Any], ticks: list[Any]) -> None:
    log, read = told(first, ticks)
    assert values(read, "①") == values(log, "①")


def test_what_is_replaced_is_shown_where_digits_would_be_an_index_without_it() -> None:
    def written(place: str, value: Any, method: str = "set") -> dict[str, Any]:
        at = parse(place).references[0]
        call = {"_tool": "t", "_outputPath": place}
        return {
            "type": "data",
            "kind": "state",
            "data": nest(value, at.path),
            "_call": call,
            "_outputMethod": method,
            "_instance": "①",
        }

    new = [written("†state.a.b.0", 1), written("†state.a.1", 2, "push"), written("†state.a.b.0", 3)]
    log, read = shown([], [new])
    assert values(read, "①") == values(log, "①") == {"state": {"a": {"b": [3], "1": [2]}}}
    log, read = shown([], [[new[0], new[2]]])
    assert len(read) == 1, "what nothing rests on is left out"


def test_r12_5_after_a_gather_over_many_instances_what_is_shown_is_as_long_as_what_there_is() -> None:
    sizes = []
    for count in (20, 40):
        context: list[Any] = [{"type": "state", "_instance": f"i{at}", "own": "x" * 100} for at in range(count)]
        context.append({"type": "state", "all": {f"i{at}": "x" * 100 for at in range(count)}})
        sizes.append(len("".join(message["content"] for message in render_context(context))))
    assert sizes[1] < 2.1 * sizes[0]


def test_r12_5_ten_ticks_with_large_results_cost_no_more_than_one_message_for_each() -> None:
    asked = request([])
    log: list[Any] = []
    size = plain = 0
    for tick in range(10):
        call = {"_tool": "find", "_outputPath": "†state.found", "_outputMethod": "push"}
        new = [{"type": "data", "kind": "state", "data": {"found": "y" * 4096}, "_call": call, "_outputMethod": "push"}]
        size += len("".join(one["content"] for one in render_tick(asked, tick, NOTHING, (), [*log, *new], new)))
        plain += len(json.dumps(new[0]["data"]))
        log += new
    assert size < 1.2 * plain


def test_r12_5_what_the_state_requires_and_is_not_there_is_listed_with_the_tools_that_write_it() -> None:
    schema = {
        "type": "object",
        "properties": {"refund": {"type": "object", "properties": {"sum": {}}, "required": ["sum"]}, "note": {}},
        "required": ["refund", "note", "done"],
    }
    tools = {"pay": {"_outputPath": {"const": "†state.refund"}}, "mark": {"_outputPath": {"const": "†state.done"}}}
    context = [{"type": "state", "schema": schema, "done": True}, {"type": "state", "_instance": "①", "note": 1}]
    value = {"context": [*context, {"type": "state", "_instance": "②"}], "schema": {"type": "string"}, "tools": tools}
    submission, problems = read_submission(value, Limits())
    assert problems == []
    asked = Request(submission, Environment())
    assert (
        render(asked)[-1]["content"]
        == "Your calls must still fill: †state.refund.sum (pay); †state.note in 1 of 2 instances"
    )
    filled = [{"type": "state", "_instance": name, "refund": {"sum": 1}, "note": 1} for name in ("①", "②")]
    (*_, last) = render_tick(asked, 0, NOTHING, (), [*submission.context, *filled], filled)
    assert "must still fill" not in last["content"]


def test_r12_5_an_error_of_an_instance_says_which() -> None:
    error = {"call": {"_tool": "find"}, "error": {"type": "ValueError", "message": "no", "pointer": "/calls/0"}}
    new = [{"type": "error", "_instance": "②", "data": error}]
    (*_, last) = render_tick(request([]), 0, NOTHING, (), new, new)
    assert '## Error: {"instance":"②","call":{"_tool":"find"},' in last["content"]


def test_r12_5_of_a_long_call_an_error_quotes_what_it_is_about() -> None:
    call = {"_tool": "send", "to/by": "x" * 1_000, "body": "y" * 1_000, "copies": 3, "lines": ["z"] * 1_000}
    for pointer, kept in (
        ("/calls/0/to~1by", {"to/by": f"{'x' * 100} … {'x' * 100}"}),
        ("/calls/0/copies", {"copies": 3}),
        ("/calls/0/lines/7", {"lines": '["z", "z", '}),
        ("/calls/0", {}),
    ):
        error = {"type": "InvalidCall", "message": "no", "pointer": pointer}
        new = [{"type": "error", "data": {"call": call, "error": error}}]
        (*_, last) = render_tick(request([]), 0, NOTHING, (), new, new)
        (line,) = (line for line in last["content"].splitlines() if line.startswith("## Error: "))
        told = json.loads(line.removeprefix("## Error: "))
        assert told["error"] == error
        assert told["call"].keys() == {"_tool", *kept}
        assert all(str(told["call"][name]).startswith(str(value)) for name, value in kept.items())
        assert len(line) < 500


@given(st.lists(st.tuples(st.text(max_size=12), json_values), max_size=3), st.text(max_size=12))
def test_whatever_data_holds_it_forges_no_heading(pairs: list[Any], instance: str) -> None:
    context: list[Any] = [{"type": "data", "kind": f"k{kind}", "data": value} for kind, value in pairs]
    context += [
        {"type": "state", "_instance": "\n## Data: †input" + instance, "description": "\r# x", "a": "\u2028# y"}
    ]
    context += [{"type": "data", "kind": "state ①", "schema": {"title": "\n## x"}, "data": 1}]
    for message in render_context(context):
        headings = [line for line in message["content"].splitlines() if line.startswith("#")]
        assert len(headings) == 1, message


def test_r12_5_behind_a_tick_stand_a_receipt_the_changed_values_every_error_and_the_plan() -> None:
    first: list[Any] = [
        {"type": "plan", "calls": [{"_tool": "price", "item": "†input.item"}]},
        {"type": "input", "item": "pear"},
        {"type": "state", "_instance": "①", "own": 1},
    ]
    call = {"_tool": "price", "_outputPath": "†state.price"}
    new: list[Any] = [
        {"type": "data", "kind": "state", "data": {"price": 3}, "_call": call, "_date": "d"},
        {"type": "solution", "solution": {"calls": [], "output": None}},
        {
            "type": "error",
            "data": {"call": call, "error": {"type": "X", "message": "a\nb", "pointer": ""}},
            "_date": "d",
        },
    ]
    fates = [Fate(0, "price", None, "done", "†state.price"), Fate(1, "buy", "①", "skipped", None, "no †state.money")]
    asked = request(first)
    answered, told = render_tick(asked, 0, {"calls": [call], "output": None}, fates, [*first, *new], new)
    assert answered == {
        "role": "assistant",
        "content": '{"calls":[{"_tool":"price","_outputPath":"†state.price"}],"output":null}',
    }
    assert told == {
        "role": "user",
        "content": "\n".join(
            [
                "# Tick 0: results of your calls",
                "0. price: done → †state.price",
                "1. buy ①: skipped (no †state.money)",
                "",
                "## Data: †state.price",
                "3",
                "",
                '## Error: {"call":{"_tool":"price","_outputPath":"†state.price"},'
                '"error":{"type":"X","message":"a\\nb","pointer":""}}',
                "",
                "## Plan (replaces every earlier plan; only the calls of your next answer run)",
                '{"_tool":"price","_outputPath":"†state.price"}',
            ]
        ),
    }


def test_r12_5_what_is_only_promised_is_shown_by_its_schema_and_long_values_are_cut() -> None:
    promise = {"type": "input", "schema": {"type": "object", "properties": {"a": {}}}, "description": "The\nneed"}
    context: list[Any] = [promise, {"type": "state", "text": "é" * 20}]
    promised, cut = render_context(context, Budget(12))
    assert promised["content"] == (
        '## Data: †input\nDescription: The need\nSchema: {"type":"object","properties":{"a":{}}}'
    )
    assert cut["content"] == (
        '## Data: †state\n{"text… (†state is cut here: it has 51 bytes. A reference passes on all of it) …éé"}'
    )


# The law of streaming: an answer that runs while it is written gives what it gives when it comes whole (R13.8).

EACH = {"enum": [["value"], ["other"], ["value", "other"], ["other", "value"]]}
OPEN: dict[str, Any] = {
    "properties": {"value": {}, "other": {}, "where": {}, "_scopes": {"type": "array"}, "_each": EACH, "_after": {}}
}
DECLARED = {name: {**OPEN, **schema} for name, schema in SCHEMAS.items()}
DECLARED |= {name: {"properties": {"_scopes": {"type": "array"}, "_after": {}}} for name in ("choose", "wait")}
DECLARED["number"] = {"properties": {**OPEN["properties"], **SCHEMAS["number"]["properties"]}}


class Streamed(Driver):
    """A driver to which calls are added while others run."""

    def move(self) -> None:
        """Do something, if there is anything to do."""
        if moves := self._moves():
            assert self._random is not None
            self._random.choice(moves)()
            self._mischief(self._random)

    def extend(self, layout: CheckedPlan) -> None:
        """Go on with more calls; what is at work stays so."""
        before, self._plan = self._lanes, layout  # type: ignore[assignment]  # a plan is a layout
        self._gathers = [call.index for call in layout.calls if call.gather]
        self._lanes = {instance: self._read(instance) for instance in layout.lanes}
        for instance, lane in before.items():
            for index in lane.results:
                assert self._lanes[instance].execution.record(index, Status.RUNNING)
            self._lanes[instance].results = lane.results


def request_of(context: list[Any]) -> Request:
    return read_request({"context": context, "schema": {}, "tools": DECLARED}, Environment())


def waits_of(graph: Graph, index: int) -> dict[str, set[int]]:
    """What a call waits for, by the place or scope."""
    return {
        f"{what} {place}": {node for one in nodes for node in (graph.barriers.get(one, (one,)) if one < 0 else (one,))}
        for what, those in (("", graph.waits), ("scope", graph.scopes), ("after", graph.after))
        for places in [those.get(index, {})]
        for place, nodes in places.items()
    }


def ends_of_calls(text: str) -> list[int]:
    """Where the text can be cut behind a call."""
    growing, ends = GrowingAnswer(), []
    for character in text:
        if growing.feed(character):
            ends.append(len(growing.text_of_calls))
    return ends


@given(submissions().filter(lambda one: "solution" in one), st.integers(0, 2**32))
def test_r13_8_a_streamed_answer_gives_what_the_naive_evaluator_gives_of_the_whole(
    submission: dict[str, Any], seed: int
) -> None:
    context, text = submission["context"], json.dumps({**submission["solution"], "output": None})
    submission = {**submission, "tools": DECLARED}
    try:
        check_submission(submission)
    except Rejected:
        assume(False)
    assume(first_reader(submission) is None)  # the errors of a tick's calls are read in the next tick
    random, asked = Random(seed), request_of(context)
    whole = read_answer(asked, text)
    assert not whole.errors
    driver = None
    for end in sorted(random.choices([0, *ends_of_calls(text)], k=4)):
        layout = begin_answer(asked, text[:end], context, first=0)
        if driver is None:
            driver = Streamed(layout, FUNCTIONS, random=random)  # type: ignore[arg-type]
        driver.extend(layout)
        for _ in range(random.randrange(4)):
            driver.move()
    assert driver is not None
    answer = end_answer(asked, text, [call.index for call in driver._plan.calls], context, first=0)
    driver.extend(answer.layout)
    result = driver.run()
    if naive.is_deterministic(submission):
        compared(naive.evaluate(submission, TOOLS), result)


# The law of one grammar: what a submission says a model may answer, and it does the same (SPEC R12.4).
#
# What R12 forbids on purpose is listed in `test_r12_4_calls.ON_PURPOSE`, with its rules; besides, an error is read in
# the next tick (R13.1), and an answer is no list of messages with calls among them (R12.1).


def respelled(call: dict[str, Any], random: Random) -> dict[str, Any]:
    """A call that says the same in other words."""
    made = dict(call)
    path = made.get("_outputPath")
    if path is not None and random.random() < 0.5:
        made["_outputPath"] = re.sub(r"†state\.(?=[a-z])", "", path)
    if "_scopes" in made and random.random() < 0.5:
        made["_imports"] = made.pop("_scopes")
    if random.random() < 0.3:
        made |= {name: None for name in ("_gather", "_instance", "_outputMethod", "_scopes") if name not in made}
    if "_gather" not in made and random.random() < 0.3:
        made["_gather"] = False
    return made


def written_freely(solution: dict[str, Any], random: Random) -> str:
    """A solution as a text, with comments and commas behind the last elements, or its calls alone."""
    calls = solution["calls"]
    value = random.choice(
        [{"calls": calls}, {"calls": calls, "output": None}, calls, calls[0] if len(calls) == 1 else calls]
    )
    text = json.dumps(value, ensure_ascii=random.random() < 0.5)
    if random.random() < 0.5:
        text = f'{text[0]} // it is "so\n{text[1:-1]},{text[-1]}'
    return f"```json\n{text}\n```" if random.random() < 0.3 else text


@given(submissions().filter(lambda one: "solution" in one), st.integers(0, 2**32), st.booleans())
def test_r12_4_law_the_calls_of_a_valid_submission_are_an_answer_that_does_the_same(
    submission: dict[str, Any], seed: int, is_native: bool
) -> None:
    random, submission = Random(seed), {**submission, "tools": DECLARED}
    calls = [respelled(call, random) for call in submission["solution"]["calls"]]
    try:
        check_submission(submission)
        plan = check_submission({**submission, "solution": {"calls": calls}})
    except Rejected:
        assume(False)
    assume(first_reader(submission) is None)
    asked = request_of(submission["context"])
    if is_native:
        asked = replace(asked, is_native=True)
        functions = FunctionAnswer(functions_of(function_schema(asked)))
        arguments = [{"_outputPath": None, **{k: v for k, v in call.items() if k != "_tool"}} for call in calls]
        text = "".join(
            functions.call(call["_tool"], json.dumps(one)) for call, one in zip(calls, arguments, strict=True)
        )
        answer = read_answer(asked, text + functions.end())
    else:
        answer = read_answer(asked, written_freely({"calls": calls}, random))
    assert [error.message for error in answer.errors] == []
    assert [meaning(call) for call in answer.calls] == [meaning(call) for call in plan.calls]
    for instance, lane in answer.layout.lanes.items():
        for call in lane.calls:
            assert waits_of(lane.graph, call.index) == waits_of(plan.lanes[instance].graph, call.index)
    result = Driver(answer.layout, FUNCTIONS, random=random).run()  # type: ignore[arg-type]  # a plan is a layout
    if naive.is_deterministic(submission):
        compared(naive.evaluate(submission, TOOLS), result)


spellings: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "_outputPath": st.sampled_from(
            [
                "†data.pinned",
                "†data.p",
                "†data.p || †data.q",
                "†data.b||†data.a",
                "†data.a",
                "†state.x.y",
                "plain",
                "a && b",
            ]
        ),
        "_scopes": st.sampled_from([["state"], ["input", "†state.x"], ["†state.x"], []]),
        "_outputMethod": st.sampled_from(["set", "merge"]),
        "_delegate": st.sampled_from(["helper", "other"]),
        "_instance": st.sampled_from(["①", "②", "*"]),
        "_gather": st.booleans(),
        "_note": st.sampled_from(["text", 5]),
        "_output": schema_values,
        "_reasoningForCall": st.just("why"),
    },
)


def is_forbidden(asked: Request, call: dict[str, Any]) -> bool:
    """Whether a rule of requests forbids a call of `first` that is valid in a submission."""
    shown = compose(asked)["properties"]["calls"]["items"]["anyOf"][0]
    pinned = asked.tools["first"].constants
    others = {name for name in call if name not in shown["properties"] and (name, call[name]) not in pinned.items()}
    is_closed = shown["additionalProperties"] is False and "patternProperties" not in shown
    unknown = {name for name in others - {"_tool"} if is_closed or name.startswith("_")} - {"_gather"}
    tool = asked.tools["first"]
    unknown -= tool.inputs.inside.texts.keys()
    has_reads = "†" in json.dumps(call, ensure_ascii=False).replace(str(call.get("_outputPath")), "")
    is_early = "_output" in call and has_reads  # R4.8a
    named = [("properties", name) for name in tool.document["properties"] if not name.startswith("_")]
    constants = [part["const"] for at in named for _, part in reachable(tool.document, at) if "const" in part]
    has_constants = not all(map(is_expression, constants))
    return bool(unknown) or is_early or (has_reads and has_constants)


def is_valid_at_last(asked: Request, call: Call) -> bool:
    """Whether the tool of a call admits it with its values, as far as they are there."""
    try:
        given_ = call.with_parameters(call.resolved(Context(asked.submission.context).fold(call.instance)))
    except (Unresolved, Conflict):
        return True
    is_latent = call.runner.executor is Executor.LATENT
    return not asked.tools["first"].problems(given_, is_latent=is_latent, written=call.properties)


@given(tools(), st.dictionaries(st.sampled_from("abc"), schema_values), spellings, st.booleans(), st.randoms())
def test_r12_4_law_of_any_tool_a_call_that_a_submission_may_have_is_no_error_but_on_purpose(
    tool: dict[str, Any], parameters: dict[str, Any], spelled: dict[str, Any], is_code: bool, random: Random
) -> None:
    given_ = {name: with_references(value, random) for name, value in parameters.items()}
    call = {"_tool": "first", **given_, **spelled}
    value = {"context": [*CONTEXT, *INSTANCES], "tools": {"first": tool}}
    code: dict[str, Any] = {"first": {"type": "object"}} if is_code else {}
    known: dict[str, Any] = {"activities": code, "delegates": ("helper", "other")}
    try:
        plan = check_submission({**value, "solution": {"calls": [call]}}, **known)
    except Rejected:
        assume(False)
    submission, problems = read_submission({**value, "schema": {"type": "string"}}, Limits())
    assert problems == []
    asked = Request(submission, Environment(**known))
    assume(not is_forbidden(asked, call) and is_valid_at_last(asked, plan.calls[0]))
    answer = read_answer(asked, {"calls": [call], "output": None})
    assert [error.message for error in answer.errors] == []
    assert [meaning(one) for one in answer.calls] == [meaning(one) for one in plan.calls]


@given(submissions().filter(lambda one: "solution" in one))
def test_r13_8_what_begins_early_waits_for_the_same_calls_whatever_comes_behind_it(submission: dict[str, Any]) -> None:
    context, text = submission["context"], json.dumps({**submission["solution"], "output": None})
    asked = request_of(context)
    whole = read_answer(asked, text)
    before: set[int] = set()
    for end in ends_of_calls(text):
        layout = begin_answer(asked, text[:end], context, first=0)
        begun = {call.index for call in layout.calls}
        assert before <= begun <= {call.index for call in whole.calls}
        for instance, lane in layout.lanes.items():
            for call in lane.calls:
                assert waits_of(lane.graph, call.index) == waits_of(whole.layout.lanes[instance].graph, call.index)
        before = begun


def give(value: Any, path: str, **more: Any) -> dict[str, Any]:
    return {"_tool": "give", "value": value, "_outputPath": f"†state.{path}", **more}


@pytest.mark.parametrize(
    ("calls", "begun"),
    [
        ([give(1, "a"), give("†state.a", "b")], [0, 1]),
        ([give("†state.later", "a"), give("†state.a", "b"), give(1, "later")], [2]),
        ([give("†state.later || †state.x", "a")], []),
        ([give(["†state.x", "†input.y"], "a"), give(1, "x")], [0, 1]),
        ([give("†state.later", "a"), give(1, "b", _scopes=["†state.b"]), give(1, "c", _scopes=["state"])], [1]),
        ([give(1, "a", _instance="①"), give("†state.a", "b", _gather=True)], [0]),
        ([give("†state.own", "a", _instance="①"), give("†state.own", "a", _instance="②")], [0]),
        (
            [
                give(1, "a"),
                {"_tool": "unknown", "_outputPath": "†state.b"},
                give("†state.b", "c"),
                give("†state.a", "d"),
            ],
            [0, 3],
        ),
    ],
)
def test_r13_8_while_the_answer_is_written_an_unmet_reference_a_fallback_and_a_gathering_wait(
    calls: list[Any], begun: list[int]
) -> None:
    context = [{"type": "state", "x": 1}, {"type": "input", "y": 1}, {"type": "state", "_instance": "①", "own": 1}]
    asked = request_of([*context, {"type": "state", "_instance": "②", "z": 1}])
    text = json.dumps({"calls": calls})[:-2]
    layout = begin_answer(asked, text, asked.submission.context, first=5)
    assert [call.index - 5 for call in layout.calls] == begun


def broken(text: str) -> Answer:
    asked = request_of([])
    return break_answer(asked, text, [], first=0, why="it broke off")


def test_r13_8_of_a_broken_answer_the_calls_that_were_written_count_and_no_output() -> None:
    answer = broken(json.dumps({"calls": [give(1, "a"), give("†state.no", "b")]})[:-2])
    assert [call.index for call in answer.calls] == [0]
    assert [(error.type, error.pointer) for error in answer.errors] == [
        ("InvalidCall", "/calls/1/value"),
        ("Truncated", ""),
    ]
    assert (len(answer.solution["calls"]), answer.output) == (2, None)


@pytest.mark.parametrize(
    "rest", ["]", '], "calls": []}', '], "output": null} {"calls": []}', '], "output": null, "output": 1}']
)
def test_r13_8_what_turns_invalid_behind_a_call_is_no_answer(rest: str) -> None:
    text = json.dumps({"calls": [give(1, "a")]})[:-2]
    with pytest.raises(Unreadable):
        end_answer(request_of([]), text + rest, [0], [], first=0)


# Answers that are still being written (SPEC R13.8).

PIECES = 250_000
SECONDS = 5  # half a second; 42, where what has come is copied for each piece
texts = st.text(st.sampled_from('"\\{}[],: a\n†'), max_size=8)
calls = st.lists(st.dictionaries(texts, st.one_of(texts, schema_values, st.lists(texts, max_size=2)), max_size=3))


@given(calls, st.one_of(st.none(), texts), st.lists(st.integers(0, 400), max_size=8), st.booleans(), st.booleans())
def test_r13_8_a_call_is_given_when_it_is_complete_however_the_text_is_cut(
    listed: list[Any], output: Any, cuts: list[int], is_first: bool, is_indented: bool
) -> None:
    advice = {"advisors": {"a": {"calls": [{"no": "call"}]}}}
    whole = {**advice, "calls": listed, "output": output} if is_first else {"output": output, "calls": listed}
    text = json.dumps(whole, ensure_ascii=is_first, indent=1 if is_indented else None)
    growing, given_so_far, before = GrowingAnswer(), [], 0
    for cut in sorted({min(cut, len(text)) for cut in cuts} | {len(text)}):
        for call in growing.feed(text[before:cut]):
            given_so_far.append(call)
            assert growing.text == text[:cut]
        before = cut
    assert given_so_far == listed


@given(st.lists(st.just({"_tool": "t", "a": '}"]'}), min_size=1, max_size=4))
def test_r13_8_a_call_waits_for_nothing_behind_it(listed: list[Any]) -> None:
    text = json.dumps({"calls": listed})
    complete = [len(GrowingAnswer().feed(text[:end])) for end in range(len(text) + 1)]
    ends = [index for index in range(1, len(complete)) if complete[index] > complete[index - 1]]
    assert len(ends) == len(listed)
    assert all(text[end - 1] == "}" for end in ends)


@pytest.mark.parametrize(
    "text",
    [
        '{"calls": [{"a": 1, "a": 2}',
        '{"calls": [], "calls": [',
        '{"calls": [{"a": nonsense}',
        '{"calls": [}',
        "]",
    ],
)
def test_r13_8_what_cannot_become_an_answer_is_refused_at_once(text: str) -> None:
    with pytest.raises(Unreadable):
        GrowingAnswer().feed(text)


words = st.text(st.sampled_from('"\\{}[],: a\n†é😀\u2028\x00'), max_size=12)


@given(words, calls, st.booleans(), st.booleans())
def test_r13_12_a_text_output_grows_piece_by_piece_up_to_its_first_dagger(
    output: str, listed: list[Any], is_ascii: bool, is_last: bool
) -> None:
    parts = {"calls": listed, "output": output}
    whole = json.dumps(
        {"meta": {"output": "no"}, **(parts if is_last else dict(reversed(parts.items())))}, ensure_ascii=is_ascii
    )
    growing, before = GrowingAnswer(), ""
    for character in whole:
        growing.feed(character)
        assert growing.output.startswith(before)
        before = growing.output
    assert before == output.partition("†")[0]


@pytest.mark.parametrize("output", [None, 7, {"output": "inner"}, ["a"], {"a": {"output": "inner"}}])
def test_r13_12_an_output_that_is_no_text_gives_none(output: Any) -> None:
    for order in ({"calls": [{"output": "of a call"}], "output": output}, {"output": output, "calls": [], "more": "x"}):
        growing = GrowingAnswer()
        growing.feed(json.dumps(order))
        assert (growing.output, growing.written) == ("", 0)


def test_r13_12_half_a_character_is_not_given() -> None:
    growing = GrowingAnswer()
    given_so_far = [
        growing.output for piece in ('{"output": "a\\', "ud83d", "\\", "ude00", "\\", "n") if growing.feed(piece) == []
    ]
    assert given_so_far == ["a", "a", "a", "a😀", "a😀", "a😀\n"]
    lone = GrowingAnswer()
    lone.feed('{"output": "a\\ud83d and more')
    assert lone.output == "a"  # what it means is read at the end


def test_r13_8_the_time_does_not_depend_on_how_small_the_pieces_are() -> None:
    growing = GrowingAnswer()
    growing.feed('{"calls": [], "output": "')
    began = time.process_time()
    for _ in range(PIECES):
        growing.feed("abcd")
    assert time.process_time() - began < SECONDS
    assert len(growing.output) == 4 * PIECES
