"""The sweep (lua/sweep*.lua): who is lost, what is due, and what is sent again."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from typing import Any

import pytest
from redis.exceptions import ResponseError

from acts_celery.broker_config import EmbeddedServer
from acts_celery.broker_config.configuration import queue_prefix
from acts_celery.protocol.engine.events import CallProgressed, Outcome, Progress, Status
from acts_celery.worker.broker.attempts import Attempt, CallId, Tokens, pack_progress
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import (
    AttemptRef,
    Completion,
    Probe,
    Progressed,
    Report,
    TaskMessage,
    Unanswered,
    pack,
)
from acts_celery.worker.broker.transport import ReportQueue
from acts_celery.worker.limits import IDLE_TURNS, LONGEST_WHY, UNANSWERED_OF_A_RUN
from acts_celery.worker.recovery.heartbeats import HeartbeatWriter
from acts_celery.worker.recovery.sweep import Sweeper
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.commits import Claim, Rest
from acts_celery.worker.store.connections import connect
from acts_celery.worker.store.keys import Keys, active_runs, due_runs, probes, processes, secret
from acts_celery.worker.store.living import Processes
from acts_celery.worker.store.run_list import Parent
from acts_celery.worker.store.run_store import RunStore
from acts_celery.worker.store.waiting import read_progress_of, read_unanswered

from .test_commit_script import RUN, Log, done

# Who is judged dead, and who is not: the sweep's scripts on a real server (DESIGN "Sweep").

RESULTS, FAR = "judged-instances", "judged-far"
SECRET = b"of this test"
TOKENS = Tokens(SECRET)


def probe(queue: str, published_ms: int) -> Probe:
    """A probe as a sweep sends it."""
    return Probe(queue, published_ms, TOKENS.of_probe(queue, published_ms))


class Judged(Log):
    """A run's keys, and a sweeper that sweeps when it is told to."""

    def __init__(self, server: EmbeddedServer, prefix: str) -> None:
        names = {f"queue_{name}": f"judged-{name}" for name in ("instances", "delegates", "background", "reports")}
        super().__init__(server, prefix, lease_seconds=30, **names)
        app = make_client_application(self.settings)
        self.publisher = Publisher(app)
        self.reports = ReportQueue(app, self.settings)
        self.sweeper = self.another_sweeper()
        self.redis.delete(*names.values(), FAR)
        self.redis.set(secret(prefix), SECRET)

    def another_sweeper(self) -> Sweeper:
        return Sweeper(connect(self.settings), self.publisher, self.reports, self.settings)

    def begin(self, size: int, **how: Any) -> None:
        super().begin(size, **how)
        self.redis.zadd(active_runs(self.prefix), {RUN: self.redis.time()[0] * 1000})

    def send(self, index: int = 0) -> None:
        """Claim a call for the queue of others."""
        self.advance(claims=[Claim(index, 30, FAR)], owner="me")

    def sweep(self) -> None:
        """Sweep when all leases have run out, a minute after whatever was noted of calls."""
        for key in (self.keys.leases, self.keys.outbox_due):
            members: Any = self.redis.zrange(key, 0, -1)
            for member in members:
                self.redis.zadd(key, {member: 1})
        for key in (self.keys.calls, self.keys.outbox):
            for name, entry in self._noted(key).items():
                self.redis.hset(key, name, re.sub(r"(\d{13})/", lambda time: f"{int(time[1]) - 60_000}/", entry))
        self.sweeper.sweep()

    @contextmanager
    def present(self, holder: str) -> Iterator[None]:
        """While a process says that it lives and holds that."""
        said = pack({"at": self.redis.time()[0] * 1000, "holds": {RUN: [holder]}})
        self.redis.hset(processes(self.prefix), "lives", said)
        yield
        self.redis.hdel(processes(self.prefix), "lives")

    def stands(self, index: int = 0) -> str:
        """What is known of a call, without the time at which it was sent."""
        return re.sub(r"\d{13}/", "", self.entry(index))

    def forgotten(self) -> list[str]:
        """How what was sent and forgotten stands, likewise."""
        return [re.sub(r"\d{13}/", "", entry) for entry in self._noted(self.keys.outbox).values()]

    def _noted(self, key: str) -> dict[str, str]:
        found: Any = self.redis.hgetall(key)
        return dict(found)

    def come_out(self, queue: str) -> None:
        """As if a worker had taken the last probe from a queue, and all that lay there before."""
        self.redis.delete(f"{queue_prefix(self.settings)}{queue}")
        *_, sent = str(self.redis.hget(probes(self.prefix), queue)).split(":")
        self.reports.send(Report(probes=(probe(queue, int(sent)),)))

    def fill(self, queue: str) -> None:
        self.publisher.publish([TaskMessage("nothing", queue, b"", "-")])

    @property
    def published(self) -> int:
        return self.publisher.waiting(RESULTS)


@pytest.fixture
def judged(server: EmbeddedServer, request: pytest.FixtureRequest) -> Judged:
    return Judged(server, f"judged.{abs(hash(request.node.name))}")


def ref(number: int = 1, index: int = 0) -> AttemptRef:
    return AttemptRef.of(TOKENS.given(Attempt(CallId(RUN, None, index), number)))


def attempt(number: int = 1, **how: Any) -> Attempt:
    return TOKENS.given(Attempt(CallId(RUN, None, 0), number, **how))


def test_a_call_in_line_without_a_sign_of_life_is_lost_and_its_lane_published(judged: Judged) -> None:
    judged.begin(1)
    judged.claim(0, owner="me")
    judged.sweeper.sweep()
    assert judged.entry() == "running:1:0:me"
    judged.sweep()
    twice = 2  # one task may be taken by a worker that is stopped
    assert (judged.entry(), judged.published, judged.state()["running"]) == ("lost:1:0:", twice, "1")
    assert judged.claim(0) == (2,)
    assert judged.state()["running"] == "1"


def test_a_lanes_task_counts_as_lost_in_time_however_often_its_lost_calls_are_looked_at(judged: Judged) -> None:
    twice, task_of_the_lane = 2, (judged.keys.published, "")
    judged.begin(2)
    judged.claim(0, owner="me")
    judged.sweep()
    on_its_way = judged.redis.time()[0] * 1000 + 2_000
    judged.redis.zadd(judged.keys.published, {"": on_its_way})
    judged.sweep()
    assert judged.redis.zscore(*task_of_the_lane) == on_its_way
    judged.claim(1, owner="you", clears_mark=None)
    judged.sweep()
    mark = judged.redis.zscore(*task_of_the_lane)
    assert mark is not None
    assert mark > on_its_way, "who takes it up may not know of this loss"
    assert judged.published == twice
    judged.redis.zadd(judged.keys.published, {"": 1})
    judged.sweep()
    assert judged.published == 2 * twice


def test_what_a_driver_carries_out_that_is_present_is_not_lost_and_neither_is_the_driver(judged: Judged) -> None:
    judged.begin(2)
    judged.advance(claims=[Claim(0, 30)], owner="me", leaves=False)
    judged.advance(claims=[Claim(1, 30)], owner="you", leaves=False)
    with judged.present("me"):
        judged.sweep()
        assert (judged.entry(), judged.entry(1)) == ("running:1:0:me", "lost:1:0:")
        leases: Any = judged.redis.zrange(judged.keys.leases, 0, -1)
        assert sorted(leases) == ["\x1f0", "\x1f1", "\x1f@me"], "what was lost is looked after again"
    judged.sweep()
    assert judged.entry() == "lost:1:0:"


@pytest.mark.parametrize("ago_ms", [31_000, -86_400_000])
def test_what_a_process_has_said_too_long_ago_or_is_yet_to_say_counts_for_nothing(judged: Judged, ago_ms: int) -> None:
    judged.begin(1)
    judged.claim(0, owner="me")
    said = pack({"at": judged.redis.time()[0] * 1000 - ago_ms, "holds": {RUN: ["me"]}})
    judged.redis.hset(processes(judged.prefix), "died", said)
    judged.sweep()
    assert (judged.entry(), judged.redis.hlen(processes(judged.prefix))) == ("lost:1:0:", 0)


def test_what_was_noted_before_the_clock_was_set_back_is_noted_anew(judged: Judged) -> None:
    judged.begin(100)
    judged.advance(claims=[Claim(index, 30) for index in range(100) if index != 1], owner="me")
    judged.send(1)
    judged.advance(rests=[Rest(2, 1, 1.0)])
    noted: Any = judged.redis.zrange(judged.keys.leases, 0, -1)
    ahead = judged.redis.time()[0] * 1000 + 86_400_000
    judged.redis.zadd(judged.keys.leases, dict.fromkeys(noted, ahead))
    judged.redis.zadd(judged.keys.published, {f"lane {number}": ahead for number in range(100)})
    judged.sweeper.sweep()
    left: Any = judged.redis.zrangebyscore(judged.keys.leases, ahead, ahead)
    assert left == ["\x1f2"], "nobody knows for when the clock that was ahead has noted a retry"
    assert not judged.redis.zrangebyscore(judged.keys.published, ahead, ahead)
    judged.sweep()
    assert judged.entry() == "lost:1:0:"


def test_what_was_sent_and_forgotten_before_the_clock_was_set_back_is_looked_after(judged: Judged) -> None:
    judged.begin(3)
    task = TaskMessage("acts.execute_background", FAR, pack({"attempt": {}}), "-", is_forgotten=True)
    judged.advance(outcomes=[Outcome(index, Status.SENT) for index in (0, 1)], sendings={0: task, 1: task})
    ahead = judged.redis.time()[0] * 1000 + 86_400_000
    for member, kind in (("\x1f0", "sent"), ("\x1f1", "retry")):
        judged.redis.hset(judged.keys.outbox, member, f"{kind}:1:0:{ahead}/{FAR}")
        judged.redis.zadd(judged.keys.outbox_due, {member: ahead})
    judged.sweeper.sweep()
    left: Any = judged.redis.zrangebyscore(judged.keys.outbox_due, ahead, ahead)
    assert left == ["\x1f1"]
    judged.redis.zrem(judged.keys.outbox_due, "\x1f1")
    judged.sweep()
    judged.come_out(FAR)
    judged.sweep()
    assert judged.forgotten()[0] == f"taken:1:0:{FAR}"


def test_what_a_process_says_during_a_sweep_counts_in_it(judged: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep may take longer than a lease, where it has much to do or the broker is slow."""
    judged.begin(1)
    judged.claim(0, owner="me")
    reconcile = judged.sweeper._slots.reconcile
    with ExitStack() as later:

        def long_part() -> Any:
            later.enter_context(judged.present("me"))
            return reconcile()

        monkeypatch.setattr(judged.sweeper._slots, "reconcile", long_part)
        judged.sweep()
        assert judged.entry() == "running:1:0:me"


@pytest.fixture
def sweep_in_steps(judged: Judged, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Sweep a run in steps of one call each; something happens during each of them."""
    monkeypatch.setattr("acts_celery.worker.limits.AT_ONCE", 1)
    publish = judged.publisher.publish

    def sweep(happens: Callable[[], object]) -> None:
        with monkeypatch.context() as during:
            during.setattr(judged.publisher, "publish", lambda tasks: (publish(tasks), happens()))
            judged.sweep()

    return sweep


def test_what_is_reported_during_a_sweep_counts_in_it(
    judged: Judged, sweep_in_steps: Callable[[Callable[[], object]], None]
) -> None:
    judged.begin(2)
    judged.claim(0)
    judged.send(1)
    at_work = Report(begun=(ref(index=1),))
    judged.reports.send(at_work)
    judged.sweeper.sweep()
    sweep_in_steps(lambda: judged.reports.send(at_work))
    assert [judged.entry(0), judged.stands(1)] == ["lost:1:0:", "running:1:0:me/judged-far"]


def test_a_sweep_that_takes_long_suspends_nothing(
    judged: Judged, sweep_in_steps: Callable[[Callable[[], object]], None]
) -> None:
    judged.begin(3)
    judged.claim(0)
    judged.claim(1)
    sweep_in_steps(lambda: silence(judged, 10))
    judged.claim(2)
    judged.sweep()
    assert judged.entry(2) == "lost:1:0:"


def test_nothing_is_lost_where_who_lives_cannot_be_read(judged: Judged) -> None:
    judged.begin(1)
    judged.claim(0, owner="me")
    judged.redis.set(processes(judged.prefix), "garbage")
    with pytest.raises(ResponseError):
        judged.sweep()
    with judged.present("me"):
        judged.sweep()
        assert judged.entry() == "running:1:0:me"


def test_what_workers_report_that_begin_while_there_is_no_run_does_not_stay(judged: Judged) -> None:
    for _ in range(IDLE_TURNS + 1):
        judged.reports.send(Report(started=1))
        judged.sweeper.take_turn()
    assert list(chain(*judged.reports.pages())) == []


def test_what_was_said_before_the_clock_was_put_back_holds_nothing(judged: Judged) -> None:
    judged.begin(1)
    judged.claim(0, owner="me")
    for at in (judged.redis.time()[0] * 1000 + 3_600_000, 2**63, 1e300):
        judged.redis.hset(processes(judged.prefix), "died", pack({"at": at, "holds": {RUN: ["me"]}}))
        judged.sweep()
        assert (judged.entry(), judged.redis.hlen(processes(judged.prefix))) == ("lost:1:0:", 0)


def test_what_has_left_its_driver_is_not_held_by_it(judged: Judged) -> None:
    """A driver that lives says nothing of the worker that has taken its message."""
    judged.begin(1)
    judged.send()
    judged.reports.send(Report(begun=(ref(),)))
    with judged.present("me"):
        judged.sweeper.sweep()
        assert judged.stands() == f"running:1:0:me/{FAR}"
        judged.sweep()
    assert judged.entry() == "lost:1:0:"


def test_a_call_that_blocks_its_loop_is_at_work_though_its_driver_is_not(judged: Judged) -> None:
    judged.begin(2)
    judged.claim(0, 1, owner="me")
    with judged.present("\x1f1"):
        judged.sweep()
    assert (judged.entry(), judged.entry(1)) == ("lost:1:0:", "running:1:0:me")


def test_a_call_that_rests_is_published_when_it_is_due_and_counts_as_no_loss(judged: Judged) -> None:
    judged.begin(1)
    judged.note("retry:1:1:1")
    judged.redis.zadd(judged.keys.leases, {"\x1f0": 10**15})
    judged.sweeper.sweep()
    assert judged.published == 0
    judged.sweep()
    assert (judged.entry(), judged.published) == ("retry:1:1:0", 1)
    judged.redis.zadd(judged.keys.published, {"": judged.redis.time()[0] * 1000 + 2_000})
    mark = judged.redis.zscore(judged.keys.published, "")
    judged.sweep()
    assert judged.redis.zscore(judged.keys.published, "") == mark, "its task is on its way: that may be lost, too"
    assert judged.published == 1
    advance = judged.advance(claims=[Claim(0, 30)])
    assert (advance.attempts, advance.failures) == ((2,), (1,))


def test_a_call_that_is_sent_is_lost_when_a_probe_was_taken_behind_it_and_it_is_not_heard_of(judged: Judged) -> None:
    judged.begin(1)
    judged.send()
    judged.sweep()
    judged.sweep()
    assert judged.stands() == f"sent:1:0:me/{FAR}", "it may still lie there"
    assert judged.publisher.waiting(FAR) == 1, "one probe at a time"
    judged.come_out(FAR)
    judged.fill(FAR)
    judged.sweep()
    assert judged.stands() == "sent:1:0:me/", "it was taken, maybe just now"
    judged.fill(RESULTS)
    judged.sweep()
    assert judged.stands() == "sent:1:0:me/", "its result may be on the way"
    judged.come_out(RESULTS)
    judged.fill(RESULTS)
    judged.sweep()
    assert judged.entry() == "lost:0:0:", "what was not seen to begin does not count as an execution"
    advance = judged.advance(claims=[Claim(0, 30, FAR)])
    assert (advance.attempts, advance.repeated) == ((1,), (True,))


@pytest.mark.parametrize(
    ("kind", "silent_seconds", "stands"),
    [("sent", 10, "sent:1:0:me/"), ("sent", 40, "lost:0:0:"), ("running", 40, "running:1:0:me/")],
)
def test_what_a_silent_process_may_have_taken_waits_for_it_as_long_as_it_may_go_on_with_that(
    judged: Judged, kind: str, silent_seconds: float, stands: str
) -> None:
    """It hands in a result whenever it goes on, and begins no call that it took before a long silence."""
    judged.begin(1)
    judged.send()
    judged.fill(RESULTS)
    judged.sweep()
    judged.sweep()
    judged.come_out(FAR)
    judged.sweep()
    judged.sweep()
    judged.come_out(RESULTS)
    Processes(connect(judged.settings), judged.prefix).note_silent("silent.", "worker", 1, silent_seconds, ())
    taken_ms = judged.redis.time()[0] * 1000 - int(silent_seconds * 1000) + 2_000
    judged.note(f"{kind}:1:0:me/{taken_ms}/")
    judged.redis.zadd(judged.keys.leases, {"\x1f0": 1})
    judged.sweeper.sweep()
    assert judged.stands() == stands


def test_a_call_that_its_worker_reports_is_running_and_stays_so_while_it_is_reported(judged: Judged) -> None:
    judged.begin(1)
    judged.send()
    judged.fill(FAR)
    for _ in range(2):
        judged.reports.send(Report(begun=(ref(),)))
        judged.sweep()
        assert judged.stands() == f"running:1:0:me/{FAR}"
    assert judged.state()["running"] == "1"
    judged.sweep()
    assert judged.entry() == "lost:1:0:", "whatever lies in its queue: it was begun"


def test_a_result_on_its_way_is_waited_for(judged: Judged) -> None:
    judged.begin(1)
    judged.send()
    judged.reports.send(Report(begun=(ref(),)))
    judged.reports.send(Report(ended=(ref(),)))
    judged.sweep()
    judged.sweep()
    assert judged.stands() == f"sent:1:0:me/{RESULTS}"
    judged.come_out(RESULTS)
    judged.sweep()
    assert judged.stands() == "running:1:0:me/", "it was taken, maybe just now"
    judged.sweep()
    assert judged.entry() == "lost:1:0:"


def test_a_probe_that_was_sent_before_a_call_proves_nothing_about_it(judged: Judged) -> None:
    judged.begin(2)
    judged.send(0)
    judged.sweep()
    judged.send(1)
    judged.come_out(FAR)
    for member in ("\x1f0", "\x1f1"):
        judged.redis.zadd(judged.keys.leases, {member: 1})
    judged.sweeper.sweep()
    assert (judged.stands(0), judged.stands(1)) == ("sent:1:0:me/", f"sent:1:0:me/{FAR}")


def test_a_probe_that_no_sweep_has_sent_proves_nothing(judged: Judged) -> None:
    judged.begin(1)
    judged.send()
    judged.reports.send(Report(probes=(probe(FAR, 2**50),)))
    judged.sweep()
    judged.reports.send(Report(probes=(probe(FAR, 2**50), probe("another", 1))))
    judged.sweep()
    assert judged.stands() == f"sent:1:0:me/{FAR}"


def test_a_probe_from_before_the_clock_was_set_back_proves_nothing(judged: Judged) -> None:
    judged.begin(1)
    ahead = judged.redis.time()[0] * 1000 + 86_400_000
    for known in (f"{ahead}:0:{ahead}", f"0:{ahead}:{ahead}"):
        judged.redis.hset(probes(judged.prefix), FAR, known)
        judged.send()
        judged.sweep()
        assert judged.stands() == f"sent:1:0:me/{FAR}", "it may lie in its queue still"
        judged.come_out(FAR)
        judged.sweep()
        assert judged.stands() == "sent:1:0:me/"
        judged.redis.hdel(judged.keys.calls, "\x1f0")


@pytest.mark.parametrize("token", ["", "0" * 32, "of another time"])
def test_a_probe_is_believed_only_with_its_token(judged: Judged, token: str, caplog: pytest.LogCaptureFixture) -> None:
    judged.begin(1)
    judged.send()
    judged.sweep()
    *_, sent = str(judged.redis.hget(probes(judged.prefix), FAR)).split(":")
    forged = TOKENS.of_probe(FAR, int(sent) - 1) if token == "of another time" else token
    judged.reports.send(Report(probes=(Probe(FAR, int(sent), forged),)))
    for _ in range(3):
        judged.sweep()
    assert judged.entry().startswith("sent:"), "it may lie in its queue still"
    assert [record.getMessage() for record in caplog.records] == [
        f"a report of a probe of {FAR!r} is refused: it does not have its token"
    ]


def test_a_probe_that_does_not_come_out_is_followed_by_others_ever_more_rarely(judged: Judged) -> None:
    judged.begin(1)
    judged.send()
    judged.sweep()
    for seconds_of_asking, seconds_since, count in ((0, 1, 1), (0, 3, 2), (5, 3, 2), (5, 8, 3)):
        sent = (judged.redis.time()[0] - seconds_since) * 1000
        judged.redis.hset(probes(judged.prefix), FAR, f"0:{sent - seconds_of_asking * 1000}:{sent}")
        judged.sweep()
        assert judged.publisher.waiting(FAR) == count


def test_a_call_that_a_worker_has_taken_and_not_begun_is_not_lost_while_it_speaks_of_it(judged: Judged) -> None:
    judged.begin(1)
    judged.send()
    judged.sweep()
    judged.come_out(FAR)
    judged.sweep()
    for _ in range(3):
        judged.reports.send(Report(reserved=(ref(),)))
        judged.sweep()
        judged.come_out(RESULTS) if judged.publisher.waiting(RESULTS) else None
        assert judged.stands() == "sent:1:0:me/"
    judged.reports.send(Report(begun=(ref(),)))
    judged.reports.send(Report(reserved=(ref(),)))
    judged.sweep()
    assert judged.stands() == "running:1:0:me/"


def test_what_is_sent_and_forgotten_is_found_lost_though_its_queue_never_runs_empty(judged: Judged) -> None:
    judged.begin(1)
    task = TaskMessage("acts.execute_background", FAR, pack({"attempt": {}}), "-", is_forgotten=True)
    judged.advance(outcomes=[Outcome(0, Status.SENT)], sendings={0: task})
    judged.fill(FAR)
    judged.sweep()
    assert judged.forgotten() == [f"sent:1:0:{FAR}"], "it may still lie there"
    judged.come_out(FAR)
    judged.fill(FAR)
    judged.reports.send(Report(reserved=(ref(),)))
    for _ in range(2):
        judged.sweep()
        judged.reports.send(Report(reserved=(ref(),)))
        assert judged.forgotten() == [f"taken:1:0:{FAR}"], "it was taken, maybe just now"
    list(judged.reports.pages())
    judged.sweep()
    assert judged.publisher.waiting(FAR) == 2, "it is sent again"


def test_who_speaks_of_an_attempt_that_was_given_up_is_not_heard(judged: Judged) -> None:
    judged.begin(1)
    judged.note("lost:1:0:")
    judged.send()
    judged.reports.send(Report(begun=(ref(1),)))
    judged.sweeper.sweep()
    assert judged.stands() == f"sent:2:0:me/{FAR}"
    judged.commit(done(0))
    judged.reports.send(Report(begun=(ref(2),)))
    judged.sweeper.sweep()
    assert judged.entry() == "done"
    assert not judged.redis.exists(judged.keys.leases)


def test_a_call_that_was_taken_just_before_a_probe_is_heard_of_in_time(judged: Judged) -> None:
    judged.begin(1)
    judged.send()
    judged.sweep()
    judged.come_out(FAR)
    judged.sweep()
    judged.reports.send(Report(begun=(ref(),)))
    judged.sweeper.sweep()
    assert judged.stands() == "running:1:0:me/"


def test_more_than_one_script_judges_at_a_time_is_judged_in_one_sweep(judged: Judged) -> None:
    judged.begin(2_500)
    judged.advance(claims=[Claim(index, 30) for index in range(2_500)])
    judged.sweep()
    assert {judged.entry(index) for index in range(2_500)} == {"lost:1:0:"}
    assert judged.published == 2


@pytest.mark.parametrize(("born", "counts"), [("", True), ("1", False), ("2", True)])
def test_a_report_of_a_run_that_had_the_id_before_is_passed_over(judged: Judged, born: str, counts: bool) -> None:
    judged.begin(1)
    judged.send()
    judged.redis.hset(judged.keys.state, "submitted", "2")
    tokens = TOKENS.of_run(born)
    judged.reports.send(Report(begun=(AttemptRef.of(tokens.given(Attempt(CallId(RUN, None, 0)))),)))
    judged.sweeper.sweep()
    assert judged.stands() == (f"running:1:0:me/{FAR}" if counts else f"sent:1:0:me/{FAR}")


def test_a_report_that_none_of_ours_has_written_is_passed_over(judged: Judged) -> None:
    judged.begin(1)
    judged.send()
    with judged.publisher._app.producer_or_acquire() as producer:
        for body in (b"\xc1", b"{}", b"\x90", b"x" * 10):
            producer.publish(body, routing_key="judged-reports", content_type="application/data")
    judged.reports.send(Report(begun=(ref(),)))
    judged.sweeper.sweep()
    assert judged.stands() == f"running:1:0:me/{FAR}"


def test_a_process_reports_what_it_has_at_work_and_what_it_had(judged: Judged) -> None:
    heartbeat = HeartbeatWriter(judged.reports, interval_seconds=3600)

    async def work() -> None:
        async with heartbeat.at_work(attempt()):
            heartbeat.beat()

    asyncio.run(work())
    heartbeat.beat()
    heartbeat.beat()
    assert list(chain(*judged.reports.pages())) == [Report(begun=(ref(),)), Report(ended=(ref(),))]


def test_what_was_begun_and_ended_between_two_reports_is_in_neither(judged: Judged) -> None:
    heartbeat = HeartbeatWriter(judged.reports, interval_seconds=3600)

    async def work() -> None:
        async with heartbeat.at_work(attempt()):
            pass

    asyncio.run(work())
    heartbeat.beat()
    assert list(chain(*judged.reports.pages())) == []


def test_a_repeated_attempt_is_reported_of_before_it_begins(judged: Judged) -> None:
    heartbeat = HeartbeatWriter(judged.reports, interval_seconds=3600)

    async def work() -> None:
        async with heartbeat.at_work(attempt(2, is_repeated=True)):
            assert list(chain(*judged.reports.pages())) == [Report(begun=(ref(2),))]

    asyncio.run(work())


def test_an_attempt_that_brought_no_result_is_not_reported_as_ended(judged: Judged) -> None:
    heartbeat = HeartbeatWriter(judged.reports, interval_seconds=3600)

    async def work() -> None:
        async with heartbeat.at_work(attempt()):
            heartbeat.beat()
            raise OSError("no way to bring it back")

    with suppress(OSError):
        asyncio.run(work())
    heartbeat.beat()
    assert list(chain(*judged.reports.pages())) == [Report(begun=(ref(),))]


def test_a_sweep_with_nothing_to_look_after_costs_one_command(judged: Judged) -> None:
    judged.sweeper.take_turn()  # looks for what the last run has left
    with judged.redis.monitor() as commands:  # type: ignore[no-untyped-call]  # redis is typed but here
        judged.sweeper.take_turn()
        judged.redis.echo(judged.prefix)
        seen = (command["command"] for command in commands.listen() if judged.prefix in command["command"])
        assert [next(seen), next(seen)] == [
            f"ZRANGE {active_runs(judged.prefix)} 0 0 WITHSCORES",
            f"ECHO {judged.prefix}",
        ]


def test_one_sweeper_at_a_time_and_each_interval_once(judged: Judged) -> None:
    judged.begin(1)
    judged.claim(0)
    judged.sweeper.take_turn()
    judged.lease(None, 0, 1)
    judged.another_sweeper().take_turn()
    assert judged.entry().startswith("running")
    judged.redis.delete(f"{judged.prefix}:sweeping")
    judged.another_sweeper().take_turn()
    assert judged.entry() == "lost:1:0:"


def silence(judged: Judged, seconds: float) -> None:
    """As if no worker had reached the servers for so long, in which the run was under way."""
    judged.redis.hincrbyfloat(f"{judged.prefix}:recovery", "heard", -1000 * seconds)
    judged.redis.zadd(active_runs(judged.prefix), {RUN: 1})


def test_nothing_is_declared_lost_for_a_while_after_no_worker_could_reach_the_servers(judged: Judged) -> None:
    judged.begin(1)
    judged.claim(0)
    judged.sweeper.take_turn()
    judged.lease(None, 0, 1)
    for seconds in (3600, 0):
        silence(judged, seconds)
        judged.redis.delete(f"{judged.prefix}:sweeping")
        judged.another_sweeper().take_turn()
        assert judged.entry().startswith("running")
        judged.lease(None, 0, 1)
    judged.redis.hset(f"{judged.prefix}:recovery", "until", 1)
    judged.redis.zadd(f"{judged.prefix}:due", {RUN: 1})
    judged.redis.delete(f"{judged.prefix}:sweeping")
    judged.sweeper.take_turn()
    assert judged.entry() == "lost:1:0:"


def test_a_worker_that_alone_could_not_sweep_keeps_no_recovery_waiting(judged: Judged) -> None:
    judged.begin(1)
    judged.claim(0)
    stopped = judged.another_sweeper()
    stopped.take_turn()
    silence(judged, 3600)
    judged.redis.delete(f"{judged.prefix}:sweeping")
    judged.redis.hset(f"{judged.prefix}:recovery", "heard", judged.redis.time()[0] * 1000)  # others went on
    judged.lease(None, 0, 1)
    stopped.take_turn()
    assert judged.entry() == "lost:1:0:"


def test_a_run_that_begins_after_hours_without_any_is_not_kept_waiting(judged: Judged) -> None:
    judged.begin(1)
    judged.claim(0)
    judged.sweeper.take_turn()
    judged.redis.hincrbyfloat(f"{judged.prefix}:recovery", "heard", -3_600_000)
    judged.redis.delete(f"{judged.prefix}:sweeping")
    judged.lease(None, 0, 1)
    judged.sweeper.take_turn()
    assert judged.entry() == "lost:1:0:"


def test_a_sweeper_that_stops_in_the_middle_holds_its_turn_for_one_interval(judged: Judged) -> None:
    judged.begin(1)
    judged.sweeper.take_turn()
    held: Any = judged.redis.pttl(f"{judged.prefix}:sweeping")
    assert 0 < held <= 1_000


def test_r11_8_a_call_that_is_carried_out_again_is_at_work_as_any_other(judged: Judged) -> None:
    judged.begin(1)
    judged.send()
    before = AttemptRef.of(attempt(again=2))
    token = before.token.partition(".")[2]
    forged = (before._replace(token=f"{again}.{token}") for again in ("", "1", "x", "\u0662", "9" * 99))
    judged.reports.send(Report(begun=tuple(forged)))
    judged.sweeper.sweep()
    assert judged.stands().startswith("sent:1:0:")
    judged.reports.send(Report(begun=(before,)))
    judged.sweeper.sweep()
    assert judged.stands().startswith("running:1:0:")


def test_a_report_without_the_token_of_its_attempt_changes_nothing(
    judged: Judged, caplog: pytest.LogCaptureFixture
) -> None:
    judged.begin(2)
    judged.send()
    task = TaskMessage("acts.execute_background", FAR, pack({"attempt": {}}), "-", is_forgotten=True)
    judged.advance(outcomes=[Outcome(1, Status.SENT)], sendings={1: task})
    before = judged.stands(), judged.forgotten(), judged.redis.zrange(judged.keys.leases, 0, -1, withscores=True)
    right = ref(), ref(index=1)
    wrong = [one._replace(token=token) for one in right for token in ("", "guess", ref(2).token, ref(index=7).token)]
    for refs in (tuple(wrong), tuple(one._replace(attempt=2) for one in right)):
        judged.reports.send(Report(begun=refs, ended=refs, reserved=refs, completed=tuple(map(Completion, refs))))
        judged.sweeper.sweep()
    leases = judged.redis.zrange(judged.keys.leases, 0, -1, withscores=True)
    assert (judged.stands(), judged.forgotten(), leases) == before
    assert [record.getMessage() for record in caplog.records if "refused" in record.getMessage()] == [
        "32 reports of calls are refused: they do not have the token of the attempt",
        "8 reports of calls are refused: they do not have the token of the attempt",
    ]
    judged.reports.send(Report(begun=right[:1], completed=(Completion(right[1]),)))
    judged.reports.send(Report(begun=right[:1], completed=(Completion(right[1]),)))
    judged.sweeper.sweep()
    assert (judged.stands(), judged.forgotten()) == ("running:1:0:me/" + FAR, [])


def test_what_a_reader_had_that_died_is_read_by_the_next(judged: Judged) -> None:
    sent = [Report(begun=(ref(number),)) for number in range(1, 251)]
    for report in sent:
        judged.reports.send(report)
    pages = judged.reports.pages()
    read = next(pages)
    assert read == sent[: len(read)] != sent
    another = ReportQueue(make_client_application(judged.settings), judged.settings)
    assert list(chain(*another.pages())) == sent
    assert list(chain(*another.pages())) == []


def test_a_run_whose_keys_are_broken_stops_no_others_recovery(judged: Judged, caplog: pytest.LogCaptureFixture) -> None:
    judged.begin(1)
    judged.claim(0)
    for broken, key in (("a-leases", "leases"), ("z-state", "state"), ("b-outbox", "outbox")):
        keys = Keys(judged.prefix, broken)
        judged.redis.set(getattr(keys, key), "not what it should be")
        judged.redis.zadd(keys.outbox_due, {"\x1f0": 1})
        judged.redis.zadd(active_runs(judged.prefix), {broken: 1})
        judged.reports.send(Report(begun=(AttemptRef(broken, "", 0, 1, TOKENS.of(broken, "", 0, 1)),)))
    for _ in range(2):
        judged.sweep()
    assert judged.entry() == "lost:1:0:"
    said = [record.getMessage() for record in caplog.records if {"broken:", "aside:"} & {*record.getMessage().split()}]
    assert len(said) == 3


def test_a_lost_lane_is_found_though_its_queue_never_runs_empty(judged: Judged) -> None:
    judged.begin(1)
    judged.fill(RESULTS)
    judged.redis.zadd(judged.keys.published, {"": judged.redis.time()[0] * 1000 - 1})
    judged.sweeper.sweep()
    assert judged.published == 2, "a probe lies behind what may be the lane's task"
    judged.sweeper.sweep()
    assert judged.published == 2, "one probe at a time"
    judged.come_out(RESULTS)
    judged.fill(RESULTS)
    judged.sweeper.sweep()
    assert judged.published == 3, "the lane's tasks, too"


def unanswered(number: int = 1, index: int = 0, *, wait_ms: int = 8_000) -> Unanswered:
    return Unanswered(ref(number, index), "RateLimited", "429: slow down", 3, wait_ms)


def test_a_request_that_was_not_answered_is_noted_until_its_call_has_ended(judged: Judged) -> None:
    redis = connect(judged.settings)
    judged.begin(1)
    judged.send()
    judged.reports.send(Report(begun=(ref(),), unanswered=(unanswered(),)))
    judged.sweeper.sweep()
    (noted,) = read_unanswered(RunStore(redis, judged.keys))
    again = noted.pop("again_in_seconds")
    assert noted == {"call": "0", "type": "RateLimited", "message": "429: slow down", "tries": 3}
    assert 0 < again <= 8
    assert redis.ttl(judged.keys.unanswered) > 0, "it stays behind where its run has expired"
    judged.reports.send(Report(ended=(ref(),)))
    judged.sweeper.sweep()
    assert not redis.exists(judged.keys.unanswered)


def test_of_progress_only_that_of_the_attempt_at_work_is_noted(judged: Judged) -> None:
    store = RunStore(connect(judged.settings), judged.keys)
    judged.begin(2)
    judged.send()
    said = pack_progress(Progress(1, 2, "half", [7]))
    forged = Progressed(ref()._replace(token="forged"), pack_progress(Progress(9)))
    late, broken = Progressed(ref(2), pack_progress(Progress(8))), Progressed(ref(), b"\xc1")
    judged.reports.send(Report(begun=(ref(),), progressed=(Progressed(ref(), said), forged, late, broken)))
    judged.sweeper.sweep()
    assert read_progress_of(store) == [{"call": "0", "done": 1, "total": 2, "text": "half"}]
    noted = [entry.event for entry in store.entries() if isinstance(entry.event, CallProgressed)]
    assert noted == [CallProgressed(0, Progress(1, 2, "half", [7]))]
    assert store.redis.ttl(judged.keys.progress) > 0, "it stays behind where its run has expired"


def test_of_requests_that_were_not_answered_only_true_and_not_too_many_are_noted(judged: Judged) -> None:
    many = range(UNANSWERED_OF_A_RUN + 5)
    judged.begin(len(many))
    for index in many:
        judged.send(index)
    forged = unanswered()._replace(ref=ref()._replace(token="forged"))
    judged.reports.send(Report(begun=(ref(),), unanswered=(forged, unanswered(2), unanswered(7, 7))))
    judged.sweeper.sweep()
    assert read_unanswered(RunStore(connect(judged.settings), judged.keys)) == []
    refs = tuple(ref(1, index) for index in many)
    judged.reports.send(Report(begun=refs, unanswered=tuple(unanswered(1, index) for index in many)))
    judged.sweeper.sweep()
    assert len(read_unanswered(RunStore(connect(judged.settings), judged.keys))) == UNANSWERED_OF_A_RUN
    too_long = unanswered()._replace(why="x" * (LONGEST_WHY + 1))
    judged.reports.send(Report(unanswered=(too_long,)))
    assert list(chain(*judged.reports.pages())) == []


# When the sweep looks at a run again, and what it does while recovery is suspended (lua/sweep.lua).

_DEADLINE_SECONDS = 60


@pytest.fixture
def judged_sweep_looks(server: EmbeddedServer, request: pytest.FixtureRequest) -> Judged:
    return Judged(server, f"looks.{abs(hash(request.node.name))}")


def test_a_run_with_a_held_call_is_looked_at_when_the_time_for_a_decision_is_over(judged_sweep_looks: Judged) -> None:
    judged_sweep_looks.begin(1)
    held_ms = judged_sweep_looks.redis.time()[0] * 1000
    judged_sweep_looks.redis.hset(judged_sweep_looks.keys.state, "approve_ms", 20_000)
    judged_sweep_looks.redis.zadd(judged_sweep_looks.keys.held, {"\x1f0": held_ms})
    judged_sweep_looks.sweeper.sweep()
    assert judged_sweep_looks.state()["look"] == str(held_ms + 20_000)


def test_what_is_due_to_be_tried_again_is_published_while_nothing_is_declared_lost(judged_sweep_looks: Judged) -> None:
    judged_sweep_looks.begin(2)
    judged_sweep_looks.claim(0)
    judged_sweep_looks.note("retry:1:1:1", 1)
    judged_sweep_looks.sweeper.take_turn()
    for index in (0, 1):
        judged_sweep_looks.lease(None, index, 1)
    silence(judged_sweep_looks, 3600)
    judged_sweep_looks.redis.delete(f"{judged_sweep_looks.prefix}:sweeping")
    judged_sweep_looks.another_sweeper().take_turn()
    assert judged_sweep_looks.entry().startswith("running")
    assert judged_sweep_looks.published == 1


def test_a_pause_of_recovery_that_none_of_ours_has_written_counts_for_nothing(judged_sweep_looks: Judged) -> None:
    judged_sweep_looks.begin(1)
    judged_sweep_looks.claim(0)
    judged_sweep_looks.lease(None, 0, 1)
    judged_sweep_looks.redis.hset(f"{judged_sweep_looks.prefix}:recovery", "until", 10**14)
    judged_sweep_looks.sweeper.take_turn()
    assert judged_sweep_looks.entry() == "lost:1:0:"


def test_what_is_sent_and_forgotten_and_done_leaves_nothing_in_the_outbox(judged_sweep_looks: Judged) -> None:
    judged_sweep_looks.begin(1)
    task = TaskMessage("acts.execute_background", FAR, pack({"attempt": {}}), "-", is_forgotten=True)
    judged_sweep_looks.advance(outcomes=[Outcome(0, Status.SENT)], sendings={0: task})
    keys = judged_sweep_looks.keys.outbox, judged_sweep_looks.keys.outbox_tasks, judged_sweep_looks.keys.outbox_due
    assert judged_sweep_looks.redis.exists(*keys) == 3
    judged_sweep_looks.reports.send(Report(completed=(Completion(ref()),)))
    judged_sweep_looks.sweeper.sweep()
    assert judged_sweep_looks.redis.exists(*keys) == 0


def ends(sweeper: Sweeper) -> bool:
    """Whether a sweep comes to its end."""
    sweeping = threading.Thread(target=sweeper.sweep, daemon=True)
    sweeping.start()
    sweeping.join(_DEADLINE_SECONDS)
    return not sweeping.is_alive()


def test_a_sweep_ends_and_sends_its_probes_though_runs_are_due_again_before_all_were_looked_at(
    judged_sweep_looks: Judged,
) -> None:
    now_ms, runs = judged_sweep_looks.redis.time()[0] * 1000, [f"r{number}" for number in range(150)]
    with judged_sweep_looks.redis.pipeline(transaction=False) as pipeline:
        for keys in (Keys(judged_sweep_looks.prefix, run) for run in runs):
            pipeline.hset(keys.state, "status", "running")
            pipeline.zadd(keys.published, {"": now_ms})  # its task may lie in the queue still: a probe is to say
        pipeline.zadd(active_runs(judged_sweep_looks.prefix), dict.fromkeys(runs, now_ms))
        pipeline.zadd(due_runs(judged_sweep_looks.prefix), dict.fromkeys(runs, 0))
        pipeline.execute()
    judged_sweep_looks.settings = judged_sweep_looks.settings.model_copy(update={"sweep_interval_seconds": 0.001})
    assert ends(judged_sweep_looks.another_sweeper())
    assert judged_sweep_looks.published == 1, "the probe"


def test_a_broken_run_is_left_alone_by_the_servers_clock(
    judged_sweep_looks: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged_sweep_looks.begin(1)
    judged_sweep_looks.redis.set(judged_sweep_looks.keys.leases, "none of ours")
    judged_sweep_looks.redis.zadd(due_runs(judged_sweep_looks.prefix), {RUN: 0})
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() - 3600)
    assert ends(judged_sweep_looks.sweeper)
    next_ms: Any = judged_sweep_looks.redis.zscore(due_runs(judged_sweep_looks.prefix), RUN)
    assert next_ms > judged_sweep_looks.redis.time()[0] * 1000


def test_r9_3_an_ended_child_answers_anew_also_while_what_it_has_sent_is_not_done(judged_sweep_looks: Judged) -> None:
    judged_sweep_looks.begin(1)
    task = TaskMessage("acts.execute_background", FAR, pack({"attempt": {}}), "-", is_forgotten=True)
    judged_sweep_looks.advance(outcomes=[Outcome(0, Status.SENT)], sendings={0: task})
    above = Keys(judged_sweep_looks.prefix, "above")
    parent: dict[Any, Any] = Parent(CallId(above.run, None, 0), 1, 1).to_fields()
    judged_sweep_looks.redis.hset(judged_sweep_looks.keys.state, mapping=parent)
    judged_sweep_looks.redis.hset(above.state, "status", "running")
    judged_sweep_looks.redis.hset(above.calls, "\x1f0", f"child:1:0:{RUN}")
    judged_sweep_looks.sweeper.sweep()
    assert (judged_sweep_looks.state()["status"], judged_sweep_looks.published) == ("completed", 1)
