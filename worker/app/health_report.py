"""The health of a worker process: shown by `celery inspect stats`, and written to a file that `acts health` reads.

The file is written by the thread that takes messages, so where that hangs, or is without a broker, it gets old. A user
of the broker that may not ask workers, as those of delegates, can read it all the same.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from celery import bootsteps
from celery.worker.consumer import Consumer

from acts_celery.broker_config import Settings
from acts_celery.worker.process.health_file import Health, remove_dead
from acts_celery.worker.process.problems import problems
from acts_celery.worker.registry.activities import registry
from acts_celery.worker.registry.operator_trust import digest_of_trust

logger = logging.getLogger(__name__)

_INTERVAL_SECONDS: Final = 2.0
_LATELY_SECONDS: Final = 60.0
_MOST_STARTS: Final = 3
_starts: Final[deque[float]] = deque(maxlen=_MOST_STARTS + 1)
"""When this process has begun to take messages, lately. One that begins again and again takes none."""


class HealthStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Looks after what a worker should do, as long as it is connected to the broker."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Consumer, **options: object) -> None:
        super().__init__(consumer, **options)
        self._queues = sorted(consumer.app.amqp.queues.consume_from)
        settings: Settings = consumer.app.conf.acts_settings
        self._trust = digest_of_trust(settings)
        self._folder = Path(settings.health_folder) if settings.health_folder is not None else None
        self._timer: Any = None
        self._is_written = True

    def start(self, consumer: Consumer) -> None:
        """Called by the consumer each time it has connected."""
        _starts.append(time.monotonic())
        if self._folder is not None:
            self._write(consumer, tidies=True)
            self._timer = consumer.timer.call_repeatedly(_INTERVAL_SECONDS, self._write, (consumer,))

    def stop(self, consumer: Consumer) -> None:
        """Called by the consumer when it has lost its connection, or is stopped."""
        if self._timer is not None:
            self._timer.cancel()

    def shutdown(self, consumer: Consumer) -> None:
        """Called by the consumer at its end."""
        if self._folder is not None:
            with suppress(OSError):
                self._health(consumer).file(self._folder).unlink(missing_ok=True)

    def info(self, consumer: Consumer) -> dict[str, Any]:
        """Called by Celery for `inspect stats`."""
        knows = {"activities": sorted(registry.activities), "delegates": sorted(registry.delegates)}
        code = {
            "activities": {one.name: [one.version, one.contract.digest] for one in registry.activities.values()},
            "delegates": {one.name: [one.version, ""] for one in registry.delegates.values()},
        }
        told = {"queues": self._consumed(consumer), "problems": self._problems(consumer), "knows": knows, "code": code}
        return {"health": {**told, "trust": self._trust}}

    def _write(self, consumer: Consumer, *, tidies: bool = False) -> None:
        """Write the file; where that fails, messages are taken all the same."""
        assert self._folder is not None
        try:
            self._health(consumer).write(self._folder)
            if tidies:
                remove_dead(self._folder)
        except OSError as error:
            if self._is_written:
                logger.warning("the health of this worker cannot be written (ACTS_HEALTH_FOLDER): %s", error)
            self._is_written = False
        else:
            self._is_written = True

    def _health(self, consumer: Consumer) -> Health:
        return Health(consumer.hostname, os.getpid(), self._problems(consumer))

    def _consumed(self, consumer: Consumer) -> list[str]:
        return sorted(queue.name for queue in consumer.task_consumer.queues)

    def _problems(self, consumer: Consumer) -> dict[str, str]:
        found = problems()
        consumed = self._consumed(consumer)
        found |= {f"queue {queue}": "is not consumed any more" for queue in self._queues if queue not in consumed}
        if consumer.app.conf.acts_runtimes.is_blocked:
            found["the event loop"] = "is blocked by an activity"
        if not self._is_written:
            found["its file"] = "cannot be written (ACTS_HEALTH_FOLDER)"
        if len(_starts) > _MOST_STARTS and time.monotonic() - _starts[0] < _LATELY_SECONDS:
            found["its connection to the broker"] = f"began anew {_MOST_STARTS} times within {_LATELY_SECONDS:g} s"
        return found
