"""The pages for users stay short, and are written as people write."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from .pages import ROOT

MOST_WORDS: Final = 45_450
"""Words of all pages for users together, without code and without the tables that commands write."""
FOR_MAINTAINERS: Final = ("architecture.md", "rules.md")
PAGES: Final = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in FOR_MAINTAINERS),
]
_MADE: Final = re.compile(r"<!-- (names|findings|settings|figures): .*?<!-- end of \1 -->", re.DOTALL)
_BLOCK: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_UNUSUAL: Final = re.compile(
    r"\b(whoever|of one's own|carr(?:y|ies|ied|ying)(?: it| them)? out|comes of it|(?:is|are) told|stands|that of)\b",
    re.IGNORECASE,
)


def text(page: Path) -> str:
    """What there is to read on a page: neither blocks of code, nor what a command has written."""
    return _BLOCK.sub("", _MADE.sub("", page.read_text(encoding="utf-8")))


def test_the_pages_for_users_stay_short() -> None:
    counts = {str(page.relative_to(ROOT)): len(text(page).split()) for page in PAGES}
    assert sum(counts.values()) <= MOST_WORDS, counts


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs" / "rules.md"], ids=lambda page: page.name)
def test_a_page_has_none_of_the_words_that_make_readers_stumble(page: Path) -> None:
    lines = enumerate(re.sub(r"`[^`\n]*`", "", text(page)).splitlines(), 1)
    assert [(number, *found) for number, line in lines if (found := _UNUSUAL.findall(line))] == []
