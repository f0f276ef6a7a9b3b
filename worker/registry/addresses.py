"""Which web addresses name request definitions: only those below configured ones (SPEC R9.1).

An address is taken as it is written or not at all: what could lead elsewhere - `..`, escapes, a query, a user, another
host or port - is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

_PLAIN: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")


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
