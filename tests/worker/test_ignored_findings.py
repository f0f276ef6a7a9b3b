"""`acts check` leaves out the findings that a project ignores (SPEC R6.7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from acts_celery.protocol import Plan, check_submission
from acts_celery.worker.cli.options import Failed, reported

CALL = {"_tool": "t", "_outputPath": "†state.a"}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan with a race, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return check_submission({"tools": {"t": {}}, "solution": {"calls": [CALL, CALL]}})


def codes(plan: Plan, *options: str) -> list[str]:
    return [finding.code for finding in reported(plan, options)]


def test_a_project_ignores_findings_by_code_or_by_name(plan: Plan) -> None:
    assert codes(plan) == ["ACT103"]
    for text in ('ignore = ["ACT103"]', 'ignore = ["race"]'):
        Path("pyproject.toml").write_text(f"[tool.acts]\n{text}\n", encoding="utf-8")
        assert codes(plan) == []
    Path("pyproject.toml").write_text('[tool.acts]\nignore = ["ACT201"]\n', encoding="utf-8")
    assert codes(plan) == ["ACT103"]
    assert codes(plan, "race") == []


@pytest.mark.parametrize("text", ['[tool.acts]\nignore = ["ACT000"]', "[tool.acts]\nignore = 5", "no toml"])
def test_what_cannot_be_ignored_is_said(plan: Plan, text: str) -> None:
    Path("pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(Failed, match=r"pyproject\.toml"):
        reported(plan, ())


def test_a_project_file_without_settings_ignores_nothing(plan: Plan) -> None:
    Path("pyproject.toml").write_text('[project]\nname = "x"\n', encoding="utf-8")
    assert codes(plan) == ["ACT103"]
