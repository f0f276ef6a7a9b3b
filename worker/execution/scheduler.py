"""The scheduler: takes up lanes when a task says so, and lets a `LaneRunner` do what can be done there.

There is one drive for a lane in a process. What comes for a lane that is being driven - a remote result, a wake-up - is
handed to its drive. A lane that was left stays in memory for a while: the next remote result needs to read only what
has come since. A task that drives a lane reads all of it, since it may come from the sweep, after calls were lost.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

from worker.errors import OtherFormat
from worker.messaging.messages import Delivery
from worker.storage.lane import LaneView, RunGone

from .lane_runner import LaneRunner
from .services import Services
from .views import Views

logger = logging.getLogger(__name__)

LaneId = tuple[str, str | None]
_MOST_LEFT: Final = 256


class Scheduler:
    """Drives any number of lanes concurrently, all on one event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._views = Views(services.log)
        self._drives: dict[LaneId, LaneRunner] = {}
        self._left: OrderedDict[LaneId, LaneView] = OrderedDict()

    async def drive(self, run: str, instance: str | None) -> None:
        """Do everything in a lane that can be done now."""
        drive = self._drives.get((run, instance))
        if drive is not None:
            drive.look_again()
        else:
            self._left.pop((run, instance), None)
            await self._begin((run, instance), None)

    async def deliver(self, delivery: Delivery) -> None:
        """Commit the result of a remote call, and see to it that its lane goes on."""
        lane = delivery.attempt.id.run, delivery.attempt.id.instance
        while (drive := self._drives.get(lane)) is not None:
            if await drive.deliver(delivery):
                return
        await self._begin(lane, delivery)

    def cancel(self, run: str) -> None:
        """A run was cancelled: nobody drives it any more."""
        for (driven, _), drive in self._drives.items():
            if driven == run:
                drive.stop()

    async def _begin(self, lane: LaneId, delivery: Delivery | None) -> None:
        """Run a lane until nothing more can be done here."""
        try:
            drive = LaneRunner(self._services, await self._open(lane))
            if delivery is not None:
                drive.deliver(delivery)
            self._drives.setdefault(lane, drive)
            try:
                self._leave(lane, await drive.run())
            finally:
                if self._drives.get(lane) is drive:
                    del self._drives[lane]
        except RunGone:
            logger.warning("run %s is not in the log (any more): its task is dropped", lane[0])
        except OtherFormat as error:
            logger.warning("run %s is left to other workers: %s", lane[0], error)

    async def _open(self, lane: LaneId) -> LaneView:
        left = self._left.pop(lane, None)
        if left is not None and await left.catch_up(self._services.log):
            return left
        run, instance = lane
        return await LaneView.open(self._services.log, await self._views.run(run), instance)

    def _leave(self, lane: LaneId, view: LaneView) -> None:
        if not view.execution.is_finished:
            self._left[lane] = view
            while len(self._left) > _MOST_LEFT:
                self._left.popitem(last=False)
