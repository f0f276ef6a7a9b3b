"""The driver: takes up lanes when a task says so, and lets a `Drive` do what can be done there."""

from __future__ import annotations

import logging

from .drive import Drive, Workshop
from .lane import LaneView, RunGone
from .messages import Delivery
from .views import Views

logger = logging.getLogger(__name__)


class Driver:
    """Drives any number of lanes concurrently, all on one event loop."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._views = Views(shop.log)

    async def drive(self, run: str, instance: str | None) -> None:
        """Do everything in a lane that can be done now."""
        await self._carry_on(run, instance, None)

    async def deliver(self, delivery: Delivery) -> None:
        """Commit the result of a remote call, and carry on with its lane."""
        await self._carry_on(delivery.id.run, delivery.id.instance, delivery)

    async def _carry_on(self, run: str, instance: str | None, delivery: Delivery | None) -> None:
        try:
            view = await self._views.run(run)
            lane = await LaneView.open(self._shop.log, view, instance)
            await Drive(self._shop, lane).run(delivery)
        except RunGone:
            logger.warning("run %s is not in the log (any more): its task is dropped", run)
