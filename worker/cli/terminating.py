"""SIGTERM unwinds a command as Ctrl-C does, so that what was started is ended."""

from __future__ import annotations

from types import FrameType
from typing import Final

from acts_celery.worker.errors import Terminated

from .failures import TERMINATED

_heard: Final[list[int]] = []


def terminate(number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM."""
    _heard.append(number)
    raise Terminated(TERMINATED)


def end_if_terminated() -> None:
    """Unwind after all, where code of others has caught what a signal raised in it."""
    if _heard:
        raise Terminated(TERMINATED)
