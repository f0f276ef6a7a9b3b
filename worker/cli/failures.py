"""Failures: what each error means for the exit code, and how it is told (SPEC R7.1).

Foreseen errors are told in one line each, a traceback only on request (`--debug`). Whatever else is raised is our own
fault and says so.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import click

from acts_celery.worker.errors import ActivitiesError, NotPossibleNow, WorkerError

from .output import OutputFailed, escaped, print_json, tell, write_error

COMPLETED: Final = 0
FAILED: Final = 1
REJECTED: Final = 2
UNAVAILABLE: Final = 3
NOT_POSSIBLE: Final = 4
INTERRUPTED: Final = 130
TERMINATED: Final = 143
NOBODY_READS: Final = 141

DEBUG: Final = "ACTS_DEBUG"
"""The environment variable that asks for tracebacks."""


_UNREADABLE: Final = re.compile("[\udc80-\udcff]")
"""What Python reads bytes of an argument as that are not UTF-8."""


class Failed(Exception):
    """A command that cannot go on: a line for people, and an exit code."""

    def __init__(self, message: str, code: int = UNAVAILABLE) -> None:
        self.code = code
        super().__init__(message)


class Doubted(Failed):
    """A submission with warnings, where none is admitted; `findings` as `acts check --json` prints them."""

    def __init__(self, message: str, findings: list[dict[str, Any]]) -> None:
        self.findings = findings
        super().__init__(message, REJECTED)


class Interrupted(Exception):
    """Ctrl-C; `remark` says what goes on all the same."""

    def __init__(self, remark: str = "") -> None:
        self.remark = remark
        super().__init__("interrupted")


def report(error: BaseException) -> int:
    """Tell of an error on stderr and return the exit code it means."""
    if isinstance(error, OutputFailed) and error.is_closed:
        return NOBODY_READS
    if os.environ.get(DEBUG):
        write_error("".join(traceback.format_exception(error)))
    code, lines = explain(error)
    excerpts = _excerpts(error)
    for number, line in enumerate(lines):
        tell(line)
        if number < len(excerpts) and (excerpt := excerpts[number]):
            write_error("".join(f"    {escaped(row)}\n" for row in excerpt.split("\n")))
    return code


def explain(error: BaseException) -> tuple[int, list[str]]:
    """The exit code of an error, and its lines."""
    match error:
        case Interrupted():
            return INTERRUPTED, ["interrupted" + (f": {error.remark}" if error.remark else "")]
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED, ["interrupted"]
        case Failed():
            return error.code, [str(error)]
        case click.UsageError():
            return REJECTED, [_usage(error)]
        case click.ClickException():
            return REJECTED, [error.format_message()]
        case OutputFailed():
            return UNAVAILABLE, [str(error)]
        case ActivitiesError():
            return REJECTED, [str(error)]
        case NotPossibleNow():
            return NOT_POSSIBLE, [str(error)]
        case WorkerError():
            return UNAVAILABLE, [str(error)]
    return _explain_foreign(error)


@dataclass(slots=True)
class Answer:
    """Whether a command has written its document."""

    is_given: bool = False


@contextmanager
def documented(*, as_json: bool, has_status: bool) -> Iterator[Answer]:
    """Write an error as a document too, where machine output is asked for and none was written.

    It has a `status` where the command's own document has one.
    """
    answer = Answer()
    try:
        yield answer
    except Exception as error:
        if as_json and not answer.is_given and not isinstance(error, OutputFailed):
            is_rejected = _is_rejection(error) or isinstance(error, Doubted)
            status = {"status": "rejected" if is_rejected else "error"} if has_status else {}
            print_json(status | _document(error))
        raise


def rejection(error: Any) -> dict[str, Any]:
    """A `protocol.Rejected` as `acts check --json` prints it."""
    errors = [{"pointer": problem.pointer, "message": problem.message} for problem in error.errors]
    return {"valid": False, "errors": errors, "waves": [], "findings": []}


def _document(error: Exception) -> dict[str, Any]:
    """An error in the shape of `acts check --json`."""
    if isinstance(error, Doubted):
        return {"valid": True, "errors": [], "waves": [], "findings": error.findings}
    return rejection(error) if _is_rejection(error) else _unknown(error)


def _unknown(error: BaseException) -> dict[str, Any]:
    """An error in the shape of a rejection, where it is not known whether the submission is valid."""
    errors = [{"pointer": "", "message": line} for line in explain(error)[1]]
    return {"valid": None, "errors": errors, "waves": [], "findings": []}


def _is_rejection(error: BaseException) -> bool:
    loaded: Any = sys.modules.get("acts_celery.protocol")
    return loaded is not None and isinstance(error, loaded.Rejected)


def _excerpts(error: Any) -> list[str | None]:
    """For each line of a rejection the text with a caret, on a terminal only: elsewhere an error is one line."""
    stream = sys.__stderr__
    if not _is_rejection(error) or stream is None or not stream.isatty():
        return []
    return [problem.excerpt for problem in error.errors]


def _explain_foreign(error: BaseException) -> tuple[int, list[str]]:
    """Errors of packages that are heavy to import: only one that is loaded can have raised."""
    loaded: Mapping[str, Any] = sys.modules
    if (protocol := loaded.get("acts_celery.protocol")) and isinstance(error, protocol.Rejected):
        lines = [f"{problem.pointer}: {problem.message}".removeprefix(": ") for problem in error.errors]
        return REJECTED, [*lines, *_without_activities(lines)]
    if config := loaded.get("acts_celery.broker_config"):
        if isinstance(error, config.SettingsError):
            return REJECTED, list(error.problems)
        if isinstance(error, config.BrokerConfigError):
            return UNAVAILABLE, [str(error)]
    if (redis := loaded.get("redis.exceptions")) and isinstance(error, redis.RedisError):
        return UNAVAILABLE, [f"Redis: {error}: see `acts doctor`"]
    if (kombu := loaded.get("kombu.exceptions")) and isinstance(error, kombu.OperationalError):
        return UNAVAILABLE, [f"the broker does not answer: {error}: see `acts doctor`"]
    if isinstance(error, UnicodeEncodeError) and _UNREADABLE.search(error.object):
        return REJECTED, [f"{error.object!r} is not valid Unicode: arguments and variables are read as UTF-8"]
    place = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" at {place[0].filename}:{place[0].lineno}" if place else ""
    hint = "" if os.environ.get(DEBUG) else "; --debug shows where it comes from"
    return UNAVAILABLE, [f"this is a bug: {type(error).__name__}: {error}{where}{hint}"]


def _without_activities(lines: list[str]) -> list[str]:
    """Why every tool is unknown, where no activities were loaded."""
    activities: Any = sys.modules.get("acts_celery.worker.registry.activities")
    known = activities.registry if activities is not None else None
    named = [line for line in lines if "acts mcp admit" not in line]
    is_unknown = any(word in line for line in named for word in ("unknown tool", "unknown delegate"))
    if known is None or known.activities or known.delegates or not is_unknown:
        return []
    loading: Any = sys.modules.get("acts_celery.worker.registry.loading")
    if loading is not None and loading.loaded:
        names = ", ".join(loading.loaded)
        return [f"{names} registers no activity: put @activity (from acts_celery import activity) above its functions"]
    return ["no activities are loaded: name them with --activities FILE.py or in ACTS_ACTIVITIES"]


def _usage(error: click.UsageError) -> str:
    command = error.ctx.command_path if error.ctx is not None else "acts"
    message = error.format_message().rstrip(".")
    return f"{message} (see `{command} --help`)"
