"""Variety: choices that differ from one trial to the next, and are the same each time that a trial is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_MULTIPLIER: Final = 6364136223846793005
_INCREMENT: Final = 1442695040888963407
_MODULUS: Final = 2**64


class Variety:
    """The choices of one trial: of trial 0 always the first of what is offered, the simplest.

    The numbers are those of a linear congruential generator (Knuth's MMIX), of which the upper half is used.
    """

    def __init__(self, trial: int = 0) -> None:
        self._trial = trial
        self._state = trial

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        if not self._trial or len(options) < 2:
            return options[0]
        self._state = (self._state * _MULTIPLIER + _INCREMENT) % _MODULUS
        return options[(self._state >> 32) % len(options)]

    def order(self, items: Sequence[T]) -> Sequence[T]:
        """The items, beginning with one of them and going round."""
        first = self.pick(range(len(items))) if items else 0
        return (*items[first:], *items[:first])
