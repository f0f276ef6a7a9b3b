"""What a worker has taken from the broker and not begun: remote calls that wait for a free thread or pool process.

Others take such a call for lost when they hear nothing of it. So each worker speaks for what it has reserved, as often
as `heartbeats` does for what is at work. Where as many messages are taken as can be begun (`worker_prefetch_multiplier`
1, our setting), there is nothing to say and nothing is sent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Final

from celery import bootsteps
from celery.worker import WorkController, state

from acts_celery.broker_config import EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE, Settings
from acts_celery.protocol import Limits
from acts_celery.worker.errors import InfrastructureError, MalformedMessage

from .heartbeats import Reports, report_interval_seconds
from .limits import limits_of
from .messages import Report, Sign, sign_in
from .outages import Outage

logger = logging.getLogger(__name__)

_REMOTE: Final = (EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE)


class ReservedStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Reports what is reserved, in every worker, from the process that consumes."""

    def __init__(self, parent: WorkController, **options: object) -> None:
        super().__init__(parent, **options)
        self._stopped = threading.Event()

    def start(self, parent: WorkController) -> None:
        """Called by the worker when it starts."""
        settings: Settings = parent.app.conf.acts_settings
        arguments = Reports(parent.app, settings), limits_of(settings), report_interval_seconds(settings)
        threading.Thread(target=self._report_forever, args=arguments, name="acts-reserved", daemon=True).start()

    def stop(self, parent: WorkController) -> None:
        """Called by the worker when it stops."""
        self._stopped.set()

    def _report_forever(self, reports: Reports, limits: Limits, interval_seconds: float) -> None:
        def report() -> None:
            if held := tuple(_reserved(limits)):
                reports.send(Report(held=held))

        outage = Outage(logger, "reporting the calls that are reserved")
        outage.keep_doing(report, self._stopped, interval_seconds, InfrastructureError)


def _reserved(limits: Limits) -> Iterator[Sign]:
    """The remote calls that were taken and not begun."""
    for request in list(state.requests.values()):  # at once: the consumer goes on meanwhile
        if request.name in _REMOTE and request not in state.active_requests:
            try:
                yield sign_in(request.args[0] if request.args else None, limits)
            except MalformedMessage:
                pass  # it is refused when it is begun
