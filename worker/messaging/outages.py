"""Outages in the log of a worker: one line when something stops working, and one when it works again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable


class Outage:
    """Tells of something done again and again, such as a sweep, that fails for a while."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._is_told = False

    def failed(self, error: Exception) -> None:
        """It failed, maybe not for the first time."""
        if not self._is_told:
            self._logger.warning("%s failed and will be tried again until it succeeds: %s", self._what, error)
            self._is_told = True

    def succeeded(self) -> None:
        """It was done."""
        if self._is_told:
            self._logger.warning("%s succeeds again", self._what)
            self._is_told = False

    def keep_doing(
        self, act: Callable[[], None], stopped: threading.Event, interval_seconds: float, *passing: type[Exception]
    ) -> None:
        """Do something again and again until it is stopped, whatever it raises; what is `passing` is an outage."""
        while not stopped.wait(interval_seconds):
            try:
                act()
            except passing as error:
                self.failed(error)
            except Exception:
                self._logger.exception("%s failed and goes on", self._what)
            else:
                self.succeeded()
