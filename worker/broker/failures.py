"""The broker's failures: reported as errors of ours, and outlasted where nothing may get lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kombu.exceptions import KombuError, OperationalError
from kombu.utils.functional import retry_over_time
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from acts_celery.worker.errors import InfrastructureError, QueueRefused

_TRIES: Final = 120


_SILENT: Final = "it does not answer; RabbitMQ takes nothing while it is short of memory or disk (rabbitmqctl status)"


@contextmanager
def broker_failures(what: str) -> Iterator[None]:
    """Turn what the broker's client raises into an `InfrastructureError` that begins with `what`.

    What will be refused again is a `QueueRefused`.
    """
    try:
        yield
    except (KombuError, OperationalError, RedisError, OSError) as error:
        kind = QueueRefused if any(map(_is_permanent, _causes(error))) else InfrastructureError
        raise kind(f"{what}: {str(error) or _SILENT}") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it comes from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_permanent(error: BaseException) -> bool:
    """Whether Redis says that the user may not write the key, or that it holds something else."""
    return isinstance(error, NoPermissionError) or (
        isinstance(error, ResponseError) and str(error).startswith(("WRONGTYPE", "NOPERM"))
    )


def retry_while_unavailable(act: Callable[[], None]) -> None:
    """Do something again while the broker is away or full, for some minutes. Raises `InfrastructureError`."""
    retry_over_time(act, InfrastructureError, max_retries=_TRIES, interval_start=0.1, interval_step=0.2, interval_max=5)
