"""What requests cost in money (SPEC R13.3, R13.12): by a model's own price, else by the list that `genai-prices` keeps.

That list comes with the extras of the providers, as it was when the package was made: nothing is fetched. It knows a
model by the address where it is asked, so a server of one's own has no price there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.engine.costs import Estimate, nanodollars

from .request import Usage

_LIST: Final = "genai_prices"
_URLS: Final = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
_MILLION: Final = 1_000_000


def price_of(model: ConfiguredModel, usage: Usage) -> int | None:
    """What a request of that usage costs, in nanodollars, rounded up; None where no price is known."""
    own = model.price
    if own is None:
        return _listed(model, usage)
    cached = min(usage.cached, usage.input)
    written = min(usage.written, usage.input - cached)
    exact = (usage.input - cached - written) * own.input + usage.output * own.output
    exact += cached * (own.input if own.cached is None else own.cached)
    exact += written * (own.input if own.written is None else own.written)
    return nanodollars(exact / _MILLION)


def estimate_of(models: Iterable[ConfiguredModel], input_tokens: int, output_tokens: int) -> Estimate:
    """What a request may cost that any of these models may answer: the dearest of them, with its input cached."""
    usages = [Usage(input_tokens, output_tokens, written=written) for written in (0, input_tokens)]
    prices = [price_of(model, usage) for model in models for usage in usages]
    known = [price for price in prices if price is not None]
    dearest = max(known) if known and len(known) == len(prices) else None
    return Estimate(input_tokens + output_tokens, dearest, output_tokens)


async def load_prices(models: Iterable[ConfiguredModel]) -> None:
    """Load the list where one of these models may need it: that takes a second, in which the loop should turn."""
    if any(model.price is None and model.provider in _URLS for model in models) and find_spec(_LIST) is not None:
        await asyncio.to_thread(import_module, _LIST)


def _listed(model: ConfiguredModel, usage: Usage) -> int | None:
    if model.provider not in _URLS or find_spec(_LIST) is None:
        return None
    prices: Any = import_module(_LIST)
    url = _URLS[model.provider] if model.base_url is None else model.base_url.get_secret_value()
    counts = {"input_tokens": usage.input, "output_tokens": usage.output}
    cache = {"cache_read_tokens": usage.cached, "cache_write_tokens": usage.written}
    try:
        found = prices.calc_price(prices.Usage(**counts, **cache), model.name, provider_api_url=url)
    except (LookupError, ValueError):
        return None
    return nanodollars(found.total_price)
