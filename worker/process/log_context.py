"""Log lines say what they are about: `run=… instance=… call=…`, wherever a lane or a call is at work.

What activities, delegates and our own code log meanwhile is labelled, and what they print, which Celery sends to the
log. The handlers that Celery sets up show it. One of your own does with `handler.addFilter(AT_WORK)`: each record then
has `run`, `instance`, `call` (None where there is none) and `at_work`, their text.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from celery import Celery, signals

from acts_celery.worker.wire.attempts import current_attempt

_OURS: Final = "acts_celery."
_LONGEST: Final = 2_000
_lane: Final[ContextVar[tuple[str, str | None] | None]] = ContextVar("acts_lane", default=None)


@contextmanager
def lane_at_work(run: str, instance: str | None) -> Iterator[None]:
    """What is logged in the block, and in tasks that are begun in it, is about that lane."""
    token = _lane.set((run, instance))
    try:
        yield
    finally:
        _lane.reset(token)


class AtWork(logging.Filter):
    """Says of each record what was at work when it was made, and brings what is ours to one line.

    Our lines quote what comes from outside: names, what servers and models answer. None of it forges a line, steers a
    terminal or fills the log. What activities log is their own.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Label the record; none is left out."""
        if record.name.startswith(_OURS):
            record.msg, record.args = one_line(record.getMessage()), None
        attempt = current_attempt()
        call = attempt.id.index if attempt is not None else None
        run, instance = (attempt.id.run, attempt.id.instance) if attempt is not None else _lane.get() or (None, None)
        labels = {"run": run, "instance": instance, "call": call}
        shown = (f"{name}={_plain(str(value))} " for name, value in labels.items() if value is not None)
        record.__dict__.update({**labels, **record.__dict__, "at_work": "".join(shown)})
        return True


AT_WORK: Final = AtWork()


def one_line(text: str) -> str:
    """The text with what cannot be seen written as Python does in a string, and cut where it is long."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} … ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def label_logs(app: Celery) -> None:
    """Have the logs of the application's workers labelled."""
    for option in ("worker_log_format", "worker_task_log_format"):
        head, bracket, message = app.conf[option].partition("] ")
        app.conf[option] = f"{head}{bracket}%(at_work)s{message}"
    for signal in (signals.after_setup_logger, signals.after_setup_task_logger):
        signal.connect(_label, weak=False, dispatch_uid="acts-at-work")


def _label(logger: logging.Logger, **_: Any) -> None:
    for handler in logger.handlers:
        handler.addFilter(AT_WORK)


def _plain(text: str) -> str:
    """A name as it is where it is one word, else quoted: an instance's name must not forge a line."""
    return text if text.isprintable() and not set(text) & set(' "=') else json.dumps(text)
