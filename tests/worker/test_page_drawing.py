"""The drawing of a plan: layers, where boxes stand, folding, and that nothing of the data is ever markup."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.worker.ui.drawing import MOST_DRAWN, Node, draw, layers_of, place
from acts_celery.worker.ui.opened import alike

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "]]></text></svg><script>",
    "</script><!--",
    "&lt;b&gt;&#x41;",
    "\x00\x01\x1b[31m\x7f\x9b",
    "\u202egnp.exe\u2066\u200b\ufeff",
    "\u2028\u2029\r\n",
    "' onmouseover='alert(1)",
    "\ud800 alone",
    "javascript:alert(1)",
)
GRAPHS = st.integers(1, 30).flatmap(
    lambda number: st.tuples(
        st.just(number), st.sets(st.tuples(st.integers(0, number - 1), st.integers(0, number - 1)), max_size=60)
    )
)


def node(index: int, tool: str = "look", kind: str = "activity", **counts: int) -> Node:
    return Node(index, tool, kind, counts, sum(counts.values()), ())


def edge(writer: int, reader: int, path: str = "†state.a", kind: str = "reads") -> dict[str, Any]:
    return {"from": writer, "to": reader, "path": path, "kind": kind}


@given(GRAPHS)
def test_law_each_call_is_in_one_layer_and_below_all_that_it_waits_for(graph: tuple[int, set[tuple[int, int]]]) -> None:
    number, pairs = graph
    forward = {pair for pair in pairs if pair[0] < pair[1]}
    layers = layers_of(range(number), forward)
    assert sorted(index for layer in layers for index in layer) == list(range(number))
    level = {index: at for at, layer in enumerate(layers) for index in layer}
    assert all(level[writer] < level[reader] for writer, reader in forward)
    for index in range(number):  # and no deeper than it must be
        before = [level[writer] for writer, reader in forward if reader == index]
        assert level[index] == max(before, default=-1) + 1


@given(GRAPHS)
def test_law_a_circle_harms_nothing(graph: tuple[int, set[tuple[int, int]]]) -> None:
    number, pairs = graph
    layers = layers_of(range(number), pairs)
    assert sorted(index for layer in layers for index in layer) == list(range(number))
    ElementTree.fromstring(
        draw(layers, {index: node(index) for index in range(number)}, [edge(*pair) for pair in pairs])
    )


@given(GRAPHS)
def test_law_boxes_of_one_row_do_not_overlap(graph: tuple[int, set[tuple[int, int]]]) -> None:
    number, pairs = graph
    forward = {pair for pair in pairs if pair[0] < pair[1]}
    widths = {index: 50.0 + index for index in range(number)}
    rows, placed = place(layers_of(range(number), forward), forward, widths)
    for row in rows:
        for one, other in pairwise(row):
            needed = sum(widths[member] / 2 for member in (one, other) if isinstance(member, int))
            assert placed.across[other] - placed.across[one] >= needed
    assert all(0 <= x <= placed.width for x in placed.across.values())


def test_arrows_that_need_not_cross_do_not() -> None:
    pairs = {(0, 5), (1, 4), (2, 3)}
    rows, _ = place([[0, 1, 2], [3, 4, 5]], pairs, dict.fromkeys(range(6), 100.0))
    assert [{0: 5, 1: 4, 2: 3}[member] for member in rows[0] if isinstance(member, int)] == rows[1]


def test_an_arrow_past_a_layer_goes_around_its_boxes() -> None:
    pairs = {(0, 1), (1, 2), (0, 2)}
    rows, placed = place([[0], [1], [2]], pairs, dict.fromkeys(range(3), 100.0))
    assert placed.ways[0, 2] == (0, (0, 1), 2)
    assert abs(placed.across[0, 1] - placed.across[1]) >= 50
    assert (0, 1) in rows[1]


def test_counts_stand_in_their_call_what_failed_first() -> None:
    drawn = ElementTree.fromstring(draw([[0]], {0: node(0, done=99_980, failed=20, held=3)}, []))
    call = drawn.find(f"{SVG}g[@data-call='0']")
    assert call is not None
    assert call.get("aria-label") == "call 0, look, activity, 100,003 instances: 20 failed, 3 held, 99,980 done"
    counts = [(each.get("data-status"), each.findtext(f"{SVG}text")) for each in call.findall(f"{SVG}g")]
    assert counts == [("failed", "20 failed"), ("held", "3 held"), ("done", "99,980 done")]


def test_branches_and_alternatives_are_dashed_and_a_place_that_many_read_is_written_once() -> None:
    edges = [edge(0, 1), edge(0, 2), edge(0, 3, kind="branch"), edge(0, 4, "†state.b", "alternative")]
    drawn = ElementTree.fromstring(draw([[0], [1, 2, 3, 4]], {index: node(index) for index in range(5)}, edges))
    arrows = [each for each in drawn.findall(f"{SVG}g") if "edge" in each.get("class", "")]
    paths = [each.find(f"{SVG}path") for each in arrows]
    assert ["stroke-dasharray" in path.attrib for path in paths if path is not None] == [False, False, True, True]
    assert [each.text for each in drawn.iter(f"{SVG}text") if each.get("class") == "label"] == ["†state.a", "†state.b"]


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_a_name_or_a_place_is_markup_and_nothing_is_hidden(text: str) -> None:
    svg = draw([[0], [1]], {0: node(0, text, done=1), 1: node(1, "x")}, [edge(0, 1, text)])
    drawn = ElementTree.fromstring(svg)
    known = {"svg", "g", "rect", "path", "text", "title", "defs", "marker"}
    assert {each.tag.removeprefix(SVG) for each in drawn.iter()} <= known
    assert not any(name.startswith("on") or name in ("style", "href") for each in drawn.iter() for name in each.attrib)
    assert re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]", svg) is None
    svg.encode()


def test_200_calls_are_all_drawn_and_3_000_are_folded_with_a_sentence_in_little_time() -> None:
    layers = [list(range(start, start + 20)) for start in range(0, 200, 20)]
    edges = [edge(index, index + 20) for index in range(180)]
    drawn = ElementTree.fromstring(draw(layers, {index: node(index, done=1) for index in range(200)}, edges))
    assert len([each for each in drawn.findall(f"{SVG}g") if each.get("data-call")]) == 200
    layers = [list(range(start, start + 100)) for start in range(0, 3_000, 100)]
    edges = [edge(index, index + 100) for index in range(2_900)]
    nodes = {index: node(index, f"tool{index % 4}", done=1) for index in range(3_000)}
    begun = time.process_time()
    svg = draw(layers, nodes, edges)
    assert time.process_time() - begun < 5
    assert "3,000 calls are drawn as 120 boxes" in svg
    boxes = [each for each in ElementTree.fromstring(svg).findall(f"{SVG}g") if each.get("data-call")]
    assert len(boxes) == 120 < MOST_DRAWN
    assert [each.text for each in boxes[0].iter(f"{SVG}text")] == ["tool0", "25 calls", "25 done"]
    different = {index: node(index, f"tool{index}", done=1) for index in range(3_000)}
    assert "3,000 calls, 400 of 3,000 kinds are drawn" in draw(layers, different, edges)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no page 17 of order-4711", "no page 3 of order-12"),
        ("timed out after 30 s", "timed out after 31.5 s"),
        ("no user 550e8400-e29b-41d4-a716-446655440000", "no user 123e4567-e89b-12d3-a456-426614174000"),
        ("https://shop.example/items/7 answers 404", "https://shop.example/items/8 answers 404"),
        ("a is missing", "b is missing"),
    ],
)
def test_errors_that_differ_in_numbers_ids_and_instances_are_one_group(one: str, other: str) -> None:
    assert alike(one, "a") == alike(other, "b")


def test_errors_that_differ_in_words_are_not() -> None:
    assert alike("no such page", "a") != alike("no such order", "a")
    assert alike("shop 12 answers 404", "a") != alike("shop 13 answers 503", "a")
    # The name of an instance counts as a word only.
    assert [alike(text, "a") for text in ("abandoned", "aa, baa", "a is a")] == ["abandoned", "aa, baa", "# is #"]
