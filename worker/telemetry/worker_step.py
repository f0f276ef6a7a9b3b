"""Metrics in a worker: kept and shown for as long as it runs, where a port is set (`ACTS_METRICS_PORT`).

Every worker has this step, and only where a port is set it loads prometheus-client, which comes with an extra.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType

from celery import bootsteps
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.worker import WorkController

from ...broker_config import Settings
from ..errors import WorkerError
from ..process import Metrics, keep_metrics

logger = logging.getLogger(__name__)


def load_process_metrics() -> ModuleType:
    """Load the module `process_metrics`. Raises `WorkerError` where prometheus-client is not installed."""
    try:
        from . import process_metrics as loaded
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        text = "metrics need prometheus-client: pip install '.[metrics]' in the clone of acts-celery"
        raise WorkerError(text) from error
    return loaded


class MetricsStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Raises `WorkerError` where figures cannot be shown: the worker does not start then."""

    def __init__(self, parent: WorkController, **options: object) -> None:
        super().__init__(parent, **options)
        self._stop: Callable[[], None] | None = None
        settings: Settings = parent.app.conf.acts_settings
        if settings.metrics_port is None:
            return
        if issubclass(parent.pool_cls, PreforkPool):
            raise WorkerError(
                "with --pool prefork, other processes run the calls, and their metrics are not shown: leave out "
                "ACTS_METRICS_PORT, or use another pool"
            )
        metrics = load_process_metrics()
        registry = metrics.new_registry()
        code = parent.app.conf.acts_runtimes.registry
        queues = sorted(parent.app.amqp.queues.consume_from)
        keep_metrics(metrics.ProcessMetrics(registry, queues, [*code.activities, *code.delegates]))
        port, self._stop = metrics.serve(registry, settings.metrics_host, settings.metrics_port)
        logger.info("figures are shown on http://%s:%d/metrics", settings.metrics_host, port)

    def stop(self, parent: WorkController) -> None:
        """Called by the worker when it stops."""
        if self._stop is not None:
            self._stop()
            keep_metrics(Metrics())
