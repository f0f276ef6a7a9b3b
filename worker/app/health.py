"""The health of a worker process: shown by `celery inspect stats`, and written to a file that `acts health` reads.

The file is written by the thread that takes messages, so where that hangs, or is without a broker, it gets old. A user
of the broker that may not ask workers, as those of delegates, can read it all the same.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from celery import bootsteps
from celery.worker.consumer import Consumer

from acts_celery.broker_config import Settings
from acts_celery.worker.messaging.health import problems
from acts_celery.worker.registry.activities import registry

_INTERVAL_SECONDS: Final = 2.0


class HealthStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Looks after what a worker should do, as long as it is connected to the broker."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Consumer, **options: object) -> None:
        super().__init__(consumer, **options)
        self._queues = sorted(consumer.app.amqp.queues.consume_from)
        settings: Settings = consumer.app.conf.acts_settings
        self._file = _own_file(settings.health_folder, consumer.hostname)
        self._timer: Any = None

    def start(self, consumer: Consumer) -> None:
        """Called by the consumer each time it has connected."""
        if self._file is not None:
            self._write(consumer)
            self._timer = consumer.timer.call_repeatedly(_INTERVAL_SECONDS, self._write, (consumer,))

    def stop(self, consumer: Consumer) -> None:
        """Called by the consumer when it has lost its connection, or is stopped."""
        if self._timer is not None:
            self._timer.cancel()

    def shutdown(self, consumer: Consumer) -> None:
        """Called by the consumer at its end."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def info(self, consumer: Consumer) -> dict[str, Any]:
        """Called by Celery for `inspect stats`."""
        knows = {"activities": sorted(registry.activities), "delegates": sorted(registry.delegates)}
        return {"health": {"queues": self._consumed(consumer), "problems": self._problems(consumer), "knows": knows}}

    def _write(self, consumer: Consumer) -> None:
        assert self._file is not None
        said = {"worker": consumer.hostname, "pid": os.getpid(), "problems": self._problems(consumer)}
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(said), encoding="utf-8")
        draft.replace(self._file)

    def _consumed(self, consumer: Consumer) -> list[str]:
        return sorted(queue.name for queue in consumer.task_consumer.queues)

    def _problems(self, consumer: Consumer) -> dict[str, str]:
        found = problems()
        consumed = self._consumed(consumer)
        found |= {f"queue {queue}": "is not consumed any more" for queue in self._queues if queue not in consumed}
        if consumer.app.conf.acts_runtimes.is_blocked:
            found["the event loop"] = "is blocked by an activity"
        return found


def _own_file(folder: str | None, name: str) -> Path | None:
    """Where this worker writes; what dead ones have left there is removed."""
    if folder is None:
        return None
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    for other in Path(folder).glob("*.json"):
        if not _is_of_a_process(other):
            other.unlink(missing_ok=True)
    return Path(folder) / f"{quote(name, safe='@')}.json"


def _is_of_a_process(file: Path) -> bool:
    """Whether who wrote a file still lives."""
    try:
        os.kill(int(json.loads(file.read_bytes())["pid"]), 0)
    except PermissionError:
        return True
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return False
    return True
