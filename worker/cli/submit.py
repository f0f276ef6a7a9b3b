"""`acts submit`: hand a submission to the configured backend and leave, or print what does so on a schedule.

A schedule is the work of systemd, cron or Celery's beat. What is printed here submits under the id of the occasion,
such as `report-2026-01-31`: one that is repeated, or comes twice, is one run.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from . import options
from .check import CheckOptions, check_options
from .output import tell
from .source import Source, source_options

_FIELDS: Final = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("day of the week", 0, 7),
)
_DAYS: Final = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
_PART: Final = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/(\d{1,2}))?", re.ASCII)
_EXAMPLES: Final = 'write 15m, 1h, 1d or 1w, or five fields of cron such as "0 6 * * mon-fri"'


@dataclass(frozen=True, slots=True)
class Schedule:
    """The occasions of a schedule, by the five fields of cron; a field that does not limit them is empty."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]

    @classmethod
    def read(cls, text: str) -> Schedule:
        """Read five fields of cron. Raises `ValueError`."""
        words = text.split()
        if len(words) != len(_FIELDS):
            raise ValueError(f"{text!r} is no schedule: {_EXAMPLES}")
        read = [_values(word, *about) for word, about in zip(words, _FIELDS, strict=True)]
        if read[2] and read[4]:
            raise ValueError("cron takes a day of the month or one of the week, others both: make two schedules")
        read[4] = tuple(sorted({day % len(_DAYS) for day in read[4]}))
        return cls(" ".join(words), *read)

    @property
    def occasion(self) -> str:
        """The format of time that gives each occasion another text."""
        if len(self.minutes) != 1:
            return "%FT%H%M"
        return "%F" if len(self.hours) == 1 else "%FT%H"

    @property
    def on_calendar(self) -> str:
        """The moments as systemd writes them."""
        days = ",".join(_DAYS[day] for day in self.weekdays)
        date = f"*-{_listed(self.months)}-{_listed(self.days)}"
        return f"{days} {date} {_listed(self.hours)}:{_listed(self.minutes)}:00 UTC".strip()


def _values(word: str, name: str, low: int, high: int) -> tuple[int, ...]:
    """The values that a field of cron admits, empty for all. Raises `ValueError`."""
    if word == "*":
        return ()
    found: set[int] = set()
    for part in word.split(","):
        if name == "day of the week":
            part = re.sub("-sun", "-7", part, flags=re.IGNORECASE)
            part = re.sub("[a-z]{3}", lambda day: _number(day[0]), part, flags=re.IGNORECASE)
        match = _PART.fullmatch(part)
        first, last = (int(match[1] or low), int(match[2] or match[1] or high)) if match else (1, 0)
        step = int(match[3] or 1) if match else 0
        if not low <= first <= last <= high or not step or (match and match[3] and match[1] and not match[2]):
            raise ValueError(f"{word!r} is no {name} of cron: {_EXAMPLES}")
        found.update(range(first, last + 1, step))
    return tuple(sorted(found))


def _number(day: str) -> str:
    return str(_DAYS.index(day.title())) if day.title() in _DAYS else day


def _listed(values: Iterable[int]) -> str:
    return ",".join(f"{value:02}" for value in values) or "*"


def _fields(text: str) -> str:
    """The fields of cron for a time that divides an hour, a day or a week. Raises `ValueError`."""
    minutes = options.DURATION.convert(text, None, None) / 60
    hours = minutes / 60
    if minutes in (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30):
        return f"*/{minutes:.0f} * * * *"
    if hours in (1, 2, 3, 4, 6, 8, 12):
        return f"0 */{hours:.0f} * * *"
    if hours in (24, 168):
        return "0 0 * * *" if hours == 24 else "0 0 * * 1"
    raise ValueError(f"{text} divides no hour, day or week: {_EXAMPLES}")


@dataclass(frozen=True, slots=True)
class ScheduleOptions:
    """The options that print a schedule."""

    every: str | None = options.option(
        "--every",
        metavar="WHEN",
        help="Submit nothing, and print what submits FILE on a schedule: 15m, 1h, 1d, 1w or five fields of cron "
        '("0 6 * * mon-fri"), in UTC (cron: in the time zone of its machine).',
    )
    scheduler: str = options.option(
        "--for",
        type=click.Choice(("systemd", "cron", "beat")),
        default="systemd",
        help="With --every: the program that keeps the time (systemd).",
    )

    @property
    def schedule(self) -> Schedule | None:
        """The schedule. Raises `click.BadParameter`."""
        if self.every is None:
            return None
        try:
            text = self.every.strip()
            return Schedule.read(text if " " in text else _fields(text))
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="'--every'") from None


# What is printed. The command is the one that was given, in the same folder, with the id of the occasion.


@dataclass(frozen=True, slots=True)
class _Entry:
    """A submission on a schedule."""

    schedule: Schedule
    name: str
    """The beginning of the ids of its runs."""
    words: tuple[str, ...]
    """The command that submits it, without an id."""
    folder: str

    def id_at(self, moment: datetime) -> str:
        """The id of the run of an occasion."""
        return f"{self.name}-{moment:{self.schedule.occasion}}"

    def files(self, scheduler: str) -> dict[str, str]:
        """The files that a scheduler needs: texts, by the names of the files. Raises
        `Failed`.
        """
        if scheduler == "beat":
            return {f"{re.sub(r'[^0-9A-Za-z]', '_', f'every_{self.name}')}.py": self._beat()}
        if any("\n" in word for word in (*self.words, self.folder)):
            raise options.Failed(
                f"--for {scheduler}: a line break in a value: have it in a file, --context FILE.jsonl", options.REJECTED
            )
        if scheduler == "cron":
            day = self.schedule.occasion == "%F"
            line = f"cd {shlex.quote(self.folder)} && {self._shell(utc='' if day else ' -u')}"
            return {"crontab": f"{self.schedule.text}  {line}\n".replace("%", r"\%")}
        return {f"acts-{self.name}.service": self._service(), f"acts-{self.name}.timer": self._timer()}

    def _shell(self, utc: str = " -u") -> str:
        """A line for `sh`; as long as there is no server it tries again."""
        read = f'id={self.name}-"$(date{utc} +{self.schedule.occasion})"'
        return f'{read}; until {shlex.join(self.words)} --id "$id"; do [ $? -eq 3 ] || exit 1; sleep 30; done'

    def _service(self) -> str:
        shell = self._shell().replace("\\", r"\\").replace('"', r"\"").replace("%", "%%").replace("$", "$$")
        return (
            f"[Unit]\nDescription=Submits {self.name}\n\n"
            f"[Service]\nType=oneshot\nWorkingDirectory={self.folder.replace('%', '%%')}\n"
            f'ExecStart=/bin/sh -c "{shell}"\n'
        )

    def _timer(self) -> str:
        return (
            f"[Unit]\nDescription={self.name}, {self.schedule.text}\n\n"
            f"[Timer]\nOnCalendar={self.schedule.on_calendar}\nPersistent=true\n\n"
            "[Install]\nWantedBy=timers.target\n"
        )

    def _beat(self) -> str:
        minute, hour, *others = self.schedule.text.split()
        names = ("day_of_month", "month_of_year", "day_of_week")
        given = "".join(f", {name}={word!r}" for name, word in zip(names, others, strict=True) if word != "*")
        return f"""\
# Imported by your Celery application; `app` is it.
import subprocess
from datetime import UTC, datetime

from celery.beat import BeatLazyFunc
from celery.schedules import crontab


def occasion():
    return f"{self.name}-{{datetime.now(UTC):{self.schedule.occasion}}}"


app.conf.beat_schedule[{f"acts-{self.name}"!r}] = {{
    "task": {f"acts-{self.name}"!r},
    "schedule": crontab(minute={minute!r}, hour={hour!r}{given}),
    "args": (BeatLazyFunc(occasion),),
}}


@app.task(name={f"acts-{self.name}"!r}, bind=True, max_retries=None)
def submit(self, id):
    done = subprocess.run([*{list(self.words)!r}, "--id", id], cwd={self.folder!r})
    if done.returncode == 3:  # no server: the same id again is the same run
        raise self.retry(countdown=30)
    done.check_returncode()
"""


def _words(*groups: Any) -> Iterator[str]:
    """The command line of options, as dataclasses of them have it."""
    for group in groups:
        for each in fields(group):
            if "option" not in each.metadata:
                continue
            names, about = each.metadata["option"]
            value = getattr(group, each.name)
            if about.get("is_flag"):
                yield from names[:1] if value else ()
                continue
            for one in value if about.get("multiple") else () if value is None else (value,):
                yield f"{names[0]}={one}"


def _entry(
    schedule: Schedule, source: Source, naming: options.Naming, checks: CheckOptions, common: options.Common
) -> _Entry:
    """Raises `Failed` for what nobody has when it is time."""
    if source.file == "-":
        raise options.Failed("--every: standard input is over when it is time: name a FILE", options.REJECTED)
    if common.broker is not None or common.redis is not None:
        raise options.Failed(
            "--every: --broker and --redis would be seen by all: have addresses in an --env-file", options.REJECTED
        )
    stem = re.sub(r"[^0-9A-Za-z_-]+", "-", Path(source.file).stem).strip("-_") or "run"
    own = Path(sys.executable).with_name("acts")
    program = (str(own),) if own.exists() else (sys.executable, "-m", "acts_celery")
    surroundings = replace(common, json=False, debug=False)
    file = f"./{source.file}" if source.file.startswith("-") else source.file
    words = (*program, "submit", *_words(source, replace(naming, id=None), checks, surroundings), file)
    return _Entry(schedule, naming.id or stem, words, str(Path.cwd()))


def _print_schedule(entry: _Entry, scheduler: str, findings: Mapping[str, Any], common: options.Common) -> None:
    files = entry.files(scheduler)
    if common.env_file is None:
        tell("a scheduler does not have your settings: add --env-file FILE with ACTS_BROKER_URL and the others")
    lines = [line for name, text in files.items() for line in (f"# {name}", *text.rstrip("\n").split("\n"), "")]
    common.print({"files": files, **findings}, lines[:-1])


@options.command("Submit and print the id of the run.")
@source_options
@click.option(
    "--state-of",
    metavar="RUN",
    help="Begin with the state of this run, of each instance, with its labels; FILE's own messages add to it.",
)
@options.option_group("schedule", ScheduleOptions)
@options.naming_options
@check_options
def submit(
    state_of: str | None,
    *,
    source: Source,
    schedule: ScheduleOptions,
    naming: options.Naming,
    checks: CheckOptions,
    common: options.Common,
) -> None:
    """Submit FILE (or - for standard input) to the configured broker, and print the run's id.

    With --every nothing is submitted: FILE is checked, and a unit of systemd, a line for cron or an entry of Celery's
    beat is printed, which submits it. The ids of its runs begin with --id, or the name of FILE, and end with the
    occasion, so each occasion is one run.

    Warnings of `acts check` are printed on stderr; --json has all its findings.

    Exit codes: 0 submitted, 2 rejected, 3 no server, 4 no such run for --state-of.
    """
    with common.documented():
        settings = common.settings()
        value, files = source.read(settings)
        options.load_registry(settings)
        if (every := schedule.schedule) is not None:
            from ..runner.checking import Checker

            if state_of is not None:
                raise options.Failed(
                    "--every: the state of a run will expire: put what its runs begin with into FILE", options.REJECTED
                )
            entry = _entry(every, source, naming, checks, common)
            replace(naming, id=entry.id_at(datetime.now(UTC))).label(value)
            findings = checks.tell(Checker(settings).check(value, allow=source.allowed))
            _print_schedule(entry, schedule.scheduler, findings, common)
            return
        settings.require_redis()
        from ..client.client import Client
        from ..client.submitting import counted_behind, with_state
        from ..store.connections import connect, eviction_warning

        with Client(settings) as client:
            state = client.state_of(state_of) if state_of is not None else []
            value = with_state(value, state) if state else value
            with counted_behind(state):
                plan = client.check_submission(value, allow=source.allowed)
            findings = checks.tell(plan)
            run = client.submit_plan(plan, naming.label(value), files)
            with closing(connect(settings)) as redis:
                if (warning := eviction_warning(redis, settings)) is not None:
                    tell(f"warning: {warning}")
    common.print({"run": run.id, **findings}, [run.id])
