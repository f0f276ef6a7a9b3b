"""Findings: what is worth knowing of a submission and is no error (SPEC R6.7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

FAILURES: Final = "error"
"""The kind that every failure is written to (SPEC R7.2): of what is there the calls tell nothing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth knowing that is no error: `severity` is `warning` or `info`, `calls` the indexes concerned."""

    severity: str
    message: str
    calls: tuple[int, ...] = ()
    pointer: str | None = None
    """JSON pointer into the submission, where it is about one place in it."""
    lost: int | None = None
    """The call that never succeeds, where that is what is told."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "severity": self.severity,
            "message": self.message,
            "calls": list(self.calls),
            "pointer": self.pointer,
        }
