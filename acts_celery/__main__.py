"""The process of a command: `acts …` and `python -m acts_celery …`."""

from __future__ import annotations

import gc
import os
import sys
from typing import NoReturn


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


if __name__ == "__main__":
    run()
