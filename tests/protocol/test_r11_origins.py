"""Where a value came from (SPEC R11.2): the messages, what is left of each, what their calls had read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from acts_celery.protocol import Reference, parse
from acts_celery.protocol.analysis.provenance import Effect, Explanation, Logged, Read, explain
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.state.fold import Fold

from .laws import PLACES, folded, law, read
from .strategies import STEPS, logs, message_of

CONTRIBUTES, OVERWRITTEN, REMOVES, CONFLICT = Effect


def log_of(*messages: Mapping[str, Any]) -> list[Logged]:
    """Messages with ids `0`, `1`, …; those of calls are each by a call of its own."""
    return [
        Logged(str(number), message, number if "_call" in message else None) for number, message in enumerate(messages)
    ]


def written(path: str, result: Any, method: str = "set", **properties: Any) -> dict[str, Any]:
    """What a call with these properties wrote."""
    data = result
    for segment in reversed(parse(path).references[0].path):
        data = {str(segment): data}
    call = {"_tool": "t", "_outputPath": path, "_outputMethod": method, **properties}
    kind = parse(path).references[0].kind
    message = {"type": "data", "kind": kind, "data": data, "_outputMethod": method, "_call": call}
    return message | ({"_instance": properties["_instance"]} if "_instance" in properties else {})


def effects(path: str, *messages: Mapping[str, Any], instance: str | None = None) -> list[tuple[str, Effect]]:
    """Which messages did something to a place, and what is left of it."""
    found = explain(parse(path).references[0], log_of(*messages), instance=instance)
    return [(origin.logged.id, origin.effect) for origin in found.origins]


def test_a_value_that_was_set_again_came_from_the_last_message() -> None:
    messages = [{"type": "state", "a": 1}, written("†state.a", 2), written("†state.a", 3)]
    assert effects("†state.a", *messages) == [("0", OVERWRITTEN), ("1", OVERWRITTEN), ("2", CONTRIBUTES)]


def test_messages_that_do_nothing_to_the_place_are_left_out() -> None:
    others = ({"type": "state", "b": 1}, {"type": "text", "text": "x"}, {"type": "data", "data": {"a": 1}})
    assert effects("†state.a", *others, {"type": "state", "a": 1}, written("†state.c", 1)) == [("3", CONTRIBUTES)]


def test_what_is_joined_contributes_besides_what_was_there() -> None:
    messages = [
        {"type": "state", "text": "a", "items": [1], "user": {"name": "Alex", "age": 1}},
        written("†state.text", "b", "concat"),
        written("†state.items", 2, "push"),
        written("†state.user", {"age": 2}, "merge"),
    ]
    assert effects("†state.text", *messages) == [("0", CONTRIBUTES), ("1", CONTRIBUTES)]
    assert effects("†state.items", *messages) == [("0", CONTRIBUTES), ("2", CONTRIBUTES)]
    assert effects("†state.items.1", *messages) == [("2", CONTRIBUTES)]
    assert effects("†state.user", *messages) == [("0", CONTRIBUTES), ("3", CONTRIBUTES)]
    assert effects("†state.user.age", *messages) == [("0", OVERWRITTEN), ("3", CONTRIBUTES)]


def test_an_object_of_which_every_part_was_replaced_is_overwritten() -> None:
    messages = [written("†state.user", {"age": 1}), written("†state.user.age", 2)]
    assert effects("†state.user", *messages) == [("0", OVERWRITTEN), ("1", CONTRIBUTES)]


def test_a_message_that_sets_something_above_removes_the_value() -> None:
    messages = [written("†state.user.name", "Alex"), written("†state.user", {"age": 1})]
    assert effects("†state.user.name", *messages) == [("0", OVERWRITTEN), ("1", REMOVES)]
    assert effects("†state.user.name", *messages, written("†state.user.name", "Bo")) == [
        ("0", OVERWRITTEN),
        ("1", OVERWRITTEN),
        ("2", CONTRIBUTES),
    ]


def test_an_instances_messages_come_after_the_global_ones_whatever_came_first() -> None:
    messages = [written("†state.a", 1, _instance="①"), written("†state.a", 2), written("†state.a", 3, _instance="②")]
    assert effects("†state.a", *messages, instance="①") == [("1", OVERWRITTEN), ("0", CONTRIBUTES)]
    assert effects("†state.a", *messages) == [("1", CONTRIBUTES)]


def test_an_instances_own_errors_hide_the_global_ones_whole() -> None:
    first, own, last = ({"type": "error", "data": {"error": {"type": type_}}} for type_ in "abc")
    messages = [first, {**own, "_instance": "①"}, last]
    assert effects("†error", *messages) == [("0", OVERWRITTEN), ("2", CONTRIBUTES)]
    assert effects("†error", *messages, instance="①") == [("1", CONTRIBUTES)]
    assert effects("†error", *messages, instance="②") == [("0", OVERWRITTEN), ("2", CONTRIBUTES)]


def test_a_conflict_is_reported_with_the_message_it_came_from() -> None:
    found = explain(Reference("state", ("a",)), log_of({"type": "state", "a": 1}, written("†state.a", 2, "push")))
    assert found.value is MISSING
    assert found.conflict == "cannot push number at †state.a: there is number (message 1)"
    assert [origin.effect for origin in found.origins] == [CONTRIBUTES, CONFLICT]


def test_what_no_call_wrote_has_no_origins() -> None:
    found = explain(Reference("state", ("a",)), log_of({"type": "state", "b": 1}))
    assert found == Explanation(Reference("state", ("a",)), MISSING, None, ())


def test_what_a_call_had_read_is_reported_as_it_was_then() -> None:
    (origin,) = explain(
        Reference("state", ("c",)),
        log_of(
            {"type": "state", "a": 1, "user": {"name": "Alex"}},
            written("†state.a", 2),
            written(
                "†state.c",
                0,
                value=["†state.a", {"deep": "†state.b || †state.a"}],
                missing="†state.b",
                _scopes=["state", "†state.user"],
            ),
            written("†state.a", 3),
        ),
    ).origins
    assert origin.reads == (
        Read("†state.a", 2),
        Read("†state.b", MISSING),
        Read("†state.user", {"name": "Alex"}),
    )


def test_a_call_that_writes_where_it_reads_had_read_what_was_there_before_all_its_messages() -> None:
    call = {"_tool": "t", "value": "†state.a", "_outputPath": "†state.a && †state.b"}
    parts = [{"type": "data", "kind": "state", "data": {key: 2}, "_call": call} for key in "ab"]
    log = [Logged("0", {"type": "state", "a": 1}), Logged("1", parts[0], 7), Logged("2", parts[1], 7)]
    (origin,) = explain(Reference("state", ("b",)), log).origins
    assert (origin.logged.id, origin.reads) == ("2", (Read("†state.a", 1),))


def test_a_call_of_an_instance_had_read_what_the_instance_saw() -> None:
    log = log_of({"type": "state", "a": 1}, {"type": "state", "a": 2, "_instance": "①"}, {"type": "state", "a": 3})
    log += [Logged("3", written("†state.b", 0, _instance="①", value="†state.a"), 3)]
    (origin,) = explain(Reference("state", ("b",)), log, instance="①").origins
    assert origin.reads == (Read("†state.a", 2),)


@law
@given(logs, st.sampled_from(PLACES))
def test_the_explained_value_is_the_folded_one(messages: list[dict[str, Any]], place: Reference) -> None:
    found = explain(place, log_of(*messages))
    seen = found.value if found.conflict is None else found.conflict
    assert seen == read(folded(messages), place)


# An index means something only in the list that was there: without the messages before it another, or nothing.
_WITHOUT_INDEXES = [step for step in STEPS if not any(isinstance(segment, int) for segment in step.at[1])]
_PLACES = [place for place in PLACES if not any(isinstance(segment, int) for segment in place.path)]


def _readable(messages: Sequence[Mapping[str, Any]], place: Reference) -> Any:
    fold: Fold = folded(messages)
    assume(not fold.conflicts())
    return fold.value(place)


def _parts(found: Explanation, *wanted: Effect) -> Iterator[Mapping[str, Any]]:
    return (origin.logged.message for origin in found.origins if origin.effect in wanted)


@law
@given(st.lists(st.sampled_from(_WITHOUT_INDEXES), max_size=6), st.sampled_from(_PLACES))
def test_the_messages_that_contribute_are_enough_for_the_value(steps: list[Any], place: Reference) -> None:
    messages = [message_of(step) for step in steps]
    value = _readable(messages, place)
    found = explain(place, log_of(*messages))
    if value is MISSING:
        assert not list(_parts(found, CONTRIBUTES))
    else:
        assert folded(list(_parts(found, CONTRIBUTES))).value(place) == value
