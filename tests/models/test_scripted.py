"""Scripted, recorded and random models."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery import (
    Answer,
    BadRequest,
    ModelError,
    RateLimited,
    Refused,
    Truncated,
    Usage,
    WorkerError,
    local,
    random_answers,
)
from acts_celery.broker_config import ConfiguredModel, load
from acts_celery.protocol.requests import compose
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.agent.scripted import RecordedModel, ScriptedModel
from acts_celery.worker.registry.models import Model, ModelRequest, OnText, Reported, ignore
from acts_celery.worker.runner.checking import Checker

from . import six_tools
from .asked import ask, request

# The scripted model: which entry answers, and which files are none (SPEC R12).


def test_the_first_entry_answers_whose_texts_all_occur_in_the_request() -> None:
    model = ScriptedModel(
        [
            {"when": ["translator", "Bonjour"], "output": "Good day"},
            {"when": "Bonjour", "answer": {"calls": [{"_tool": "a"}], "output": None}},
            {"output": "anything"},
        ]
    )
    assert json.loads(ask(model, "a translator", "Bonjour").text) == {"calls": [], "output": "Good day"}
    assert json.loads(ask(model, "Bonjour").text) == {"calls": [{"_tool": "a"}], "output": None}
    assert json.loads(ask(model, "Guten Tag").text)["output"] == "anything"


def test_an_entry_is_used_no_more_often_than_its_times() -> None:
    model = ScriptedModel([{"when": "a", "output": 1, "times": 2}, {"when": "a", "output": 2, "times": 1}])
    assert [json.loads(ask(model, "a").text)["output"] for _ in range(3)] == [1, 1, 2]
    with pytest.raises(BadRequest, match="no answer"):
        ask(model, "a")


def test_a_text_is_found_in_data_that_stands_there_as_json() -> None:
    model = ScriptedModel([{"when": 'say "hi"\n', "output": 1}])
    assert ask(model, json.dumps({"text": 'please say "hi"\n'})).text


def test_a_content_of_several_parts_is_looked_through_as_well() -> None:
    parts = ModelRequest([{"role": "user", "content": [{"type": "text", "text": "Bonjour"}]}, {"role": "user"}])
    model = ScriptedModel([{"when": "Bonjour", "output": 1}])
    assert asyncio.run(model.ask(parts, ignore)).text == '{"calls": [], "output": 1}'


def test_a_text_answer_is_written_letter_by_letter_and_heard() -> None:
    on_text: list[str | Reported] = []
    assert ask(ScriptedModel([{"answer": "{not JSON"}]), "a", on_text=on_text.append).text == "{not JSON"
    assert on_text == ["{not JSON"]


@pytest.mark.parametrize(
    "entry",
    [
        5,
        {},
        {"when": "a"},
        {"when": 5, "output": 1},
        {"when": ["a", 5], "output": 1},
        {"output": 1, "answer": {}},
        {"answer": [1]},
        {"output": 1, "times": 0},
        {"output": 1, "times": True},
        {"wenn": "a", "output": 1},
    ],
)
def test_an_entry_that_is_none_is_named_when_the_file_is_read(entry: Any, tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps([{"output": 1}, entry]), encoding="utf-8")
    with pytest.raises(WorkerError, match="entry 1: it must be a list of"):
        ScriptedModel.load(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="No such file"):
        ScriptedModel.load(tmp_path / "none.json")
    (tmp_path / "half.json").write_text("[{", encoding="utf-8")
    with pytest.raises(WorkerError, match="not JSON"):
        ScriptedModel.load(tmp_path / "half.json")
    (tmp_path / "object.json").write_text("{}", encoding="utf-8")
    with pytest.raises(WorkerError, match="must be a list"):
        ScriptedModel.load(tmp_path / "object.json")


# Recordings: a model's answers, kept by what was asked and given again (`ACTS_MODEL_RECORDING`).

KEY = "sk-1234567890"


class Told(Model):
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


# A model of a test that answers at random, within the schema of the request.

SCHEMA = compose(Checker(load()).request(six_tools.REQUEST))


def answer(seed: int, schema: Any = SCHEMA) -> Any:
    return random_answers(seed)([{"role": "user", "content": "?"}], schema, {})


@given(st.integers())
def test_an_answer_fits_the_schema_and_the_same_seed_gives_it_again(seed: int) -> None:
    found = answer(seed)
    assert compiled(SCHEMA).problems(found) == []
    assert answer(seed) == found


def test_every_tool_and_the_output_are_tried_with_odd_values() -> None:
    found = [answer(seed) for seed in range(100)]
    calls = [call for each in found for call in each["calls"]]
    tools = Counter(call["_tool"] for call in calls)
    assert set(tools) == set(six_tools.NAMES)
    assert 10 < sum(each["output"] is not None for each in found) < 60
    refunds = [call for call in calls if call["_tool"] == "refund"]
    assert {"amount" in call for call in refunds} == {True, False}
    assert any(str(value).startswith("†state.r") for call in calls for key, value in call.items() if key[0] != "_")


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "properties": {"output": {"type": "integer", "minimum": 5, "maximum": 6}},
            "required": ["output"],
        },
        {"type": "object", "properties": {"output": {"type": "string", "pattern": "^…$"}}, "required": ["output"]},
        {"type": "object", "properties": {"output": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"enum": [1, None]}}},
        {"type": "object", "properties": {"output": True}},
        None,
    ],
)
def test_a_request_without_tools_has_an_output_alone(schema: Any) -> None:
    for seed in range(20):
        found = answer(seed, schema)
        assert found.keys() == {"output"}
        assert schema is None or compiled(schema).problems(found) == []


def test_an_agent_of_six_tools_outlasts_answers_at_random() -> None:
    with local([six_tools.ACTIVITIES]) as client:
        fake = client.model(random_answers(3))
        runs = [client.submit_document(six_tools.REQUEST, tags=[str(number)]) for number in range(3)]
        results = [run.wait(timeout_seconds=60) for run in runs]
    assert {result.status for result in results} <= {"completed", "failed"}
    assert len(fake.requests) >= 3
