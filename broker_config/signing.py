"""The key that requests to a web hook are signed with, as Standard Webhooks has it."""

from __future__ import annotations

import base64
import binascii
from typing import Final

__all__ = ["SHORTEST_KEY", "signing_key"]

SHORTEST_KEY: Final = 16
"""Bytes: a shorter one can be guessed."""
_PREFIX: Final = "whsec_"


def signing_key(secret: str) -> bytes:
    """The key that a secret stands for: `whsec_` and base64, or the text itself.

    Raises `ValueError` where it is too short, or is not what it begins as; the error does not show it.
    """
    key = secret.encode()
    if secret.startswith(_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"what stands behind {_PREFIX} is no base64") from None
    if len(key) < SHORTEST_KEY:
        raise ValueError(f"the key has {len(key)} bytes, where {SHORTEST_KEY} are the fewest")
    return key
