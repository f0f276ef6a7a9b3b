"""What a worker process does for its supervisor: it ends with it, and says how far it has come."""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

LOADED: Final = "loaded"
"""The first line that a supervised process prints: its settings and activities are good. The second is `--json`'s."""
SHARED: Final = "_ACTS_SHARED"
"""The variable that names the descriptor of a file which the processes of one supervisor have in common."""


def end_with_supervisor() -> None:
    """From now on end at once when the supervisor has ended, however it did.

    Standard input is a pipe whose other end only the supervisor has: the system closes it.
    """
    threading.Thread(target=_wait_for_end, name="acts-supervised", daemon=True).start()


def _wait_for_end() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
