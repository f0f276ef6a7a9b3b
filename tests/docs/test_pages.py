"""The pages that are walked through do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import ROOT, run_page


@pytest.mark.parametrize("name", ["tutorial", "how-to"])
def test_a_page_prints_what_it_says(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    run_page((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), folder)
