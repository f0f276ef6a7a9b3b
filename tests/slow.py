"""The tests that take long: `make test` leaves them to `make redis`, `make slow` and `make nightly`.

`tests/slow.txt` names their functions. After tests were added or became faster, write it anew from a run of all:

    make slow ARGS="--junitxml=slow.xml"; make test ARGS="--junitxml=usual.xml"; python -m tests.slow slow.xml usual.xml
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

LIST: Final = Path(__file__).with_suffix(".txt")
SECONDS: Final = 1.5
"""The mean of a function's cases from which on it is slow."""
SECONDS_OF_ALL: Final = 15
"""The sum of a function's cases from which on it is slow."""
ALWAYS: Final = re.compile(
    r"tests/(acceptance/test_(first_use|seed)|architecture/|docs/test_readme|deploy/test_example)"
)
"""What is promised to every user is tried each time, however long it takes."""


def names() -> frozenset[str]:
    """The slow functions, as `tests/worker/test_sweep.py::test_name`."""
    return frozenset(LIST.read_text(encoding="utf-8").split())


def found(reports: list[str]) -> Iterator[str]:
    """Yield the functions that took long in pytest's reports in XML."""
    taken: dict[str, list[float]] = defaultdict(list)
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            name = case.get("name", "").partition("[")[0]
            taken[f"{case.get('classname', '').replace('.', '/')}.py::{name}"].append(float(case.get("time", 0)))
    for name, seconds in taken.items():
        if (sum(seconds) >= SECONDS * len(seconds) or sum(seconds) >= SECONDS_OF_ALL) and not ALWAYS.match(name):
            yield name


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in sorted(found(sys.argv[1:]))), encoding="utf-8")
