"""The figures of a chaos: what was done to the site, what it cost, and what was lost."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .auditor import Finding
from .rounds import Round

_PROMISES: Final = ("lost", "duplicated", "wrong", "stuck", "orphan", "exceeded")


@dataclass
class Report:
    """The sum over rounds."""

    seed: int
    rounds: int = 0
    runs: int = 0
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    refusals: int = 0
    in_doubt: int = 0
    removed: int = 0
    executions: Counter[int] = field(default_factory=Counter)
    """How many calls were executed so often."""
    recoveries: list[float] = field(default_factory=list)
    resumptions: list[float] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    limited: Counter[str] = field(default_factory=Counter)
    """How often activities with limits have begun."""
    most: dict[str, int] = field(default_factory=dict)
    """The most that were seen of each limit."""

    def add(self, round_: Round) -> None:
        """Take in a round."""
        audit = round_.audit
        self.rounds += 1
        self.runs += audit.runs
        self.calls += audit.calls
        self.faults.update(incident.fault for incident in round_.incidents)
        self.refusals += round_.refusals
        self.in_doubt += audit.in_doubt
        self.removed += audit.removed
        self.executions.update(audit.executions)
        self.recoveries += round_.recoveries
        self.resumptions += round_.resumptions
        self.findings += audit.findings
        self.limited += audit.limited
        self.most |= {what: max(most, self.most.get(what, 0)) for what, most in audit.most.items()}

    def to_dict(self) -> dict[str, Any]:
        """As JSON; times in seconds."""
        executed = list(self.executions.elements())
        kinds = Counter(finding.kind for finding in self.findings)
        return {
            "seed": self.seed,
            "rounds": self.rounds,
            "runs": self.runs,
            "calls": self.calls,
            "faults": dict(sorted(self.faults.items())),
            "submissions refused and repeated": self.refusals,
            "runs no client was told of": self.in_doubt,
            "half-written runs removed": self.removed,
            "executions beyond the first": sum(executed) - len(executed),
            "executions of a call, mean": round(statistics.fmean(executed), 4) if executed else None,
            "executions of a call, most": max(executed, default=None),
            "from a kill until its calls are begun again": _spread(self.recoveries),
            "from an outage's end until a call ends": _spread(self.resumptions),
            **({"limited activities begun": dict(self.limited), "most of each limit": self.most} if self.most else {}),
            **{kind: kinds[kind] for kind in _PROMISES},
        }

    def table(self) -> Iterator[str]:
        """As lines."""
        for name, value in self.to_dict().items():
            if isinstance(value, dict):
                value = ", ".join(f"{key} {item}" for key, item in value.items()) or "none"
            yield f"{name:<46}{value}"
        for finding in self.findings:
            yield f"{finding.kind}: {finding.text}"


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    return {"median": round(statistics.median(seconds), 2), "most": round(max(seconds), 2), "of": len(seconds)}
