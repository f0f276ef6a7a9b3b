"""Statuses: the states of a call, and how one follows another (SPEC R5, R6.6, R11.4)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal


class Status(StrEnum):
    """The statuses of a call."""

    WAITING = "waiting"
    HELD = "held"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    SENT = "sent"
    LATENT = "latent"


CallStatus = Literal["waiting", "held", "running", "done", "failed", "skipped", "sent", "latent"]
"""The same as texts, for those who read results."""

TRANSITIONS: Final[Mapping[Status, frozenset[Status]]] = {
    Status.WAITING: frozenset(
        {Status.HELD, Status.RUNNING, Status.DONE, Status.FAILED, Status.SKIPPED, Status.SENT, Status.LATENT}
    ),
    Status.HELD: frozenset({Status.WAITING, Status.RUNNING, Status.FAILED, Status.SKIPPED}),
    # Skipped: it was lost, and what it needs was carried out again and has failed (SPEC R11.8).
    Status.RUNNING: frozenset({Status.WAITING, Status.DONE, Status.FAILED, Status.SKIPPED, Status.SENT}),
    Status.DONE: frozenset(),
    Status.FAILED: frozenset(),
    Status.SKIPPED: frozenset(),
    Status.SENT: frozenset(),
    Status.LATENT: frozenset(),
}
FINAL: Final = frozenset(status for status, following in TRANSITIONS.items() if not following)
"""How a call can end."""
