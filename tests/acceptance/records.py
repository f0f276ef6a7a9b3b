"""What activities and delegates received, told by themselves through a named pipe.

Fire-and-forget calls leave no trace in the log (SPEC R5.1), so the code they run says what it was given.
The reader waits on the pipe, never on a clock.
"""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path
from typing import Any

VARIABLE = "ACCEPTANCE_RECORDS"
DEADLINE_SECONDS = 60.0


class Records:
    """The reading end of the pipe; `env` tells the activities where to write."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.env = {VARIABLE: str(path)}
        # Both directions: the pipe never reports its end while this reader lives.
        self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""
        self._seen: list[dict[str, Any]] = []

    def take(self, name: str, *, from_process: int | None = None) -> dict[str, Any]:
        """The oldest record under this name not yet taken.

        Waits for it until the deadline, or until the process it has to come from has ended.
        """
        deadline = time.monotonic() + DEADLINE_SECONDS
        process = None if from_process is None else os.pidfd_open(from_process)
        try:
            while True:
                for index, record in enumerate(self._seen):
                    if record["name"] == name:
                        return self._seen.pop(index)
                if not self._read(deadline - time.monotonic(), process):
                    raise AssertionError(f"no record named {name!r} in time; others: {self._seen}")
        finally:
            if process is not None:
                os.close(process)

    def forget(self) -> None:
        """Drop what an earlier test left."""
        while self._read(0):
            pass
        self._seen.clear()

    def close(self) -> None:
        """Close the pipe; later writers fail and nobody waits for them."""
        os.close(self._descriptor)

    def _read(self, timeout_seconds: float, process: int | None = None) -> bool:
        watched = [self._descriptor] if process is None else [self._descriptor, process]
        ready, _, _ = select.select(watched, [], [], max(timeout_seconds, 0))
        if self._descriptor not in ready:
            return False
        *lines, self._rest = (self._rest + os.read(self._descriptor, 65536)).split(b"\n")
        self._seen.extend(json.loads(line) for line in lines)
        return True
