"""The auditor finds what it is there to find: each test plants one thing in a run that has ended well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from acts_celery.worker.store.keys import Keys

from .auditor import Auditor, most_together, most_within
from .faults import Incident
from .rounds import calm_seconds
from .site import Site
from .workload import Submission, submission

Plant = Callable[[Any, Keys], object]
SUBMISSION = submission(20_261_121, 2_016, size=(2, 2))
LANE = SUBMISSION.instances[0]


def ended_run(site: Site) -> dict[str, Submission]:
    """One run, found to be in order."""
    with site.client() as client:
        run = client.submit_document(SUBMISSION.document)
        run.wait(timeout_seconds=60)
    accepted = {run.id: SUBMISSION}
    assert found(site, accepted, patience_seconds=60) == set()
    return accepted


def found(site: Site, accepted: dict[str, Submission], *, patience_seconds: float = 0) -> set[str]:
    """The kinds of findings."""
    auditor = Auditor(site, {SUBMISSION.number: SUBMISSION}, patience_seconds=patience_seconds)
    return {finding.kind for finding in auditor.audit(accepted).findings}


def test_a_wait_is_counted_without_the_outages_in_it_and_what_two_of_them_share_once() -> None:
    outages = [Incident("", *times) for times in ((0, 12), (20, 30), (22, 25), (28, 35), (90, 99))]
    assert calm_seconds(outages, 10, 50) == 40 - 2 - 15


def test_what_begins_as_a_window_ends_is_not_within_it_and_what_begins_as_another_ends_is_not_beside_it() -> None:
    assert most_within([0.0, 0.2, 1.0, 1.1, 1.19], 1.0) == 4
    assert most_together([(0.0, 1.0), (0.5, 2.0), (1.0, 3.0), (1.5, 1.5)]) == 2


def last_commit(redis: Any, keys: Keys) -> tuple[str, dict[str, bytes]]:
    """The id and the fields of the last entry that a call wrote."""
    id_, fields = next(entry for entry in redis.xrevrange(keys.log) if b"c" in entry[1])
    return id_.decode(), {name.decode(): value for name, value in fields.items()}


PLANTS: dict[str, tuple[Plant, str]] = {
    "a second commit": (lambda r, k: r.xadd(k.log, last_commit(r, k)[1]), "duplicated"),
    "no commit": (lambda r, k: r.xdel(k.log, last_commit(r, k)[0]), "lost"),
    "a value": (lambda r, k: r.hset(k.state, "n:done", 1), "wrong"),
    "a call that was sent": (lambda r, k: r.hincrby(k.state, "sent", 1), "wrong"),
    "a key for ever": (lambda r, k: r.persist(k.log), "orphan"),
    "a lease": (lambda r, k: r.zadd(k.leases, {f"{LANE}\x1f0": 1}), "orphan"),
    "a waiting lane": (lambda r, k: r.zadd(k.parked, {LANE: 1}), "orphan"),
    "a slot": (lambda r, k: r.zadd("acts:{slots}:holders:step", {f"{k.run}\x1f{LANE}\x1f0": 1}), "orphan"),
    "an unfinished run": (lambda r, k: r.hset(k.state, "status", "running"), "stuck"),
    "no run": (lambda r, k: r.unlink(*r.keys(f"*{{{k.run}}}*")), "lost"),
}


@pytest.mark.nightly
@pytest.mark.parametrize(("plant", "kind"), PLANTS.values(), ids=PLANTS.keys())
def test_what_must_not_be_is_found(site: Site, plant: Plant, kind: str) -> None:
    accepted = ended_run(site)
    plant(site.redis, Keys(site.settings.key_prefix, next(iter(accepted))))
    assert kind in found(site, accepted)


def test_a_call_that_was_sent_and_did_nothing_is_found(site: Site) -> None:
    accepted = ended_run(site)
    assert "sent" in SUBMISSION.expected.statuses.values()
    site.turn_over_records()
    assert "lost" in found(site, accepted)
