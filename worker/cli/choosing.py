"""Which runs a command means that takes many, as options, and what it says of them; durations and sizes as one writes
them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from .bundles import bundled
from .output import print_either, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from acts_celery.worker.client.run_status import RunStatus

Of = TypeVar("Of")
_SHOWN: Final = 20
"""Runs that are listed before something is deleted."""
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
        """The number in the smallest unit."""
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
class Chosen:
    """Which runs the options name."""

    older_than: float | None
    status: RunStatus | None
    name: str | None

    def __bool__(self) -> bool:
        """Whether any was given."""
        return any(value is not None for value in (self.older_than, self.status, self.name))

    def criteria(self) -> dict[str, Any]:
        """As `Client.runs` and `Client.deletable_runs` take them."""
        return {"older_than_seconds": self.older_than, "status": self.status, "name": self.name}


chosen_options: Final = bundled(
    "chosen",
    Chosen,
    click.option("--older-than", type=DURATION, metavar="TIME", help="Runs that ended so long ago: 30d, 12h, 15m."),
    click.option(
        "--status", type=click.Choice(("completed", "failed", "cancelled")), help="Runs that ended with this status."
    ),
    click.option("--name", metavar="TEXT", help="Runs of this name or with this tag."),
)


def print_undone(
    runs: Sequence[Of], line: Callable[[Of], str], sums: Iterable[str], document: Mapping[str, Any], *, as_json: bool
) -> None:
    """List the runs of which something would be deleted, the first of them, and what that comes to."""
    more = [f"… and {len(runs) - _SHOWN} more"] if len(runs) > _SHOWN else []
    print_either(document, [*map(line, runs[:_SHOWN]), *more, *sums], as_json=as_json)
    if runs:
        tell("nothing is deleted yet: with --yes it is")


def done_with(runs: Iterable[Of], said: Callable[[Sequence[Of]], str]) -> list[Of]:
    """All runs of which something is deleted as they are iterated; where that is interrupted, what was done is said."""
    done: list[Of] = []
    try:
        for run in runs:
            done.append(run)
    except BaseException:  # Ctrl-C, too
        tell(f"{said(done)}; the same command goes on")
        raise
    return done
