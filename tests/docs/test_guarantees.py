"""Every guarantee names the tests that show it, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
TESTS = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", GUARANTEES)


def test_every_promise_is_shown_by_a_test() -> None:
    promises = [line for line in GUARANTEES.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(promises) > 20
    assert [promise for promise in promises if "`tests/" not in promise] == []


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_the_test_of_a_promise_is_there(file: str, name: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert f"\ndef {name}(" in text if name else "\ndef test_" in text
