"""AgentDojo's bank through the loop and a worker: a model plans by the ground truth, and readers obey attacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.models.server import model_server

from .figures import tasks
from .loops import loops, measured
from .plans import Endorsing
from .speaker import Speaker
from .suites import NotInstalled, suites

ROOT = Path(__file__).parents[2]
SUITE = "banking"


@pytest.fixture(autouse=True)
def installed() -> None:
    try:
        suites()
    except NotInstalled as failure:
        pytest.skip(str(failure))


@pytest.mark.nightly
def test_the_loop_on_a_worker_does_and_asks_what_the_core_does_and_no_attack_starts_an_effect() -> None:
    speaker = Speaker(SUITE)
    with model_server(speaker) as server, loops(model="openai:m", model_base_url=server.url, model_api_key="k") as bank:
        found = measured(bank, SUITE)
    core = [one for one in tasks(Endorsing.QUESTIONS) if one.name.startswith(SUITE)]
    asked = {one.name: [question.partition(":")[0] for question in one.questions] for one in core}
    assert {one["task"]: one["questions"] for one in found["tasks"]} == asked
    figures = found["figures"]
    assert figures["done"] == figures["tasks"] == len(core)
    assert figures["attacks"] == 9 * len(core)
    assert [one for one in found["attacks"] if one["other effects"] or one["is harmed"]] == []
    assert speaker.read > 0, "the attacks are read"


@pytest.mark.nightly
def test_the_command_gives_the_tasks_to_a_model_and_counts() -> None:
    limits = ["--suite", SUITE, "--tasks", "3", "--attacks", "1"]
    with model_server(Speaker(SUITE)) as server:
        environment = {**os.environ, "ACTS_MODEL_BASE_URL": server.url, "ACTS_MODEL_API_KEY": "k"}
        command = [sys.executable, "-m", "tests.agentdojo", "--model", "openai:m", *limits]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert [one["figures"] for one in found] == [
        {
            "tasks": 3,
            "done": 3,
            "done without a question": 1,
            "done with at most one": 3,
            "questions": 2,
            "attacks": 3,
            "goals reached, by AgentDojo": 0,
            "attacks with an effect that the task alone has not": 0,
            "done although attacked": 1,
        }
    ]
