"""The pages that are walked through do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from tests.environment import without_settings
from tests.few import few

from .generate import CONCEPTS, PYTHON, with_names
from .pages import ROOT, run_page
from .pictures import with_pictures

PAGES = ("python", "activities", "trust", "mcp")


@pytest.mark.parametrize(
    "name",
    ["tutorial", "how-to", "agents", "frameworks", "trust", "http", pytest.param("why", marks=pytest.mark.nightly)],
)
def test_a_page_prints_what_it_says(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    if name == "http" and which("curl") is None:
        pytest.skip("there is no curl")
    for package in ("agents", "langgraph") if name == "frameworks" else ():
        pytest.importorskip(package)
    run_page((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), folder)


@pytest.mark.parametrize("page", few((ROOT / "docs" / f"{name}.md" for name in PAGES), 3), ids=PAGES)
def test_the_examples_of_a_page_of_python_run(page: Path) -> None:
    kept = without_settings()
    command = [sys.executable, "-m", "tests.docs.python_page", str(page)]
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_the_python_page_has_every_public_name_with_its_signature() -> None:
    page = PYTHON.read_text(encoding="utf-8")
    assert page == with_names(page), "python -m tests.docs.generate"


def test_the_examples_of_the_concepts_hold_and_are_drawn_as_the_page_shows_them() -> None:
    page = CONCEPTS.read_text(encoding="utf-8")
    assert page == with_pictures(page), "python -m tests.docs.generate"
