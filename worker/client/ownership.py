"""Ownership: whose a run is, where somebody submitted, forked or imported it with a token. It stands in the run's
state, for as long as the run is kept; ids are no rights.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.storage.child_links import PARENT, Parent
from acts_celery.worker.storage.keys import Keys
from acts_celery.worker.storage.owned_runs import OWNER

_DIGITS: Final = 32
_DEEPEST: Final = 100


def owner_of(redis: Redis, prefix: str, run: str) -> str | None:
    """The owner of a run; of a child run that of the run above it. None where there is none, or no such run. Raises
    `RedisError`.
    """
    for _ in range(_DEEPEST):
        fields: Any = redis.hmget(Keys(prefix, run).state, OWNER, PARENT)
        owner, parent = (field.decode() if field is not None else None for field in fields)
        if owner is not None or (above := Parent.read(parent)) is None:
            return owner
        run = above.call.run
    return None


def owner_fields(settings: Settings) -> dict[str, Any]:
    """The fields of the state of a run that begins under these settings: it belongs to who has shown a token."""
    return {OWNER: settings.identity.name} if settings.identity is not None else {}


def id_of_key(owner: str | None, key: str) -> str:
    """The id of the run that an owner submits under a key of its own: nobody else's key leads there."""
    return hashlib.sha256(json.dumps([owner, key]).encode()).hexdigest()[:_DIGITS]
