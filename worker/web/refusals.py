"""Refusals: what goes wrong in a request, as an answer in JSON with a status of HTTP.

A message is one of an error of ours, which says what to do. Nothing else is shown: what is unforeseen is in the
server's log alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from kombu.exceptions import OperationalError
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from acts_celery.broker_config import BrokerConfigError
from acts_celery.protocol.language.errors import ProtocolError
from acts_celery.worker.errors import (
    BadQuery,
    InfrastructureError,
    InstanceNotFound,
    NoLoop,
    NoSuchAnswer,
    NoSuchCall,
    NoSuchTick,
    NotPossibleNow,
    OverLimit,
    RunNotFound,
)

from .reading import encoded

logger = logging.getLogger("acts.web")


class Refused(Exception):
    """A request that is not answered, with the status of HTTP that says why."""

    def __init__(self, status: int, kind: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.kind = kind
        self.headers = dict(headers or {})
        super().__init__(message)


_STATUSES: Final[tuple[tuple[type[Exception], int], ...]] = (
    *((each, 404) for each in (RunNotFound, InstanceNotFound, NoSuchCall, NoSuchTick, NoLoop, NoSuchAnswer)),
    (OverLimit, 429),
    (NotPossibleNow, 409),
    *((each, 400) for each in (BadQuery, ProtocolError)),
    (InfrastructureError, 503),
    (BrokerConfigError, 503),
)
"""The first that an error is one of counts."""
_AGAIN_SECONDS: Final = 2


def refusal(error: Exception) -> Refused:
    """What is answered where an error was raised; what nobody has foreseen goes to the log."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, HTTPException):
        return Refused(error.status_code, "NoSuchAddress", "nothing is answered at this address", error.headers)
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            again = {"Retry-After": str(_AGAIN_SECONDS)} if status == 503 else None
            return Refused(status, type(error).__name__, str(error), again)
    if isinstance(error, RedisError | OperationalError | TimeoutError):
        logger.warning("a server does not answer: %s", error)
        text = "a server does not answer, the log or the broker: see `acts doctor`"
        return Refused(503, "InfrastructureError", text, {"Retry-After": str(_AGAIN_SECONDS)})
    logger.error("a request has failed", exc_info=error)
    return Refused(500, "Bug", "this is a bug of acts-celery: the log of the server has what is needed to mend it")


def document(refused: Refused) -> dict[str, Any]:
    """The body of a refusal."""
    return {"error": {"type": refused.kind, "message": str(refused)}}


def response(refused: Refused) -> Response:
    """A refusal as an answer."""
    return Response(encoded(document(refused)), refused.status, refused.headers, "application/json")
