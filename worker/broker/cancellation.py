"""Cancellation: what is at work for a cancelled run stops, and what lies in a queue for it is dropped (SPEC R11.1).

Workers on the log read it in the log; the others see nothing but their messages, so it is also sent as a
remote-control command of Celery's. Any client of the broker can send one: it is believed only where it shows the key
to the seal that the messages of the run's calls carry, and only the log can make that. It is best effort: a worker that
is not reached finishes a call whose result is not taken. Processes of a prefork pool are not reached, as Celery's
commands go to their parent, and a worker that is told to end takes none any more: a process that sees the log looks
there, too (`liveness.presence`). Calls that were sent and forgotten have left the run and go on.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict
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
        self._of_run: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """The seals of what is at work, by the name of its run."""

    def __contains__(self, seal: str) -> bool:
        return seal in self._runs

    def cancel(self, key: str) -> None:
        """The run was cancelled whose seal this is the key to."""
        self._stop(seal_of(key))

    @property
    def runs(self) -> list[str]:
        """The names of the runs of which calls are at work."""
        with self._lock:
            return list(self._of_run)

    def cancel_named(self, run: str) -> None:
        """The log says that the run of that name was cancelled."""
        with self._lock:
            seals = list(self._of_run.get(run, ()))
        for seal in seals:
            self._stop(seal)

    def _stop(self, seal: str) -> None:
        with self._lock:
            self._runs[seal] = None
            while len(self._runs) > _MOST:
                self._runs.popitem(last=False)
            at_work = tuple(self._at_work.get(seal, ()))
        for stop in at_work:
            stop()

    @contextmanager
    def watching(self, run: str, seal: str, stop: Callable[[], object]) -> Iterator[None]:
        """While the block lasts, `stop` is called when the run is cancelled, in any thread; also where that has
        happened just before.
        """
        with self._lock:
            self._at_work[seal].add(stop)
            self._of_run[run][seal] += 1
        try:
            if seal in self:
                stop()
            yield
        finally:
            with self._lock:
                self._at_work[seal].discard(stop)
                if not self._at_work[seal]:
                    del self._at_work[seal]
                self._of_run[run][seal] -= 1
                if not +self._of_run[run]:
                    del self._of_run[run]


@control_command(name=COMMAND, args=[("key", str)], signature="<key>")  # type: ignore[untyped-decorator]  # celery has no types
def _cancel(state: Any, key: str) -> None:
    """Stop what is at work for a run of ours, and drop what comes for it."""
    state.app.conf.acts_runtimes.cancel(str(key))
