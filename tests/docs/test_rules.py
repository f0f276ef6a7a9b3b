"""The page of rules names modules and tests that are there, and leaves no rule out."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rules.md").read_text("utf-8")
ROWS = re.findall(r"^\| (R[\d.,R -]+) \| .* \| (.*) \| (.*) \|$", PAGE, re.M)
SAID = set(re.findall(r"\*\*(R\d+\.\d+[a-z]?)\*\*", PAGE)) | set(re.findall(r"^### (R\d+) ", PAGE, re.M))
WHERE_RULES_ARE_CITED = ("protocol", "worker", "broker_config", "acts_celery", "tests", "docs", "deploy")


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
    assert named == set(range(1, 18))


def test_a_rule_that_is_cited_is_said_on_the_page() -> None:
    files = [
        path
        for folder in WHERE_RULES_ARE_CITED
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".md", ".lua") and not path.is_symlink()
    ]
    cited = {
        rule: path
        for path in [*files, ROOT / "README.md"]
        for rule in re.findall(r"\bR(?:1[0-7]|[1-9])(?:\.\d+[a-z]?)?\b", path.read_text("utf-8"))
    }
    assert len(cited) > 80
    assert {rule: path for rule, path in cited.items() if rule not in SAID} == {}, "say it in docs/rules.md"


def test_each_rule_is_said_once_and_in_order() -> None:
    said = re.findall(r"\*\*R(\d+)\.(\d+)([a-z]?)\*\*", PAGE)
    numbers = [(int(chapter), int(rule), letter) for chapter, rule, letter in said]
    assert numbers == sorted(set(numbers))
