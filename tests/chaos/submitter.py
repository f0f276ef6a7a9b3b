"""Clients that keep a number of runs under way while the chaos goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

from acts_celery import Client, InfrastructureError

from .site import Site
from .workload import Submission

_PAUSE_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 5.0


class Submitter:
    """Submits one submission after the other, each until it is accepted, `width` of them under way at a time."""

    def __init__(self, site: Site, submissions: Iterable[Submission], *, width: int) -> None:
        self.accepted: dict[str, Submission] = {}
        """The runs that clients were told of."""
        self.refusals = 0
        """Submissions that a client was told had failed; it has submitted them again."""
        self._site = site
        self._left = iter(submissions)
        self._lock = threading.Condition()
        self._ended = 0
        self._stopped = threading.Event()
        self._threads = ThreadPoolExecutor(width, thread_name_prefix="chaos-client")
        self._clients = [self._threads.submit(self._submit_all) for _ in range(width)]

    def wait_for_calls(self, count: int, timeout_seconds: float) -> None:
        """Return once so many calls have ended, over all runs. Raises `TimeoutError`."""
        with self._lock:
            if not self._lock.wait_for(lambda: self._ended >= count, timeout_seconds):
                raise TimeoutError(f"{self._ended} calls have ended in {timeout_seconds:g} s, not {count}")

    def finish(self, timeout_seconds: float) -> None:
        """Wait until everything is submitted and has ended, or until the time is over. Raises what a client raised."""
        wait(self._clients, timeout_seconds)
        self._stopped.set()
        self._threads.shutdown()
        for client in self._clients:
            client.result()

    def _submit_all(self) -> None:
        with self._site.client() as client:
            while not self._stopped.is_set():
                with self._lock:
                    submission = next(self._left, None)
                if submission is None:
                    return
                self._submit(client, submission)

    def _submit(self, client: Client, submission: Submission) -> None:
        """Submit until it is accepted, and follow the run to its end."""
        run, seen = None, 0
        while not self._stopped.is_set():
            try:
                if run is None:
                    run = client.submit_document(submission.document)
                    self.accepted[run.id] = submission
                for count, _ in enumerate(run.follow(timeout_seconds=_LOOK_SECONDS), 1):
                    if count > seen:
                        seen = count
                        self._note_progress()
                return
            except TimeoutError:
                continue
            except InfrastructureError:
                self.refusals += run is None
                self._stopped.wait(_PAUSE_SECONDS)

    def _note_progress(self) -> None:
        with self._lock:
            self._ended += 1
            self._lock.notify_all()
