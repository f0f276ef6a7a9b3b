"""Runs belong to who has submitted, forked or imported them with a token; an index of each owner finds them."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery import Client, RunNotFound
from acts_celery.broker_config.tokens import Identity
from acts_celery.worker.client.deployments import Overview
from acts_celery.worker.store.keys import owned_runs
from acts_celery.worker.store.run_list import owner_of

from .backend import Backend

ENDED: dict[str, Any] = {"calls": [], "output": "tea"}


def acting(own: Backend, name: str) -> Client:
    """What a server does for somebody who has shown a token."""
    return Client(own.settings.acting_for(name, Identity(name)))


def listed(own: Backend, owner: str) -> list[str]:
    """The runs of an owner, the newest first."""
    return [run.run for run in Overview(own.redis, own.settings.key_prefix, owner=owner).runs()]


def test_a_run_a_fork_and_an_import_belong_to_who_has_shown_a_token(own: Backend) -> None:
    with acting(own, "fay") as fay, acting(own, "gus") as gus:
        run = fay.submit([], ENDED)
        fork = gus.run(run.id).fork(paused=True)
        lines = list(run.export())
        assert listed(own, "fay") == [run.id]
        assert listed(own, "gus") == [fork.id]
        run.delete()
        assert gus.import_run(lines).id == run.id
        assert (listed(own, "fay"), set(listed(own, "gus"))) == ([], {run.id, fork.id})
        gus.run(run.id).delete()
    assert own.client.import_run(lines).id == run.id
    assert own.client.run(run.id).fork(paused=True).id not in listed(own, "gus")
    assert owner_of(own.redis, own.settings.key_prefix, run.id) is None


def test_an_owner_finds_nothing_of_others_whatever_stands_in_the_index(own: Backend) -> None:
    with acting(own, "hal") as hal, acting(own, "ida") as ida:
        his, hers = hal.submit([], ENDED, name="one"), ida.submit([], ENDED, name="one")
    own.redis.zadd(owned_runs(own.settings.key_prefix, "hal"), {hers.id: 2**52, "never-was": 2**52})
    found = Overview(own.redis, own.settings.key_prefix, owner="hal")
    assert [run.run for run in found.runs()] == [his.id]
    assert found.find("one") == found.find("latest") == his.id
    with pytest.raises(RunNotFound):
        found.find(hers.id)


def test_the_index_forgets_runs_that_are_gone_and_keeps_one_that_is_written(own: Backend) -> None:
    index = owned_runs(own.settings.key_prefix, "jon")
    with acting(own, "jon") as jon:
        gone, kept = jon.submit([], ENDED), jon.submit([], ENDED)
        gone.delete()
        own.redis.zadd(index, {"begun": 0})
        own.redis.zadd(f"{own.settings.key_prefix}:runs", {"begun": 0})
        last = jon.submit([], ENDED)
    assert set(own.redis.zrange(index, 0, -1)) == {b"begun", kept.id.encode(), last.id.encode()}
