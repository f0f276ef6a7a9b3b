"""Effort: how much work the findings of one submission may cause, whatever its schemas and values are.

Whoever reads a schema or applies one counts that in the same budget of steps. Once it is spent, a schema not read yet
is taken to admit anything: less is found then, nothing that is not so, and it is told that there may be more.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

from protocol.schemas.steps import bounded, count, spent

__all__ = ["count", "counted", "is_spent"]

_MOST_STEPS: Final = 1_500_000
"""Some seconds of work; the last value may take `steps.MOST_STEPS` more."""
_UNLIMITED: Final = 10**18


def counted() -> AbstractContextManager[None]:
    """Count the steps of what is done inside; nothing is raised there, however many they are."""
    return bounded(_UNLIMITED)


def is_spent() -> bool:
    """Whether nothing more should be begun that takes long."""
    return spent() > _MOST_STEPS
