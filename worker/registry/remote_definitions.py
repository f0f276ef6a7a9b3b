"""Request definitions at web addresses: only below configured ones, and of a bounded size and time (SPEC R9.1).

An address is taken as it is written or not at all: what could lead elsewhere - `..`, escapes, a query, a user, another
host or port, a redirect - is refused before or instead of being followed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from http.client import HTTPException
from typing import IO, Any, Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from worker.errors import WorkerError

_PLAIN: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")
_TIMEOUT_SECONDS: Final = 10.0
_PIECE_BYTES: Final = 65_536


def is_address(name: str) -> bool:
    """Whether a name, or a root, is a web address."""
    return name.startswith(("http://", "https://"))


def is_below(name: str, roots: Sequence[str]) -> bool:
    """Whether an address is that of a JSON file below one of the roots."""
    if not _PLAIN.fullmatch(name) or not name.endswith(".json"):
        return False
    asked = urlsplit(name)
    found = (urlsplit(root if root.endswith("/") else f"{root}/") for root in roots)
    return any(
        (asked.scheme, asked.netloc) == (root.scheme, root.netloc) and asked.path.startswith(root.path)
        for root in found
    )


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
