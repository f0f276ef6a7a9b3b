"""One client, over standard input and output: whoever has started the process."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, Final

from mcp.server.stdio import stdio_server

from acts_celery.broker_config import Settings

from .principals import Principal
from .server import make_server, most_bytes

logger = logging.getLogger("acts.mcp")

_INPUT: Final = 0
_AT_ONCE: Final = 65_536


async def serve(settings: Settings, principal: Principal) -> None:
    """Serve until the client closes its end, or the process is told to end. Whatever else reads standard input in this
    process finds it empty, and whatever else is printed goes to stderr.
    """
    server = make_server(settings, lambda _: principal)
    lines: Any = _Lines(_own_input(), most_bytes(settings))
    async with stdio_server(stdin=lines) as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


class _Lines:
    """The lines of a file, none longer than the limit. They are read in a thread that holds up nothing when it waits,
    whereas the SDK's own would keep the process until its client writes something.
    """

    def __init__(self, file: int, most: int) -> None:
        self._file = file
        self._most = most
        self._read: asyncio.Queue[bytes] = asyncio.Queue(1)

    async def __aiter__(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_on, args=[loop], name="acts-mcp-stdin", daemon=True).start()
        begun = bytearray()
        while data := await self._read.get():
            *lines, rest = data.split(b"\n")
            for line in lines:
                yield (begun + line).decode("utf-8", "replace")
                begun = bytearray()
            begun += rest
            if len(begun) > self._most:
                logger.error("the client sends a message of more than %d bytes: its session ends", self._most)
                return

    def _read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError, CancelledError):  # the loop is closed: the process ends
            while True:
                data = os.read(self._file, _AT_ONCE)
                asyncio.run_coroutine_threadsafe(self._read.put(data), loop).result()
                if not data:
                    return


def _own_input() -> int:
    """Standard input under another number, so that no code of others reads what the client sends."""
    file = os.dup(_INPUT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _INPUT)
    os.close(nothing)
    return file
