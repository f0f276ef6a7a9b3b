"""The options that every command takes, and the settings that follow from them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from .bundles import bundled
from .failures import DEBUG
from .output import nothing_on_stdout, tell

if TYPE_CHECKING:
    from acts_celery.broker_config import Settings


@dataclass(frozen=True, slots=True)
class Common:
    """What the common options say."""

    json: bool
    activities: tuple[str, ...]
    broker: str | None
    redis: str | None
    env_file: str | None = None

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings given as options."""
        given: dict[str, Any] = {
            "activities": self.activities or None,
            "broker_url": self.broker,
            "redis_url": self.redis,
        }
        return {name: value for name, value in given.items() if value is not None}

    def environment(self) -> dict[str, str]:
        """Variables that say the same to another process of ours, whose command line then shows no password."""
        given = {
            "ACTS_ACTIVITIES": ",".join(self.activities) or None,
            "ACTS_BROKER_URL": self.broker,
            "ACTS_REDIS_URL": self.redis,
            "ACTS_ENV_FILE": self.env_file,
        }
        return {**os.environ, **{name: value for name, value in given.items() if value is not None}}

    def settings(self) -> Settings:
        """The settings in effect: options, environment, `.env`, defaults. Raises `broker_config.SettingsError`."""
        from acts_celery.broker_config.loading import left_out, load

        if self.env_file is not None:
            os.environ["ACTS_ENV_FILE"] = self.env_file  # also for what is loaded later, and for other processes
        with _dotenv_told():
            settings = load(**self.overrides)
            if names := [f"ACTS_{name.upper()}" for name in left_out(os.environ) if name not in self.overrides]:
                tell(
                    f"{', '.join(names)} in .env {'does' if len(names) == 1 else 'do'} not count: a file that only "
                    "lies here names no code, address, folder or token; --env-file .env takes it whole"
                )
            return settings


@contextmanager
def _dotenv_told() -> Iterator[None]:
    """Tell in our own words what python-dotenv logs of lines in `.env` that it cannot read."""
    logger = logging.getLogger("dotenv.main")
    heard = _Heard()
    logger.addHandler(heard)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = before
        logger.removeHandler(heard)
        for line in sorted(heard.lines):
            tell(f".env: line {line} is ignored: it is not NAME=value")


class _Heard(logging.Handler):
    """Which lines were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: set[int] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Note the line."""
        if isinstance(record.args, tuple) and record.args and isinstance(record.args[0], int):
            self.lines.add(record.args[0])


def _common(*, debug: bool, **given: Any) -> Common:
    if debug:
        os.environ[DEBUG] = "1"
    return Common(**given)


common_options: Final = bundled(
    "common",
    _common,
    click.option("--json", is_flag=True, help="Print JSON on stdout, and nothing else there."),
    click.option(
        "--activities",
        multiple=True,
        metavar="MODULE_OR_FILE.py",
        help="Module or file that registers activities and delegates; repeatable [ACTS_ACTIVITIES].",
    ),
    click.option(
        "--broker",
        metavar="URL",
        help="Celery's broker, such as redis://localhost:6379/0. All users of the machine can see a command line: "
        "set an address with a password in the environment or in an --env-file [ACTS_BROKER_URL].",
    ),
    click.option(
        "--redis", metavar="URL", help="The Redis that holds the log, likewise. Default: the broker [ACTS_REDIS_URL]."
    ),
    click.option(
        "--env-file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="File of settings, one NAME=value in each line. Only a file named here may name code to load "
        "[ACTS_ENV_FILE].",
    ),
    click.option("--debug", is_flag=True, help=f"Show tracebacks of errors [{DEBUG}]."),
)
"""The options that every command takes, as `common`."""


def load_registry(settings: Settings) -> None:
    """Import the activities; what their modules print goes to stderr, and none of them ends the command."""
    from acts_celery.worker.mcp.registering import load_code
    from acts_celery.worker.registry.addresses import is_address

    for folder in settings.delegates:
        if not is_address(folder) and not Path(folder).is_dir():
            tell(f"warning: ACTS_DELEGATES: {folder} is no folder here, so there is no request definition in it")
    with nothing_on_stdout():
        load_code(settings)
