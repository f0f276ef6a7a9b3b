"""The index leads to each page once, and the site of the pages builds without a complaint."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .for_agents import LLMS, SKILL, llms_text, skill
from .pages import ROOT
from .site import DOCS, INDEX, groups

GROUPS = ["Start", "How to", "Understand", "Reference"]


def test_the_index_has_four_groups_and_each_page_once() -> None:
    found = dict(groups(INDEX.read_text(encoding="utf-8")))
    listed = [file for pages in found.values() for _, file, _ in pages]
    assert list(found) == GROUPS
    assert sorted(listed) == sorted(path.name for path in DOCS.glob("*.md") if path != INDEX)


@pytest.mark.nightly
def test_the_site_builds_without_a_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **nowhere}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "search" / "search_index.json").exists()
    scripts = re.findall(r'<script[^>]* src="([^"]+)"', (tmp_path / "index.html").read_text(encoding="utf-8"))
    assert scripts
    assert [script for script in scripts if "://" in script] == []
    for name in ("index.html", "python.html", "llms.txt"):
        assert (tmp_path / name).stat().st_size > 1000


def test_what_coding_agents_read_is_made_from_the_pages_as_they_are() -> None:
    for file, text in ((LLMS, llms_text()), (SKILL, skill())):
        assert file.read_text(encoding="utf-8") == text, "python -m tests.docs.generate"
