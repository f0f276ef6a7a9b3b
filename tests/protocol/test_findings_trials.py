"""Findings: calls that succeed in none of many trial runs (SPEC R6.5, R6.6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import check_submission
from protocol.analysis.findings.trials import MOST_TRIALS
from protocol.schemas import compiled

from .building import call, checked, plan_submission

INTEGER = {"type": "integer"}
STRING = {"type": "string"}


def giving(**schemas: Any) -> dict[str, Any]:
    """Tools by name, each with the schema of its result."""
    return {name: {"properties": {"_output": schema}} for name, schema in schemas.items()}


def taking(schema: Any) -> dict[str, Any]:
    return {"take": {"properties": {"value": schema}}}


def told(*calls: Any, **parts: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(finding.severity, finding.calls) for finding in checked(*calls, **parts).findings]


def test_the_text_says_what_was_tried_and_what_happened() -> None:
    calls = call("make", "†data.x"), call("give", "†data.x.name", after="†data.x")
    (finding,) = checked(*calls, tools=giving(make=STRING)).findings
    assert finding.message == (
        f"call 1 (give) succeeded in none of {MOST_TRIALS + 16} trial runs on made-up results; in one it failed: "
        "cannot set string at †data.x.name: there is string, and 'name' is not inside it (result of give, call 1); if "
        "that is always so, change the path, the method or a schema"
    )


@pytest.mark.parametrize(
    ("result", "to", "method"),
    [
        (STRING, "†data.x.name", "set"),
        ({"type": "object"}, "†data.x", "push"),
        ({"type": "array"}, "†data.x.name", "set"),
    ],
)
def test_a_call_that_writes_into_a_result_what_that_never_takes_is_told(result: Any, to: str, method: str) -> None:
    second = call("give", to, after="†data.x", _outputMethod=method)
    assert told(call("make", "†data.x"), second, tools=giving(make=result)) == [("info", (1,))]
    assert told(call("make", "†data.x"), second, tools=giving(make=True)) == []


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        ("†data.x", {"type": "object", "required": ["x", "y"]}),
        ("†data.x.y.z", {"type": "object", "properties": {"x": {"type": "object", "required": ["name"]}}}),
    ],
)
def test_a_reader_of_what_is_put_together_that_no_made_up_result_suits_is_told(to: str, wanted: Any) -> None:
    calls = call("make", to), call("take", value="†data")
    assert told(*calls, tools={**giving(make=INTEGER), **taking(wanted)}) == [("info", (1,))]
    assert told(*calls, tools={**giving(make=True), **taking(wanted)}) == [("info", (1,))], "whatever it gives"


def test_of_what_is_not_known_nothing_is_said() -> None:
    several = [call(f"take{n}", f"†data.t{n}", value="†data.x") for n in range(3)]
    tools = {f"take{n}": taking({"type": "object", "required": [f"k{n}"]})["take"] for n in range(3)}
    assert told(call("make", "†data.x"), *several, tools={**giving(make=True), **tools}) == []
    two = call("make", "†data.x.name"), call("make", "†data.x.age"), call("take", value="†data.x")
    both = {"type": "object", "required": ["name", "age"], "properties": {"name": STRING, "age": INTEGER}}
    assert told(*two, tools={**giving(make=True), **taking(both)}) == []
    declared = [{"type": "data", "data": {}, "schema": {"properties": {"good": INTEGER, "bad": {"enum": ["a"]}}}}]
    branches = call("make", "†data.good || †data.bad"), call("give", v="†data.good"), call("give", v="†data.bad")
    assert told(*branches, tools=giving(make=True), context=declared) == []


@pytest.mark.parametrize(
    "intricate",
    [
        {"type": ["string", "number"], "pattern": "^[A-Z]{3}-[0-9]{6}$", "minimum": 1e9},
        {"type": "array", "minItems": 3, "uniqueItems": True, "items": {"enum": [1, 2, 3]}},
        {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"not": {"type": ["string", "number", "boolean", "array", "null"]}},
    ],
)
def test_of_intricate_schemas_nothing_is_concluded(intricate: Any) -> None:
    calls = call("make", "†data.x"), call("take", value="†data")
    wanted = {"properties": {"x": intricate}, "required": ["x"]}
    assert told(*calls, tools={**giving(make={"type": ["array", "number", "object"]}), **taking(wanted)}) == []
    declared = [{"type": "data", "schema": {"properties": {"x": intricate}}, "data": {}}]
    assert (
        told(call("make", "†data.x"), tools=giving(make={"type": ["array", "number", "object"]}), context=declared)
        == []
    )


def test_a_reader_of_what_only_code_could_choose_is_told() -> None:
    branching = call("think", "†data.yes || †data.no", _output=1)
    assert told(branching, call("give", value="†data.no"), activities={"give": {}}) == [("info", (0,)), ("info", (1,))]
    assert told({**branching, "_tool": "give"}, call("give", value="†data.no"), call("give", value="†data.yes")) == []


def test_a_reader_of_an_error_is_not_told() -> None:
    assert told(call("give", "†data.x"), call("give", value="†error.error || †data.x")) == []


def test_what_only_follows_from_another_finding_is_not_told() -> None:
    first, second = call("make", "†data.x"), call("give", "†data.x.name", after="†data.x")
    reader = call("give", "†data.z", value="†data.x.name")
    assert told(first, second, reader, tools=giving(make=STRING)) == [("info", (1,))]


def test_what_fails_in_some_orders_only_is_not_told() -> None:
    late = call("give", "†data.l", value="†data.y", _outputMethod="push")
    assert told(call("give", "†data.y"), late, call("give", "†data.l.0", value="†data.y")) != [("info", (2,))]


def test_what_fails_in_one_instance_is_told_of_that_one() -> None:
    context = [{"type": "state", "_instance": name, "x": {"a": a}} for name, a in (("①", "text"), ("②", 1))]
    calls = [call("make", "†state.x", _outputMethod="merge"), call("take", value="†state.x")]
    closed = {"type": "object", "properties": {"b": STRING}, "required": ["b"], "additionalProperties": False}
    tools = {**giving(make=closed), **taking({"properties": {"a": INTEGER}})}
    (finding,) = check_submission(plan_submission(*calls, context=context, tools=tools)).findings
    assert finding.message.startswith("in instance '①', call 1 (take) succeeded in none of")


def test_longer_plans_are_not_tried() -> None:
    first, second = call("make", "†data.x"), call("give", "†data.x.name", after="†data.x")
    many = [call("give", f"†data.n{number}") for number in range(400)]
    assert told(first, second, *many, tools=giving(make=STRING)) == []


def test_of_many_instances_the_first_are_tried() -> None:
    context = [{"type": "state", "_instance": str(number), "a": 1} for number in range(1_000)]
    calls = [call("make", "†state.x"), call("give", "†state.x.name", after="†state.x")]
    (finding,) = check_submission(plan_submission(*calls, context=context, tools=giving(make=STRING))).findings
    assert "call 1 (give) succeeded in none of" in finding.message


def triage(categories: int, *others: Any) -> list[Any]:
    """Somebody chooses who answers, or that nobody does; one polishes what that is."""
    routes = [f"†state.route.r{number}" for number in range(categories)]
    handlers = [call(f"answer{number}", "†state.draft", about=route) for number, route in enumerate(routes)]
    classify = call("classify", " || ".join((*routes, "†state.route.other")), text="†input.ticket")
    escalate = call("escalate", "†state.escalated", why="†state.route.other")
    return [classify, *handlers, *others, call("polish", "†state.reply", text="†state.draft"), escalate]


def told_of_trials(*calls: Any, **parts: Any) -> list[str]:
    messages = [finding.message for finding in checked(*calls, **parts).findings]
    return [message for message in messages if "trial runs" in message]


@pytest.mark.parametrize("categories", range(2, 9))
def test_of_many_ways_each_is_tried_before_a_call_is_told_to_be_skipped(categories: int) -> None:
    ticket = [{"type": "input", "ticket": "…"}]
    tools = {f"answer{number}": {"properties": {"about": {"type": "object"}}} for number in range(categories)}
    several = {"classify": {"properties": {"_output": {"type": ["object", "string"]}}}}
    assert told_of_trials(*triage(categories), context=ticket) == []
    assert told_of_trials(*triage(categories), context=ticket, tools={**tools, **several}) == []
    again = call("review", "†state.fine || †state.wrong || †state.sent", text="†state.draft")
    readers = [call("note", f"†state.noted.{way}", way=f"†state.{way}") for way in ("fine", "wrong", "sent")]
    assert told_of_trials(*triage(categories, again, *readers), context=ticket) == []


def test_a_long_chain_behind_one_of_many_ways_is_tried_to_its_end() -> None:
    chain = [call("step", f"†data.s{n + 1}", value=f"†data.s{n}") for n in range(12)]
    branch = call("choose", " || ".join(f"†data.s{n}" for n in (20, 21, 22, 0)))
    assert told_of_trials(branch, *chain, tools={"step": taking(INTEGER)["take"]}) == []


def test_a_call_behind_one_of_many_ways_that_never_succeeds_is_told() -> None:
    ticket = [{"type": "input", "ticket": "…"}]
    below = call("give", "†data.made.name", after="†data.made")
    make = call("make", "†data.made", about="†state.route.r4")
    (message,) = told_of_trials(*triage(5, make, below), context=ticket, tools=giving(make=STRING))
    assert message.startswith("call 7 (give) succeeded in none of")
    assert "in one it failed: cannot set" in message


def test_of_more_ways_than_can_be_tried_nothing_is_said() -> None:
    chooses = [call("choose", f"†data.c{n}.a || †data.c{n}.b || †data.c{n}.c") for n in range(12)]
    last = call("take", value=[f"†data.c{n}.c" for n in range(12)])
    assert told_of_trials(*chooses, last) == []


def test_readers_who_need_different_values_are_each_given_what_they_need() -> None:
    def handler(*least: int) -> dict[str, Any]:
        return {"properties": {key: {"type": "integer", "minimum": n} for key, n in zip("abc", least, strict=True)}}

    makes = [call(f"make_{key}", f"†data.{key}") for key in "abc"]
    tools = {"small": handler(10_000, 500, 18), "big": handler(50_000, 700, 25), "report": handler(0, 0, 0)}
    read = {key: f"†data.{key}" for key in "abc"}
    handlers = [call(name, f"†data.{name}", **read) for name in tools]
    assert (
        told_of_trials(*makes, *handlers, tools={**giving(make_a=INTEGER, make_b=INTEGER, make_c=INTEGER), **tools})
        == []
    )
    labels = {f"on{number}": taking({"enum": [f"label {number}"]})["take"] for number in range(6)}
    readers = [call(name, f"†data.{name}", value="†data.label") for name in labels]
    label = call("classify", "†data.label")
    assert told_of_trials(label, *readers, tools={**labels, **giving(classify=STRING)}) == []
    declared = [{"type": "data", "data": {}, "schema": {"properties": {"label": STRING}}}]
    assert told_of_trials(label, *readers, tools=labels, context=declared) == []


@pytest.mark.parametrize("values", [{"type": "number"}, {"type": "string", "minLength": 3}, {"type": "array"}])
def test_a_key_of_a_map_is_made_up_with_a_value_as_the_map_has_them(values: Any) -> None:
    scores = {"type": "object", "additionalProperties": values}
    calls = call("moderate", "†data.scores"), call("decide", "†data.verdict", by="†data.scores.toxicity")
    assert told_of_trials(*calls, tools=giving(moderate=scores)) == []
    declared = [{"type": "data", "data": {}, "schema": {"properties": {"scores": scores}}}]
    assert told_of_trials(*calls, context=declared) == []


def test_of_a_place_with_a_schema_the_readers_still_get_what_they_read_below_it() -> None:
    declared = [{"type": "data", "data": {}, "schema": {"properties": {"user": {"type": "object"}}}}]
    calls = call("load", "†data.user"), call("greet", "†data.hello", name="†data.user.name")
    assert told_of_trials(*calls, context=declared) == []


VALUES = st.recursive(
    st.sampled_from([0, 7, 1200, -3, 0.5, "", "x", "a longer text", True, None]),
    lambda inner: (
        st.dictionaries(st.sampled_from(["id", "name", "tags"]), inner, min_size=1)
        | st.lists(inner, min_size=1, max_size=2)
    ),
    max_leaves=5,
)


@st.composite
def admitting(draw: st.DrawFn, value: Any) -> Any:
    """A plain schema that a value satisfies."""
    if draw(st.integers(0, 7)) == 0:
        return True
    match value:
        case bool():
            return draw(st.sampled_from([{"type": "boolean"}, {"enum": [value]}]))
        case int() | float():
            bounds = {"type": "number", "minimum": value - draw(st.integers(0, 5))}
            return draw(st.sampled_from([{"type": "number"}, bounds, {"type": "number", "maximum": value}]))
        case str():
            lengths = {"type": "string", "minLength": len(value), "maxLength": len(value) + 3}
            return draw(st.sampled_from([{"type": "string"}, lengths, {"enum": ["other", value]}]))
        case list():
            return {"type": "array", "minItems": draw(st.integers(0, len(value)))}
        case dict():
            if draw(st.booleans()):
                values = draw(admitting(next(iter(value.values()))))
                fits = all(not compiled(values).problems(inner) for inner in value.values())
                return {"type": "object", "additionalProperties": values if fits else True}
            keys = draw(st.lists(st.sampled_from(sorted(value)), unique=True))
            properties = {key: draw(admitting(inner)) for key, inner in value.items()}
            return {"type": "object", "properties": properties, "required": keys, "additionalProperties": False}
    return {"type": ["null", "string"]}


@given(st.data())
def test_readers_whom_one_value_suits_are_not_told_whatever_is_made_up(data: st.DataObject) -> None:
    value = data.draw(VALUES)
    promised = data.draw(admitting(value))
    readers, tools = [], {}
    for number in range(data.draw(st.integers(1, 3))):
        path, part = "†data.x", value
        while isinstance(part, dict) and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(sorted(part)))
            path, part = f"{path}.{key}", part[key]
        readers.append(call(f"take{number}", f"†data.t{number}", value=path))
        tools[f"take{number}"] = taking(data.draw(admitting(part)))["take"]
    by_kind = [{"type": "data", "data": {}, "schema": {"properties": {"x": promised}}}]
    tools |= giving(make=promised) if (is_by_tool := data.draw(st.booleans())) else {}
    calls = call("make", "†data.x"), *readers
    assert told_of_trials(*calls, tools=tools, context=[] if is_by_tool else by_kind) == []


def test_what_a_schema_of_a_kind_forbids_whatever_is_made_up_is_told() -> None:
    declared = [{"type": "data", "l": ["a"], "schema": {"properties": {"l": {"type": "array", "maxItems": 1}}}}]
    push = call("give", "†data.l", _outputMethod="push")
    assert told_of_trials(push, {**push, "_tool": "also"}, context=declared) != []
    elements = [{"type": "data", "l": [], "schema": {"properties": {"l": {"items": {"pattern": "^[A-Z]{9}$"}}}}}]
    assert told_of_trials(push, tools=giving(give=STRING), context=elements) == []


def test_a_value_that_two_parameters_of_one_call_bound_is_not_told() -> None:
    low, high = {"minimum": 1, "maximum": 1000}, {"minimum": 700, "maximum": 701}
    calls = call("make", "†data.x"), call("take", "†data.t", low="†data.x", high="†data.x")
    tools = {**giving(make=INTEGER), "take": {"properties": {"low": low, "high": high}}}
    assert told_of_trials(*calls, tools=tools) == []
