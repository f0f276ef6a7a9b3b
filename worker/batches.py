"""Batches: what is done for many, a few of them at a time, so that no step holds up the server for long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """The values in lists of so many; the last one may be shorter (`itertools.batched` of Python 3.12)."""
    remaining = iter(values)
    while batch := list(islice(remaining, size)):
        yield batch
