"""The sidecar: a small process beside each worker process, which reports for it what it cannot report itself.

Reports of what is at work come from threads of the process that works. An extension in C that keeps the interpreter's
lock stops them, and so does a connection that has gone silent; neither means that the process is dead. So the process
notes in memory that both share when it has reported, and which remote calls it has at work. Where it falls silent and
is still there, the sidecar reports in its place (`sidecar_process`). It ends when the process ends, however that
happens.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import IO, Final

from ...broker_config import Settings
from .. import limits
from ..broker.attempts import Attempt, attempt_of, process_token
from ..broker.messages import AttemptRef, pack
from ..outages import Duty
from .sidecar_process import FIRST_SLOT, LENGTH, PLACE_BYTES, SLOT_BYTES

logger = logging.getLogger(__name__)

_PROGRAM: Final = str(Path(__file__).with_name("sidecar_process.py"))


class Voice(IntEnum):
    """The parts of this process that report that it is alive."""

    PRESENCE = 0
    """To the log: see `heartbeats`."""
    REPORTS = 1
    """By the broker: see `heartbeats`."""


class Sidecar:
    """The sidecar of one worker process. May be used from any thread."""

    def __init__(self, settings: Settings, worker: str, *, sees_log: bool) -> None:
        """Start it; where that fails, the log says so and it is tried again. `worker` is the name in its reports;
        `sees_log` says whether it reports to the log, too.
        """
        self._sees_log = sees_log
        self._settings = settings
        self._worker = worker
        self._owner = os.getpid()
        self._file = _shared_file()
        slots = settings.concurrency + limits.MORE_SLOTS
        self._file.truncate(FIRST_SLOT + slots * SLOT_BYTES)
        self._memory = mmap.mmap(self._file.fileno(), FIRST_SLOT + slots * SLOT_BYTES)
        self._free = list(range(slots))
        self._counts = [0 for _ in Voice]
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._silent_seconds = settings.lease_seconds * 2 / 3
        self._looked_at = time.monotonic()
        self._woke_at = -limits.AWAKE_SECONDS
        _sidecars.add(self)
        self._duty = Duty(
            "the process that reports for this one while it cannot",
            self._look,
            thread="acts-sidecar",
            interval_seconds=min(settings.lease_seconds / 6, limits.LOOK_SECONDS),
            passing=(OSError,),
        )
        with suppress(OSError):  # the duty tries again, and says so
            self._start()
        self._duty.start()

    @property
    def pid(self) -> int | None:
        """The process id, while there is one."""
        return self._process.pid if self._process is not None else None

    @property
    def has_just_woken(self) -> bool:
        """Whether nothing of this process has run for so long that calls whose messages it had taken, and not begun,
        may have been sent again: so it may begin none of those that reach it now.
        """
        now = time.monotonic()
        if now - self._looked_at > self._silent_seconds:
            self._woke_at = now  # this runs before the thread that looks
        return now - self._woke_at < limits.AWAKE_SECONDS

    def note(self, voice: Voice) -> None:
        """This process has reported by itself."""
        self._counts[voice] += 1
        struct.pack_into("<Q", self._memory, 8 * voice, self._counts[voice])

    @contextmanager
    def at_work(self, ref: AttemptRef, *, is_begun: bool = True) -> Iterator[None]:
        """While the block lasts, the sidecar would report the remote call, as at work or as taken and not begun."""
        packed = pack([is_begun, *ref])
        slot = self._free.pop() if self._free and len(packed) <= SLOT_BYTES - PLACE_BYTES else None
        if slot is not None:
            self._write(slot, packed)
        try:
            yield
        finally:
            if slot is not None:
                self._write(slot, b"")
                self._free.append(slot)

    def close(self) -> None:
        """End it."""
        self._duty.stop(waits=True)
        self._end()
        self._file.close()  # the memory stays: a call that ends late may still note it

    def _write(self, slot: int, packed: bytes) -> None:
        at = FIRST_SLOT + slot * SLOT_BYTES
        LENGTH.pack_into(self._memory, at, 0, 0)  # what is half written is not read
        self._memory[at + PLACE_BYTES : at + PLACE_BYTES + len(packed)] = packed
        LENGTH.pack_into(self._memory, at, len(packed), zlib.crc32(packed))

    def _look(self) -> None:
        """Start it again where it has ended. Raises `OSError`."""
        now = time.monotonic()
        if now - self._looked_at > self._silent_seconds:
            self._woke_at = now
        self._looked_at = now
        if self._process is not None and (code := self._process.poll()) is not None:
            logger.warning("the process that reports for this one while it cannot has ended with %d", code)
            self._end()
        if self._process is None:
            self._start()

    def _start(self) -> None:
        control, theirs = socket.socketpair()
        memory = self._file.fileno()
        own = (theirs.fileno(), memory, self._owner, self._settings.lease_seconds, int(self._sees_log))
        command = [sys.executable, "-I", "-S", _PROGRAM, *map(str, own), process_token(), self._worker, *sys.path]
        try:
            with theirs:
                self._process = subprocess.Popen(
                    command,
                    env={**os.environ, **self._settings.to_environment()},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(), memory),
                    start_new_session=True,  # a signal for the worker's group is not for it
                )
        except BaseException:
            control.close()
            raise
        self._control = control

    def _end(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


_sidecars: weakref.WeakSet[Sidecar] = weakref.WeakSet()


def _let_go_in_child() -> None:
    """Close a forked child's copies, or the sidecars would not see their own processes end before it does."""
    for sidecar in _sidecars:
        if sidecar._control is not None:
            sidecar._control.close()


os.register_at_fork(after_in_child=_let_go_in_child)


def _shared_file() -> IO[bytes]:
    """A file without a name, in memory where the system has such a thing."""
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("acts-sidecar"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


# The watchdog of an event loop: whether the loop turns, and which call keeps it from turning.
#
# A process speaks for the calls on its loop from threads, since the loop may be busy. But a loop that a coroutine
# blocks serves none of them: what it cannot serve is not spoken for, and goes on elsewhere. The call that blocks it is
# at work.


@dataclass(frozen=True, slots=True)
class Blocked:
    """A loop does not turn."""

    attempt: Attempt | None
    """The call that blocks it, where it is one."""


class LoopWatchdog:
    """Asks one event loop, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, most_silent_seconds: float) -> None:
        self._loop = loop
        self._most_silent_seconds = most_silent_seconds
        self._lock = threading.Lock()
        self._asked: float | None = None
        """When the loop was asked, where it has not answered yet."""
        self._is_reported = False
        self.is_blocked = False
        """The last result of `blocked`."""

    def blocked(self) -> Blocked | None:
        """Whether the loop has not turned for too long. It is asked now, and should have answered the next time."""
        with self._lock:
            if self._asked is None:
                self._is_reported = self.is_blocked = False
                self._asked = time.monotonic()
                self._loop.call_soon_threadsafe(self._answer)
                return None
            silent_seconds = time.monotonic() - self._asked
            if silent_seconds <= self._most_silent_seconds:
                return None
            self.is_blocked = True
            is_news, self._is_reported = not self._is_reported, True
        at_work = attempt_of(asyncio.current_task(self._loop))
        if is_news:
            what = f"{at_work[1]}, call {at_work[0].id.idempotency_key}," if at_work else "a task that is no call"
            logger.warning(
                "%s blocks the event loop for %.0f s and longer: the calls beside it continue elsewhere. An activity "
                "that does not await should be a plain function, not a coroutine",
                what,
                silent_seconds,
            )
        return Blocked(at_work[0] if at_work else None)

    def _answer(self) -> None:
        self._asked = None
        self.is_blocked = False
