"""Settings are read in a clean place: no .env of the developer's."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Go to an empty directory; return it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
