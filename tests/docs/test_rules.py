"""The page of rules names modules and tests that are there, and leaves no rule out."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (R[\d.,R -]+) \| .* \| (.*) \| (.*) \|$", (ROOT / "docs" / "rules.md").read_text("utf-8"), re.M)


def place(name: str, package: str) -> Path:
    """A file or folder of the core or of its tests; what belongs to the worker is named from the root."""
    return ROOT / name if name.startswith(("worker/", "tests/")) else ROOT / package / name


def test_every_module_and_test_of_a_rule_is_there() -> None:
    assert len(ROWS) > 20
    for _, modules, tests in ROWS:
        for name in re.findall(r"`([^`]+)`", modules):
            assert place(name, "protocol").exists(), name
        for name in re.findall(r"`([^`]+)`", tests):
            assert place(name, "tests/protocol").is_file(), name


def test_the_modules_of_a_rule_cite_it() -> None:
    for rules, modules, _ in ROWS:
        cited = re.compile("|".join(rf"\b{rule}\b" for rule in re.findall(r"R\d+", rules)))
        for name in re.findall(r"`([^`]+\.py)`", modules):
            assert cited.search(place(name, "protocol").read_text("utf-8")), (rules, name)


def test_no_rule_of_the_core_is_left_out() -> None:
    named = {int(number) for rules, *_ in ROWS for number in re.findall(r"R(\d+)", rules)}
    assert named == set(range(1, 16))
