"""Commits (lua/commit*.lua): claims, outcomes, and what follows from them, at once or not at all."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from redis import Redis

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol.calls.call import element_index
from acts_celery.protocol.engine.events import CallEnded, Outcome, Status
from acts_celery.worker.broker.messages import TaskMessage
from acts_celery.worker.store.commits import END_UNKNOWN, Claim, Commit, Committed, Delegated, Ending, Held, Rest
from acts_celery.worker.store.connections import connect_async
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.log import LogTerms, MessageLog

from .backend import settings_for

# The commit (lua/commit.lua) on a real server, one claim and one outcome at a time (SPEC R4.3, R11.1).

T = TypeVar("T")
RUN = "r"
WINDOW = 20
TERMS = LogTerms(published_seconds=60, lease_seconds=30, window=WINDOW)


class Log:
    """A run's keys, and the script called from plain code."""

    def __init__(self, server: EmbeddedServer, prefix: str, **settings: object) -> None:
        self.settings = settings_for(server, key_prefix=prefix, **settings)
        self.redis = Redis.from_url(server.redis_url, decode_responses=True, encoding_errors="replace")
        self.keys = Keys(prefix, RUN)
        self.prefix = prefix

    def begin(self, size: int, *, milliseconds: int = 1, status: str = "running") -> None:
        """A run of so many calls, whose clock stands at a moment in the past (or the future)."""
        fields: Any = {"status": status, "total": size, "remaining": size}
        self.redis.xadd(self.keys.log, {"s": status}, id=f"{milliseconds}-0")
        self.redis.hset(self.keys.state, mapping=fields)

    def _do(self, act: Callable[[MessageLog], Awaitable[T]]) -> T:
        async def doing() -> T:
            async with connect_async(self.settings) as redis:
                return await act(MessageLog(redis, self.prefix, TERMS))

        return asyncio.run(doing())

    def advance(self, instance: str | None = None, **how: Any) -> Committed:
        """Commit as somebody who has seen everything, and whom nobody has met before."""
        seen: dict[str, Any] = {
            "seen": self.last(instance),
            "global_seen": self.last(None),
            "owner": secrets.token_hex(4),
            "leaves": True,
            "clears_mark": self.redis.zscore(self.keys.published, instance or ""),
        }
        sendings, waking, decided = how.pop("sendings", {}), how.pop("waking", ()), how.pop("decided", ())
        endings = [
            Ending(one, wakes=one.index in waking, sending=sendings.get(one.index), is_decided=one.index in decided)
            for one in how.pop("outcomes", ())
        ]
        return self._do(lambda log: log.commit(RUN, Commit(instance=instance, endings=endings, **(seen | how))))

    def claim(self, *indexes: int, instance: str | None = None, **how: Any) -> tuple[int, ...]:
        return self.advance(instance, claims=[Claim(index, 30) for index in indexes], **how).attempts

    def commit(self, *outcomes: Outcome, instance: str | None = None, **how: Any) -> Committed:
        return self.advance(instance, outcomes=outcomes, **how)

    def last(self, instance: str | None) -> str:
        found = self.redis.hget(self.keys.lanes, instance or "")
        return str(found).rpartition(":")[0] if found else "0-0"

    def entry(self, index: int = 0, instance: str = "") -> str:
        """What is known of a call."""
        return str(self.redis.hget(self.keys.calls, f"{instance}\x1f{index}"))

    def note(self, entry: str, index: int = 0, instance: str = "") -> None:
        """Have something else known of a call."""
        self.redis.hset(self.keys.calls, f"{instance}\x1f{index}", entry)

    def state(self) -> dict[str, str]:
        found: Any = self.redis.hgetall(self.keys.state)
        return dict(found)

    def ids(self, stream: str) -> list[tuple[int, int]]:
        entries: Any = self.redis.xrange(stream)
        return [(int(id_.split("-")[0]), int(id_.split("-")[1])) for id_, _ in entries]

    def statuses(self) -> list[str]:
        """The changes of the run's status."""
        entries: Any = self.redis.xrange(self.keys.statuses)
        return [fields["s"] for _, fields in entries]

    def lease(self, instance: str | None, index: int, score: int) -> None:
        self.redis.zadd(self.keys.leases, {f"{instance or ''}\x1f{index}": score})


@pytest.fixture
def log(server: EmbeddedServer, request: pytest.FixtureRequest) -> Log:
    return Log(server, f"script.{abs(hash(request.node.name))}")


def done(index: int, *values: Any) -> Outcome:
    return Outcome(index, Status.DONE, tuple({"type": "data", "data": value} for value in values or ({"n": index},)))


def test_an_outcome_is_committed_once_however_often_it_is_delivered(log: Log) -> None:
    log.begin(2)
    assert log.commit(done(0)).accepted == (True,)
    before = log.redis.xlen(log.keys.log), log.redis.xlen(log.keys.statuses), log.state()
    assert log.commit(done(0)).accepted == (False,)
    assert log.commit(Outcome(0, Status.FAILED)).accepted == (False,)
    assert (log.redis.xlen(log.keys.log), log.redis.xlen(log.keys.statuses), log.state()) == before


def test_a_driver_of_a_run_that_had_the_id_before_writes_nothing(log: Log) -> None:
    log.begin(1)
    log.redis.hset(log.keys.state, "submitted", 7)
    log.claim(0)
    assert log.commit(done(0), born="6").status == "gone"
    assert log.entry(0).startswith("running:1:")
    assert log.commit(done(0), born="7").accepted == (True,)


def test_a_duplicate_within_one_commit_is_dropped(log: Log) -> None:
    log.begin(3)
    assert log.commit(done(0), done(0), done(1)).accepted == (True, False, True)
    assert log.state()["remaining"] == "1"


def test_ids_strictly_increase_over_all_lanes_of_a_run(log: Log) -> None:
    log.begin(9)
    given: list[tuple[int, int]] = []
    for index in range(3):
        for instance in (None, "①", "②"):
            log.commit(done(index, "a", "b"), instance=instance)
            given += log.ids(log.keys.log)[-2:]
    assert given == sorted(set(given))
    assert len(given) == 18


def test_ids_increase_also_when_the_servers_clock_goes_back(log: Log) -> None:
    future = 10**14
    log.begin(3, milliseconds=future)
    log.commit(done(0))
    log.commit(done(1), done(2))
    assert log.ids(log.keys.log) == [(future, number) for number in range(5)]
    assert log.ids(log.keys.statuses) == [(future, 4)]


def test_an_outcome_without_messages_leaves_an_entry_with_its_reason(log: Log) -> None:
    log.begin(2)
    log.commit(Outcome(0, Status.SKIPPED, reason="never came"), Outcome(1, Status.SENT))
    entries = asyncio.run(_read(log))
    assert [entry.event for entry in entries] == [
        CallEnded(0, Status.SKIPPED, reason="never came"),
        CallEnded(1, Status.SENT),
    ]


async def _read(log: Log) -> list[Any]:
    async with connect_async(log.settings) as redis:
        return list(await MessageLog(redis, log.prefix, TERMS).read(RUN, None))


def test_a_claim_is_denied_while_its_lease_is_alive(log: Log) -> None:
    log.begin(1)
    assert log.claim(0) == (1,)
    assert log.claim(0) == (0,)
    assert log.state()["running"] == "1"


def test_who_has_claimed_a_call_gets_it_again_under_the_same_number(log: Log) -> None:
    log.begin(1)
    assert [log.claim(0, owner="me"), log.claim(0, owner="me"), log.claim(0, owner="you")] == [(1,), (1,), (0,)]
    assert log.state()["running"] == "1"


def test_only_the_sweep_says_that_a_call_is_lost(log: Log) -> None:
    log.begin(1)
    log.claim(0)
    log.lease(None, 0, 1)
    assert log.claim(0) == (0,)
    log.note("lost:1:0:")
    advance = log.advance(claims=[Claim(0, 30)])
    assert (advance.attempts, advance.failures, advance.repeated) == ((2,), (0,), (True,))


def test_a_failed_attempt_rests_until_it_is_due(log: Log) -> None:
    log.begin(1)
    log.claim(0)
    advance = log.advance(rests=[Rest(0, 1, 60)], claims=[Claim(0, 30)])
    assert (advance.attempts, log.state()["running"], log.state()["between"]) == ((0,), "0", "1")
    due: Any = log.redis.zscore(log.keys.leases, "\x1f0")
    assert 55_000 < due - log.redis.time()[0] * 1000 <= 61_000
    assert log.entry() == f"retry:1:1:{due:.0f}"
    log.note("retry:1:1:1")
    advance = log.advance(claims=[Claim(0, 30)])
    assert (advance.attempts, advance.failures, advance.repeated) == ((2,), (1,), (False,))
    assert (log.state()["running"], log.state()["between"]) == ("1", "0")


def test_a_failed_attempt_is_counted_once_and_only_while_it_is_the_present_one(log: Log) -> None:
    log.begin(1)
    log.claim(0)
    for _ in range(2):
        log.advance(rests=[Rest(0, 1, 0)])
    log.claim(0)
    log.advance(rests=[Rest(0, 1, 0)])
    assert log.entry().startswith("running:2:1:")
    assert log.state()["running"] == "1"


def test_a_call_that_is_sent_stays_with_its_sender_and_is_counted_as_running(log: Log) -> None:
    log.begin(1)
    claims = [Claim(0, 30, "gpu")]
    assert [log.advance(claims=claims, owner=who).attempts for who in ("me", "me", "you")] == [(1,), (1,), (0,)]
    assert re.fullmatch(r"sent:1:0:me/\d{13}/gpu", log.entry())
    assert log.state()["running"] == "1"
    log.commit(done(0))
    assert (log.state()["running"], log.state()["status"]) == ("0", "completed")


def test_a_claim_whose_lease_was_swept_away_is_granted(log: Log) -> None:
    log.begin(1)
    log.claim(0)
    log.redis.delete(log.keys.leases)
    assert log.claim(0) == (2,)


def test_what_has_ended_cannot_be_claimed(log: Log) -> None:
    log.begin(2)
    log.claim(0)
    log.commit(done(0))
    assert log.claim(0, 1) == (0, 1)


def test_an_outcome_and_the_claim_of_what_follows_are_one_commit(log: Log) -> None:
    log.begin(2)
    log.claim(0)
    advance = log.advance(outcomes=[done(0)], claims=[Claim(0, 30), Claim(1, 30)], owner="me")
    assert (advance.accepted, advance.attempts) == ((True,), (0, 1))
    assert (log.entry(0), log.entry(1)) == ("done", "running:1:0:me")


@pytest.mark.parametrize("status", ["paused", "cancelled", "completed", "failed"])
def test_claims_are_denied_when_the_run_is_not_running(log: Log, status: str) -> None:
    log.begin(1, status=status)
    advance = log.advance(claims=[Claim(0, 30)])
    assert (advance.status, advance.attempts) == (status, (0,))
    assert not log.redis.exists(log.keys.calls)


def test_a_lane_that_is_left_while_the_run_is_paused_keeps_a_mark_without_a_published_task(log: Log) -> None:
    log.begin(1, status="paused")
    log.redis.zadd(log.keys.published, {"": 5})
    assert log.claim(0) == (0,)
    assert log.redis.zscore(log.keys.published, "") == 0


def test_what_is_sent_and_forgotten_begins_with_its_outcome_and_so_not_while_the_run_is_paused(log: Log) -> None:
    sending = {0: TaskMessage("acts.execute_background", "background", b"\x80", "-", is_forgotten=True)}
    sent = Outcome(0, Status.SENT)
    log.begin(1, status="paused")
    assert log.advance(outcomes=[sent], sendings=sending).accepted == (False,)
    assert not log.redis.exists(log.keys.outbox, log.keys.outbox_tasks, log.keys.outbox_due)
    log.redis.hset(log.keys.state, "status", "running")
    assert log.advance(outcomes=[sent], sendings=sending).accepted == (True,)
    assert log.advance(outcomes=[sent], sendings=sending).accepted == (False,), "as it is sent once"
    assert log.redis.hlen(log.keys.outbox) == log.redis.hlen(log.keys.outbox_tasks) == 1
    assert log.state()["status"] == "completed"


def test_outcomes_come_in_while_the_run_is_paused_and_the_last_of_them_ends_it(log: Log) -> None:
    log.begin(2)
    log.claim(0, 1)
    log.redis.hset(log.keys.state, "status", "paused")
    assert (log.commit(done(0)).accepted, log.state()["status"]) == ((True,), "paused")
    assert (log.commit(done(1)).accepted, log.state()["status"]) == ((True,), "completed")


def test_a_call_that_has_not_begun_ends_by_a_decision_of_the_lane_as_it_is_and_not_while_the_run_is_paused(
    log: Log,
) -> None:
    skipped = Outcome(0, Status.SKIPPED)
    log.begin(2, status="paused")
    assert log.commit(skipped).accepted == (False,)
    log.redis.hset(log.keys.state, "status", "running")
    first = log.commit(done(1))
    assert first.accepted == (True,)
    assert log.commit(skipped, seen="0-0").accepted == (False,), "an amendment may have changed what it waits for"
    assert log.commit(skipped, seen=first.last_id).accepted == (True,)
    assert log.state()["status"] == "completed"


def test_what_was_decided_by_an_outcome_that_is_not_in_the_log_does_not_come_either(log: Log) -> None:
    log.begin(4)
    log.claim(0, 3)
    first = log.commit(done(0))
    log.claim(1)
    late = log.commit(Outcome(0, Status.FAILED), Outcome(1, Status.SKIPPED), done(3), seen="0-0", decided=[1])
    assert late.accepted == (False, False, True), "call 1 is at work, with what call 0 has written"
    assert log.entry(1).startswith("running:")
    assert not late.is_current
    assert log.commit(done(1), Outcome(2, Status.SKIPPED), decided=[2]).accepted == (True, True)
    assert first.accepted == (True,)


def test_a_cancelled_run_takes_no_outcome_and_parks_no_lane(log: Log) -> None:
    log.begin(2)
    log.claim(0)
    log.redis.hset(log.keys.state, "status", "cancelled")
    before = log.state()
    advance = log.commit(done(0), instance="①", park=True)
    assert (advance.status, advance.accepted) == ("cancelled", (False,))
    assert log.state() == before
    assert log.last("①") == "0-0"
    assert not log.redis.exists(log.keys.parked, log.keys.statuses)


def test_the_counters_tell_what_is_running_and_what_has_ended(log: Log) -> None:
    log.begin(5)
    log.claim(0, 1, 2)
    assert (log.state()["running"], log.state()["remaining"]) == ("3", "5")
    log.commit(done(0), Outcome(1, Status.FAILED), Outcome(3, Status.SKIPPED))
    state = log.state()
    assert (state["running"], state["remaining"]) == ("1", "2")
    assert {key: value for key, value in state.items() if key.startswith("n:")} == {
        "n:done": "1",
        "n:failed": "1",
        "n:skipped": "1",
    }


@pytest.mark.parametrize(
    ("last", "status"),
    [(Status.DONE, "completed"), (Status.SKIPPED, "completed"), (Status.SENT, "completed"), (Status.FAILED, "failed")],
)
def test_a_run_is_closed_once_by_its_last_call_with_the_right_status(log: Log, last: Status, status: str) -> None:
    log.begin(2)
    assert log.commit(done(0)).status == "running"
    assert log.statuses() == []
    assert log.commit(Outcome(1, last), instance="①").status == status
    log.commit(Outcome(1, last), instance="①")
    assert (log.statuses(), log.state()["status"]) == ([status], status)
    assert "finished" in log.state()


def test_a_run_with_a_failed_call_fails_whatever_comes_last(log: Log) -> None:
    log.begin(2)
    log.commit(Outcome(0, Status.FAILED))
    assert log.commit(done(1)).status == "failed"


def test_only_an_awaited_global_call_wakes_parked_lanes(log: Log) -> None:
    log.begin(9)
    log.advance("①", park=True)
    log.advance("②", park=True)
    assert log.redis.zrange(log.keys.parked, 0, -1) == ["①", "②"]
    assert log.commit(done(0), waking=[5]).woken == ()
    assert set(log.commit(done(5), waking=[5]).woken) == {"①", "②"}
    assert not log.redis.exists(log.keys.parked)
    assert log.commit(done(6), waking=[6]).woken == ()


def test_a_woken_lane_counts_as_published(log: Log) -> None:
    log.begin(2)
    log.advance("①", park=True)
    log.commit(done(0), waking=[0])
    seconds, _ = log.redis.time()
    due: Any = log.redis.zscore(log.keys.published, "①")
    assert seconds * 1000 < due <= (seconds + 61) * 1000


def test_a_lane_is_not_parked_when_something_has_come_meanwhile(log: Log) -> None:
    log.begin(9)
    old = log.last("①"), log.last(None)
    log.commit(done(0))
    advance = log.advance("①", seen=old[0], global_seen=old[1], park=True)
    assert (advance.is_current, advance.global_id) == (True, log.last(None))
    log.commit(done(1), instance="①")
    assert not log.advance("①", seen=old[0], park=True).is_current
    assert not log.redis.exists(log.keys.parked)


def test_a_caller_that_has_not_seen_everything_gets_an_answer_that_says_so(log: Log) -> None:
    log.begin(9)
    log.claim(2)
    first = log.commit(done(0))
    assert first.is_current
    second = log.commit(done(1), seen=first.last_id)
    assert second.is_current
    third = log.commit(done(2), seen=first.last_id)
    assert not third.is_current
    assert third.accepted == (True,)
    assert third.last_id == log.last(None)


def test_a_runner_that_takes_up_a_lanes_task_takes_away_the_mark_that_it_has_read(log: Log) -> None:
    log.begin(1)
    log.redis.zadd(log.keys.published, {"①": 5, "②": 5})
    log.advance("①", clears_mark=None)
    log.advance("①", clears_mark=4.0)
    assert log.redis.zrange(log.keys.published, 0, -1) == ["①", "②"], "marked anew since: somebody has to look again"
    log.advance("①", clears_mark=5.0)
    assert log.redis.zrange(log.keys.published, 0, -1) == ["②"]


def test_a_lane_that_is_taken_up_lets_others_out_once_a_tenth_of_the_window_is_free(log: Log) -> None:
    lanes = [f"i{number}" for number in range(WINDOW + 5)]
    log.begin(len(lanes))
    log.redis.zadd(log.keys.published, dict.fromkeys(lanes[:WINDOW], 10**15))
    log.redis.rpush(log.keys.backlog, *lanes[WINDOW:])
    let_out = [log.advance(lane).woken for lane in lanes[:6]]
    assert let_out == [(), ("i20", "i21"), (), ("i22", "i23"), (), ("i24",)]
    assert log.advance("i20").woken == log.advance("i21").woken == ()
    assert set(log.redis.zrange(log.keys.published, 0, -1)) == {*lanes[6:20], "i22", "i23", "i24"}


def test_a_task_that_is_not_marked_lets_no_lane_out(log: Log) -> None:
    log.begin(2)
    log.redis.rpush(log.keys.backlog, "①")
    assert log.advance("②").woken == ()


def test_a_paused_run_lets_no_lane_out(log: Log) -> None:
    log.begin(2, status="paused")
    log.redis.rpush(log.keys.backlog, "①")
    log.redis.zadd(log.keys.published, {"②": 1})
    assert log.advance("②").woken == ()
    assert log.redis.lrange(log.keys.backlog, 0, -1) == ["①"]


def test_woken_lanes_leave_through_the_window_and_each_wake_lets_them_out_once(log: Log) -> None:
    lanes = [f"i{number}" for number in range(WINDOW + 5)]
    log.begin(99)
    for lane in lanes:
        log.advance(lane, park=True)
    woken = log.commit(done(0), waking=[0]).woken
    assert len(woken) == WINDOW
    assert log.commit(done(1), waking=[1]).woken == (), "the window is full"
    later = [lane for woken_lane in woken for lane in log.advance(woken_lane, park=True).woken]
    assert sorted([*woken, *later]) == sorted(lanes)
    assert log.redis.zcard(log.keys.parked) == len(woken)
    assert set(log.commit(done(2), waking=[2]).woken) <= set(woken)


def test_a_driver_that_has_not_left_holds_a_lease_of_its_own(log: Log) -> None:
    log.begin(2)
    log.advance("①", owner="me", claims=[Claim(0, 30)], leaves=False)
    log.commit(done(0), instance="①", owner="me", leaves=False)
    assert log.redis.zrange(log.keys.leases, 0, -1) == ["①\x1f@me"]
    log.advance("①", owner="me")
    assert not log.redis.exists(log.keys.leases)


def test_a_driver_does_not_leave_what_it_has_not_seen(log: Log) -> None:
    log.begin(2)
    log.commit(done(0), instance="①")
    log.advance("①", owner="me", seen="0-0")
    assert log.redis.zrange(log.keys.leases, 0, -1) == ["①\x1f@me"]


def test_an_owner_that_asks_again_for_what_it_has_claimed_gets_it(log: Log) -> None:
    log.begin(1)
    assert log.claim(0, owner="me") == log.claim(0, owner="me") == (1,)


def test_nothing_is_written_for_a_run_that_is_gone(log: Log) -> None:
    advance = log.advance("①", outcomes=[done(0)], claims=[Claim(1, 30)], waking=[0], park=True)
    assert advance.status == "gone"
    assert list(log.redis.scan_iter(f"{log.prefix}:*")) == []


# What a commit leaves beside its outcomes (lua/commit.lua): leases, counters, holds, gather calls, a fault.

SHOWN = b"\x80"
"""An empty map (msgpack): the script does not read what a call is held with."""


@pytest.fixture
def log_commit_consequences(server: EmbeddedServer, request: pytest.FixtureRequest) -> Log:
    return Log(server, f"consequences.{abs(hash(request.node.name))}")


def test_a_call_that_a_child_run_is_to_answer_has_no_lease_and_its_child_is_known_until_it_has_ended(
    log_commit_consequences: Log,
) -> None:
    log_commit_consequences.begin(2)
    log_commit_consequences.claim(0)
    log_commit_consequences.advance(delegated=[Delegated(0, 1, "other")])
    assert log_commit_consequences.entry() == "child:1:0:other"
    assert log_commit_consequences.redis.smembers(log_commit_consequences.keys.children) == {"other"}
    assert not log_commit_consequences.redis.exists(log_commit_consequences.keys.leases)
    log_commit_consequences.commit(done(0))
    assert (
        log_commit_consequences.redis.smembers(log_commit_consequences.keys.children),
        log_commit_consequences.state()["running"],
    ) == (set(), "0")


def test_an_element_that_rests_is_not_counted_as_it_was_not_when_it_ran(log_commit_consequences: Log) -> None:
    log_commit_consequences.begin(2)
    log_commit_consequences.claim(0, element_index(1, 0))
    assert log_commit_consequences.state()["running"] == "1"
    log_commit_consequences.advance(rests=[Rest(element_index(1, 0), 1, 60)])
    assert log_commit_consequences.state()["running"] == "1"


def test_what_was_decided_beside_an_outcome_that_was_there_already_is_not_held(log_commit_consequences: Log) -> None:
    log_commit_consequences.begin(2)
    log_commit_consequences.commit(done(0))
    committed = log_commit_consequences.commit(done(0), holds=[Held(1, SHOWN)])
    assert (committed.accepted, committed.held) == ((False,), (False,))
    assert not log_commit_consequences.redis.exists(log_commit_consequences.keys.held)


def test_what_comes_of_a_call_that_waits_for_a_person_is_not_taken(log_commit_consequences: Log) -> None:
    log_commit_consequences.begin(1)
    assert log_commit_consequences.advance(holds=[Held(0, SHOWN)]).held == (True,)
    assert log_commit_consequences.commit(done(0)).accepted == (False,)
    assert log_commit_consequences.entry().startswith("held:0:0:")


def test_the_sweep_is_to_look_at_a_held_call_when_the_time_for_a_decision_is_over(log_commit_consequences: Log) -> None:
    log_commit_consequences.begin(1)
    log_commit_consequences.redis.hset(log_commit_consequences.keys.state, "approve_ms", 20_000)
    committed = log_commit_consequences.advance(holds=[Held(0, SHOWN)])
    held_ms: Any = log_commit_consequences.redis.zscore(log_commit_consequences.keys.held, "\x1f0")
    assert committed.due_ms == int(held_ms) + 20_000


def test_the_global_lane_is_woken_for_a_gather_call_by_the_last_lane_that_has_settled_it(
    log_commit_consequences: Log,
) -> None:
    log_commit_consequences.begin(3)
    log_commit_consequences.redis.hset(log_commit_consequences.keys.gathers, "2", 2)
    woken = [log_commit_consequences.commit(done(0), instance=name, settled=[2]).woken for name in ("①", "①", "②")]
    assert woken == [(), (), ("",)]


def test_an_output_that_can_be_read_in_the_end_is_no_fault_of_the_run(log_commit_consequences: Log) -> None:
    log_commit_consequences.begin(2)
    log_commit_consequences.commit(done(0), output_fault="it is not there")
    assert log_commit_consequences.state()["output_fault"] == "it is not there"
    log_commit_consequences.commit(done(1), output_fault="")
    assert log_commit_consequences.state()["status"] == "completed"


def test_r4_11_a_call_that_a_person_has_decided_on_is_claimed_by_those_who_have_read_that(log: Log) -> None:
    log.begin(1)
    log.claim(0)
    before = log.last(None)
    id_: Any = log.redis.xadd(log.keys.log, {"l": "", "p": before, "c": 0, "decided": "x"})
    log.redis.hset(log.keys.lanes, "", f"{id_}:1")
    log.note(f"decided:1:0:{id_}")
    asks = [Held(0, b"x", begun=1)]
    assert log.claim(0, seen=before) == (0,)
    assert log.advance(seen=before, holds=asks).held == (False,)
    assert log.claim(0) == (2,)


def test_r4_11_a_call_that_runs_at_most_once_and_was_lost_is_not_claimed_again(log: Log) -> None:
    log.begin(1)
    claims = [Claim(0, 30, begins=b"x")]
    assert log.advance(claims=claims).attempts == (1,)
    log.note("lost:1:0:")
    assert log.advance(claims=claims).attempts == (END_UNKNOWN - 1,)
    assert log.advance(holds=[Held(0, b"x", begun=2)]).held == (False,)
    assert log.advance(holds=[Held(0, b"x", begun=1)]).held == (True,)
    assert log.advance(claims=claims).attempts == (0,)
    assert log.state()["unknown"] == "1"


def test_r16_8_a_hold_that_was_decided_by_other_rules_is_decided_anew_and_a_ruled_call_waits_for_nobody(
    log: Log,
) -> None:
    log.begin(3)
    assert log.advance(holds=[Held(0, SHOWN, rules="")]).held == (True,)
    log.redis.hset(log.keys.state, "rules", "7-0")
    assert log.advance(holds=[Held(1, SHOWN, rules=""), Held(2, SHOWN)]).held == (False, True)
    assert log.advance(holds=[Held(1, SHOWN, rules="6-0", rule="6-0")]).held == (False,)
    assert log.advance(holds=[Held(1, SHOWN, rules="7-0", rule="5-0")]).held == (True,)
    assert log.redis.zrange(log.keys.held, 0, -1) == ["\x1f0", "\x1f2"]
    assert log.claim(1) == (1,)
