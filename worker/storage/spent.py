"""What the log says of the time that a call took: the field `t` of what is told of its end.

When a call ended is in the id of the entry that ends it. What ids do not tell is written beside it: for how long the
last attempt was at work, and which attempt that was, where it was not the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Spent:
    """What a call took."""

    took_ms: int | None
    """How long its last attempt was at work; None where its worker was lost, or a child run has answered it."""
    attempts: int = 1

    def pack(self) -> int | list[int | None] | None:
        """As the log has it, in as few bytes as will do."""
        return self.took_ms if self.attempts == 1 else [self.took_ms, self.attempts]

    @classmethod
    def read(cls, packed: Any) -> Spent | None:
        """The inverse. None where nothing is said that one of ours would have written: a log may be imported."""
        match packed:
            case int(took_ms) if took_ms >= 0:
                return cls(took_ms)
            case [None | int() as took_ms, int(attempts)] if (took_ms or 0) >= 0 and attempts > 1:
                return cls(took_ms, attempts)
        return None
