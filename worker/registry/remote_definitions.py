"""Request definitions at web addresses, of a bounded size and time; no redirect is followed (SPEC R9.1).

What this module loads takes a while: it is imported where something is fetched.
"""

from __future__ import annotations

import time
from http.client import HTTPException
from typing import IO, Any, Final
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from acts_celery.worker.errors import WorkerError

_TIMEOUT_SECONDS: Final = 10.0
_PIECE_BYTES: Final = 65_536


def fetched(address: str, most_bytes: int) -> bytes:
    """What is at an address that `is_below` has admitted. Raises `WorkerError`."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    try:
        request = Request(address, headers={"Accept": "application/json"})  # noqa: S310 - `is_below` admits http only
        with build_opener(_NoRedirect).open(request, timeout=_TIMEOUT_SECONDS) as answer:
            found = b""
            while len(found) <= most_bytes and (piece := answer.read1(_PIECE_BYTES)):
                found += piece
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it did not end in {_TIMEOUT_SECONDS:g} s")
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise WorkerError(f"delegate {address!r} cannot be had: {error}") from error
    if len(found) > most_bytes:
        raise WorkerError(f"delegate {address!r} has more than {most_bytes} bytes (ACTS_LIMIT_MESSAGE_BYTES)")
    return found


class _NoRedirect(HTTPRedirectHandler):
    """Follows none: the error of the answer is raised."""

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        """No other request."""
