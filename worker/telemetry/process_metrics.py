"""Metrics of a worker's process, of what it has done and has at work: counters, histograms and gauges of its own.

Each thing is counted by one process: an attempt by the one that runs it, the end of a call by the one that
commits it, the end of a run by the one that takes it from the list. So the sum over all processes is the whole.

Names of tools, codes and models come from submissions too: a process shows a bounded number of them, and the rest
together as `other`.

What happens for each call is noted only, and added up a thousand at a time and when the figures are read: among all
else that a call does, prometheus-client's counters cost three times as much one by one.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from threading import Lock
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, start_http_server
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from .. import limits
from ..errors import WorkerError
from ..process import BoundedNames, Metrics, Tokens, refusals

OTHER: Final = "other"
"""The label of what has no name of its own."""
_NANO: Final = 1e-9
_AT_WORK_SECONDS: Final = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_WAIT_SECONDS: Final = (0.01, 0.05, 0.25, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_COMMIT_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_MODEL_SECONDS: Final = (0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)

M = TypeVar("M")
Add = Callable[[str, str, float], None]
"""Adds to the series of two labels."""


class _Series(dict[tuple[str, ...], M], Generic[M]):
    """The series of a metric by their labels; prometheus-client's own look-up takes a lock each time."""

    def __init__(self, series_of: Callable[..., M]) -> None:
        super().__init__()
        self._series_of = series_of

    def __missing__(self, labels: tuple[str, ...]) -> M:
        self[labels] = series = self._series_of(*labels)
        return series


class ProcessMetrics(Metrics, Collector):
    """Keeps them, and shows them in a registry; `queues` are those that the process serves, `code` the names of its
    activities and delegates, which have a label whatever else takes one.
    """

    def __init__(self, registry: CollectorRegistry, queues: Collection[str], code: Iterable[str] = ()) -> None:
        kept = self._kept = CollectorRegistry()
        self._lock = Lock()
        self._counted: deque[tuple[Add, str, str, int]] = deque()
        self._timed: deque[tuple[Add, str, str, float]] = deque()

        def counter(name: str, about: str, *labels: str) -> _Series[Counter]:
            return _Series(Counter(name, about, labels, registry=kept).labels)

        def gauge(name: str, about: str, *labels: str) -> _Series[Gauge]:
            return _Series(Gauge(name, about, labels, registry=kept).labels)

        def histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> _Series[Histogram]:
            return _Series(Histogram(name, about, labels, buckets=buckets, registry=kept).labels)

        name, self._model_name = _labels(BoundedNames(known=code)), _labels(BoundedNames(limits.MOST_MODELS))
        calls = counter("acts_calls", "Calls that have ended, by commits of this process.", "tool", "status")
        attempts = counter("acts_attempts", "Attempts that this process has run.", "tool", "outcome")
        at_work = gauge("acts_attempts_at_work", "Attempts that this process is running.", "tool")
        took = histogram("acts_attempt_seconds", "How long attempts were at work.", _AT_WORK_SECONDS, "tool")
        reports = counter("acts_progress_reports", "Reports of progress that attempts here have made.", "tool")
        in_hand = gauge("acts_tasks_in_hand", "Tasks that this process has taken and not answered.", "queue")
        waits = histogram("acts_wait_seconds", "How long tasks lay in a queue.", _WAIT_SECONDS, "queue", "tool")
        commits = Histogram(
            "acts_commit_seconds", "How long commits to the log took.", buckets=_COMMIT_SECONDS, registry=kept
        )
        self._calls: Add = lambda tool, status, number: calls[name(tool), status].inc(number)
        self._attempts: Add = lambda code, outcome, number: attempts[name(code), outcome].inc(number)
        self._at_work: Add = lambda code, _, number: at_work[name(code),].inc(number)
        self._took: Add = lambda code, _, seconds: took[name(code),].observe(seconds)
        self._reports: Add = lambda code, _, number: reports[name(code),].inc(number)
        self._in_hand: Add = lambda queue, _, number: in_hand[name(queue),].inc(number)
        self._waits: Add = lambda queue, code, seconds: waits[name(queue), name(code) if code else ""].observe(seconds)
        self._commits: Add = lambda _, __, seconds: commits.observe(seconds)
        self._runs = counter("acts_runs_ended", "Runs that have ended, as this process has noted.", "status")
        self._requests = counter("acts_model_requests", "Requests to models that are over.", "model", "outcome")
        self._unpriced = counter("acts_model_unpriced_requests", "Those answered without a known price.", "model")
        self._tokens = counter("acts_model_tokens", "Tokens; `input` without those from a cache.", "model", "kind")
        self._dollars = counter("acts_model_dollars", "What models cost, where the price is known.", "model")
        self._answers = histogram(
            "acts_model_request_seconds", "How long models took to answer.", _MODEL_SECONDS, "model"
        )
        serves = gauge("acts_serves_queue", "1 for each queue from which this process takes tasks.", "queue")
        for queue in queues:
            serves[queue,].set(1)
            in_hand[name(queue),].set(0)
        kept.register(_Refusals())
        ProcessCollector(registry=kept)
        registry.register(self)

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics that there are."""
        yield from self._kept.collect()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of now."""
        self._add_up()
        yield from self._kept.collect()

    def _add_up(self) -> None:
        with self._lock:
            sums = defaultdict[tuple[Add, str, str], int](int)
            for _ in range(len(self._counted)):
                add, name, label, number = self._counted.popleft()
                sums[add, name, label] += number
            for (add, name, label), number in sums.items():
                add(name, label, number)
            for _ in range(len(self._timed)):
                add, name, label, seconds = self._timed.popleft()
                add(name, label, seconds)

    def _count(self, add: Add, name: str, label: str = "", number: int = 1) -> None:
        self._counted.append((add, name, label, number))
        if len(self._counted) >= limits.PROCESS_METRICS_AT_ONCE:
            self._add_up()

    def call_ended(self, tool: str, status: str) -> None:
        """Count a call that has ended."""
        self._count(self._calls, tool, status)

    def attempt_began(self, code: str) -> None:
        """Count an attempt as at work."""
        self._count(self._at_work, code)

    def attempt_ended(self, code: str, outcome: str, seconds: float) -> None:
        """Count an attempt, and note how long it took unless it was cancelled."""
        self._count(self._at_work, code, number=-1)
        self._count(self._attempts, code, outcome)
        if outcome != "cancelled":
            self._timed.append((self._took, code, "", seconds))

    def progressed(self, code: str) -> None:
        """Count a report of progress."""
        self._count(self._reports, code)

    def task_taken(self, queue: str) -> None:
        """Count a task as in hand."""
        self._count(self._in_hand, queue)

    def task_answered(self, queue: str) -> None:
        """Count a task as in hand no more."""
        self._count(self._in_hand, queue, number=-1)

    def waited(self, queue: str, code: str, seconds: float) -> None:
        """Note how long a task lay in a queue."""
        self._timed.append((self._waits, queue, code, seconds))

    def committed(self, seconds: float) -> None:
        """Note how long a commit took."""
        self._timed.append((self._commits, "", "", seconds))

    def run_ended(self, status: str) -> None:
        """Count a run that has ended."""
        self._runs[status,].inc()

    def model_answered(self, model: str, tokens: Tokens | None, nanodollars: int | None, seconds: float) -> None:
        """Count an answered request, its tokens and its price."""
        name = self._model_name(model)
        self._requests[name, "answered"].inc()
        self._answers[name,].observe(seconds)
        for kind, number in tokens._asdict().items() if tokens is not None else ():
            self._tokens[name, kind].inc(number)
        if nanodollars is None:
            self._unpriced[name,].inc()
        else:
            self._dollars[name,].inc(nanodollars * _NANO)

    def model_failed(self, model: str, error: str) -> None:
        """Count a failed request."""
        self._requests[self._model_name(model), error].inc()


def _labels(names: BoundedNames) -> Callable[[str], str]:
    return lambda name: names.bounded(name) or OTHER


class _Refusals(Collector):
    """Counts the messages that this process has refused."""

    def collect(self) -> Iterator[Metric]:
        """Yield the number of refusals."""
        found = CounterMetricFamily(
            "acts_refusals", "Messages and commands that this process has refused.", labels=["kind"]
        )
        for kind, number in refusals().items():
            found.add_metric([kind], number)
        yield found


# A page of figures on a port, as Prometheus reads it. It is prometheus-client's own, on a thread.


def new_registry() -> CollectorRegistry:
    """A registry with nothing in it."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has none
    return CollectorRegistry()


def serve(registry: CollectorRegistry, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Show a registry on a port, 0 for any that is free; returns which it is, and what ends that. Raises
    `WorkerError`.
    """
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise WorkerError(
            f"figures cannot be shown on {host}:{port} ({error.strerror or error}): name another port or address "
            "(ACTS_METRICS_PORT, ACTS_METRICS_HOST; each further process of a worker takes the next port)"
        ) from error

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return int(server.server_address[1]), stop
