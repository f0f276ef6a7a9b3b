"""Cost: how much a run will take, known before it starts (SPEC R6.7).

Counted is a run without failures in which every call runs: retries and redeliveries come on top, skipped calls off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from .lanes import Lane
from .paths import MISSING
from .tools import Executor


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run takes, over all instances."""

    calls: int
    """Calls executed; passing thoughts are not."""
    lanes: int
    """Instances that have calls, and the global calls as one more."""
    tasks: int
    """Celery tasks: one for each lane, one for each background send, and two for each delegate or model request (there
    and back). An activity with a queue of its own takes two more, which only a backend knows."""
    delegate_requests: int
    model_requests: int
    """Latent calls whose result a model has yet to give."""
    background_sends: int
    depth: int
    """Calls one behind the other: the waves."""
    width: int
    """The most calls that can run at the same time, over all instances."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def cost_of(lanes: Iterable[Lane]) -> Cost:
    """The cost of running the lanes. Lanes of one graph are looked at once, and counted as often as they are."""
    lanes = tuple(lanes)
    shared = next((lane for lane in lanes if lane.instance is None), None)
    known = shared.graph.levels({}) if shared is not None else {}
    alike = Counter(id(lane.graph) for lane in lanes)
    calls = delegates = models = background = 0
    levels: Counter[int] = Counter()
    for lane in {id(lane.graph): lane for lane in lanes}.values():
        times = alike[id(lane.graph)]
        level = lane.graph.levels({} if lane is shared else known)
        for call in lane.calls:
            if call.is_thought:
                continue
            calls += times
            levels[level[call.index]] += times
            background += times if call.is_fire_and_forget else 0
            is_awaited = not call.is_fire_and_forget
            delegates += times if call.runner.executor is Executor.DELEGATE and is_awaited else 0
            models += times if call.runner.executor is Executor.LATENT and call.given is MISSING else 0
    return Cost(
        calls=calls,
        lanes=len(lanes),
        tasks=len(lanes) + background + 2 * (delegates + models),
        delegate_requests=delegates,
        model_requests=models,
        background_sends=background,
        depth=len(levels),
        width=max(levels.values(), default=0),
    )
