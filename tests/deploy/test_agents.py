"""The examples of agents run offline, as their page says, and are drawn as it shows them."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.pages import run_page
from tests.environment import without_settings

from .agents import FOLDER, NAMES, picture

PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_page_of_the_agents_prints_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    shutil.copytree(FOLDER, folder)
    run_page(PAGE, folder)


@pytest.mark.parametrize("name", NAMES)
def test_an_examples_run_is_drawn_on_the_page(name: str) -> None:
    assert f"```mermaid {name}\n{picture(name)}\n```" in PAGE


def test_a_person_at_the_terminal_is_asked(tmp_path: Path) -> None:
    """`acts run` of the refund: each call is shown with what it will run with; the first is let run, no other is."""
    ours, theirs = pty.openpty()
    environment = without_settings()
    environment |= {"ACTS_ACTIVITIES": "agents.py", "ACTS_MODEL": "scripted:refund.answers.json", "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-m", "acts_celery", "run", "refund.json"],
        cwd=FOLDER,
        env=environment,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    answers = iter([b"y\n", b"n\n"])
    with suppress(OSError):  # the terminal's end, when the process has left it
        while piece := os.read(ours, 4096):
            shown += piece
            if shown.endswith(b"why not: "):
                os.write(ours, next(answers, b"the till is closed\n"))
    os.close(ours)
    printed = process.communicate(timeout=60)[0].decode()
    assert shown.count(b"amount: 40") == 4  # in each tick, until three in a row were the same
    assert "payBack (global): ValueError: the card of A-17 is expired" in printed
    assert "giveCredit (global): Rejected: the till is closed" in printed
    assert "the last 3 ticks were the same" in printed


def test_where_there_is_no_terminal_a_held_call_ends_the_embedded_run_with_what_to_do(tmp_path: Path) -> None:
    environment = without_settings()
    done = subprocess.run(
        [sys.executable, "-m", "acts_celery", "run", "refund.json", "--activities", "agents.py"],
        cwd=FOLDER,
        env=environment | {"ACTS_MODEL": "scripted:refund.answers.json"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    assert "there is no terminal to ask at" in done.stderr
