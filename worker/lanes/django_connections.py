"""Django's database connections: those that are unusable or too old are closed around each attempt, as Django does
around each request. Django is not imported for it: it has to be set up by the activities.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any, Final

logger = logging.getLogger(__name__)

_closing: Final[set[asyncio.Task[None]]] = set()


def close_old_connections() -> None:
    """Close those of this thread, where Django is set up."""
    close = _close_of_django()
    if close is None:
        return
    try:
        close()
    except Exception:
        logger.exception("Django's database connections cannot be closed")


async def close_old_async_connections() -> None:
    """Close those of the thread in which Django runs the queries of coroutines."""
    if (in_that_thread := _sync_to_async()) is not None:
        await in_that_thread(close_old_connections)()


def close_old_async_connections_later() -> None:
    """Close those of that thread when it is free; nobody waits for it."""
    if _sync_to_async() is not None:
        closing = asyncio.ensure_future(close_old_async_connections())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)


def _close_of_django() -> Callable[[], None] | None:
    conf, db = sys.modules.get("django.conf"), sys.modules.get("django.db")
    if db is None or conf is None or not conf.settings.configured:
        return None
    close: Callable[[], None] | None = getattr(db, "close_old_connections", None)
    return close


def _sync_to_async() -> Any:
    """What runs a function in the thread of the queries of coroutines, where Django is set up."""
    return sys.modules["asgiref.sync"].sync_to_async if _close_of_django() and "asgiref.sync" in sys.modules else None
