"""Which calls of a lane wait for what a schema has promised, as its log says it (SPEC R6.3, R11.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from redis import Redis

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.language.references import Reference
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.definition import places_in
from acts_celery.worker.storage.entries import moment_ms
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import Keys
from acts_celery.worker.storage.lane_state import LaneState
from acts_celery.worker.storage.run_state import RunState
from acts_celery.worker.storage.waiting import Waiting
from acts_celery.worker.wire.attempts import call_name

_MOST_LANES: Final = 5
"""Lanes that wait and are read."""


def read_promised(redis: Redis, keys: Keys, state: Mapping[str, str]) -> list[Waiting]:
    """What calls of a run under way wait for that is promised: those of the global lane and of a few others.

    Nothing is read where nothing was promised, or all of it was given up. Raises `RedisError`.
    """
    if "promises_due" not in state:
        return []
    history = History(redis, keys)
    run = RunState(history.definition())
    run.feed(history.lane(None))
    parked: Any = redis.zrange(keys.parked, 0, _MOST_LANES - 1)
    for instance in map(bytes.decode, parked):
        run.feed(history.lane(instance))
    left = max(0, int(state["promises_due"]) - server_ms(redis)) // 1000
    return [
        Waiting(call_name(index, lane.instance), "promise", f"{reason}; in {left} s it is waited for no more")
        for lane in run.lanes.values()
        for index, reason in promised_to(lane, run).items()
    ]


def missing_in(lane: LaneState, run: RunState) -> list[Reference]:
    """The promised places that calls of a lane read and that have not come, unless the run waits for them no more."""
    if moment_ms(run.gave_up) >= lane.laid_out_ms:
        return []
    named = places_in(lane.record.promised | lane.record.required)
    return [place for place in sorted(named, key=str) if not lane.fold.exists(place)]


def promised_to(lane: LaneState, run: RunState) -> dict[int, str]:
    """The calls of a lane that wait for promised values, and what each waits for."""
    missing = missing_in(lane, run)
    lacking = ((index, list(_lacking(lane.known[index], missing))) for index in lane.open) if missing else ()
    return {
        index: f"for {', '.join(map(str, places))}, which is promised and has not come: see `acts send`"
        for index, places in lacking
        if places and not lane.call(index).is_held
    }


def _lacking(call: Call, missing: Sequence[Reference]) -> Iterator[Reference]:
    for place in missing:
        if call.readers_of(place) or any(place.overlaps(scope) for scope in call.scopes):
            yield place
