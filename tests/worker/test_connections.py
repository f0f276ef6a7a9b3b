"""Connections to the log: as many as there are lanes at work in one process (`ACTS_CONCURRENCY`)."""

from __future__ import annotations

import asyncio

from broker_config import EmbeddedServer
from worker.connections import connect_async
from worker.log import MessageLog

from .backend import settings_for


def test_as_many_lanes_as_a_worker_has_threads_can_read_at_once(server: EmbeddedServer) -> None:
    settings = settings_for(server)

    async def read() -> list[object]:
        async with connect_async(settings) as redis:
            log = MessageLog(redis, prefix="crowd", published_seconds=60, window=500, lease_seconds=30)
            reads = (log.read("none", f"i{n}") for n in range(settings.concurrency))
            return list(await asyncio.gather(*reads, return_exceptions=True))

    assert asyncio.run(read()) == [[]] * settings.concurrency
