"""Variety: choices that differ from one trial to the next, and are the same each time that a trial is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_GAMMA: Final = 0x9E3779B97F4A7C15
_FACTORS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_BITS: Final = 0xFFFFFFFFFFFFFFFF


class Variety:
    """The choices of one trial: of trial 0 always the first of what is offered, the simplest.

    Each is a hash of the trial and of how many choices were made before, so that trials differ at every place of a run
    as if dice were thrown: a sequence of each trial's own, from seeds one beside the other, would never take some ways.
    """

    def __init__(self, trial: int = 0) -> None:
        self._trial = trial
        self._made = 0

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        if not self._trial or len(options) < 2:
            return options[0]
        self._made += 1
        return options[_hashed(self._trial << 32 | self._made) % len(options)]

    def order(self, items: Sequence[T]) -> Sequence[T]:
        """The items, beginning with one of them and going round."""
        first = self.pick(range(len(items))) if items else 0
        return (*items[first:], *items[:first])


def _hashed(number: int) -> int:
    """A number all of whose bits hang on all bits of another: the finaliser of SplitMix64."""
    mixed = number * _GAMMA & _BITS
    for shift, factor in _FACTORS:
        mixed = (mixed ^ mixed >> shift) * factor & _BITS
    return mixed ^ mixed >> 31
