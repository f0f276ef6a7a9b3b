"""Runs as tables: a row for each instance of a result, and rows of many runs for analysis."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from redis import Redis

from ...protocol.engine.loop import Answered, Tick
from ...protocol.errors import json_text
from ...protocol.messages import kind_of
from ...protocol.paths import MISSING, lookup
from ...protocol.references import DAGGER, Reference
from ...protocol.state.scopes import read_scope
from .. import limits
from ..backoff import batches
from ..store.definition import FORMAT, require_format
from ..store.entries import Entry, effective_entries, moment_ms
from ..store.keys import ENDED_STATUSES
from ..store.run_list import DELEGATE, PARENT, Parent, State
from ..store.run_store import RunStore
from ..store.scripts import date_of
from ..store.state import RunState
from .call_results import CallResult, LaneCalls, has_begun_calls

if TYPE_CHECKING:
    from .deployments import Summary
    from .results import Result

Row = dict[str, Any]

# A result as a table: one row for each instance.

_BESIDE: Final = ("instance", "status", "error")
"""The columns that every table of a result has, in order: values stand behind the first."""


class Table(list[Row]):
    """Rows of a result, one for each instance, as dictionaries: what pandas and polars make a frame of."""

    def __init__(self, columns: Iterable[str], rows: Iterable[Row]) -> None:
        super().__init__(rows)
        self.columns = tuple(columns)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write a CSV file in UTF-8, with the names of the columns first. Texts are written as they are, no value as
        nothing, and all other values as JSON.
        """
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows([_cell(row[column]) for column in self.columns] for row in self)


def _cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json_text(value)


def place_of(path: str) -> Reference:
    """Read a place of a run's data, whose dagger may be left out. Raises `protocol.ExpressionError`."""
    return read_scope(path if path.startswith(DAGGER) else DAGGER + path)


def columns_of(paths: Iterable[str]) -> dict[str, Reference]:
    """Name a column for each place: by its last key, or by the whole place where several would have that name. Raises
    `protocol.ExpressionError`.
    """
    places = list(dict.fromkeys(map(place_of, paths)))
    last = Counter([*_BESIDE, *(place.key[-1] for place in places)])
    return {place.key[-1] if last[place.key[-1]] == 1 else str(place).removeprefix(DAGGER): place for place in places}


def row_of(
    instance: str | None, data: Mapping[str, Any], columns: Mapping[str, Reference], status: str, error: str | None
) -> Row:
    """Make the row of one instance: its values at the places, None where there is none, its status, its first error."""
    values = {name: value_at(data, place) for name, place in columns.items()}
    shown = {name: None if value is MISSING else value for name, value in values.items()}
    return {"instance": instance, **shown, "status": status, "error": error}


def value_at(data: Mapping[str, Any], place: Reference) -> Any:
    """Look up a place in what a reader sees of each kind, or find it `MISSING`."""
    return lookup(data[place.kind], place.path) if place.kind in data else MISSING


def table_of(result: Result, paths: Iterable[str]) -> Table:
    """Make the table of a result; a run without instances has one row, of what is global."""
    columns = columns_of(paths)
    failed: dict[str | None, str] = {}
    for error in result.errors:
        failed.setdefault(error.instance, str(error))
    names = ("instance", *columns, "status", "error")
    if not result.instances:
        first = next(iter(failed.values()), result.reason)
        return Table(names, [row_of(None, result.global_data, columns, result.status, first)])
    rows = (
        row_of(name, data, columns, result.instance_status.get(name, result.status), failed.get(name))
        for name, data in result.instances.items()
    )
    return Table(names, rows)


# Runs as rows for analysis: one flat object for each run, call, tick of a loop, and message.
#
# A column has one type, or null; times are ISO 8601 in UTC; a message is JSON in a text. However many instances a run
# has, a few of them are in memory at a time.

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
