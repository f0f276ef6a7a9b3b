"""Where a run stands in a trace (W3C Trace Context): ids that follow from run and call.

Whoever needs an id makes the same one, so nothing has to be sent for it, and a span that is exported twice is one span.
Only a run that was submitted within somebody's trace, or answers a call of another run, has its place written down.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Annotated, Final, Self

from pydantic import Field

_HEADER: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_PACKED: Final = r"^([0-9a-f]{32}-[0-9a-f]{16}-(0[01])?)?$"
_SAMPLED: Final = 1

PackedPlace = Annotated[str, Field(max_length=52, pattern=_PACKED)]
"""A place as it travels; empty where it follows from the run's id."""


@dataclass(frozen=True, slots=True)
class TracePlace:
    """A span, as what happens below it has to know it."""

    trace: str
    span: str
    is_sampled: bool | None = None
    """None where nobody has decided yet whether the trace is recorded."""

    @classmethod
    def read_header(cls, text: str) -> Self | None:
        """From a `traceparent`; None where it is none."""
        found = _HEADER.fullmatch(text)
        if found is None:
            return None
        version, trace, span, flags, more = found.groups()
        if version == "ff" or (version == "00" and more) or not int(trace, 16) or not int(span, 16):
            return None
        return cls(trace, span, bool(int(flags, 16) & _SAMPLED))

    @property
    def header(self) -> str:
        """As a `traceparent`. Where nobody has decided, the trace is recorded."""
        return f"00-{self.trace}-{self.span}-{'00' if self.is_sampled is False else '01'}"

    def pack(self) -> str:
        """As a run's state and an attempt have it."""
        return f"{self.trace}-{self.span}-{'' if self.is_sampled is None else f'{self.is_sampled:02d}'}"

    @classmethod
    def unpack(cls, text: str) -> Self | None:
        """The inverse; None for an empty text, or one that is no place."""
        if not text or re.fullmatch(_PACKED, text) is None:
            return None
        trace, span, flags = text.split("-")
        return cls(trace, span, None if not flags else flags == "01")

    def at(self, span: str) -> Self:
        """Another span of the same trace."""
        return replace(self, span=span)


def place_of_run(run: str, above: TracePlace | None = None) -> TracePlace:
    """A run's own span; `above` is what it was submitted under."""
    span = _digest(16, "run", run)
    return above.at(span) if above is not None else TracePlace(_digest(32, "trace", run), span)


def call_span(run: str, member: str, again: int = 0) -> str:
    """The span of a call, or of an element of it, by its `CallId.member`; one that is carried out again has another:
    `again` is how often the call had ended before.
    """
    return _digest(16, "call", run, member, str(again))


def part_span(span: str, part: str) -> str:
    """The span of a part of what another one is about."""
    return _digest(16, part, span)


def _digest(length: int, *parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:length]
