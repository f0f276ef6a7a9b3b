"""Folding and planning keep what they have: counted in steps, bytes and constructions, without a clock (SPEC R3)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

from acts_celery.protocol import Context, Reference, check_submission, references
from acts_celery.protocol.schemas import algebra as calls_of_schemas
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.operations import Method, Operation

from .building import call, submission
from .test_scale import steps


def operation(path: str, value: Any, method: Method = Method.SET) -> Operation:
    (place,) = references.parse(path).references
    return Operation(place, method, value, "a message")


def bytes_kept(function: Callable[[], object]) -> int:
    """How much is allocated and kept by what a function returns."""
    tracemalloc.start()
    try:
        kept = function()
        size = tracemalloc.get_traced_memory()[0]
        del kept
        return size
    finally:
        tracemalloc.stop()


def test_instances_hold_no_copy_of_a_large_global_value() -> None:
    def reading(keys: int) -> Callable[[], Context]:
        large = {f"k{n}": n for n in range(keys)}

        def read() -> Context:
            context = Context([{"type": "input", "all": large}])
            for n in range(200):
                context.append({"type": "input", "_instance": f"i{n}", "all": {"name": n}})
                assert context.resolve("†input.all.name", instance=f"i{n}") == n
                assert context.resolve("†input.all.k7", instance=f"i{n}") == 7
            return context

        return read

    assert bytes_kept(reading(10_000)) < 3 * bytes_kept(reading(100))


def test_a_value_laid_over_a_large_one_is_read_like_any_other() -> None:
    large = {f"k{n}": n for n in range(100)}
    context = Context(
        [{"type": "input", "all": large}, {"type": "input", "_instance": "①", "all": {"k7": "mine", "more": [1]}}]
    )
    mine = {**large, "k7": "mine", "more": [1]}
    assert context.resolve("†input.all", instance="①") == mine
    assert context.scoped(["input"], instance="①") == {"input": {"all": mine}}
    seen = context.fold("①").value(Reference("input", ("all",)))
    assert seen == mine
    assert mine == seen
    assert seen != large
    assert len(seen) == 101
    assert list(seen) == list(mine)
    assert context.data() == {"input": {"all": large}}


def test_an_instance_hears_of_global_values_of_the_same_kind_without_starting_anew() -> None:
    def taking_turns(number: int) -> Callable[[], None]:
        shared = [operation(f"†state.g.k{n}", n) for n in range(number)]
        own = [operation(f"†state.o.k{n}", n) for n in range(number)]

        def take_turns() -> None:
            base = Fold()
            fold = Fold(base)
            for n in range(number):
                fold.apply(own[n])
                base.apply(shared[n])
                assert fold.value(shared[n].place) == fold.value(own[n].place) == n

        return take_turns

    few, many = steps(taking_turns(100)), steps(taking_turns(400))
    assert many < 5 * few


def test_what_comes_to_a_global_value_later_still_lies_below_an_instances_own() -> None:
    base = Fold()
    fold = Fold(base)
    base.apply(operation("†state", {"list": [1], "text": "a", "name": "global"}, Method.MERGE))
    fold.apply(operation("†state.name", "mine"))
    fold.apply(operation("†state.text", "z", Method.CONCAT))
    assert fold.snapshot() == {"state": {"list": [1], "text": "az", "name": "mine"}}
    base.apply(operation("†state.list", 2, Method.PUSH))
    assert fold.snapshot() == {"state": {"list": [1, 2], "text": "az", "name": "mine"}}
    base.apply(operation("†state.text", "b", Method.CONCAT))
    base.apply(operation("†state.name", "global again"))
    assert fold.snapshot() == {"state": {"list": [1, 2], "text": "abz", "name": "mine"}}
    assert base.snapshot() == {"state": {"list": [1, 2], "text": "ab", "name": "global again"}}


def test_schemas_are_compiled_and_expressions_parsed_once_for_all_calls() -> None:
    calls = [call(to=f"†state.place{n % 20}", value="†input.once") for n in range(2_000)]
    value = submission(*calls, context=[{"type": "input", "once": 1}], tools={"give": {"required": ["value"]}})
    kept = (calls_of_schemas._written, references.parse, references.parse_output_path)
    before = [cache.cache_info().misses for cache in kept]
    check_submission(value)
    check_submission(value)
    built, parsed, parsed_outputs = (cache.cache_info().misses - then for cache, then in zip(kept, before, strict=True))
    assert built <= 1
    assert parsed <= 21, "what is read, and the places written, which are parsed like any that could be read"
    assert parsed_outputs <= 20
