"""Strategies: references, messages, schemas and whole submissions, likely and hostile ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, Final, TypeVar

from hypothesis import strategies as st

from acts_celery.protocol import Expression, Reference
from acts_celery.protocol.references import Path

from . import naive

T = TypeVar("T")


def shuffled(values: Iterable[T]) -> tuple[T, ...]:
    """The values in an order without meaning, always the same: of many, Hypothesis chooses the first most often."""
    return tuple(Random(0).sample(listed := list(values), len(listed)))


# JSON.

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
    st.sampled_from(["†state.a", "††", "†", "†state.a || †input.b", "†{state.a} ††", "①"]),
)
json_values = st.recursive(
    scalars, lambda below: st.lists(below, max_size=3) | st.dictionaries(texts, below, max_size=3), max_leaves=8
)

SCALARS: Final[Sequence[Any]] = (
    *[
        None,
        True,
        False,
        0,
        1,
        -1,
        2**53 + 1,
        2**63,
        -(2**63),
        0.5,
        -0.0,
        1e308,
        5e-324,
        1e16,
        "",
        "a",
        "0",
        "\0",
        "\n",
    ],
    *[
        "†state.a",
        "††",
        "†",
        "†state.a || †input.b",
        "†{state.a} ††",
        "①",
        "é",
        "e\u0301",
        "\u2028",
        "\ufeff",
        "\uffff",
        "\U0001f600",
        '"\\',
    ],
)


def _made(random: Random, depth: int) -> Any:
    """A JSON value at most so deep."""
    match random.choice("sslo") if depth else "s":
        case "l":
            return [_made(random, depth - 1) for _ in range(random.randrange(3))]
        case "o":
            return {random.choice(_TEXTS): _made(random, depth - 1) for _ in range(random.randrange(3))}
    return random.choice(SCALARS)


_TEXTS: Final = [text for text in SCALARS if isinstance(text, str)]
JSON_VALUES: Final = shuffled((*SCALARS, *(_made(Random(seed), 4) for seed in range(600))))
made_json = st.sampled_from(JSON_VALUES)
"""Made once, for laws."""

# References.

_CHARACTERS: Final = "ab01 .|&†[]\"\\'/\t\n\0\u00a0\u2028\ufeffé①\U0001f600"
_PLAIN: Final[Sequence[str | int]] = ("a", "user", "b_1", *range(13), 10**17)
_ODD: Final = (
    *("first name", "x.y", "", "0", "00", "01", "9" * 19, *_CHARACTERS),
    *("".join(Random(seed).choices(_CHARACTERS, k=2 + seed % 3)) for seed in range(300)),
)
_segments = st.one_of(st.sampled_from(_PLAIN), st.sampled_from(_ODD))
kinds = st.sampled_from(["state", "input", "data", "error", "a", "é", "ñandú", "k-9", "a_b", "x0", "Ω", "日本"])
references = st.builds(Reference, kinds, st.lists(_segments, max_size=3).map(tuple))
_groups = st.lists(references, min_size=1, max_size=2).map(tuple)
expressions = st.builds(Expression, st.lists(_groups, min_size=1, max_size=2).map(tuple))

# Messages whose folding is interesting: few places, all methods, values that fit and values that do not. They are made
# once and chosen from: laws need thousands of logs, and to make each message anew takes longest.

SMALL_PATHS: Final[Sequence[Path]] = (
    *((), ("a",), ("b",), ("0",), (0,), ("a b",), ("a",)),
    *(("a", "a"), ("a", "b"), ("a", "0"), ("a", 0), ("a", 1), ("b", 0), ("b", "0"), (0, "a"), (0, 0), ("a b", "a")),
    *(("a", "b", "a"), ("a", "b", 0), ("a", 0, "b"), ("b", 0, 0)),
)
SMALL_VALUES: Final[Sequence[Any]] = (
    *[None, 0, 1, "x", "y", [], [0], ["x", [1]], [{"a": 1}, None], {}, {"a": 0}, {"b": "x"}, {"0": "y"}, {"a": [1]}],
    *[{"a": {"b": 1}}, {"b": [0], "a": None}, {"a": {"b": {"a": "x"}, "a": 2}}, {"a b": {"a": 1}}, {"a": [{"b": 3}]}],
)
WIDE: Final = {"a": {f"k{n}": n for n in range(40)}, **{f"k{n}": n for n in range(40)}}
"""More than an instance copies when it writes into it."""
METHODS: Final = ("set", "merge", "assign", "push", "concat")

small_paths = st.sampled_from(SMALL_PATHS)
small_values = st.sampled_from(SMALL_VALUES)
methods = st.sampled_from(METHODS)


def _is_likely(path: Path, method: str, value: Any) -> bool:
    """Whether it fits something that may well be there; of all others, those with one value are enough."""
    is_object = isinstance(value, dict)
    if value == 0 or (path and method in ("set", "merge", "push")):
        return True
    return isinstance(value, (list, str)) if method == "concat" and path else is_object and method != "push"


STEPS: Final = shuffled(
    naive.Step((kind, path), method, value)
    for value in SMALL_VALUES
    for method in METHODS
    for path in SMALL_PATHS
    if _is_likely(path, method, value)
    for kind in ("state", "state", "data")
)
steps = st.sampled_from(STEPS)


def message_of(step: naive.Step, *, is_explicit: bool = True) -> dict[str, Any]:
    """The message of a call that did this; it may leave out that its method is `set`."""
    place, value = Reference(*step.at), step.value
    for segment in reversed(place.path):
        value = {str(segment): value}
    message = {"type": "data", "kind": place.kind, "data": value, "_call": {"_tool": "t", "_outputPath": str(place)}}
    return {**message, "_outputMethod": step.method} if is_explicit or step.method != "set" else message


WRITTEN: Final = tuple(message_of(step, is_explicit=bool(number % 2)) for number, step in enumerate(STEPS))
_OBJECTS: Final = tuple(value for value in SMALL_VALUES if isinstance(value, dict))
GIVEN: Final = (
    *({"type": kind, "data": value} for value in (*_OBJECTS, [0], 0, WIDE) for kind in ("state", "state", "data")),
    *({"type": "state", "data": {"a": [1], "b": {"a": 1}}, "_outputMethod": m} for m in ("set", "merge", "assign")),
    {"type": "state", "data": {"a": {"b": [2]}}, "_outputMethod": "push", "_path": "†state.a.b"},
    *({"type": "error", "data": value} for value in ({"call": 1}, {"error": {"type": "E"}}, "text")),
    {"type": "error", "data": {"call": 2}, "_outputMethod": "merge"},
)
"""Messages that no call wrote: operations at the roots of their kinds, but for one that says its path."""
log_messages = st.sampled_from(shuffled((*WRITTEN, *GIVEN * (len(WRITTEN) // len(GIVEN) // 3))))
"""Every fourth is one that no call wrote."""
logs = st.lists(log_messages, max_size=8)

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
    "pick": _choose,
    "stray": lambda parameters, context: naive.To("†state.undeclared", 1),
    "fail": _fail,
}
CASES: Final = st.sampled_from(
    [{"type": "integer"}, {"type": "string"}, {"type": "array"}, {"type": "object"}, {"const": "x"}, {"const": 1}]
)
"""Schemas by which `choose` chooses."""
MOMENTS: Final = ("1970-01-01T00:00:00Z", "1970-01-01T01:00:05+01:00", "1970-12-01T00:00:00Z")
"""Moments: one that is past where no date is known, and two that come."""
SCHEMAS: dict[str, Any] = {
    "choose": {"type": "object"},
    "wait": {"type": "object"},
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


def _template(before: str, first: str, second: str) -> str:
    """A template of two expressions."""
    return f"{before}†{{{first.replace('†', '')}}} ††{{†{{ {second.replace('†', '')}}}."


@st.composite
def submissions(draw: st.DrawFn, *, has_order: bool = True) -> dict[str, Any]:
    """A submission over `TOOLS`: mostly valid, and mostly one whose order does not matter; some calls have an `_after`
    if it `has_order`.
    """
    instances = draw(st.sampled_from([(), INSTANCES[:1], INSTANCES]))
    given = st.dictionaries(st.sampled_from(["p", "q", "s", "l"]), small_values, max_size=2)
    items = draw(st.sampled_from([[1, "x"], [], [1, 2], [[0]], ["x"]]))
    moment = draw(st.sampled_from([*MOMENTS, "soon", 5]))
    context: list[dict[str, Any]] = [{"type": "input", "p": draw(small_values), "items": items, "at": moment}]
    context += [{"type": "state", "_instance": name, **draw(given)} for name in instances]
    if draw(st.booleans()):
        context.insert(0, {"type": "state", **draw(given)})
    if draw(st.booleans()):
        types = st.sampled_from(["integer", "string", "array", "object"])
        keys = st.sampled_from([f"{letter}{index}" for index in range(4) for letter in "kw"])
        schema = {"properties": {key: {"type": type_} for key, type_ in draw(st.dictionaries(keys, types)).items()}}
        context.append({"type": "state", "schema": schema})
    is_plan = draw(st.booleans())
    lanes = st.sampled_from([None, *instances, *([] if is_plan or not instances else ["*"])])
    count, is_told = draw(st.integers(1, 6)), not draw(_often)
    paths = [draw(_output_path(index)) for index in range(count)]
    calls = []
    for index, (text, _) in enumerate(paths):
        known = [place for number, (_, places) in enumerate(paths) if number < index for place in places]
        later = [place for number, (_, places) in enumerate(paths) if number > index for place in places]
        below = [f"{place}.k" for place in known]
        ordinary = ["†input.p", "†state.p", *known, *known, *known, *below, *later[:1]]
        readable = st.sampled_from([*ordinary, *(["†error", "†error.call._tool"] if is_told else [])])
        expression = st.one_of(
            readable,
            readable,
            st.builds("{} || {}".format, readable, readable),
            st.builds("{} && {} || {}".format, readable, readable, readable),
        )
        template = st.builds(_template, st.sampled_from(["", "a ", "†††† "]), expression, readable)
        inside = st.builds(lambda *parts: {"in": [*parts, "††x"]}, st.one_of(expression, template))
        parameter = st.one_of(expression, expression, small_values, inside, template)
        call: dict[str, Any] = {
            "_tool": draw(st.sampled_from(["give", "wrap", "list", "number", *TOOLS, "choose", "wait"]))
        }
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
        if has_order and (known or later) and not draw(_often):
            call["_after"] = [draw(st.sampled_from([*known, *known, *later[:1]]))]
        if call["_tool"] == "pick":
            call["where"] = "†" + draw(st.sampled_from(paths[index][1]))
        if not draw(_often):
            call["value"] = draw(st.sampled_from(["†input.items", "†input.items", call.get("value", 0)]))
            named = [key for key in ("value", "other") if naive.is_expression(call.get(key))]
            call |= {"_each": draw(st.sampled_from([named[:1], named]))} if named else {}
        if call["_tool"] == "choose":
            call = {key: item for key, item in call.items() if key not in ("other", "_each")}
            cases = draw(st.lists(CASES, min_size=len(naive.places(text)) - 1, max_size=len(naive.places(text))))
            call |= {"value": call.get("value", 0), "cases": cases, "_outputPath": text}
        if call["_tool"] == "wait":
            call = {key: item for key, item in call.items() if key not in ("value", "other", "_each")}
            moments = st.sampled_from(["†input.at", "†input.at", *MOMENTS[:2], draw(readable)])
            seconds = st.sampled_from([0, 5, 0.5, draw(readable)])
            when = draw(st.one_of(moments.map(lambda at: {"until": at}), seconds.map(lambda at: {"seconds": at})))
            call |= {**when, "_outputPath": text}
        lane = draw(lanes)
        if lane is not None and not (is_plan and draw(_often)):
            call["_instance"] = lane
        calls.append(call)
    if is_plan:
        return {"context": [*context, {"type": "plan", "calls": calls}], "tools": SCHEMAS}
    return {"context": context, "solution": {"calls": calls}, "tools": SCHEMAS}
