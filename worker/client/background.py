"""What runs have sent and not awaited (SPEC R5.1): how it stands, and waiting for it on a backend about to be ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.errors import InfrastructureError
from acts_celery.worker.storage.connections import connect
from acts_celery.worker.storage.dead_letters import DeadLetter, DeadLetters
from acts_celery.worker.storage.keys import Keys, active_runs

LONGEST_SECONDS: Final = 600.0
"""How long is waited where no deadline is given: a call without a time limit might never end."""
_QUIET_SECONDS: Final = 3.0
_LONGEST_WAIT_SECONDS: Final = 10.0
"""Less than a connection waits for an answer."""


@dataclass(frozen=True, slots=True)
class Background:
    """How many of the calls, and elements, that a run has sent and not awaited stand how."""

    outstanding: int
    done: int
    dead: int

    def to_dict(self) -> dict[str, int]:
        """As JSON."""
        return asdict(self)


def read_background(redis: Redis, keys: Keys) -> Background | None:
    """How it stands now; None where nothing was sent. Raises `RedisError`."""
    with redis.pipeline(transaction=True) as pipeline:
        pipeline.hget(keys.state, "sent")
        pipeline.hlen(keys.outbox)
        pipeline.scard(keys.dead_calls)
        sent, outstanding, dead = pipeline.execute()
    if sent is None:
        return None
    return Background(outstanding, max(0, int(sent) - outstanding - dead), dead)


def await_background(
    settings: Settings, deadline: float | None, say: Callable[[str], None] = lambda _: None
) -> Sequence[DeadLetter]:
    """Wait until everything sent and not awaited is done or dead; returns what is dead.

    Waits until `deadline` (of `time.monotonic`), and says after some seconds what it waits for. Blocks on an event of
    the server's for each look at the outboxes. Raises `InfrastructureError` where time is over or the server is gone.
    """
    from redis.exceptions import RedisError

    begun = time.monotonic()
    until = begun + LONGEST_SECONDS if deadline is None else deadline
    has_said = False
    try:
        with connect(settings) as redis, redis.pubsub() as changes:
            redis.config_set("notify-keyspace-events", "Khg")
            changes.psubscribe(f"__keyspace@0__:{Keys(settings.key_prefix, '*').outbox}")
            while left := _pending(redis, settings.key_prefix):
                now = time.monotonic()
                if now >= until:
                    raise InfrastructureError(
                        f"{left} calls that were sent and forgotten were not done in time; they end now, with the "
                        f"embedded backend"
                    )
                if now - begun >= _QUIET_SECONDS and not has_said:
                    has_said = True
                    say(f"waiting for {left} calls that were sent and not awaited")
                patience = _LONGEST_WAIT_SECONDS if has_said else _QUIET_SECONDS
                changes.get_message(timeout=min(until - now, patience))
            return DeadLetters(redis, settings).list()
    except RedisError as error:
        raise InfrastructureError(f"the embedded server ended: {error}") from error


def _pending(redis: Any, prefix: str) -> int:
    """How many calls lie in the outboxes of runs."""
    runs = redis.zrange(active_runs(prefix), 0, -1)
    return sum(redis.hlen(Keys(prefix, run.decode()).outbox) for run in runs)
