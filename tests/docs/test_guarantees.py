"""Every guarantee, fault and line of a threat model has its tests in docs/internals/evidence.md, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EVIDENCE = (DOCS / "internals" / "evidence.md").read_text(encoding="utf-8")
GUARANTEES = (DOCS / "guarantees.md").read_text(encoding="utf-8")
SECURITY = (DOCS / "security.md").read_text(encoding="utf-8")
BROKERS = (DOCS / "deploying.md").read_text(encoding="utf-8").split("\n## Brokers\n")[1].split("\n## ")[0]
RUNBOOK = (DOCS / "runbook.md").read_text(encoding="utf-8")
ALERTS = (ROOT / "deploy" / "prometheus" / "rules.yml").read_text(encoding="utf-8")
DECISIONS = "".join(path.read_text(encoding="utf-8") for path in sorted((DOCS / "decisions").glob("*.md")))
TESTS = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", EVIDENCE + DECISIONS)
THREATS = ("A hostile submission", "Hostile data", "A captured delegate or background worker", "A writer on the broker")
WATCHERS = ("A reader of Flower", "An operator's slip")
PAGES = {"Guarantees": GUARANTEES, "Security": SECURITY.split("\n## Tasks")[0], "Runbook": RUNBOOK, "Brokers": BROKERS}


def rows(text: str) -> list[list[str]]:
    """The rows of a page's tables, without their heads."""
    tables = re.findall(r"^\|.*\n\|[-|]+\|\n((?:\|.*\n?)+)", text, re.MULTILINE)
    return [line.strip("| ").split(" | ") for table in tables for line in table.splitlines()]


@pytest.mark.parametrize("name", PAGES)
def test_every_promise_is_shown_by_a_test(name: str) -> None:
    evidence = rows(EVIDENCE.split(f"\n## {name}\n")[1].split("\n## ")[0])
    assert [row[0] for row in evidence] == [row[0] for row in rows(PAGES[name])]
    assert [row for row in evidence if "`tests/" not in row[1]] == []


@pytest.mark.parametrize("threat", [*THREATS, *WATCHERS])
def test_what_holds_against_a_threat_is_said_and_what_does_not_too(threat: str) -> None:
    section = SECURITY.split(f"### {threat}\n")[1].split("\n#")[0]
    assert len(rows(section)) >= 4
    assert section.strip().splitlines()[-1][:1] not in "|", "what does not hold"


def test_every_fault_of_the_runbook_has_a_remedy() -> None:
    faults = rows(RUNBOOK)
    assert len(faults) > 20
    assert [row for row in faults if len(row) != 3 or not all(row)] == []


def test_every_alert_is_in_the_runbook_and_every_alert_of_it_is_there() -> None:
    assert {*re.findall(r"`(Acts\w+)`", RUNBOOK)} == {*re.findall(r"- alert: (\w+)", ALERTS)}


@pytest.mark.parametrize(("file", "name"), TESTS)
def test_the_test_of_a_promise_is_there(file: str, name: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert f"\ndef {name}(" in text if name else "\ndef test_" in text
