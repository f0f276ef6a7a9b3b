"""What is kept of lanes and runs is bounded by number, by bytes and by time (worker/runner/step.py)."""

from __future__ import annotations

import pytest

from acts_celery.worker.runner import step as recent
from acts_celery.worker.runner.step import Recent


def kept(values: Recent[int, str]) -> list[int]:
    return [key for key in range(10) if key in values]


def test_what_was_put_first_goes_first_where_there_are_too_many_or_they_are_too_large() -> None:
    values = Recent[int, str](3, most_bytes=100)
    for key in range(5):
        values.put(key, "small", 10)
    assert kept(values) == [2, 3, 4]
    values.put(2, "grown", 90)
    assert kept(values) == [2, 4], "10 and 90 bytes"
    values.put(5, "large", 101)
    assert kept(values) == []
    values.put(6, "small", 100)
    assert values.get(6) == "small"
    assert values.pop(6) == "small"
    assert values.pop(6) is None


def test_what_was_not_used_for_long_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(recent, "monotonic", lambda: now)
    values = Recent[int, str](10, most_bytes=100, longest_seconds=60)
    values.put(0, "old", 1)
    now += 50
    values.put(1, "new", 1)
    now += 20
    values.put(2, "newer", 1)
    assert kept(values) == [1, 2]
