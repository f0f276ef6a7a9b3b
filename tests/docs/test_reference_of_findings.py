"""The reference lists every finding of the catalogue, as the catalogue has it."""

from __future__ import annotations

from .generate import BEGIN, REFERENCE, with_table


def test_the_table_of_findings_is_up_to_date() -> None:
    page = REFERENCE.read_text(encoding="utf-8")
    assert BEGIN in page
    assert with_table(page) == page, "run `python -m tests.docs.generate`"
