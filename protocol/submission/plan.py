"""A plan: a checked submission, and what can be said of it without running it (SPEC R6.7, R10)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from protocol.analysis.cost import Cost, cost_of
from protocol.analysis.drawing import annotated_mermaid, mermaid
from protocol.analysis.findings import Finding, findings_of, unread_results
from protocol.graph.lanes import Lane

from .layout import Layout

__all__ = ["Finding", "Lane", "Plan"]


@dataclass(frozen=True)
class Plan(Layout):
    """Everything known before anything runs."""

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What is worth knowing and is no error: see `proofs`. Found when asked for, not when the plan is made."""
        return findings_of(self)

    @cached_property
    def unread(self) -> tuple[int, ...]:
        """The calls whose results no call reads: what the run is there to produce, or what nobody needs."""
        return unread_results(self.calls)

    @cached_property
    def cost(self) -> Cost:
        """How much the run will take."""
        return cost_of(self.lanes.values(), self.queued)

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs (writer, reader) of call indexes, over all lanes.

        Where a call waits for more than a few at one place, those that follow from the nearest are left out.
        """
        return tuple((writer, reader) for writer in sorted(self.readers) for reader in sorted(self.readers[writer]))

    @cached_property
    def awaited(self) -> frozenset[int]:
        """The global calls that calls of instances wait for."""
        shared = {call.index for call in self.lanes[None].calls} if None in self.lanes else set()
        own = {id(lane.graph): lane.graph for lane in self.lanes.values() if lane.instance is not None}
        return frozenset({index for graph in own.values() for index in graph.awaited} & shared)

    @cached_property
    def waves(self) -> tuple[tuple[int, ...], ...]:
        """Call indexes that can run at the same time, in order; passing thoughts do not run (SPEC R6.7)."""
        known: dict[int, int] = {}
        if None in self.lanes:
            known = self.lanes[None].graph.levels({})
        levels = dict(known)
        for graph in self.graphs:
            for index, level in graph.levels(known).items():
                levels[index] = max(levels.get(index, 0), level)
        waves: dict[int, list[int]] = {}
        for call in self.calls:
            if call.index in levels and not call.is_thought:
                waves.setdefault(levels[call.index], []).append(call.index)
        return tuple(tuple(waves[level]) for level in sorted(waves))

    def to_mermaid(self, *, annotated: bool = False) -> str:
        """The graph as a Mermaid flowchart; instances of one call are one node (SPEC R6.7).

        Annotated, it has a legend, branches are dashed, and what fans out is marked.
        """
        runs = self._runs if self.submission.is_template else {}
        return (annotated_mermaid if annotated else mermaid)(self.calls, self.edges, runs)

    def to_dict(self) -> dict[str, Any]:
        """The graph as data."""
        return {
            "waves": [list(wave) for wave in self.waves],
            "edges": [list(edge) for edge in self.edges],
            "findings": [finding.to_dict() for finding in self.findings],
        }

    @property
    def _runs(self) -> Counter[int]:
        """Call index to how many instances it runs for."""
        return Counter(call.index for lane in self.lanes.values() for call in lane.calls)
