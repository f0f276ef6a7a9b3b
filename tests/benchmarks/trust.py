"""What trust costs a run in which nothing has a source: `python -m tests.benchmarks trust` (SPEC R16).

The core drives the same plans with and without the steps that follow labels, by turns. On workers a run takes
many times as long as its core, so there the part is as much smaller. Nothing here is asserted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Final
from unittest.mock import patch

from acts_celery.protocol import check_submission
from acts_celery.protocol.engine import execution
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.trust.flow import NOTHING, Flows

from . import core

_PLANS: Final = {"chain of 1,000": core.chain(1_000), "3,000 independent calls": core.independent(3_000)}


@dataclass(frozen=True)
class Share:
    """Processor seconds of a plan's core, with and without what follows labels, in the median."""

    name: str
    with_seconds: float
    without_seconds: float

    @property
    def percent(self) -> float:
        """How much more it takes with labels."""
        return 100 * (self.with_seconds / self.without_seconds - 1)

    def __str__(self) -> str:
        return f"{self.name:28}{self.with_seconds:.4f} s, without {self.without_seconds:.4f} s: {self.percent:+.1f} %"


def measure(rounds: int) -> Iterator[Share]:
    """Each plan, so many times by turns."""
    for name, document in _PLANS.items():
        plan = check_submission(document)
        plain, followed = list[float](), list[float]()
        for _ in range(rounds):
            followed.append(core.processor_seconds(lambda: core.drive(plan)))  # noqa: B023  # called at once
            with _not_followed():
                plain.append(core.processor_seconds(lambda: core.drive(plan)))  # noqa: B023
        yield Share(name, median(followed), median(plain))


@contextmanager
def _not_followed() -> Iterator[None]:
    def marked(self: Execution, outcome: Any) -> Any:
        return outcome

    with ExitStack() as stack:
        stack.enter_context(patch.object(Execution, "_marked", marked))
        stack.enter_context(patch.object(execution, "doubt", lambda trust, flow: None))
        stack.enter_context(patch.object(Flows, "into", lambda *given, **more: NOTHING))
        yield
