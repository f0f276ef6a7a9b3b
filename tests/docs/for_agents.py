"""Makes what coding agents read from the pages: llms.txt, an index, and a skill, the least needed to write plans."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from .site import DOCS, INDEX, groups

LLMS: Final = DOCS / "llms.txt"
SKILL: Final = DOCS / "skills" / "acts-celery" / "SKILL.md"
_ROOT: Final = DOCS.parent
_DESCRIPTION: Final = (
    "Write, check, run and debug plans with acts-celery: batches of Celery tasks over many rows, and agents whose "
    "calls are checked and approved. Use it when a project imports acts_celery or has files for the command acts."
)
_TAKEN: Final = (
    (_ROOT / "README.md", "A plan for every row"),
    (_ROOT / "README.md", "What a plan looks like"),
    (_ROOT / "README.md", "An agent that asks before it acts"),
    (_ROOT / "README.md", "On servers"),
    (DOCS / "reference.md", "References"),
    (DOCS / "reference.md", "A call"),
    (DOCS / "reference.md", "Where results go"),
    (DOCS / "reference.md", "Who waits for whom"),
    (DOCS / "how-to.md", "Find out what happened"),
)
"""The sections that the skill consists of."""


def llms_text() -> str:
    """The index for language models, in the form of llmstxt.org."""
    lines = ["# acts-celery", "", f"> {_summary()}"]
    for name, pages in groups(INDEX.read_text(encoding="utf-8")):
        lines += ["", f"## {name}", "", *(f"- [{title}]({file}): {what}" for title, file, what in pages)]
    return "\n".join(lines) + "\n"


def skill() -> str:
    """The skill, with the index at its end."""
    lines = ["---", "name: acts-celery", f"description: {_DESCRIPTION}", "---", "", "# acts-celery", "", _summary(), ""]
    for page, heading in _TAKEN:
        lines += [f"## {heading}", "", _section(page, heading), ""]
    lines += ["## Read more", ""]
    for _, pages in groups(INDEX.read_text(encoding="utf-8")):
        lines += [f"- [{title}](../../{file}): {what}" for title, file, what in pages]
    return "\n".join(lines) + "\n"


def _summary() -> str:
    found = re.search(r"\*\*(.+?)\*\*", INDEX.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return " ".join(found[1].split())


def _section(page: Path, heading: str) -> str:
    """The text below a heading, with its links as they lead from the skill's folder."""
    text = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0].strip()
    assert text, heading
    return re.sub(r"\]\(([^)]+)\)", lambda found: f"]({_from_skill(page, found[1])})", text)


def _from_skill(page: Path, target: str) -> str:
    """A link of a page, as it leads from the skill's folder."""
    if "://" in target:
        return target
    file, _, anchor = target.partition("#")
    path = os.path.relpath(page.parent / file if file else page, SKILL.parent)
    return f"{path}#{anchor}" if anchor else path
