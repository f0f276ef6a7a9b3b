"""The condition of a call that has begun and has not ended: `<kind>:<attempt>:<failures>:<holder>` (lua/condition.lua).

It stands in a run's `calls` beside the final statuses of those that have ended, which have no colon. `attempt` counts the
executions begun, the one at work included; `failures` those of them that failed; the others were lost.

| kind | | holder | goes on when |
|---|---|---|---|
| `running` | a worker is at work on it | its owner | its lease runs out: it is `lost` |
| `sent` | its message, or that of its result, is on the way; an execution that is lost then does not count as one | `<owner>/<ms>/<queue>`: where the message went, and when; no queue where it was taken | a probe has come out of its queue, and for 4 s no process reported it: it is `lost` |
| `retry` | its attempt failed, the policy grants another; or no code has come yet that admits it | when, in ms; 0 where the sweep has seen that it is due | it is due |
| `child` | a child run is to answer it | that run | the run ends |
| `lost` | the process that was at work on it is dead: only the sweep writes this | | a driver claims it |
| `each` | it is carried out for each element: those stand here, too | | the last of them ends |
| `held` | it waits for a person | the entry with its snapshot | it is decided on, or its time is over: it is `decided` |
| `decided` | a person has said what becomes of it | the entry of the decision | a driver claims it, or ends it |

What is sent and forgotten stands in the run's outbox in the same way, with the holder `<ms>/<queue>`: where its task went,
and when. There, `sent` means that it lies in the queue or was taken, `taken` that a probe has come out of the queue since,
`running` that its worker has reported it, `retry` that it is to be tried again when due.
"""  # noqa: E501  # a table

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self


class Kind(StrEnum):
    """What a call waits for."""

    RUNNING = "running"
    SENT = "sent"
    RETRY = "retry"
    CHILD = "child"
    LOST = "lost"
    EACH = "each"
    HELD = "held"
    DECIDED = "decided"
    TAKEN = "taken"


@dataclass(frozen=True, slots=True)
class Condition:
    """How a call stands that has begun and has not ended."""

    kind: Kind
    attempt: int = 0
    failures: int = 0
    holder: str = ""

    @classmethod
    def read(cls, entry: bytes | None) -> Self | None:
        """What stands in `calls` or in an outbox; None where it is no condition of ours."""
        if entry is None:
            return None
        try:
            kind, attempt, failures, holder = entry.decode().split(":", 3)
            return cls(Kind(kind), int(attempt), int(failures), holder)
        except ValueError:
            return None

    def __str__(self) -> str:
        return f"{self.kind}:{self.attempt}:{self.failures}:{self.holder}"

    @property
    def is_at_work(self) -> bool:
        """Whether a worker, a message or a child run carries it out now."""
        return self.kind in _AT_WORK

    @property
    def is_between(self) -> bool:
        """Whether an attempt of it is over and another one is to follow."""
        return self.kind is Kind.RETRY and self.attempt > 0


FAN_OUT: Final = Condition(Kind.EACH, attempt=1)
"""How a call stands that is carried out for each element."""
_AT_WORK: Final = frozenset({Kind.RUNNING, Kind.SENT, Kind.CHILD})


def is_at_work(entry: bytes | None) -> bool:
    """Whether a call is at work, here or elsewhere, by its entry in `calls`."""
    found = Condition.read(entry)
    return found is not None and found.is_at_work


def is_resting(entry: bytes | None, now_ms: int) -> bool:
    """Whether a call is to be tried again, but not yet."""
    found = Condition.read(entry)
    return found is not None and found.kind is Kind.RETRY and int(found.holder) > now_ms
