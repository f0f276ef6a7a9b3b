"""Publishing lanes that stand in the log: where the broker does not take them, the workers' sweep publishes them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from acts_celery.broker_config import Settings
from acts_celery.worker.broker.publisher import Publisher
from acts_celery.worker.errors import InfrastructureError
from acts_celery.worker.wire.task_messages import lane_task

logger = logging.getLogger(__name__)


def publish_lanes(
    publisher: Publisher, settings: Settings, run: str, lanes: Iterable[str], *, has: str | None = None
) -> bool:
    """Publish lanes by their tokens; says whether they are. Without `has`, what the run `has` come to by now, raises
    `InfrastructureError`.
    """
    try:
        publisher.publish(lane_task(run, lane or None, settings.queue_instances) for lane in lanes)
    except InfrastructureError as error:
        if has is None:
            raise
        logger.warning("run %s %s, the workers' sweep publishes its tasks: %s", run, has, error)
        return False
    return True
