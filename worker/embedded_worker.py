"""The backend of `acts run` without a broker: a server and a worker process for the time of a `with` block.

Nothing is left behind however the block ends (`broker_config.GuardedProcess`), and no call is lost when the worker
dies: as long as it had become ready, another takes its place and finds its calls by their leases (see
`recovery.sweep`). What was sent and not awaited (SPEC R5.1) ends before the block is left in peace; an exception
leaves at once.

This module loads no library but that of the settings, so the worker starts while the command still loads its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..__main__ import own_command
from ..broker_config import EmbeddedServer, GuardedProcess, Settings
from . import limits
from .errors import InfrastructureError

READY: Final = "is ready"
"""The words in the worker's log once it has started."""

_LOG_NAME: Final = "worker.log"


@contextmanager
def embedded_backend(
    settings: Settings, *, worker_log: Path | None = None, deadline: float | None = None
) -> Iterator[Settings]:
    """Yield `settings` pointed at a server and a worker that exist for the time of the block.

    The server answers when the block begins; the worker is still starting, and takes up what is submitted as soon as
    it can. Leaving the block waits for what was sent and not awaited, until `deadline` (of `time.monotonic`). The
    worker's log goes to `worker_log`, by default to a file that is removed with the server. Raises
    `InfrastructureError` where either cannot be had or the worker ends for good.
    """
    with EmbeddedServer() as server:
        urls = settings.with_embedded(broker_url=server.broker_url, redis_url=server.redis_url)
        interval = min(settings.sweep_interval_seconds, limits.LOCAL_SWEEP_SECONDS)
        # The port of figures belongs to the workers of this machine; this worker is gone after a run.
        # No other worker will come, so no call waits for one whose code admits it.
        alone = {"sweep_interval_seconds": interval, "metrics_port": None, "contract_wait_seconds": 0}
        own = urls.model_copy(update=alone)
        worker = _Worker(own, server, worker_log or server.directory / _LOG_NAME)
        try:
            yield own
            worker.drain()
            from .store.waiting import await_background

            await_background(own, deadline)
        except Exception as error:
            if worker.failure is not None and _is_of_infrastructure(error):
                raise worker.failure from error
            raise
        finally:
            worker.stop()


class _Worker:
    """A worker process that is started again when it dies; a thread waits for its end.

    Each death costs the calls in hand one of their attempts, so a call that kills its worker ends as failed. A worker
    that dies for a reason of its own is started a few times, not for ever.
    """

    def __init__(self, settings: Settings, server: EmbeddedServer, log: Path) -> None:
        self.failure: InfrastructureError | None = None
        self._settings = settings
        self._server = server
        self._log = log
        self._lock = threading.Lock()
        self._may_restart = True
        self._is_stopping = False
        self._process = self._start()
        self._watcher = threading.Thread(target=self._watch, name="acts-embedded-worker", daemon=True)
        self._watcher.start()

    def drain(self) -> None:
        """From now on a dead worker is the end: a call that is not awaited shall not kill one after the other."""
        with self._lock:
            self._may_restart = False

    def stop(self) -> None:
        """End the process, gracefully if it ends in time."""
        with self._lock:
            self._is_stopping = True
        self._process.stop()
        self._watcher.join()

    def _start(self) -> GuardedProcess:
        self._begins_at = self._log.stat().st_size if self._log.exists() else 0
        command = own_command("worker", "--processes", "1", "--name", "embedded", "--log-level", "INFO")
        try:
            with self._log.open("ab") as log:
                return GuardedProcess(
                    command,
                    env={**os.environ, **self._settings.to_environment(), "PYTHONUNBUFFERED": "1"},
                    grace_seconds=limits.LOCAL_GRACE_SECONDS,
                    stdout=log,
                    stderr=log,
                )
        except OSError as error:
            raise InfrastructureError(f"the embedded worker cannot be started: {error}") from error

    def _watch(self) -> None:
        for start in range(1, limits.LOCAL_MOST_STARTS + 1):
            code = self._process.wait()
            with self._lock:
                if self._is_stopping:
                    return
                if self._is_replaced(start):
                    continue
                self.failure = InfrastructureError(self._last_words(code))
            # A client that waits for an answer gets an error now, instead of waiting for a worker that never comes.
            self._server.stop()
            return

    def _is_replaced(self, start: int) -> bool:
        """Start another worker, if that promises anything."""
        try:
            if self._may_restart and self._was_ready() and start < limits.LOCAL_MOST_STARTS:
                self._process = self._start()
                return True
        except (InfrastructureError, OSError):
            pass  # the server's directory is gone as well
        return False

    def _was_ready(self) -> bool:
        return READY.encode() in self._written()

    def _last_words(self, code: int) -> str:
        lines = [line.strip() for line in self._written().decode(errors="replace").splitlines() if line.strip()]
        told = lines[-1:] if lines and lines[-1].startswith("acts: ") else lines[-limits.LAST_LOG_LINES :]
        said = " / ".join(line.removeprefix("acts: ") for line in told) or "it logged nothing"
        return f"the embedded worker ended (exit code {code}): {said}"

    def _written(self) -> bytes:
        """The log of the latest process."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._begins_at)
                return log.read()
        except OSError:  # it went with the server's directory
            return b""


def _is_of_infrastructure(error: Exception) -> bool:
    """Whether an error may have been caused by a server that is gone."""
    from kombu.exceptions import OperationalError
    from redis.exceptions import RedisError

    return isinstance(error, (InfrastructureError, RedisError, OperationalError, OSError))
