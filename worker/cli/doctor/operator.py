"""The layer of what the operator says of tools: whether the file can be read, and what of it may not be meant so."""

from __future__ import annotations

from collections.abc import Iterator

from acts_celery.broker_config import Settings
from acts_celery.worker.errors import ActivitiesError

from .layer import Layer


def examine_operator(settings: Settings) -> Iterator[Layer]:
    """Nothing where no file is named."""
    if settings.trust is None:
        return
    from acts_celery.worker.registry.activities import registry
    from acts_celery.worker.registry.operator_trust import doubts, operator_trust

    layer = Layer("trust")
    yield layer
    try:
        layer.add(f"{settings.trust} speaks of {', '.join(sorted(operator_trust(settings).said)) or 'no tool'}")
        for doubt in doubts(settings, registry):
            layer.warn(doubt, "correct the file, or ignore this")
    except ActivitiesError as error:
        layer.fail(str(error), "correct the file, or ACTS_TRUST")
