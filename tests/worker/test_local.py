"""`local()` and the fixture `acts`: a server and a worker for a test or a notebook."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import celery
import kombu.compression
import pytest
from celery import signals
from kombu import pools

from acts_celery import ActivitiesError, Client, InfrastructureError, activity, local
from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.worker.registry.activities import Policy, Registry, make_activity, registry
from acts_celery.worker.registry.models import ModelRequest
from acts_celery.worker.runner.application import make_application
from tests.models.server import model_server, streamed

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
