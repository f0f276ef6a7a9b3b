"""Proofs: every finding about a plan, asked for in turn (SPEC R6.7).

Of each kind of finding only the first are told, and none twice: see `instances` for what is said of which.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from protocol.calls.call import Call
from protocol.graph.lanes import Lane
from protocol.graph.readers import Readers
from protocol.hints.views import Views
from protocol.language.messages import DATA_TYPES
from protocol.language.paths import MISSING
from protocol.language.references import Reference
from protocol.state.fold import Fold
from protocol.submission.layout import Layout

from .answers import answer_findings
from .branches import branch_findings, unread_branches
from .clashes import clash_findings
from .declarations import foreign_definitions, wrapped_tools
from .effort import counted, is_spent
from .elements import element_findings
from .fallbacks import missing_alternatives, unreached_results
from .finding import Finding
from .foresight import foresight_findings
from .habits import foreign_properties, foreign_references
from .instances import MOST_TOLD, Tally, looked_at, not_looked_at
from .joins import join_findings
from .misfits import unfit_results, unfit_values
from .obstacles import obstacle_findings
from .payloads import left_out_properties, unfit_messages, unnameable_kinds
from .positions import position_findings
from .presence import Presence
from .promises import promise_findings
from .races import race_findings
from .scopes import empty_scopes, unknown_scopes
from .sight import Sight, Sights
from .signatures import signature_findings, signatures_of, taken_whole
from .slips import (
    idle_activities,
    idle_methods,
    idle_results,
    misspelt_kinds,
    misspelt_parameters,
    misspelt_properties,
    misspelt_settings,
    undaggered_paths,
    unfit_output,
)
from .texts import (
    blank_references,
    concluding_references,
    delegated_references,
    embedded_references,
    held_references,
    written_references,
)
from .timing import read_findings
from .trials import trial_findings
from .unrun import unrun_calls


def findings_of(layout: Layout) -> tuple[Finding, ...]:
    """Every finding about a valid submission."""
    with counted():
        return tuple(_Proofs(layout).findings())


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


_ABOUT_ORDER: Final = 3
"""Of the kinds of findings about lanes so many."""


class _Proofs:
    """What is looked at."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._readers = Readers(layout.calls)
        self._sights = Sights(layout)
        self._lanes = looked_at(layout.lanes)
        self._first_sights = [self._sights.of(lane) for lane in self._lanes]

    def findings(self) -> Iterator[Finding]:
        """Slips, then those of each other kind, then the calls that are certain to fail, and those that were not seen
        to succeed; of these only such of which no warning has told what becomes of them: a slip does not, nor does what
        depends on order. At last what was not looked at.
        """
        yield from (finding for kind in self._slips() for finding in _first(kind))
        everywhere = [finding for kind in self._kinds() for finding in _first(kind)]
        in_lanes = self._lane_findings(_lost(everywhere))
        yield from (finding for kind in in_lanes[:_ABOUT_ORDER] for finding in _first(kind))
        found = [finding for kind in in_lanes[_ABOUT_ORDER:-1] for finding in _first(kind)] + everywhere
        told = _told(found)
        found += _first(finding for kind in in_lanes[-1:] for finding in kind if finding.lost not in told)
        yield from found
        yield from _first(trial_findings(self._layout, self._sights, _told(found)))
        yield from not_looked_at(self._layout.lanes, self._lanes)
        if is_spent():
            yield Finding("info", "not all was looked at: schemas, or the values they are for, take too long to read")

    def _slips(self) -> Iterator[Iterable[Finding]]:
        layout, calls, context = self._layout, self._layout.calls, self._layout.context
        submission, sights, readers = layout.submission, self._first_sights, self._readers
        places, presence = [at for at, _ in submission.calls], Presence(calls, context)
        yield unfit_messages(context)
        yield unnameable_kinds(context)
        yield left_out_properties(context, calls)
        whole = taken_whole(layout)
        yield misspelt_properties(calls, places, layout.tools, whole)
        yield misspelt_parameters(calls, places, layout.tools)
        yield misspelt_settings(submission.config, submission.delegates)
        yield unrun_calls(submission)
        yield wrapped_tools(submission, calls)
        yield foreign_definitions(submission)
        yield foreign_properties(calls, places, layout.tools, presence.kinds | DATA_TYPES, whole)
        yield foreign_references(calls, places, presence)
        yield idle_methods(calls, places)
        yield idle_activities(calls, places)
        yield idle_results(calls, places, submission.tools, layout.signatures)
        yield unfit_output(submission.output, submission.schema)
        yield undaggered_paths(calls, places, readers, presence)
        yield misspelt_kinds(calls, places, readers, presence)
        yield unknown_scopes(calls, places, presence)
        if not submission.is_template or len(sights) == len(layout.lanes):  # each call's lanes are looked at, or none
            views = Views(layout.lanes, context)
            yield empty_scopes(sights, places, presence, views)
            yield missing_alternatives(sights, places, presence, views)
        if not submission.is_template:  # which may be one for many contexts
            yield unreached_results(sights, places, readers)
        yield blank_references(calls, places, presence)
        yield embedded_references(calls, places, presence)
        yield written_references(calls, places, presence)
        yield concluding_references(submission.output, presence)
        yield held_references(context, presence)
        yield delegated_references(submission.delegates, calls, presence)

    def _kinds(self) -> Iterator[Iterable[Finding]]:
        layout, calls = self._layout, self._layout.calls
        yield signature_findings(calls, [at for at, _ in layout.submission.calls], signatures_of(layout))
        yield answer_findings(calls, layout.tools, layout.submission.delegates)
        yield unread_branches(calls, self._readers)

    def _lane_findings(self, lost: frozenset[int]) -> list[Iterator[Finding]]:
        """The findings that hang on what an instance holds, each kind by itself: about order first, foresight last.

        `lost` are calls that never succeed, whatever it holds. Nothing is told of what follows from those.
        """
        lanes = 1 if None in self._layout.lanes else len(self._layout.lanes)
        tallies: defaultdict[int, Tally] = defaultdict(lambda: Tally(self._layout.calls, lanes))
        unread = frozenset(unread_results(self._layout.calls, self._readers))
        for sight in self._first_sights:
            certain = [list(kind) for kind in _certain(sight)]
            promises = list(promise_findings(sight.without(lost.union(*map(_lost, certain)))))
            foreseen = list(foresight_findings(sight))
            gone = lost.union(*map(_lost, (*certain, promises, foreseen)))
            if sight.lane.instance is None:
                lost = gone  # the instances see the global calls too
            others = sight.without(gone)
            kinds = (
                read_findings(others),
                race_findings(others),
                position_findings(others),
                promises,
                clash_findings(others),
                *certain,
                _beyond_schemas(sight.lane, sight.fold, unread),
                foreseen,
            )
            for kind, findings in enumerate(kinds):
                tallies[kind].add(sight.lane.instance, findings)
        return [tally.findings() for tally in tallies.values()]


def _certain(sight: Sight) -> Iterator[Iterable[Finding]]:
    """What is told of calls by themselves that never succeed."""
    yield element_findings(sight)
    yield branch_findings(sight.lane, sight.branches, sight.calls)
    yield join_findings(sight)
    yield unfit_results(sight)
    yield unfit_values(sight)
    yield obstacle_findings(sight)


def _lost(findings: Iterable[Finding]) -> frozenset[int]:
    """The calls that never succeed, as is told."""
    return frozenset(finding.lost for finding in findings if finding.lost is not None)


def _beyond_schemas(lane: Lane, fold: Fold, unread: Collection[int]) -> Iterator[Finding]:
    """Calls whose result nobody reads, in kinds that have a schema which does not speak of the place."""
    for call in lane.calls:
        if call.output is None or call.index not in unread:
            continue
        schemas = [(fold.schema(place.kind), place) for place in call.output.references]
        if all(schema is not MISSING and not _speaks_of(schema, place) for schema, place in schemas):
            yield Finding(
                "info",
                f"nobody reads what call {call.index} ({call.tool}) writes to {call.output}, and the schema there does "
                "not name it: read it, name it in the schema, or leave the call out",
                (call.index,),
            )


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


def _told(findings: Iterable[Finding]) -> frozenset[int]:
    """The calls of which warnings tell."""
    return frozenset(index for finding in findings if finding.severity == "warning" for index in finding.calls)


def _first(findings: Iterable[Finding]) -> Iterator[Finding]:
    findings = iter(findings)
    told = dict.fromkeys(islice(findings, MOST_TOLD))
    yield from told
    if next(findings, None) is not None:
        yield Finding("info", f"and more of the same: only the first {MOST_TOLD} are told")
