"""Strategies: references, messages, schemas and whole submissions, likely and hostile ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from protocol.references import Expression, Reference

from . import naive

# JSON.

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.sampled_from(["†state.a", "††", "†", "†state.a || †input.b", "①"]),
)
json_values = st.recursive(
    scalars, lambda below: st.lists(below, max_size=3) | st.dictionaries(texts, below, max_size=3), max_leaves=8
)

# References.

kinds = st.one_of(
    st.sampled_from(["state", "input", "data", "error"]), st.from_regex(r"[a-zé][a-zé0-9_-]{0,3}", fullmatch=True)
)
_odd_keys = st.sampled_from(["a", "b", "user", "first name", "x.y", "", "0", "00", "†", '"', "\\", "|"])
segments: st.SearchStrategy[str | int] = st.one_of(_odd_keys, st.integers(0, 12), texts)
references = st.builds(Reference, kinds, st.lists(segments, max_size=4).map(tuple))
expressions = st.builds(
    Expression,
    st.lists(st.lists(references, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple),
)

# Messages whose folding is interesting: few places, all methods, values that fit and values that do not.

_keys = st.sampled_from(["a", "b", "0"])
small_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.integers(0, 3), st.sampled_from(["x", "y"])),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(_keys, below, max_size=2),
    max_leaves=4,
)
small_segments: st.SearchStrategy[str | int] = st.sampled_from(["a", "b", "0", 0, 1])
small_paths = st.lists(small_segments, max_size=3).map(tuple)
methods = st.sampled_from(["set", "merge", "assign", "push", "concat"])


@st.composite
def written_messages(draw: st.DrawFn, kind: str | None = None) -> dict[str, Any]:
    """A message as a call writes it."""
    place = Reference(kind or draw(st.sampled_from(["state", "data"])), draw(small_paths))
    value = draw(small_values)
    for segment in reversed(place.path):
        value = {str(segment): value}
    message = {"type": "data", "kind": place.kind, "data": value, "_call": {"_tool": "t", "_outputPath": str(place)}}
    method = draw(st.none() | methods)
    return message if method is None else {**message, "_outputMethod": method}


def given_messages() -> st.SearchStrategy[dict[str, Any]]:
    """A message that no call wrote: a merge at the root of its kind."""
    return st.builds(
        lambda kind, payload: {"type": kind, "data": payload}, st.sampled_from(["state", "data"]), small_values
    )


log_messages = st.one_of(written_messages(), written_messages(), given_messages())

# Schemas, and values with and without expressions in them.

schema_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 2), st.sampled_from(["", "x", "xy"])),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=6,
)


def _schemas(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(below, min_size=1, max_size=2)
    named = st.dictionaries(st.sampled_from("abc"), below, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "null", "boolean"]),
            "properties": named,
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": below,
            "unevaluatedProperties": below,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), below, max_size=1),
            "dependentSchemas": named,
            "items": below,
            "prefixItems": several,
            "contains": below,
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "minProperties": st.integers(0, 2),
            "const": schema_values,
            "enum": st.lists(schema_values, min_size=1, max_size=3),
            "minimum": st.integers(-1, 1),
            "minLength": st.integers(0, 2),
            "pattern": st.sampled_from(["x", "^$"]),
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": below,
            "if": below,
            "then": below,
            "else": below,
            "$ref": st.just("#/$defs/d"),
        },
    )


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """A JSON Schema over `schema_values`; its references lead to a definition that has none."""
    schema = draw(st.recursive(st.booleans(), _schemas, max_leaves=6))
    definition = draw(st.sampled_from([True, {"type": "integer"}, {"required": ["a"]}, {"properties": {"a": False}}]))
    return {**schema, "$defs": {"d": definition}} if isinstance(schema, dict) else schema


# Submissions that the naive evaluator can judge.

INSTANCES = ("①", "②")


def _number(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return parameters.get("value", 0) + 1


def _choose(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return naive.To(parameters["where"], parameters.get("value"))


def _fail(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    raise naive.Wrong("on purpose")


TOOLS: dict[str, naive.Function] = {
    "give": lambda parameters, context: parameters.get("value"),
    "wrap": lambda parameters, context: {"k": parameters.get("value")},
    "list": lambda parameters, context: [parameters.get("value")],
    "echo": lambda parameters, context: dict(parameters),
    "see": lambda parameters, context: dict(context),
    "number": _number,
    "choose": _choose,
    "stray": lambda parameters, context: naive.To("†state.undeclared", 1),
    "fail": _fail,
}
SCHEMAS: dict[str, Any] = {
    **{name: {"type": "object"} for name in TOOLS},
    "number": {"type": "object", "properties": {"value": {"type": "integer"}}},
}
_often = st.sampled_from([True, True, True, False])
_SHARED = ("†state.s", "†state.s.t", "†state.l", "†state.l.0", "†data.d", '†state["a b"]')


@st.composite
def _output_path(draw: st.DrawFn, index: int) -> tuple[str, list[str]]:
    own = [f"†state.k{index}", f"†state.k{index}.v", f"†data.k{index}", f"†state.m.k{index}", f"†state.w{index}"]
    pool = st.sampled_from([*own, *own, *_SHARED])
    chosen = draw(st.lists(pool, min_size=1, max_size=3, unique=True))
    if len(chosen) == 3:
        return f"{chosen[0]} || {chosen[1]} && {chosen[2]}", chosen
    return draw(st.sampled_from([" || ", " && ", " || "])).join(chosen), chosen


@st.composite
def submissions(draw: st.DrawFn) -> dict[str, Any]:
    """A submission over `TOOLS`: mostly valid, and mostly one whose order does not matter."""
    instances = draw(st.sampled_from([(), INSTANCES[:1], INSTANCES]))
    given = st.dictionaries(st.sampled_from(["p", "q", "s", "l"]), small_values, max_size=2)
    context: list[dict[str, Any]] = [{"type": "input", "p": draw(small_values)}]
    context += [{"type": "state", "_instance": name, **draw(given)} for name in instances]
    if draw(st.booleans()):
        context.insert(0, {"type": "state", **draw(given)})
    is_plan = draw(st.booleans())
    lanes = st.sampled_from([None, *instances])
    count = draw(st.integers(1, 6))
    paths = [draw(_output_path(index)) for index in range(count)]
    calls = []
    for index, (text, _) in enumerate(paths):
        known = [place for number, (_, places) in enumerate(paths) if number < index for place in places]
        later = [place for number, (_, places) in enumerate(paths) if number > index for place in places]
        below = [f"{place}.k" for place in known]
        readable = st.sampled_from(["†input.p", "†state.p", *known, *known, *known, *below, *later[:1]])
        expression = st.one_of(
            readable,
            readable,
            st.builds("{} || {}".format, readable, readable),
            st.builds("{} && {} || {}".format, readable, readable, readable),
        )
        parameter = st.one_of(expression, expression, small_values, st.builds(lambda e: {"in": [e, "††x"]}, expression))
        call: dict[str, Any] = {"_tool": draw(st.sampled_from(["give", "wrap", "list", "number", *TOOLS]))}
        if draw(_often):
            call["value"] = draw(parameter)
        if not draw(_often):
            call["other"] = draw(expression)
        if draw(_often) or draw(_often):
            call["_outputPath"] = text
        if not draw(_often):
            call["_outputMethod"] = draw(methods)
        if not draw(_often):
            call["_scopes"] = [draw(readable)]
        if call["_tool"] == "choose":
            call["where"] = "†" + draw(st.sampled_from(paths[index][1]))
        lane = draw(lanes)
        if lane is not None and not (is_plan and draw(_often)):
            call["_instance"] = lane
        calls.append(call)
    if is_plan:
        return {"context": [*context, {"type": "plan", "calls": calls}], "tools": SCHEMAS}
    return {"context": context, "solution": {"calls": calls}, "tools": SCHEMAS}
