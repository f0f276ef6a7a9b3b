"""How the lines of a worker's log are written (`ACTS_LOG_FORMAT`): for people, as Celery does, or as JSON, one a line.

Celery's and kombu's lines, ours, and what activities log all go through the handlers that Celery sets up, so one
formatter on these is enough. structlog writes the JSON; it is loaded only for that, or where an activity's module uses
it: what is logged with it goes the same way then, unless that module has configured it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from copy import copy
from datetime import UTC, datetime
from typing import Any, Final

from acts_celery.protocol.language.visible import json_text

from .log_context import LABELS, escaped, one_line, shown_value
from .log_secrets import Masking

_OURS: Final = frozenset({"data", "at_work", *LABELS})
"""What records have beside what their caller has given: Celery's `data`, and our labels."""


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


def json_formatter() -> logging.Formatter:
    """Writes a record as one JSON document on one line."""
    import structlog

    return structlog.stdlib.ProcessorFormatter(
        processors=[
            structlog.stdlib.ExtraAdder(),
            _in_order,
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(serializer=_serialized),
        ],
    )


def take_in_structlog(*, as_json: bool) -> None:
    """Have what is logged with structlog go where all lines go; nothing where it is not used, or was configured."""
    if (structlog := sys.modules.get("structlog")) is None or structlog.is_configured():
        return
    wrap = structlog.stdlib.ProcessorFormatter.wrap_for_formatter
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.processors.StackInfoRenderer(),
            wrap if as_json else _for_people,
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


def _in_order(_: Any, __: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """What every line has, then what this one is about, then what its caller has given."""
    record: logging.LogRecord = event["_record"]
    moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    labels = {name: value for name in LABELS if (value := getattr(record, name, None)) is not None}
    return {
        "timestamp": moment.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "process": record.process,
        "event": event.pop("event", ""),
        **labels,
        **{name: value for name, value in event.items() if name not in _OURS},
    }


def _serialized(document: Mapping[str, Any], **_: Any) -> str:
    return json_text({name: _plain(value) for name, value in document.items()})


def _plain(value: Any) -> Any:
    """A value as JSON has it; what JSON has not, as Python shows it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value if isinstance(value, float) and value - value == 0 else one_line(repr(value))
