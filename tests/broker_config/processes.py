"""Waiting for processes that are not our children, as an event: no clock is polled."""

from __future__ import annotations

import os
import select
import sys
from types import TracebackType
from typing import Self

DEADLINE_SECONDS = 30.0


class Exit:
    """The end of another process; made while that lives, so that its number cannot be another's."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        if sys.platform == "linux":
            self._descriptor = os.pidfd_open(pid)
        else:
            self._queue = select.kqueue()
            event = select.kevent(pid, filter=select.KQ_FILTER_PROC, flags=select.KQ_EV_ADD, fflags=select.KQ_NOTE_EXIT)
            self._queue.control([event], 0)
            self._descriptor = self._queue.fileno()

    def wait(self) -> None:
        """Return when the process has ended; fail after a generous deadline."""
        ready = select.select([self._descriptor], [], [], DEADLINE_SECONDS)[0]
        assert ready, f"process {self.pid} still runs after {DEADLINE_SECONDS} seconds"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if sys.platform == "linux":
            os.close(self._descriptor)
        else:
            self._queue.close()
