"""The validator: what would hold up the event loop is done beside it.

Heavy checks have a process of their own, since jsonschema-rs holds the interpreter's lock. It is begun when the first
one comes, and again where it has died: what it was asked is asked once more. Other work that grows with what others
have written, such as reading the answer of a model, has a thread, where what it checks is checked in that process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from asyncio import IncompleteReadError, LimitOverrunError, create_subprocess_exec
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from signal import SIGKILL, SIGPROF
from typing import Any, Final, TypeVar

from acts_celery.protocol import Problem
from acts_celery.protocol.language.errors import pointer
from acts_celery.protocol.schemas.elsewhere import Check, OffloadedChecks
from acts_celery.protocol.schemas.validation import verdict_of
from acts_celery.protocol.schemas.work import EXCEEDED
from acts_celery.worker.fairness.fair_semaphore import FairSemaphore

T = TypeVar("T")

logger = logging.getLogger(__name__)

_PROGRAM: Final = "import sys; sys.path[:] = sys.argv[1:]; from acts_celery.worker.lanes.validating import main; main()"
"""It finds what this process finds, and not what happens to lie in the folder that this one was started in."""
_MOST_DEATHS: Final = 3
"""Of the process over one check; then the check counts as one that takes too much."""
_MOST_ANSWERED: Final = 2**28
_PATIENCE_SECONDS: Final = 120.0
"""How long a thread waits for a heavy check: many times what the checks before it take, where the process lives."""
_DIED: Final = (OSError, IncompleteReadError, LimitOverrunError)


class Validator:
    """The validator of one worker process, on its event loop."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._places = FairSemaphore(1)
        self._threads = FairSemaphore(1)

    def place(self, run: str) -> AbstractAsyncContextManager[None]:
        """What a run holds while it asks; runs take turns."""
        return self._places.one(run)

    async def in_thread(self, run: str, work: Callable[[], T]) -> T:
        """What some work for a run returns, done in a thread: one at a time, and runs take turns."""
        checks = _AwaitedChecks(asyncio.get_running_loop(), self, run)

        def done() -> T:
            with checks:
                return work()

        async with self._threads.one(run):
            return await asyncio.to_thread(done)

    async def verdict(self, check: Check) -> list[Problem]:
        """What comes of a check, in the words of this process; the caller holds the place."""
        for _ in range(_MOST_DEATHS):
            if self._process is None:
                try:
                    self._process = await begun(_PROGRAM, _MOST_ANSWERED)
                except _DIED as error:
                    logger.warning("no process for heavy checks can be begun (%r): one is made on the loop", error)
                    return verdict_of(check)
            process = self._process
            try:
                return await _answer(process, check)
            except _DIED as error:
                await self.close()
                logger.warning("the process for heavy checks has ended with %s (%r)", process.returncode, error)
                if process.returncode == -SIGPROF:
                    break  # its time was over
            except BaseException:
                await self.close()  # its answer is not awaited any more
                raise
        return [Problem(pointer(*json.loads(check.how)[2]), EXCEEDED)]

    async def close(self) -> None:
        """End the process, where there is one."""
        process, self._process = self._process, None
        if process is not None:
            await killed(process)


class _AwaitedChecks(OffloadedChecks):
    """Heavy checks of a thread, which waits for each."""

    __slots__ = ("_loop", "_run", "_validator")

    def __init__(self, loop: asyncio.AbstractEventLoop, validator: Validator, run: str) -> None:
        super().__init__()
        self._loop, self._validator, self._run = loop, validator, run

    def of(self, how: list[Any], document: str, value: Any) -> list[Problem]:
        """What a schema says against a value."""
        check = Check(json.dumps(how), document, json.dumps(value))
        try:
            return asyncio.run_coroutine_threadsafe(self._verdict(check), self._loop).result(_PATIENCE_SECONDS)
        except TimeoutError:
            return [Problem(pointer(*how[2]), EXCEEDED)]

    async def _verdict(self, check: Check) -> list[Problem]:
        async with self._validator.place(self._run):
            return await self._validator.verdict(check)


async def begun(program: str, most_answered: int, environment: Mapping[str, str] | None = None) -> Process:
    """Begin a process beside this one that runs a program of ours, and wait until it says that it is ready. It may
    answer lines of so many bytes. Raises `OSError`, `IncompleteReadError` or `LimitOverrunError` where it does not.
    """
    # In a session of its own, since a signal for the worker's group is not for it: it ends when the worker has.
    process = await create_subprocess_exec(
        *(sys.executable, "-I", "-c", program, *sys.path),
        stdin=PIPE,
        stdout=PIPE,
        limit=most_answered,
        start_new_session=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        await process.stdout.readuntil()
    except BaseException:
        await killed(process)
        raise
    return process


async def _answer(process: Process, check: Check) -> list[Problem]:
    """Raises one of `_DIED` where there is none."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.writelines(line.encode() + b"\n" for line in check)
    await process.stdin.drain()
    return [Problem(*told) for told in json.loads(await process.stdout.readuntil())]


async def killed(process: Process) -> None:
    """End a process at once, and wait until it has ended."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            # Not `process.kill()`, which asks first whether it has ended: how it has would be lost to asyncio.
            os.kill(process.pid, SIGKILL)
    await process.wait()
