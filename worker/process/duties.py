"""Background duties: what a process does again and again in a thread of its own, such as a sweep."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from .outages import Outage
from .problems import forget, watch

logger = logging.getLogger(__name__)


class Duty:
    """Does something every so often from its start until it is stopped, whatever it raises.

    What is `passing` is an outage: one line in the log when it begins, and one when it is over. Meanwhile, and where it
    ends without being stopped, a duty is part of the process's health.
    """

    def __init__(
        self,
        what: str,
        act: Callable[[], None],
        *,
        thread: str,
        interval_seconds: float,
        passing: tuple[type[Exception], ...],
    ) -> None:
        self._what = what
        self._act = act
        self._interval_seconds = interval_seconds
        self._passing = passing
        self._outage = Outage(logger, what)
        self._stopped = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def start(self) -> None:
        """Begin, after one interval; once more does nothing."""
        if self._thread.ident is None:
            self._outage = Outage(logger, self._what)  # what was not begun has not failed either
            self._thread.start()

    def stop(self, *, waits: bool = False) -> None:
        """Do it no more; with `waits` returns when it is not at work either."""
        self._stopped.set()
        if waits and self._thread.ident is not None:
            self._thread.join()

    def problem(self) -> str | None:
        """What is wrong with it, where something is."""
        return "has ended" if self._has_ended else self._outage.problem()

    def _run(self) -> None:
        watch(self._what, self.problem)
        try:
            while not self._stopped.wait(self._interval_seconds):
                try:
                    self._act()
                except self._passing as error:
                    self._outage.failed(error)
                except Exception as error:
                    self._outage.failed(error, is_unexpected=True)
                else:
                    self._outage.succeeded()
            forget(self._what, self.problem)
        finally:
            self._has_ended = True
