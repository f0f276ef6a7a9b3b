"""The object that a text has as its answer, whatever stands around it (SPEC R12.6a)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acts_celery.protocol.requests.reading import Unreadable, find_answer, words_beside

from .schema_strategies import schema_values

ANSWER: dict[str, Any] = {"calls": [{"_tool": "order", "count": 3}], "output": None}
TEXT = json.dumps(ANSWER)
OTHER = '{"calls": [], "output": 1}'


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"\n\n  {TEXT}\n",
        f"Sure! Here is what I would do:\n\n{TEXT}",
        f"{TEXT}\n\nDone! Let me know.",
        f"```json\n{TEXT}\n```",
        f"I have looked at it.\n```\n{TEXT}\n```\nThat is all.",
        f"<think>maybe {OTHER}? no.</think>{TEXT}",
        f"<think>\n</think>\n\n```json\n{TEXT}\n```",
        f"maybe {OTHER}? no.</think>{TEXT}",
        f"{TEXT} and once more {TEXT}",
        f'The form is {{"calls": [...], "output": ...}}, so: {TEXT}',
        f'The form is {{"calls": […]}}, so: {TEXT}',
        f'Of the set {{a, b}} and [links](x), of {{"note": 1}}, of {{"a": nonsense}} and [1] I take {TEXT} [2]',
        f"A smiley :-{{ and {TEXT}",
        f"[[wiki]] {TEXT}",
    ],
)
def test_the_answer_is_found_whatever_stands_around_it(text: str) -> None:
    assert find_answer(text) == ANSWER


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'it is empty; expected {"calls": …, "output": …}'),
        ("   \n", "it is empty"),
        ("I cannot say.", 'no JSON object with "calls" or "output"; expected {"calls": …, "output": …}'),
        ("42", "no JSON object with"),
        ('{"total": 3}', "no JSON object with"),
        ('{"вызовы": [], "результат": 1}', "no JSON object with"),
        ('[{"_tool": "order", "output": 1}]', "no JSON object with"),
        ('"' + TEXT.replace('"', '\\"') + '"', "no JSON object with"),
        (f"{OTHER} or rather {TEXT}", '2 different objects with "calls" or "output": write one'),
        ('{"calls": [], "calls": []}', "'calls' occurs twice"),
        ('{"calls": [{"a": 1, "a": 2}]}', "'a' occurs twice"),
        ('{"output": NaN}', "NaN is not a JSON value"),
        (f'{{"output": {"9" * 5_000}}}', "a number has too many digits: write it as a string"),
        ('{"calls": [{"_tool": "order", "output": {"output": 1}', "it is not JSON"),
        ('{"output": {"output": 1}, nonsense}', "it is not JSON"),
        ('{"calls": [{"_tool": "order" "output": {"calls": []}}], "output": null}', "it is not JSON"),
        ('{"output": ' + "[" * 100_000, "nested too deeply"),
        (f"<think>{TEXT}", "no JSON object with"),
    ],
)
def test_what_is_no_answer_says_what_was_expected(text: str, words: str) -> None:
    with pytest.raises(Unreadable, match=words.replace("{", r"\{").replace("}", r"\}")):
        find_answer(text)


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        (TEXT, ""),
        (f"Sure:\n```json\n{TEXT}\n```\nDone!", "Sure:\n```json\n\n```\nDone!"),
        (f"<think>{OTHER}</think>{TEXT} or {TEXT}.", f"<think>{OTHER}</think> or ."),
        ("I cannot say.", ""),
        (f"{TEXT} or {OTHER}", ""),
    ],
)
def test_what_stands_around_the_answer_is_told(text: str, beside: str) -> None:
    assert words_beside(text) == beside


words = st.text(st.sampled_from("ab .,:;-*#`'\"\\\n†{}[]<>/"), max_size=12).filter(lambda text: '"' not in text)
answers = st.one_of(
    st.fixed_dictionaries({"output": schema_values}),
    st.fixed_dictionaries(
        {"calls": st.lists(st.dictionaries(st.sampled_from(["calls", "output", "a"]), schema_values))}
    ),
)


@given(words, answers, words, st.booleans())
@example("[", {"output": "</think><think>"}, "", False)
def test_prose_changes_nothing(before: str, answer: dict[str, Any], behind: str, is_indented: bool) -> None:
    text = json.dumps(answer, ensure_ascii=False, indent=1 if is_indented else None)
    before, behind = (each.replace("think", "").replace("{", "(").replace("[", "(") for each in (before, behind))
    assert find_answer(f"{before}{text}{behind}") == answer


@given(answers, st.data())
def test_a_text_that_ends_too_early_is_no_answer(answer: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(answer)
    with pytest.raises(Unreadable):
        find_answer(text[: data.draw(st.integers(0, len(text) - 1))])


@pytest.mark.parametrize("piece", ["{", '{"a":', "[", "[{", '{"a": x}', "<think>", '"', "[[1],", "</think>"])
def test_of_broken_pieces_no_more_is_read_than_some_lengths_of_the_text(piece: str) -> None:
    began = time.process_time()
    with pytest.raises(Unreadable):
        find_answer(piece * (200_000 // len(piece)))
    assert time.process_time() - began < 10
