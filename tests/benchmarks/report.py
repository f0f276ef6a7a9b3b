"""What a benchmark prints: the machine, the versions, the command, and the table. It is Markdown, and aligned."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.contests import Line
from tests.benchmarks.environment import ROOT, pinned

PAGE: Final = ROOT / "docs" / "performance.md"
BEGIN: Final = '<!-- figures: written by `make bench ARGS="engine --markdown"` -->'
END: Final = "<!-- end of figures -->"
_HEAD: Final = ("", "measured", "acts-celery", "peer", "", "ratio", "goal", "reached")
_QUIET: Final = 0.5
"""The load of a machine that does nothing else."""


@dataclass(frozen=True)
class Measured:
    """A row that has been measured, in its place in the table."""

    number: int
    name: str
    title: str
    lines: Sequence[Line]
    started: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        lines = [line.to_dict() for line in self.lines]
        return {"row": self.number, "name": self.name, "title": self.title, "started": self.started, "lines": lines}


def surroundings(command: str) -> dict[str, str]:
    """The machine, as it is before anything is measured, the versions, and the command that measures."""
    load = os.getloadavg()[0]
    others = "quiet" if load < _QUIET else "a loaded machine"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "load before": f"{load:.1f}: {others}",
        "versions": ", ".join(
            f"{name} {number}"
            for name, number in {
                "acts-celery": version("acts-celery"),
                "Python": platform.python_version(),
                **{name: version(name) for name in ("celery", "kombu", "redis")},
            }.items()
        ),
        "peers": ", ".join(f"{name} {number}" for name, number in pinned().items()),
        "command": f"`{command}`",
    }


def summary(row: Measured) -> str:
    """A row on one line."""
    parts = [
        f"{line.what} {_figure(line.ours, line.unit)}".strip()
        + (f" ({line.ratio:.2f} x {line.peer})" if line.ratio is not None else line.failure and f" ({line.failure})")
        for line in row.lines
    ]
    return f"{row.number} {row.name}: {', '.join(parts)}"


def lines_of(about: Mapping[str, str], rows: Sequence[Measured], rounds: int) -> Iterator[str]:
    """Everything, line by line."""
    yield from (f"- {name}: {value}" for name, value in about.items())
    yield f"- rounds: {rounds}, of which the table has the medians"
    yield ""
    cells = [_HEAD, *(_cells(row, line, is_first=place == 0) for row in rows for place, line in enumerate(row.lines))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for place, row in enumerate(cells):
        yield "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        if place == 0:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    started: dict[str, list[int]] = {}
    for measured in rows:
        for what in measured.started:
            started.setdefault(what, []).append(measured.number)
    if started:
        yield from ("", "Started, beside a server for each side:", "")
    yield from (f"- {what} (row {', '.join(map(str, numbers))})" for what, numbers in started.items())


def write(lines: Sequence[str]) -> None:
    """Put figures into the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *lines, f"{END}{after}"]), encoding="utf-8")


def _cells(row: Measured, line: Line, *, is_first: bool) -> tuple[str, ...]:
    title = f"{row.title}: {line.what}" if is_first and line.what else row.title if is_first else line.what
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    reached = {None: "", True: "yes", False: "no"}[line.is_reached]
    theirs = _figure(line.theirs, line.unit)
    if line.failure:
        theirs, reached = f"failed: {' '.join(line.failure.split())[:120]}", "failed"
    number = str(row.number) if is_first else ""
    goal = "" if line.goal is None else str(line.goal)
    return (number, title, _figure(line.ours, line.unit), line.peer, theirs, ratio, goal, reached)


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}{'' if unit.startswith('/') else ' '}{unit}"


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
