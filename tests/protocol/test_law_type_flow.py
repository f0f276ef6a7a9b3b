"""Laws of findings: who is said to read, or to write, what can never be taken never succeeds (SPEC R3.2, R4, R6.7)."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from acts_celery import Output
from acts_celery.protocol import Rejected
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.state.operations import Method

from .building import call, checked, run_plan, statuses
from .schema_strategies import schema_values, schemas

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
