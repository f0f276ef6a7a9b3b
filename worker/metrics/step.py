"""Figures in a worker: kept and shown for as long as it runs, where a port is set (`ACTS_METRICS_PORT`)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from celery import bootsteps
from celery.concurrency.prefork import TaskPool as PreforkPool
from celery.worker import WorkController

from acts_celery.broker_config import Settings
from acts_celery.worker.errors import WorkerError
from acts_celery.worker.process.figures import Figures, keep_figures

from .serving import new_registry, serve

logger = logging.getLogger(__name__)


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
                "with --pool prefork the calls are carried out by other processes, whose figures are not shown: leave "
                "out ACTS_METRICS_PORT, or take another pool"
            )
        registry = new_registry()
        from .process_figures import ProcessFigures

        code = parent.app.conf.acts_runtimes.registry
        queues = sorted(parent.app.amqp.queues.consume_from)
        keep_figures(ProcessFigures(registry, queues, [*code.activities, *code.delegates]))
        port, self._stop = serve(registry, settings.metrics_host, settings.metrics_port)
        logger.info("figures are shown on http://%s:%d/metrics", settings.metrics_host, port)

    def stop(self, parent: WorkController) -> None:
        """Called by the worker when it stops."""
        if self._stop is not None:
            self._stop()
            keep_figures(Figures())
