"""A plan: a checked submission, laid out as the lanes it runs in (SPEC R6.7, R10).

A *lane* is what one instance runs, or what runs globally. Lanes share nothing but the global values, so each can be
executed by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from .calls import Call
from .context import Context
from .drawing import mermaid
from .graph import Graph
from .references import Reference
from .submission import Submission
from .tools import Tool


@dataclass(frozen=True, slots=True)
class Lane:
    """The calls of one instance (or the global ones), and what they wait for."""

    instance: str | None
    calls: tuple[Call, ...]
    graph: Graph
    held: frozenset[Reference] = frozenset()
    """The places, of those that make a difference to the graph, that the initial context holds."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth knowing that is no error: `severity` is `warning` or `info`, `calls` the indexes concerned."""

    severity: str
    message: str
    calls: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"severity": self.severity, "message": self.message, "calls": list(self.calls)}


@dataclass(frozen=True)
class Plan:
    """Everything known before anything runs."""

    submission: Submission
    context: Context
    calls: tuple[Call, ...]
    lanes: Mapping[str | None, Lane]
    findings: tuple[Finding, ...] = ()
    tools: Mapping[str, Tool] = field(default_factory=dict)
    """Every tool that a call names, declared or derived from an activity."""

    @property
    def size(self) -> int:
        """How many calls will be executed, over all instances."""
        return sum(len(lane.calls) for lane in self.lanes.values())

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs (writer, reader) of call indexes, over all lanes."""
        graphs = {id(lane.graph): lane.graph for lane in self.lanes.values()}.values()
        return tuple(
            sorted({(writer, reader) for graph in graphs for reader in graph.waits for writer in graph.before(reader)})
        )

    @cached_property
    def waves(self) -> tuple[tuple[int, ...], ...]:
        """Call indexes that can run at the same time, in order; passing thoughts do not run (SPEC R6.7)."""
        known: dict[int, int] = {}
        if None in self.lanes:
            known = self.lanes[None].graph.levels({})
        levels = dict(known)
        for graph in {id(lane.graph): lane.graph for lane in self.lanes.values()}.values():
            for index, level in graph.levels(known).items():
                levels[index] = max(levels.get(index, 0), level)
        waves: dict[int, list[int]] = {}
        for call in self.calls:
            if call.index in levels and not call.is_thought:
                waves.setdefault(levels[call.index], []).append(call.index)
        return tuple(tuple(waves[level]) for level in sorted(waves))

    def to_mermaid(self) -> str:
        """The graph as a Mermaid flowchart; instances of one call are one node (SPEC R6.7)."""
        return mermaid(self.calls, self.edges, {call.index: self._instances(call) for call in self.calls})

    def to_dict(self) -> dict[str, Any]:
        """The graph as data."""
        return {
            "waves": [list(wave) for wave in self.waves],
            "edges": [list(edge) for edge in self.edges],
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def _instances(self, call: Call) -> int:
        return sum(call in lane.calls for lane in self.lanes.values()) if self.submission.is_template else 1
