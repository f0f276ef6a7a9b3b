"""How the tools that an MCP server lists stand to those that are admitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from .declarations import Declaration

State = Literal["admitted", "new", "changed", "gone", "unfit"]


@dataclass(frozen=True)
class Standing:
    """One tool: what the server says of it now, and what was admitted."""

    server: str
    live: Declaration | None
    admitted: Declaration | None

    @property
    def tool(self) -> Declaration:
        """What the server says now; of one that is gone what it said."""
        found = self.live or self.admitted
        assert found is not None
        return found

    @property
    def name(self) -> str:
        """The name of the activity."""
        return f"{self.server}.{self.tool.name}"

    @property
    def problems(self) -> list[str]:
        """Why it cannot be admitted."""
        return [] if self.live is None else list(self.live.problems())

    @property
    def state(self) -> State:
        """In one word."""
        if self.live is None:
            return "gone"
        if self.admitted is not None and self.admitted.digest == self.live.digest:
            return "admitted"
        if self.problems:
            return "unfit"
        return "new" if self.admitted is None else "changed"

    @property
    def has_effects(self) -> bool:
        """Whether a call of it has effects: as the operator says now or has said, or else as the server says."""
        is_kept = self.state == "admitted" and self.admitted is not None and self.admitted.only_reads
        return self.tool.has_effects and not is_kept

    @property
    def newly_only_reads(self) -> bool:
        """Whether the operator says now, and did not say before, that it only reads."""
        return self.tool.only_reads and not (self.admitted is not None and self.admitted.only_reads)

    def as_only_reading(self) -> Standing:
        """The same, where the operator says now that it only reads."""
        return self if self.live is None else replace(self, live=replace(self.live, only_reads=True))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "name": self.name,
            "state": self.state,
            "effects": self.has_effects,
            "digest": self.tool.digest,
            "problems": self.problems,
            "notes": self.tool.notes,
            "declaration": dict(self.tool.said),
        }


def standings(server: str, live: Mapping[str, Declaration], admitted: Mapping[str, Declaration]) -> list[Standing]:
    """All of a server's tools, by name."""
    return [Standing(server, live.get(name), admitted.get(name)) for name in sorted({**live, **admitted})]
