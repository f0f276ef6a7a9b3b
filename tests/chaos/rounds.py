"""A round: submissions under way, faults that strike meanwhile, and the audit once everything has come to rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Final

from .auditor import Audit, Auditor
from .faults import (
    ClientKilled,
    ConnectionsDropped,
    ConnectionsSwallowed,
    Fault,
    Incident,
    LockKept,
    NetworkCut,
    NetworkSlow,
    ProcessKilled,
    ServerFull,
    ServerKilled,
    ServerSilent,
    WorkerKilled,
    WorkerReplaced,
)
from .limited import LIMITS
from .records import Records
from .site import Site
from .submitter import Submitter
from .workload import Submission, submission

_PATIENCE_SECONDS: Final = 90.0
"""How long a round may take to come to rest once nothing goes wrong any more."""
_WIDTH: Final = 4
_LONGEST_CALM_SECONDS: Final = 4.0
_KILLED_CLIENTS_FROM: Final = 1_000_000
"""Numbers of the submissions whose clients are killed."""

Strikes = Callable[[Submitter], list[Incident]]
Draw = Callable[[Random], Fault]
"""Draws the next fault of a storm."""


@dataclass(frozen=True)
class Round:
    """What happened in a round."""

    incidents: Sequence[Incident]
    audit: Audit
    refusals: int
    recoveries: Sequence[float]
    """For each call that died with a worker: seconds until it was begun again. Outages meanwhile do not count."""
    resumptions: Sequence[float]
    """For each outage: seconds from its end until a call ended. Other outages meanwhile do not count."""


def hold_round(
    site: Site,
    submissions: Iterator[Submission],
    strikes: Strikes,
    *,
    width: int = _WIDTH,
    also: Sequence[Submission] = (),
) -> Round:
    """Submit, let it strike, come to rest, audit. `also` are submissions that faults bring along, by the end."""
    drawn: dict[int, Submission] = {}

    def noted() -> Iterator[Submission]:
        for one in submissions:
            drawn[one.number] = one
            yield one

    submitter = Submitter(site, noted(), width=width)
    try:
        incidents = strikes(submitter)
    finally:
        submitter.finish(_PATIENCE_SECONDS)
    drawn |= {one.number: one for one in also}
    audit = Auditor(site, drawn, patience_seconds=_PATIENCE_SECONDS).audit(submitter.accepted)
    return Round(
        incidents,
        audit,
        submitter.refusals,
        list(_recoveries(incidents, site.records)),
        list(_resumptions(incidents, audit.commits)),
    )


def at_progress(site: Site, random: Random, *faults: tuple[int, Fault]) -> Strikes:
    """Each fault strikes when so many calls have ended."""

    def strikes(submitter: Submitter) -> list[Incident]:
        incidents = []
        for calls, fault in faults:
            submitter.wait_for_calls(calls, _PATIENCE_SECONDS)
            incidents.append(fault.strike(site, random))
        return incidents

    return strikes


def random_round(site: Site, seed: int, number: int, *, seconds: float, at_broker: Sequence[Fault] = ()) -> Round:
    """So many seconds in which storms rage beside each other: one at the processes, one at what is around them, and
    one of the faults of a broker that is not the log.
    """
    ends_at = time.monotonic() + seconds
    halved: list[Submission] = []

    def at_processes(random: Random) -> Fault:
        halved.append(submission(seed, _KILLED_CLIENTS_FROM + number * 1_000 + len(halved)))
        return random.choice(
            (
                WorkerKilled(("near",)),
                WorkerKilled(("far",)),
                WorkerKilled(("hands",)),
                WorkerReplaced(),
                LockKept(("near", "far", "hands")),
                ClientKilled(halved[-1], random.randrange(200, 40_000)),
            )
        )

    def around_them(random: Random) -> Fault:
        return random.choice(
            (
                ServerKilled(random.choice((0.0, 2.0, 5.0))),
                ServerSilent(random.choice((1.0, 5.0))),
                ServerFull(random.choice((1.0, 3.0))),
                ConnectionsDropped(),
                ConnectionsSwallowed(),
                NetworkCut(),
                NetworkSlow(),
            )
        )

    drawn: dict[str, Draw] = {"processes": at_processes, "around": around_them}
    if at_broker:
        drawn["broker"] = lambda random: random.choice(at_broker)
    strikes = _storms(site, f"{seed} {number}", drawn, ends_at)
    numbered = (submission(seed, number * 1_000 + index) for index in count())
    return hold_round(site, _while_there_is_time(numbered, ends_at), strikes, also=halved)


def limited_round(site: Site, seed: int, number: int, *, seconds: float) -> Round:
    """So many seconds in which processes, workers and the server are killed while calls wait for rates and slots."""
    ends_at = time.monotonic() + seconds
    names = tuple(member.name for member in site.crew)

    def at_processes(random: Random) -> Fault:
        return random.choice((ProcessKilled(), ProcessKilled(), WorkerKilled(names), WorkerReplaced()))

    def at_the_server(random: Random) -> Fault:
        return ServerKilled(random.choice((0.0, 2.0)))

    strikes = _storms(site, f"{seed} {number}", {"processes": at_processes, "server": at_the_server}, ends_at)
    numbered = (submission(seed, number * 1_000 + index, steps=tuple(LIMITS)) for index in count())
    return hold_round(site, _while_there_is_time(numbered, ends_at), strikes, width=2 * _WIDTH)


def _storms(site: Site, seed: str, drawn: Mapping[str, Draw], ends_at: float) -> Strikes:
    """Storms beside each other until a moment, each of the faults that it draws."""

    def storm(name: str, draw: Draw) -> list[Incident]:
        random, incidents = Random(f"{seed} {name}"), []
        while (rest := ends_at - time.monotonic()) > 0:
            threading.Event().wait(min(rest, random.uniform(0, _LONGEST_CALM_SECONDS)))
            incidents.append(draw(random).strike(site, random))
        return incidents

    def strikes(_: Submitter) -> list[Incident]:
        with ThreadPoolExecutor(len(drawn), thread_name_prefix="chaos-storm") as threads:
            storms = [threads.submit(storm, name, draw) for name, draw in drawn.items()]
            return [incident for one in storms for incident in one.result()]

    return strikes


def _while_there_is_time(submissions: Iterator[Submission], ends_at: float) -> Iterator[Submission]:
    for one in submissions:
        if time.monotonic() >= ends_at:
            return
        yield one


def _recoveries(incidents: Sequence[Incident], records: Records) -> Iterator[float]:
    outages = [incident for incident in incidents if incident.is_outage]
    for kill in incidents:
        for seconds in records.recoveries(kill.began, kill.killed):
            yield calm_seconds(outages, kill.began, kill.began + seconds)


def _resumptions(incidents: Sequence[Incident], commits: Sequence[float]) -> Iterator[float]:
    outages = [incident for incident in incidents if incident.is_outage]
    for outage in outages:
        if after := [at for at in commits if at > outage.ended]:
            yield calm_seconds(outages, outage.ended, min(after))


def calm_seconds(outages: Sequence[Incident], since: float, until: float) -> float:
    """For how many seconds between two moments there was no outage; storms rage beside each other."""
    seconds = until - since
    for outage in sorted(outages, key=lambda one: one.began):
        began, ended = max(outage.began, since), min(outage.ended, until)
        if ended > began:
            seconds -= ended - began
            since = ended
    return seconds
