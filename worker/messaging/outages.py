"""Outages in the log of a worker: one line when something stops working, and one when it works again."""

from __future__ import annotations

import logging


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
