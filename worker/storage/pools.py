"""Pools: what the child runs of a loop, and its calls that ask a model, may take together (SPEC R13.3).

A loop and all that stands below it draw on one pool: that of the loop, and those of the loops above it. What a request
may cost is reserved in each of them before it begins, and what it has cost is put in its place (lua/pool.lua). What the
loop's own requests have cost is in its log; while its calls run it grows by no more than what the one may take whose
answer is being written (SPEC R13.8), so both are taken off once: when a child begins. A loop draws its own calls, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from acts_celery.protocol.engine.loop_limits import LoopLimits

TOKENS = "loop:tokens"
"""The field of a run's state that says what the requests of its loop have cost."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What may be taken below one loop."""

    run: str
    tokens: int | None
    calls: int | None

    @classmethod
    def of(cls, run: str, limits: LoopLimits, spent: int) -> Self:
        """The pool of a loop of those limits, whose own requests have taken so many tokens."""
        return cls(run, None if limits.tokens is None else max(limits.tokens - spent, 0), limits.calls)

    def less(self, drawn: Mapping[str, int]) -> Self:
        """What is left of it."""
        tokens = None if self.tokens is None else max(self.tokens - drawn["=tokens"], 0)
        return replace(self, tokens=tokens, calls=None if self.calls is None else max(self.calls - drawn["=calls"], 0))


@dataclass(frozen=True, slots=True)
class Lack:
    """Why nothing was drawn."""

    text: str
    may_pass: bool
    """Whether others have reserved what they may not need."""


@dataclass(frozen=True, slots=True)
class Draw:
    """How much a member has taken in all."""

    member: str
    tokens: int | None = None
    """None leaves them as they are, as for `calls`."""
    open: int = 0
    """Those of the tokens that are only reserved."""
    calls: int | None = None
    tick: int = 0
    """Of the member's loop: only a later one lowers its calls."""

    def to_request(self, pool: Pool) -> dict[str, Any]:
        """As the script takes it. What was billed is recorded, also beyond what is left."""
        return {
            "member": self.member,
            "tokens": self.tokens,
            "open": self.open,
            "calls": self.calls,
            "tick": self.tick,
            "most_tokens": pool.tokens if self.open else None,
            "most_calls": pool.calls,
        }

    def lack(self, pool: Pool, answer: Mapping[str, Any]) -> Lack | None:
        """What the script's answer says against it."""
        if answer["is_drawn"]:
            return None
        if answer["is_over"]:
            return Lack(f"run {pool.run}, which it is to answer, is over", may_pass=False)
        if answer["what"] == "calls":
            text = f"{answer['left']} calls are left of those that run {pool.run} and its child runs may start together"
            return Lack(f"{text} (config.calls)", may_pass=False)
        text = (
            f"the next request may take {self.open} tokens, and {answer['left']} are left of those that run {pool.run}"
        )
        return Lack(f"{text} and its child runs may take together (config.tokens)", answer["open"] > 0)
