"""A token of the pages with the right `own` reads, follows and steers the runs of its name, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from acts_celery import Client
from acts_celery.broker_config.tokens import Identity
from tests.worker.backend import Backend

from .sites import Site, error_of, served
from .test_access import BODIES, READ, RIGHTS
from .test_deeds import HELD, waits

FAY, GUS = "fay-0123456789abc", "gus-0123456789abc"
TOKENS = f"fay:submit+decide+control+own:{FAY}:runs=1,gus:submit+decide+control+own:{GUS}"


@pytest.fixture(scope="module")
def pages(backend: Backend) -> Iterator[Site]:
    with served(backend, ACTS_UI_TOKENS=TOKENS) as running:
        yield running


@pytest.fixture(scope="module")
def hers(backend: Backend) -> str:
    """A run of Fay's, with a call that is held."""
    with Client(backend.settings.acting_for("fay", Identity("fay"))) as fay:
        run = fay.submit((), {"calls": [HELD]}, config={"approve": ["*"]}, name="hers").id
    waits(backend, run)
    return run


@pytest.mark.parametrize("path", [path for path in READ if "r" in path.split("/")[1:2] or "run=r" in path])
def test_another_reads_nothing_of_a_run(pages: Site, hers: str, path: str) -> None:
    address = path.replace("run=r", f"run={hers}").replace("runs/r", f"runs/{hers}")
    assert error_of(pages.get(f"/api/{address}", GUS)) == (404, "RunNotFound")
    if not path.endswith(("changes", "events")):
        assert "RunNotFound" not in pages.get(f"/api/{address}", FAY).text


@pytest.mark.parametrize("deed", RIGHTS)
def test_another_does_nothing_to_a_run(backend: Backend, pages: Site, hers: str, deed: str) -> None:
    log = list(backend.client.run(hers).log(audit=True))
    for name in (hers, "hers", hers[:8]):
        assert error_of(pages.post(f"/api/runs/{name}/{deed}", BODIES.get(deed), GUS)) == (404, "RunNotFound")
    assert list(backend.client.run(hers).log(audit=True)) == log


def test_the_list_of_runs_is_ones_own_and_a_fork_belongs_to_who_forks(
    backend: Backend, pages: Site, hers: str, name: str
) -> None:
    def listed(token: str) -> list[Any]:
        return [run["run"] for run in pages.get("/api/runs", token).json()["runs"] if run["run"] not in others]

    others: set[str] = set()
    others |= set(listed(FAY)) - {hers}  # of other modules
    assert (listed(FAY), listed(GUS)) == ([hers], [])
    refused = pages.post(f"/api/runs/{hers}/fork", {"paused": True}, FAY)
    assert error_of(refused) == (429, "OverLimit")
    assert "fay has 1 runs under way, and its limit is 1" in refused.json()["error"]["message"]
    call = pages.get(f"/api/runs/{hers}/held", FAY).json()[0]
    body = {"call": call["call"], "shown": call["shown"]}
    assert pages.post(f"/api/runs/{hers}/approve", body, FAY).status_code == 200
    approved = pages.get(f"/api/runs/{hers}/audit", FAY).json()["orders"][0]
    assert (approved["did"], approved["by"], approved["authenticated"]) == ("approved", "fay", True)
    assert pages.get(f"/api/runs/{hers}/audit", GUS).status_code == 404
    backend.wait(hers)
    fork = pages.post(f"/api/runs/{hers}/fork", {"paused": True}, FAY).json()["run"]
    assert (listed(FAY), listed(GUS)) == ([fork, hers], [])
    orders = pages.get(f"/api/runs/{fork}", FAY).json()["orders"]
    assert (orders[-1]["did"], orders[-1]["by"], orders[-1]["authenticated"]) == ("forked", "fay", True)
    records = [entry.audit for entry in backend.client.run(fork).log(audit=True) if entry.audit]
    assert {(one.did, one.actor.name, one.actor.is_authenticated) for one in records[1:]} == {
        ("approved", "fay", True),
        ("forked", "fay", True),
    }
