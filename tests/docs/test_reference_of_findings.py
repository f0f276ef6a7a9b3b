"""The reference lists every finding and every setting, as the code has them."""

from __future__ import annotations

from .generate import BEGIN, REFERENCE, SETTINGS_BEGIN, with_tables


def test_the_tables_of_findings_and_settings_are_up_to_date() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    assert BEGIN in page
    assert SETTINGS_BEGIN in page
    assert "What does it mean?" not in page
    assert with_tables(page) == page, "run `python -m tests.docs.generate`"
