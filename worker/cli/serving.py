"""What the commands that serve do before that: they ask the log whether it answers, and write their own to stderr."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from acts_celery.broker_config import Settings

_ASKED_SECONDS: Final = 3.0


def ask_log(settings: Settings) -> None:
    """Raise what `InfrastructureError` says where the log, or the Redis that is read instead, does not answer."""
    from acts_celery.worker.storage.connections import connect_once, redis_errors

    for each in (settings, settings.for_reading):
        with (
            redis_errors(each),
            connect_once(each, each.require_redis(), timeout_seconds=_ASKED_SECONDS) as redis,
        ):
            redis.ping()


def log_to_stderr(settings: Settings) -> None:
    """The audit trail, and whatever is wrong, as a worker writes its log."""
    from acts_celery.worker.process.log_lines import MaskedFormatter, json_formatter
    from acts_celery.worker.process.log_secrets import Masking

    as_json = settings.log_format == "json"
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskedFormatter(json_formatter() if as_json else plain, Masking(settings)))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("acts").setLevel(logging.INFO)
