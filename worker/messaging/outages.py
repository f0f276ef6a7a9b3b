"""Outages in the log of a worker: one line when something stops working, and one when it works again."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from .health import forget, watch

_SILENT_SECONDS: Final = 30.0
"""What has not succeeded for so long is a problem of the process."""


class Outage:
    """Tells of something done again and again, such as a sweep, that fails for a while."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._is_told = False
        self._succeeded_at = time.monotonic()
        self._has_ended = False

    def failed(self, error: Exception) -> None:
        """It failed, maybe not for the first time."""
        if not self._is_told:
            self._logger.warning("%s failed and will be tried again until it succeeds: %s", self._what, error)
            self._is_told = True

    def succeeded(self) -> None:
        """It was done."""
        self._succeeded_at = time.monotonic()
        if self._is_told:
            self._logger.warning("%s succeeds again", self._what)
            self._is_told = False

    def keep_doing(
        self, act: Callable[[], None], stopped: threading.Event, interval_seconds: float, *passing: type[Exception]
    ) -> None:
        """Do something again and again until it is stopped, whatever it raises; what is `passing` is an outage.

        Meanwhile, and where it ends without being stopped, it is part of the process's health.
        """
        watch(self._what, self.problem)
        try:
            while not stopped.wait(interval_seconds):
                try:
                    act()
                except passing as error:
                    self.failed(error)
                except Exception:
                    if not self._is_told:
                        self._logger.exception("%s failed and will be tried again until it succeeds", self._what)
                        self._is_told = True
                else:
                    self.succeeded()
            forget(self._what, self.problem)
        finally:
            self._has_ended = True

    def problem(self) -> str | None:
        """What is wrong with it, where something is."""
        if self._has_ended:
            return "has ended"
        silent_seconds = time.monotonic() - self._succeeded_at
        return f"has not succeeded for {silent_seconds:.0f} s" if silent_seconds > _SILENT_SECONDS else None
