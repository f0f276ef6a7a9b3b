"""Publishing lanes that stand in the log: where the broker does not take them, the workers' sweep publishes them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import chain

from acts_celery.broker_config import Settings
from acts_celery.worker.broker.publisher import Publisher
from acts_celery.worker.errors import InfrastructureError
from acts_celery.worker.wire.task_messages import TaskMessage, lane_task

logger = logging.getLogger(__name__)


def publish_lanes(
    publisher: Publisher,
    settings: Settings,
    run: str,
    lanes: Iterable[str],
    forgotten: Iterable[TaskMessage] = (),
    *,
    has: str | None = None,
) -> bool:
    """Publish lanes by their tokens, and what is sent and forgotten; says whether they are. Without `has`, what the run
    `has` come to by now, raises `InfrastructureError`.
    """
    try:
        driving = (lane_task(run, lane or None, settings.queue_instances) for lane in lanes)
        publisher.publish(chain(driving, forgotten))
    except InfrastructureError as error:
        if has is None:
            raise
        logger.warning("run %s %s, its tasks are published by the workers within seconds: %s", run, has, error)
        return False
    return True
