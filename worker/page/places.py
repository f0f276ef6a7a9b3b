"""A value: what it is, who writes it, who reads it, who can see it, where it came from, or why it is not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from acts_celery.protocol import ExpressionError
from acts_celery.protocol.analysis.provenance import Explanation, Logged, Origin, Read, explain
from acts_celery.protocol.analysis.visibility import Access, judged_kinds, sights
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.graph.readers import ReadPlaces, places_read
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import DAGGER, Reference
from acts_celery.protocol.state.scopes import read_scope
from acts_celery.worker.client.absence import Absence, absence
from acts_celery.worker.errors import BadQuery
from acts_celery.worker.storage.clock import iso_date
from acts_celery.worker.storage.entries import moment_ms

from .opened import OpenedRun
from .values import shown, within

MOST_LISTED: Final = 100
_PART_BYTES: Final = 2_000
"""Of a value that stands in a list."""


def place(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/place`. Raises `BadQuery`, `InstanceNotFound`."""
    path, instance, at = run.query.required("path"), run.query.text("instance"), run.query.moment("at")
    run.require_instance(instance)
    try:
        reference = read_scope(path if path.startswith(DAGGER) else DAGGER + path)
    except ExpressionError as error:
        raise BadQuery(f"path: {error}") from None
    seen = run.history.seen(instance, at)
    logged = [Logged(entry.id, entry.message or {}, entry.call) for entry in seen]
    explained = explain(reference, logged, instance=instance)
    calls = _calls(run, instance)
    sight = sights(
        reference,
        calls.values(),
        judged_kinds(entry.message for entry in seen if entry.message is not None),
        is_template=run.definition.is_template,
    )
    reading = [call for call in calls.values() if ReadPlaces(places_read(call)).overlap(reference)]
    return {
        "path": str(reference),
        "instance": instance,
        "at": at,
        **_value(run, explained, instance, at),
        "writers": _writers(explained, calls, reference)[:MOST_LISTED],
        "readers": [{"index": call.index, "tool": call.tool} for call in reading[:MOST_LISTED]],
        "seen_by": [*_accesses(sight.direct, is_derived=False), *_accesses(sight.derived, is_derived=True)],
        "provenance": within(map(_origin, explained.origins[-MOST_LISTED:])),
        "more": max(0, len(explained.origins) - MOST_LISTED),
        "reading": run.tally.reading,
    }


def _calls(run: OpenedRun, instance: str | None) -> Mapping[int, Call]:
    """The calls that a value concerns: those of its instance and the global ones; of a global value, all."""
    if instance is None:
        return {index: tally.call for index, tally in run.tally.calls.items()}
    lanes = (run.tally.lanes.get(name) for name in (None, instance))
    known = {index for lane in lanes if lane is not None for index in lane.known}
    return {index: run.tally.calls[index].call for index in sorted(known & run.tally.calls.keys())}


def _value(run: OpenedRun, explained: Explanation, instance: str | None, at: str | None) -> dict[str, Any]:
    if explained.conflict is not None:
        return {"missing": {"sentence": f"It cannot be read: {explained.conflict}", "why": []}}
    if explained.value is not MISSING:
        return {"value": shown(explained.value)}
    found = absence(run.definition, run.history, explained.reference, instance=instance, at=at)
    return {"missing": {"sentence": _sentence(explained.reference, found), "why": _why(found), "near": found.near}}


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
    return [shown(writer.to_dict(), _PART_BYTES * 4) for writer in found.writers]


def _writers(explained: Explanation, calls: Mapping[int, Call], place: Reference) -> list[dict[str, Any]]:
    """What wrote there, the newest last, then the calls that may write there and have not."""
    wrote = [
        {
            "index": origin.logged.call,
            "tool": _tool(origin, calls),
            "instance": origin.logged.instance,
            "id": origin.logged.id,
            "moment": iso_date(moment_ms(origin.logged.id)),
            "method": origin.operation.method.value,
        }
        for origin in explained.origins[-MOST_LISTED:]
    ]
    known = {writer["index"] for writer in wrote}
    missing = {"instance": None, "id": None, "moment": None}
    may = (call for call in calls.values() if any(map(place.overlaps, call.written)) and call.index not in known)
    return [*wrote, *({"index": one.index, "tool": one.tool, **missing, "method": one.method.value} for one in may)]


def _tool(origin: Origin, calls: Mapping[int, Call]) -> str | None:
    index = origin.logged.call
    return calls[index].tool if index is not None and index in calls else None


def _accesses(found: Sequence[Access], *, is_derived: bool) -> Iterable[dict[str, Any]]:
    for access in found[:MOST_LISTED]:
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
        "value": shown(origin.operation.value, _PART_BYTES),
        "effect": origin.effect.value,
        "by": origin.logged.message.get("_by"),
        "reads": [_read(read) for read in origin.reads],
    }


def _read(read: Read) -> dict[str, Any]:
    return {"path": read.reference} | ({} if read.value is MISSING else {"value": shown(read.value, _PART_BYTES)})
