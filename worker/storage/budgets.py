"""Budgets: what the child runs of a loop, and its calls that ask a model, may take together (SPEC R13.3).

A loop and all that stands below it draw on one budget, that of the outermost run. What a request may cost is reserved
there before it begins, and what it has cost is put in its place (lua/budget.lua). A child has limits of its own
besides, since its `config` may tighten: so a reservation counts in the sums of every loop above it, in the same hash
and step. What a loop's own requests have cost is in its log; while its calls run it grows by no more than what the one
may take whose answer is being written (SPEC R13.8), so both are taken off once: when a child begins. Its own calls a
loop reserves, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from acts_celery.protocol.engine.costs import CURRENCY, dollars_of
from acts_celery.protocol.engine.loop_limits import LoopLimits

SPENT: Final = ("loop:tokens", "loop:money")
"""The fields of a run's state that say what the requests of its loop have cost: tokens and nanodollars."""
_SUMS: Final = ("=tokens", "=open", "=calls", "=money", "=open_money")


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be taken below one loop; None is no limit."""

    run: str
    tokens: int | None
    calls: int | None
    money: int | None = None
    """In nanodollars."""

    @classmethod
    def of(cls, run: str, limits: LoopLimits, tokens: int, money: int) -> Self:
        """The budget of a loop of those limits, whose own requests have taken so many tokens, and nanodollars."""
        return cls(run, _left(limits.tokens, tokens), limits.calls, _left(limits.money, money))


Budgets = Sequence[Budget]
"""Those that a run draws on, the nearest first: the last is that of the outermost run."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why nothing was reserved."""

    text: str
    may_pass: bool
    """Whether others have reserved what they may not need."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """How much a member has taken in all: a run, or a call that asks a model."""

    member: str
    tokens: int | None = None
    """None leaves them as they are, as for `calls`."""
    open: int = 0
    """Those of the tokens that are only reserved."""
    calls: int | None = None
    tick: int = 0
    """Of the member's loop: only a later one lowers its calls."""
    money: int = 0
    """In nanodollars; it counts where `tokens` are given, too."""
    open_money: int = 0

    def to_request(self, budgets: Budgets) -> dict[str, Any]:
        """As the script takes it. What was billed is recorded, also beyond what is left."""
        return {
            "member": self.member,
            "tokens": self.tokens,
            "open": self.open,
            "money": None if self.tokens is None else self.money,
            "open_money": self.open_money,
            "calls": self.calls,
            "tick": self.tick,
            "limits": [
                {
                    "sums": sums,
                    "is_own": budget.run == self.member,
                    "tokens": budget.tokens if self.open else None,
                    "calls": budget.calls,
                    "money": budget.money if self.open_money else None,
                }
                for budget, sums in zip(budgets, _sums(budgets), strict=True)
            ],
        }

    def shortfall(self, budgets: Budgets, answer: Mapping[str, Any]) -> Shortfall | None:
        """What the script's answer says against it."""
        if answer["is_drawn"]:
            return None
        if answer["is_over"]:
            return Shortfall(f"run {budgets[-1].run}, which it is to answer, is over", may_pass=False)
        left, run = answer["left"], budgets[answer["limit"]].run
        if answer["what"] == "calls":
            text = f"{left} calls are left of those that run {run} and its child runs may start together (config.calls)"
            return Shortfall(text, may_pass=False)
        if answer["what"] == "money":
            next_ = f"the next request may cost {dollars_of(self.open_money)} {CURRENCY}"
            text = f"{next_}, and {dollars_of(left)} are left of what run {run}"
        else:
            text = f"the next request may take {self.open} tokens, and {left} are left of those that run {run}"
        return Shortfall(f"{text} and its child runs may take together (config.{answer['what']})", answer["open"] > 0)


def sum_fields(budgets: Budgets) -> list[str]:
    """The fields of the outermost run's hash that say what was taken."""
    return [field for sums in _sums(budgets) for field in sums]


def left_of(budgets: Budgets, found: Iterable[Any]) -> dict[str, int]:
    """What is left for a child that begins now, by the keys of `config`, money in nanodollars; `found` are the values
    of `sum_fields`.

    What others have only reserved may be given back: the child waits for it, as any request does.
    """
    numbers = [int(number or 0) for number in found]
    left: dict[str, int] = {}
    for at, budget in enumerate(budgets):
        tokens, reserved, calls, money, reserved_money = numbers[len(_SUMS) * at : len(_SUMS) * (at + 1)]
        for key, most, taken in (
            ("tokens", budget.tokens, tokens - reserved),
            ("calls", budget.calls, calls),
            ("money", budget.money, money - reserved_money),
        ):
            if most is not None:
                left[key] = min(max(most - taken, 0), left.get(key, most))
    return left


def _left(most: int | None, spent: int) -> int | None:
    return None if most is None else max(most - spent, 0)


def _sums(budgets: Budgets) -> list[list[str]]:
    """The fields with the sums of each: the outermost one's are plain, the others' have the run's name."""
    outer = budgets[-1].run
    return [[name if budget.run == outer else f"{name}:{budget.run}" for name in _SUMS] for budget in budgets]
