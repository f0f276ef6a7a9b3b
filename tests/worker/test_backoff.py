"""Waits between tries: they double up to the longest, and with jitter differ."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from acts_celery.worker.backoff import Backoff


def test_waits_double_up_to_the_longest() -> None:
    assert list(islice(Backoff(0.5, 3.0).waits(), 5)) == [0.5, 1.0, 2.0, 3.0, 3.0]


@given(st.floats(0.001, 100), st.floats(0.001, 10_000), st.integers(1, 10**9))
def test_a_wait_with_jitter_is_between_half_of_one_without_and_the_whole(
    first: float, longest: float, failures: int
) -> None:
    whole = Backoff(first, longest).seconds(failures)
    assert whole <= longest
    assert whole / 2 <= Backoff(first, longest, jitter=True).seconds(failures) <= whole
