"""`acts check --runs` holds the runs under way against code that is not deployed yet (SPEC R17.2)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol.analysis.deployment import Coming
from acts_celery.protocol.calls.declarations import Contract
from acts_celery.worker.client.deployments import Deployments
from acts_celery.worker.store.keys import Keys
from tests.acceptance.command import Finished

from .backend import Backend, Meeting, meeting_url, settings_for
from .test_control_cli import command

Json = dict[str, Any]
OLD = """
from acts_celery import activity, delegate

@activity
def reckon(n: int, word: str = "") -> int:
    return 2 * n

@activity
def word_of(n: int) -> str:
    return str(n)

@delegate("sage")
def sage(context: list[dict]) -> int:
    return 42
"""
NEW = """
from acts_celery import Annotated, activity
from pydantic import Field
from typing import Annotated

@activity
def reckon(n: Annotated[int, Field(le=10)], word: Annotated[str, Field(max_length=3)] = "") -> int:
    return 2 * n
"""
CALLS: list[Json] = [
    {"_tool": "word_of", "n": 1, "_outputPath": "†state.word"},
    {"_tool": "reckon", "n": 11, "_outputPath": "†state.a"},
    {"_tool": "reckon", "n": 3, "word": "†state.word", "_outputPath": "†state.b"},
    {"_tool": "reckon", "n": 4, "word": "ok", "_outputPath": "†state.c"},
    {"_tool": "ask", "_delegate": "sage", "_outputPath": "†state.d"},
    {"_tool": "reckon", "n": "†input.list", "_each": "n", "_outputPath": "†state.e"},
    {"_tool": "reckon", "n": 12},
]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    folder = tmp_path_factory.mktemp("runs")
    with EmbeddedServer() as server:
        (folder / "old.py").write_text(OLD, encoding="utf-8")
        (folder / "new.py").write_text(NEW.replace("Annotated, activity", "activity"), encoding="utf-8")
        yield Backend(settings_for(server, activities=(str(folder / "old.py"),)), Meeting(meeting_url(server)), folder)


def exits(code: int, finished: Finished) -> Finished:
    assert finished.code == code, finished.stderr
    return finished


def test_calls_that_will_or_may_be_refused_are_named_with_the_reason(backend: Backend) -> None:
    tools = {"ask": {"type": "object", "properties": {"_delegate": {"const": "sage"}}}}
    context: list[Json] = [{"type": "input", "list": [1, 20]}]
    run = backend.client.submit_document({"context": context, "solution": {"calls": CALLS}, "tools": tools})
    new = ("--activities", str(backend.folder / "new.py"))
    told = exits(1, command(backend, "check", "--runs", *new, "--gone", "sage", "--json"))
    found = {line["index"]: (line["refused"], line["reason"]) for line in told.json_lines}
    assert {index: refused for index, (refused, _) in found.items()} == {
        1: "will", 2: "may", 4: "will", 5: "will", 6: "will",
    }  # fmt: skip
    assert "/n" in found[1][1]
    assert "/word: what comes is string, and string (length at most 3) is taken" in found[2][1]
    assert "no code under the name 'sage'" in found[4][1]
    assert {line["run"] for line in told.json_lines} == {run.id}
    lines = exits(1, command(backend, "check", "--runs", *new)).stdout.splitlines()
    assert any(line.startswith(f"will  run {run.id} call 1 reckon: ") for line in lines)
    assert lines[-1] == "3 calls will be refused, 1 may be; 1 run under way"
    same = ("--activities", str(backend.folder / "old.py"))
    assert (
        exits(0, command(backend, "check", "--runs", *same)).stdout
        == "0 calls will be refused, 0 may be; 1 run under way\n"
    )
    run.cancel()
    assert command(backend, "check", "--runs", *new).stdout == "0 calls will be refused, 0 may be; 0 runs under way\n"


def test_calls_that_labels_of_the_new_code_hold_are_named(backend: Backend) -> None:
    labelled = OLD.replace("@activity\ndef reckon", "@activity(effects=True)\ndef reckon")
    labelled = labelled.replace("@activity\ndef word_of", '@activity(untrusted="mail")\ndef word_of')
    (backend.folder / "labelled.py").write_text(labelled, encoding="utf-8")
    run = backend.client.submit(solution={"calls": CALLS[:3]})
    other = backend.client.submit(solution={"calls": CALLS[:2]})
    new = ("--activities", str(backend.folder / "labelled.py"))
    (held,) = exits(0, command(backend, "check", "--runs", *new, "--json")).json_lines
    assert (held["run"], held["index"], held["refused"]) == (run.id, 2, "held")
    assert "'word' comes from mail" in held["reason"]
    line, summary = exits(0, command(backend, "check", "--runs", *new)).stdout.splitlines()
    assert line.startswith(f"held  run {run.id} call 2 reckon: ")
    assert summary == "0 calls will be refused, 0 may be, 1 may be held; 2 runs under way"
    run.cancel()
    other.cancel()


def test_what_was_sent_and_what_a_model_may_still_call_are_among_them(backend: Backend) -> None:
    context: list[Json] = [{"type": "state", "_instance": one} for one in ("①", "②")]
    calls: list[Json] = [{"_tool": "reckon", "n": 12, "_instance": "①"}, {"_tool": "word_of", "n": 1, "_instance": "②"}]
    calls[1]["_outputPath"] = "†state.word"
    sent = backend.client.submit(context, {"calls": calls})
    asked = backend.client.submit(["Reckon."], schema={"type": "integer"}, tools=["word_of"])
    new = ("--activities", str(backend.folder / "new.py"), "--gone", "word_of")
    told = exits(1, command(backend, "check", "--runs", *new, "--json")).json_lines
    found = {(line["run"], line["index"], line["instance"], line["code"], line["refused"]) for line in told}
    assert found == {
        (sent.id, 0, "①", "reckon", "will"),
        (sent.id, 1, "②", "word_of", "will"),
        (asked.id, None, None, "word_of", "may"),
    }
    sent.cancel()
    asked.cancel()


def test_what_a_run_that_has_ended_has_sent_is_among_them(backend: Backend) -> None:
    run = backend.client.submit([], {"calls": [{"_tool": "reckon", "n": 12}]})
    assert run.status()["status"] == "completed"
    new = ("--activities", str(backend.folder / "new.py"))
    line = f"will  run {run.id} call 0 reckon: /n: "
    assert line in exits(1, command(backend, "check", "--runs", *new)).stdout
    keys = Keys(backend.settings.key_prefix, run.id)
    backend.redis.delete(keys.outbox, keys.outbox_tasks)
    assert line not in command(backend, "check", "--runs", *new).stdout


def test_what_cannot_be_asked_is_refused(backend: Backend) -> None:
    bare = replace(backend, settings=backend.settings.model_copy(update={"activities": ()}))
    assert "needs the code" in exits(2, command(bare, "check", "--runs")).stderr
    assert "no FILE" in exits(2, command(backend, "check", "file.json", "--runs")).stderr
    assert "--gone goes with --runs" in exits(2, command(backend, "check", "file.json", "--gone", "x")).stderr
    assert "Missing argument" in exits(2, command(backend, "check")).stderr


@pytest.mark.parametrize("instances", [2_000, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_many_live_calls_are_held_against_a_contract_in_seconds(backend: Backend, instances: int) -> None:
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(instances)]
    plan = {"type": "plan", "calls": [{"_tool": "reckon", "n": "†state.n", "_outputPath": "†state.a"}]}
    run = backend.client.submit([plan, *context])
    schema = json.loads(json.dumps(backend.client.checker.registry.activities["reckon"].schema))
    schema["properties"]["n"]["maximum"] = instances - 11
    began = time.process_time()
    deployments = Deployments(backend.redis, "acts", Coming({"reckon": Contract("reckon", schema)}), lambda *_: {})
    found = list(deployments.refusals())
    took = time.process_time() - began
    run.cancel()
    assert len(found) == 10
    assert all(one.refusal.is_certain for one in found)
    assert took < max(1.0, instances / 10_000), took  # 100,000 in 10 s
