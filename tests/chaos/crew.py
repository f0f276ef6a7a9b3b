"""Worker processes, each in a group of its own and started again whenever it dies, as a supervisor would."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from acts_celery.broker_config import GuardedProcess

from .activities import KEEP_LOCK

_READY_SECONDS: Final = 60
_MOST_READ_BYTES: Final = 1_000_000


@dataclass(frozen=True)
class Death:
    """A worker that ended though nobody had killed it."""

    worker: str
    code: int
    last_words: str


@dataclass(frozen=True)
class _Incarnation:
    """One process of a member, and whether it takes tasks yet."""

    process: GuardedProcess
    ready: threading.Event


class Member:
    """One place in the crew: a worker process, or its successor."""

    def __init__(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], *, folder: Path, source: Path
    ) -> None:
        self.name = name
        self.deaths: deque[Death] = deque()
        self.log = folder / f"{name}.log"
        self._command = [sys.executable, "-m", "acts_celery", "worker", "--json", "--name", name, *arguments]
        self._environment = {**environment, "PYTHONPATH": str(source)}
        self._folder = folder
        self._lock = threading.Lock()
        self._is_doomed = False
        self._is_stopping = False
        self._present = self._start()
        self._watcher = threading.Thread(target=self._watch, name=f"chaos-{name}", daemon=True)
        self._watcher.start()

    @property
    def group(self) -> int:
        """The process group of the present process, which is its own id too."""
        return self._present.process.pid

    @property
    def processes(self) -> frozenset[int]:
        """The present process and its children: where it is to be several, these take the tasks."""
        pid = self.group
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):  # it has just died
            children = ""
        return frozenset({pid, *map(int, children.split())})

    def wait_until_ready(self) -> None:
        """Return once the present process takes tasks. Raises `TimeoutError`."""
        if not self._present.ready.wait(_READY_SECONDS):
            raise TimeoutError(f"worker {self.name} did not get ready: {self._last_words()}")

    def kill(self) -> int:
        """SIGKILL the process with its whole group; another takes its place. Returns the group."""
        return self._signal(signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM the process, which finishes what it is at; another takes its place. Returns the group."""
        return self._signal(signal.SIGTERM)

    def keep_lock(self) -> bool:
        """Have the process keep its interpreter's lock for some time, if it takes tasks. Says whether it will."""
        with self._lock:
            if not self._present.ready.is_set() or self._present.process.poll() is not None:
                return False
            try:
                os.kill(self.group, KEEP_LOCK)
            except ProcessLookupError:  # another storm has just killed it
                return False
        return True

    def stop(self) -> None:
        """End for good, at once; returns when nothing is left."""
        with self._lock:
            self._is_stopping = True
        self._signal(signal.SIGKILL)
        self._present.process.stop()
        self._watcher.join()

    def _signal(self, number: signal.Signals) -> int:
        with self._lock:
            self._is_doomed = True
            group = self.group
            with contextlib.suppress(ProcessLookupError):  # it has just died by itself
                os.killpg(group, number)
        return group

    def _start(self) -> _Incarnation:
        said, says = os.pipe()
        with self.log.open("ab") as log:
            try:
                process = GuardedProcess(
                    self._command, env=self._environment, cwd=self._folder, stdout=says, stderr=log
                )
            finally:
                os.close(says)
        present = _Incarnation(process, threading.Event())
        hear = threading.Thread(target=_hear, args=(said, present.ready), name=f"chaos-{self.name}-ready", daemon=True)
        hear.start()
        return present

    def _watch(self) -> None:
        """Replace whoever dies."""
        while True:
            code = self._present.process.wait()
            with self._lock:
                if self._is_stopping:
                    return
                if not self._is_doomed:
                    self.deaths.append(Death(self.name, code, self._last_words()))
                self._is_doomed = False
                self._present = self._start()

    def _last_words(self) -> str:
        """What the log says about its end: the gravest line, or the last one."""
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - _MOST_READ_BYTES))
            lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
        grave = [line for line in lines if "CRITICAL" in line]
        return (grave or lines or ["it logged nothing"])[-1]


def _hear(said: int, ready: threading.Event) -> None:
    """Wait for the line in which a process says that it is ready, or for its end."""
    with os.fdopen(said, "rb") as lines:
        if lines.readline():
            ready.set()
