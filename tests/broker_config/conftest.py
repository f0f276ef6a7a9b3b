"""Settings are read in a clean place: no variable of ours, no .env of the developer's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.environment import remove_settings


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Go to an empty directory without any ACTS_ variable; return the directory."""
    remove_settings(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path
