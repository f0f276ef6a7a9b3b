"""Recordings: a model's answers, kept by what was asked and given again (`ACTS_MODEL_RECORDING`)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery import Answer, BadRequest, ModelError, RateLimited, Refused, Truncated, Usage, WorkerError
from acts_celery.broker_config import ConfiguredModel
from acts_celery.worker.agent.scripted import RecordedModel, ScriptedModel
from acts_celery.worker.registry.models import ModelRequest, OnText, Reported

from .asked import ask, request

KEY = "sk-1234567890"


class Told:
    """A model that answers how often it was asked, or raises."""

    def __init__(self, error: ModelError | None = None) -> None:
        self.asked = 0
        self.error = error

    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        self.asked += 1
        if self.error is not None:
            raise self.error
        on_text(f"{self.asked}")
        return Answer(f"{self.asked}", "told-1", Usage(10, 2, 4))


def kept(model: Told, path: Path) -> RecordedModel:
    return RecordedModel(model, ConfiguredModel(model="told:1", api_key=KEY), path)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_same_request_is_asked_once_and_answered_from_the_file_ever_after(tmp_path: Path) -> None:
    path, model = tmp_path / "answers.jsonl", Told()
    first = kept(model, path)
    heard: list[str | Reported] = []
    answers = [ask(first, "a", config={"model": "x", "temperature": 0}, on_text=heard.append) for _ in range(2)]
    assert [one.text for one in answers] == heard == ["1", "1"]
    assert ask(first, "a", config={"model": "x", "temperature": 1}).text == "2"  # other settings are another request
    assert ask(first, "a", schema={"type": "object"}).text == "3"
    assert ask(first, "a", "b").text == "4"
    again, replayed = kept(model, path), ScriptedModel.load(path)
    for one in (again, replayed):
        found = ask(one, "a", config={"temperature": 0, "model": "another", "request_seconds": 5})
        assert (found.text, found.model, found.usage) == ("1", "told-1", Usage(10, 2, 4))
    assert model.asked == len(lines(path)) == 4
    assert lines(path)[0]["request"] == {
        "messages": [{"role": "user", "content": "a"}],
        "schema": None,
        "settings": {"temperature": 0},
    }


def test_what_was_never_recorded_is_refused_and_the_nearest_is_named_with_its_difference(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    recorded = kept(Told(), path)
    for said in (("You help.", "What is the total of order A-1?"), ("You translate.", "Bonjour")):
        ask(recorded, *said, schema={"type": "object"}, config={"temperature": 0})
    replayed = ScriptedModel.load(path)
    told: dict[str, Any] = {"schema": {"type": "object"}, "config": {"temperature": 0}}

    def refused(*said: str, **parts: Any) -> str:
        with pytest.raises(BadRequest) as raised:
            ask(replayed, *said, **(told | parts))
        return str(raised.value)

    assert re.search(
        r"of 2 recorded requests the nearest is number 1: in message 1 stood '.*A-1\?' where now is '.*A-2\?'",
        refused("You help.", "What is the total of order A-2?"),
    )
    assert "number 2: message 2 is new: user: Et puis?" in refused("You translate.", "Bonjour", "Et puis?")
    assert "number 2: message 1 is not there any more: user: Bonjour" in refused("You translate.")
    assert "in its settings stood '{\"temperature\": 0}'" in refused("You translate.", "Bonjour", config={})
    assert "in its schema stood" in refused("You translate.", "Bonjour", schema={"type": "array"})


def test_answers_that_have_to_be_paid_for_are_recorded_whatever_they_are_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    cut = Truncated("too long", answer=Answer('{"calls": [', "told-1", Usage(9, 8)))
    broken = Truncated("gone", answer=Answer('{"calls": [', "told-1", Usage(9, 1, is_whole=False)))
    for model, said in ((Told(Refused("no")), "a"), (Told(cut), "b"), (Told(broken), "d")):
        with pytest.raises((Refused, Truncated)):
            ask(kept(model, path), said)
    for error in (RateLimited("busy"), BadRequest("what?")):
        with pytest.raises(type(error)):
            ask(kept(Told(error), path), "c")
    replayed = ScriptedModel.load(path)
    assert len(lines(path)) == 3
    with pytest.raises(Truncated) as raised:
        ask(replayed, "d")
    assert raised.value.answer == broken.answer
    with pytest.raises(Refused, match="no"):
        ask(replayed, "a")
    heard: list[str | Reported] = []
    with pytest.raises(Truncated) as raised:
        ask(replayed, "b", on_text=heard.append)
    assert raised.value.answer == cut.answer
    assert heard == ['{"calls": [']


def test_a_key_does_not_get_into_the_file_and_the_request_is_found_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    ask(kept(Told(), path), f"my key is {KEY}")
    assert KEY not in path.read_text(encoding="utf-8")
    assert ask(ScriptedModel.load(path), f"my key is {KEY}").text == "1"


def test_a_file_that_cannot_be_read_or_written_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"output": 1}\n\n{"output": \n', encoding="utf-8")
    with pytest.raises(WorkerError, match="is not JSON: line 3: Expecting value"):
        kept(Told(), path)
    path.write_text('{"output": 1}\n{"outptu": 1}\n', encoding="utf-8")
    with pytest.raises(WorkerError, match="entry 1: it must be a list of"):
        ScriptedModel.load(path)
    with pytest.raises(WorkerError, match=r"its recording .*none/answers.jsonl: No such file"):
        kept(Told(), tmp_path / "none" / "answers.jsonl")


def test_nothing_recorded_is_refused_without_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.touch()
    with pytest.raises(BadRequest, match=r"has no answer to this request$"):
        ask(ScriptedModel.load(path), "a")


@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3))
def test_two_requests_have_one_digest_if_and_only_if_they_say_the_same(ours: list[str], theirs: list[str]) -> None:
    first, second = request(*ours, schema={"a": 1, "b": 2}), request(*theirs, schema={"b": 2, "a": 1})
    assert (first.digest == second.digest) == (ours == theirs)


@pytest.mark.parametrize(
    "entry",
    [
        {"error": {"type": "KeyError", "message": "x"}},
        {"error": {"type": "Refused"}},
        {"error": {"type": "Refused", "message": "x"}, "output": 1},
        {"output": 1, "usage": {"input": -1, "output": 2}},
        {"output": 1, "usage": {"input": 1}},
        {"output": 1, "asked": 5},
    ],
)
def test_an_entry_that_is_none_is_refused(entry: Any, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps(entry) + "\n", encoding="utf-8")
    with pytest.raises(WorkerError, match="entry 0: it must be a list of"):
        ScriptedModel.load(path)
