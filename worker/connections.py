"""Connections to the log's Redis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import redis
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from broker_config import Settings, mask_url

from .errors import InfrastructureError

_OPTIONS: Final[dict[str, Any]] = {
    "socket_connect_timeout": 5,
    "socket_timeout": 30,  # longer than any of our blocking reads
    "health_check_interval": 15,
}


def connect(settings: Settings) -> redis.Redis:
    """A client for threads. Connects when it is first used."""
    return redis.Redis.from_url(settings.require_redis(), **_OPTIONS)


def connect_async(settings: Settings) -> redis.asyncio.Redis:
    """A client for an event loop. Connects when it is first used."""
    return redis.asyncio.Redis.from_url(settings.require_redis(), **_OPTIONS)


@contextmanager
def translated(settings: Settings) -> Iterator[None]:
    """Turn what the Redis client raises into an `InfrastructureError` that says what to do."""
    try:
        yield
    except (RedisConnectionError, RedisTimeoutError) as error:
        where = mask_url(settings.require_redis())
        raise InfrastructureError(
            f"no answer from the log at {where} ({error}): is the server up? see `acts doctor`"
        ) from error
    except RedisError as error:
        raise InfrastructureError(f"the log refuses: {error}") from error
