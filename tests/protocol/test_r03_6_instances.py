"""SPEC R3.6: what a reader in an instance sees, whenever the messages came."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Conflict, Context
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.state.kinds import Overlay

from .building import value_at, written

GLOBAL = {"type": "input", "a": 1, "shared": {"x": 1, "y": 1}}
MINE = {"type": "input", "_instance": "①", "b": 2, "shared": {"y": 2}}
YOURS = {"type": "input", "_instance": "②", "b": 3}


def test_r3_6_a_reader_sees_the_global_messages_and_its_own() -> None:
    context = Context([GLOBAL, MINE, YOURS])
    assert context.data("①") == {"input": {"a": 1, "b": 2, "shared": {"x": 1, "y": 2}}}
    assert context.data("②") == {"input": {"a": 1, "b": 3, "shared": {"x": 1, "y": 1}}}


def test_r3_6_a_reader_without_an_instance_sees_global_messages_only() -> None:
    assert Context([MINE, GLOBAL, YOURS]).data() == {"input": {"a": 1, "shared": {"x": 1, "y": 1}}}


def test_r3_6_a_targeted_input_overrides_the_global_one_whatever_the_order_of_arrival() -> None:
    expected = {"a": 1, "b": 2, "shared": {"x": 1, "y": 2}}
    assert Context([GLOBAL, MINE]).resolve("†input", instance="①") == expected
    assert Context([MINE, GLOBAL]).resolve("†input", instance="①") == expected


def test_r3_6_what_arrives_globally_later_is_seen_below_ones_own() -> None:
    context = Context([{**written("†state.l", 1, "push"), "_instance": "①"}])
    assert context.resolve("†state.l", instance="①") == [1]
    context.append(written("†state.l", 0, "push"))
    assert context.resolve("†state.l", instance="①") == [0, 1]
    context.append(written("†data.other", 1))
    assert context.data("①") == {"state": {"l": [0, 1]}, "data": {"other": 1}}
    assert context.data() == {"state": {"l": [0]}, "data": {"other": 1}}


def test_r3_6_below_a_kind_that_an_instance_has_replaced_nothing_global_is_seen_whenever_it_was_read() -> None:
    context = Context([{**written("†state", {"own": 1}), "_instance": "①"}])
    assert context.resolve("†state", instance="①") == {"own": 1}
    context.append(written("†state.deep.later", 2))
    assert context.resolve("†state", instance="①") == {"own": 1}
    assert value_at(context, "†state.deep.later", "①") is MISSING
    assert context.resolve("†state") == {"deep": {"later": 2}}


def test_r3_6_a_conflict_with_what_arrives_globally_is_the_instances_own() -> None:
    context = Context([{**written("†state.n", 1, "push"), "_instance": "①"}, written("†state.n", 5)])
    assert context.resolve("†state.n") == 5
    assert context.resolve("†state.n", instance="②") == 5
    with pytest.raises(Conflict):
        context.resolve("†state.n", instance="①")
    context.append(written("†state.n", [0]))
    assert context.resolve("†state.n", instance="①") == [0, 1]


def test_r3_6_a_global_conflict_is_seen_by_all_until_an_instance_replaces_it_for_itself() -> None:
    context = Context([written("†state.n", 5), written("†state.n", 1, "push"), {"type": "text", "_instance": "②"}])
    context.append({**written("†state.n", "mine"), "_instance": "①"})
    assert context.resolve("†state.n", instance="①") == "mine"
    for instance in (None, "②"):
        with pytest.raises(Conflict):
            context.resolve("†state.n", instance=instance)
    assert len(context.fold("①").conflicts()) == 0
    assert len(context.fold("②").conflicts()) == 1


def test_r3_6_an_instance_that_does_not_occur_sees_the_global_values() -> None:
    context = Context([GLOBAL, MINE])
    assert context.data("⑨") == context.data()
    assert context.instances == ("①",)
    assert value_at(context, "†input.b", "⑨") is MISSING


def test_r3_6_what_is_said_of_a_kind_globally_holds_for_instances_that_say_nothing() -> None:
    said = {"type": "state", "description": "everybody's", "schema": {"type": "object"}}
    context = Context([said, MINE, {"type": "state", "_instance": "②", "description": "mine", "schema": True}])
    assert (context.fold("①").description("state"), context.fold("①").schema("state")) == (
        "everybody's",
        {"type": "object"},
    )
    assert (context.fold("②").description("state"), context.fold("②").schema("state")) == ("mine", True)


# What an instance has read already, when something comes globally


def seen_before_and_after(own: Mapping[str, Any], late: Mapping[str, Any], *early: Mapping[str, Any]) -> list[Any]:
    """The state of instance ①: after the early global messages and its own one, and after the late global one."""
    context = Context([*early, {**own, "_instance": "①"}])
    seen = [context.resolve("†state", instance="①")]
    context.append(late)
    return [*seen, context.resolve("†state", instance="①")]


def test_r3_6_a_late_global_value_beside_ones_own_is_seen_and_ones_own_stays() -> None:
    assert seen_before_and_after(written("†state.a.b", 1), written("†state.a.c", 2), written("†state.a.d", 0)) == [
        {"a": {"b": 1, "d": 0}},
        {"a": {"b": 1, "d": 0, "c": 2}},
    ]


def test_r3_6_a_late_global_value_inside_what_one_has_set_is_not_seen() -> None:
    own, late = written("†state.a", {"mine": 1}), written("†state.a.b", 2)
    assert seen_before_and_after(own, late, written("†state.a.b", 0))[1] == {"a": {"mine": 1}}


def test_r3_6_a_late_global_value_in_a_list_that_one_has_written_into_is_seen() -> None:
    early = written("†state.l", [{"x": 1}, {"x": 1}])
    assert seen_before_and_after(written("†state.l.0.x", 2), written("†state.l.1.x", 3), early) == [
        {"l": [{"x": 2}, {"x": 1}]},
        {"l": [{"x": 2}, {"x": 3}]},
    ]


def test_r3_6_an_index_of_ones_own_means_a_key_once_there_is_an_object_below() -> None:
    """Also where what was a list without it has become an object since."""
    own = {**written("†state.a.0", {"x": 1}), "_instance": "①"}
    merged = {"type": "state", "a": {"k": 2}, "_instance": "①"}
    late = written("†state.a.b", 3)
    read_in_between = Context([own, merged])
    assert read_in_between.resolve("†state", instance="①") == {"a": {"k": 2}}
    read_in_between.append(late)
    expected = {"a": {"0": {"x": 1}, "k": 2, "b": 3}}
    assert Context([own, merged, late]).resolve("†state", instance="①") == expected
    assert read_in_between.resolve("†state", instance="①") == expected


def test_r3_6_a_global_conflict_is_over_for_instances_too_when_it_is_replaced_globally() -> None:
    context = Context([written("†state.n", 5), written("†state.n", 1, "push")])
    context.append({**written("†state.own", 1), "_instance": "①"})
    with pytest.raises(Conflict):
        context.resolve("†state.n", instance="①")
    context.append(written("†state.n", 7))
    assert context.resolve("†state", instance="①") == {"n": 7, "own": 1}


def test_r3_6_a_text_that_was_begun_is_no_place_for_anything_else() -> None:
    context = Context([written("†state.t", "a", "concat"), written("†state.t", 1, "push")])
    with pytest.raises(Conflict):
        context.resolve("†state.t")


# Overlays


@given(*[st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))] * 2)
def test_an_overlay_is_an_object_like_any_other(below: dict[str, int], own: dict[str, int]) -> None:
    overlay, plain = Overlay(below), {**below, **own}
    before = dict(below)
    for key, value in own.items():
        overlay[key] = value
    assert (len(overlay), list(overlay), dict(overlay.items())) == (len(plain), list(plain), plain)
    assert (list(overlay.keys()), list(overlay.values())) == (list(plain), list(plain.values()))
    assert [key in overlay for key in "abcd"] == [key in plain for key in "abcd"]
    assert [overlay.get(key) for key in "abcd"] == [plain.get(key) for key in "abcd"]
    assert overlay == plain
    assert overlay.copy() == plain
    assert overlay != {**plain, "e": 1}
    assert json.loads(json.dumps(overlay.copy())) == plain
    assert below == before, "what is below is not changed"
