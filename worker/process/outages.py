"""Outages in the log of a worker: one line when something stops working, and one when it works again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

ON_FAILURE: Final[list[Callable[[Exception], None]]] = []
"""What is called with each failure."""
_SILENT_SECONDS: Final = 30.0
"""What has not succeeded for so long is a problem of the process."""


class Outage:
    """Tells of something done again and again, such as a sweep, that fails for a while."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._is_told = False
        self._succeeded_at = time.monotonic()

    def failed(self, error: Exception, *, is_unexpected: bool = False) -> None:
        """It failed, maybe not for the first time; what is unexpected is logged with its traceback."""
        for call in ON_FAILURE:
            call(error)
        if self._is_told:
            return
        self._is_told = True
        if is_unexpected:
            self._logger.error("%s failed and will be tried again until it succeeds", self._what, exc_info=error)
        else:
            self._logger.warning("%s failed and will be tried again until it succeeds: %s", self._what, error)

    def succeeded(self) -> None:
        """It was done."""
        self._succeeded_at = time.monotonic()
        if self._is_told:
            self._logger.warning("%s succeeds again", self._what)
            self._is_told = False

    def problem(self) -> str | None:
        """What is wrong, where it has not succeeded for long."""
        silent_seconds = time.monotonic() - self._succeeded_at
        return f"has not succeeded for {silent_seconds:.0f} s" if silent_seconds > _SILENT_SECONDS else None
