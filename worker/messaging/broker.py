"""The broker's failures: reported as errors of ours, and outlasted where nothing may get lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kombu.exceptions import KombuError, OperationalError
from kombu.utils.functional import retry_over_time
from redis.exceptions import RedisError

from acts_celery.worker.errors import InfrastructureError

_TRIES: Final = 120


@contextmanager
def broker_failures(what: str) -> Iterator[None]:
    """Turn what the broker's client raises into an `InfrastructureError` that begins with `what`."""
    try:
        yield
    except (KombuError, OperationalError, RedisError, OSError) as error:
        raise InfrastructureError(f"{what}: {error}") from error


def retry_while_unavailable(act: Callable[[], None]) -> None:
    """Do something again while the broker is away or full, for some minutes. Raises `InfrastructureError`."""
    retry_over_time(act, InfrastructureError, max_retries=_TRIES, interval_start=0.1, interval_step=0.2, interval_max=5)
