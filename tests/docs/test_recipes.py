"""The recipes name files that exist, and names that the code has."""

from __future__ import annotations

import re

from .pages import ROOT

PAGE = (ROOT / "docs" / "internals" / "recipes.md").read_text("utf-8")


def test_every_file_that_is_named_exists() -> None:
    named = set(re.findall(r"`([a-z_]+/[\w./]+)`", PAGE))
    assert len(named) > 25
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_every_class_and_table_that_is_named_exists() -> None:
    code = "".join(
        path.read_text("utf-8")
        for room in ("protocol", "worker", "broker_config")
        for path in (ROOT / room).rglob("*.py")
    )
    named = set(re.findall(r"`(_?[A-Z]\w+)`", PAGE)) - {"CallNoted", "VERSION"}
    assert sorted(name for name in named if not re.search(rf"\b{name}\b", code)) == []
