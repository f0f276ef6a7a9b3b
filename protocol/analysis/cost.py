"""Cost: how much a run will take, known before it starts (SPEC R6.7).

Counted is a run without failures in which every call runs: what the sweep publishes again and what a limit of
concurrency or a pause publishes later come on top, skipped calls off. What instances that wait for global calls are
woken with depends on timing: it is bounded apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.graph.lanes import Lane
from acts_celery.protocol.language.paths import MISSING


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run takes, over all instances."""

    calls: int
    """Calls executed; passing thoughts are not."""
    lanes: int
    """Instances that have calls, and the global calls as one more."""
    tasks: int
    """Celery tasks published: one for each lane, one for each background send, and two (there and back) for each
    delegate request, each model request and each call to a queue of its activity's own."""
    wake_ups: int
    """The most tasks that come on top: a lane that waits for global calls can be woken by each that a call awaits."""
    queued_activities: int
    """Awaited calls of activities with a queue of their own."""
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


def cost_of(lanes: Iterable[Lane], queued: Container[str] = (), joined: Mapping[int, int] | None = None) -> Cost:
    """The cost of running the lanes; `queued` are the activities with a queue of their own, `joined` the levels of all
    calls where gather calls join the lanes.

    Lanes of one graph are looked at once, and counted as often as they are.
    """
    lanes = tuple(lane for lane in lanes if lane.calls)
    shared = next((lane for lane in lanes if lane.instance is None), None)
    known = shared.graph.levels({}) if shared is not None else {}
    alike = Counter(id(lane.graph) for lane in lanes)
    global_calls = frozenset(call.index for call in shared.calls) if shared is not None else frozenset[int]()
    awaited: frozenset[int] = frozenset()
    calls = delegates = models = background = remote = waiting = 0
    levels: Counter[int] = Counter()
    for lane in {id(lane.graph): lane for lane in lanes}.values():
        times = alike[id(lane.graph)]
        level = joined if joined is not None else lane.graph.levels({} if lane is shared else known)
        if lane is not shared and (waited_for := lane.graph.awaited & global_calls):
            waiting += times
            awaited |= waited_for
        for call in lane.calls:
            if call.is_note:
                continue
            calls += times
            levels[level[call.index]] += times
            background += times if call.is_fire_and_forget else 0
            if call.is_fire_and_forget:
                continue
            executor = call.runner.executor
            delegates += times if executor is Executor.DELEGATE else 0
            models += times if executor is Executor.LATENT and call.given is MISSING else 0
            remote += times if executor is Executor.ACTIVITY and call.runner.name in queued else 0
    return Cost(
        calls=calls,
        lanes=len(lanes),
        tasks=len(lanes) + background + 2 * (delegates + models + remote),
        wake_ups=waiting * len(awaited),
        queued_activities=remote,
        delegate_requests=delegates,
        model_requests=models,
        background_sends=background,
        depth=len(levels),
        width=max(levels.values(), default=0),
    )
