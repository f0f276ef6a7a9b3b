"""What docs/observe.md shows is what the commands print."""

from __future__ import annotations

from pathlib import Path

from .pages import ROOT, run_page

PAGE = (ROOT / "docs" / "observe.md").read_text(encoding="utf-8")


def test_the_page_prints_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "page").mkdir()
    run_page(PAGE, tmp_path / "page")
