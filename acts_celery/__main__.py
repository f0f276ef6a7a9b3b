"""The process of a command: `acts …` and `python -m acts_celery …`."""

from __future__ import annotations

import gc
import os
import sys
from typing import Final, NoReturn

_PROGRAM: Final = "import sys; sys.path[:] = {path!r}; from acts_celery.__main__ import run; run()"


def run() -> NoReturn:
    """Run the command that the process was started with, and end with its exit code."""
    try:
        from acts_celery.worker.cli import main

        code = main()
    except KeyboardInterrupt:  # while the modules load
        os.write(2, b"acts: interrupted\n")
        code = 130
    gc.freeze()  # it all goes with the process: without a search for garbage the end takes 20 ms instead of 150
    sys.exit(code)


def own_command(*arguments: str) -> list[str]:
    """What starts `acts` with these arguments in a process of its own.

    It finds the same modules under the same names as this process, whatever the current directory holds.
    """
    return [sys.executable, "-P", "-c", _PROGRAM.format(path=sys.path), *arguments]


if __name__ == "__main__":
    run()
