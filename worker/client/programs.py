"""How a process of ours starts another. It loads no library, since the supervisor of `acts worker` needs it."""

from __future__ import annotations

import sys
from typing import Final

_PROGRAM: Final = "import sys; sys.path[:] = {path!r}; from acts_celery.__main__ import run; run()"


def own_command(*arguments: str) -> list[str]:
    """What starts `acts` with these arguments in a process of its own.

    It finds the same modules under the same names as this process, whatever the current directory holds.
    """
    return [sys.executable, "-P", "-c", _PROGRAM.format(path=sys.path), *arguments]
