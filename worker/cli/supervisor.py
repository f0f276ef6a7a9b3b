"""The supervisor of `acts worker`: as many worker processes as are asked for, each kept running until it is to end.

A worker process is one event loop on one processor. Each is a program of its own (`acts worker --processes 1`), so none
shares a thread, a lock or a connection with another. The first one starts alone until it has loaded settings and
activities: what is wrong with them is then reported once.

A process that ends unasked is started again, later each time while it keeps ending soon. The processes end with the
supervisor, however that ends (`supervised`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, Final

from .. import limits
from ..backoff import Backoff
from ..errors import Terminated
from .options import COMPLETED, REJECTED, TERMINATED, UNAVAILABLE
from .output import tell

# What a worker process does for its supervisor: it ends with it, and says how far it has come.

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


_BACKOFF: Final = Backoff(1.0, 30.0)
_WAYS_TO_STOP: Final = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)
"""What the first, the second and every further request send on: finish what is under way; end; end by force."""


class Supervisor:
    """Runs one process for each command. `on_ready` is called once, with their announcements in that order."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        env: Mapping[str, str],
        on_ready: Callable[[list[Any]], None],
        *shared: int,
    ) -> None:
        self._shared = shared
        """Descriptors that all processes have open."""
        self._commands = commands
        self._env = env
        self._on_ready = on_ready
        self._processes: dict[int, Process] = {}
        self._announced: dict[int, Any] = {}
        self._requests = 0
        self._code = COMPLETED
        self._stopping = asyncio.Event()
        self._loaded = asyncio.Event()

    async def run(self) -> int:
        """Run until every process has ended on request, or one did not get ready; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            loop.add_signal_handler(number, self._stop)
        first = asyncio.create_task(self._keep(0))
        await asyncio.wait([first, asyncio.create_task(self._loaded.wait())], return_when=asyncio.FIRST_COMPLETED)
        others = [] if self._stopping.is_set() else [self._keep(place) for place in range(1, len(self._commands))]
        await asyncio.gather(first, *others)
        return self._code

    async def _keep(self, place: int) -> None:
        """Run one process, again and again, until all are to end."""
        failures = 0
        while not self._stopping.is_set():
            began = asyncio.get_running_loop().time()
            code = await self._run_once(place)
            if self._stopping.is_set():
                if code > 0 and code != TERMINATED:  # it was still starting, then
                    self._code = self._code or UNAVAILABLE
                return
            if place not in self._announced:
                self._code = REJECTED if code == REJECTED else UNAVAILABLE
                self._stop()
                return
            lasted = asyncio.get_running_loop().time() - began
            failures = 1 if lasted > limits.LASTING_SECONDS else failures + 1
            delay = _BACKOFF.seconds(failures)
            name = self._announced[place]["worker"]
            tell(f"worker {name} ended by itself ({_told(code)}); another is started in {delay:g} s")
            await self._sleep(delay)

    async def _run_once(self, place: int) -> int:
        """Run one process to its end; return its exit code, negative for a signal."""
        process = await asyncio.create_subprocess_exec(
            *self._commands[place],
            env=self._env,
            pass_fds=self._shared,
            stdin=PIPE,
            stdout=PIPE,
            # Ctrl-C in a terminal reaches the whole group, and is for the supervisor to pass on.
            process_group=0,
        )
        self._processes[place] = process
        if self._requests:  # meanwhile
            _send(process, signal.SIGTERM)
        assert process.stdout is not None
        async for line in process.stdout:
            self._hear(place, json.loads(line))
        code = await process.wait()
        del self._processes[place]
        return code

    def _hear(self, place: int, said: Any) -> None:
        if said == LOADED:
            self._loaded.set()
            return
        is_first = len(self._announced) < len(self._commands)
        self._announced[place] = said
        if is_first and len(self._announced) == len(self._commands):
            self._on_ready([self._announced[number] for number in range(len(self._commands))])

    def _stop(self) -> None:
        """Ask every process to end, more urgently each time."""
        self._stopping.set()
        number = _WAYS_TO_STOP[min(self._requests, len(_WAYS_TO_STOP) - 1)]
        self._requests += 1
        for process in self._processes.values():
            _send(process, number)

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but no longer than until all are to end."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            pass


def _send(process: Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:  # it has ended
        pass


def _told(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


# SIGTERM unwinds a command as Ctrl-C does, so that what was started is ended.

_heard: Final[list[int]] = []


def terminate(number: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM."""
    _heard.append(number)
    raise Terminated(TERMINATED)


def end_if_terminated() -> None:
    """Unwind after all, where code of others has caught what a signal raised in it."""
    if _heard:
        raise Terminated(TERMINATED)
