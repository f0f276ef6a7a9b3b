"""The costs of asking models (SPEC R13.3, R13.12): what a request may take, and what it has taken."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from decimal import ROUND_CEILING, Decimal
from operator import attrgetter
from typing import Any, Final, Self

from .. import limits
from ..limits import MOST

CURRENCY: Final = "USD"
"""Currency of all prices and amounts."""
_NANO: Final = 10**9


def nanodollars(dollars: Decimal | float) -> int:
    """An amount in billionths of a dollar, rounded up."""
    exact = Decimal(str(dollars)) * _NANO
    return min(int(exact.to_integral_value(ROUND_CEILING)), limits.MOST_NANODOLLARS)


def dollars_of(amount: int) -> str:
    """An amount of nanodollars in dollars, as a decimal number."""
    return f"{(Decimal(amount) / _NANO).normalize():f}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """Upper bound for the cost of a request."""

    tokens: int
    nanodollars: int | None = None
    """Price; None where it is not known."""
    output: int = 0
    """Tokens of the answer among them."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The total cost of some requests to models."""

    requests: int = 0
    """Requests that were answered, or lost on the way."""
    tokens: int = 0
    """Tokens that count against `config.tokens`."""
    estimated: int = 0
    """Tokens among them that are estimated: no usage was reported for their requests."""
    input: int = 0
    """Input tokens as providers report them; so are the next two."""
    output: int = 0
    cached: int = 0
    """How many tokens of the input were read from a provider's cache."""
    nanodollars: int = 0
    """Price of the requests whose price is known."""
    unpriced: int = 0
    """Requests without a known price."""
    seconds: float = 0.0
    """Seconds of waiting for answers, one after the other."""

    @classmethod
    def of_request(
        cls, usage: Any, estimate: Estimate, losses: int = 0, seconds: float = 0.0, amount: int | None = None
    ) -> Self:
        """Cost of one request: the reported usage and its price in nanodollars, else the estimate. Attempts that were
        lost before are charged whole. If the reported usage is incomplete, the output counts with its maximum.
        """
        is_whole = is_all(usage)
        counts = reported(usage) if is_whole or estimate.output else None
        whole = losses + (counts is None)
        input_, output, cached = counts or (0, 0, 0)
        estimated = whole * estimate.tokens
        if counts is not None and not is_whole:
            estimated += max(estimate.output - output, 0)
        paid = [estimate.nanodollars] * whole
        paid += [estimate.nanodollars if amount is None else amount] * (counts is not None)
        known = [one for one in paid if one is not None]
        tokens = estimated + input_ + output
        return cls(
            1 + losses, tokens, estimated, input_, output, cached, sum(known), len(paid) - len(known), float(seconds)
        )

    @classmethod
    def read(cls, packed: Mapping[str, Any]) -> Self:
        """Read what `pack` gives; a worker that is not trusted may have written it."""
        input_, output, cached = reported(packed.get("usage")) or (0, 0, 0)
        requests, seconds = _count(packed.get("requests"), 1), packed.get("seconds")
        return cls(
            requests,
            _count(packed.get("tokens")),
            _count(packed.get("estimated")),
            input_,
            output,
            cached,
            _count(packed.get("nanodollars")),
            _count(packed.get("unpriced"), 0 if "nanodollars" in packed else requests),
            seconds if isinstance(seconds, int | float) and seconds > 0 else 0.0,
        )

    def pack(self) -> dict[str, Any]:
        """The cost as it is stored in the log."""
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            **({"estimated": self.estimated} if self.estimated else {}),
            "usage": {"input": self.input, "output": self.output, "cached": self.cached},
            **({"nanodollars": self.nanodollars} if self.unpriced < self.requests else {}),
            **({"unpriced": self.unpriced} if 0 < self.unpriced < self.requests else {}),
            "seconds": round(self.seconds, 3),
        }

    def to_dict(self) -> dict[str, Any]:
        """The cost as JSON. `money` is a decimal number in `currency`, null where no price is known; `unpriced` is
        present if it leaves requests out, `estimated` if tokens are estimated.
        """
        shown = {key: value for key, value in self.pack().items() if key != "nanodollars"}
        return {**shown, "money": self.money, "currency": CURRENCY}

    @property
    def money(self) -> str | None:
        """Amount in dollars as a decimal number; None where no price is known."""
        return dollars_of(self.nanodollars) if self.unpriced < self.requests or not self.requests else None

    def __add__(self, other: Cost) -> Cost:
        return Cost.total((self, other))

    @classmethod
    def total(cls, costs: Iterable[Cost]) -> Cost:
        """Add up costs."""
        parts = [*map(_PARTS, costs)]
        return cls(*map(sum, zip(*parts, strict=True)))


_PARTS: Final = attrgetter(*(part.name for part in fields(Cost)))


def reported(usage: Any) -> tuple[int, int, int] | None:
    """The tokens of the input, of the answer, and those of the input from a cache, as a provider reports them; None
    where it does not, or not with numbers that can be.
    """
    found = [usage.get(key, 0) for key in ("input", "output", "cached")] if isinstance(usage, Mapping) else []
    if not found or "input" not in usage or "output" not in usage:
        return None
    counts = [count for count in found if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST]
    return (counts[0], counts[1], counts[2]) if len(counts) == len(found) else None


def is_all(usage: Any) -> bool:
    """Whether a reported usage covers the whole request."""
    return not (isinstance(usage, Mapping) and usage.get("is_whole") is False)


def _count(value: Any, otherwise: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else otherwise
