"""Steps: how much work the schemas of a stranger may cause (SPEC R7.1).

Whatever applies a schema counts what it does here, and gives up where more than was granted would be needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

MOST_STEPS: Final = 1_000_000
"""Keywords applied to one value, with what it holds: some seconds of work."""


class TooCostly(Exception):
    """More work than is granted; says how much that is."""


@dataclass
class _Budget:
    """Steps granted, and what they are part of."""

    most: int
    within: _Budget | None
    taken: int = 0


_budget: ContextVar[_Budget | None] = ContextVar("budget", default=None)


@contextmanager
def bounded(most: int = MOST_STEPS) -> Iterator[None]:
    """Count the steps of what is done inside, for what is around this too. There `TooCostly` may be raised."""
    token = _budget.set(_Budget(most, _budget.get()))
    try:
        yield
    finally:
        _budget.reset(token)


def count(steps: int) -> None:
    """Note that so many steps are about to be taken. Raises `TooCostly`."""
    budget = _budget.get()
    while budget is not None:
        budget.taken += steps
        if budget.taken > budget.most:
            raise TooCostly(f"more than {budget.most} steps")
        budget = budget.within


def spent() -> int:
    """The steps taken since the outermost `bounded` began; none outside."""
    taken = 0
    budget = _budget.get()
    while budget is not None:
        taken = budget.taken
        budget = budget.within
    return taken
