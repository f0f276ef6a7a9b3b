"""Instances: those of a run, those of one call with the errors they have, and one as a run of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from ...protocol import ExpressionError
from ...protocol.analysis.provenance import Explanation, Origin, Read, Waiver
from ...protocol.analysis.visibility import Sight, judged_kinds, sights
from ...protocol.calls.call import Call
from ...protocol.engine.events import FINAL, Status
from ...protocol.paths import MISSING
from ...protocol.plan.graph import ReadPlaces, places_read
from ...protocol.references import DAGGER, Reference
from ...protocol.state.scopes import read_scope
from .. import limits
from ..broker.attempts import call_name
from ..client.call_results import CallResult, cut_short
from ..client.explanations import Absence, absence, explanation
from ..client.results import DELETED, instance_status
from ..errors import BadQuery, NoSuchCall
from ..store.definition import StoredPlan
from ..store.entries import effective_entries, moment_ms
from ..store.scripts import iso_date
from .drawing import NOT_TAKEN
from .opened import CallCounters, ErrorGroup, OpenedRun, shown, shown_values, within
from .sent import Counts, described_call, given_to, read_and_written

UNKNOWN: Final = "unknown"
"""The status of an instance that the part of the log that was read does not tell of."""


def call(run: OpenedRun, index: int) -> dict[str, Any]:
    """The answer `runs/RUN/calls/INDEX`. Raises `NoSuchCall`, `BadQuery`."""
    counters, found = run.counters, _call_counters(run, index)
    counts, wanted = Counts(run), _status(run)
    names = list(counters.lanes)
    page, following = _page(
        run, range(len(names)), lambda at: _has(run, counts, names[at], index, wanted), limits.INSTANCES_AT_ONCE
    )
    chosen = [names[at] for at in page]
    rows = _rows(run, chosen, index, counts) if chosen else []
    return {
        "call": described_call(found, counts) | _written(found, run.definition),
        "errors": [group.to_dict() for group in (*found.errors, *_cut_short(run, counts, found))],
        "instances": rows,
        "next": following,
        "reading": counters.reading,
    }


def _cut_short(run: OpenedRun, counts: Counts, call: CallCounters) -> Iterator[ErrorGroup]:
    """Group the errors of a call that had begun in some instances when its run was ended."""
    index, number = call.call.index, counts.running(call) + call.counts[Status.UNKNOWN]
    if not run.has_stopped or not number:
        return
    between = {name: one for (name, at), one in counts.at_work.items() if at == index and one.is_between}
    if between:
        error = cut_short(run.stop_reason, next(iter(between.values())))
        yield ErrorGroup(
            error["type"], error["message"], len(between), dict.fromkeys(islice(between, limits.OPENED_NAMED))
        )
    if number > len(between):
        error, lanes = cut_short(run.stop_reason), run.counters.lanes
        found = (name for name in lanes if counts.had_begun(name, index) and name not in between)
        yield ErrorGroup(
            error["type"], error["message"], number - len(between), dict.fromkeys(islice(found, limits.OPENED_NAMED))
        )


def instances(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/instances`. Raises `BadQuery`."""
    names, wanted, search = [*run.instances, *run.deleted], run.query.text("status"), run.query.text("search")
    counts = Counts(run)
    states = _Statuses(run, counts)

    def is_wanted(at: int) -> bool:
        is_found = search is None or search.casefold() in names[at].casefold()
        return is_found and (wanted is None or states.of(names[at]) == wanted)

    page, following = _page(run, range(len(names)), is_wanted, limits.UI_INSTANCES_AT_ONCE)
    found = [{"instance": names[at], "status": states.of(names[at]), "counts": states.counts(names[at])} for at in page]
    return {"instances": found, "next": following, "reading": run.counters.reading}


def instance(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/instance`: its calls and its values; without a name, the global ones. Raises
    `InstanceNotFound`.
    """
    name = run.query.text("name")
    run.require_instance(name)
    entries = run.entries(None, name)
    result = run.result(entries, *([name] if name is not None else []), waits=True)
    own = [one for one in result.calls if one.instance == name]
    given = given_to(run, entries, name, {one.index for one in own[: limits.INSTANCES_MOST_CALLS]})
    calls = within(_call(one, *given[one.index]) for one in own[: limits.INSTANCES_MOST_CALLS])
    status = result.instance_status[name] if name is not None else run.status
    return {
        "instance": name,
        "status": status,
        "calls": calls,
        "more": len(own) - len(calls),
        "data": shown_values(result.data(name)),
    }


def _call(
    one: CallResult, call: Call, parameters: Mapping[str, Any] | None, waivers: Sequence[Waiver]
) -> dict[str, Any]:
    found = one.to_dict()
    about = {
        "parameters": shown(dict(call.parameters if parameters is None else parameters), limits.CALL_BYTES),
        "parameters_as": "written" if parameters is None else "resolved",
        "kind": call.runner.executor.value,
        **read_and_written(call),
        **({"unasked": _waivers(waivers)} if waivers else {}),
    }
    return found | about | ({"error": shown(found["error"], limits.CALL_BYTES)} if one.error is not None else {})


class _Statuses:
    """The statuses of instances, by the calls of each."""

    def __init__(self, run: OpenedRun, counts: Counts) -> None:
        self._run = run
        self._counts = counts
        self._deleted = frozenset(run.deleted)

    def counts(self, name: str) -> dict[str, int]:
        """The calls of an instance, counted by their statuses."""
        lane = self._run.counters.lanes.get(name)
        return dict(Counter(self._counts.status(name, index) for index in lane.known)) if lane is not None else {}

    def of(self, name: str) -> str:
        """The status of an instance; `UNKNOWN` where the log was not read so far."""
        counters, counts = self._run.counters, self._counts
        if name in self._deleted:
            return DELETED
        if (lane := counters.lanes.get(name)) is None:
            return instance_status(set(), self._run.status) if counters.is_whole else UNKNOWN
        statuses = {counters.status(lane, name, index, counts.at_work) for index in lane.known}
        stops = counts.has_stopped
        return instance_status(
            {"stopped" if stops and each not in FINAL else each.value for each in statuses}, self._run.status
        )


def _call_counters(run: OpenedRun, index: int) -> CallCounters:
    """The counts of a call; where it has not come yet, the rest of the log is read. Raises `NoSuchCall`."""
    counters = run.counters
    if index not in counters.calls and not counters.is_whole:
        counters.read_on(None)
    if (found := counters.calls.get(index)) is not None:
        return found
    if index in counters.further:
        raise NoSuchCall(
            f"a page has the text of {limits.OPENED_MOST_CALLS:,} calls, and not of call {index}: see `acts show`"
        )
    known = f"its calls are 0 to {max(counters.calls)}" if counters.calls else "it has no calls"
    raise NoSuchCall(f"run {run.store.run} has no call {index}: {known}")


def _page(run: OpenedRun, places: range, is_wanted: Callable[[int], bool], most: int) -> tuple[list[int], str | None]:
    """The next places that are wanted, and the cursor behind them. Raises `BadQuery`."""
    after = run.query.number("after") or 0
    found = list(islice((at for at in places[after:] if is_wanted(at)), most + 1))
    return found[:most], str(found[most]) if len(found) > most else None


def _status(run: OpenedRun) -> str | None:
    found = run.query.text("status")
    if found is not None and found not in (known := (*Status, NOT_TAKEN)):
        raise BadQuery(f"status={found[:100]!r} is not one of {', '.join(known)}")
    return found


def _has(run: OpenedRun, counts: Counts, instance: str | None, index: int, wanted: str | None) -> bool:
    """Whether a lane has a call, and it has the wanted status."""
    is_there = index in run.counters.lanes[instance].known
    return is_there and wanted in (None, counts.status(instance, index))


def _rows(run: OpenedRun, names: list[str | None], index: int, counts: Counts) -> list[dict[str, Any]]:
    """Describe a call in each of some lanes."""
    result = run.result(run.entries(None, *names), *(name for name in names if name is not None))
    found = {one.instance: one for one in result.calls if one.index == index}
    rows = []
    for name in names:
        one = found.get(name)
        timing = one.timing.to_dict() if one is not None and one.timing is not None else {}
        rows.append(
            {
                "instance": name,
                "id": call_name(index, name),
                "status": counts.status(name, index),
                "error": shown(dict(one.error), limits.INSTANCES_PART_BYTES)
                if one is not None and one.error is not None
                else None,
                "reason": one.reason if one is not None else None,
                "until": one.until if one is not None else None,
                "rule": one.rule if one is not None else None,
                "progress": one.progress if one is not None else None,
                "began": timing.get("began"),
                "ended": timing.get("ended"),
                "attempts": timing.get("attempts"),
                "child": one.child if one is not None else None,
            }
        )
    return rows


def _written(found: CallCounters, definition: StoredPlan) -> dict[str, Any]:
    """The call as it was written."""
    one = found.call
    path = one.properties.get("_outputPath")
    return {
        "parameters": shown(dict(one.parameters)),
        "scopes": [str(scope) for scope in one.scopes],
        "after": [str(place) for place in one.after],
        "output_path": path,
        "output_method": one.method.value,
        "reasoning": shown(one.properties.get("_reasoningForCall")),
        "runner": one.runner.name,
        "effects": definition.has_effects(one),
    }


# A value: what it is, who writes it, who reads it, who can see it, where it came from, or why it is not there.


def place(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/place`. Raises `BadQuery`, `InstanceNotFound`."""
    path, instance, at = run.query.required("path"), run.query.text("instance"), run.query.moment("at")
    run.require_instance(instance)
    try:
        reference = read_scope(path if path.startswith(DAGGER) else DAGGER + path)
    except ExpressionError as error:
        raise BadQuery(f"path: {error}") from None
    entries = run.store.past(instance, at)
    explained = explanation(run.definition, entries, reference, instance=instance)
    calls = _calls(run, instance)
    sight = sights(
        reference,
        calls.values(),
        judged_kinds(entry.message for entry in effective_entries(entries) if entry.message is not None),
        is_template=run.definition.is_template,
    )
    reading = [call for call in calls.values() if ReadPlaces(places_read(call)).overlap(reference)]
    return {
        "path": str(reference),
        "above": [str(Reference(reference.kind, reference.path[:depth])) for depth in range(len(reference.path))],
        "instance": instance,
        "at": at,
        **_value(run, explained, instance, at),
        "writers": _writers(explained, calls, reference)[: limits.INSTANCES_MOST_LISTED],
        "readers": [{"index": call.index, "tool": call.tool} for call in reading[: limits.INSTANCES_MOST_LISTED]],
        "seen_by": [*_accesses(sight.direct, is_derived=False), *_accesses(sight.derived, is_derived=True)],
        "provenance": within(map(_origin, explained.origins[-limits.INSTANCES_MOST_LISTED :])),
        "more": max(0, len(explained.origins) - limits.INSTANCES_MOST_LISTED),
        "reading": run.counters.reading,
    }


def _calls(run: OpenedRun, instance: str | None) -> Mapping[int, Call]:
    """The calls that a value concerns: those of its instance and the global ones; of a global value, all."""
    if instance is None:
        return {index: counters.call for index, counters in run.counters.calls.items()}
    lanes = (run.counters.lanes.get(name) for name in (None, instance))
    known = {index for lane in lanes if lane is not None for index in lane.known}
    return {index: run.counters.calls[index].call for index in sorted(known & run.counters.calls.keys())}


def _value(run: OpenedRun, explained: Explanation, instance: str | None, at: str | None) -> dict[str, Any]:
    if explained.conflict is not None:
        return {"missing": {"sentence": f"It cannot be read: {explained.conflict}", "why": []}}
    if explained.value is not MISSING:
        return {"value": shown(explained.value)}
    found = absence(run.definition, run.store, explained.reference, instance=instance, at=at)
    missing = {"sentence": _sentence(explained.reference, found), "why": _why(found), "near": found.near}
    return {"missing": missing | ({"priority": found.priority} if found.priority else {})}


def _sentence(place: Reference, found: Absence) -> str:
    """Why nothing is there, in one sentence."""
    if found.instances:
        return f"Nothing is at {place} for all: it is there in instances."
    if not found.writers:
        meant = f" Perhaps {found.near} was meant." if found.near is not None else ""
        return f"Nothing is at {place}, and no call writes there.{meant}"
    first = found.writers[0]
    return f"Nothing is at {place}: call {first.index} ({first.tool}) was to write it, and is {first.status}."


def _why(found: Absence) -> list[dict[str, Any]]:
    return [shown(writer.to_dict(), limits.PLACE_PART_BYTES * 4) for writer in found.writers]


def _writers(explained: Explanation, calls: Mapping[int, Call], place: Reference) -> list[dict[str, Any]]:
    """The writers of a place, the newest last, then the calls that may write there and have not."""
    wrote = [
        {
            "index": origin.logged.call,
            "tool": _tool(origin, calls),
            "instance": origin.logged.instance,
            "id": origin.logged.id,
            "moment": iso_date(moment_ms(origin.logged.id)),
            "method": origin.operation.method.value,
        }
        for origin in explained.origins[-limits.INSTANCES_MOST_LISTED :]
    ]
    known = {writer["index"] for writer in wrote}
    missing = {"instance": None, "id": None, "moment": None}
    may = (call for call in calls.values() if any(map(place.overlaps, call.written)) and call.index not in known)
    return [*wrote, *({"index": one.index, "tool": one.tool, **missing, "method": one.method.value} for one in may)]


def _tool(origin: Origin, calls: Mapping[int, Call]) -> str | None:
    index = origin.logged.call
    return calls[index].tool if index is not None and index in calls else None


def _accesses(found: Sequence[Sight], *, is_derived: bool) -> Iterable[dict[str, Any]]:
    for access in found[: limits.INSTANCES_MOST_LISTED]:
        who = f"{access.executor.value} {access.name}"
        about = {"index": access.index, "tool": access.tool, "derived": is_derived}
        yield {"who": who, "how": ", ".join(access.how), **about}


def _origin(origin: Origin) -> dict[str, Any]:
    return {
        "id": origin.logged.id,
        "moment": iso_date(moment_ms(origin.logged.id)),
        "instance": origin.logged.instance,
        "index": origin.logged.call,
        "path": str(origin.operation.place),
        "method": origin.operation.method.value,
        "value": shown(origin.operation.value, limits.PLACE_PART_BYTES),
        "effect": origin.effect.value,
        "by": origin.logged.message.get("_by"),
        "reads": [_read(read) for read in origin.reads],
        "sources": sorted(origin.sources),
        "unasked": _waivers(origin.unasked),
    }


def _waivers(found: Iterable[Waiver]) -> list[dict[str, Any]]:
    """Why nobody was asked about a call, as far as a page lists it."""
    return within(waiver.to_dict() for waiver in islice(found, limits.INSTANCES_MOST_LISTED))


def _read(read: Read) -> dict[str, Any]:
    return {"path": read.reference, "sources": sorted(read.sources)} | (
        {} if read.value is MISSING else {"value": shown(read.value, limits.PLACE_PART_BYTES)}
    )
