"""What a loop may spend, and why it may not go on where that is spent (SPEC R13.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from .loop import Loop

TICKS: Final = 8
CALLS: Final = 200
REPEATS: Final = 3
"""So many ticks, one after the other, with the same calls and the same results end a loop: it does not get on."""
MAX_OUTPUT_TOKENS: Final = 4_096
"""What a request asks for at most where `config` does not say: it is always sent (SPEC R13.3)."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """What a loop may spend; None is no limit. Its methods say why the loop may not go on, or None where it may."""

    ticks: int = TICKS
    calls: int = CALLS
    tokens: int | None = None
    seconds: float | None = None
    request_seconds: float | None = None
    max_output_tokens: int = MAX_OUTPUT_TOKENS

    @classmethod
    def of(cls, config: Mapping[str, Any], most: Mapping[str, Any] = MappingProxyType({})) -> LoopLimits:
        """The limits that a valid `config` sets, where an operator allows at `most` so much (SPEC R4.2a)."""
        limits = cls(**{name: config[name] for name in cls.__slots__ if config.get(name) is not None})
        own = {name: getattr(limits, name) for name in most}
        tightest: dict[str, Any] = {
            name: min((n for n in (own[name], most[name]) if n is not None), default=None) for name in most
        }
        return replace(limits, **tightest)

    def tick_limit(self, loop: Loop) -> str | None:
        """Why the current tick may not be asked, where the limit of ticks is reached."""
        most = self.ticks + loop.added_ticks
        if loop.tick.number < most:
            return None
        return f"the limit of {most} ticks (config.ticks) is reached without an output"

    def repeat_limit(self, loop: Loop, times: int) -> str | None:
        """Why the current tick may not be asked, where so many before it were the same, one after the other. Ticks that
        a person has added are asked all the same.
        """
        if times < REPEATS or loop.tick.number < loop.granted:
            return None
        return (
            f"the last {times} ticks were the same: the same calls, with the same results. Say something that helps "
            "(acts say), or let it go on (acts resume --ticks)"
        )

    def token_limit(self, loop: Loop, estimate: int, losses: int = 0) -> str | None:
        """Why a request of this estimate may not begin, where its tokens do not fit what is left.

        `losses` are the attempts at the same request whose answers were lost: each is charged whole.
        """
        if self.tokens is None:
            return None
        left = self.tokens - loop.spent - losses * estimate
        if estimate <= left:
            return None
        return (
            f"the next request may take {estimate} tokens and {max(left, 0)} of {self.tokens} (config.tokens) are left"
        )

    def call_limit(self, loop: Loop, runs: int) -> str | None:
        """Why a solution of so many calls may not start, or not go on where some of it has begun (SPEC R13.8)."""
        begun = loop.tick.runs
        calls = loop.calls - begun + runs
        if calls <= self.calls:
            return None
        started = f"{begun} of the last solution were started" if begun else "none of the last solution was started"
        return f"{calls} calls, where {self.calls} (config.calls) are allowed: {started}"

    def spending_limit(self, loop: Loop, charged: int) -> str | None:
        """Why the loop ends with an answer that has cost so much: more than was left."""
        if self.tokens is None or loop.spent + charged <= self.tokens:
            return None
        return f"{loop.spent + charged} tokens were billed, where {self.tokens} (config.tokens) are allowed"

    def time_limit(self, seconds: float) -> str | None:
        """Why a loop that has run for so long may not go on."""
        if self.seconds is None or seconds < self.seconds:
            return None
        return f"the limit of {self.seconds:g} seconds (config.seconds) is reached"


def estimate_tokens(new_bytes: int, max_output_tokens: int, known: int = 0) -> int:
    """What a request may take at most, where the request before it and its answer had so many tokens and the others
    have so many bytes: a token has a byte at least (SPEC R13.3).
    """
    return known + new_bytes + max_output_tokens
