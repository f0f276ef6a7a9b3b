"""Every guarantee and every line of a threat model names the tests that show it, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
SECURITY = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
BROKERS = (ROOT / "docs" / "brokers.md").read_text(encoding="utf-8")
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
ALERTS = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text(encoding="utf-8")
DECISIONS = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "decisions").glob("*.md")))
TESTS = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", GUARANTEES + SECURITY + BROKERS + RUNBOOK + DECISIONS)
THREATS = ("A hostile submission", "Hostile data", "A captured delegate or background worker", "A writer on the broker")
WATCHERS = ("A reader of Flower", "An operator's slip")


def test_every_promise_is_shown_by_a_test() -> None:
    promises = [line for line in GUARANTEES.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(promises) > 20
    assert [promise for promise in promises if "`tests/" not in promise] == []


@pytest.mark.parametrize("threat", [*THREATS, *WATCHERS])
def test_what_holds_against_a_threat_is_shown_by_tests_and_what_does_not_is_said(threat: str) -> None:
    section = SECURITY.split(f"### {threat}\n")[1].split("\n#")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 4
    assert [row for row in rows if "`tests/" not in row] == []
    assert section.strip().splitlines()[-1][:1] not in "|", "what does not hold"


def test_every_fault_of_the_runbook_has_a_remedy_and_is_shown_by_a_test() -> None:
    rows = [line.split(" | ") for line in RUNBOOK.splitlines() if line.startswith("| ")]
    faults = [row for row in rows if row[0] != "| fault"]
    assert len(faults) > 20
    assert [row for row in faults if len(row) != 4 or not all(row) or "`tests/" not in row[3]] == []


def test_every_alert_is_in_the_runbook_and_every_alert_of_it_is_there() -> None:
    assert {*re.findall(r"`(Acts\w+)`", RUNBOOK)} == {*re.findall(r"- alert: (\w+)", ALERTS)}


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_the_test_of_a_promise_is_there(file: str, name: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert f"\ndef {name}(" in text if name else "\ndef test_" in text
