"""Every attack of docs/internals/trust.md is a test, and every case of that test is in the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.protocol.test_r16_trust import CASES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "internals" / "trust.md").read_text(encoding="utf-8")
TABLE = PAGE.split("\n## Attacks\n")[1].split("\n## ")[0]
ROWS = [row for row in TABLE.splitlines() if row.startswith("| ")][1:]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`(?: \((.*)\))? \|$")


@pytest.mark.parametrize("row", ROWS)
def test_the_test_of_an_attack_is_there(row: str) -> None:
    found = TEST.search(row)
    assert found is not None
    file, name, case = found.groups()
    assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8")
    assert case is None or case in CASES


def test_every_case_of_a_way_around_the_labels_is_in_the_table() -> None:
    named = [found[3] for row in ROWS if (found := TEST.search(row)) and found[3]]
    assert named == list(CASES)
