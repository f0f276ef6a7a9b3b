"""The audit: what a chaos has left behind, held against what must be there.

Every run has ended, every value and status is the evaluator's, every call was committed once, what was sent and
forgotten has had its effect, no limit was exceeded, and no key, lease or task is left over. A client that was killed or
told of a failure leaves a run that ends like any other, or nothing.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, Literal

import kombu.pools
from celery import Celery
from redis.exceptions import ResponseError

from acts_celery import Client, Run
from acts_celery.broker_config import queue_names
from acts_celery.broker_config.addresses import scheme_of
from acts_celery.protocol.engine.events import CallEnded
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.registry.activities import registry
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.entries import moment_ms
from acts_celery.worker.store.keys import ENDED_STATUSES, Keys, active_runs
from acts_celery.worker.store.run_store import Background, RunStore

from .limited import ASKED, LIMITS, REQUESTS_A_MINUTE, TOKENS_A_MINUTE
from .site import Site
from .workload import CallKey, Submission, without_errors

Wrong = Literal["lost", "duplicated", "wrong", "stuck", "orphan", "exceeded"]

_INTERVAL_SECONDS: Final = 0.1
_EXPIRE: Final = ("begun", "spent")
_MOST_TOLD: Final = 300


@dataclass(frozen=True)
class Finding:
    """Something that must not be."""

    kind: Wrong
    text: str


@dataclass
class Audit:
    """What was looked at, and what was found."""

    findings: list[Finding] = field(default_factory=list)
    runs: int = 0
    calls: int = 0
    executions: list[int] = field(default_factory=list)
    """For each call that is not itself tried again by its policy: how often it was executed."""
    commits: list[float] = field(default_factory=list)
    """When calls ended, in order, in seconds since the epoch."""
    limited: Counter[str] = field(default_factory=Counter)
    """How often activities with limits have begun."""
    most: dict[str, int] = field(default_factory=dict)
    """The most that were seen of each limit: that have begun within a window, or that were at work together."""
    in_doubt: int = 0
    """Runs that no client was told of, and that ended like the others."""
    removed: int = 0
    """Runs that were being written when their client died, and are gone."""

    def add(self, kind: Wrong, text: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(kind, text))


class Auditor:
    """Waits until a site has come to rest, and looks at everything."""

    def __init__(self, site: Site, submissions: Mapping[int, Submission], *, patience_seconds: float) -> None:
        self._site = site
        self._redis: Any = site.redis
        self._submissions = submissions
        self._deadline = time.monotonic() + patience_seconds
        self._prefix = site.settings.key_prefix
        self._audit = Audit()
        self._stuck: set[str] = set()

    def audit(self, accepted: Mapping[str, Submission]) -> Audit:
        """Look at the accepted runs, and at whatever else there is."""
        with self._site.client() as client:
            self._come_to_rest(client)
            found = {run: client.run_of(run) for run in sorted(self._runs())}
            for missing in accepted.keys() - found.keys():
                self._audit.add("lost", f"run {missing} was accepted and is not there")
            copies: Counter[int] = Counter()
            for run in found.values():
                if run.id in self._stuck:
                    continue
                if (submission := accepted.get(run.id) or self._submission_of(run)) is None:
                    continue
                copies[submission.number] += 1
                self._audit.in_doubt += run.id not in accepted
                self._look_at_run(run, submission)
        self._look_at_executions(copies)
        self._look_at_limits(copies)
        self._look_at_the_rest()
        self._audit.commits.sort()
        return self._audit

    def _come_to_rest(self, client: Client) -> None:
        """Wait until all runs have ended and are no longer looked after, and all queues are empty."""
        for run in self._runs():
            if not self._has_state(run):
                self._let_age(run)
        self._until(lambda: not self._under_way(client))
        self._stuck = set(self._under_way(client))
        for run in self._stuck:
            self._audit.add("stuck", f"run {run} has not ended: {self._situation(client, run)}")
        self._until(lambda: not self._redis.zcard(active_runs(self._prefix)))
        self._until(lambda: not self._waiting_tasks())
        self._until(lambda: not self._unsettled())
        if not self._until(lambda: self._listeners() == self._site.processes):
            told = f"{self._listeners()} of {self._site.processes} processes listen to their queues"
            self._audit.add("stuck", told)

    def _let_age(self, run: str) -> None:
        """Let a run that is being written by nobody any more look as if it were ten minutes older."""
        self._redis.zincrby(active_runs(self._prefix), -600_000, run)
        if not self._until(lambda: run not in self._runs()):
            self._audit.add("orphan", f"run {run}: its client died while it wrote, and it is not removed")
        self._audit.removed += 1

    def _under_way(self, client: Client) -> list[str]:
        """Runs that have been started and have not ended."""
        return [
            run
            for run in self._runs()
            if self._has_state(run) and client.run_of(run).status()["status"] not in ENDED_STATUSES
        ]

    def _has_state(self, run: str) -> bool:
        return bool(self._redis.exists(Keys(self._prefix, run).state))

    def _situation(self, client: Client, run: str) -> str:
        """What there is to know about a run that does not end."""
        keys = Keys(self._prefix, run)
        leases = self._redis.zrange(keys.leases, 0, 9, withscores=True)
        calls = {member: self._redis.hget(keys.calls, member) for member, _ in leases}
        now = time.time()
        due = {member: f"{score / 1000 - now:+.1f} s" for member, score in leases}
        parked = self._redis.zrange(keys.parked, 0, 9)
        text = f"{client.run_of(run).status()}; leases {due}; parked {parked}; {calls}"
        return f"{text}; tasks {self._waiting_tasks()}; slots {self._held_slots()}"

    def _waiting_tasks(self) -> dict[str, int]:
        """Tasks in the queues, by queue."""
        names = dict.fromkeys((*queue_names(self._site.settings), *registry.queues()))
        if self._is_over_rabbitmq:
            publisher = Publisher(self._app)
            lengths = {name: publisher.waiting(name) for name in names}
        else:
            lengths = {name: self._redis.llen(name) for name in names}
        return {name: length for name, length in lengths.items() if length}

    def _unsettled(self) -> list[str]:
        """Calls sent and forgotten that nobody has told the end of, and slots that somebody holds."""
        return [key for key in self._keys() if key.endswith(":outbox")] + self._held_slots()

    def _held_slots(self) -> list[str]:
        """Names of which somebody holds a slot, or waits for one; what has begun expires by itself."""
        names = (key.decode() for key in self._redis.scan_iter(f"{self._prefix}:{{slots}}:*", count=1_000))
        return [name for name in names if name.split(":")[2] not in _EXPIRE]

    def _listeners(self) -> int:
        """Workers that wait for a task this moment; over a RabbitMQ those that answer."""
        if self._is_over_rabbitmq:
            return len(self._app.control.ping(timeout=2))
        return sum(client["cmd"] == "brpop" for client in self._redis.client_list())

    @cached_property
    def _app(self) -> Celery:
        kombu.pools.connections.clear()  # faults have cut those that are kept
        return make_client_application(self._site.settings)

    @property
    def _is_over_rabbitmq(self) -> bool:
        return scheme_of(self._site.settings.require_broker()).startswith("amqp")

    def _runs(self) -> set[str]:
        """Every run of which there is any key, or that is listed."""
        listed: list[bytes] = self._redis.zrange(active_runs(self._prefix), 0, -1)
        return {run for run in map(self._run_of, self._keys()) if run is not None} | {run.decode() for run in listed}

    def _keys(self) -> Iterator[str]:
        for key in self._redis.scan_iter(f"{self._prefix}:*", count=1_000):
            yield key.decode()

    def _run_of(self, key: str) -> str | None:
        match = re.match(rf"{re.escape(self._prefix)}:\{{([0-9a-f]+-[0-9a-f]+)\}}:", key)
        return match[1] if match else None

    def _submission_of(self, run: Run) -> Submission | None:
        """Which submission a run is from that no client was told of."""
        if not self._has_state(run.id):
            self._audit.add("orphan", f"run {run.id} has keys and no state")
            return None
        return self._submissions[run.result().data()["input"]["number"]]

    def _look_at_run(self, run: Run, submission: Submission) -> None:
        audit, expected, result = self._audit, submission.expected, run.result()
        told = f"run {run.id} (submission {submission.number})"
        audit.runs += 1
        audit.calls += len(expected.statuses)
        for call in result.calls:
            wanted = expected.statuses[call.instance, call.index]
            if call.status != wanted:
                kind: Wrong = "lost" if (call.error or {}).get("type") == "WorkerLost" else "wrong"
                audit.add(kind, f"{told}: call {call.id} is {call.status}, not {wanted}: {call.error or call.reason}")
        for reader, values in expected.values.items():
            found = without_errors(result.data(reader))
            if found != values:
                audit.add("wrong", f"{told}: {reader} sees {found!s:.{_MOST_TOLD}}, not {values!s:.{_MOST_TOLD}}")
        wanted_status = "failed" if "failed" in expected.statuses.values() else "completed"
        if result.status != wanted_status:
            audit.add("wrong", f"{told} is {result.status}, not {wanted_status}")
        self._look_at_commits(run.id, submission, told)
        self._look_at_leftovers(run.id, told)

    def _look_at_commits(self, run: str, submission: Submission, told: str) -> None:
        """One entry that ends it in the log, one in the chain of its lane, and one count for each call."""
        keys, redis = Keys(self._prefix, run), self._redis
        committed: Counter[CallKey] = Counter()
        for entry in RunStore(redis, keys).entries():
            if isinstance(entry.event, CallEnded):
                committed[entry.instance, entry.event.call] += 1
                self._audit.commits.append(moment_ms(entry.id) / 1000)
        chained: Counter[CallKey] = Counter()
        for instance in (None, *submission.instances):
            try:
                lane = RunStore(redis, keys).lane(instance)
            except ResponseError as error:
                self._audit.add("lost", f"{told}: {error}")
            else:
                events = (entry.event for entry in lane)
                chained.update((instance, event.call) for event in events if isinstance(event, CallEnded))
        for what, counted in (("committed", committed), ("chained", chained)):
            for call in submission.expected.statuses.keys() | counted.keys():
                if counted[call] != 1:
                    kind: Wrong = "duplicated" if counted[call] else "lost"
                    self._audit.add(kind, f"{told}: call {call} was {what} {counted[call]} times")
        state = {name.decode(): value.decode() for name, value in redis.hgetall(keys.state).items()}
        counts = {name[2:]: int(value) for name, value in state.items() if name.startswith("n:")}
        left = {name: int(state.get(name, 0)) for name in ("remaining", "running")}
        if counts != Counter(submission.expected.statuses.values()) or any(left.values()):
            self._audit.add("wrong", f"{told}: its counters say {counts}, {left}")
        sent = list(submission.expected.statuses.values()).count("sent")
        background = RunStore(redis, keys).background()
        if (background or Background(0, 0, 0)) != Background(outstanding=0, done=sent, dead=0):
            self._audit.add("wrong", f"{told}: {background}, where {sent} were sent and are done")

    def _look_at_leftovers(self, run: str, told: str) -> None:
        keys, redis = Keys(self._prefix, run), self._redis
        leased = [member for member in redis.zrange(keys.leases, 0, -1) if member.split(b"\x1f")[1].isdigit()]
        if leased:
            self._audit.add("orphan", f"{told}: calls have ended and hold leases: {leased}")
        if waiting := [name for name in (keys.parked, keys.backlog, keys.outbox) if redis.exists(name)]:
            self._audit.add("orphan", f"{told}: something still waits in {waiting}")

    def _look_at_executions(self, copies: Mapping[int, int]) -> None:
        """Whatever ended was executed; what was sent and forgotten has come to its end, which may take a while."""
        wanted = {
            mark: (number, call) for number in copies for mark, call in self._submissions[number].expected.marks.items()
        }
        statuses = {number: self._submissions[number].expected.statuses for number in copies}
        sent = {mark for mark, (number, call) in wanted.items() if statuses[number][call] == "sent"}
        self._until(lambda: sent <= self._site.records.done.keys())
        records = self._site.records
        for mark in sorted(sent - records.done.keys()):
            self._audit.add("lost", f"call {mark} was sent and has had no effect")
        for mark in sorted(wanted.keys() - sent - records.begun.keys()):
            self._audit.add("wrong", f"call {mark} has ended and was never executed")
        for mark, (number, call) in wanted.items():
            if self._submissions[number].tool(call) not in ("flaky", "failing"):
                self._audit.executions.append(max(1, records.begun[mark] - copies[number] + 1))

    def _look_at_limits(self, numbers: Collection[int]) -> None:
        """Of no activity have more begun in a window, or been at work together, than one value of its key allows."""
        limited = {
            mark: self._submissions[number].limited_by(call)
            for number in numbers
            for mark, call in self._submissions[number].expected.marks.items()
        }
        times: dict[tuple[str, str], list[tuple[float, float]]] = {}
        asked = list[tuple[float, int]]()
        for mark, began, ended in self._site.records.executions:
            if mark.startswith(ASKED):
                asked.append((began, int(mark.split("/")[1])))
            if mark in limited and limited[mark][0] in LIMITS:
                times.setdefault(limited[mark], []).append((began, ended))
        for (tool, lane), executions in times.items():
            limit, own = LIMITS[tool], sorted(executions)
            self._audit.limited[tool] += len(own)
            if limit.begin is not None:
                begun = [began for began, _ in own]
                self._note_most(f"{tool} begun", lane, most_within(begun, limit.window_seconds), limit.begin)
            if limit.at_work is not None:
                self._note_most(f"{tool} at work", lane, most_together(own), limit.at_work)
        if asked:
            self._audit.limited["model"] += len(asked)
            requests, tokens = (most_in_a_minute(sorted(asked), weighs) for weighs in (False, True))
            self._note_most("model requests", "all", requests, REQUESTS_A_MINUTE)
            self._note_most("model tokens", "all", tokens, TOKENS_A_MINUTE)

    def _note_most(self, what: str, lane: str, most: int, allowed: int) -> None:
        self._audit.most[what] = max(most, self._audit.most.get(what, 0))
        if most > allowed:
            self._audit.add("exceeded", f"{what}, for {lane}: {most}, and {allowed} are allowed")

    def _look_at_the_rest(self) -> None:
        """Keys that never expire, tasks that nobody takes, slots that nobody gives back, dead letters and workers."""
        for key in self._keys():
            if self._run_of(key) not in {None, *self._stuck} and self._redis.ttl(key) == -1:
                self._audit.add("orphan", f"key {key} never expires")
        if tasks := self._waiting_tasks():
            self._audit.add("orphan", f"tasks that nobody takes: {tasks}")
        if slots := self._held_slots():
            self._audit.add("orphan", f"slots that nobody gives back: {slots}")
        with self._site.client() as client:
            for letter in client.dead_letters().list():
                self._audit.add("lost", f"a dead letter: {letter}")
        for death in self._site.take_deaths():
            self._audit.add("wrong", f"worker {death.worker} ended by itself with {death.code}: {death.last_words}")

    def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait for something that several processes bring about, until our patience ends."""
        clock = threading.Event()
        while not (is_so := condition()) and time.monotonic() < self._deadline:
            clock.wait(_INTERVAL_SECONDS)
        return is_so


def most_within(moments: Sequence[float], seconds: float) -> int:
    """The most of these moments, which are in order, that lie in one window."""
    return max(bisect_left(moments, moment + seconds) - place for place, moment in enumerate(moments))


def most_in_a_minute(requests: Sequence[tuple[float, int]], weighs: bool) -> int:
    """The most requests, which are in order, that began in one minute; where it `weighs`, the most of their tokens."""
    return max(
        sum(tokens if weighs else 1 for at, tokens in requests[place:] if at < began + 60)
        for place, (began, _) in enumerate(requests)
    )


def most_together(executions: Sequence[tuple[float, float]]) -> int:
    """The most that were at work at one moment."""
    changes = sorted(change for began, ended in executions for change in ((began, 1), (ended, -1)))
    return max(accumulate(change for _, change in changes))
