"""Reading: the answers of the pages, made in threads. One run has a few of them at most, so a large one that takes long
keeps nobody waiting who looks at another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakValueDictionary

from acts_celery.protocol.language.visible import json_text

_THREADS: Final = 16
_OF_ONE_RUN: Final = 4
_COMPACT: Final = (",", ":")

T = TypeVar("T")


class Answering(Protocol):
    """What gives the answers: `acts_celery.worker.page.Page`."""

    def answer(self, path: str, query: Mapping[str, str], owner: str | None = None) -> Any:
        """The answer to a question, as JSON has it; with an `owner` only its own runs are there."""


class Reader:
    """Asks a page, in threads."""

    def __init__(self, page: Answering) -> None:
        self._page = page
        self._threads = ThreadPoolExecutor(_THREADS, "acts-web")
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def answer(self, path: str, query: Mapping[str, str]) -> Any:
        """The answer to a question."""
        return await self.call(_run_of(path), lambda: self._page.answer(path, query))

    async def body(self, path: str, query: Mapping[str, str], owner: str | None = None) -> bytes:
        """The same as the bytes of a response; with an `owner` only its own runs are there."""
        return await self.call(_run_of(path), lambda: encoded(self._page.answer(path, query, owner)))

    async def call(self, run: str, ask: Callable[[], T]) -> T:
        """What a function that reads a run returns."""
        turn = self._turns.get(run)
        if turn is None:
            self._turns[run] = turn = asyncio.Semaphore(_OF_ONE_RUN)
        async with turn:
            return await asyncio.get_running_loop().run_in_executor(self._threads, ask)

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _run_of(path: str) -> str:
    """The run that a path is about; empty for the list of runs."""
    return path.partition("/")[2].partition("/")[0]


def encoded(value: Any) -> bytes:
    """A value as JSON in UTF-8. Half a character, which UTF-8 cannot hold, becomes the escape that JSON has for it."""
    return json_text(value, separators=_COMPACT).encode("utf-8", "backslashreplace")
