"""What a task leaves in the worker's log: one line, when it has ended, with its run, instance and call.

Libraries that ask others over HTTP leave none there: theirs show addresses, which may hold a secret.
"""

from __future__ import annotations

import logging
from typing import Final

from celery.app import trace

# An instance's name must not forge a line.
_DONE: Final = "%(name)s %(args)r: done in %(runtime).3f s [%(id)s]"
_SHOW_ADDRESSES: Final = ("httpx", "httpx2", "openai", "anthropic")


def log_one_line_per_task() -> None:
    """Replace Celery's two lines, which do not say what a task is about. On the level DEBUG its first one stays."""
    trace.LOG_SUCCESS = _DONE
    if not trace.logger.isEnabledFor(logging.DEBUG):
        logging.getLogger("celery.worker.strategy").setLevel(logging.WARNING)


def hide_addresses() -> None:
    """Have no line made for each request over HTTP: the address of a web hook is a secret, that of a model may be."""
    for name in _SHOW_ADDRESSES:
        logging.getLogger(name).setLevel(logging.WARNING)
