"""What a worker has taken from the broker and not begun: remote calls that wait for a free thread or pool process.

Others take such a call for lost when they hear nothing of it. So each worker speaks for what it has reserved, as often
as `heartbeats` does for what is at work. Where as many messages are taken as can be begun (`worker_prefetch_multiplier`
1, our setting), there is nothing to say and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from celery import bootsteps
from celery.worker import WorkController, state

from acts_celery.broker_config import EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE, Settings
from acts_celery.protocol import Limits
from acts_celery.worker.errors import InfrastructureError, MalformedMessage

from .duties import Duty
from .heartbeats import Reports, report_interval_seconds
from .limits import limits_of
from .messages import Report, Sign, sign_in

_REMOTE: Final = (EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE)


class ReservedStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Reports what is reserved, in every worker, from the process that consumes."""

    def __init__(self, parent: WorkController, **options: object) -> None:
        super().__init__(parent, **options)
        self._duty: Duty | None = None

    def start(self, parent: WorkController) -> None:
        """Called by the worker when it starts."""
        settings: Settings = parent.app.conf.acts_settings
        self._duty = Duty(
            "reporting the calls that are reserved",
            partial(_report, Reports(parent.app, settings), limits_of(settings)),
            thread="acts-reserved",
            interval_seconds=report_interval_seconds(settings),
            passing=(InfrastructureError,),
        )
        self._duty.start()

    def stop(self, parent: WorkController) -> None:
        """Called by the worker when it stops."""
        if self._duty is not None:
            self._duty.stop()


def _report(reports: Reports, limits: Limits) -> None:
    if held := tuple(_reserved(limits)):
        reports.send(Report(held=held))


def _reserved(limits: Limits) -> Iterator[Sign]:
    """The remote calls that were taken and not begun."""
    for request in list(state.requests.values()):  # at once: the consumer goes on meanwhile
        if request.name in _REMOTE and request not in state.active_requests:
            try:
                yield sign_in(request.args[0] if request.args else None, limits)
            except MalformedMessage:
                pass  # it is refused when it is begun
