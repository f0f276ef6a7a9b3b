"""The engine beside its peers: `python -m tests.benchmarks engine`, row by row."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from tests.benchmarks.contests import Bench, Line
from tests.benchmarks.report import Measured
from tests.benchmarks.rows import ROWS

NAMES: Final = tuple(row.name for row in ROWS)


def measure(bench: Bench, only: Sequence[str] = ()) -> Iterator[Measured]:
    """The rows, or those of the given names; one that fails says why, and the rest goes on."""
    for number, row in enumerate(ROWS, start=1):
        if only and row.name not in only:
            continue
        bench.started = []
        lines: list[Line] = []
        told = bench.say
        bench.say = lambda text: told(f"row {number} of {len(ROWS)}, {row.name}: {text}")  # noqa: B023
        try:
            lines.extend(row.measure(bench))
        except Exception as failure:  # whatever it is, the other rows are measured
            lines.append(Line("", "", failure=f"{type(failure).__name__}: {failure}"))
        finally:
            bench.say = told
        yield Measured(number, row.name, row.title, lines, tuple(dict.fromkeys(bench.started)))


def progress(text: str, *, is_lasting: bool = False) -> None:
    """Say what is going on: on a terminal on its last line, elsewhere only what is to stay."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="\n" if is_lasting else "", file=sys.stderr, flush=True)
    elif is_lasting:
        print(text, file=sys.stderr, flush=True)
