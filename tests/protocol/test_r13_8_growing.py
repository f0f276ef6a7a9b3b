"""Answers that are still being written (SPEC R13.8)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol.requests.reading import Unreadable
from acts_celery.protocol.requests.streaming import GrowingAnswer

from .schema_strategies import schema_values

PIECES = 250_000
SECONDS = 5  # half a second; 42, where what has come is copied for each piece
texts = st.text(st.sampled_from('"\\{}[],: a\n†'), max_size=8)
calls = st.lists(st.dictionaries(texts, st.one_of(texts, schema_values, st.lists(texts, max_size=2)), max_size=3))


@given(calls, st.one_of(st.none(), texts), st.lists(st.integers(0, 400), max_size=8), st.booleans(), st.booleans())
def test_r13_8_a_call_is_given_when_it_is_complete_however_the_text_is_cut(
    listed: list[Any], output: Any, cuts: list[int], is_first: bool, is_indented: bool
) -> None:
    advice = {"advisors": {"a": {"calls": [{"no": "call"}]}}}
    whole = {**advice, "calls": listed, "output": output} if is_first else {"output": output, "calls": listed}
    text = json.dumps(whole, ensure_ascii=is_first, indent=1 if is_indented else None)
    growing, given_so_far, before = GrowingAnswer(), [], 0
    for cut in sorted({min(cut, len(text)) for cut in cuts} | {len(text)}):
        for call in growing.feed(text[before:cut]):
            given_so_far.append(call)
            assert growing.text == text[:cut]
        before = cut
    assert given_so_far == listed


@given(st.lists(st.just({"_tool": "t", "a": '}"]'}), min_size=1, max_size=4))
def test_r13_8_a_call_waits_for_nothing_behind_it(listed: list[Any]) -> None:
    text = json.dumps({"calls": listed})
    complete = [len(GrowingAnswer().feed(text[:end])) for end in range(len(text) + 1)]
    ends = [index for index in range(1, len(complete)) if complete[index] > complete[index - 1]]
    assert len(ends) == len(listed)
    assert all(text[end - 1] == "}" for end in ends)


@pytest.mark.parametrize(
    "text",
    [
        '{"calls": [{"a": 1, "a": 2}',
        '{"calls": [], "calls": [',
        '{"calls": [{"a": nonsense}',
        '{"calls": [}',
        "]",
    ],
)
def test_r13_8_what_cannot_become_an_answer_is_refused_at_once(text: str) -> None:
    with pytest.raises(Unreadable):
        GrowingAnswer().feed(text)


words = st.text(st.sampled_from('"\\{}[],: a\n†é😀\u2028\x00'), max_size=12)


@given(words, calls, st.booleans(), st.booleans())
def test_r13_12_a_text_output_grows_piece_by_piece_up_to_its_first_dagger(
    output: str, listed: list[Any], is_ascii: bool, is_last: bool
) -> None:
    parts = {"calls": listed, "output": output}
    whole = json.dumps(
        {"meta": {"output": "no"}, **(parts if is_last else dict(reversed(parts.items())))}, ensure_ascii=is_ascii
    )
    growing, before = GrowingAnswer(), ""
    for character in whole:
        growing.feed(character)
        assert growing.output.startswith(before)
        before = growing.output
    assert before == output.partition("†")[0]


@pytest.mark.parametrize("output", [None, 7, {"output": "inner"}, ["a"], {"a": {"output": "inner"}}])
def test_r13_12_an_output_that_is_no_text_gives_none(output: Any) -> None:
    for order in ({"calls": [{"output": "of a call"}], "output": output}, {"output": output, "calls": [], "more": "x"}):
        growing = GrowingAnswer()
        growing.feed(json.dumps(order))
        assert (growing.output, growing.written) == ("", 0)


def test_r13_12_half_a_character_is_not_given() -> None:
    growing = GrowingAnswer()
    given_so_far = [
        growing.output for piece in ('{"output": "a\\', "ud83d", "\\", "ude00", "\\", "n") if growing.feed(piece) == []
    ]
    assert given_so_far == ["a", "a", "a", "a😀", "a😀", "a😀\n"]
    lone = GrowingAnswer()
    lone.feed('{"output": "a\\ud83d and more')
    assert lone.output == "a"  # what it means is read at the end


def test_r13_8_the_time_does_not_depend_on_how_small_the_pieces_are() -> None:
    growing = GrowingAnswer()
    growing.feed('{"calls": [], "output": "')
    began = time.process_time()
    for _ in range(PIECES):
        growing.feed("abcd")
    assert time.process_time() - began < SECONDS
    assert len(growing.output) == 4 * PIECES
