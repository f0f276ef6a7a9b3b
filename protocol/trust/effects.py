"""Effects: what keeps a call from changing something outside (SPEC R16.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acts_celery.protocol.calls.trust import ToolTrust
from acts_celery.protocol.state.labels import TRUSTED, Labels

from .flow import Flow


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a call with effects does not start by itself: what others wrote would decide."""

    chosen: Labels = TRUSTED
    """The sources of what had a say in whether it runs."""
    given: Mapping[str, Labels] = field(default_factory=dict)
    """Those of each parameter, and of each kind of its scopes, that decides."""
    ways: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The calls that lead from each source to this one, the first of them first."""

    @property
    def labels(self) -> Labels:
        """All the sources."""
        return self.chosen.union(*self.given.values())

    def __str__(self) -> str:
        parts = [f"{name} comes from {_named(labels)}" for name, labels in self.given.items()]
        parts += [f"{_named(self.chosen)} had a say in whether it runs"] if self.chosen else []
        return "; ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """As `acts held --json` shows it; see `read`."""
        return {
            "chosen": sorted(self.chosen),
            "parameters": {name: sorted(labels) for name, labels in self.given.items()},
            "ways": {label: list(calls) for label, calls in sorted(self.ways.items())},
        }

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Doubt:
        """The inverse of `to_dict`."""
        given = {name: frozenset(labels) for name, labels in said["parameters"].items()}
        return cls(frozenset(said["chosen"]), given, {label: tuple(calls) for label, calls in said["ways"].items()})


def doubt(trust: ToolTrust, flow: Flow) -> Doubt | None:
    """What keeps a call from starting, by what is said of its tool and what flows into it; None where nothing does."""
    if not (flow and trust.effects):
        return None
    deciding = {name: labels for name, labels in sorted(flow.given.items()) if name not in trust.content}
    return Doubt(flow.chosen, deciding) if flow.chosen or deciding else None


def refuses_untrusted(config: Mapping[str, Any]) -> bool:
    """Whether such a call fails, by a valid `config`, and is not held."""
    return (config.get("trust") or {}).get("otherwise") == "refuse"


def shows_untrusted(config: Mapping[str, Any]) -> bool:
    """Whether a model is shown what others wrote, although it can call what has effects (SPEC R16.3)."""
    return (config.get("trust") or {}).get("show") == "value"


def _named(labels: Labels) -> str:
    return " and ".join(sorted(labels))
