"""AgentDojo's tasks and attacks, and the blind suites', all of them; the pages have the figures that were found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
INTERNALS = (ROOT / "docs" / "internals" / "trust.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "trust.md").read_text(encoding="utf-8").split("\n## Measured\n")[1].split("\n## ")[0]
MISSING = 3


@pytest.mark.nightly
@pytest.mark.parametrize(("options", "section"), [((), "On AgentDojo"), (("--blind",), "On two blind suites")])
def test_no_attack_starts_an_effect_and_the_figures_of_the_page_are_those_that_were_found(
    options: tuple[str, ...], section: str
) -> None:
    command = [sys.executable, "-m", "tests.agentdojo", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == MISSING:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert [one["name"] for one in found["not done"]] == []
    attacks = found["attacks"]
    assert attacks["nothing endorsed"]["effects"] == 0
    assert attacks["no labels"]["effects"] > 0, "the attacks do attack"
    rows = [
        *(
            f"| {one['cases']} | {one['effects']} | {one['effects with another value that was endorsed']} |"
            for one in attacks.values()
        ),
        *(
            f"| {one['none']} of {one['tasks']} | {one['at most one']} of {one['tasks']} | {one['questions']} |"
            for one in (level["all"] for level in found["tasks"].values())
        ),
    ]
    table = INTERNALS.split(f"\n## {section}\n")[1].split("\n## ")[0]
    written = [row for row in table.splitlines() if any(row.endswith(end) for end in rows)]
    assert len(written) == len(rows)
    said = [*found["tasks"].values()][-1]["all"]
    share = f"{attacks['all endorsed']['cases with an effect of the attacker']} of {attacks['all endorsed']['cases']}"
    assert f"| {said['none']} of {said['tasks']} | {said['at most one']} of {said['tasks']} | {share} |" in PAGE
