"""Runs whose keys are broken: each is passed over with a line in the log, and the others are looked after."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import ResponseError

from acts_celery.worker.errors import QueueRefused
from acts_celery.worker.process.refusals import count_refusal
from acts_celery.worker.storage.connections import PASSING
from acts_celery.worker.storage.set_aside import UNREADABLE

logger = logging.getLogger(__name__)

BROKEN: tuple[type[Exception], ...] = (ResponseError, *UNREADABLE)
"""What is raised by keys that cannot be read, where it is none of `PASSING`."""


class BrokenRuns:
    """The runs whose keys are broken, as far as the log has said so already."""

    def __init__(self) -> None:
        self._runs: set[str] = set()

    @contextmanager
    def passing_over(self, run: str) -> Iterator[None]:
        """Pass a run over that is broken, or whose queue is refused. Raises what is wrong with the server instead."""
        try:
            yield
        except BROKEN as error:
            self.is_answer(run, error)
        except QueueRefused as error:
            logger.error("run %r: %s", run, error)

    def is_answer(self, run: str, answer: object) -> bool:
        """Whether that is an answer, and not an error of the run's own keys. Raises what is wrong with the server."""
        if not isinstance(answer, Exception):
            return True
        if not isinstance(answer, BROKEN) or isinstance(answer, PASSING):
            raise answer
        if run not in self._runs:
            self._runs.add(run)
            count_refusal("runs")
            logger.error("run %r is passed over, its keys are broken: %.200r", run, str(answer))
        return False
