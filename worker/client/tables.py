"""Export runs as rows for analysis: one flat object for each run, call, tick of a loop, and message.

A column has one type, or null; times are ISO 8601 in UTC; a message is JSON in a text. However many instances a run
has, a few of them are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from redis import Redis

from ...protocol.engine.loop import Answered, Tick
from ...protocol.errors import json_text
from ...protocol.messages import kind_of
from .. import limits
from ..backoff import batches
from ..store.definition import FORMAT, require_format
from ..store.entries import Entry, effective_entries, moment_ms
from ..store.keys import ENDED_STATUSES
from ..store.run_list import DELEGATE, PARENT, Parent, State
from ..store.run_store import RunStore
from ..store.scripts import date_of
from ..store.state import RunState
from .call_results import CallResult, LaneCalls
from .deployments import Summary
from .results import has_begun_calls

Row = dict[str, Any]

TABLES: Final = ("runs", "calls", "ticks", "messages")
"""The names of the tables."""
_STATUSES: Final = ("done", "failed", "skipped", "sent", "latent", "waiting", "running")


def rows_of(redis: Redis, prefix: str, summary: Summary, state: State) -> Iterator[tuple[str, Row]]:
    """Make the rows of one run, each with the name of its table. The row of the run comes last: if it is there, so are
    the others. Raises `RunNotFound`, `OtherFormat`, `RedisError`.
    """
    require_format(int(state.get("format", FORMAT)))
    history = RunStore.open(redis, prefix, summary.run)
    run = RunState(history.definition())
    instances = history.instances()
    at_work = history.at_work(is_over=summary.status in ENDED_STATUSES) if has_begun_calls(state) else {}

    def lane_rows(instance: str | None, entries: Iterable[Entry]) -> Iterator[tuple[str, Row]]:
        calls = LaneCalls(run, codes, summary.status, at_work, waits=True)
        yield from (("calls", _call(summary.run, call)) for call in calls.of(instance))
        yield from (("messages", row) for row in _messages(summary.run, entries))

    if run.loop is not None:  # bounded by its limits: it is read whole
        codes = history.codes()
        entries = list(history.entries())
        run.feed(entries)
        for instance in run.lanes:
            yield from lane_rows(instance, [entry for entry in entries if entry.instance == instance])
        yield from (("ticks", _tick(summary.run, tick)) for tick in run.loop.ticks if tick.solution is not None)
    else:
        shared = history.lane(None)
        run.feed(shared)
        codes = history.codes()
        yield from lane_rows(None, shared)
        for some in batches(instances, limits.TABLES_INSTANCES_AT_ONCE):
            codes = history.codes()
            for instance, lane in history.lanes(some):
                run.feed(lane)
                if instance in run.lanes:
                    yield from lane_rows(instance, lane)
                    del run.lanes[instance]
    yield "runs", _run(summary, state, len(instances))


def _run(summary: Summary, state: State, instances: int) -> Row:
    parent = Parent.read(state.get(PARENT))
    return {
        "run": summary.run,
        "name": summary.name,
        "tags": json_text(list(summary.tags)),
        "status": summary.status,
        "reason": state.get("exceeded"),
        "submitted": date_of(summary.submitted),
        "finished": date_of(summary.finished) if summary.finished is not None else None,
        "seconds": summary.duration_seconds,
        "instances": instances,
        **{f"calls_{status}": summary.calls.get(status, 0) for status in _STATUSES},
        "parent": parent.call.run if parent is not None else None,
        "delegate": state.get(DELEGATE),
        "forked_from": state.get("forked_from"),
        **_cost(summary.cost),
    }


def _call(run: str, call: CallResult) -> Row:
    timing = call.timing.to_dict() if call.timing is not None else {}
    error = call.error or {}
    return {
        "run": run,
        "instance": call.instance,
        "call": call.index,
        "tick": call.tick,
        "tool": call.tool,
        "status": call.status,
        "error_type": _text(error.get("type")),
        "error_message": _text(error.get("message")),
        "reason": call.reason,
        **{name: timing.get(name) for name in ("began", "ended", "seconds", "waited_seconds", "attempts")},
        "worker": call.worker,
        "version": call.version,
        "child": call.child,
        "elements": call.elements.to_dict().get("total") if call.elements is not None else None,
        "stale": call.stale,
        **_cost(call.cost),
    }


def _tick(run: str, tick: Tick) -> Row:
    solution = tick.solution or {}
    return {
        "run": run,
        "tick": tick.number,
        "model": _text(solution.get("model")),
        "calls": tick.runs,
        "errors": tick.errors,
        "set_aside": tick.set_aside,
        **_cost(tick.cost.to_dict()),
    }


def _messages(run: str, entries: Iterable[Entry]) -> Iterator[Row]:
    found = list(entries)
    counts = {entry.id for entry in effective_entries(found)}
    for entry in found:
        said = entry.message or next((each.message for each in entry.loop if isinstance(each, Answered)), None)
        if said is None:
            continue
        text = json_text(said)
        yield {
            "run": run,
            "id": entry.id,
            "written": date_of(datetime.fromtimestamp(moment_ms(entry.id) / 1000, UTC)),
            "instance": entry.instance,
            "kind": _text(kind_of(said)) if isinstance(said.get("type"), str) else None,
            "call": entry.call,
            "tick": entry.tick,
            "counts": entry.id in counts or entry.message is None,
            "bytes": len(text.encode("utf-8", "surrogatepass")),
            "message": text,
        }


def _cost(cost: Mapping[str, Any] | None) -> Row:
    """Make the columns of what models have cost; null if none was asked."""
    known = cost or {}
    usage = known.get("usage") or {}
    money = known.get("money")
    return {
        "requests": known.get("requests"),
        "input_tokens": usage.get("input"),
        "output_tokens": usage.get("output"),
        "cached_tokens": usage.get("cached"),
        "model_seconds": known.get("seconds"),
        "money": float(money) if money is not None else None,
    }


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json_text(value)
