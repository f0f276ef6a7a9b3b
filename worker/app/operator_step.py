"""Warns, when a worker starts, of what the operator says of tools and may not mean so (`ACTS_TRUST`)."""

from __future__ import annotations

import logging

from celery import bootsteps
from celery.worker import WorkController

from acts_celery.worker.registry.operator_trust import doubts

logger = logging.getLogger(__name__)


class OperatorStep(bootsteps.Step):  # type: ignore[misc]  # celery has no types
    """Takes part in the making of a worker. Raises `ActivitiesError`: without the file it would take tasks that it does
    not know the labels of.
    """

    def __init__(self, parent: WorkController, **options: object) -> None:
        super().__init__(parent, **options)
        runtimes = parent.app.conf.acts_runtimes
        for doubt in doubts(parent.app.conf.acts_settings, runtimes.registry):
            logger.warning("%s", doubt)
