"""Laws of order (SPEC R6.4): whatever order the readiness rule allows, the end is the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Plan, Rejected, check_submission

from . import naive
from .building import FUNCTIONS, call, checked, submission, without_errors
from .driver import Driver, Function, Result
from .laws import law


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


def every_order(plan: Plan, functions: Mapping[str, Function], *, most: int) -> Iterator[Result]:
    """Run a plan in every order that the readiness rule allows, one after the other."""
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
    plan = checked(*[call(to=f"†state.k{index}") for index in range(4)])
    results = every_order(plan, FUNCTIONS, most=100)
    orders = [tuple(entry.outcome.index for entry in result.log) for result in results]
    assert len(orders) == len(set(orders)) == 24


_PLACES = ("†state.k{}", "†state.k{} || †data.k{}", "†state.k{}.x || †input.i")
_OUTPUTS = ("†state.k{}", "†state.k{} || †data.k{}", "†data.k{} && †state.k{}.x")
_MOST = 5
_reads = st.sampled_from([(number, place) for number in range(_MOST) for place in (_PLACES[0], *_PLACES)])
_shapes = st.lists(
    st.tuples(
        st.sampled_from(["give", "give", "echo", "fail", "choose", "wait"]),
        *(_reads, _reads, st.sampled_from(_OUTPUTS), st.sampled_from([None, None, *range(_MOST)])),
    ),
    min_size=2,
    max_size=_MOST,
)


Shape = tuple[str, tuple[int, str], tuple[int, str], str, int | None]


def _graph(shape: Sequence[Shape]) -> Plan | None:
    """Calls that read two places each, of others or of those given, some of them after another one; every one writes
    places of its own.
    """

    def read(index: int, place: tuple[int, str]) -> str:
        number, text = place
        return text.replace("{}", str(number)) if number < len(shape) and number != index else "†input.i"

    calls = []
    for index, (tool, one, other, output, behind) in enumerate(shape):
        parameters: dict[str, Any] = {"value": read(index, one), "other": {"in": [read(index, other)]}}
        if tool == "choose":
            parameters = {"value": parameters["value"], "cases": [{"type": "integer"}] * output.count("||")}
        elif tool == "wait":
            parameters = {"seconds": index if one[0] >= len(shape) else parameters["value"]}
        if behind is not None and behind < len(shape) and behind != index:
            parameters["_after"] = [f"†state.k{behind}"]
        calls.append(call(tool, to=output.replace("{}", str(index)), **parameters))
    try:
        return checked(*calls, context=[{"type": "input", "i": 0}])
    except Rejected:
        return None


graphs = _shapes.map(_graph).filter(lambda plan: plan is not None)


@law
@given(graphs)
def test_every_valid_graph_gives_the_same_in_every_order_where_no_independent_calls_write_one_path(
    plan: Plan,
) -> None:
    first, *others = every_order(plan, FUNCTIONS, most=24)
    for other in others:
        assert other.statuses == first.statuses
        assert without_errors(other.data[None]) == without_errors(first.data[None])


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=7), st.integers(0, 2**32))
def test_every_allowed_order_gives_the_same_where_no_independent_calls_write_overlapping_paths(
    shape: list[tuple[int, bool]], seed: int
) -> None:
    calls = []
    for index, (read, is_branch) in enumerate(shape):
        value = (
            f"†state.k{read}.no || †state.k{read} || †input.i" if read < len(shape) and read != index else "†input.i"
        )
        to = f"†state.k{index} || †data.k{index}" if is_branch else f"†state.k{index}"
        calls.append(call("fail" if read == 5 else "give", to=to, value=value))
    submitted = submission(*calls, context=[{"type": "input", "i": 0}])
    if naive.faults(submitted):
        return
    plan = check_submission(submitted)
    orderly = Driver(plan, FUNCTIONS).run()
    shuffled = Driver(plan, FUNCTIONS, random=Random(seed)).run()
    assert shuffled.statuses == orderly.statuses
    assert without_errors(shuffled.data[None]) == without_errors(orderly.data[None])
