"""What acts-celery costs: `make bench` or `python -m tests.benchmarks [engine|core|hostile|trust|waits|conversation]`.

`engine`, the default, holds it against other systems and against its goals: see docs/performance.md. `core` measures
how the cost of the pure core grows: see `tests.benchmarks.core`. `hostile` measures what a small run waits beside one
that wants everything for itself: see `tests.benchmarks.hostile`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from tests.benchmarks import conversation, core, engine, hostile, report, trust, waits
from tests.benchmarks.contests import Bench

_INTERRUPTED: Final = 130


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "part",
        nargs="?",
        choices=("engine", "core", "hostile", "trust", "waits", "conversation"),
        default="engine",
        help="what to measure",
    )
    parser.add_argument("--rounds", type=int, help="timed runs of each side (default 5; core 3); runs that wait (1)")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="ROW", help=f"of {', '.join(engine.NAMES)}; core: texts in names"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")
    parser.add_argument("--markdown", action="store_true", help="engine: write the table into docs/performance.md, too")
    parser.add_argument("--full", action="store_true", help="engine: also runs of 10,000 and 100,000 instances")
    parser.add_argument("--no-peers", action="store_true", help="engine: only our side; nothing is installed")
    arguments = parser.parse_args()
    if arguments.part == "core":
        _core(arguments)
    elif arguments.part == "hostile":
        _hostile(arguments)
    elif arguments.part == "trust":
        print(*trust.measure(arguments.rounds or 30), sep="\n")
    elif arguments.part == "waits":
        print(*waits.measure(arguments.rounds or 1), sep="\n")
    elif arguments.part == "conversation":
        print(*conversation.measure(arguments.rounds or conversation.TICKS), sep="\n")
    elif unknown := set(arguments.only) - set(engine.NAMES):
        parser.error(f"no row {', '.join(sorted(unknown))}: choose of {', '.join(engine.NAMES)}")
    else:
        _engine(arguments)


def _engine(arguments: argparse.Namespace) -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled, and so is what is measured
    rounds = arguments.rounds or 5
    chosen = ["--rounds", str(rounds), *(["--only", *arguments.only] if arguments.only else [])]
    chosen += [option for option, is_on in (("--full", arguments.full), ("--no-peers", arguments.no_peers)) if is_on]
    about = report.surroundings(" ".join(["python -m tests.benchmarks engine", *chosen]))
    bench = Bench(rounds, has_peers=not arguments.no_peers, is_full=arguments.full, say=engine.progress)
    rows, is_whole = [], False
    try:
        for row in engine.measure(bench, arguments.only):
            rows.append(row)
            engine.progress(report.summary(row), is_lasting=True)
        is_whole = True
    except KeyboardInterrupt:
        engine.progress("interrupted; this is what was measured before:", is_lasting=True)
    lines = list(report.lines_of(about, rows, rounds))
    print("\n".join(lines))
    if arguments.json:
        _write(arguments.json, {**about, "rounds": rounds, "rows": [row.to_dict() for row in rows]})
    if not is_whole:
        sys.exit(_INTERRUPTED)
    if arguments.markdown:
        report.write(lines)


def _hostile(arguments: argparse.Namespace) -> None:
    rows = []
    for row in hostile.measure(arguments.only, small_runs=arguments.rounds or 5):
        rows.append(row)
        engine.progress(f"{row.name}: {row.worst:.2f} s", is_lasting=True)
    print("\n".join(hostile.lines_of(rows)))
    if arguments.json:
        _write(arguments.json, {row.name: asdict(row) for row in rows})


def _core(arguments: argparse.Namespace) -> None:
    rows, counts = list(core.measure(arguments.rounds or 3, arguments.only)), core.constructions()
    imported = core.import_ratio()
    for line in core.table(rows, counts):
        print(line)
    print(f"import of protocol, by an empty interpreter: {imported}")
    if arguments.json:
        _write(
            arguments.json, {"measured": [row.to_dict() for row in rows], "constructions": counts, "import": imported}
        )


def _write(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
