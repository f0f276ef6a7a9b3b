"""The list of words has each word once, and leads to modules that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "internals" / "words.md").read_text("utf-8")
WORDS = re.findall(r"^\| ([a-z][a-z -]+) \| .+ \| (.+) \|$", GLOSSARY, re.M)


def test_it_has_at_most_45_words_each_once() -> None:
    words = [word for word, _ in WORDS if word not in ("word", "question")]
    assert 30 < len(words) <= 45
    assert len(words) == len(set(words))


def test_every_module_that_is_named_is_there() -> None:
    named = re.findall(r"`((?:protocol|worker|broker_config)/[^`]*)`", GLOSSARY)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_each_folder_of_the_core_and_of_the_worker_is_led_to() -> None:
    folders = {
        str(path.parent.relative_to(ROOT))
        for package in ("protocol", "worker")
        for path in (ROOT / package).glob("*/__init__.py")
    }
    assert {folder for folder in folders if f"`{folder}/" not in GLOSSARY} == set()
