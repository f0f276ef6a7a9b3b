"""What asking models costs (SPEC R13.3, R13.12): before a request what it may take, behind it what it has taken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from acts_celery.protocol.language.limits import MOST

_COUNTS: Final = ("requests", "tokens", "estimated", "input", "output", "cached")


@dataclass(frozen=True, slots=True)
class Cost:
    """What some requests to models have cost, together."""

    requests: int = 0
    """How many were answered, or lost on the way."""
    tokens: int = 0
    """What counts against `config.tokens`."""
    estimated: int = 0
    """Those of them that are an estimate: nobody has reported the usage of their requests."""
    input: int = 0
    """As providers report it, and so is what follows."""
    output: int = 0
    cached: int = 0
    """How many tokens of the input were read from a provider's cache."""
    seconds: float = 0.0
    """How long was waited for answers, one after the other."""

    @classmethod
    def of_request(cls, usage: Any, estimate: int, losses: int = 0, seconds: float = 0.0) -> Self:
        """Of one request: what was reported, else the estimate; attempts that were lost before are charged whole."""
        lost = losses * estimate
        if (counts := reported(usage)) is None:
            return cls(1 + losses, lost + estimate, lost + estimate, seconds=seconds)
        input_, output, cached = counts
        return cls(1 + losses, lost + input_ + output, lost, input_, output, cached, seconds)

    @classmethod
    def read(cls, packed: Mapping[str, Any]) -> Self:
        """The inverse of `pack`, also of what a version before this has written, or a worker that is not trusted."""
        usage = reported(packed.get("usage"))
        input_, output, cached = usage if usage is not None else (0, 0, 0)
        seconds = packed.get("seconds")
        return cls(
            _count(packed.get("requests"), 1),
            _count(packed.get("tokens")),
            _count(packed.get("estimated")),
            input_,
            output,
            cached,
            seconds if isinstance(seconds, int | float) and seconds > 0 else 0.0,
        )

    def pack(self) -> dict[str, Any]:
        """As the log has it."""
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            **({"estimated": self.estimated} if self.estimated else {}),
            "usage": {"input": self.input, "output": self.output, "cached": self.cached},
            "seconds": round(self.seconds, 3),
        }

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))


def reported(usage: Any) -> tuple[int, int, int] | None:
    """The tokens of the input, of the answer, and those of the input from a cache, as a provider reports them; None
    where it does not, or not with numbers that can be.
    """
    found = [usage.get(key, 0) for key in ("input", "output", "cached")] if isinstance(usage, Mapping) else []
    if not found or "input" not in usage or "output" not in usage:
        return None
    counts = [count for count in found if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST]
    return (counts[0], counts[1], counts[2]) if len(counts) == len(found) else None


def _count(value: Any, otherwise: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise
