"""Proofs: every finding about a plan, asked for in turn (SPEC R6.7).

Nothing is said twice for lanes that share one graph, and of each kind of finding only the first are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from protocol.calls import Call
from protocol.context import Context
from protocol.lanes import Lane
from protocol.paths import MISSING
from protocol.readers import Readers
from protocol.references import Reference
from protocol.schemas.steps import bounded
from protocol.tools import Tool
from protocol.writers import Writers

from .branches import branch_findings, read_branches, unread_branches
from .elements import element_findings
from .finding import Finding
from .misfits import MOST_HELD, unfit_results, unfit_values
from .obstacles import obstacle_findings
from .promises import promise_findings
from .races import race_findings
from .signatures import Schemas, signature_findings
from .slips import (
    Place,
    blank_references,
    idle_methods,
    misspelt_properties,
    undaggered_paths,
    unfit_messages,
    unknown_scopes,
)
from .timing import MOST_CALLS, ancestors, scope_findings

_UNLIMITED = 10**18
MOST_TOLD = 100
"""Findings of one kind."""


def findings_of(
    calls: tuple[Call, ...],
    lanes: Mapping[str | None, Lane],
    context: Context,
    tools: Mapping[str, Tool],
    signatures: Schemas,
    places: Sequence[Place],
) -> tuple[Finding, ...]:
    """Every finding about a plan.

    `signatures` are the schemas of activities by name; `places` says where in the submission each call stands.
    """
    readers = Readers(calls)
    kinds: tuple[Iterable[Finding], ...] = (
        unfit_messages(context),
        misspelt_properties(calls, places, tools),
        signature_findings(calls, places, signatures),
        idle_methods(calls, places),
        undaggered_paths(calls, places, context, readers),
        unknown_scopes(calls, places, context),
        blank_references(calls, places, context),
        scope_findings(lanes.values()),
        *_lane_findings(lanes, context, tools),
        unread_branches(calls, readers),
        (_unread_finding(calls[index]) for index in _beyond_schemas(calls, lanes, context, readers)),
    )
    with bounded(_UNLIMITED):  # only to be counted: see `Shape.problems`
        return tuple(finding for kind in kinds for finding in _first(kind))


def unread_results(calls: Iterable[Call], readers: Readers | None = None) -> tuple[int, ...]:
    """The calls none of whose results any call reads, by a parameter or a scope.

    That is as it should be for what a run is there to produce.
    """
    calls = tuple(calls)
    readers = readers or Readers(calls)
    return tuple(
        call.index
        for call in calls
        if call.output is not None and not any(readers.has(place, but=call.index) for place in call.output.references)
    )


def _lane_findings(
    lanes: Mapping[str | None, Lane], context: Context, tools: Mapping[str, Tool]
) -> Iterator[Iterator[Finding]]:
    shared = lanes.get(None)
    global_calls = shared.calls if shared is not None else ()
    global_writers = Writers(global_calls)
    before = ancestors(shared.graph, {}) if shared is not None and len(shared.calls) <= MOST_CALLS else {}
    distinct = list({id(lane.graph): lane for lane in lanes.values()}.values())
    for lane in distinct[:MOST_TOLD]:
        is_global = lane.instance is None
        writers = global_writers if is_global else Writers(lane.calls, global_writers)
        holds = context.fold(lane.instance).exists
        seen = {call.index: call for call in ((*global_calls, *lane.calls) if not is_global else lane.calls)}
        branches = read_branches(lane, writers, holds, seen)
        yield promise_findings(lane, writers, context.fold(lane.instance), seen, tools)
        yield race_findings(lane, {} if is_global else before, branches)
        yield element_findings(lane, writers, context.fold(lane.instance), seen, {} if is_global else before, branches)
        yield branch_findings(lane, branches, seen)
        yield unfit_results(lane, context.fold(lane.instance), tools)
        yield obstacle_findings(lane, writers, context.fold(lane.instance))
    yield _unfit_values(lanes, context, tools, global_writers)


def _unfit_values(
    lanes: Mapping[str | None, Lane], context: Context, tools: Mapping[str, Tool], global_writers: Writers
) -> Iterator[Finding]:
    """Looked for in each of the first instances, for each has values of its own."""
    writers: dict[int, Writers] = {}
    left = MOST_HELD
    for lane in lanes.values():
        if (left := left - len(lane.calls)) < 0 and writers:
            return
        if id(lane.graph) not in writers:
            is_global = lane.instance is None
            writers[id(lane.graph)] = global_writers if is_global else Writers(lane.calls, global_writers)
        yield from unfit_values(lane, writers[id(lane.graph)], context.fold(lane.instance), tools)


def _beyond_schemas(
    calls: tuple[Call, ...], lanes: Mapping[str | None, Lane], context: Context, readers: Readers
) -> Iterator[int]:
    """Calls whose result nobody reads, in kinds that have a schema which does not speak of the place."""
    for index in unread_results(calls, readers):
        call = calls[index]
        assert call.output is not None
        instance = call.instance if call.instance in lanes or None in lanes else next(iter(lanes), None)
        schemas = [(context.fold(instance).schema(place.kind), place) for place in call.output.references]
        if all(schema is not MISSING and not _speaks_of(schema, place) for schema, place in schemas):
            yield index


def _speaks_of(schema: object, place: Reference) -> bool:
    """Whether a kind's schema names a place, or gives an object there a shape of its own."""
    part = schema
    for segment in place.path:
        if not isinstance(part, dict) or not isinstance(part.get("properties"), dict):
            return True  # references, combinations, lists: taken to speak of anything
        if set(part) & {"allOf", "anyOf", "oneOf", "$ref", "patternProperties", "if", "dependentSchemas"}:
            return True
        if str(segment) not in part["properties"]:
            return isinstance(part.get("additionalProperties"), dict)
        part = part["properties"][str(segment)]
    return True


def _unread_finding(call: Call) -> Finding:
    return Finding(
        "info",
        f"nobody reads what call {call.index} ({call.tool}) writes to {call.output}, and the schema there does not "
        "name it: read it, name it in the schema, or leave the call out",
        (call.index,),
    )


def _first(findings: Iterable[Finding]) -> Iterator[Finding]:
    findings = iter(findings)
    told = dict.fromkeys(islice(findings, MOST_TOLD))
    yield from told
    if next(findings, None) is not None:
        yield Finding("info", f"and more of the same: only the first {MOST_TOLD} are told")
