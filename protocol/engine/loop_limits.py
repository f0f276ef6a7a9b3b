"""What a loop may spend, and why it may not go on where that is spent (SPEC R13.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from .costs import CURRENCY, Cost, Estimate, dollars_of, nanodollars
from .loop import Loop

TICKS: Final = 8
CALLS: Final = 200
REPEATS: Final = 3
"""So many ticks, one after the other, with the same calls and the same results end a loop: it does not get on."""
MAX_OUTPUT_TOKENS: Final = 4_096
"""What a request asks for at most where `config` does not say: it is always sent (SPEC R13.3)."""
PRICE_REMEDY: Final = (
    'set its price, as {"input": …, "output": …} in US dollars for a million tokens, in ACTS_MODEL_PRICE or ACTS_MODELS'
)
"""What to do where a model has no price."""


@dataclass(frozen=True, slots=True)
class LoopLimits:
    """What a loop may spend; None is no limit. Its methods say why the loop may not go on, or None where it may."""

    ticks: int = TICKS
    calls: int = CALLS
    tokens: int | None = None
    seconds: float | None = None
    max_output_tokens: int = MAX_OUTPUT_TOKENS
    money: int | None = None
    """In nanodollars."""
    all_ticks: int | None = None
    """Ticks that an operator allows in all, with those that people add."""

    @classmethod
    def of(cls, config: Mapping[str, Any], most: Mapping[str, Any] = MappingProxyType({})) -> LoopLimits:
        """The limits that a valid `config` sets, where an operator allows at `most` so much (SPEC R4.2a)."""
        own_names = (name for name in cls.__slots__ if name != "all_ticks")
        limits = cls(**{name: config[name] for name in own_names if config.get(name) is not None})
        if limits.money is not None:
            limits = replace(limits, money=nanodollars(limits.money))
        own = {name: getattr(limits, name) for name in most}
        tightest: dict[str, Any] = {
            name: min((n for n in (own[name], most[name]) if n is not None), default=None) for name in most
        }
        return replace(limits, **tightest, all_ticks=most.get("ticks"))

    def tick_limit(self, loop: Loop) -> str | None:
        """Why the current tick may not be asked, where the limit of ticks is reached."""
        most, where = self.ticks + loop.added_ticks, "config.ticks"
        if self.all_ticks is not None and self.all_ticks <= most:
            most, where = self.all_ticks, "ACTS_LIMIT_TICKS"
        if loop.tick.number < most:
            return None
        return f"the limit of {most} ticks ({where}) is reached without an output"

    def ticks_to_add(self, loop: Loop) -> int | None:
        """How many ticks may be added to those that a loop may ask; None is any number."""
        return None if self.all_ticks is None else max(0, self.all_ticks - self.ticks - loop.added_ticks)

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

    @property
    def counts_spending(self) -> bool:
        """Whether what requests cost is limited."""
        return self.tokens is not None or self.money is not None

    def request_limit(self, loop: Loop, estimate: Estimate, losses: int = 0) -> str | None:
        """Why a request of this estimate may not begin, where it does not fit what is left of tokens or money.

        `losses` are the attempts at the same request whose answers were lost: each is charged whole.
        """
        spent = loop.cost
        if self.tokens is not None:
            left = self.tokens - spent.tokens - losses * estimate.tokens
            if estimate.tokens > left:
                next_ = f"the next request may take {estimate.tokens} tokens"
                return f"{next_} and {max(left, 0)} of {self.tokens} (config.tokens) are left"
        if self.money is not None:
            if estimate.nanodollars is None:
                return f"no price is known of the model, which config.money needs: {PRICE_REMEDY}"
            left = self.money - spent.nanodollars - losses * estimate.nanodollars
            if estimate.nanodollars > left:
                next_ = f"the next request may cost {_amount(estimate.nanodollars)}"
                return f"{next_} and {_amount(max(left, 0))} of {_amount(self.money)} (config.money) are left"
        return None

    def call_limit(self, loop: Loop, runs: int) -> str | None:
        """Why a solution of so many calls may not start, or not go on where some of it has begun (SPEC R13.8)."""
        begun = loop.tick.runs
        calls = loop.calls - begun + runs
        if calls <= self.calls:
            return None
        started = f"{begun} of the last solution were started" if begun else "none of the last solution was started"
        return f"{calls} calls, where {self.calls} (config.calls) are allowed: {started}"

    def spending_limit(self, loop: Loop, cost: Cost) -> str | None:
        """Why the loop ends with an answer that has cost so much: more than was left."""
        spent = loop.cost + cost
        if self.tokens is not None and spent.tokens > self.tokens:
            return f"{spent.tokens} tokens were billed, where {self.tokens} (config.tokens) are allowed"
        if self.money is not None and spent.nanodollars > self.money:
            return f"{_amount(spent.nanodollars)} were billed, where {_amount(self.money)} (config.money) are allowed"
        return None

    def time_limit(self, seconds: float) -> str | None:
        """Why a loop that has run for so long may not go on."""
        if self.seconds is None or seconds < self.seconds:
            return None
        return f"the limit of {self.seconds:g} seconds (config.seconds) is reached"


def _amount(amount: int) -> str:
    return f"{dollars_of(amount)} {CURRENCY}"
