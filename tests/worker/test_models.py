"""Models behind a worker: a delegate asks over the wire, many at once; what becomes of a call whose request fails."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.worker.broker.messages import LONGEST_WHY
from acts_celery.worker.cli.progress import watching
from tests.acceptance.command import acts
from tests.models.server import ModelServer, Reply, failing, model_server, streamed

from .backend import DEADLINE_SECONDS, Backend, Meeting, settings_apart

KEY = "sk-canary-4711"
TRANSLATOR = {"context": [{"type": "system", "message": "You are a translator."}], "schema": {"type": "string"}}
CALL = {"_tool": "translate", "_delegate": "translator", "_scopes": ["state"], "_outputPath": "†state.english"}
MANY = 300
"""More than a worker has in hand at a time."""


def said(body: Any) -> str:
    """What a request's last message says."""
    return str(body["messages"][-1]["content"])


class Speaker:
    """Answers as the text that it is asked with says."""

    def __init__(self) -> None:
        self.tried: set[str] = set()
        self.has_room = threading.Event()

    def __call__(self, body: Any) -> Reply:
        asked = said(body)
        properties = body["response_format"]["json_schema"]["schema"]["properties"]
        if "tools" in properties:
            return streamed(json.dumps({"tools": ["add", "add"]}))
        if "calls" in properties:
            second = {"_tool": "add", "a": "†state.s0", "b": 10}
            calls = {"s0": {"_tool": "add", "a": 1, "b": 2}, "s1": second}
            return streamed(json.dumps({"calls": calls, "output": "†state.s1"}))
        if "wrong key" in asked:
            return failing(401, f"no such key: {KEY}")
        if "crowded" in asked and not self.has_room.is_set():
            return failing(429, f"no room\n\x1b[2J{KEY} {'x' * 5_000}", Retry_After="1.5")
        if "busy" in asked and asked not in self.tried:
            self.tried.add(asked)
            return failing(429, "slow down", Retry_After="0")
        output: Any = 5 if "misfit" in asked else asked.rpartition("\n")[2]
        return streamed(json.dumps({"output": output}))


@pytest.fixture(scope="module")
def speaker() -> Speaker:
    return Speaker()


@pytest.fixture(scope="module")
def model(speaker: Speaker) -> Iterator[ModelServer]:
    with model_server(speaker) as running:
        yield running


@pytest.fixture(scope="module")
def asking(
    server: EmbeddedServer, meeting: Meeting, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    """A worker whose model is behind that server."""
    given = {"model": "openai:m", "model_base_url": model.url, "model_api_key": KEY}
    backend = Backend(settings_apart(server, "models", **given), meeting, tmp_path_factory.mktemp("models"))
    with backend.worker():
        yield backend


def translated(backend: Backend, text: str) -> Any:
    return backend.run([CALL], [{"type": "state", "text": text}], delegates={"translator": TRANSLATOR})


def test_a_delegate_asks_over_the_wire_and_again_where_that_may_help(asking: Backend, model: ModelServer) -> None:
    result = translated(asking, "busy day")
    assert result.data()["state"]["english"] == '{"text":"busy day"}'
    sent = [asked.body for asked in model.asked if "busy day" in said(asked.body)]
    assert len(sent) == 2
    assert sent[0] == sent[1]
    assert sent[0]["response_format"]["json_schema"]["schema"]["properties"] == {"output": {"type": "string"}}
    assert any("You are a translator." in message["content"] for message in sent[0]["messages"])


def test_r13_4_who_waits_for_a_model_is_told_that_it_is_asked_again(asking: Backend, speaker: Speaker) -> None:
    document = {"solution": {"calls": [CALL]}, "delegates": {"translator": TRANSLATOR}}
    run = asking.client.submit_document({**document, "context": [{"type": "state", "text": "crowded"}]})
    told: list[Mapping[str, Any]] = []
    was_told = threading.Event()

    def show(unanswered: Sequence[Mapping[str, Any]]) -> None:
        told.extend(unanswered)
        if unanswered:
            was_told.set()

    with watching(run, show):
        assert was_told.wait(DEADLINE_SECONDS)
    shown = acts("status", run.id, env=asking.settings.to_environment()).stdout
    speaker.has_room.set()
    assert asking.wait(run.id).status == "completed"
    assert "unanswered" not in run.status()
    one = told[0]
    assert (one["call"], one["type"], one["tries"] >= 1) == ("0", "RateLimited", True)
    assert 0 <= one["again_in_seconds"] <= 2
    assert "says 429: no room" in one["message"]
    assert len(one["message"]) <= LONGEST_WHY
    assert KEY not in str(told)
    assert "the model has not answered call 0 (RateLimited: openai:m at " in shown
    assert "\\x1b[2J***" in shown
    assert re.search(r"asked \d+ times?, (again in \d s|it is being asked again)$", shown.strip())
    assert re.search(r"RateLimited: .openai:m .*no room.*; try 1, asked again in 1\.\d s", asking.log.read_text())


def test_a_request_that_is_refused_fails_the_call_in_the_providers_words_without_the_key(asking: Backend) -> None:
    error = translated(asking, "wrong key").calls[0].error
    assert error is not None
    assert (error["type"], "401: no such key: ***" in error["message"]) == ("BadRequest", True)
    assert KEY not in asking.log.read_text(errors="replace")


def test_an_answer_is_held_against_the_true_schema_whatever_the_server_promised(asking: Backend) -> None:
    error = translated(asking, "misfit").calls[0].error
    assert error is not None
    assert error["type"] == "InvalidAnswer"


def test_many_instances_ask_at_once_and_each_gets_its_own_answer(asking: Backend) -> None:
    plan = {"type": "plan", "calls": [CALL]}
    states = ({"type": "state", "_instance": f"i{n}", "text": f"day {n}"} for n in range(MANY))
    run = asking.client.submit([plan, *states], delegates={"translator": TRANSLATOR})
    result = asking.wait(run.id)
    assert result.status == "completed"
    english = {n: result.data(f"i{n}")["state"]["english"] for n in range(MANY)}
    assert english == {n: json.dumps({"text": f"day {n}"}, separators=(",", ":")) for n in range(MANY)}


def test_a_model_that_is_not_configured_is_found_before_anything_runs(asking: Backend) -> None:
    definition = {**TRANSLATOR, "config": {"model": "large"}}
    with pytest.raises(Rejected, match="/delegates/translator/config/model: no model 'large' is configured"):
        asking.client.check({"solution": {"calls": [CALL]}, "delegates": {"translator": definition}})


def test_a_worker_whose_model_cannot_be_had_says_so_and_does_not_start(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend = Backend(settings_apart(server, "modelless", model="gpt:5"), meeting, tmp_path)
    with pytest.raises(AssertionError, match="unknown provider 'gpt'"), backend.worker():
        pass


def test_the_processes_of_a_worker_count_the_uses_of_a_scripted_answer_together(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    entries = [{"when": "day", "output": "first", "times": 7}, {"when": "day", "output": "then"}]
    (tmp_path / "answers.json").write_text(json.dumps(entries), encoding="utf-8")
    model = f"scripted:{tmp_path / 'answers.json'}"
    backend = Backend(settings_apart(server, "counting", model=model, concurrency=2), meeting, tmp_path)
    plan = {"type": "plan", "calls": [CALL]}
    states = ({"type": "state", "_instance": f"i{n}", "text": f"day {n}"} for n in range(40))
    with backend.worker("--processes", "2"):
        run = backend.client.submit([plan, *states], delegates={"translator": TRANSLATOR})
        result = backend.wait(run.id)
    english = [result.data(f"i{n}")["state"]["english"] for n in range(40)]
    assert (english.count("first"), english.count("then")) == (7, 33)
