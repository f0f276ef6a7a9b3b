"""Setting up the log of a worker: its handlers are those of Celery; what they write is labelled, and without secrets.

Handlers that somebody else has given the root logger are labelled, and write as they did.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, Final

from celery import Celery, signals
from celery.utils.log import ColorFormatter

from acts_celery.broker_config import Settings

from .log_context import AT_WORK
from .log_lines import MaskedFormatter, json_formatter, take_in_structlog
from .log_secrets import Masking

_ID: Final = "acts-log"


def set_up_logs(app: Celery, settings: Settings) -> None:
    """Have the logs of the application's workers written so, once Celery sets them up."""
    for option in ("worker_log_format", "worker_task_log_format"):
        head, bracket, message = app.conf[option].partition("] ")
        app.conf[option] = f"{head}{bracket}%(at_work)s{message}"
    as_json = settings.log_format == "json"
    for signal in (signals.after_setup_logger, signals.after_setup_task_logger):
        signal.disconnect(dispatch_uid=_ID)
        listener = partial(_set_up, masking=Masking(settings), as_json=as_json)
        signal.connect(listener, weak=False, dispatch_uid=_ID)


def _set_up(logger: logging.Logger, masking: Masking, as_json: bool, **_: Any) -> None:
    for handler in logger.handlers:
        handler.addFilter(AT_WORK)
        if isinstance(handler.formatter, ColorFormatter):
            inner = json_formatter() if as_json else handler.formatter
            handler.setFormatter(MaskedFormatter(inner, masking, as_json=as_json))
    take_in_structlog(as_json=as_json)
