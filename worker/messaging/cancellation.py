"""Cancellation: what is at work for a cancelled run stops, and what lies in a queue for it is dropped (SPEC R11.1).

Workers on the log learn of it from the log; the others see nothing but their messages, so that all are told by a
remote-control command of Celery's. That is best effort: a worker that is not reached finishes a call whose result
nobody takes. Processes of a prefork pool are not reached: Celery's commands go to their parent. Calls that were sent
and forgotten have left the run and go on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

from celery.worker.control import control_command

COMMAND: Final = "acts_cancel"
_MOST: Final = 10_000


class Cancellations:
    """The runs that were cancelled lately, and what this process has at work for which run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, None] = OrderedDict()
        self._at_work: defaultdict[str, set[Future[Any]]] = defaultdict(set)

    def __contains__(self, run: str) -> bool:
        return run in self._runs

    def cancel(self, run: str) -> None:
        """A run was cancelled."""
        with self._lock:
            self._runs[run] = None
            while len(self._runs) > _MOST:
                self._runs.popitem(last=False)
            at_work = tuple(self._at_work.get(run, ()))
        for future in at_work:
            future.cancel()

    @contextmanager
    def watching(self, run: str, future: Future[Any]) -> Iterator[None]:
        """While the block lasts, the future is cancelled with its run; also where that has happened just before."""
        with self._lock:
            self._at_work[run].add(future)
        try:
            if run in self:
                future.cancel()
            yield
        finally:
            with self._lock:
                self._at_work[run].discard(future)
                if not self._at_work[run]:
                    del self._at_work[run]


@control_command(name=COMMAND, args=[("run", str)], signature="<run>")  # type: ignore[untyped-decorator]  # celery has no types
def _cancel(state: Any, run: str) -> None:
    """Stop what is at work for a run of ours, and drop what comes for it."""
    state.app.conf.acts_runtimes.cancel(run)
