"""The page of rules names modules and tests that are there, and leaves no rule out."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (R[\d.,R -]+) \| .* \| (.*) \| (.*) \|$", (ROOT / "docs" / "rules.md").read_text("utf-8"), re.M)


def test_every_module_and_test_of_a_rule_is_there() -> None:
    assert len(ROWS) > 20
    for _, modules, tests in ROWS:
        for name in re.findall(r"`([^`]+)`", modules):
            assert (ROOT / "protocol" / name).exists(), name
        for name in re.findall(r"`([^`]+)`", tests):
            assert (ROOT / "tests" / "protocol" / name).is_file(), name


def test_the_modules_of_a_rule_cite_it() -> None:
    for rules, modules, _ in ROWS:
        cited = re.compile(rf"\b{rules[: rules.find('.')] if '.' in rules else rules.strip()}\b")
        for name in re.findall(r"`([^`]+\.py)`", modules):
            assert cited.search((ROOT / "protocol" / name).read_text("utf-8")), (rules, name)


def test_no_rule_of_the_core_is_left_out() -> None:
    named = {int(number) for rules, *_ in ROWS for number in re.findall(r"R(\d+)", rules)}
    assert named == set(range(1, 14))
