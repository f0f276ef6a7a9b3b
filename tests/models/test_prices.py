"""What requests cost in money: by a price that was given, else by the list of prices (SPEC R13.3)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery import Cost, Usage
from acts_celery.broker_config import ConfiguredModel, Price
from acts_celery.protocol.engine.costs import Estimate, dollars_of, nanodollars
from acts_celery.worker.agent.prices import estimate_of, price_of

RATE = st.decimals(0, 1_000, places=4)
COUNT = st.integers(0, 10**7)


def model(name: str = "openai:gpt-4o", **parts: Any) -> ConfiguredModel:
    return ConfiguredModel(model=name, **parts)


def test_a_price_that_is_given_counts_what_is_cached_and_written_by_rates_of_their_own() -> None:
    price = Price(input=Decimal(2), output=Decimal(10), cached=Decimal("0.5"), written=Decimal(3))
    usage = Usage(1_000, 100, 400, written=100)
    # 500 * 2 + 400 * 0.5 + 100 * 3 + 100 * 10, for a million
    assert price_of(model(price=price), usage) == 2_500_000
    assert price_of(model(price=Price(input=Decimal(2), output=Decimal(10))), usage) == 3_000_000


@given(st.tuples(RATE, RATE, RATE), st.tuples(COUNT, COUNT, COUNT, COUNT))
def test_a_price_is_never_less_than_it_is_exactly_and_an_estimate_never_less_than_a_price(
    rates: tuple[Decimal, Decimal, Decimal], counts: tuple[int, int, int, int]
) -> None:
    (input_, output, written), (read, answered, cached, made) = rates, counts
    configured = model(price=Price(input=input_, output=output, cached=input_ / 2, written=written))
    price = price_of(configured, Usage(read, answered, min(cached, read), written=min(made, read)))
    assert price is not None
    assert price >= answered * output * 1_000
    estimate = estimate_of([configured], read, answered)
    assert estimate.nanodollars is not None
    assert price <= estimate.nanodollars


def test_the_list_knows_a_model_where_its_provider_is_asked_and_nowhere_else() -> None:
    usage = Usage(1_000_000, 0)
    assert (price_of(model(), usage) or 0) > 0
    assert price_of(model(base_url="http://localhost:11434/v1"), usage) is None
    assert price_of(model("openai:no-such-model"), usage) is None
    assert price_of(model("house:gpt-4o"), usage) is None
    claude = model("anthropic:claude-sonnet-4-5")
    assert (price_of(claude, Usage(1_000, 0, written=1_000)) or 0) > (price_of(claude, Usage(1_000, 0)) or 0) > 0


def test_a_request_that_a_fallback_may_answer_is_estimated_by_the_dearest_and_not_at_all_where_one_is_unknown() -> None:
    cheap, dear = (model(price=Price(input=Decimal(rate), output=Decimal(rate))) for rate in (1, 5))
    assert estimate_of([cheap, dear], 900, 100) == Estimate(1_000, 5_000_000, 100)
    assert estimate_of([cheap, model("house:x")], 900, 100) == Estimate(1_000, None, 100)
    assert estimate_of([], 900, 100) == Estimate(1_000, None, 100)


@given(st.integers(0, 2**53 - 1))
def test_an_amount_is_read_as_it_was_shown(amount: int) -> None:
    assert nanodollars(Decimal(dollars_of(amount))) == amount


@given(st.lists(st.tuples(COUNT, COUNT, st.none() | COUNT, st.floats(0, 1e6)), max_size=5))
def test_costs_are_read_as_they_were_packed_and_add_up(parts: list[tuple[int, int, int | None, float]]) -> None:
    costs = [
        Cost.of_request({"input": read, "output": written} if amount != 7 else None, Estimate(50), 1, seconds, amount)
        for read, written, amount, seconds in parts
    ]
    total = sum(costs, Cost())
    assert total.requests == 2 * len(parts)
    assert total.tokens == total.input + total.output + total.estimated
    again = Cost.read(total.pack())
    assert again == total or abs(again.seconds - total.seconds) < 0.001


@pytest.mark.parametrize(
    "packed",
    [{}, {"tokens": -1, "requests": "x"}, {"nanodollars": float("nan"), "seconds": -3}, {"usage": {"input": []}}],
)
def test_what_a_worker_that_is_not_trusted_says_it_cost_is_read_as_numbers(packed: dict[str, Any]) -> None:
    cost = Cost.read(packed)
    assert (cost.tokens, cost.nanodollars, cost.seconds, cost.input) == (0, 0, 0.0, 0)
