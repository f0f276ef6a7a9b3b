"""Laws of schemas (SPEC R4.1, R4.6): what they allow, what errors quote, and what is known of them before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acts_celery import Output
from acts_celery.protocol import Problem, Reference, Rejected, parse
from acts_celery.protocol.calls.outputs import write_problems
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.engine.events import Decision, Outcome, Start, Status, Success
from acts_celery.protocol.paths import MISSING, lookup
from acts_celery.protocol.references import Path
from acts_celery.protocol.schemas import CompiledSchema, compiled, validation
from acts_celery.protocol.schemas.algebra import Algebra, is_empty
from acts_celery.protocol.schemas.costs import METER, Meter
from acts_celery.protocol.schemas.validation import OffloadedChecks, verdict_of
from acts_celery.protocol.state.operations import Method, Operation

from .building import DATE, call, checked, executing, run_plan, statuses
from .schema_strategies import schema_values, schemas

# Laws of schemas (SPEC R4.1, R4.6): they mean what the draft says; leniency refuses nothing that may be right.


@given(schemas(), schema_values)
def test_a_schema_means_what_another_implementation_of_the_draft_says(schema: Any, value: Any) -> None:
    assert (not CompiledSchema(schema).problems(value)) == Draft202012Validator(schema).is_valid(value)


@given(schemas(), schema_values)
def test_without_expressions_leniency_changes_nothing(schema: Any, value: Any) -> None:
    compiled = CompiledSchema(schema)
    assert compiled.problems(value, lenient=True) == compiled.problems(value)


@given(schemas(), schema_values, st.randoms(use_true_random=False))
def test_what_some_values_make_valid_is_admitted_while_expressions_stand_for_them(
    schema: Any, value: Any, random: Random
) -> None:
    compiled = CompiledSchema(schema)
    if not compiled.problems(value):
        assert not compiled.problems(_with_expressions(value, random), lenient=True)


@given(schemas(), st.dictionaries(st.sampled_from("ab"), schema_values), st.booleans())
def test_of_a_call_a_schema_that_mentions_no_meta_property_says_what_it_says_of_its_parameters(
    schema: Any, parameters: dict[str, Any], lenient: bool
) -> None:
    whole = schema if isinstance(schema, dict) else {"allOf": [schema]}
    tool, compiled = Tool("t", whole), CompiledSchema(whole)
    for meta in ({}, {"_outputPath": "†state.x", "_scopes": ["state"]}):
        found = tool.problems(parameters | meta, lenient=lenient)
        assert bool(found) == bool(compiled.problems(parameters)), found


def _with_expressions(value: Any, random: Random) -> Any:
    if random.random() < 0.3:
        return parse("†state.x")
    if isinstance(value, dict):
        return {key: _with_expressions(item, random) for key, item in value.items()}
    return [_with_expressions(item, random) for item in value] if isinstance(value, list) else value


@given(schemas(), schema_values, st.data())
def test_a_part_of_a_valid_value_may_be_written_where_it_stands(schema: Any, value: Any, data: st.DataObject) -> None:
    compiled = CompiledSchema(schema)
    if compiled.problems(value):
        return
    path: list[Any] = []
    while isinstance(value, (dict, list) if path else dict) and value and data.draw(st.booleans()):  # R3.5
        path.append(data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value)))))
        value = value[path[-1]]
    written = Operation(Reference("state", tuple(path)), Method.SET, value, "")
    assert not write_problems(compiled, written, MISSING)


# Laws of schema algebra: what is said never to fit, or never to be there, is so for every value (SPEC R4.1, R6.7).

many_schemas = st.lists(schemas(), min_size=2, max_size=12)
segments: list[str | int] = ["a", "b", 0, 1]
paths: st.SearchStrategy[Path] = st.lists(st.sampled_from(segments), max_size=2).map(tuple)


def admitting(schemas: list[Any], value: Any) -> list[Any]:
    """The schemas that have nothing against a value."""
    return [schema for schema in schemas if not compiled(schema).problems(value)]


@given(many_schemas, schema_values)
def test_schemas_that_one_value_satisfies_fit_each_other(schemas: list[Any], value: Any) -> None:
    algebra = Algebra()
    for one, other in permutations(admitting(schemas, value), 2):
        assert algebra.fit(algebra.made_of(one), algebra.made_of(other))
        assert not is_empty(algebra.both(algebra.made_of(one), algebra.made_of(other)))


@given(many_schemas, many_schemas, schema_values, paths)
def test_a_value_inside_another_is_there_and_fits(
    outer: list[Any], inner: list[Any], value: Any, path: tuple[str | int, ...]
) -> None:
    algebra = Algebra()
    part = lookup(value, path)
    if part is MISSING:
        return
    for one in admitting(outer, value):
        inside = algebra.along(algebra.made_of(one), path)
        assert algebra.fit(algebra.only(part), inside)
        for other in admitting(inner, part):
            assert algebra.fit(inside, algebra.made_of(other))
            assert algebra.fit(algebra.made_of(other), inside)


@given(many_schemas, many_schemas, schema_values, paths)
def test_what_is_covered_by_a_schema_fits_it_whatever_it_is(
    outer: list[Any], inner: list[Any], value: Any, path: tuple[str | int, ...]
) -> None:
    algebra = Algebra()
    part = lookup(value, path)
    if part is MISSING:
        return
    for one in admitting(outer, value):
        inside = algebra.along(algebra.made_of(one), path)
        for other in inner:
            assert not algebra.covered(inside, other) or not compiled(other).problems(part)


# Laws of secrecy (SPEC R7.2): what is said of a value that does not fit holds nothing of it, whatever refuses it.

TEXT, NAME, NUMBER = "Quetzal", "Xolotl", 7654.25
REFUSING: list[tuple[str, Any, Any]] = [
    ("type", {"type": "boolean"}, TEXT),
    ("enum", {"enum": [1, None]}, [TEXT]),
    ("const", {"const": {"a": 1}}, {NAME: TEXT}),
    ("minimum", {"minimum": 10_000}, NUMBER),
    ("maximum", {"maximum": 1}, NUMBER),
    ("exclusiveMinimum", {"exclusiveMinimum": 10_000}, NUMBER),
    ("exclusiveMaximum", {"exclusiveMaximum": 1}, NUMBER),
    ("multipleOf", {"multipleOf": 2}, NUMBER),
    ("minLength", {"minLength": 100}, TEXT),
    ("maxLength", {"maxLength": 0}, TEXT),
    ("pattern", {"pattern": "^a"}, TEXT),
    ("minItems", {"minItems": 9}, [TEXT]),
    ("maxItems", {"maxItems": 0}, [TEXT]),
    ("uniqueItems", {"uniqueItems": True}, [{NAME: TEXT}, {NAME: TEXT}]),
    ("items", {"items": False}, [TEXT]),
    ("items", {"prefixItems": [True], "items": False}, ["Alex", TEXT, NUMBER]),
    ("items", {"items": {"type": "null"}}, [TEXT]),
    ("prefixItems", {"prefixItems": [False]}, [TEXT]),
    ("contains", {"contains": False}, [TEXT]),
    ("contains", {"contains": True, "minContains": 3}, [TEXT]),
    ("contains", {"contains": True, "maxContains": 0}, [TEXT]),
    ("minProperties", {"minProperties": 3}, {NAME: TEXT}),
    ("maxProperties", {"maxProperties": 0}, {NAME: TEXT}),
    ("required", {"required": ["a"]}, {NAME: TEXT}),
    ("properties", {"properties": {"a": {"type": "null"}}}, {"a": {NAME: TEXT}}),
    ("patternProperties", {"patternProperties": {"^X": {"type": "null"}}}, {NAME: [TEXT]}),
    ("additionalProperties", {"additionalProperties": False}, {NAME: TEXT}),
    ("additionalProperties", {"patternProperties": {"^a": True}, "additionalProperties": False}, {NAME: TEXT}),
    ("additionalProperties", {"additionalProperties": {"items": {"type": "null"}}}, {NAME: [TEXT]}),
    ("propertyNames", {"propertyNames": {"maxLength": 1}}, {NAME: 1}),
    ("propertyNames", {"propertyNames": False}, {NAME: 1}),
    ("dependentRequired", {"dependentRequired": {"a": ["b"]}}, {"a": TEXT, NAME: 1}),
    ("dependentSchemas", {"dependentSchemas": {"a": {"maxProperties": 1}}}, {"a": TEXT, NAME: 1}),
    ("unevaluatedItems", {"prefixItems": [True], "unevaluatedItems": False}, ["Alex", TEXT]),
    ("unevaluatedItems", {"unevaluatedItems": {"type": "null"}}, [TEXT]),
    ("unevaluatedProperties", {"unevaluatedProperties": False}, {NAME: TEXT}),
    ("unevaluatedProperties", {"unevaluatedProperties": {"type": "null"}}, {NAME: TEXT}),
    ("allOf", {"allOf": [False]}, TEXT),
    ("anyOf", {"anyOf": [False, {"type": "null"}]}, {NAME: TEXT}),
    ("oneOf", {"oneOf": [True, True]}, [TEXT]),
    ("oneOf", {"oneOf": [False]}, [TEXT]),
    ("not", {"not": True}, TEXT),
    ("if", {"if": True, "then": {"type": "null"}}, TEXT),
    ("if", {"if": False, "else": {"type": "null"}}, TEXT),
    ("$ref", {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, TEXT),
    ("$dynamicRef", {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "type": "null"}}}, TEXT),
]


Inside = Callable[[Any, Any], tuple[Any, Any]]
INSIDE: dict[str, Inside] = {
    "properties": lambda schema, value: ({"properties": {"p": schema}}, {"p": value}),
    "additionalProperties": lambda schema, value: ({"additionalProperties": schema}, {NAME: value}),
    "unevaluatedProperties": lambda schema, value: ({"unevaluatedProperties": schema}, {NAME: value}),
    "patternProperties": lambda schema, value: ({"patternProperties": {"^X": schema}}, {NAME: value}),
    "items": lambda schema, value: ({"items": schema}, [value, value]),
    "prefixItems": lambda schema, value: ({"prefixItems": [schema]}, [value, NAME]),
    "contains": lambda schema, value: ({"contains": schema}, [value]),
    "allOf": lambda schema, value: ({"allOf": [schema]}, value),
    "anyOf": lambda schema, value: ({"anyOf": [schema, False]}, value),
    "oneOf": lambda schema, value: ({"oneOf": [schema, False]}, value),
    "not": lambda schema, value: ({"not": {"not": schema}}, value),
    "if": lambda schema, value: ({"if": schema, "else": False}, value),
    "then": lambda schema, value: ({"if": True, "then": schema}, value),
    "dependentSchemas": lambda schema, value: (
        {"dependentSchemas": {"p": {"properties": {"p": schema}}}},
        {"p": value, NAME: TEXT},
    ),
}


def told(schema: Any, value: Any, known: tuple[str, ...] = ()) -> list[Problem]:
    return CompiledSchema(schema).problems(value, known=known)


def told_of_a_write(schema: Any, value: Any, method: Method = Method.SET) -> list[Problem]:
    return write_problems(CompiledSchema(schema), Operation(Reference("state"), method, value, "test"), MISSING)


def holds_a_secret(problem: Problem) -> bool:
    return any(secret in str(problem) for secret in (TEXT, NAME, str(NUMBER)))


@pytest.mark.parametrize(("keyword", "schema", "value"), REFUSING)
def test_no_keyword_tells_what_it_refuses(keyword: str, schema: Any, value: Any) -> None:
    problems = told(schema, value)
    assert problems
    assert not any(map(holds_a_secret, (*problems, *told_of_a_write(schema, value))))


@given(st.sampled_from(REFUSING), st.lists(st.sampled_from(sorted(INSIDE)), max_size=4))
def test_nor_does_it_inside_of_others(refusing: tuple[str, Any, Any], inside: list[str]) -> None:
    _, schema, value = refusing
    definitions = (
        {"$defs": schema.pop("$defs")} if isinstance(schema, dict) and "$defs" in (schema := {**schema}) else {}
    )
    for keyword in inside:
        schema, value = INSIDE[keyword](schema, value)
    schema = {**schema, **definitions} if definitions else schema
    problems = told(schema, value)
    assert problems
    assert not any(map(holds_a_secret, (*problems, *told_of_a_write(schema, value))))
    if isinstance(value, dict):
        whole = schema if isinstance(schema, dict) else {"allOf": [schema]}
        known = {**value, "_outputPath": "†state.x"}
        assert not any(TEXT in str(problem) for problem in Tool("t", whole).problems(known, is_secret=True))


def test_every_keyword_that_can_refuse_a_value_was_tried() -> None:
    asserting = set(Draft202012Validator.VALIDATORS) - {"format"}  # an annotation: it refuses nothing
    assert {keyword for keyword, _, _ in REFUSING} == asserting


@given(schemas(), schema_values, st.sampled_from([Method.SET, Method.PUSH, Method.MERGE]))
def test_of_what_is_written_the_same_is_said_whatever_it_is(schema: Any, value: Any, method: Method) -> None:
    value = {"a": value} if method is Method.MERGE else value
    said = [
        write_problems(
            CompiledSchema(schema),
            Operation(Reference("state", ("a", "b")), method, _spelled(value, letter), ""),
            MISSING,
        )
        for letter in "QZ"
    ]
    assert said[0] == said[1]


def _spelled(value: Any, letter: str) -> Any:
    """The value with other texts and names: as long as they were, as different from each other, and in no schema."""
    if isinstance(value, str):
        return letter * len(value)
    if isinstance(value, dict):
        return {letter * (ord(name) - 96): _spelled(item, letter) for name, item in value.items()}
    return [_spelled(item, letter) for item in value] if isinstance(value, list) else value


def test_names_that_are_known_anyway_are_reported() -> None:
    schema = {"additionalProperties": {"additionalProperties": {"type": "null"}}}
    value = {"people": {NAME: TEXT}}
    assert [str(problem) for problem in told(schema, value, known=("people",))] == [
        '/people: below it, the value is not of type "null"'
    ]


def test_where_names_are_left_out_what_is_said_alike_is_said_once() -> None:
    schema = {"additionalProperties": {"type": "null"}}
    assert [str(problem) for problem in told(schema, {NAME: TEXT, TEXT: NAME})] == [
        '/: below it, the value is not of type "null"'
    ]


# Laws of findings: who is said to read, or to write, what can never be taken never succeeds (SPEC R3.2, R4, R6.7).

places = st.sampled_from(["†state.l", "†state.l", "†state.l.a", "†state.l.0", "†state.l.a.b", "†state.l.1", "†state"])
types = st.sampled_from(["array", "boolean", "integer", "null", "number", "object", "string"])
plain = st.builds(lambda type_, items: {"type": type_, "items": {"type": items}}, types, types)


@st.composite
def promises(draw: st.DrawFn) -> tuple[Any, Any]:
    """A value, and a schema that it satisfies."""
    value = draw(schema_values)
    several = [draw(schemas()), {"type": draw(types)}, {"const": value}]
    schema = draw(st.sampled_from([schema for schema in several if not compiled(schema).problems(value)]))
    return value, schema


@st.composite
def writers(draw: st.DrawFn) -> tuple[dict[str, Any], Any, Any]:
    """A call without its tool, its result, and the schema of that."""
    value, schema = draw(promises())
    place, other = draw(places), draw(st.sampled_from(["", "†state.other || "]))
    method = draw(st.sampled_from([None, *Method]))
    result = draw(st.sampled_from([value, Output(place, value), LookupError()])) if other else value
    return {"_outputPath": other + place} | ({} if method is None else {"_outputMethod": method.value}), result, schema


def carried_out(result: Any) -> Any:
    """An activity with this result."""

    def activity(parameters: Any, context: Any) -> Any:
        if isinstance(result, Exception):
            raise result
        return result

    return activity


@given(st.lists(writers(), min_size=1, max_size=3), places, plain | schemas(), st.none() | schema_values)
def test_a_reader_of_what_it_can_never_take_does_not_succeed(
    writing: list[tuple[dict[str, Any], Any, Any]], place: str, wanted: Any, held: Any
) -> None:
    tools = {f"w{number}": {"_output": schema} for number, (_, _, schema) in enumerate(writing)}
    calls = [call(f"w{number}", **properties) for number, (properties, _, _) in enumerate(writing)]
    reader = call("take", value=place, to="†data.taken")
    context = [] if held is None else [{"type": "state", "l": held}]
    try:
        plan = checked(*calls, reader, tools={**tools, "take": {"properties": {"value": wanted}}}, context=context)
    except Rejected:  # by a schema that no value can satisfy
        return
    told = [finding for finding in plan.findings if finding.code in ("ACT201", "ACT202")]
    functions = {f"w{number}": carried_out(result) for number, (_, result, _) in enumerate(writing)}
    if told:
        result = run_plan(plan, functions={**functions, "take": lambda parameters, context: None})
        assert statuses(result)[-1] != "done", told


@example(({"_outputPath": "†state.l", "_outputMethod": "push"}, 1, {"const": 1}), {"anyOf": [False]}, None)
@example(({"_outputPath": "†state.l", "_outputMethod": "push"}, 1, {"const": 1}), {"const": 5}, None)
@given(writers(), plain | schemas().filter(lambda schema: isinstance(schema, dict)), st.none() | schema_values)
def test_a_result_that_is_never_admitted_fails_or_leaves_what_the_schema_forbids(
    writing: tuple[dict[str, Any], Any, Any], schema: dict[str, Any], held: Any
) -> None:
    properties, value, output = writing
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    whole: dict[str, Any] = {"properties": {"l": schema}, **definitions}
    context = [{"type": "state", "schema": whole, "data": {} if held is None else {"l": held}}]
    plan = checked(call("w", **properties), tools={"w": {"_output": output}}, context=context)
    told = [finding for finding in plan.findings if finding.code in ("ACT203", "ACT206")]
    if told and "||" not in properties["_outputPath"]:
        result = run_plan(plan, functions={"w": carried_out(value)})
        # What adds to a list or an object is held against the type of that and its own part alone (SPEC R4.6).
        assert statuses(result) == ["failed"] or compiled(whole).problems(result.data[None]["state"]), told


# What is checked in another process comes to the same as what is checked here, in the same words (SPEC R4.1, R4.6).

T = TypeVar("T")

HEAVY = {"items": {"anyOf": [{"pattern": f"(a|b)*{'[ab]' * 12}c{number}$"} for number in range(300)]}}
TEXTS = ["ab" * 20] * 1_000


def judged(decide: Callable[[], T]) -> tuple[T, int]:
    """What is decided when all offloaded are there, and how many were asked for."""
    offloaded = OffloadedChecks()
    while True:
        with offloaded:
            decided = decide()
        if not offloaded.asked:
            return decided, len(offloaded.found)
        offloaded.found.update({check: verdict_of(check) for check in offloaded.asked})


@pytest.fixture(scope="class")
def all_is_heavy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "HEAVY_WORK", -1)
        patch.setattr("acts_celery.protocol.limits.HEAVY_LISTED", -1)
        yield


@pytest.mark.usefixtures("all_is_heavy")
class TestWhereAllIsHeavy:
    @given(
        st.one_of(st.sampled_from(REFUSING).map(lambda one: one[1:]), st.tuples(schemas(), schema_values)),
        st.none() | st.lists(st.text(max_size=3) | st.integers(0, 3), max_size=3),
    )
    def test_the_same_is_said_elsewhere(self, case: tuple[Any, Any], known: list[str | int] | None) -> None:
        schema, value = case
        ready = CompiledSchema(schema)

        def said() -> list[Problem]:
            at_a_place = ready.problems_at(("a", 0), value, "y", known=known)
            return ready.problems(value, "x", 1, known=known) + at_a_place

        here = said()
        there, asked = judged(said)
        assert there == here
        assert asked

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**64 - 1, 1.0, -0.0, "\ud800", "\x00\n"])
    def test_so_it_is_of_what_is_hard_to_write_down(self, value: Any) -> None:
        ready = CompiledSchema({"items": {"enum": [1]}})
        assert judged(lambda: ready.problems([value], known=("\udfff",)))[0] == ready.problems(
            [value], known=("\udfff",)
        )
        assert judged(lambda: ready.problems([value]))[0] == ready.problems([value])

    def test_what_a_call_comes_to_is_decided_when_the_verdicts_are_there(self) -> None:
        tools = {
            "give": {
                "type": "object",
                "properties": {"value": {"type": "integer"}, "_activity": {}},
                "_output": {"type": "string"},
            }
        }
        kind = {"type": "state", "schema": {"properties": {"a": {"maxLength": 3}, "b": {"maxLength": 1}}}}
        plan = checked(
            call("give", "†state.a", value="†input.n"),
            call("give", "†state.b", value="†input.text"),
            tools=tools,
            context=[kind, {"type": "input", "input": {"n": 1, "text": "x"}}],
        )
        execution, plain, offloaded = executing(plan)[0], executing(plan)[0], OffloadedChecks()
        decided: list[Decision] = []
        while True:
            with offloaded:
                decided += execution.decide(DATE)
            if not offloaded.asked:
                break
            offloaded.found.update({check: verdict_of(check) for check in offloaded.asked})
        assert decided == plain.decide(DATE)
        assert isinstance(decided[0], Start)
        assert isinstance(decided[1], Outcome), "its parameter is no number"
        for result, status in (
            (Success("abc"), Status.DONE),
            (Success("abcd"), Status.FAILED),
            (Success(1), Status.FAILED),
        ):
            outcome, asked = judged(lambda result=result: execution.finish(0, result, DATE))  # type: ignore[misc]
            assert outcome == plain.finish(0, result, DATE)
            assert (outcome.status, asked > 0) == (status, True)


def test_what_is_heavy_is_asked_for_once_and_costs_the_run_as_much() -> None:
    ready, meters = compiled(HEAVY), (Meter(), Meter())
    token = METER.set(meters[0])
    try:
        here = ready.problems(TEXTS, known=())
        METER.set(meters[1])
        there, asked = judged(lambda: [ready.problems(TEXTS, known=()), ready.problems([*TEXTS], known=())])
    finally:
        METER.reset(token)
    assert (there, asked) == ([here, here], 1)
    assert here
    assert meters[1].units >= 2 * meters[0].units > 0


def test_what_is_not_heavy_is_checked_here() -> None:
    offloaded = OffloadedChecks()
    with offloaded:
        assert compiled(HEAVY).problems(["x"], known=())
        assert compiled({"type": "string"}).problems(TEXTS, known=())
    assert not offloaded.asked


def test_what_is_found_soon_and_takes_long_to_say_is_said_elsewhere() -> None:
    ready = compiled({"anyOf": [{"items": {"enum": [1, "b"]}}, {"maxItems": 3}]})
    offloaded = OffloadedChecks()
    with offloaded:
        assert ready.problems(["b"] * 5_000, known=()) == []
        assert not offloaded.asked, "it fits"
        assert ready.problems(["a"] * 5_000, known=()) == []
        assert offloaded.asked


def test_what_takes_long_to_say_costs_the_run_no_more_than_one_value_may() -> None:
    ready, meter = compiled({"anyOf": [{"items": {"enum": [1, "b"]}}, {"maxItems": 3}]}), Meter()
    token = METER.set(meter)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(validation, "MOST_WORK", 40_000)
            problems, _ = judged(lambda: ready.problems(["a"] * 5_000, known=()))
    finally:
        METER.reset(token)
    assert (len(problems), meter.units) == (1, 40_000)


def test_one_pass_asks_for_many_checks_and_for_no_more_than_fit() -> None:
    ready, most = compiled(HEAVY), 2**23
    values = [["ab" * 20 + str(number)] * 1_000 for number in range(3)]
    offloaded = OffloadedChecks()
    with offloaded:
        for value in values:
            ready.problems(value)
    assert len(offloaded.asked) == 3
    texts = [["x" * 40 + str(number)] * 100_000 for number in range(3)]
    with offloaded:
        for number, value in enumerate(texts):
            offloaded.of([number], "true", value)
    assert 0 < sum(len(check.value) for check in offloaded.asked) <= most
    assert len(offloaded.asked) < 3
