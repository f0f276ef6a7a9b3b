"""Delegates and models on real workers."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgpack
import pytest

from acts_celery import ActivitiesError, Answer, Client, InvalidAnswer
from acts_celery.broker_config import ConfiguredModel, EmbeddedServer, load
from acts_celery.protocol import Rejected
from acts_celery.worker.agent.asking import Models
from acts_celery.worker.agent.model_calls import solve
from acts_celery.worker.cli.progress import watching
from acts_celery.worker.limits import LONGEST_WHY
from acts_celery.worker.registry.models import ModelRequest
from tests.acceptance.command import acts
from tests.models.server import ModelServer, Reply, failing, model_server, streamed

from .backend import DEADLINE_SECONDS, Backend, Meeting, ended, settings_apart, status_of

# Delegates: a message with exactly the scoped context, a worker without a log, a model's answers (SPEC R8, R9).

NOWHERE = "redis://127.0.0.1:1/0"


def queued(backend: Backend, queue: str) -> dict[str, Any]:
    """The newest message on a queue, as it lies in Redis; waits for it, and leaves it there."""
    key = backend.queue(queue)
    found: Any = backend.redis.blmove(key, key, 4, "LEFT", "LEFT")
    assert found is not None, f"nothing on {queue}"
    message: dict[str, Any] = json.loads(found)
    return message


def argument(message: dict[str, Any]) -> Any:
    """The one argument of a task, decoded twice: Celery's body, and our bytes in it."""
    args, kwargs, _ = msgpack.unpackb(base64.b64decode(message["body"]))
    assert kwargs == {}
    (body,) = args
    assert isinstance(body, bytes)
    return msgpack.unpackb(body)


@pytest.fixture
def secretive(aside: Backend) -> str:
    """A run that waits for its delegate: the id."""
    aside.redis.delete(aside.queue("aside-delegates"))
    context: list[dict[str, Any]] = [
        {"type": "system", "message": "not for delegates"},
        {"type": "input", "question": "global", "keep": 1},
        {"type": "state", "user": {"name": "Alex"}, "_date": "2026-01-01"},
        {"type": "input", "question": "①'s own", "_instance": "①"},
        {"type": "input", "question": "②'s own", "_instance": "②"},
        {"type": "state", "user": {"password": "s3cret"}, "card": "4000", "_instance": "①"},
        {"type": "data", "data": {"private": True}},
    ]
    call = {
        "_tool": "ask", "_delegate": "showContext", "_instance": "①", "_scopes": ["input", "†state.user.name"],
        "name": "†state.user.name", "_outputPath": "†state.answer",
    }  # fmt: skip
    return aside.client.submit(context, {"calls": [call]}).id


def test_the_message_holds_exactly_the_scoped_context(aside: Backend, secretive: str) -> None:
    message = queued(aside, "aside-delegates")
    body = argument(message)
    assert body["context"] == [
        {"type": "input", "question": "①'s own", "keep": 1},
        {"type": "state", "user": {"name": "Alex"}},
        {"type": "input", "name": "Alex"},
    ]
    assert body["attempt"]["id"] == {"run": secretive, "instance": "①", "index": 0}
    assert body["delegate"] == "showContext"
    assert (body["schema"], body["config"]) == (None, {})
    packed = base64.b64decode(message["body"]) + json.dumps(message["headers"]).encode()
    for hidden in ("s3cret", "4000", "②", "private", "_date", "not for delegates"):
        assert hidden.encode() not in packed


def test_a_delegate_worker_needs_no_log(aside: Backend, secretive: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "celery", "-A", "acts_celery", "worker", "-Q", "aside-delegates", "-P", "threads"]
    options = ["-c", "2", "--without-mingle", "--without-gossip"]
    env = aside.environment(ACTS_REDIS_URL=NOWHERE)
    with (tmp_path / "delegates.log").open("wb") as log, ended([*command, *options], env, tmp_path, log):
        result = aside.wait(secretive)
    assert result.status == "completed"
    assert result.data("①")["state"]["answer"] == {
        "context": [
            {"type": "input", "question": "①'s own", "keep": 1},
            {"type": "state", "user": {"name": "Alex"}},
            {"type": "input", "name": "Alex"},
        ]
    }


@pytest.mark.parametrize("name", ["showContext", "showContextLater"])
def test_a_delegate_in_code_gets_its_context_and_nothing_else(backend: Backend, name: str) -> None:
    call = {"_tool": "ask", "_delegate": name, "_scopes": ["state"], "_outputPath": "†data.seen"}
    result = backend.run([call], [{"type": "state", "a": 1}, {"type": "input", "b": 2}])
    assert result.data()["data"]["seen"] == {"context": [{"type": "state", "a": 1}]}


def test_a_delegate_without_scopes_sees_nothing(backend: Backend) -> None:
    call = {"_tool": "ask", "_delegate": "showContext", "_outputPath": "†data.seen"}
    assert backend.run([call], [{"type": "state", "a": 1}]).data()["data"]["seen"] == {"context": []}


def test_instances_see_their_own_values_through_a_delegate(backend: Backend) -> None:
    plan = {"type": "plan", "calls": [{"_tool": "ask", "_delegate": "showContext", "_scopes": ["state"],
                                       "_outputPath": "†data.seen"}]}  # fmt: skip
    marks = [f"i{n}" for n in range(25)]
    context: list[Any] = [plan, *({"type": "state", "_instance": mark, "mark": mark} for mark in marks)]
    result = backend.wait(backend.client.submit(context).id)
    assert {mark: result.data(mark)["data"]["seen"]["context"] for mark in marks} == {
        mark: [{"type": "state", "mark": mark}] for mark in marks
    }


def test_a_failing_delegate_fails_its_call(backend: Backend) -> None:
    call = {"_tool": "ask", "_delegate": "failing", "_outputPath": "†state.a"}
    result = backend.run([call, {"_tool": "echo", "value": 1, "_outputPath": "†state.b"}])
    assert (status_of(result, 0), status_of(result, 1)) == ("failed", "done")
    assert result.calls[0].error == {"type": "ValueError", "message": "the delegate does not know"}


def test_a_delegates_failure_goes_to_the_last_alternative(backend: Backend) -> None:
    call = {"_tool": "ask", "_delegate": "failing", "_outputPath": "†state.a || †state.b"}
    result = backend.run([call])
    assert result.data()["state"]["b"]["type"] == "ValueError"


TRANSLATOR = {"context": [{"type": "system", "message": "You are a translator."}], "schema": {"type": "string"}}
RATER = {
    "context": [{"type": "system", "message": "rate this"}],
    "schema": {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]},
}


CHOOSING: dict[str, Any] = {"_tool": "ask", "_delegate": "choosing", "_outputPath": "†state.a || †state.b || †state.c"}


def test_r4_4_a_delegate_in_code_chooses_its_branch_as_an_activity_does(backend: Backend) -> None:
    then = [{"_tool": "echo", "value": f"†state.{place}", "_outputPath": f"†state.then_{place}"} for place in "ab"]
    result = backend.run([{**CHOOSING, "place": "state.b"}, *then])
    assert [status_of(result, index) for index in range(3)] == ["done", "skipped", "done"]
    assert result.data()["state"] == {"b": 1, "then_b": 1}


def test_r4_4_a_place_that_was_not_declared_fails_a_delegates_call(backend: Backend) -> None:
    result = backend.run([{**CHOOSING, "place": "state.other"}])
    assert status_of(result, 0) == "failed"
    assert "†state.other, which is not declared" in str(result.calls[0].error)


def test_r4_5_a_delegate_in_code_writes_no_message(backend: Backend) -> None:
    result = backend.run([{**CHOOSING, "place": ""}])
    assert "no Message" in result.data()["state"]["c"]["message"]


def test_r4_4_a_choice_of_a_delegate_fails_its_element(backend: Backend) -> None:
    call = {**CHOOSING, "place": "†state.places", "_each": "place"}
    result = backend.run([call], [{"type": "state", "places": ["state.a"]}])
    assert "element" in result.data()["state"]["c"]["message"]


def test_a_request_definition_is_solved_by_the_model(backend: Backend) -> None:
    call = {"_tool": "translate", "_delegate": "translator", "_scopes": ["state"], "_outputPath": "†state.english"}
    result = backend.run([call], [{"type": "state", "text": "Bonjour"}], delegates={"translator": TRANSLATOR})
    assert result.data() == {"state": {"text": "Bonjour", "english": "Hello"}}


def test_an_answer_that_its_schema_forbids_fails_the_call(backend: Backend) -> None:
    def rate(text: str) -> dict[str, Any]:
        return {"_tool": "rate", "_delegate": "rater", "text": text, "_outputPath": f"†state.{text}"}

    result = backend.run([rate("well"), rate("badly")], delegates={"rater": RATER})
    assert result.data()["state"] == {"well": {"score": 5}}
    error = result.calls[1].error
    assert error is not None
    assert (error["type"], "score" in error["message"]) == ("InvalidAnswer", True)


def test_a_request_that_the_model_cannot_answer_fails_the_call(backend: Backend) -> None:
    call = {"_tool": "translate", "_delegate": "translator", "_outputPath": "†state.english"}
    result = backend.run([call], delegates={"translator": TRANSLATOR})
    assert status_of(result, 0) == "failed"


def test_a_latent_call_with_an_output_path_is_put_to_the_model(backend: Backend) -> None:
    tools = {"think": {"type": "object", "properties": {"about": {"type": "string"}}}}
    result = backend.run([{"_tool": "think", "about": "latent topic", "_outputPath": "†state.idea"}], tools=tools)
    assert result.data() == {"state": {"idea": "a thought"}}


@pytest.fixture
def folders(backend: Backend, tmp_path: Path) -> Client:
    """A client with one folder of request definitions, and things beside it that are not to be had."""
    root = tmp_path / "delegates"
    (root / "inside").mkdir(parents=True)
    (root / "translator.json").write_text(json.dumps(TRANSLATOR), encoding="utf-8")
    (root / "inside" / "deep.json").write_text(json.dumps(TRANSLATOR), encoding="utf-8")
    (root / "notes.txt").write_text("{}", encoding="utf-8")
    (tmp_path / "outside.json").write_text(json.dumps(TRANSLATOR), encoding="utf-8")
    (tmp_path / "delegates-too").mkdir()
    (tmp_path / "delegates-too" / "x.json").write_text("{}", encoding="utf-8")
    (root / "link.json").symlink_to(tmp_path / "outside.json")
    (root / "folder").symlink_to(tmp_path / "delegates-too")
    given = {name: getattr(backend.settings, name) for name in ("broker_url", "redis_url", "model")}
    return Client(load(env_file=None, delegates=(str(root),), **given))


def ask(delegate: str) -> dict[str, Any]:
    return {"calls": [{"_tool": "translate", "_delegate": delegate, "_scopes": ["state"], "_outputPath": "†state.x"}]}


@pytest.mark.parametrize("name", ["translator", "inside/deep"])
def test_a_definition_in_a_configured_folder_is_found(backend: Backend, folders: Client, name: str) -> None:
    run = folders.submit([{"type": "state", "text": "Bonjour"}], ask(name))
    assert backend.wait(run.id).data()["state"]["x"] == "Hello"
    folders.close()


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("translator.json", "translator"),
        ("./translator", "translator"),
        ("x/../translator", "translator"),
        ("inside/../translator", "translator"),
        ("inside//deep", "inside/deep"),
        ("inside/deep/", None),
        ("Translator", None),
        ("same", "translator"),
        ("deep", "inside/deep"),
        ("in/deep", "inside/deep"),
    ],
)
def test_r16_1_a_definition_has_one_name(folders: Client, tmp_path: Path, name: str, spelled: str | None) -> None:
    """Else what an operator says of the one name would not hold for another."""
    root = tmp_path / "delegates"
    (root / "same.json").symlink_to(root / "translator.json")
    (root / "in").symlink_to(root / "inside")
    settings = folders.settings.model_copy(update={"delegates": (str(root), str(root / "inside"))})
    said = f"is written '{spelled}'" if spelled is not None else "unknown delegate"
    pinned = {"tools": {"translate": {"properties": {"_delegate": {"enum": ["translator", name]}}}}}
    for document in ({"solution": ask(name)}, {"schema": {}, **pinned}):
        with pytest.raises(Rejected, match=said):
            Client(settings).check(document)
    if spelled is None:
        return
    with pytest.raises(Rejected, match=said):
        Client(settings).check({"solution": ask("translator")}, allow=["translate", name])
    (tmp_path / "trust.json").write_text(json.dumps({name: {"untrusted": ["tickets"]}}), "utf-8")
    with pytest.raises(ActivitiesError, match=said):
        Client(settings.model_copy(update={"trust": str(tmp_path / "trust.json")})).check({"solution": ask(spelled)})


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "../outside.json",
        "inside/../../outside.json",
        "../delegates-too/x.json",
        "link.json",
        "link",
        "folder/x",
        "notes.txt",
        "notes",
        "inside",
        ".",
        "..",
        "",
        "/etc/passwd",
        "file:///etc/passwd",
        "~/x.json",
        "translator\n",
        "a\0b",
        "x" * 300,
    ],
)
def test_what_lies_outside_the_configured_folders_is_no_delegate(folders: Client, name: str) -> None:
    with pytest.raises(Rejected):
        folders.check({"solution": ask(name)})


@pytest.mark.parametrize("config", [5, "text", [1]])
def test_a_definition_with_a_configuration_that_is_none_is_rejected(backend: Backend, config: Any) -> None:
    with pytest.raises(Rejected):
        backend.client.check({"solution": ask("odd"), "delegates": {"odd": {"context": [], "config": config}}})


def test_r9_2_upfront_a_call_fits_the_input_of_a_definition_in_a_folder(
    backend: Backend, folders: Client, tmp_path: Path
) -> None:
    schema = {"properties": {"tone": {"enum": ["warm", "dry"]}}, "required": ["tone"]}
    context = [*TRANSLATOR["context"], {"type": "input", "schema": schema}]
    (tmp_path / "delegates" / "toned.json").write_text(json.dumps({**TRANSLATOR, "context": context}), encoding="utf-8")

    def document(**parameters: Any) -> dict[str, Any]:
        calls = [{**call, **parameters} for call in ask("toned")["calls"]]
        state = {"type": "state", "text": "Bonjour", "tone": "loud"}
        return {"context": [state], "solution": {"calls": calls}, "config": {"resolve": "upfront"}}

    for wrong in ({}, {"tone": "loud"}):
        with pytest.raises(Rejected):
            folders.check(document(**wrong))
    read = backend.wait(folders.submit_document(document(tone="†state.tone")).id)
    assert (read.calls[0].error or {})["type"] == "InvalidParameters"
    run = folders.submit_document(document(tone="dry"))
    assert backend.wait(run.id).data()["state"]["x"] == "Hello"
    folders.close()


def test_an_absolute_path_is_no_delegate(folders: Client, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="unknown delegate"):
        folders.check({"solution": ask(str(tmp_path / "outside.json"))})


def test_a_submissions_own_definition_comes_before_registered_code(backend: Backend, meeting: Meeting) -> None:
    call = {"_tool": "ask", "_delegate": "showContext", "_scopes": ["state"], "_outputPath": "†state.x"}
    result = backend.run([call], [{"type": "state", "text": "Bonjour"}], delegates={"showContext": TRANSLATOR})
    assert result.data()["state"]["x"] == "Hello"


def test_an_answer_that_cannot_be_read_is_not_quoted_where_others_may_read_the_error() -> None:
    class Leaking:
        async def ask(self, request: ModelRequest) -> Answer:
            return Answer("I was told: " + request.messages[-1]["content"], "leaking", None)

        def with_fallbacks(self, _: str | None) -> list[ConfiguredModel]:
            return [ConfiguredModel(model="leaking:1")]

    context = [{"type": "text", "message": "the code is 4711"}]
    with pytest.raises(InvalidAnswer, match="cannot be read: it has no JSON object") as refused:
        asyncio.run(solve(cast(Models, Leaking()), context, None, {}, lambda cost: None))
    assert "4711" not in str(refused.value)


# Models behind a worker: a delegate asks over the wire, many at once; what becomes of a call whose request fails.

KEY = "sk-canary-4711"
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
