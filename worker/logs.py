"""Setting up the log of a worker: its handlers are those of Celery; what they write is labelled, and without secrets.

Handlers that somebody else has given the root logger are labelled, and write as they did.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from celery import Celery, signals
from celery.app.log import Logging
from celery.utils.log import ColorFormatter, LoggingProxy

from ..broker_config import Settings
from ..broker_config.addresses import MASK
from ..protocol.errors import json_text
from . import limits
from .broker.attempts import Attempt, TracePlace, current_attempt, place_of_run

# Log lines say what they are about: `run=… instance=… call=…`, wherever a lane or a call is at work.
#
# What activities, delegates and our own code log meanwhile is labelled, and what they print, which Celery sends to the
# log. The handlers that Celery sets up show it. One of your own does with `handler.addFilter(AT_WORK)`: each record
# then has the `LABELS` (None where there is none) and `at_work`, the text of those that are worth a person's while.

LABELS: Final = ("run", "instance", "call", "attempt", "trace")
_OURS: Final = "acts_celery."


class _Lane(NamedTuple):
    """The identity of a lane in the log, before any call of it is at work."""

    run: str
    instance: str | None
    trace: str | None = None
    """The place in a trace, packed as in `Attempt`; None where it was not read yet."""


_subject: Final[ContextVar[_Lane | Attempt | None]] = ContextVar("acts_subject", default=None)


@contextmanager
def lane_at_work(run: str, instance: str | None) -> Iterator[None]:
    """Label log lines in the block, and in tasks that begin in it, with a lane."""
    token = _subject.set(_Lane(run, instance))
    try:
        yield
    finally:
        _subject.reset(token)


def note_trace(trace: str) -> None:
    """Note the place in a trace of the run whose lane is at work here (see `Attempt`)."""
    if isinstance(found := _subject.get(), _Lane):
        _subject.set(found._replace(trace=trace))


def note_task(about: Attempt | tuple[str, str | None]) -> None:
    """Label this task's log lines from now on with a call or lane, including the line about its end."""
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
    if len(text) > limits.LONGEST_LOG_VALUE:
        text = f"{text[: limits.LONGEST_LOG_VALUE]} … ({len(text)} characters)"
    return escaped(text)


def escaped(text: str) -> str:
    """The text with what cannot be seen written as Python does in a string."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def shown_value(value: Any) -> str:
    """A value, quoted unless it is one word: an instance's name must not forge a line."""
    text = str(value)
    return text if text.isprintable() and not set(text) & set(' "=') else json.dumps(text)


# What no line of a log may show: passwords in addresses, and the keys and passwords of the settings.
#
# Errors of libraries and of activities quote addresses. So it is the whole line that is looked at, as it is written.

_PASSWORD: Final = re.compile(r"(?<=://)([^\s/@:\"'<>]*):[^\s/@\"'<>]+(?=@)")


class Masking:
    """Masks what is secret in texts."""

    def __init__(self, settings: Settings | None = None) -> None:
        known = settings.secrets() if settings is not None else frozenset()
        escaped = {json.dumps(secret)[1:-1] for secret in known}
        self._secrets = sorted(known | escaped, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without them."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return _PASSWORD.sub(rf"\1:{MASK}", text) if "://" in text and "@" in text else text


# How the lines of a worker's log are written (`ACTS_LOG_FORMAT`): for people, as Celery does, or as JSON, one a line.
#
# Celery's and kombu's lines, ours, and what activities log all go through the handlers that Celery sets up, so one
# formatter on these is enough. Where an activity's module uses structlog, what is logged with it goes the same way,
# unless that module has configured it.

_OF_STRUCTLOG: Final = "acts_given"
"""The attribute of a record with the values that were given to structlog."""
_OUR_FIELDS: Final = frozenset({"data", "at_work", _OF_STRUCTLOG, *LABELS})
"""The fields of records that are neither Python's own nor the caller's: Celery's `data`, and our labels."""
_OWN_FIELDS: Final = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName", *_OUR_FIELDS})


class MaskedFormatter(logging.Formatter):
    """Writes records as another formatter does, without what is secret. In lines for people nothing that a record holds
    begins a line: what has several, such as a traceback, goes on indented, and what cannot be seen is escaped.
    """

    def __init__(self, inner: logging.Formatter, masking: Masking, *, as_json: bool = False) -> None:
        super().__init__()
        self._inner = inner
        self._masking = masking
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """The line, or lines, of a record."""
        if self._as_json:
            return self._masking(self._inner.format(record))
        plain = copy(record)
        plain.msg, plain.args = _indented(record.getMessage()), ()
        plain.exc_info = plain.exc_text = plain.stack_info = None
        parts = [self._inner.format(plain)]
        if record.exc_info:
            parts.append(_indented("\n" + self.formatException(record.exc_info))[1:])
        if record.stack_info:
            parts.append(_indented("\n" + record.stack_info)[1:])
        return self._masking("\n".join(parts))


def _indented(text: str) -> str:
    """Lines of which all but the first are indented, with escapes for what cannot be seen."""
    return "\n  ".join(map(escaped, text.split("\n")))


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON document on one line: what every line has, what this one is about, what its caller
    has given.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        given = {name: value for name, value in vars(record).items() if name not in _OWN_FIELDS}
        given |= {name: value for name, value in vars(record).get(_OF_STRUCTLOG, {}).items() if name not in _OUR_FIELDS}
        document: dict[str, Any] = {
            "timestamp": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "event": record.getMessage(),
            **{name: value for name in LABELS if (value := getattr(record, name, None)) is not None},
            **{name: value for name, value in record.__dict__.items() if name not in _OWN_FIELDS},
            **{
                name: value for name, value in record.__dict__.get(_OF_STRUCTLOG, {}).items() if name not in _OUR_FIELDS
            },
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            document["stack"] = self.formatStack(record.stack_info)
        return json_text({name: _plain(value) for name, value in document.items()})


def take_in_structlog(*, as_json: bool) -> None:
    """Have what is logged with structlog go where all lines go; nothing where it is not used, or was configured."""
    if (structlog := sys.modules.get("structlog")) is None or structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.StackInfoRenderer(),
            _for_json if as_json else _for_people,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _for_people(_: Any, __: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """An event with its values behind it, as a message of the standard library."""
    given = {name: event.pop(name) for name in ("exc_info", "stack_info") if name in event}
    said = [str(event.pop("event", "")), *(f"{name}={shown_value(value)}" for name, value in event.items())]
    return (" ".join(said),), given


def _for_json(_: Any, __: str, event: MutableMapping[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """An event as a message of the standard library that holds its values."""
    given = {name: event.pop(name) for name in ("exc_info", "stack_info") if name in event}
    return (str(event.pop("event", "")),), {**given, "extra": {_OF_STRUCTLOG: dict(event)}}


def _plain(value: Any) -> Any:
    """A value as JSON has it; what JSON has not, as Python shows it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value if isinstance(value, float) and value - value == 0 else one_line(repr(value))


class PrintedLines(LoggingProxy):  # type: ignore[misc]  # celery has no types
    """Logs what is printed line by line: `print(a, b)` writes four pieces, which would be four lines of the log."""

    def __init__(self, logger: logging.Logger, loglevel: Any = None) -> None:
        super().__init__(logger, loglevel)
        self._begun = threading.local()
        """The text of each thread that no end of a line has followed yet."""

    def write(self, data: str) -> int:
        """Log the lines that have ended."""
        text = getattr(self._begun, "text", "") + str(data)
        ended, newline, rest = text.rpartition("\n")
        if len(rest) > limits.LONGEST_LOG_VALUE:
            ended, newline, rest = text, "\n", ""
        self._begun.text = rest
        if newline:
            super().write(ended)
        return len(data)

    def flush(self) -> None:
        """Log what this thread has printed without the end of a line."""
        if rest := getattr(self._begun, "text", ""):
            self._begun.text = ""
            super().write(rest)


class _WorkerLogging(Logging):  # type: ignore[misc]  # celery has no types
    """Celery's setting up of logs, with whole lines of what is printed."""

    def redirect_stdouts_to_logger(
        self, logger: logging.Logger, loglevel: Any = None, stdout: bool = True, stderr: bool = True
    ) -> PrintedLines:
        proxy = PrintedLines(logger, loglevel)
        if stdout:
            sys.stdout = proxy
        if stderr:
            sys.stderr = proxy
        return proxy


_ID: Final = "acts-log"


def set_up_logs(app: Celery, settings: Settings) -> None:
    """Have the logs of the application's workers written so, once Celery sets them up."""
    app.log_cls = _WorkerLogging
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
            inner = JsonFormatter() if as_json else handler.formatter
            handler.setFormatter(MaskedFormatter(inner, masking, as_json=as_json))
    take_in_structlog(as_json=as_json)
