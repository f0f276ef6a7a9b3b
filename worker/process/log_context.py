"""Log lines say what they are about: `run=… instance=… call=…`, wherever a lane or a call is at work.

What activities, delegates and our own code log meanwhile is labelled, and what they print, which Celery sends to the
log. The handlers that Celery sets up show it. One of your own does with `handler.addFilter(AT_WORK)`: each record then
has the `LABELS` (None where there is none) and `at_work`, the text of those that are worth a person's while.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from acts_celery.worker.wire.attempts import Attempt, current_attempt
from acts_celery.worker.wire.traces import TracePlace, place_of_run

LABELS: Final = ("run", "instance", "call", "attempt", "trace")
_OURS: Final = "acts_celery."
_LONGEST: Final = 2_000


class _Lane(NamedTuple):
    """What a lane is known by, before any call of it is at work."""

    run: str
    instance: str | None
    trace: str | None = None
    """As in `Attempt`; None where it was not read yet."""


_subject: Final[ContextVar[_Lane | Attempt | None]] = ContextVar("acts_subject", default=None)


@contextmanager
def lane_at_work(run: str, instance: str | None) -> Iterator[None]:
    """What is logged in the block, and in tasks that are begun in it, is about that lane."""
    token = _subject.set(_Lane(run, instance))
    try:
        yield
    finally:
        _subject.reset(token)


def note_trace(trace: str) -> None:
    """The run of the lane that is at work here stands there in a trace (see `Attempt`)."""
    if isinstance(found := _subject.get(), _Lane):
        _subject.set(found._replace(trace=trace))


def note_task(about: Attempt | tuple[str, str | None]) -> None:
    """What is logged in this task from now on is about that call or lane, its end included."""
    _subject.set(about if isinstance(about, Attempt) else _Lane(*about))


class AtWork(logging.Filter):
    """Says of each record what was at work when it was made, and brings what is ours to one line.

    Our lines quote what comes from outside: names, what servers and models answer. None of it forges a line, steers a
    terminal or fills the log. What activities log is their own.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Label the record; none is left out."""
        if record.name.startswith(_OURS):
            record.msg, record.args = one_line(record.getMessage()), None
        labels = _labels(current_attempt() or _subject.get())
        shown = (f"{name}={shown_value(value)} " for name, value in labels.items() if _is_shown(name, value))
        record.__dict__.update({**labels, **record.__dict__, "at_work": "".join(shown)})
        return True


AT_WORK: Final = AtWork()


def _labels(about: _Lane | Attempt | None) -> dict[str, Any]:
    if about is None:
        return dict.fromkeys(LABELS)
    if isinstance(about, Attempt):
        id_ = about.id
        return {
            "run": id_.run,
            "instance": id_.instance,
            "call": id_.index,
            "attempt": about.number,
            "trace": _trace(id_.run, about.trace),
        }
    trace = _trace(about.run, about.trace) if about.trace is not None else None
    return {"run": about.run, "instance": about.instance, "call": None, "attempt": None, "trace": trace}


def _trace(run: str, packed: str) -> str:
    return (TracePlace.unpack(packed) or place_of_run(run)).trace


def _is_shown(name: str, value: Any) -> bool:
    """Whether a person reads it: the first attempt goes without saying, and a trace has no place in a line."""
    return value is not None and name != "trace" and not (name == "attempt" and value == 1)


def one_line(text: str) -> str:
    """The text with what cannot be seen written as Python does in a string, and cut where it is long."""
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} … ({len(text)} characters)"
    return escaped(text)


def escaped(text: str) -> str:
    """The text with what cannot be seen written as Python does in a string."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shown_value(value: Any) -> str:
    """A value as it is where it is one word, else quoted: an instance's name must not forge a line."""
    text = str(value)
    return text if text.isprintable() and not set(text) & set(' "=') else json.dumps(text)
