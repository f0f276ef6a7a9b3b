"""What the commands that serve do before that: they see who may enter, ask the log whether it answers, and write their
own to stderr.
"""

from __future__ import annotations

import logging
import secrets
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from .failures import REJECTED, Failed

if TYPE_CHECKING:
    from acts_celery.broker_config import Settings
    from acts_celery.broker_config.tokens import AccessToken, Right

_ASKED_SECONDS: Final = 3.0
_DAY_SECONDS: Final = 86_400


def ask_log(settings: Settings) -> None:
    """Raise what `InfrastructureError` says where the log, or the Redis that is read instead, does not answer."""
    from acts_celery.worker.storage.connections import connect_once, redis_errors

    for each in (settings, settings.for_reading):
        with (
            redis_errors(each),
            connect_once(each, each.require_redis(), timeout_seconds=_ASKED_SECONDS) as redis,
        ):
            redis.ping()


def made_token(
    settings: Settings,
    tokens: Sequence[AccessToken],
    rights: Iterable[Right],
    host: str,
    *,
    write: bool,
    variable: str,
    example: str,
) -> AccessToken | None:
    """A new token with these rights, for whoever has started the server; None where tokens are named. Raises `Failed`
    where a host that others reach has none, where --write would say something else than the named ones, and where
    their limits cannot be known.
    """
    from acts_celery.broker_config.tokens import AccessToken
    from acts_celery.worker.storage.audit import Actor
    from acts_celery.worker.web.listening import is_loopback

    if any(token.limits.are_of_a_day for token in tokens) and settings.retention_seconds < _DAY_SECONDS:
        text = (
            f"{variable} has limits of a day, and runs are kept for less: set ACTS_RETENTION_SECONDS to {_DAY_SECONDS}"
        )
        raise Failed(f"{text} or more", REJECTED)
    if tokens:
        if write:
            raise Failed(f"{variable} says who may do what: leave out --write", REJECTED)
        return None
    if not is_loopback(host):
        raise Failed(
            f"others reach {host}: say in {variable} who may enter, as {example} (python -c "
            "'import secrets; print(secrets.token_urlsafe())' makes a TOKEN), or leave out --host",
            REJECTED,
        )
    return AccessToken(Actor.of(settings).name, frozenset(rights), secrets.token_urlsafe(32), is_named=False)


def log_to_stderr(settings: Settings) -> None:
    """The audit trail, and whatever is wrong, as a worker writes its log."""
    from acts_celery.worker.process.log_lines import MaskedFormatter, json_formatter
    from acts_celery.worker.process.log_secrets import Masking

    as_json = settings.log_format == "json"
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    inner = json_formatter() if as_json else plain
    handler.setFormatter(MaskedFormatter(inner, Masking(settings), as_json=as_json))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("acts").setLevel(logging.INFO)
