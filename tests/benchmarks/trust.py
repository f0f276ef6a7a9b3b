"""What trust costs a run in which nothing has a source: `python -m tests.benchmarks trust` (SPEC R16).

The same is done with and without the steps that follow labels, by turns: the core drives plans, then whole runs go
through a server of their own, of which the processor time of client and worker counts. Nothing here is asserted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import Any, Final
from unittest.mock import patch

from acts_celery import LocalClient, activity, local
from acts_celery.protocol import check_submission
from acts_celery.protocol import trust as flow
from acts_celery.protocol.calls import trust
from acts_celery.protocol.engine import execution
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.engine.outcomes import LaneConfig
from acts_celery.protocol.trust import Flows

from . import core

_PLANS: Final = {"core, chain of 1,000": core.chain(1_000), "core, 3,000 independent calls": core.independent(3_000)}
_INSTANCES: Final = 2_000
_RUNS: Final = {
    f"{_INSTANCES:,} instances, 1 call": [("†input.number", "†state.s0")],
    f"{_INSTANCES:,} instances, chain of 5": [
        ("†input.number", "†state.s0"),
        *((f"†state.s{n}", f"†state.s{n + 1}") for n in range(4)),
    ],
}


@activity
async def count_on(number: int) -> int:
    """As little as possible."""
    return number + 1


@dataclass(frozen=True)
class Share:
    """Processor seconds of the same, with and without what follows labels, in the median, and how much more it is with
    labels: the median over pairs of neighbours.
    """

    name: str
    with_seconds: float
    without_seconds: float
    percent: float

    def __str__(self) -> str:
        return f"{self.name:32}{self.with_seconds:.4f} s, without {self.without_seconds:.4f} s: {self.percent:+.1f} %"


def measure(rounds: int) -> Iterator[Share]:
    """Each, so many times by turns."""
    for name, document in _PLANS.items():
        plan = check_submission(document)
        yield _share(name, rounds, lambda: core.drive(plan))  # noqa: B023  # called at once
    with local([count_on]) as client:
        for name, places in _RUNS.items():
            yield _share(name, rounds, lambda: _whole_run(client, places))  # noqa: B023  # called at once


def _share(name: str, rounds: int, work: Callable[[], object]) -> Share:
    work()
    pairs = [_pair(work, is_first=bool(number % 2)) for number in range(rounds)]
    followed, plain = (median(seconds) for seconds in zip(*pairs, strict=True))
    return Share(name, followed, plain, 100 * (median(one / other for one, other in pairs) - 1))


def _pair(work: Callable[[], object], *, is_first: bool) -> tuple[float, float]:
    """With what follows labels, and without."""
    found = {}
    for is_followed in (is_first, not is_first):
        with nullcontext() if is_followed else _not_followed():
            found[is_followed] = core.processor_seconds(work)
    return found[True], found[False]


def _whole_run(client: LocalClient, places: Sequence[tuple[str, str]]) -> None:
    calls = [{"_tool": "count_on", "number": given, "_outputPath": written} for given, written in places]
    context = [{"type": "input", "_instance": f"i{number}", "number": number} for number in range(_INSTANCES)]
    ended = client.submit([{"type": "plan", "calls": calls}, *context]).wait()
    assert ended.status == "completed"


@contextmanager
def _not_followed() -> Iterator[None]:
    def marked(self: Execution, outcome: Any) -> Any:
        return outcome

    with ExitStack() as stack:
        stack.enter_context(patch.object(Execution, "_marked", marked))
        stack.enter_context(patch.object(execution, "doubt", lambda trust, flow: None))
        stack.enter_context(patch.object(Flows, "into", lambda *given, **more: flow.NOTHING))
        stack.enter_context(patch.object(LaneConfig, "trust_of", lambda *given: trust.NOTHING))
        yield
