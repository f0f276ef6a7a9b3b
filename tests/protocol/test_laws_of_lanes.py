"""Laws of lanes: instances know nothing of each other, scopes are walls, data stays data, and order does not matter."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import Conflict, Context, Output, Rejected, Unresolved, check_submission
from protocol.references import Reference
from protocol.scopes import scoped, scoped_messages

from . import naive
from .building import FUNCTIONS, call, run, submission
from .driver import Driver, Result
from .strategies import json_values, log_messages, schemas, small_paths, small_values
from .test_laws import shown

# R3.6, R10.3: isolation

_described = st.builds(
    lambda payload, schema, text: {"type": "state", "data": payload, "schema": schema, "description": text},
    small_values,
    schemas(),
    st.sampled_from(["one", "other"]),
)
_anything = st.one_of(log_messages, log_messages, _described)
_expressions = ("†state", "†state.a", "†data.b || †state.a.b", "†state.a && †data", "†state.0 || †state.a.0 || †data.a")


def _visible(context: Context, instance: str | None) -> Any:
    """All that can be learnt of a context as a reader in an instance."""
    fold = context.fold(instance)
    kinds = [Reference("state"), Reference("data")]
    return (
        _told(shown, fold),
        fold.kinds(),
        [repr((fold.schema(kind.kind), fold.description(kind.kind))) for kind in kinds],
        [_told(lambda text: context.resolve(text, instance=instance), text) for text in _expressions],
        [_told(lambda kind: [scoped(fold, [kind]), scoped_messages(fold, [kind])], kind) for kind in kinds],
    )


def _told(ask: Any, about: Any) -> Any:
    try:
        return ask(about)
    except (Conflict, Unresolved) as answer:
        return type(answer).__name__


@settings(max_examples=500)
@given(st.lists(st.tuples(st.sampled_from([None, "①", "②"]), _anything), max_size=8))
def test_no_message_of_an_instance_changes_anything_visible_in_another(
    arrivals: list[tuple[str | None, dict[str, Any]]],
) -> None:
    messages = [message if name is None else {**message, "_instance": name} for name, message in arrivals]
    growing = Context()
    for message in messages:
        others = [name for name in (None, "①", "②") if message.get("_instance") not in (None, name)]
        before = [repr(_visible(growing, name)) for name in others]
        growing.append(message)
        assert [repr(_visible(growing, name)) for name in others] == before


# R8: scopes

_SCOPES = ["state", "data", "†state.a", "†state.b", "†state.a.a", "†data.a.0", "†data.b", "†state.0"]


@settings(max_examples=1_000)
@given(
    st.lists(st.tuples(st.sampled_from([None, "①", "②"]), st.sampled_from(["state", "data"]), small_paths), max_size=8),
    st.lists(st.sampled_from(_SCOPES), max_size=3),
    st.sampled_from([None, "①"]),
)
def test_scoped_output_never_holds_a_value_from_outside_the_scopes(
    written: list[tuple[str | None, str, tuple[str | int, ...]]], scopes: list[str], reader: str | None
) -> None:
    """Every value is a mark of its own, so that one knows it again wherever it turns up."""
    context = Context()
    for number, (name, kind, path) in enumerate(written):
        value: Any = {"a": f"mark {number} a", "b": [f"mark {number} b"]}
        for segment in reversed(path):
            value = {str(segment): value}
        message = {"type": "data", "kind": kind, "data": value}
        context.append(message if name is None else {**message, "_instance": name})
    fold = context.fold(reader)
    places = [naive.place(scope if scope.startswith("†") else f"†{scope}") for scope in scopes]
    allowed = {mark for place in places for mark in _marks(naive.found(context.data(reader), place))}
    references = [Reference(kind, path) for kind, path in places]
    assert set(_marks(context.scoped(scopes, instance=reader))) == allowed
    assert set(_marks(scoped_messages(fold, references))) == allowed


def _marks(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("mark "):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _marks(item)
    elif isinstance(value, list):
        for item in value:
            yield from _marks(item)


# R2.4: data is data


def _like_references(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    text = st.sampled_from(["†state.secret", "††state.secret", "†", "†state.secret || †input", "†state.", "† "])
    return st.one_of(text, values, st.lists(text, max_size=2), st.dictionaries(text, text, max_size=2))


@settings(max_examples=500)
@given(_like_references(json_values))
def test_data_that_looks_like_a_reference_is_never_resolved_wherever_it_comes_from(value: Any) -> None:
    seen: list[Any] = []

    def give_back(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        seen.append((dict(parameters), dict(context)))
        return Output("†state.made", value)

    result = run(
        call("make", to="†state.made"),
        {"_tool": "think", "_output": value, "_outputPath": "†state.thought"},
        call(to="†state.all", value=["†state.made", {"x": "†state.thought"}, "†input.v"]),
        call(to="†state.pushed", value="†state.all", _outputMethod="push"),
        call("look", to="†state.looked", value="†state.pushed.0.1.x", _scopes=["input", "†state.thought"]),
        context=[{"type": "input", "input": {"v": value}}, {"type": "state", "secret": "SECRET"}],
        functions={"make": give_back, "look": lambda parameters, context: [dict(parameters), dict(context)]},
        activities={"make": {}, "give": {}, "look": {}},
    )
    state = result.data[None]["state"]
    everything = [value, {"x": value}, value]
    assert (state["made"], state["thought"], state["all"], state["pushed"]) == (value, value, everything, [everything])
    assert state["looked"] == [{"value": value}, {"input": {"v": value}, "state": {"thought": value}}]
    assert "SECRET" not in json.dumps([m["data"] for m in result.messages]) + json.dumps(seen)


# R6.4: every order


class Script(Random):
    """Chances that are given: which of the moves is made; and no mischief."""

    def __init__(self, choices: Sequence[int]) -> None:
        super().__init__(0)
        self.choices_left = list(choices)
        self.options: list[int] = []

    def random(self) -> float:
        return 1.0

    def choice(self, seq: Any) -> Any:
        if not callable(seq[0]):
            return seq[0]
        self.options.append(len(seq))
        return seq[self.choices_left.pop(0) if self.choices_left else 0]


def every_order(value: Mapping[str, Any], functions: Mapping[str, Any], *, most: int) -> Iterator[Result]:
    """Run a submission in every order that the readiness rule allows, one after the other."""
    plan = check_submission(value)
    choices: list[int] | None = []
    while choices is not None and most:
        most -= 1
        script = Script(choices)
        yield Driver(plan, functions, random=script).run()
        choices = _following([*choices, *[0] * (len(script.options) - len(choices))], script.options)


def _following(choices: list[int], options: list[int]) -> list[int] | None:
    """The next sequence of choices, as an odometer counts."""
    while choices:
        if choices[-1] + 1 < options[len(choices) - 1]:
            return [*choices[:-1], choices[-1] + 1]
        choices = choices[:-1]
    return None


def test_every_order_is_gone_through() -> None:
    calls = [call(to=f"†state.k{index}") for index in range(4)]
    orders = [tuple(entry.outcome.index for entry in result.log) for result in every_order(
        submission(*calls), FUNCTIONS, most=100)]  # fmt: skip
    assert len(orders) == len(set(orders)) == 24


_reads = st.tuples(
    st.integers(0, 4),
    st.sampled_from(["†state.k{}", "†state.k{}", "†state.k{} || †data.k{}", "†state.k{}.x || †input.i"]),
)
_tools = st.sampled_from(["give", "give", "echo", "fail"])


@settings(max_examples=1_000)
@given(st.lists(st.tuples(_tools, _reads, _reads, st.integers(0, 2)), min_size=2, max_size=5))
def test_every_valid_graph_gives_the_same_in_every_order_where_no_independent_calls_write_one_path(
    shape: list[tuple[str, tuple[int, str], tuple[int, str], int]],
) -> None:
    def read(index: int, place: tuple[int, str]) -> str:
        """What is not there is replaced by what is given."""
        number, text = place
        return text.replace("{}", str(number)) if number < len(shape) and number != index else "†input.i"

    outputs = ("†state.k{}", "†state.k{} || †data.k{}", "†data.k{} && †state.k{}.x")
    calls = [
        call(tool, to=outputs[to].replace("{}", str(index)), value=read(index, one), other={"in": [read(index, other)]})
        for index, (tool, one, other, to) in enumerate(shape)
    ]
    submitted = submission(*calls, context=[{"type": "input", "i": 0}])
    try:
        results = list(every_order(submitted, FUNCTIONS, most=120))
    except Rejected:
        return
    for result in results[1:]:
        assert result.statuses == results[0].statuses
        assert _without_errors(result) == _without_errors(results[0])


def _without_errors(result: Result) -> dict[str, Any]:
    return {kind: value for kind, value in result.data[None].items() if kind != "error"}
