"""Trials differ from each other at every place of a run, and never when repeated (SPEC R6.7)."""

from __future__ import annotations

import pytest

from protocol.analysis.variety import Variety

TRIALS = 48
PLACES = 40


def picked(trial: int, number: int) -> list[int]:
    """What a trial picks of so many options, at one place after the other."""
    variety = Variety(trial)
    return [variety.pick(range(number)) for _ in range(PLACES)]


@pytest.mark.parametrize("number", range(2, 9))
def test_at_each_place_the_trials_pick_as_dice_would(number: int) -> None:
    trials = [picked(trial, number) for trial in range(1, TRIALS)]
    counts = [[at_place.count(option) for option in range(number)] for at_place in zip(*trials, strict=True)]
    expected = len(trials) / number
    deviation = sum((count - expected) ** 2 / expected for at_place in counts for count in at_place)
    freedom = PLACES * (number - 1)
    assert abs(deviation - freedom) < 4 * (2 * freedom) ** 0.5, "chi-squared"


def test_what_is_picked_at_one_place_says_nothing_of_the_next() -> None:
    pairs = {pair for trial in range(1, TRIALS) for pair in zip(picked(trial, 7), picked(trial, 7)[1:], strict=False)}
    assert len(pairs) == 7 * 7


def test_a_trial_is_the_same_when_repeated_and_the_first_is_the_simplest() -> None:
    assert picked(5, 7) == picked(5, 7) != picked(6, 7)
    assert set(picked(0, 7)) == {0}
    assert Variety().order("abc") == ("a", "b", "c")
