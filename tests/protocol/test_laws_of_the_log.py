"""Laws of the log: however its messages are read, kept and carried about, they say the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgpack
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from protocol import Context, Reference, parse
from protocol.messages import read_data
from protocol.operations import read_operation
from protocol.paths import MISSING
from protocol.references import Expression
from protocol.resolution import Fold
from protocol.submission import decode

from . import naive
from .strategies import expressions, json_values, log_messages, methods, small_paths, small_values, texts
from .test_laws import folded, shown

# R3.3: a resolver that reads backward, as the seeds describe it

keyed_steps = st.builds(
    naive.Step,
    st.tuples(st.just("state"), st.lists(st.sampled_from("abc"), max_size=2).map(tuple)),
    st.one_of(st.just("set"), methods),
    small_values,
)


def resolved_backward(steps: Sequence[naive.Step], at: naive.Place) -> Any:
    """From the newest operation to the oldest that settles the place: a set there or above. Then forward again."""
    relevant: list[naive.Step] = []
    for step in reversed(steps):
        if naive.overlap(step.at, at):
            relevant.insert(0, step)
            if step.method == "set" and len(step.at[1]) <= len(at[1]):
                break
    return naive.found(naive.folded(relevant), at)


def as_message(step: naive.Step) -> dict[str, Any]:
    """The message of a call that did this."""
    place, value = Reference(*step.at), step.value
    for segment in reversed(place.path):
        value = {str(segment): value}
    call = {"_tool": "t", "_outputPath": str(place)}
    return {"type": "data", "kind": place.kind, "data": value, "_outputMethod": step.method, "_call": call}


@settings(max_examples=2_000)
@given(st.lists(keyed_steps, max_size=8), small_paths)
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
    found = folded([as_message(step) for step in fitting]).value(Reference("state", path))
    expected = resolved_backward(fitting, ("state", path))
    assert (found is MISSING) is (expected is naive.NOTHING)
    assert found is MISSING or found == expected


# R3.3: checkpoints and chunks


@settings(max_examples=1_000)
@given(st.lists(log_messages, max_size=8), st.integers(0, 8))
def test_going_on_from_any_checkpoint_gives_what_the_whole_log_gives(
    messages: list[dict[str, Any]], position: int
) -> None:
    before = folded(messages[:position])
    assume(not before.conflicts())
    checkpoint = [{"type": "data", "kind": kind, "data": value} for kind, value in before.snapshot().items()]
    kept = msgpack.unpackb(msgpack.packb(checkpoint))
    whole, resumed = folded(messages), Fold()
    for number, message in enumerate([*kept, *messages[position:]]):
        resumed.append(message, f"message {number - len(kept) + position}")
    assert shown(resumed) == shown(whole)


@settings(max_examples=1_000)
@given(st.lists(st.tuples(log_messages, st.booleans(), st.booleans()), max_size=10))
def test_folding_does_not_depend_on_how_the_messages_are_chunked(
    arrivals: list[tuple[dict[str, Any], bool, bool]],
) -> None:
    shared, at_once = Fold(), Fold()
    mine, mine_at_once = Fold(shared), Fold(at_once)
    for number, (message, is_global, ends_chunk) in enumerate(arrivals):
        (shared if is_global else mine).append(message, f"message {number}")
        (at_once if is_global else mine_at_once).append(message, f"message {number}")
        if ends_chunk:
            shown(mine)
            shown(shared)
    assert shown(mine) == shown(mine_at_once)
    assert shown(shared) == shown(at_once)


@given(st.lists(log_messages, max_size=8), st.integers(0, 8))
def test_what_was_read_does_not_change_when_the_log_goes_on(messages: list[dict[str, Any]], position: int) -> None:
    fold = folded(messages[:position])
    read = fold.snapshot()
    before = json.dumps(read)
    for message in messages[position:]:
        fold.append(message, "message")
        fold.snapshot()
    assert json.dumps(read) == before


# R1.1: round trips

_names = st.one_of(texts, st.sampled_from(["data", "state", "input", "schema", "kind", "_call", "_date", "_more"]))
_free = st.dictionaries(_names.filter(lambda name: name not in ("type", "schema", "kind", "_call")), json_values)
any_messages: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(
        lambda rest, type_: {**rest, "type": type_},
        _free,
        st.sampled_from(["text", "system", "data", "input", "state", "error", "meta", "advisor", "never heard of"]),
    ),
    st.builds(lambda rest, content: {**rest, "role": "user", "content": content}, _free, json_values),
    log_messages,
).map(lambda message: {key: value for key, value in message.items() if key != "_instance"})


@settings(max_examples=1_000)
@given(st.lists(any_messages, max_size=3), st.sampled_from([None, "①"]))
def test_no_field_of_a_message_is_lost_on_any_way(messages: list[dict[str, Any]], instance: str | None) -> None:
    given_in = messages if instance is None else [{**message, "_instance": instance} for message in messages]
    for carried in (json.loads(json.dumps(given_in)), msgpack.unpackb(msgpack.packb(given_in))):
        context = Context(carried)
        assert list(context.messages) == given_in
        assert json.dumps(list(context.messages)) == json.dumps(given_in), "in the same order, of the same types"
        assert context.data(instance) == Context(given_in).data(instance)


@given(st.lists(any_messages, max_size=3))
def test_a_submission_means_the_same_in_json_and_in_msgpack(messages: list[dict[str, Any]]) -> None:
    value = {"context": messages}
    packed = msgpack.packb(value)
    assert decode(json.dumps(value).encode()) == decode(json.dumps(value, ensure_ascii=False).encode()) == value
    assert decode(packed) == value


@given(any_messages)
def test_provenance_changes_nothing_of_what_a_message_carries(message: dict[str, Any]) -> None:
    marked = {**message, "_date": "2026-11-21T00:00:00Z", "_instance": "①"}
    bare = {key: value for key, value in message.items() if key not in ("_date", "_instance")}
    one, other = read_data(marked), read_data(bare)
    assert (one is None) is (other is None)
    if one is not None and other is not None:
        assert (one.kind, one.payload) == (other.kind, other.payload)
    operations = read_operation(marked, "m"), read_operation(bare, "m")
    assert operations[0] == operations[1]


# R2.1: expressions


@settings(max_examples=1_000)
@given(expressions, st.lists(st.sampled_from(["", " ", "\t", "\n ", "\u00a0"]), min_size=1, max_size=6))
def test_white_space_around_operators_changes_nothing(expression: Expression, spaces: list[str]) -> None:
    taken = iter(spaces * 20)

    def joined(operator: str, parts: list[str]) -> str:
        text = parts[0]
        for part in parts[1:]:
            text += next(taken) + operator + next(taken) + part
        return text

    text = joined("||", [joined("&&", list(map(str, group))) for group in expression.alternatives])
    assert parse(text) == expression
    assert str(parse(text)) == str(expression)


def test_the_backward_resolver_stops_where_a_set_settles_the_path() -> None:
    steps = [naive.Step(("state", ("a",)), "push", n) for n in range(3)]
    steps.insert(1, naive.Step(("state", ("a",)), "set", ["new"]))
    assert resolved_backward(steps, ("state", ("a",))) == ["new", 1, 2]
