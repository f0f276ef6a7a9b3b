"""Metrics of the log and the queues as `acts metrics` shows them: gauges, read when they are asked for.

Requests within one second get the same figures. Where a server does not answer, its figures are left out, and
`acts_log_up` or `acts_broker_up` is 0.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

from celery import Celery
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from ...broker_config import Settings
from .. import limits
from ..backoff import batches
from ..broker.transport import broker_failures, queue_length
from ..errors import InfrastructureError
from ..outages import Outage
from ..store.connections import server_facts
from ..store.keys import ENDED_STATUSES
from ..store.living import QueuedMessage, QueueList, read_queue_note
from ..store.run_list import RunList
from ..store.scripts import server_ms
from ..store.slots import count_waiting
from ..store.waiting import DeadLetters

# What is in the log now: runs under way and their calls, what waits for people, dead letters, the sweep, memory.
#
# A reading costs as much as the runs under way; what has ended is counted by its number alone. It takes up to 10,000 of
# those under way, new ones first, then those that were read longest ago, and three seconds at most. Where there are
# more, the sums hold figures of earlier readings, and `oldest_seconds` says how old these may be.

_FIELDS: Final = ("status", "remaining", "running", "bytes")


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """Metrics of one run under way."""

    status: str
    waiting: int
    running: int
    held: int
    held_since_ms: float | None
    """When its oldest held call began to wait for a person."""
    sent: int
    """How many calls it has sent without waiting for them that are not done yet."""
    backlog: int
    """How many of its lanes wait for their turn to be published."""
    written_bytes: int

    @classmethod
    def read(cls, found: Sequence[Any]) -> RunMetrics | None:
        """Read the answer of `RunList.loads`; None where the run has gone meanwhile."""
        (status, *numbers), held, since, backlog, sent = found
        if status is None:
            return None
        remaining, running, written = (int(number or 0) for number in numbers)
        is_over = status in ENDED_STATUSES
        held = 0 if is_over else held
        waiting = 0 if is_over else max(0, remaining - running - held)
        return cls(status, waiting, running, held, since if held else None, sent, backlog, written)


@dataclass(frozen=True, slots=True)
class LogMetrics:
    """Metrics of all runs of a backend, and of the server of its log."""

    runs: Counter[str]
    """The runs under way, counted by status."""
    unread: int
    """How many of them no reading has taken yet."""
    oldest_seconds: float
    """How long ago the oldest of the figures was read."""
    kept: int
    """How many have ended and are kept."""
    calls: Counter[str] = field(default_factory=Counter)
    """The calls of runs under way that have not ended, counted by status."""
    backlog: Mapping[str, int] = field(default_factory=dict)
    """Lanes that are not in the queue yet, by the queue that they will be in."""
    limited: Mapping[str, int] = field(default_factory=dict)
    """The calls that wait for a slot, by the limit that they wait for."""
    written_bytes: int = 0
    held_seconds: float = 0.0
    """How long the oldest held call waits; 0 where none is held."""
    dead_letters: int = 0
    sweep_seconds: float = 0.0
    """How long no sweep has reached both servers, while runs were under way."""
    memory_bytes: int = 0
    """The memory that the log's server has in use, for whatever; in a cluster all nodes together."""
    most_memory_bytes: int = 0
    """The memory that the server may have in use (`maxmemory`); 0 for no limit."""


class LogReader:
    """Reads the figures of the log. Raises `RedisError` and `InfrastructureError`."""

    def __init__(self, redis: Redis, settings: Settings, *, most_read: int = limits.MOST_READ) -> None:
        self._redis = redis
        self._prefix = settings.key_prefix
        self._list = RunList(redis, settings.key_prefix)
        self._queue = settings.queue_instances
        self._letters = DeadLetters(redis, settings)
        self._most_read = most_read
        self._runs: dict[str, tuple[int, RunMetrics]] = {}
        """When each run under way was read last, in ms, and what was found; the oldest reading comes first."""

    def read(self) -> LogMetrics:
        """Read the figures of now."""
        now = server_ms(self._redis)
        submitted = self._list.under_way()
        self._read_runs(submitted, now)
        known = [found for _, found in self._runs.values()]
        held = [found.held_since_ms for found in known if found.held_since_ms is not None]
        calls = Counter[str]()
        for found in known:
            calls.update(waiting=found.waiting, running=found.running, held=found.held, sent=found.sent)
        memory = server_facts(self._redis, "memory")
        return LogMetrics(
            runs=Counter(found.status for found in known),
            unread=len(submitted) - len(known),
            oldest_seconds=(now - min((read for read, _ in self._runs.values()), default=now)) / 1000,
            kept=self._list.count_ended(),
            calls=calls,
            backlog={self._queue: sum(found.backlog for found in known)},
            limited=count_waiting(self._redis, self._prefix),
            written_bytes=sum(found.written_bytes for found in known),
            held_seconds=max(0.0, (now - min(held)) / 1000) if held else 0.0,
            dead_letters=self._letters.count(),
            sweep_seconds=self._sweep_seconds(submitted.values(), now),
            memory_bytes=sum(each["used_memory"] for each in memory),
            most_memory_bytes=sum(each.get("maxmemory", 0) for each in memory),
        )

    def _read_runs(self, listed: Iterable[str], now: int) -> None:
        """Read as many runs as a reading may take."""
        names = dict.fromkeys(listed)
        self._runs = {name: found for name, found in self._runs.items() if name in names}
        new = [name for name in names if name not in self._runs]
        turn = [*new, *self._runs][: self._most_read]
        until = time.monotonic() + limits.METRICS_SECONDS
        for page in batches(turn, limits.AT_ONCE):
            if time.monotonic() > until:
                break
            for name, answer in zip(page, self._list.loads(page, *_FIELDS), strict=True):
                self._runs.pop(name, None)
                if (found := RunMetrics.read(answer)) is not None:
                    self._runs[name] = now, found

    def _sweep_seconds(self, submitted: Iterable[float], now: int) -> float:
        """For how long there was no sweep. Where no run is under way none sweeps, and that is no silence."""
        since = min(submitted, default=None)
        if since is None:
            return 0.0
        return max(0.0, (now - max(since, self._list.last_sweep() or 0)) / 1000)


# What lies in the queues now, in tasks: several travel in one message, and its headers say how many.
#
# In RabbitMQ each task travels alone, so the broker's own count is theirs. In Redis a queue is a list, to the left of
# which messages are put, and from the right of which they are taken. A reading looks at those that came since the last
# one, and at the right end, where workers put back the rest of an envelope that they had no room for. So it costs what
# has come, whatever lies there; a queue that is long when it is read for the first time is read in several turns.


@dataclass(frozen=True, slots=True)
class QueueMetrics:
    """Metrics of one queue."""

    tasks: int
    oldest_seconds: float | None
    """How long its oldest message has been there, 0 for an empty queue; None where it is not known, in RabbitMQ."""


class RedisQueue:
    """A queue in Redis, of which what was read before is known. Raises `RedisError`."""

    def __init__(self, queue: QueueList) -> None:
        self._queue = queue
        self._known: deque[QueuedMessage] = deque()
        """From the left end without a gap."""
        self._mean_bytes = float(limits.BYTES_AT_ONCE)  # so that the first reading is of one message

    def read(self, until: float) -> QueueMetrics:
        """Read the figures of now. A message that there was no time to read counts as one task."""
        length, end = self._look()
        while len(self._known) < length and time.monotonic() < until and self._read_older():
            length, end = self._look()
        if len(self._known) == length:
            for message in reversed(end):
                self._known[-1] = message
                self._known.rotate()
            self._known.rotate(-len(end))
        oldest = end[-1].sent if end else None
        waited = max(0.0, time.time() - oldest) if oldest is not None else 0.0
        unread = length - len(self._known)
        return QueueMetrics(sum(message.tasks for message in self._known) + unread, waited)

    def _look(self) -> tuple[int, list[QueuedMessage]]:
        """The length of the queue and its right end at one moment; what was new at its left end is known now."""
        size = self._page_size() if not self._known else min(limits.METRICS_END, self._page_size())
        while True:
            length, page, end = self._queue.ends(size, min(limits.METRICS_END, size))
            messages = self._read(page)
            tags = [message.tag for message in messages]
            if self._known and self._known[0].tag in tags:
                self._known.extendleft(reversed(messages[: tags.index(self._known[0].tag)]))
                break
            if not self._known or len(page) < size or size >= self._page_size():
                self._known = deque(messages)  # what was known has been taken, or there is a gap before it
                break
            size = min(4 * size, self._page_size())
        while len(self._known) > length:
            self._known.pop()
        return length, self._read(end)

    def _read_older(self) -> bool:
        """Read on to the right of what is known; says whether there was anything."""
        size = self._page_size()
        tags = {message.tag for message in islice(reversed(self._known), size)}
        page = self._read(self._queue.part(len(self._known), size))
        older = [message for message in page if message.tag not in tags]  # others have come at the left meanwhile
        self._known.extend(older)
        return bool(older)

    def _page_size(self) -> int:
        return max(1, min(limits.MOST_AT_ONCE, int(limits.BYTES_AT_ONCE / self._mean_bytes)))

    def _read(self, found: Sequence[bytes]) -> list[QueuedMessage]:
        if found:
            self._mean_bytes = max(1.0, sum(map(len, found)) / len(found))
        return [QueuedMessage.read(raw) for raw in found]


class QueueReader:
    """Reads the queues of these names; `redis` is the broker where it is one, whose keys begin with `prefix`. The `log`
    has what workers note of queues whose messages this user may only count.
    """

    def __init__(
        self,
        app: Celery,
        redis: Redis | None,
        prefix: str,
        names: Iterable[str],
        *,
        log: Redis | None = None,
        key_prefix: str = "acts",
    ) -> None:
        self._app = app
        self._names = tuple(names)
        self._log = log or redis
        self._key_prefix = key_prefix
        lists = {name: QueueList(redis, f"{prefix}{name}") for name in self._names} if redis is not None else {}
        self._lists = lists
        self._queues = {name: RedisQueue(found) for name, found in lists.items()}
        self._filled_since: dict[str, float] = {}
        """Since when messages are seen in each queue that is only counted."""
        self._is_refused = False

    def read(self) -> Mapping[str, QueueMetrics]:
        """Read the figures of each queue. Raises `RedisError` and `InfrastructureError`."""
        if self._queues and not self._is_refused:
            until = time.monotonic() + limits.QUEUE_SECONDS
            try:
                return {name: queue.read(until) for name, queue in self._queues.items()}
            except NoPermissionError:
                self._is_refused = True
        if self._queues:
            return {name: self._counted(name) for name in self._names}
        with broker_failures("the broker does not answer"), self._app.connection_for_read() as connection:
            return {name: QueueMetrics(queue_length(connection, name), None) for name in self._names}

    def _counted(self, name: str) -> QueueMetrics:
        """The figures of a queue whose messages are not read, about: as many tasks to a message as in those that a
        worker has looked at; as old as it has noted or, where it has not for a while, as long as messages are seen.
        """
        assert self._log is not None
        length, now = self._lists[name].count(), time.time()
        if not length:
            self._filled_since.pop(name, None)
            return QueueMetrics(0, 0.0)
        since = self._filled_since.setdefault(name, now)
        note = read_queue_note(self._log, self._key_prefix, name)
        if note is None or now - note.at > limits.QUEUE_FRESH_SECONDS:
            return QueueMetrics(length, now - since)
        return QueueMetrics(round(length * max(1.0, note.mean_tasks)), max(0.0, now - (note.sent or note.at)))


logger = logging.getLogger(__name__)

_RUN_STATUSES: Final = ("scheduled", "running", "paused")
_CALL_STATUSES: Final = ("waiting", "running", "held", "sent")

T = TypeVar("T")


class Collection(Collector):
    """The figures for prometheus-client, which asks for them from any thread."""

    def __init__(self, log: LogReader, queues: QueueReader) -> None:
        self._log = log
        self._queues = queues
        self._lock = threading.Lock()
        self._outages = {name: Outage(logger, f"reading the figures of the {name}") for name in ("log", "broker")}
        self._found: list[Metric] = []
        self._read_at = float("-inf")

    def describe(self) -> Iterator[Metric]:
        """Name no figure: to be registered is no reason to ask the servers."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Read the figures, unless they were read within the last second."""
        with self._lock:
            if time.monotonic() - self._read_at > limits.FRESH_SECONDS:
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


def log_metrics(found: LogMetrics) -> Iterator[Metric]:
    """Make metrics of the figures of the log."""
    runs = {status: found.runs[status] for status in {*_RUN_STATUSES, *found.runs}}
    calls = {status: found.calls[status] for status in _CALL_STATUSES}
    yield _by("acts_runs", "Runs under way.", "status", runs)
    yield _by("acts_outstanding_calls", "Calls of runs under way that have not ended.", "status", calls)
    yield _by("acts_backlog_tasks", "Lanes of runs under way that are not in their queue yet.", "queue", found.backlog)
    yield _by("acts_limited_calls", "Calls that wait for max_concurrency or a rate.", "limit", found.limited)
    for name, about, value in (
        ("acts_runs_unread", "Runs under way that are not in these figures yet.", found.unread),
        ("acts_runs_oldest_reading_seconds", "Age of the oldest reading in these figures.", found.oldest_seconds),
        ("acts_runs_kept", "Runs that have ended and are kept.", found.kept),
        ("acts_runs_written_bytes", "What the calls of runs under way have written to the log.", found.written_bytes),
        ("acts_held_oldest_seconds", "How long the oldest held call waits for a person.", found.held_seconds),
        ("acts_dead_letters", "Fire-and-forget calls that failed for good.", found.dead_letters),
        ("acts_sweep_age_seconds", "How long no sweep has been, while runs were under way.", found.sweep_seconds),
        ("acts_log_memory_bytes", "Memory in use on the log's server.", found.memory_bytes),
        ("acts_log_memory_limit_bytes", "Its maxmemory; 0 for none.", found.most_memory_bytes),
    ):
        yield _gauge(name, about, value)


def queue_metrics(found: Mapping[str, QueueMetrics]) -> Iterator[Metric]:
    """Make metrics of the figures of the queues."""
    tasks = {name: queue.tasks for name, queue in found.items()}
    oldest = {name: queue.oldest_seconds for name, queue in found.items() if queue.oldest_seconds is not None}
    yield _by(
        "acts_queue_tasks", "Tasks in a queue: calls; lanes and results in the queue of instances.", "queue", tasks
    )
    yield _by("acts_queue_oldest_seconds", "How long the oldest task of a queue lies there.", "queue", oldest)


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value)


def _by(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    found = GaugeMetricFamily(name, about, labels=[label])
    for key, value in sorted(values.items()):
        found.add_metric([key], value)
    return found
