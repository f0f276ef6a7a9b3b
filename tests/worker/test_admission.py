"""Who has shown a token begins no more than its limits admit, whoever else submits at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from acts_celery import Client, Result
from acts_celery.broker_config.tokens import Identity, TokenLimits
from acts_celery.worker.errors import OverLimit
from acts_celery.worker.store.keys import Keys, admission

from .backend import Backend

TWO: dict[str, Any] = {"calls": [{"_tool": "echo", "value": 1, "_outputPath": f"†state.{name}"} for name in "ab"]}


def acting(own: Backend, name: str, **limits: Any) -> Client:
    """What a server does for somebody who has shown a token with limits."""
    return Client(own.settings.acting_for(name, Identity(name, TokenLimits(**limits))))


def is_begun(submit: Callable[[], object]) -> bool:
    try:
        submit()
    except OverLimit:
        return False
    return True


def test_runs_under_way_are_counted_by_their_states_and_nothing_leaks(own: Backend) -> None:
    with acting(own, "kim", runs=1) as kim, acting(own, "lea", runs=1) as lea:
        first = kim.submit([], TWO, id="kims")
        assert kim.submit([], TWO, id="kims").id == first.id, "it is the same run"
        with pytest.raises(OverLimit, match=r"kim has 1 runs under way, and its limit is 1 \(runs=1.*cancel one"):
            kim.submit([], TWO)
        with pytest.raises(OverLimit):
            kim.run(first.id).fork()
        assert lea.submit([], TWO).status()["status"] == "running"
        first.cancel()
        second = kim.submit([], TWO)
        own.redis.delete(*Keys(own.settings.key_prefix, second.id).all)  # as where its time is over
        kim.submit([], TWO)
    assert own.redis.exists(admission(own.settings.key_prefix, "kim")) == 0


def test_of_many_that_are_submitted_together_as_many_begin_as_are_admitted(own: Backend) -> None:
    with acting(own, "max", runs=3) as mac, ThreadPoolExecutor(8) as threads:
        begun = list(threads.map(is_begun, [lambda: mac.submit([], TWO)] * 12))
    assert sum(begun) == 3


def test_the_calls_of_a_day_are_those_of_the_runs_that_were_begun_on_it(own: Backend) -> None:
    with acting(own, "ned", calls=5) as ned:
        runs = [ned.submit([], TWO), ned.submit([], TWO)]
        with pytest.raises(OverLimit, match=r"have taken 4 calls, this one has 2 more, and its limit is 5 a day"):
            ned.submit([], TWO)
        with pytest.raises(OverLimit):
            runs[0].fork()
        ned.submit([], {"calls": TWO["calls"][:1]})
        index = f"{own.settings.key_prefix}:owned:ned"
        own.redis.zadd(index, {runs[0].id: 1})  # it was begun long ago
        ned.submit([], TWO)


def test_a_retry_and_calls_that_are_added_are_held_to_the_limits_too(own: Backend) -> None:
    with acting(own, "quin", runs=1, calls=4) as quin:
        ended = quin.submit([], {"calls": [], "output": "tea"})
        failing = quin.submit(
            [], {"calls": [*TWO["calls"], {"_tool": "failUntilMended", "name": "quin", "_outputPath": "†state.c"}]}
        )
        with pytest.raises(OverLimit, match=r"runs=1, behind its token"):
            ended.amend(TWO["calls"], add=True)
        assert ended.status()["status"] == "completed"
        with pytest.raises(OverLimit, match=r"have taken 3 calls, this one has 2 more, and its limit is 4 a day"):
            failing.amend(TWO["calls"], add=True)
        assert failing.status()["status"] == "running"
        failing.amend(TWO["calls"][:1], add=True)
        with own.worker():
            own.wait(failing.id)
        with pytest.raises(OverLimit, match=r"have taken 4 calls, and its limit is 4 a day"):
            failing.retry()
        own.client.run(failing.id).retry()


def test_elements_count_as_they_begin_and_no_more_of_them_begin_than_are_left(own: Backend) -> None:
    each = {"_tool": "echo", "_each": ["value"], "value": "†input.values", "_outputPath": "†state.a"}

    def spread(client: Client, number: int) -> Result:
        return own.wait(client.submit([{"type": "input", "values": list(range(number))}], {"calls": [each]}).id)

    with acting(own, "rex", calls=10) as rex, own.worker():
        many = spread(rex, 5_000)
        assert (many.status, "5000 elements" in (many.reason or "")) == ("failed", True), many.reason
        assert own.redis.hget(Keys(own.settings.key_prefix, many.run).state, "elements") is None
        assert spread(rex, 6).status == "completed"
        with pytest.raises(OverLimit, match=r"have taken 8 calls, this one has 3 more, and its limit is 10 a day"):
            rex.submit([], {"calls": [{**TWO["calls"][0], "_outputPath": f"†state.{name}"} for name in "abc"]})
        assert spread(own.client, 20).status == "completed"


def test_an_import_has_taken_nothing_here(own: Backend) -> None:
    with acting(own, "ora", calls=2) as ora:
        lines = list(own.client.submit([], TWO).export())
        own.redis.flushdb()
        ora.import_run(lines)
        ora.submit([], TWO)


def test_a_client_that_dies_while_it_submits_keeps_others_waiting_for_a_while_only(own: Backend) -> None:
    with acting(own, "pia", runs=1) as pia:
        key = admission(own.settings.key_prefix, "pia")
        own.redis.set(key, "somebody", px=300)
        pia.submit([], TWO)
        assert own.redis.exists(key) == 0
