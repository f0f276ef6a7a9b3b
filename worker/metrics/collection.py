"""The figures of log and queues as `acts metrics` shows them: gauges, read when they are asked for.

Two that ask within a second are given the same figures. Where a server does not answer, its figures are left out, and
`acts_log_up` or `acts_broker_up` is 0.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from acts_celery.worker.errors import InfrastructureError
from acts_celery.worker.process.outages import Outage

from .log_figures import LogFigures, LogReader
from .queue_figures import QueueFigures, QueueReader

logger = logging.getLogger(__name__)

_FRESH_SECONDS: Final = 1.0
_RUN_STATUSES: Final = ("running", "paused")
_CALL_STATUSES: Final = ("waiting", "running", "held", "sent")

T = TypeVar("T")


class Collection(Collector):
    """Collects when it is asked to; from any thread."""

    def __init__(self, log: LogReader, queues: QueueReader) -> None:
        self._log = log
        self._queues = queues
        self._lock = threading.Lock()
        self._outages = {name: Outage(logger, f"reading the figures of the {name}") for name in ("log", "broker")}
        self._found: list[Metric] = []
        self._read_at = float("-inf")

    def describe(self) -> Iterator[Metric]:
        """Nothing: to be registered is no reason to ask the servers."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The figures of now, or of a second ago."""
        with self._lock:
            if time.monotonic() - self._read_at > _FRESH_SECONDS:
                began = time.monotonic()
                self._found = [*self._read(self._log.read, "log", log_metrics)]
                self._found += self._read(self._queues.read, "broker", queue_metrics)
                self._read_at = time.monotonic()
                self._found.append(
                    _gauge("acts_collection_seconds", "How long it took to read these figures.", self._read_at - began)
                )
            yield from self._found

    def _read(self, read: Callable[[], T], server: str, metrics: Callable[[T], Iterator[Metric]]) -> Iterator[Metric]:
        about = f"Whether the {server} answers."
        try:
            found = read()
        except (RedisError, InfrastructureError, OSError) as error:
            self._outages[server].failed(error)
            yield _gauge(f"acts_{server}_up", about, 0)
            return
        self._outages[server].succeeded()
        yield _gauge(f"acts_{server}_up", about, 1)
        yield from metrics(found)


def log_metrics(found: LogFigures) -> Iterator[Metric]:
    """What is in the log."""
    runs = {status: found.runs[status] for status in {*_RUN_STATUSES, *found.runs}}
    calls = {status: found.calls[status] for status in _CALL_STATUSES}
    yield _by("acts_runs", "Runs under way.", "status", runs)
    yield _by("acts_outstanding_calls", "Calls of runs under way that have not ended.", "status", calls)
    yield _by("acts_backlog_tasks", "Lanes of runs under way that are not in their queue yet.", "queue", found.backlog)
    for name, about, value in (
        ("acts_runs_unread", "Runs under way that are not in these figures yet.", found.unread),
        ("acts_runs_oldest_reading_seconds", "Age of the oldest reading in these figures.", found.oldest_seconds),
        ("acts_runs_kept", "Runs that have ended and are kept.", found.kept),
        ("acts_runs_written_bytes", "What the calls of runs under way have written to the log.", found.written_bytes),
        ("acts_held_oldest_seconds", "How long the oldest held call waits for a person.", found.held_seconds),
        ("acts_dead_letters", "Calls that were sent and forgotten, and failed for good.", found.dead_letters),
        ("acts_sweep_age_seconds", "How long no sweep has been, while runs were under way.", found.sweep_seconds),
        ("acts_log_memory_bytes", "Memory in use on the log's server.", found.memory_bytes),
        ("acts_log_memory_limit_bytes", "Its maxmemory; 0 for none.", found.most_memory_bytes),
    ):
        yield _gauge(name, about, value)


def queue_metrics(found: Mapping[str, QueueFigures]) -> Iterator[Metric]:
    """What lies in the queues."""
    tasks = {name: queue.tasks for name, queue in found.items()}
    oldest = {name: queue.oldest_seconds for name, queue in found.items() if queue.oldest_seconds is not None}
    yield _by(
        "acts_queue_tasks", "Tasks in a queue: calls; in that of the instances lanes and results.", "queue", tasks
    )
    yield _by("acts_queue_oldest_seconds", "How long the oldest task of a queue lies there.", "queue", oldest)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value)


def _by(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    found = GaugeMetricFamily(name, about, labels=[label])
    for key, value in sorted(values.items()):
        found.add_metric([key], value)
    return found
