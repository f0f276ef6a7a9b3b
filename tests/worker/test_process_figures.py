"""Figures of a worker's process: each call, attempt, run and answer of a model is counted once, by a bounded number of
names.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from acts_celery import local
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.process import Tokens
from acts_celery.worker.telemetry.process_figures import OTHER, ProcessFigures

from .backend import DEADLINE_SECONDS, Backend, Meeting, ended, meeting_url, settings_for
from .figures import Page, free_port, page, page_until, value

PRICE = '{"input": 1, "output": 2}'


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server, model_price=PRICE), Meeting(meeting_url(server)), tmp_path)


def add(a: int) -> int:
    return a


def total(found: Page, name: str) -> float:
    return sum(number for (sample, _), number in found.items() if sample == name)


def test_calls_attempts_waits_commits_and_runs_are_counted_once_where_they_end(backend: Backend) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    calls: list[dict[str, Any]] = [
        {"_tool": "failTwice", "name": "figures", "_outputPath": "†state.mended"},
        {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.sum"},
        {"_tool": "explode", "_outputPath": "†state.no"},
        {"_tool": "echo", "value": "†state.no", "_outputPath": "†state.never"},
        {"_tool": "noteAndFail", "name": "figures"},
    ]
    with backend.worker("--metrics-port", str(port)):
        assert backend.run(calls).status == "failed"
        found = page_until(
            url,
            lambda one: (
                value(one, "acts_runs_ended_total", status="failed") == 1
                and value(one, "acts_attempts_total", tool="noteAndFail", outcome="failed") == 1
            ),
        )
    assert {key: number for key, number in found.items() if key[0] == "acts_calls_total"} == {
        ("acts_calls_total", frozenset({("tool", tool), ("status", status)})): 1
        for tool, status in (
            ("failTwice", "done"),
            ("remoteAdd", "done"),
            ("explode", "failed"),
            ("echo", "skipped"),
            ("noteAndFail", "sent"),
        )
    }
    assert value(found, "acts_attempts_total", tool="failTwice", outcome="retried") == 2
    assert value(found, "acts_attempts_total", tool="failTwice", outcome="done") == 1
    assert value(found, "acts_attempt_seconds_count", tool="failTwice") == 3
    assert value(found, "acts_wait_seconds_count", queue="lathe", tool="remoteAdd") == 1
    assert value(found, "acts_wait_seconds_count", queue="background", tool="noteAndFail") == 1
    assert value(found, "acts_wait_seconds_count", queue="instances", tool="") >= 1
    assert value(found, "acts_commit_seconds_count") >= 3
    assert value(found, "acts_serves_queue", queue="lathe") == 1
    assert total(found, "acts_attempts_at_work") == 0
    assert total(found, "acts_runs_ended_total") == 1


def test_what_is_at_work_and_in_hand_is_shown_until_it_has_ended(backend: Backend) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    call = {"_tool": "remoteWait", "gate": "figures", "_outputPath": "†state.a"}
    with backend.worker("--metrics-port", str(port)):
        run = backend.client.submit([], {"calls": [call]})
        found = page_until(url, lambda one: value(one, "acts_attempts_at_work", tool="remoteWait") == 1)
        assert value(found, "acts_tasks_in_hand", queue="lathe") == 1
        backend.meeting.open_gate("figures")
        backend.wait(run.id)
        page_until(
            url,
            lambda one: (
                value(one, "acts_attempts_at_work", tool="remoteWait") == 0
                and value(one, "acts_tasks_in_hand", queue="lathe") == 0
            ),
        )


def test_answers_of_models_are_counted_with_their_tokens_and_their_price(backend: Backend) -> None:
    port = free_port()
    call = {"_tool": "say", "text": "Bonjour", "_outputPath": "†state.english"}
    tools = {
        "say": {"type": "object", "properties": {"_delegate": {"const": "translator"}, "text": {"type": "string"}}}
    }
    delegates = {"translator": {"context": [{"type": "system", "message": "Translate."}], "schema": {}}}
    with backend.worker("--metrics-port", str(port)):
        assert backend.run([call], tools=tools, delegates=delegates).status == "completed"
        found = page(f"http://127.0.0.1:{port}/metrics")
    (name,) = {dict(labels)["model"] for sample, labels in found if sample == "acts_model_requests_total"}
    assert value(found, "acts_model_requests_total", model=name, outcome="answered") == 1
    assert value(found, "acts_model_request_seconds_count", model=name) == 1
    paid = value(found, "acts_model_dollars_total", model=name)
    unpriced = value(found, "acts_model_unpriced_requests_total", model=name)
    assert (paid > 0) != (unpriced == 1), found


def test_tokens_are_counted_by_kind_and_none_twice() -> None:
    registry = CollectorRegistry()
    figures = ProcessFigures(registry, ())
    figures.model_answered("m", Tokens(input=70, cached=30, output=5), nanodollars=2_000_000_000, seconds=1.5)
    figures.model_answered("m", None, nanodollars=None, seconds=0.5)
    figures.model_failed("m", "RateLimited")
    sample = registry.get_sample_value
    kinds = {kind: sample("acts_model_tokens_total", {"model": "m", "kind": kind}) for kind in Tokens._fields}
    assert kinds == {"input": 70, "cached": 30, "output": 5}
    assert sample("acts_model_dollars_total", {"model": "m"}) == 2
    assert sample("acts_model_unpriced_requests_total", {"model": "m"}) == 1
    assert sample("acts_model_requests_total", {"model": "m", "outcome": "RateLimited"}) == 1


def test_made_up_names_of_tools_models_and_queues_make_no_more_series_than_a_bounded_number() -> None:
    registry = CollectorRegistry()
    figures = ProcessFigures(registry, ())
    for number in range(5_000):
        name = f"tool-{number}" if number % 2 else f'"\n{number}'
        figures.call_ended(name, "done")
        figures.attempt_began(name)
        figures.attempt_ended(name, "done", 0.1)
        figures.waited(name, name, 0.1)
        figures.model_answered(name, None, None, 0.1)
    text = generate_latest(registry).decode()
    assert text.count("\nacts_calls_total{") == 201
    assert text.count("\nacts_model_requests_total{") == 51
    assert text.count("\n") < 20_000
    assert registry.get_sample_value("acts_calls_total", {"tool": OTHER, "status": "done"}) == 5_000 - 200


def test_each_of_several_processes_shows_its_own_figures_on_a_port_of_its_own(backend: Backend) -> None:
    port = free_port(following=1)
    command = [sys.executable, "-m", "acts_celery", "worker", "--json", "--processes", "2"]
    environment = backend.environment(ACTS_METRICS_PORT=str(port))
    with backend.log.open("wb") as log, ended(command, environment, backend.folder, log) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), backend.log.read_text()
        context = [{"type": "state", "_instance": f"n{number}", "a": number} for number in range(40)]
        call = {"_tool": "add", "a": "†state.a", "b": 1, "_outputPath": "†state.b"}
        backend.wait(backend.client.submit([*context, {"type": "plan", "calls": [call]}]).id)
        deadline, ended_calls = time.monotonic() + DEADLINE_SECONDS, 0.0
        while ended_calls < 40:  # a process counts what it has committed, after its end can be seen
            assert time.monotonic() < deadline, ended_calls
            pages = [page(f"http://127.0.0.1:{port + number}/metrics") for number in (0, 1)]
            ended_calls = sum(value(found, "acts_calls_total", tool="add", status="done") for found in pages)
    assert ended_calls == 40


def refused(backend: Backend, *arguments: str, **environment: str) -> tuple[int, str]:
    """How a command ends that does not start, and what it says."""
    finished = subprocess.run(
        [sys.executable, "-m", "acts_celery", *arguments],
        env=backend.environment(**environment),
        cwd=backend.folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return finished.returncode, finished.stderr


@pytest.mark.nightly
def test_a_worker_whose_figures_cannot_be_shown_does_not_start_and_says_what_to_do(backend: Backend) -> None:
    port = str(free_port())
    with backend.worker("--metrics-port", port):
        for command in (("worker", "--processes", "1", "--metrics-port", port), ("metrics", "--port", port)):
            code, said = refused(backend, *command)
            assert (code, "name another port or address" in said) == (3, True), said
    code, said = refused(backend, "worker", "--pool", "prefork", "--metrics-port", port)
    assert (code, "take another pool" in said) == (3, True), said


@pytest.mark.nightly
def test_a_worker_that_a_command_or_a_test_brings_along_leaves_the_port_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("ACTS_METRICS_PORT", str(taken.getsockname()[1]))
        with local([add]) as client:
            assert client.submit(
                [], {"calls": [{"_tool": "add", "a": 1, "_outputPath": "†state.b"}]}
            ).wait().status == ("completed")
        (tmp_path / "own.py").write_text(
            "from acts_celery import activity\n\n@activity\ndef one() -> int:\n    return 1\n"
        )
        (tmp_path / "own.json").write_text('{"calls": [{"_tool": "one", "_outputPath": "†state.one"}]}')
        command = [sys.executable, "-m", "acts_celery", "run", "own.json", "--activities", "own.py"]
        finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.nightly
def test_without_the_extra_a_port_is_refused_with_what_to_install(backend: Backend, tmp_path: Path) -> None:
    package = tmp_path / "without" / "prometheus_client"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not installed')\n")
    path = {"PYTHONPATH": f"{package.parent}:{backend.environment()['PYTHONPATH']}"}
    for command in (("worker", "--processes", "1", "--metrics-port", "1"), ("metrics", "--port", "1")):
        code, said = refused(backend, *command, **path)
        assert (code, "pip install 'acts-celery[metrics]'" in said) == (3, True), said


@pytest.mark.nightly
def test_a_worker_without_a_port_loads_nothing_for_figures(backend: Backend) -> None:
    code = (
        "import sys; from acts_celery.celery import app; app.Worker(pool='solo'); "
        "print('prometheus_client' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=backend.environment(),
        cwd=backend.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.strip().splitlines()[-1].lower()) is False


def test_what_the_process_carries_out_has_its_name_whatever_others_have_made_up() -> None:
    registry = CollectorRegistry()
    figures = ProcessFigures(registry, (), ["order"])
    for number in range(300):
        figures.call_ended(f"alias-{number}", "done")
    figures.call_ended("order", "done")
    assert registry.get_sample_value("acts_calls_total", {"tool": "order", "status": "done"}) == 1
    assert registry.get_sample_value("acts_calls_total", {"tool": OTHER, "status": "done"}) == 100
