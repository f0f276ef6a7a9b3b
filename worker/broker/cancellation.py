"""Cancellation: what is at work for a cancelled run stops, and what lies in a queue for it is dropped (SPEC R11.1).

Workers on the log read it in the log; the others see nothing but their messages, so it is also sent as a
remote-control command of Celery's. Any client of the broker can send one: it is believed only where it shows the key
to the seal that the messages of the run's calls carry, and only the log can make that. It is best effort: a worker that
is not reached finishes a call whose result is not taken. Processes of a prefork pool are not reached: Celery's commands
go to their parent. Calls that were sent and forgotten have left the run and go on.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from celery.worker.control import control_command

from acts_celery.worker.wire.tokens import seal_of

COMMAND: Final = "acts_cancel"
_MOST: Final = 10_000


class Cancellations:
    """The runs that were cancelled lately, and what this process has at work for which run, all by their seals."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, None] = OrderedDict()
        self._at_work: defaultdict[str, set[Callable[[], object]]] = defaultdict(set)
        """What stops each call that is at work."""

    def __contains__(self, seal: str) -> bool:
        return seal in self._runs

    def cancel(self, key: str) -> None:
        """The run was cancelled whose seal this is the key to."""
        run = seal_of(key)
        with self._lock:
            self._runs[run] = None
            while len(self._runs) > _MOST:
                self._runs.popitem(last=False)
            at_work = tuple(self._at_work.get(run, ()))
        for stop in at_work:
            stop()

    @contextmanager
    def watching(self, seal: str, stop: Callable[[], object]) -> Iterator[None]:
        """While the block lasts, `stop` is called when the run is cancelled, in any thread; also where that has
        happened just before.
        """
        with self._lock:
            self._at_work[seal].add(stop)
        try:
            if seal in self:
                stop()
            yield
        finally:
            with self._lock:
                self._at_work[seal].discard(stop)
                if not self._at_work[seal]:
                    del self._at_work[seal]


@control_command(name=COMMAND, args=[("key", str)], signature="<key>")  # type: ignore[untyped-decorator]  # celery has no types
def _cancel(state: Any, key: str) -> None:
    """Stop what is at work for a run of ours, and drop what comes for it."""
    state.app.conf.acts_runtimes.cancel(str(key))
