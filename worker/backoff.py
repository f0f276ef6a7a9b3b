"""Backoff: how long to wait before something that failed is tried again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import TypeVar

from . import limits


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that double from the first to the longest; with `jitter` each takes between half and all of its time, so
    that those who failed together do not come back together.
    """

    first_seconds: float
    longest_seconds: float
    jitter: bool = False

    def seconds(self, failures: int) -> float:
        """How long to wait after so many failures, counted from 1."""
        doubled = self.first_seconds * 2.0 ** min(failures - 1, limits.MOST_DOUBLINGS)
        longest: float = min(doubled, self.longest_seconds)
        return longest * random.uniform(0.5, 1.0) if self.jitter else longest

    def waits(self) -> Iterator[float]:
        """The waits after the first failure, the second and so on, without end."""
        return map(self.seconds, count(1))


# Batches: what is done for many, a few of them at a time, so that no step holds up the server for long.

T = TypeVar("T")


def batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """The values in lists of so many; the last one may be shorter (`itertools.batched` of Python 3.12)."""
    remaining = iter(values)
    while batch := list(islice(remaining, size)):
        yield batch
