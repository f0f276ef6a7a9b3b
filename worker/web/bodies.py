"""The body of a request: as large as it may be, and within a time."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import ClientDisconnect, Request

from .refusals import Refused

BODY_SECONDS: Final = 30.0
"""How long the body of a request may take to come."""


async def body_of(request: Request, most_bytes: int, setting: str) -> bytes:
    """The body of a request, which has at most so many bytes by a setting. Raises `Refused`."""
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                parts.append(part)
                if (size := size + len(part)) > most_bytes:
                    raise Refused(413, "TooLarge", f"the body has more than {most_bytes} bytes ({setting})")
    except (TimeoutError, ClientDisconnect):
        raise Refused(408, "TooSlow", f"the body has not come within {BODY_SECONDS:g} seconds") from None
    return b"".join(parts)
