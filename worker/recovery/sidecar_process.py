"""The program of a sidecar (see `sidecar`): it reports for a worker process that lives and has fallen silent.

    python -I -S sidecar_process.py CONTROL_FD MEMORY_FD PARENT_PID LEASE_SECONDS SEES_LOG PROCESS WORKER PATH...

CONTROL_FD is one end of a socket pair whose other end the worker process has: it closes when that ends. On Linux a
pidfd says the same even where a stray copy is open somewhere. MEMORY_FD is what both share: for each voice how often it
has reported, then slots with the remote calls at work. A process that was stopped (SIGSTOP) lives, but nobody knows
whether it will go on: for that nothing is reported, and its calls go on elsewhere.

Almost nothing is imported until there is something to report, so that it starts in milliseconds and takes little
memory; keep it so.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any, Final

PLACE_BYTES: Final = 8
LENGTH: Final = struct.Struct("<II")
"""How a slot begins: the length of what it holds, and its checksum."""
FIRST_SLOT: Final = 4096
SLOT_BYTES: Final = 2048
_VOICES: Final = 2
_PRESENCE, _REPORTS = range(_VOICES)
_MOST_LOOK_SECONDS: Final = 0.5


def main(arguments: list[str]) -> None:
    """Watch the worker process until it ends."""
    control_fd, memory_fd, parent, lease_seconds, sees_log, process, worker, *paths = arguments
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    memory = mmap.mmap(int(memory_fd), 0, prot=mmap.PROT_READ)
    watched = _Watched(memory, int(parent), float(lease_seconds))
    ended = select.poll()
    for descriptor in (int(control_fd), *_pidfd(int(parent))):
        ended.register(descriptor, select.POLLIN)
    look_ms = int(1000 * min(float(lease_seconds) / 12, _MOST_LOOK_SECONDS))
    reporter: Any = None
    while os.getppid() == int(parent) and not ended.poll(look_ms):
        silent = watched.silent()
        if silent and reporter is None:
            reporter = _make_reporter(paths, int(parent), process, worker, sees_log == "1")
        if reporter is not None:
            reporter.report(silent[_PRESENCE], silent[_REPORTS], watched.at_work()) if silent else reporter.rest()
    if reporter is not None:
        reporter.rest()  # what died is found at once


class _Watched:
    """The state of the worker process, by the shared memory."""

    def __init__(self, memory: mmap.mmap, pid: int, lease_seconds: float) -> None:
        self._memory = memory
        self._pid = pid
        self._most_silent_seconds = lease_seconds / 3
        self._heard: list[tuple[int, float]] = [(0, time.monotonic())] * _VOICES

    def silent(self) -> tuple[float, ...]:
        """For each voice for how many seconds it has been silent, where that is too long and there is something to
        report; nothing where there is none, or the process is stopped.
        """
        now = time.monotonic()
        seconds = [0.0] * _VOICES
        for voice, count in enumerate(struct.unpack_from(f"<{_VOICES}Q", self._memory)):
            if count != self._heard[voice][0]:
                self._heard[voice] = count, now
            elif count and now - self._heard[voice][1] > self._most_silent_seconds:
                seconds[voice] = now - self._heard[voice][1]
        if seconds[_REPORTS] and not any(self.at_work()):
            seconds[_REPORTS] = 0.0
        return tuple(seconds) if any(seconds) and not _is_stopped(self._pid) else ()

    def at_work(self) -> Iterator[bytes]:
        """The remote calls at work, and those taken and not begun."""
        for at in range(FIRST_SLOT, len(self._memory), SLOT_BYTES):
            length, checksum = LENGTH.unpack_from(self._memory, at)
            packed = self._memory[at + PLACE_BYTES : at + PLACE_BYTES + length] if length else b""
            if packed and zlib.crc32(packed) == checksum:
                yield packed


def _make_reporter(paths: list[str], pid: int, process: str, worker: str, sees_log: bool) -> Any:
    """Make the reporter, with everything that it needs; it finds what the worker process finds."""
    sys.path[:] = paths
    from acts_celery.worker.recovery.heartbeats import Reporter

    return Reporter(pid, process, worker, sees_log=sees_log)


def _is_stopped(pid: int) -> bool:
    """Whether the system says that a process is stopped, by a signal or a debugger."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  # pathlib is an import more
            return file.read().rpartition(b")")[2].split()[:1] in ([b"T"], [b"t"])
    except OSError:
        return False  # a system without /proc


def _pidfd(pid: int) -> list[int]:
    """A descriptor that becomes readable when a process ends, where the system has such a thing."""
    try:
        return [os.pidfd_open(pid)] if sys.platform == "linux" else []
    except OSError:
        return []


if __name__ == "__main__":
    main(sys.argv[1:])
