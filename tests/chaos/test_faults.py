"""Each fault alone, in the midst of several runs: all of them end with the right values, each call committed once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.few import few

from .faults import (
    ClientKilled,
    ConnectionsDropped,
    ConnectionsSwallowed,
    Fault,
    LockKept,
    NetworkCut,
    NetworkSlow,
    PoolProcessKilled,
    ServerFull,
    ServerKilled,
    ServerSilent,
    WorkerKilled,
    WorkerReplaced,
)
from .previous import NoPrevious, unpack_previous
from .rounds import Round, at_progress, hold_round, limited_round
from .site import FOUR, Post, Site
from .workload import Submission, submission

SEED = 20_261_121
SIZE = (10, 2)
SOON = 20
"""Calls that have ended when a fault strikes; there are some 250."""
RECOVERED_SECONDS = 10.0
START_SECONDS = 5.0
"""What it takes for a successor to start, where nobody else is left to find what was lost."""


def submissions(count: int = 3) -> Iterator[Submission]:
    return (submission(SEED, number, size=SIZE) for number in range(count))


def struck(site: Site, *faults: Fault) -> Round:
    """A round in which these strike one after the other."""
    strikes = at_progress(site, Random(SEED), *((SOON * n, fault) for n, fault in enumerate(faults, 1)))
    return hold_round(site, submissions(), strikes)


def assert_unharmed(one: Round) -> None:
    assert one.audit.findings == []
    assert one.audit.calls > 100


def test_a_killed_worker(site: Site) -> None:
    one = struck(site, WorkerKilled(("near",)))
    assert_unharmed(one)
    assert 0 < max(one.recoveries) < RECOVERED_SECONDS


@pytest.mark.nightly
def test_all_instance_workers_killed_one_after_the_other(site: Site) -> None:
    one = struck(site, WorkerKilled(("near",)), WorkerKilled(("far",)))
    assert_unharmed(one)
    assert 0 < max(one.recoveries) < RECOVERED_SECONDS + START_SECONDS


@pytest.mark.nightly
def test_a_killed_worker_of_delegates_and_of_other_queues(site: Site) -> None:
    one = struck(site, WorkerKilled(("hands",)))
    assert_unharmed(one)
    assert 0 < max(one.recoveries) < RECOVERED_SECONDS


def test_a_worker_replaced_as_in_a_deployment(site: Site) -> None:
    one = struck(site, WorkerReplaced())
    assert_unharmed(one)
    assert set(one.audit.executions) == {1}


@pytest.mark.nightly
def test_limits_hold_while_processes_of_four_workers_of_two_and_the_server_are_killed(tmp_path: Path) -> None:
    with Site(tmp_path, FOUR, is_limited=True) as site:
        one = limited_round(site, SEED, 0, seconds=60)
    assert one.audit.findings == []
    assert len(one.audit.most) == 7


@pytest.mark.nightly
def test_a_killed_process_of_a_prefork_pool(tmp_path: Path) -> None:
    with Site(tmp_path, (Post("pool", ("-P", "prefork", "-c", "2")),)) as site:
        few = iter([submission(SEED, 0, size=(2, 4))])
        one = hold_round(site, few, at_progress(site, Random(SEED), (1, PoolProcessKilled())))
    assert one.audit.findings == []
    assert 0 < max(one.recoveries) < RECOVERED_SECONDS


@pytest.mark.parametrize(
    ("after_bytes", "left_behind"),
    [
        pytest.param(10_000, {}, id="while it wrote the first part, so nothing is there"),
        pytest.param(38_000, {"in_doubt": 1}, id="while it published", marks=pytest.mark.nightly),
    ],
)
def test_a_client_killed_while_it_submits(site: Site, after_bytes: int, left_behind: dict[str, int]) -> None:
    halved = submission(SEED, 1_000, size=(12, 2))
    strikes = at_progress(site, Random(SEED), (SOON, ClientKilled(halved, after_bytes)))
    one = hold_round(site, submissions(1), strikes, also=[halved])
    assert [incident.fault for incident in one.incidents] == ["client killed"]
    assert one.audit.findings == []
    assert {"removed": one.audit.removed, "in_doubt": one.audit.in_doubt} == {"removed": 0, "in_doubt": 0} | left_behind


@pytest.mark.parametrize("away_seconds", few([0.0, 5.0], 1))
def test_a_killed_server_that_comes_back(site: Site, away_seconds: float) -> None:
    one = struck(site, ServerKilled(away_seconds))
    assert_unharmed(one)
    assert max(one.resumptions) < RECOVERED_SECONDS


@pytest.mark.nightly
def test_a_server_that_says_nothing_for_five_seconds(site: Site) -> None:
    one = struck(site, ServerSilent(5.0))
    assert_unharmed(one)
    assert max(one.resumptions) < RECOVERED_SECONDS


@pytest.mark.nightly
def test_a_full_server(site: Site) -> None:
    one = struck(site, ServerFull(3.0))
    assert_unharmed(one)
    assert max(one.resumptions) < RECOVERED_SECONDS


def test_dropped_connections(site: Site) -> None:
    assert_unharmed(struck(site, ConnectionsDropped(), NetworkCut()))


@pytest.mark.nightly
def test_swallowed_connections(site: Site) -> None:
    assert_unharmed(struck(site, ConnectionsSwallowed(), ConnectionsSwallowed()))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["near", "hands"])
def test_a_worker_whose_interpreters_lock_is_kept_longer_than_a_lease(site: Site, name: str) -> None:
    one = struck(site, LockKept((name,)))
    assert_unharmed(one)
    assert set(one.audit.executions) == {1}


@pytest.mark.nightly
def test_a_slow_network(site: Site) -> None:
    one = struck(site, NetworkSlow())
    assert_unharmed(one)
    assert set(one.audit.executions) == {1}


def test_workers_of_the_previous_version_beside_those_of_this_one(tmp_path: Path) -> None:
    source = tmp_path / "previous"
    try:
        unpack_previous(source)
    except NoPrevious as reason:
        pytest.skip(str(reason))
    with Site(tmp_path, (Post("new"), Post("old", source=source))) as site:
        one = hold_round(site, submissions(), at_progress(site, Random(SEED), (SOON, WorkerKilled(("new", "old")))))
    assert_unharmed(one)
