"""What the laws are tried on: their strategies reach every case that is interesting, and not by accident."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Conflict, Expression, Plan
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.kinds import Overlay
from acts_celery.protocol.state.operations import Operation, read_operation

from .building import FUNCTIONS
from .strategies import METHODS, expressions, log_messages, logs
from .test_law_orders import every_order, graphs

EXAMPLES = 400


def shares(strategy: st.SearchStrategy[Any], features: Any) -> Counter[str]:
    """In how many of a hundred examples each feature occurs."""
    found: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES, phases=[Phase.generate], derandomize=True, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def collect(example: Any) -> None:
        found.update(set(features(example)))

    collect()
    return Counter({feature: 100 * count // EXAMPLES for feature, count in found.items()})


def rare(found: Counter[str], expected: Iterable[str], least: int) -> dict[str, int]:
    """The features that occur in fewer than so many of a hundred examples."""
    return {feature: found[feature] for feature in expected if found[feature] < least}


def of_a_log(messages: list[dict[str, Any]]) -> Iterator[str]:
    """What happens in a log."""
    fold = Fold()
    for message in messages:
        operation = read_operation(message, "message")
        assert operation is not None
        standing = len(fold.conflicts())
        yield from _of_an_operation(operation, fold)
        fold.append(message, "message")
        now = len(fold.conflicts())
        yield "a conflict" if now > standing else "a conflict settled" if now < standing else "no news of conflicts"


def _of_an_operation(operation: Operation, fold: Fold) -> Iterator[str]:
    path, method = operation.place.path, str(operation.method)
    try:
        there = fold.value(operation.place)
        fold.verify(operation)
    except Conflict:
        yield "into a conflict" if fold.conflicts() else "what does not fit"
        return
    yield f"{method} on nothing" if there is MISSING else f"{method} on something"
    yield f"a path of {len(path)}"
    if any(isinstance(segment, str) and " " in segment for segment in path):
        yield "a quoted key"
    if path and path[-1] == "0" and isinstance(path[-1], str):
        yield "digits as a key"
    if path and isinstance(path[-1], int):
        yield "an index" if there is not MISSING else "an index behind the last"


def test_logs_reach_every_method_kind_of_path_and_conflict() -> None:
    found = shares(logs, of_a_log)
    methods = [f"{method} on {what}" for method in METHODS for what in ("nothing", "something")]
    paths = ["a path of 0", "a path of 1", "a path of 2", "a path of 3", "a quoted key", "digits as a key"]
    lists = ["an index", "an index behind the last"]
    conflicts = ["a conflict", "a conflict settled", "into a conflict", "what does not fit"]
    assert not rare(found, [*methods, *paths, *lists, *conflicts], 3), found


def of_two_folds(arrivals: list[tuple[dict[str, Any], bool]]) -> Iterator[str]:
    """What happens to an instance while global messages come."""
    shared = Fold()
    mine = Fold(shared)
    for message, is_global in arrivals:
        before = mine.snapshot()
        (shared if is_global else mine).append(message, "message")
        yield "a global message shows" if is_global and mine.snapshot() != before else "nothing shows"
        if len(mine.conflicts()) > len(shared.conflicts()):
            yield "a conflict of its own"
        kind = mine._kind("state")
        if kind is not None and isinstance(kind.root(), Overlay):
            yield "an overlay"


@pytest.mark.nightly
def test_logs_of_an_instance_reach_overlays_and_conflicts_with_global_messages() -> None:
    found = shares(st.lists(st.tuples(log_messages, st.booleans()), max_size=8), of_two_folds)
    assert not rare(found, ["a global message shows", "a conflict of its own"], 10), found
    assert not rare(found, ["an overlay"], 1), found  # `test_law_holdings` makes objects overlaid however small


def of_an_expression(expression: Expression) -> Iterator[str]:
    """What there is to print."""
    yield f"alternatives: {len(expression.alternatives)}"
    for reference in expression.references:
        yield f"a path of {len(reference.path)}"
        for segment in reference.path:
            yield "an index" if isinstance(segment, int) else "a bare key" if segment == "user" else "a quoted key"


@pytest.mark.nightly
def test_expressions_reach_quoted_keys_indices_and_alternatives() -> None:
    found = shares(expressions, of_an_expression)
    expected = ["alternatives: 2", "a path of 0", "a path of 3", "an index", "a bare key", "a quoted key"]
    assert not rare(found, expected, 2), found


def of_a_graph(plan: Plan) -> Iterator[str]:
    """What can happen in a graph."""
    results = list(every_order(plan, FUNCTIONS, most=10))
    yield "one order" if len(results) == 1 else "several orders"
    yield from (str(status) for status in results[0].statuses[None].values())
    writes = [path for message in results[0].messages if (path := message.get("_path")) is not None]
    yield from ("an alternative" for path in writes if "data" in path)


@pytest.mark.nightly
def test_graphs_reach_branches_failures_and_several_orders() -> None:
    found = shares(graphs, of_a_graph)
    assert not rare(found, ["one order", "several orders", "done", "failed", "skipped", "an alternative"], 10), found
