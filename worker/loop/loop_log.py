"""A loop's log as its runner writes it: steps, and claims of its requests (see lua/loop.lua and lua/commit.lua)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from acts_celery.worker.lanes.services import Services
from acts_celery.worker.storage.commits import Claim, Commit, Committed, Rest
from acts_celery.worker.storage.lane import RunGone
from acts_celery.worker.storage.loop_entries import LOOP, LoopStep
from acts_celery.worker.wire.attempts import owner_token
from acts_celery.worker.wire.task_messages import lane_task

from .loop_view import LoopView


class LoopLog:
    """What one runner writes into the log of its loop. All of it raises `RunGone`."""

    def __init__(self, services: Services, view: LoopView) -> None:
        self._services = services
        self._view = view
        self._owner = owner_token()
        self._mark: float | None = None
        """Of the published task: the loop is found by the sweep until it is taken back (see commit.lua)."""
        self._refused: tuple[str, str] | None = None
        """The last id and the stage by which a step was decided that was refused."""
        self._now_ms = 0
        """The server's time at the last look, where the loop's time is limited."""
        self.has_alarm = False
        """Whether the loop is looked at again when its time is over."""
        self.has_left = False
        """Whether the mark was taken back, and nothing has come since."""
        self.next_lane: str | None = None
        """The lane that goes on when this one is left, in the same task: one that is woken alone needs no message."""

    @property
    def ran_seconds(self) -> float:
        """How long the run has been running."""
        return self._view.ran_seconds(self._now_ms)

    @property
    def is_refused(self) -> bool:
        """Whether the last step was refused, though nothing has come since: another one would be, too."""
        return self._refused == (self._view.seen, self._view.loop.name)

    def try_again(self) -> None:
        """What refused the last step may be over."""
        self._refused = None

    async def read(self, *, is_told: bool) -> None:
        """Take in what the log says; `is_told` where a task says that there is something to do, which has a mark."""
        log, view = self._services.log, self._view
        if is_told:
            self.has_left, self.has_alarm = False, False
            self._mark, _ = await asyncio.gather(log.mark(view.run, LOOP), view.catch_up(log))
        else:
            await view.catch_up(log)
        if view.limits.seconds is not None:
            self._now_ms = await log.now_ms()

    def begin(self) -> LoopStep:
        """A step by what is known now."""
        step = LoopStep(self._view.loop, self._view.seen)
        if (most := self._view.limits.seconds) is not None:
            step.alarm_ms, self.has_alarm = self._now_ms + math.ceil(max(most - self.ran_seconds, 0) * 1000), True
        return step

    async def take(self, step: LoopStep) -> bool:
        """Write a step down; says whether it was taken: the log was still as it had been read."""
        taken = await self._services.log.take_loop_step(self._view.run, step)
        if taken.status == "gone":
            raise RunGone(self._view.run)
        self._refused = None if taken.is_taken else (step.seen, step.loop.name)
        if taken.mark is not None:
            self._mark, self.has_left = taken.mark, False
        if len(taken.woken) == 1 and self.next_lane in (None, *taken.woken):
            (self.next_lane,) = taken.woken
        else:
            await self._publish(taken.woken)
        return taken.is_taken

    async def commit(
        self, *, claims: Sequence[Claim] = (), rests: Sequence[Rest] = (), leaves: bool = False
    ) -> Committed:
        """Claim, rest or leave."""
        view, mark = self._view, self._mark
        self._mark = None
        commit = Commit(
            instance=LOOP,
            seen=view.own_seen,
            global_seen=view.global_seen,
            owner=self._owner,
            claims=claims,
            rests=rests,
            leaves=leaves,
            takes_up=mark,
            status=view.status,
            born=view.born,
        )
        committed = await self._services.log.commit(view.run, commit)
        if committed.status == "gone":
            raise RunGone(view.run)
        is_fresh = committed.is_fresh and committed.global_id == view.global_seen
        self.has_left = leaves and is_fresh
        await self._publish(committed.woken)
        return committed._replace(is_fresh=is_fresh)

    async def _publish(self, lanes: Sequence[str]) -> None:
        if lanes:
            queue = self._services.settings.queue_instances
            await self._services.publish([lane_task(self._view.run, lane or None, queue) for lane in lanes])
