"""Holds: calls that wait for a person, and what the person said (SPEC R14.2).

A call is held with a snapshot: its resolved parameters, and what its scopes give it. What was shown is what runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a call was held with."""

    parameters: Mapping[str, Any]
    scopes: Mapping[str, Any]
    """Kind to value, as code gets it."""
    messages: Sequence[Mapping[str, Any]] = ()
    """The same as messages, for a delegate or a model: schemas and texts ride along (SPEC R8.3)."""


class Verdict(StrEnum):
    """What a person says of a held call."""

    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    """It was a question, and this is its result."""
    REPLACED = "replaced"
    """It ends as skipped, and other calls stand in for it."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What was decided of a held call."""

    verdict: Verdict
    parameters: Mapping[str, Any] | None = None
    """Those that it is to run with, where they were changed."""
    reason: str = ""
    """Why it was rejected."""
    answer: Any = None
    """The result of a question."""
    amendment: Mapping[str, Any] | None = None
    """The calls that stand in for it, as they were handed in."""
