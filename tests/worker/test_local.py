"""An embedded backend, and models that are made up."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import Any

import celery
import kombu.compression
import pytest
from celery import signals
from kombu import pools

from acts_celery import (
    ActivitiesError,
    Answer,
    BadRequest,
    Client,
    InfrastructureError,
    LocalClient,
    RateLimited,
    Refused,
    Unreachable,
    Usage,
    WorkerError,
    activity,
    local,
    model,
)
from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.worker.agent.scripted import FakeModel
from acts_celery.worker.registry.activities import Policy, Registry, make_activity, registry
from acts_celery.worker.registry.models import ModelRequest
from acts_celery.worker.runner.application import make_application
from tests.models.server import model_server, streamed

# `local()` and the fixture `acts`: a server and a worker for a test or a notebook.

GREET = {"_tool": "greet", "name": "Alex", "_outputPath": "†state.greeting"}


def greet(name: str) -> str:
    return f"Hello {name}"


@activity
def shout_locally(text: str) -> str:
    return text.upper()


def test_functions_that_are_defined_here_are_activities() -> None:
    heard: list[str] = []

    def note(text: str) -> None:
        heard.append(text)

    calls = [
        GREET,
        {"_tool": "shout_locally", "text": "†state.greeting", "_outputPath": "†state.loud"},
        {"_tool": "note", "text": "†state.loud"},
    ]
    with local([greet, note]) as client:
        result = client.submit([], {"calls": calls}).wait(timeout_seconds=60)
        assert result.data()["state"] == {"greeting": "Hello Alex", "loud": "HELLO ALEX"}
    assert heard == ["HELLO ALEX"]  # what is sent and not awaited is done when the block has ended


def test_modules_and_files_are_loaded_and_settings_are_given(tmp_path: Path) -> None:
    file = tmp_path / "local_file.py"
    file.write_text(
        "from acts_celery import activity\n\n@activity\ndef from_a_file(x: int) -> int:\n    return x + 1\n"
    )
    with local([file], key_prefix="mine") as client:
        assert client.settings.key_prefix == "mine"
        call = {"_tool": "from_a_file", "x": 1, "_outputPath": "†state.y"}
        assert client.submit([], {"calls": [call]}).wait(timeout_seconds=60).data()["state"] == {"y": 2}


def test_an_exception_leaves_at_once_whatever_is_at_work() -> None:
    begun = threading.Event()

    async def wait_for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    with pytest.raises(ZeroDivisionError), local([wait_for_ever]) as client:  # noqa: PT012  # the block is what is tested
        client.submit([], {"calls": [{"_tool": "wait_for_ever", "_outputPath": "†state.x"}]})
        assert begun.wait(60)
        raise ZeroDivisionError


def test_there_is_one_at_a_time_and_then_another() -> None:
    before, threads = celery._state.default_app, set(threading.enumerate())
    decoder = kombu.compression.get_decoder("gzip")
    with local([greet]), pytest.raises(InfrastructureError, match="in use"), local():
        pass
    with local([greet]) as client:
        assert client.submit([], {"calls": [GREET]}).wait(timeout_seconds=60).status == "completed"
    assert celery._state.default_app is before
    assert kombu.compression.get_decoder("gzip") is decoder
    left = set(threading.enumerate()) - threads
    assert not [thread for thread in left if thread.name in ("acts-loop", "acts-local-worker")]


def test_a_block_leaves_nothing_open_and_the_process_as_it_was() -> None:
    def use() -> int:
        with local([greet]) as client:
            assert client.submit([], {"calls": [GREET]}).wait(timeout_seconds=60).status == "completed"
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    frozen, thresholds = gc.get_freeze_count(), gc.get_threshold()
    counts = [use() for _ in range(4)]
    # Where each use leaves something, each count is above the one before; what else is open here goes up and down.
    assert any(later <= before for before, later in pairwise(counts)), counts
    assert (gc.get_freeze_count(), gc.get_threshold()) == (frozen, thresholds)


def test_a_block_leaves_the_process_its_limit_of_connections_to_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(pools, "set_limit", asked.append)
    with local() as client:  # its worker publishes what is not awaited
        client.submit([], {"calls": [{"_tool": "shout_locally", "text": "a"}]}).wait(timeout_seconds=60)
    assert set(asked) == {pools.get_limit()}, "another one fails where connections are in use"


def test_the_connections_to_models_are_closed_with_the_block(caplog: pytest.LogCaptureFixture) -> None:
    with model_server(lambda _: streamed('{"output": "tea"}')) as server:
        with local(model="openai:m", model_base_url=server.url, model_api_key="k") as client:
            assert client.submit(["Tea or coffee?"], schema=str).wait(timeout_seconds=60).output == "tea"
        gc.collect()
    assert "Unclosed" not in caplog.text


def test_a_worker_that_ends_closes_its_connections_to_models(caplog: pytest.LogCaptureFixture) -> None:
    with (
        EmbeddedServer() as redis,
        model_server(lambda _: streamed('{"output": "tea"}')) as server,
    ):
        urls = {"broker_url": redis.broker_url, "redis_url": redis.redis_url, "model_base_url": server.url}
        app = make_application(load(model="openai:m", model_api_key="k", **urls), Registry())
        runtimes = app.conf.acts_runtimes
        models = runtimes.current().models
        request = ModelRequest([{"role": "user", "content": "Tea or coffee?"}], {}, {})
        assert runtimes.current().run(models.ask(request)).text == '{"output": "tea"}'
        signals.worker_shutdown.send(sender=type("Worker", (), {"app": app}))
        models._made.clear()  # a client that is open warns when it is collected
        gc.collect()
        assert "Unclosed" not in caplog.text
        runtimes.close()


def test_the_fixture_is_such_a_client(acts: Client) -> None:
    call = {"_tool": "shout_locally", "text": "a", "_outputPath": "†state.a"}
    assert acts.submit([], {"calls": [call]}).wait(timeout_seconds=60).data()["state"] == {"a": "A"}


def test_a_cell_of_a_notebook_may_be_run_again() -> None:
    cell = "from acts_celery import activity\n@activity\ndef cell(x: int) -> int:\n    return x + {}\n"
    use = (
        "from acts_celery import local\n"
        "with local([cell]) as client:\n"
        "    call = {'_tool': 'cell', 'x': 1, '_outputPath': '†state.y'}\n"
        "    print(client.submit([], {'calls': [call]}).wait(timeout_seconds=60).data())\n"
    )
    done = run_cells(cell.format(1), cell.format(2), use)
    assert done.stdout == "{'state': {'y': 3}}\n", done.stderr


def run_cells(*cells: str) -> subprocess.CompletedProcess[str]:
    """What a notebook does: each cell in the same module, which no file holds."""
    shell = f"for n, source in enumerate({cells!r}): exec(compile(source, str(n), 'exec'), globals())\n"
    return subprocess.run([sys.executable, "-c", shell], text=True, capture_output=True, timeout=60, check=False)


def test_an_activity_that_is_defined_again_takes_the_place_of_the_former_at_once() -> None:
    define = "from acts_celery import activity, local\n@activity\ndef cell(x: int) -> {}:\n    return {}(x + {})\n"
    use = (
        "call = {'_tool': 'cell', 'x': 1, '_outputPath': '†state.y'}\n"
        "print(client.submit([], {'calls': [call]}).wait(timeout_seconds=60).data())\n"
    )
    begin = "backend = local([cell])\nclient = backend.start()\n"
    cells = [define.format("int", "int", 1), begin, use, define.format("str", "str", 2), use, begin, use]
    done = run_cells(*cells, "backend.stop()\nbackend.stop()\n")
    assert done.stdout == "{'state': {'y': 2}}\n{'state': {'y': '3'}}\n{'state': {'y': '3'}}\n", done.stderr
    assert done.returncode == 0


def test_an_activity_with_a_queue_of_its_own_that_comes_late_is_refused_and_not_awaited() -> None:
    with local([greet]) as client:
        registry.add_activity(make_activity(greet, "greet_late", "late", Policy()))
        try:
            late = {**GREET, "_tool": "greet_late"}
            assert client.submit([], {"calls": [GREET]}).wait(timeout_seconds=60).status == "completed"
            with pytest.raises(
                InfrastructureError, match="nobody takes from the queue 'late' of activity 'greet_late'"
            ):
                client.submit([], {"calls": [late]})
        finally:
            del registry.activities["greet_late"]


def test_cells_that_never_stop_end_with_their_process() -> None:
    done = run_cells("from acts_celery import local\nprint(local().start().settings.broker_url is not None)\n")
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_started_one_makes_way_for_another_and_not_for_a_block() -> None:
    first, second = local([greet]), local([greet])
    client = first.start()
    with pytest.raises(InfrastructureError, match="in use"), local():
        pass
    assert client.submit([], {"calls": [GREET]}).wait(timeout_seconds=60).status == "completed"
    assert second.start().submit([], {"calls": [GREET]}).wait(timeout_seconds=60).status == "completed"
    first.stop()
    second.stop()
    with local([greet]) as client:
        assert client.submit([], {"calls": [GREET]}).wait(timeout_seconds=60).status == "completed"


def test_modules_are_given_as_they_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "local_module.py").write_text(
        "from acts_celery import activity\n\n@activity\ndef from_a_module(x: int) -> int:\n    return x + 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("local_module")
    with local([module]) as client:
        call = {"_tool": "from_a_module", "x": 1, "_outputPath": "†state.y"}
        assert client.submit([], {"calls": [call]}).wait(timeout_seconds=60).data()["state"] == {"y": 2}
    with pytest.raises(ActivitiesError, match="json registers no activity: put @activity above"), local([json]):
        pass


# A model of a test: its answers, its errors, and what it was asked (`acts.model`).

SECONDS = 60
ORDERS = {"A-1": 30}


@activity
def fake_find(order: str) -> int:
    """Find the total of an order.

    Args:
        order: Its number.
    """
    return ORDERS[order]


FOUND = {"_tool": "fake_find", "order": "A-1", "_outputPath": "†state.total"}


def answers_of(fake: FakeModel, times: int) -> list[Any]:
    asked = ([{"role": "user", "content": "?"}], None, {"model": "m"})
    return [asyncio.run(fake.answer(*asked)) for _ in range(times)]


def test_answers_come_in_their_order_and_what_was_asked_is_kept(acts: LocalClient) -> None:
    fake = acts.model({"calls": [FOUND]}, {"output": "†state.total"})
    run = acts.submit(["What does A-1 cost?"], schema=int, tools=[fake_find])
    assert run.wait(timeout_seconds=SECONDS).output == 30
    first, second = fake.requests
    assert "What does A-1 cost?" in first.text
    assert "Find the total of an order." in first.text
    assert "30" in second.text.removeprefix(first.text)
    assert first.schema["properties"].keys() == {"calls", "output"}


def test_a_function_sees_the_request_and_the_last_one_answers_all_that_follow(acts: LocalClient) -> None:
    def say(messages: list[dict[str, Any]], schema: Any, config: dict[str, Any]) -> dict[str, Any]:
        return {"output": [len(messages), config["model"]]}

    async def refuse(*_: Any) -> Exception:
        return Refused("no")

    fake = acts.model(refuse, say)
    runs = [acts.submit(["Count."], schema={}, config={"model": "gpt-5"}) for _ in range(3)]
    outputs = [run.wait(timeout_seconds=SECONDS).output for run in runs]
    assert [each[1] for each in outputs] == ["gpt-5"] * 3
    assert len(fake.requests) == 4  # one loop was refused once and asked again


def test_errors_are_raised_and_what_may_pass_is_asked_again(acts: LocalClient) -> None:
    usage = Usage(12, 3)
    fake = acts.model(
        RateLimited("not now", retry_after_seconds=0.01), '{"output": ', Answer('{"output": 1}', "told-1", usage)
    )
    result = acts.submit(["One."], schema={}).wait(timeout_seconds=SECONDS)
    assert (result.status, result.output, len(fake.requests)) == ("completed", 1, 3)
    assert result.ticks is not None
    assert (result.ticks[-1].model, result.ticks[-1].usage) == ("told-1", usage.to_dict())


def test_a_model_that_is_asked_more_often_than_it_has_answers_says_so(acts: LocalClient) -> None:
    acts.model({"calls": []})
    result = acts.submit(["One."], schema=int).wait(timeout_seconds=SECONDS)
    assert result.status == "failed"
    assert "has given this model 1 answer, and" in str(result.reason)


def test_one_with_a_name_stands_in_for_that_model_and_its_fallbacks_are_asked_as_ever() -> None:
    real = {"model": "openai:gpt-5", "api_key": "k"}
    with local(models={"a": {**real, "fallbacks": ["b"]}, "b": real}) as client:
        busy = client.model(RateLimited("busy"), name="a")
        other = client.model({"output": "b"}, name="b")
        run = client.submit(["?"], schema={}, config={"model": "a"})
        assert run.wait(timeout_seconds=SECONDS).output == "b"
        assert (len(busy.requests), len(other.requests)) == (1, 1)
        later = client.model({"output": "later"}, name="a")
        run = client.submit(["?"], schema={}, config={"model": "a"})
        assert run.wait(timeout_seconds=SECONDS).output == "later"
        assert len(later.requests) == 1


def test_it_answers_for_delegates_too_and_is_forgotten_with_the_test(acts: LocalClient) -> None:
    @model("fake_house")
    def house(*_: Any) -> Any:
        raise AssertionError("the test's model is asked")

    before = dict(registry.models)
    fake = acts.model({"output": "Hello"})
    call = {"_tool": "translate", "text": "Привет", "_outputPath": "†state.english"}
    translator = {"context": [{"type": "system", "message": "You translate."}], "schema": {}}
    run = acts.submit(
        [],
        {"calls": [call]},
        tools={"translate": {"type": "object", "properties": {"_delegate": {"const": "translator"}, "text": {}}}},
        delegates={"translator": translator | {"config": {"model": "fake_house"}}},
    )
    assert run.wait(timeout_seconds=SECONDS).data()["state"] == {"english": "Hello"}
    assert "Привет" in fake.requests[0].text
    assert registry.models == before


def test_no_answer_at_all_is_refused(acts: LocalClient) -> None:
    with pytest.raises(ValueError, match="at least one answer"):
        acts.model()


def test_a_function_in_the_midst_answers_once() -> None:
    fake = FakeModel([lambda *_: "a", "b"])
    assert [one.text for one in answers_of(fake, 2)] == ["a", "b"]
    with pytest.raises(BadRequest, match="2 answers"):
        answers_of(fake, 1)


def test_a_recording_is_made_of_the_model_of_the_settings_and_then_answers_without_it(tmp_path: Path) -> None:
    script, file = tmp_path / "script.json", tmp_path / "recorded.jsonl"
    answers = [{"when": "Write", "answer": {"calls": [FOUND]}, "times": 1}, {"when": "Write", "output": "†state.total"}]
    script.write_text(json.dumps(answers), encoding="utf-8")

    def outcome(client: LocalClient) -> Any:
        fake = client.recorded(file)
        run = client.submit(["Write the total of A-1."], schema=int, tools=[fake_find])
        result = run.wait(timeout_seconds=SECONDS)
        return result.output, result.reason, len(fake.requests)

    with local(model=f"scripted:{script}") as client:
        client.records = True
        assert outcome(client) == (30, None, 2)
    with local() as client:
        assert outcome(client) == (30, None, 2)
        ORDERS["A-1"] = 31
        try:
            output, reason, _ = outcome(client)
        finally:
            ORDERS["A-1"] = 30
        assert output is None
        assert "of 2 recorded requests the nearest is number 2" in reason
        with pytest.raises(WorkerError, match=r"nothing is recorded in none.jsonl yet: run pytest --acts-record once"):
            client.recorded("none.jsonl")
        client.records = True
        with pytest.raises(WorkerError, match=r"there is no model to record in .*recorded\.jsonl: set ACTS_MODEL"):
            client.recorded(file)


def test_pytest_has_an_option_by_which_recordings_are_made(pytestconfig: pytest.Config, acts: LocalClient) -> None:
    assert pytestconfig.getoption("--acts-record") is acts.records is False


def test_tools_may_go_as_functions_and_what_was_said_beside_them_is_recorded_too(tmp_path: Path) -> None:
    native = {"model": "openai:gpt-5", "api_key": "k", "wire": "tools"}
    document = {"context": [{"type": "text", "message": "The total of A-1?"}], "tools": ["fake_find"]}
    document |= {"schema": {"type": "integer"}, "config": {"model": "a"}}
    file = tmp_path / "answers.json"
    with local(models={"a": native}) as client:
        first = Answer(json.dumps({"calls": [FOUND]}), "told-1", words="I look it up.")
        fake = client.model(first, {"output": 30})
        run = client.submit_document(document)
        assert run.wait(timeout_seconds=SECONDS).output == 30
        assert "I look it up." in fake.requests[1].text
        assert fake.requests[1].messages[-1]["role"] == "tool"
        file.write_text(run.script(), encoding="utf-8")
        again = client.recorded(file)
        run = client.submit_document(document)
        assert run.wait(timeout_seconds=SECONDS).output == 30
        assert again.requests == fake.requests


def test_it_gives_the_results_of_calls_that_no_code_carries_out(acts: LocalClient) -> None:
    acts.model({"output": "a summary"})
    call = {"_tool": "fake_sum_up", "text": "long", "_outputPath": "†state.sum"}
    run = acts.submit([], {"calls": [call]}, tools={"fake_sum_up": {"type": "object"}})
    assert run.wait(timeout_seconds=SECONDS).data()["state"] == {"sum": "a summary"}


def test_a_call_runs_while_the_rest_of_an_answer_in_pieces_is_held_back(acts: LocalClient) -> None:
    def slowly(*_: Any) -> Iterator[Any]:
        yield json.dumps({"calls": [FOUND]}).removesuffix("]}")
        assert found.wait(SECONDS)
        yield '], "output": "†state.total"}'
        yield Usage(12, 3)

    found = Event()
    acts.model(slowly)
    run = acts.submit(["The total of A-1?"], schema=int, tools=[fake_find])
    for event in run.follow(timeout_seconds=SECONDS):
        if event.kind == "call":
            found.set()
    result = run.result()
    assert result.ticks is not None
    assert (result.output, result.ticks[0].usage) == (30, Usage(12, 3).to_dict())


def test_pieces_of_a_text_are_told_as_they_come(acts: LocalClient) -> None:
    async def slowly(*_: Any) -> AsyncIterator[str]:
        yield '{"output": "Hello'
        await asyncio.to_thread(told.wait, SECONDS)
        yield ', world"}'

    told = Event()
    acts.model(slowly)
    run = acts.submit(["Hi!"], schema=str)
    for event in run.follow(timeout_seconds=SECONDS):
        if event.kind == "text":
            assert event.text == "Hello" or told.is_set()
            told.set()
    assert (told.is_set(), run.result().output) == (True, "Hello, world")


def test_a_stream_that_breaks_off_behind_a_call_is_not_asked_again_and_the_call_counts(acts: LocalClient) -> None:
    async def breaks(*_: Any) -> AsyncIterator[Any]:
        yield json.dumps({"calls": [FOUND]}).removesuffix("]}")
        yield Usage(12, 3)
        await asyncio.to_thread(found.wait, SECONDS)
        raise Unreachable("gone")

    found = Event()
    fake = acts.model(breaks, {"output": "†state.total"})
    run = acts.submit(["The total of A-1?"], schema=int, tools=[fake_find])
    for event in run.follow(timeout_seconds=SECONDS):
        if event.kind == "call":
            found.set()
    result = run.result()
    assert (result.output, len(result.calls), len(fake.requests)) == (30, 1, 2)
    assert result.ticks is not None
    assert result.ticks[0].usage == Usage(12, 3).to_dict()
    assert "the answer broke off: gone" in fake.requests[1].text


def test_a_piece_that_is_no_text_is_the_error_of_its_tick(acts: LocalClient) -> None:
    def odd(*_: Any) -> Iterator[Any]:
        yield {"output": 1}

    fake = acts.model(odd, {"output": 1})
    assert acts.submit(["One?"], schema=int).wait(timeout_seconds=SECONDS).output == 1
    assert "a piece of an answer is a text, or its Usage: dict" in fake.requests[1].text


@pytest.fixture
def _models_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTS_MODEL", "openai:gpt-5")
    monkeypatch.setenv("ACTS_MODELS", json.dumps({"a": {"model": "scripted:nowhere.json"}}))


@pytest.mark.usefixtures("_models_that_cannot_be_had")
def test_the_models_of_the_settings_need_not_be_there_where_others_stand_in(acts: LocalClient) -> None:
    run = acts.submit(["?"], schema={}, config={"model": "a"})
    reason = str(run.wait(timeout_seconds=SECONDS).reason)
    assert "nowhere.json" in reason  # it is said where one is asked
    acts.model({"output": 1}, {"output": 1})
    for config in ({}, {"model": "a"}):
        assert acts.submit(["?"], schema={}, config=config).wait(timeout_seconds=SECONDS).output == 1
