"""The log's secret: made by the first process that needs it, and the same for all from then on."""

from __future__ import annotations

import secrets
from typing import Any, Final

from redis import Redis

from acts_celery.worker.wire.tokens import Tokens

from .keys import secret

_BYTES: Final = 32


def new_secret() -> bytes:
    """Bytes that cannot be guessed."""
    return secrets.token_bytes(_BYTES)


def read_tokens(redis: Redis, prefix: str) -> Tokens:
    """The tokens of a backend. Raises `RedisError`."""
    key = secret(prefix)
    found: Any = redis.get(key)
    if found is None:
        redis.setnx(key, new_secret())
        found = redis.get(key)
    return Tokens(found)
