"""Laws of folding (SPEC R3.1-R3.5): however a log is read, it gives what applying every operation in order gives."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import msgpack
from hypothesis import assume, given
from hypothesis import strategies as st

from acts_celery.protocol import Conflict, Reference
from acts_celery.protocol.paths import MISSING, lookup, nest, unnest
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.operations import Operation, read_operation

from . import naive
from .laws import PLACES, folded, law, read, shown
from .strategies import json_values, log_messages, logs, message_of, references, small_paths, small_values, steps

# R3.3: a resolver that reads backward, as the seeds describe it


def resolved_backward(steps: Sequence[naive.Step], at: naive.Place) -> Any:
    """From the newest operation to the oldest that settles the place: a set there or above. Then forward again.

    What an index means hangs on the whole list, so everything below a list that one reaches into belongs together.
    """
    whole = _without_index(at)
    while True:
        relevant: list[naive.Step] = []
        for step in reversed(steps):
            if naive.overlap(_without_index(step.at), whole):
                relevant.insert(0, step)
                if step.method == "set" and len(step.at[1]) <= len(whole[1]) and step.at == _without_index(step.at):
                    break
        wider = min([whole, *(_without_index(step.at) for step in relevant if _without_index(step.at) != step.at)],
                    key=lambda place: len(place[1]))  # fmt: skip
        if wider == whole:
            return naive.found(naive.folded(relevant), at)
        whole = wider


def _without_index(at: naive.Place) -> naive.Place:
    """The place, or the list above it."""
    kind, path = at
    return kind, tuple(takewhile(lambda segment: isinstance(segment, str), path))


@law
@given(st.lists(steps, max_size=8), small_paths)
def test_reading_backward_until_the_path_is_settled_gives_what_the_fold_gives(
    steps: list[naive.Step], path: tuple[str | int, ...]
) -> None:
    fitting: list[naive.Step] = []
    for step in steps:
        try:
            naive.folded([*fitting, step])
        except naive.Misfit:
            continue
        fitting.append(step)
    found = folded([message_of(step) for step in fitting]).value(Reference("state", path))
    expected = resolved_backward(fitting, ("state", path))
    assert (found is MISSING) is (expected is naive.NOTHING)
    assert found is MISSING or found == expected


def test_the_backward_resolver_stops_where_a_set_settles_the_path() -> None:
    steps = [naive.Step(("state", ("a",)), "push", n) for n in range(3)]
    steps.insert(1, naive.Step(("state", ("a",)), "set", ["new"]))
    assert resolved_backward(steps, ("state", ("a",))) == ["new", 1, 2]


# R3.3: prefixes, checkpoints and chunks


@law
@given(logs)
def test_folding_step_by_step_is_folding_all_at_once_at_every_prefix(messages: list[dict[str, Any]]) -> None:
    before = json.dumps(messages)
    fold = Fold()
    for position, message in enumerate(messages):
        fold.append(message, f"message {position}")
        assert shown(fold) == shown(folded(messages[: position + 1]))
    assert json.dumps(messages) == before, "no message is changed"


@law
@given(logs, st.integers(0, 8))
def test_going_on_from_any_checkpoint_gives_what_the_whole_log_gives(
    messages: list[dict[str, Any]], position: int
) -> None:
    while (before := folded(messages[:position])).conflicts():
        position -= 1
    checkpoint = [{"type": "data", "kind": kind, "data": value} for kind, value in before.snapshot().items()]
    kept = msgpack.unpackb(msgpack.packb(checkpoint))
    whole, resumed = folded(messages), Fold()
    for number, message in enumerate([*kept, *messages[position:]]):
        resumed.append(message, f"message {number - len(kept) + position}")
    assert shown(resumed) == shown(whole)


# R11.8: what calls have written is withdrawn


_by = st.one_of(st.none(), st.integers(0, 2))
_arrivals = st.lists(st.tuples(log_messages, st.booleans(), _by, st.booleans()), max_size=8)


@law
@given(_arrivals, st.sets(st.integers(0, 2)), st.booleans(), _arrivals)
def test_r11_8_what_is_withdrawn_was_never_there_for_what_is_read_later(
    before: list[Any], calls: set[int], of_all: bool, after: list[Any]
) -> None:
    shared, shared_without = Fold(), Fold()
    mine, mine_without = Fold(shared), Fold(shared_without)

    def arrive(arrivals: list[Any], withdrawn: set[int]) -> None:
        for number, (message, is_global, by, is_read) in enumerate(arrivals):
            (shared if is_global else mine).append(message, f"message {number}", by)
            if by not in withdrawn or (is_global and not of_all):
                (shared_without if is_global else mine_without).append(message, f"message {number}", by)
            if is_read:
                shown(mine)

    arrive(before, calls)
    mine.withdraw(calls)
    if of_all:
        shared.withdraw(calls)
    arrive(after, set())
    assert shown(mine) == shown(mine_without)
    assert shown(shared) == shown(shared_without)


@law
@given(st.lists(st.tuples(log_messages, st.sampled_from(["global", "own", "own, then read"])), max_size=8))
def test_folding_does_not_depend_on_how_the_messages_are_chunked(arrivals: list[tuple[dict[str, Any], str]]) -> None:
    shared, at_once = Fold(), Fold()
    mine, mine_at_once = Fold(shared), Fold(at_once)
    for number, (message, way) in enumerate(arrivals):
        (shared if way == "global" else mine).append(message, f"message {number}")
        (at_once if way == "global" else mine_at_once).append(message, f"message {number}")
        if way == "own, then read":
            shown(mine)
            shown(shared)
    assert shown(mine) == shown(mine_at_once)
    assert shown(shared) == shown(at_once)


@law
@given(logs)
def test_folding_is_applying_each_operation_to_a_copy(messages: list[dict[str, Any]]) -> None:
    steps: list[naive.Step] = []
    fold = Fold()
    for position, message in enumerate(messages):
        operation = read_operation(message, "message")
        assert operation is not None
        step = naive.Step((operation.place.kind, operation.place.path), operation.method, operation.value)
        assert naive.step_of(message) == step
        try:
            expected = naive.folded([*steps, step])
        except naive.Misfit:
            assert _conflicts(fold, operation)
            continue
        assert not _conflicts(fold, operation)
        steps.append(step)
        fold.append(message, f"message {position}")
        assert fold.snapshot() == expected


def _conflicts(fold: Fold, operation: Operation) -> bool:
    try:
        fold.verify(operation)
    except Conflict:
        return True
    return False


# R3.4


@given(logs, log_messages)
def test_a_conflict_touches_nothing_beside_its_place(messages: list[dict[str, Any]], last: dict[str, Any]) -> None:
    operation = read_operation(last, "message")
    assert operation is not None
    before, after = folded(messages), folded([*messages, last])
    assume(_conflicts(before, operation))
    assert after.snapshot() == before.snapshot()
    for place in PLACES:
        if not place.overlaps(operation.place):
            assert read(after, place) == read(before, place)


@given(logs, st.integers(0, 8))
def test_what_was_read_does_not_change_when_the_log_goes_on(messages: list[dict[str, Any]], position: int) -> None:
    fold = folded(messages[:position])
    before = fold.snapshot()
    text = json.dumps(before)
    for message in messages[position:]:
        fold.append(message, "message")
        fold.snapshot()
    assert json.dumps(before) == text


# R3.5: paths


@given(json_values, references)
def test_a_value_nested_at_a_path_is_found_there(value: Any, reference: Reference) -> None:
    nested = nest(value, reference.path)
    assert lookup(nested, reference.path) == value
    assert unnest(nested, reference.path) == value


@given(small_values, small_paths)
def test_looking_up_is_going_step_by_step(value: Any, path: tuple[str | int, ...]) -> None:
    assert (lookup(value, path) is MISSING) is (naive.found({"k": value}, ("k", path)) is naive.NOTHING)
