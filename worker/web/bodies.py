"""The body of a request: as large as it may be, within a time, and not too many at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from starlette.requests import ClientDisconnect, Request

from .refusals import Refused

BODY_SECONDS: Final = 30.0
"""How long the body of a request may take to come."""
_SMALL_BYTES: Final = 64_000
_AGAIN_SECONDS: Final = "5"


async def body_of(request: Request, most_bytes: int, setting: str, hold: Callable[[int], None]) -> bytes:
    """The body of a request, which has at most so many bytes by a setting; `hold` is told how many it has so far.
    Raises `Refused`.
    """
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                parts.append(part)
                if (size := size + len(part)) > most_bytes:
                    raise Refused(413, "TooLarge", f"the body has more than {most_bytes} bytes ({setting})")
                hold(size)
    except (TimeoutError, ClientDisconnect):
        raise Refused(408, "TooSlow", f"the body has not come within {BODY_SECONDS:g} seconds") from None
    return b"".join(parts)


class Bodies:
    """The bodies that a server has at work: of each visitor as many as have the bytes of the largest one together, and
    twice as many in all. Small ones are not counted.
    """

    def __init__(self, most_bytes: int, setting: str) -> None:
        self._most = most_bytes
        self._setting = setting
        self._held = Counter[str]()

    @asynccontextmanager
    async def read(self, request: Request, visitor: str) -> AsyncIterator[bytes]:
        """Hold the body of a request as long as it is at work. Raises `Refused`."""
        held = 0

        def hold(size: int) -> None:
            nonlocal held
            if size > max(held, _SMALL_BYTES):
                self._require(visitor, size - held)
                self._held[visitor] += size - held
                held = size

        told = request.headers.get("content-length", "")
        try:
            hold(min(int(told), self._most) if told.isdecimal() else 0)
            yield await body_of(request, self._most, self._setting, hold)
        finally:
            self._held[visitor] -= held
            if not self._held[visitor]:
                del self._held[visitor]

    def _require(self, visitor: str, size: int) -> None:
        again = {"Retry-After": _AGAIN_SECONDS}
        if self._held[visitor] + size > self._most:
            text = f"your requests under way have {self._held[visitor]} bytes: send this one when they are answered"
            raise Refused(429, "TooManyBytes", text, again)
        if self._held.total() + size > 2 * self._most:
            raise Refused(503, "TooManyBytes", "the requests under way have too many bytes: send this one later", again)
