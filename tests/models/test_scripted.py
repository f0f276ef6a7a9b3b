"""The scripted model: which entry answers, and which files are none (SPEC R12)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from acts_celery import BadRequest, WorkerError
from acts_celery.worker.agent.scripted import ScriptedModel
from acts_celery.worker.registry.models import ModelRequest, Reported, ignore

from .asked import ask


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
