"""Making the Celery application from settings."""

from __future__ import annotations

from typing import Any, Final

from celery import Celery, bootsteps

from acts_celery.broker_config import Settings, celery_configuration, queue
from acts_celery.broker_config.urls import scheme_of
from acts_celery.worker.broker.admission import QueueConsumer
from acts_celery.worker.broker.consumer import CONSUMER
from acts_celery.worker.broker.decoding import restrict_decoding
from acts_celery.worker.broker.task_events import EVENTS
from acts_celery.worker.broker.transport import BackendConnection
from acts_celery.worker.liveness.heartbeats import ReservedStep
from acts_celery.worker.metrics.step import MetricsStep
from acts_celery.worker.models.configured import verify_models
from acts_celery.worker.process.limits import limits_of
from acts_celery.worker.process.log_setup import set_up_logs
from acts_celery.worker.process.refusals import RefusalsStep
from acts_celery.worker.recovery.sweep import SweepStep
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.registry.loading import require_own_queues

from .celery_options import refuse_half_patched
from .garbage import GarbageStep
from .health_report import HealthStep
from .operator_step import OperatorStep
from .pool import POOL
from .runtime import Runtimes, WorkerNameStep
from .tasks import register_tasks


def make_application(settings: Settings, registry: Registry, *, verifies_models: bool = True) -> Celery:
    """A worker's application: configured, with our tasks and the sweep. Raises `broker_config.NotConfigured`."""
    refuse_half_patched()
    require_own_queues(registry, settings)
    if verifies_models:  # one that cannot be had is reported when the worker starts, not in every task
        verify_models(settings, registry)
    restrict_decoding(limits_of(settings))
    app = make_client_application(settings)
    app.conf.acts_settings = settings
    app.conf.worker_consumer = CONSUMER
    app.amqp.Consumer = QueueConsumer
    set_up_logs(app, settings)
    app.conf.worker_pool = POOL
    app.steps["worker"].update(
        (WorkerNameStep, ConnectionsStep, OperatorStep, GarbageStep, SweepStep, ReservedStep, RefusalsStep, MetricsStep)
    )
    app.steps["consumer"].add(HealthStep)
    # Without -Q a worker serves these too.
    app.conf.task_queues = (*app.conf.task_queues, *(queue(name, settings) for name in registry.queues()))
    app.conf.acts_runtimes = Runtimes(app, settings, registry)
    register_tasks(app, app.conf.acts_runtimes, limits_of(settings))
    return app


class ConnectionsStep(bootsteps.Step):  # type: ignore[misc]  # celery has no types
    """Bounds the connections on which a worker process publishes. Other programs that use the application keep Celery's
    own limit: Flower holds one for each of its eight questions to workers and needs another one to send them.
    """

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        worker.app.conf.broker_pool_limit = worker.app.conf.acts_settings.broker_connections


_ANSWERED_WITHIN: Final = {"read_timeout": 5, "write_timeout": 5}
"""A RabbitMQ that is short of memory or disk takes nothing and says nothing: seconds until that is an error."""


class _Application(Celery):  # type: ignore[misc]  # celery has no types
    """Celery's application, with the servers of the settings. CELERY_BROKER_URL, which Celery makes of BROKER_URL, and
    CELERY_RESULT_BACKEND belong to other applications.
    """

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        return super().connection_for_read(url or self.conf["broker_url"], **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        return super().connection_for_write(url or self.conf["broker_url"], **options)

    connection = connection_for_write


def make_client_application(settings: Settings) -> Celery:
    """An application that only publishes; nothing of its process is changed."""
    app = _Application("acts", set_as_current=False, events=EVENTS)
    app.conf.update(celery_configuration(settings))
    app.backend_cls = app.conf["result_backend"] or "disabled"
    if scheme_of(settings.require_broker()).startswith("amqp"):
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, **_ANSWERED_WITHIN}
    app.amqp.Connection = BackendConnection
    return app
