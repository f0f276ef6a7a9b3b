"""The example runs by itself, and does what its README says."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.environment import without_settings

from .files import DEPLOY, ROOT

README = (DEPLOY / "examples" / "README.md").read_text(encoding="utf-8")
SUBMISSION = json.loads((DEPLOY / "examples" / "reviews.json").read_text(encoding="utf-8"))
DEADLINE_SECONDS = 60


def blocks(language: str) -> list[str]:
    """The code blocks of the README in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def outbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("example") / "outbox.jsonl"


@pytest.fixture(scope="module")
def result(outbox: Path) -> Any:
    """What README's command prints, run from the root of the tree with an outbox of our own."""
    (line,) = blocks("sh")
    assignment, program, *arguments = shlex.split(line)
    name, _, _ = assignment.partition("=")
    assert (name, program) == ("REVIEWS_OUTBOX", "acts")
    kept = without_settings()
    finished = subprocess.run(
        [sys.executable, "-m", "acts_celery", *arguments],
        capture_output=True,
        cwd=ROOT,
        env=kept | {name: str(outbox)},
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr.decode()
    return json.loads(finished.stdout)


def is_part(part: Any, whole: Any) -> bool:
    """Whether all that one value says, the other says too."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_part(part[key], whole[key]) for key in part)
    return bool(part == whole)


def test_the_output_in_the_readme_is_what_comes_out(result: Any) -> None:
    (shown,) = blocks("json")
    assert is_part(json.loads(shown), result), result["instances"]["②"]


def test_every_review_gets_one_letter_in_its_own_language(result: Any) -> None:
    states = {name: data["state"] for name, data in result["instances"].items()}
    assert {name: state["report"]["language"] for name, state in states.items()} == dict(
        zip("①②③④⑤⑥⑦⑧", ["en", "de", "fr", "ru", "es", "it", "en", "fr"], strict=True)
    )
    for state in states.values():
        assert state["language"] == state["report"]["language"]
        assert state["customer"]["name"] in state["report"]["letter"]
        assert len(state["reply"]) == len(state["verdict"]) == 1


def test_the_branch_not_taken_is_skipped_with_a_reason(result: Any) -> None:
    skipped = [call for call in result["calls"] if call["status"] == "skipped"]
    assert Counter(call["tool"] for call in skipped) == {
        "thank": 4,
        "apologise": 4,
        "rate_urgency": 4,
        "notify_support": 4,
    }
    assert all(call["reason"] for call in skipped)


def test_the_delegate_knows_its_scopes_and_parameters_alone(result: Any) -> None:
    for data in result["instances"].values():
        assert data["state"]["report"]["summary"]["knew"] == ["language", "limit", "review"]


def test_a_plan_that_asks_for_more_than_the_tool_allows_is_rejected() -> None:
    submission = json.loads(json.dumps(SUBMISSION))
    plan = next(message for message in submission["context"] if message["type"] == "plan")
    call = next(call for call in plan["calls"] if call["_tool"] == "summarize")
    call["_scopes"] = ["state"]
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "acts_celery",
            "check",
            "-",
            "--activities",
            str(DEPLOY / "examples" / "reviews.py"),
            "--json",
        ],
        input=json.dumps(submission).encode(),
        capture_output=True,
        cwd=ROOT,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert finished.returncode == 2
    errors = json.loads(finished.stdout)["errors"]
    assert any("/_scopes" in error["pointer"] for error in errors)


def test_an_override_for_one_instance_is_seen_by_that_one_alone(result: Any) -> None:
    states = {name: data["state"] for name, data in result["instances"].items()}
    lengths = {
        name: sum(sentence in state["report"]["summary"]["text"] for sentence in state["review"]["sentences"])
        for name, state in states.items()
    }
    assert lengths == {name: 1 if name == "⑤" else 2 for name in states}


def test_every_complaint_and_nothing_else_reaches_the_outbox(result: Any, outbox: Path) -> None:
    complaints = {
        data["state"]["customer"]["email"]: data["state"]["verdict"]["complaint"]["because"]
        for data in result["instances"].values()
        if "complaint" in data["state"]["verdict"]
    }
    lines = [json.loads(line) for line in outbox.read_text(encoding="utf-8").splitlines()]
    assert {line["from"]: line["because"] for line in lines} == complaints
