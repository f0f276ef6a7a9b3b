"""Laws of requests: the composed schema and the reading of answers are two sides of one thing (SPEC R12)."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Limits
from acts_celery.protocol.analysis.visibility import reach_of
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.submission import null_problems, read_submission
from acts_celery.protocol.requests import Request, compose, read_answer
from acts_celery.protocol.requests.widening import Definitions, Widening
from acts_celery.protocol.schemas import CompiledSchema
from acts_celery.protocol.templates import standing_in

from .composed_samples import READ, TEMPLATES, answers
from .schema_strategies import schema_values, schemas

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


@st.composite
def tools(draw: st.DrawFn) -> dict[str, Any]:
    """A tool, its parameters of any schemas."""
    named = draw(st.dictionaries(st.sampled_from("abc"), schemas(), max_size=2))
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
