"""Who speaks for the calls of a loop that a coroutine blocks."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from itertools import chain

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Limits
from acts_celery.worker.broker.attempts import Attempt, CallId
from acts_celery.worker.broker.messages import AttemptRef, Report
from acts_celery.worker.recovery.heartbeats import Heartbeat, Presence, ReportQueue
from acts_celery.worker.recovery.sidecar import LoopWatchdog
from acts_celery.worker.registry.activities import Policy
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.runner.calls import Threads, invoke
from acts_celery.worker.store.connections import connect
from acts_celery.worker.store.living import read_living

from .backend import DEADLINE_SECONDS, settings_apart

BLOCKING, BESIDE = Attempt(CallId("r", "①", 0)), Attempt(CallId("r", "②", 0))


class Loop:
    """An event loop in a thread, and a call on it that blocks it until it is let go."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self._begun, self._let_go = threading.Event(), threading.Event()

    async def _hold_up(self) -> None:
        self._begun.set()
        self._let_go.wait(DEADLINE_SECONDS)

    def block(self) -> None:
        working = invoke(
            self._hold_up, BLOCKING, name="holdUp", is_async=True, policy=Policy(), limits=Limits(), threads=Threads(1)
        )
        asyncio.run_coroutine_threadsafe(working, self.loop)
        assert self._begun.wait(DEADLINE_SECONDS)

    def let_go(self) -> None:
        self._let_go.set()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(DEADLINE_SECONDS)

    def end(self) -> None:
        self._let_go.set()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.end()


def test_a_loop_that_is_blocked_is_at_work_on_what_blocks_it_and_on_nothing_else(
    server: EmbeddedServer, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_apart(server, "watchdog")
    redis = connect(settings)
    watchdog = LoopWatchdog(loop.loop, most_silent_seconds=0)
    presence = Presence(redis, prefix="watchdog", lease_seconds=3600, on_cancelled=lambda run: None, watchdog=watchdog)
    presence.enter("r", "of ①")
    presence.enter("r", "of ②")

    def held() -> set[str]:
        """What counts as at work, now that the loop was asked before."""
        presence.beat()
        return set(read_living(redis, "watchdog", 60_000).holders["r"])

    loop.block()
    presence.beat()
    with caplog.at_level(logging.WARNING):
        assert held() == {BLOCKING.id.member}
    assert [record.getMessage()[:16] for record in caplog.records] == ["holdUp, call r:0"]
    assert watchdog.is_blocked, "so the process takes no more tasks"
    loop.let_go()
    assert not watchdog.is_blocked
    assert held() == {"of ①", "of ②"}


def test_a_loop_that_is_blocked_reports_what_blocks_it_and_no_other(server: EmbeddedServer, loop: Loop) -> None:
    settings = settings_apart(server, "watchdog-reports")
    reports = ReportQueue(make_client_application(settings), settings)
    watchdog = LoopWatchdog(loop.loop, most_silent_seconds=0)
    heartbeat = Heartbeat(reports, interval_seconds=3600, watchdog=watchdog)
    loop.block()

    async def work() -> None:
        async with heartbeat.at_work(BLOCKING), heartbeat.at_work(BESIDE):
            for _ in range(2):
                heartbeat.beat()

    asyncio.run(work())
    first, second = chain(*reports.pages())
    assert set(first.begun) == {AttemptRef.of(BLOCKING), AttemptRef.of(BESIDE)}
    assert second == Report(begun=(AttemptRef.of(BLOCKING),))
