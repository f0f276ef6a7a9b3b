"""The options that every command takes, and the settings that follow from them."""

from __future__ import annotations

import logging
import os
import re
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from .. import limits
from ..errors import ActivitiesError, BadBody, NotPossibleNow, WorkerError
from .output import OutputFailed, escaped, nothing_on_stdout, print_either, print_json, tell, write_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...broker_config import Settings
    from ...protocol import Finding, Plan
    from ..actions import Action
    from ..client.client import Client
    from ..client.run import Run
    from ..client.submitting import Label


# Options that belong together: a command receives them as one value.

Command = Callable[..., int | None]
Decorator = Callable[[Command], Command]


def option(*names: str, **given: Any) -> Any:
    """Declare a field of a dataclass as an option of click, for `option_group`."""
    absent = False if given.get("is_flag") else () if given.get("multiple") else None
    return field(default=given.get("default", absent), metadata={"option": (names, given)})


def option_group(name: str, make: type, *others: Decorator) -> Decorator:
    """Return a decorator that gives a command the fields of a dataclass as options, and `others`; the command receives
    an object of the dataclass as `name`.
    """
    declared = [(each.name, *each.metadata["option"]) for each in fields(make) if "option" in each.metadata]
    options: tuple[Any, ...] = (*others, *(click.option(*names, own, **given) for own, names, given in declared))

    def of(command: Command) -> Command:
        @wraps(command)
        def with_value(**given: Any) -> int | None:
            own = {each: given.pop(each) for each in taken}
            return command(**given, **{name: make(**own)})

        before = len(getattr(with_value, "__click_params__", ()))
        decorated: Command = with_value
        for add in reversed(options):
            decorated = add(decorated)
        parameters: Any = getattr(decorated, "__click_params__", ())
        taken = [parameter.name for parameter in parameters[before:]]
        return decorated

    return of


def command(
    about: str | Action, name: str | None = None, *, into: click.Group | None = None
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Return a decorator that makes a command of a function, with the common options behind its own.

    `about` is the line in a list of commands, or the action that gives the command its name, line and help.
    """

    def of(function: Callable[..., int | None]) -> click.Command:
        own = list(getattr(function, "__click_params__", ()))
        whole: Any = common_options(function)
        whole.__click_params__ = [*whole.__click_params__[len(own) :], *own]
        if not isinstance(about, str):
            return click.command(about.name, short_help=about.summary, help=about.help)(whole)
        make: Any = into or click
        made: click.Command = make.command(name, short_help=about)(whole)
        return made

    return of


RUN: Final = click.argument("run", metavar="RUN")
WORDS: Final = "acts.words"
"""The key under which click's context has the words of the command line."""


# Failures: the exit code and the message of each error (SPEC R7.1).
#
# An expected error is one line, with a traceback only on request (`--debug`). Any other error is reported as a bug.

COMPLETED: Final = 0
FAILED: Final = 1
REJECTED: Final = 2
UNAVAILABLE: Final = 3
NOT_POSSIBLE: Final = 4
INTERRUPTED: Final = 130
TERMINATED: Final = 143

DEBUG: Final = "ACTS_DEBUG"
"""The environment variable that asks for tracebacks."""


_UNREADABLE: Final = re.compile("[\udc80-\udcff]")
"""The characters that Python puts in place of bytes of an argument that are not UTF-8."""


class Failed(Exception):
    """A command that cannot go on: a line for people, and an exit code."""

    def __init__(self, message: str, code: int = UNAVAILABLE) -> None:
        self.code = code
        super().__init__(message)


class WarningsRefused(Failed):
    """A submission was refused for its warnings; `findings` are as `acts check --json` prints them."""

    def __init__(self, message: str, findings: list[dict[str, Any]]) -> None:
        self.findings = findings
        super().__init__(message, REJECTED)


class Interrupted(Exception):
    """Ctrl-C was pressed; `remark` says what goes on nevertheless."""

    def __init__(self, remark: str = "") -> None:
        self.remark = remark
        super().__init__("interrupted")


def report(error: BaseException) -> int:
    """Write an error to stderr and return its exit code."""
    if isinstance(error, OutputFailed) and error.is_closed:
        return limits.NOBODY_READS
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
    """Return the exit code of an error, and its lines."""
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
        case ActivitiesError() | BadBody():
            return REJECTED, [str(error)]
        case NotPossibleNow():
            return NOT_POSSIBLE, [str(error)]
        case WorkerError():
            return UNAVAILABLE, [str(error)]
    return _explain_foreign(error)


@dataclass(slots=True)
class Answer:
    """Remembers whether a command has written its document."""

    is_given: bool = False


@contextmanager
def documented(*, as_json: bool, has_status: bool) -> Iterator[Answer]:
    """Write an error as a document too, if machine output is asked for and none was written.

    `has_status` says that the command's own document has a `status`; the error's then has one too.
    """
    answer = Answer()
    try:
        yield answer
    except Exception as error:
        if as_json and not answer.is_given and not isinstance(error, OutputFailed):
            is_rejected = _is_rejection(error) or isinstance(error, WarningsRefused)
            status = {"status": "rejected" if is_rejected else "error"} if has_status else {}
            print_json(status | _document(error))
        raise


def rejection(error: Any) -> dict[str, Any]:
    """Return a `protocol.Rejected` as `acts check --json` prints it."""
    errors = [problem.to_dict() for problem in error.errors]
    return {"valid": False, "errors": errors, "waves": [], "findings": []}


def _document(error: Exception) -> dict[str, Any]:
    """Return an error in the shape of `acts check --json`; `valid` is null if the submission was not checked."""
    if isinstance(error, WarningsRefused):
        return {"valid": True, "errors": [], "waves": [], "findings": error.findings}
    if _is_rejection(error):
        return rejection(error)
    errors = [{"pointer": "", "message": line} for line in explain(error)[1]]
    return {"valid": None, "errors": errors, "waves": [], "findings": []}


def _is_rejection(error: BaseException) -> bool:
    loaded: Any = sys.modules.get("acts_celery.protocol")
    return loaded is not None and isinstance(error, loaded.Rejected)


def _excerpts(error: Any) -> list[str | None]:
    """Return the text with a caret for each line of a rejection, on a terminal only: elsewhere an error is one line."""
    stream = sys.__stderr__
    if not _is_rejection(error) or stream is None or not stream.isatty():
        return []
    return [problem.excerpt for problem in error.errors]


def _explain_foreign(error: BaseException) -> tuple[int, list[str]]:
    """Explain an error of a package that is slow to import: only a package that is loaded can have raised."""
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
    """Say why every tool is unknown, if no activities were loaded."""
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


@dataclass(frozen=True, slots=True)
class Common:
    """The options that every command takes."""

    json: bool = option("--json", is_flag=True, help="Print JSON on stdout, and nothing else there.")
    activities: tuple[str, ...] = option(
        "--activities",
        multiple=True,
        metavar="MODULE_OR_FILE.py",
        help="Module or file that registers activities and delegates; repeatable [ACTS_ACTIVITIES].",
    )
    broker: str | None = option(
        "--broker",
        metavar="URL",
        help="Celery's broker, such as redis://localhost:6379/0. All users of the machine can see a command line: "
        "set an address with a password in the environment or in an --env-file [ACTS_BROKER_URL].",
    )
    redis: str | None = option(
        "--redis", metavar="URL", help="The Redis that holds the log. Default: the broker [ACTS_REDIS_URL]."
    )
    env_file: str | None = option(
        "--env-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="File of settings, one NAME=value in each line. Only a file named here may name code to load "
        "[ACTS_ENV_FILE].",
    )
    debug: bool = option("--debug", is_flag=True, help=f"Show tracebacks of errors [{DEBUG}].")

    def __post_init__(self) -> None:
        if self.debug:
            os.environ[DEBUG] = "1"

    @property
    def overrides(self) -> dict[str, Any]:
        """Settings given as options."""
        given: dict[str, Any] = {
            "activities": self.activities or None,
            "broker_url": self.broker,
            "redis_url": self.redis,
        }
        return {name: value for name, value in given.items() if value is not None}

    def environment(self) -> dict[str, str]:
        """Return variables that give another process the same settings, with no password on its command line."""
        given = {
            "ACTS_ACTIVITIES": ",".join(self.activities) or None,
            "ACTS_BROKER_URL": self.broker,
            "ACTS_REDIS_URL": self.redis,
            "ACTS_ENV_FILE": self.env_file,
        }
        return {**os.environ, **{name: value for name, value in given.items() if value is not None}}

    def print(self, document: Any, lines: Iterable[str]) -> None:
        """Write a document to stdout: as JSON, or as lines for people."""
        print_either(document, lines, as_json=self.json)

    def documented(self, *, has_status: bool = True) -> AbstractContextManager[Answer]:
        """Return a block that writes an error as a document too (see `documented`)."""
        return documented(as_json=self.json, has_status=has_status)

    def client(self) -> Client:
        """Return a client under the settings in effect, for a `with` block."""
        from ..client.client import Client

        return Client(self.settings())

    @contextmanager
    def found(self, run: str) -> Iterator[Run]:
        """Open a client and find a run by its id, the beginning of its id, its name, or `latest`."""
        with self.client() as client:
            yield client.find(run)

    def settings(self) -> Settings:
        """Read the settings: options, environment, `.env`, defaults. Raises `broker_config.SettingsError`."""
        from ...broker_config.loading import left_out, load

        if self.env_file is not None:
            os.environ["ACTS_ENV_FILE"] = self.env_file  # also for what is loaded later, and for other processes
        with _dotenv_reported():
            settings = load(**self.overrides)
            if names := [f"ACTS_{name.upper()}" for name in left_out(os.environ) if name not in self.overrides]:
                tell(
                    f"{', '.join(names)} in .env {'does' if len(names) == 1 else 'do'} not count: a file that only "
                    "lies here names no code, address, folder or token; --env-file .env takes it whole"
                )
            return settings


@contextmanager
def _dotenv_reported() -> Iterator[None]:
    """Replace what python-dotenv logs of unreadable lines in `.env` by messages of ours."""
    logger, lines = logging.getLogger("dotenv.main"), set[int]()

    def hear(record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and record.args and isinstance(record.args[0], int):
            lines.add(record.args[0])
        return False

    logger.addFilter(hear)
    try:
        yield
    finally:
        logger.removeFilter(hear)
        for line in sorted(lines):
            tell(f".env: line {line} is ignored: it is not NAME=value")


common_options: Final[Decorator] = option_group("common", Common)
"""Gives a command the options of `Common`, as `common`."""


def load_registry(settings: Settings) -> None:
    """Import the activities; what their modules print goes to stderr, and none of them ends the command."""
    from ..registry.mcp_tools import load_code
    from ..registry.request_definitions import is_address

    for folder in settings.delegates:
        if not is_address(folder) and not Path(folder).is_dir():
            tell(f"warning: ACTS_DELEGATES: {folder} is no folder here, so there is no request definition in it")
    with nothing_on_stdout():
        load_code(settings)


# Findings that are not reported: those of `--ignore`, and of `[tool.acts] ignore` in pyproject.toml of the folder.

_FILE: Final = "pyproject.toml"


def reported(plan: Plan, options: Iterable[str], more: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """Return a plan's findings, and `more`, without those that options or files ignore by code or name.

    Raises `Failed` for a code or name that no finding has.
    """
    from ...protocol.analysis.findings import ignored_in, is_ignored

    ignored = {*_known(options, "--ignore"), *_known(_configured(Path(_FILE)), f"[tool.acts] ignore in {_FILE}")}
    ignored |= ignored_in(plan.submission.config)
    return tuple(finding for finding in (*plan.findings, *more) if not is_ignored(finding, ignored))


def _configured(file: Path) -> list[str]:
    """Read which findings a project's file ignores."""
    try:
        document: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise Failed(f"{file}: {error}", REJECTED) from None
    tools = document.get("tool")
    own = tools.get("acts") if isinstance(tools, dict) else None
    listed = own.get("ignore", []) if isinstance(own, dict) else []
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise Failed(f'[tool.acts] ignore in {file} must be a list of codes, such as ["ACT103"]', REJECTED)
    return listed


def _known(names: Iterable[str], where: str) -> Iterable[str]:
    """Check that the names are codes or names of findings."""
    from ...protocol.analysis.findings import CATALOGUE

    known = CATALOGUE.keys() | {entry.name for entry in CATALOGUE.values()}
    for name in names:
        if name not in known:
            raise Failed(
                f"{where}: there is no finding {name!r}; docs/reference.md lists them, such as ACT103", REJECTED
            )
        yield name


# Names for a run, as options of the commands that submit.

TRACEPARENT: Final = "TRACEPARENT"
"""The variable that gives a program the span it runs in, as in OpenTelemetry's specification."""


@dataclass(frozen=True, slots=True)
class Naming:
    """The options that name a run."""

    id: str | None = option("--id", metavar="ID", help="The run's id. The same id twice is one run.")
    name: str | None = option("--name", metavar="TEXT", help="A name for the run; other commands take it as RUN.")
    tags: tuple[str, ...] = option(
        "--tag", metavar="TEXT", multiple=True, help="A tag for `acts runs --tag`, such as customer=42; repeatable."
    )
    at: str | None = option(
        "--at", metavar="MOMENT", help="Begin then, such as 2026-12-01T09:00:00Z; at once where that is past."
    )
    priority: int = option(
        "--priority",
        type=click.IntRange(0, 9),
        default=0,
        metavar="0-9",
        help="How soon it is taken of what waits in a queue; 9 is the most urgent.",
    )

    def label(self, value: Any) -> Label:
        """Return the label of a submission. Raises `protocol.Rejected`."""
        from ..broker.attempts import TracePlace
        from ..client.submitting import label_of

        given = os.environ.get(TRACEPARENT) or None
        if given is not None and TracePlace.read_header(given) is None:
            tell(f"{TRACEPARENT} is no traceparent as W3C Trace Context has it: the run begins a trace of its own")
            given = None
        label = label_of(value, id=self.id, name=self.name, tags=self.tags, traceparent=given, at=self.at)
        return replace(label, priority=self.priority)


naming_options: Final = option_group("naming", Naming)


# The choice of many runs, as options, with durations and sizes as people write them.

Of = TypeVar("Of")
_WRITTEN: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?) ?([A-Za-z]*)\Z", re.ASCII)
_SECONDS: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LETTERS: Final = "kmgt"
_BYTES: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000 ** (power + 1) for power, letter in enumerate(_LETTERS)},
    **{f"{letter}ib": 1024 ** (power + 1) for power, letter in enumerate(_LETTERS)},
}


class Amount(click.ParamType[float]):
    """A number with a unit."""

    def __init__(self, name: str, units: Mapping[str, int], example: str) -> None:
        self.name = name
        self._units = units
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number in the smallest unit."""
        if isinstance(value, float):
            return value
        found = _WRITTEN.match(str(value).strip())
        if found is None or found[2].lower() not in self._units:
            units = ", ".join(filter(None, self._units))
            self.fail(f"{str(value)!r} is no {self.name} such as {self._example} ({units})", param, ctx)
        return float(found[1]) * self._units[found[2].lower()]


DURATION: Final = Amount("duration", _SECONDS, "30d")
"""Seconds, written as `30d`, `12h`, `15m`, `90s` or `90`."""
SIZE: Final = Amount("size", _BYTES, "500MB")
"""Bytes, written as `500MB` or `2GiB`."""


@dataclass(frozen=True, slots=True)
class ChosenRuns:
    """The options that choose runs."""

    older_than: float | None = option(
        "--older-than", type=DURATION, metavar="TIME", help="Runs that ended at least this long ago: 30d, 12h, 15m."
    )
    status: str | None = option(
        "--status", type=click.Choice(("completed", "failed", "cancelled")), help="Runs that ended with this status."
    )
    name: str | None = option("--name", metavar="TEXT", help="Runs of this name or with this tag.")

    def __bool__(self) -> bool:
        """Say whether any option was given."""
        return any(value is not None for value in (self.older_than, self.status, self.name))

    def criteria(self) -> dict[str, Any]:
        """Return the parameters of `Client.runs` and `Client.deletable_runs`."""
        return {"older_than_seconds": self.older_than, "status": self.status, "name": self.name}


chosen_options: Final = option_group("chosen", ChosenRuns)


def print_undone(
    document: Mapping[str, Any], line: Callable[[dict[str, Any]], str], sums: Iterable[str], common: Common
) -> None:
    """List the first runs of which something would be deleted, and the sums."""
    runs = document["runs"]
    more = [f"… and {len(runs) - limits.OPTIONS_SHOWN} more"] if len(runs) > limits.OPTIONS_SHOWN else []
    common.print(document, [*map(line, runs[: limits.OPTIONS_SHOWN]), *more, *sums])
    if runs:
        tell("nothing is deleted yet: with --yes it is")


def done_with(runs: Iterable[Of], report: Callable[[Sequence[Of]], str]) -> list[Of]:
    """Delete by iterating over runs, and return them; if that is interrupted, report what was deleted."""
    done: list[Of] = []
    try:
        for run in runs:
            done.append(run)
    except BaseException:  # Ctrl-C, too
        tell(f"{report(done)}; the same command continues")
        raise
    return done
