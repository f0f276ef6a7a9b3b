"""A loop as a conversation: what a model was asked, what it answered, what that cost, and what its calls brought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from acts_celery.protocol.engine.costs import Cost
from acts_celery.protocol.engine.loop import Loop, Tick
from acts_celery.protocol.engine.loop_events import Answered, Asked, Started
from acts_celery.worker.errors import NoLoop, NoSuchTick
from acts_celery.worker.storage.entries import Entry, moment_ms
from acts_celery.worker.storage.loop_entries import LOOP, follow

from .drawing import WORST_FIRST
from .opened import OpenedRun
from .plan import Counts
from .values import SHOW_BYTES, shown

_ALL_BYTES: Final = 600_000
"""Of the texts of all ticks together: of many ticks, less is shown of each."""
_LEAST_BYTES: Final = 400
_MOST_CALLS: Final = 100


def conversation(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/conversation`: all ticks, or one with more of its texts. Raises `NoLoop`, `NoSuchTick`."""
    if run.definition.request is None:
        raise NoLoop(f"run {run.keys.run} is not a request: it asks no model and has no ticks")
    wanted = run.query.number("tick")
    loop, said = Loop(), dict[int, dict[str, Any]]()
    for entry in run.history.lane(LOOP):
        loop = follow(loop, entry)
        _take(said, entry)
    asked = [tick for tick in loop.ticks if tick.number in said]
    if wanted is not None and wanted not in said:
        raise NoSuchTick(f"run {run.keys.run} has asked {len(asked)} times: there is no tick {wanted}, the first is 0")
    chosen = [tick for tick in asked if wanted in (None, tick.number)]
    most = max(_LEAST_BYTES, min(SHOW_BYTES, _ALL_BYTES // max(1, 4 * len(chosen))))
    brought = _brought(run)
    return {
        "ticks": [_tick(tick, said[tick.number], brought.get(tick.number, []), most) for tick in chosen],
        "ended": {"status": loop.ended.status, "reason": loop.ended.reason} if loop.ended is not None else None,
    }


def _take(said: dict[int, dict[str, Any]], entry: Entry) -> None:
    """What an entry of the loop says of its tick."""
    for event in entry.loop:
        if isinstance(event, Asked):
            tick = said.setdefault(entry.tick or 0, {"asked": [], "errors": [], "began": entry.id, "model": None})
            tick["asked"] += event.messages
            tick["config"] = event.config
        elif isinstance(event, (Answered, Started)) and entry.tick in said:
            said[entry.tick]["errors"] += [error.to_dict() for error in event.errors]
            said[entry.tick]["ended"] = entry.id


def _tick(tick: Tick, said: Mapping[str, Any], calls: list[dict[str, Any]], most: int) -> dict[str, Any]:
    solution = tick.solution or {}
    took_ms = moment_ms(said["ended"]) - moment_ms(said["began"]) if "ended" in said else None
    part = tick.text or tick.output
    return {
        "tick": tick.number,
        "model": solution.get("model") or said.get("config", {}).get("model"),
        "asked": [shown(message, max(_LEAST_BYTES, most // max(1, len(said["asked"])))) for message in said["asked"]],
        "answer": shown(solution.get("solution"), most),
        **({"writing": shown(part, most)} if tick.solution is None and part else {}),
        "usage": solution.get("usage"),
        "cost": tick.cost.to_dict() if tick.cost != Cost() else None,
        "seconds": took_ms / 1000 if took_ms is not None else None,
        "errors": shown(said["errors"], most) if said["errors"] else [],
        "set_aside": tick.set_aside,
        "calls": calls[:_MOST_CALLS],
        "more": max(0, len(calls) - _MOST_CALLS),
    }


def _brought(run: OpenedRun) -> dict[int, list[dict[str, Any]]]:
    """The calls of each tick, with how they stand, and of global ones the child run."""
    counts, found = Counts(run), dict[int, list[dict[str, Any]]]()
    shared = run.lanes(None).shared
    for index, tally in sorted(run.tally.calls.items()):
        if tally.tick is None:
            continue
        standing = counts.of(tally)
        worst = next((status for status in WORST_FIRST if status in standing), "waiting")
        about = {"index": index, "tool": tally.call.tool, "status": worst, "counts": standing}
        found.setdefault(tally.tick, []).append(about | {"child": shared.call(index).child})
    return found
