"""The reference documents every key of `acts check --json`, and no other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OPEN = frozenset({"simulation.global", "simulation.instances", "simulation.calls[].error", "promised[].schema"})
"""Keys whose values are data, with keys of their own."""
READER = {"_tool": "t", "value": "†state.b", "_outputPath": "†data.c", "_scopes": ["input"]}
VALID: dict[str, Any] = {
    "context": [{"type": "state", "a": 1}, {"type": "input", "schema": {"properties": {"later": {}}}}],
    "tools": {"t": {"properties": {"_delegate": {}}}},
    "solution": {
        "calls": [
            {
                "_tool": "t",
                "value": "†state.a",
                "_outputPath": "†state.b || †state.c",
                "_scopes": ["state"],
            },
            {**READER, "_delegate": "anonymous"},
            {**READER, "_delegate": "anonymous", "value": 1},
        ]
    },
}
INVALID = {"tools": {"t": {}}, "solution": {"calls": [READER]}}


def keys(value: Any, at: str = "") -> Iterator[str]:
    """The places in a document, as the reference writes them: `errors[].pointer`."""
    if isinstance(value, dict) and at not in OPEN:
        for key, below in value.items():
            yield from keys(below, f"{at}.{key}" if at else key)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from keys(item, f"{at}[]")
    elif not value and at in ("errors", "findings"):
        return  # the other document has some
    else:
        yield at


def checked(folder: Path, submission: Any, *arguments: str) -> Any:
    (folder / "submission.json").write_text(json.dumps(submission), encoding="utf-8")
    (folder / "answers.json").write_text("[]", encoding="utf-8")
    command = [sys.executable, "-m", "acts_celery", "check", "submission.json", "--json", *arguments]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "ACTS_MODEL": "scripted:answers.json"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == (0 if submission is VALID else 2), done.stderr
    return json.loads(done.stdout)


def test_every_key_of_the_machine_output_is_documented(tmp_path: Path) -> None:
    whole = checked(tmp_path, VALID, "--mermaid", "--simulate", "--who-sees", "†state.a")
    found = {*keys(whole), *keys(checked(tmp_path, INVALID))}
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    section = reference.partition("\n## `acts check --json`\n")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `((?!ACT\d)[\w.\[\]]+)` \|", section, re.MULTILINE)
    assert sorted(documented) == sorted(found)
