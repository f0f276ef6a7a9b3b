"""Settings are read in a clean place: no variable of ours, no .env of the developer's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acts_celery.broker_config import ENVIRONMENT_PREFIX


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Go to an empty directory without any ACTS_ variable; return the directory."""
    for name in os.environ:
        if name.upper().startswith(ENVIRONMENT_PREFIX):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
