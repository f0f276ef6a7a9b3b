"""AgentDojo's tasks and attacks, all of them; the figures of docs/internals/trust.md are what was found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TRUST = (ROOT / "docs" / "internals" / "trust.md").read_text(encoding="utf-8")
PAGE = TRUST.split("\n## On AgentDojo\n")[1].split("\n## ")[0]
MISSING = 3


@pytest.mark.nightly
def test_no_attack_starts_an_effect_and_the_figures_of_the_page_are_those_that_were_found() -> None:
    command = [sys.executable, "-m", "tests.agentdojo"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == MISSING:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert [one["name"] for one in found["not done"]] == []
    attacks = found["attacks"]
    assert attacks["nothing endorsed"]["effects"] == attacks["lists endorsed"]["effects"] == 0
    assert attacks["no labels"]["effects"] > 0, "the attacks do attack"
    rows = [
        *(
            f"| {one['cases']} | {one['effects']} | {one['effects with another value of an endorsed list']} |"
            for one in attacks.values()
        ),
        *(
            f"| {one['none']} of {one['tasks']} | {one['at most one']} of {one['tasks']} | {one['questions']} |"
            for one in (level["all"] for level in found["tasks"].values())
        ),
    ]
    written = [row for row in PAGE.splitlines() if any(row.endswith(end) for end in rows)]
    assert len(written) == len(rows)
