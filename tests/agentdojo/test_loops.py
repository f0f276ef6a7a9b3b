"""AgentDojo's bank through the loop and a worker: a model plans by the ground truth, and readers obey attacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.models.server import Reply, failing, model_server

from .figures import tasks
from .loops import Measured, loops, measure
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
    found = spoken(speaker, SUITE)
    assert len(found.attacks) == 9 * len(found.tasks)
    assert [one for one in found.attacks if one["other effects"] or one["is harmed"]] == []
    assert speaker.read > 0, "the attacks are read"


@pytest.mark.nightly
@pytest.mark.parametrize("suite", ["workspace", "travel", "slack"])
def test_the_loop_does_the_other_suites_as_the_core_does_where_nobody_attacks(suite: str) -> None:
    spoken(Speaker(suite), suite, most_attacks=0)


def spoken(speaker: Speaker, suite: str, *, most_attacks: int | None = None) -> Measured:
    """What comes of a suite where that speaker is the model; each task is done, with the questions of the core."""
    found = Measured(suite)
    with model_server(speaker) as server, loops(model="openai:m", model_base_url=server.url, model_api_key="k") as own:
        measure(own, found, most_attacks=most_attacks)
    core = [one for one in tasks(Endorsing.FIELDS) if one.name.startswith(suite)]
    asked = {one.name: [question.partition(":")[0] for question in one.questions] for one in core}
    assert {one["task"]: one["questions"] for one in found.tasks} == asked
    assert [one["task"] for one in found.tasks if not one["is done"]] == []
    return found


@pytest.mark.nightly
def test_the_command_gives_the_tasks_to_a_model_and_counts_and_repeats_it_from_a_recording(tmp_path: Path) -> None:
    limits, answers = ["--suite", SUITE, "--tasks", "3", "--attacks", "1"], tmp_path / "answers.jsonl"
    with model_server(Speaker(SUITE)) as server:
        found = measured("openai:m", server.url, *limits, "--recording", str(answers))
        asked = len(server.asked)
        assert measured("openai:m", server.url, *limits, "--recording", str(answers)) == found
        assert len(server.asked) == asked, "no model is asked twice"
    repeated = measured(f"scripted:{answers}", None, *limits)
    assert ([one["model"] for one in found], repeated[0].pop("model")) == (["openai:m"], f"scripted:{answers}")
    assert repeated == [{key: value for key, value in one.items() if key != "model"} for one in found]
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


@pytest.mark.nightly
def test_a_model_that_cannot_be_asked_is_named_in_one_line_and_nothing_goes_on() -> None:
    with model_server(lambda body: failing(404, "there is no model m")) as server:
        for model, url, why in (
            ("openai:m", None, "model openai:m: it has no key: set ACTS_MODEL_API_KEY"),
            ("other:m", server.url, "unknown provider 'other'"),
            ("openai:m", server.url, "says 404: there is no model m"),
        ):
            with asked_of(model, url) as command:
                said, told = command.communicate()
            assert (command.returncode, said) == (1, "")
            assert why in told.splitlines()[-1]
        assert len(server.asked) == 1, "it stops after the first task"


@pytest.mark.nightly
def test_ctrl_c_ends_the_command_with_what_was_found_so_far() -> None:
    speaker, goes_on = Speaker(SUITE), threading.Event()

    def answers(body: Mapping[str, Any]) -> Reply:
        """Whoever asks for the second task gets no answer, and the command is stopped."""
        reply = speaker(body)
        if speaker.task == "banking/user_task_1":
            goes_on.set()
            return replace(reply, delay_seconds=60)
        return reply

    with (
        model_server(answers) as server,
        asked_of("openai:m", server.url, "--suite", SUITE, "--attacks", "0") as command,
    ):
        assert goes_on.wait(120)
        os.killpg(command.pid, signal.SIGINT)
        said, told = command.communicate()
    assert command.returncode == 130, told
    assert "stopped: the figures are of what was done before" in told
    (found,) = json.loads(said)
    assert [one["task"] for one in found["tasks"]] == ["banking/user_task_0"]


def measured(model: str, url: str | None, *limits: str) -> list[dict[str, Any]]:
    """The figures that the command prints."""
    with asked_of(model, url, *limits) as command:
        said, told = command.communicate()
    assert command.returncode == 0, told
    found: list[dict[str, Any]] = json.loads(said)
    return found


@contextmanager
def asked_of(model: str, url: str | None, *limits: str) -> Iterator[subprocess.Popen[str]]:
    """The command with that model, in a group of its own; without a server it has no key."""
    own = {name: value for name, value in os.environ.items() if not name.endswith("API_KEY")}
    environment = {**own, **({"ACTS_MODEL_BASE_URL": url, "ACTS_MODEL_API_KEY": "k"} if url is not None else {})}
    command = [sys.executable, "-m", "tests.agentdojo", "--model", model, *limits]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, start_new_session=True, **pipes) as running:
        try:
            yield running
        finally:
            running.kill()
