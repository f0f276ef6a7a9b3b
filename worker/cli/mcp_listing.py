"""Asking MCP servers for their tools, for a command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from acts_celery.worker.errors import WorkerError

if TYPE_CHECKING:
    from acts_celery.broker_config import Settings
    from acts_celery.worker.mcp.declarations import Declaration


def listed(settings: Settings, names: Iterable[str]) -> dict[str, Mapping[str, Declaration] | WorkerError]:
    """What each of these servers lists, or why it does not; they are asked at the same time, and left again."""
    from acts_celery.worker.mcp.process import Connections

    asked = list(names)

    async def ask(connections: Connections, name: str) -> Mapping[str, Declaration] | WorkerError:
        try:
            return await connections.to(name).tools()
        except WorkerError as error:
            return error

    async def ask_all() -> list[Mapping[str, Declaration] | WorkerError]:
        connections = Connections(settings)
        try:
            return await asyncio.gather(*(ask(connections, name) for name in asked))
        finally:
            await connections.close()

    return dict(zip(asked, asyncio.run(ask_all()), strict=True))
