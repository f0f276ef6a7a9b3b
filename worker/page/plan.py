"""The plan of a run, drawn once for all instances: its calls in layers, with counts, and what each reads of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from acts_celery.protocol.analysis.drawing import arrows
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.engine.statuses import FINAL, Status
from acts_celery.protocol.graph.graph import Graph
from acts_celery.protocol.graph.readers import places_read
from acts_celery.worker.errors import NoLoop, NoSuchTick
from acts_celery.worker.storage.definition import LaneRecord
from acts_celery.worker.storage.gatherings import gathers_of

from .drawing import Node, draw
from .layers import layers_of
from .opened import OpenedRun
from .tally import CallTally, Tally
from .values import within

MOST_LISTED: Final = 1_000
"""Calls of an answer; the drawing folds what is more than it shows."""
_MOST_EDGES: Final = 2_000
_MOST_PLACES: Final = 20
_LONGEST: Final = 200
"""Characters of a place."""


class Counts:
    """How many instances of each call stand how, now."""

    def __init__(self, run: OpenedRun) -> None:
        """Raises `RedisError`."""
        self._tally = run.tally
        self.has_stopped = run.has_stopped
        self.at_work = run.tally.at_work(is_over=run.has_stopped) if run.has_begun_calls else {}
        self._running = Counter(
            index
            for instance, index in self.at_work
            if (lane := run.tally.lanes.get(instance)) is not None and index not in lane.standing
        )

    def of(self, call: CallTally) -> dict[str, int]:
        """Those of a call, by status."""
        counts = Counter(call.counts)
        counts[Status.RUNNING] = self.running(call)
        counts[Status.WAITING] = max(0, call.total - counts.total())
        if self.has_stopped:
            for status in [status for status in counts if status not in FINAL]:
                counts[stopped(status)] += counts.pop(status)
        return {status.value: counts[status] for status in Status if counts[status] > 0}

    def running(self, call: CallTally) -> int:
        """In how many instances a call is at work, or was when its run was ended as it stood."""
        return call.counts[Status.RUNNING] + self._running[call.call.index]

    def was_running(self, instance: str | None, index: int) -> bool:
        """Whether a call of an instance is among those."""
        return self._standing(instance, index) is Status.RUNNING

    def status(self, instance: str | None, index: int) -> str:
        """How a call of an instance stands."""
        found = self._standing(instance, index)
        return (stopped(found) if self.has_stopped else found).value

    def _standing(self, instance: str | None, index: int) -> Status:
        return self._tally.standing(self._tally.lanes[instance], instance, index, self.at_work)


def stopped(status: Status) -> Status:
    """How a call stands whose run was ended as it stood (SPEC R4.11)."""
    if status in FINAL:
        return status
    return Status.FAILED if status is Status.RUNNING else Status.SKIPPED


def plan(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/plan`. Raises `NoLoop`, `NoSuchTick`."""
    tally, tick = run.tally, _tick(run)
    calls = [call for call in tally.calls.values() if tick is None or call.tick == tick]
    calls.sort(key=lambda call: call.call.index)
    counts = Counts(run)
    described = {call.call.index: described_call(call, counts) for call in calls}
    pairs = _edges(tally, tick, described.keys())
    layers = layers_of(described, pairs)
    found = list(arrows([call.call for call in calls], pairs))
    edges = within(
        {
            "from": arrow.writer,
            "to": arrow.reader,
            "path": ", ".join(_texts(arrow.places))[:_LONGEST],
            "kind": arrow.kind.value,
        }
        for arrow in found[:_MOST_EDGES]
    )
    listed = within(list(described.values())[:MOST_LISTED])
    return {
        "tick": tick,
        "ticks": sorted({call.tick for call in tally.calls.values() if call.tick is not None}),
        "layers": layers,
        "calls": listed,
        "more": len(described) - len(listed) + len(tally.further),
        "edges": edges,
        "more_edges": len(found) - len(edges),
        "svg": draw(layers, {index: Node.of(call) for index, call in described.items()}, edges),
        "reading": tally.reading,
    }


def described_call(call: CallTally, counts: Counts) -> dict[str, Any]:
    """A call as the plan lists it."""
    one = call.call
    return {
        "index": one.index,
        "tick": call.tick,
        "tool": one.tool,
        "kind": one.runner.executor.value,
        "note": one.is_note,
        "instances": call.total,
        "counts": counts.of(call),
        **read_and_written(one),
        "child": call.has_child,
        "fire_and_forget": one.is_fire_and_forget,
        "gather": one.gather,
        "each": bool(one.each),
    }


def read_and_written(call: Call) -> dict[str, list[str]]:
    """The places that a call may write, and those that it reads."""
    return {"writes": _texts(call.written), "reads": _texts(places_read(call))}


def _texts(places: Iterable[object]) -> list[str]:
    return [str(place)[:_LONGEST] for place in list(places)[:_MOST_PLACES]]


def _tick(run: OpenedRun) -> int | None:
    """The tick that is asked for, or the last of a loop that has brought calls; None in a run that is no loop."""
    asked = run.query.number("tick")
    if run.definition.request is None:
        if asked is not None:
            raise NoLoop(f"run {run.keys.run} is not a request: it has no ticks")
        return None
    ticks = {call.tick for call in run.tally.calls.values() if call.tick is not None}
    if asked is None:
        return max(ticks, default=0)
    _, _, now = run.state.get("loop", ":0").partition(":")
    if asked > int(now or 0):
        raise NoSuchTick(f"run {run.keys.run} has no tick {asked}, its last is {now}")
    return asked


def _edges(tally: Tally, tick: int | None, shown: Iterable[int]) -> list[tuple[int, int]]:
    """Pairs of a call and a reader of it, of those shown: of lanes that are not alike a few are looked at."""
    found = set[tuple[int, int]]()
    among = set(shown)
    shared = tally.shared.get(tick, LaneRecord())
    for instance, record in tally.examples.get(tick, {}).values():
        for graph in _graphs(tally, instance, record, shared):
            for writer, readers in graph.readers.items():
                found.update((writer, reader) for reader in readers & among if writer in among)
    return sorted(found)


def _graphs(tally: Tally, instance: str | None, record: LaneRecord, shared: LaneRecord) -> Iterator[Graph]:
    definition = tally.definition
    above: Sequence[Call] = definition.lane_calls(shared, None) if instance is not None else ()
    yield definition.graph(definition.lane_calls(record, instance), record, above)
    if instance is not None and any(call.gather for call in above):
        gathers = gathers_of(definition, record, instance, shared, shared.begun)
        if gathers is not None:
            yield gathers.graph
