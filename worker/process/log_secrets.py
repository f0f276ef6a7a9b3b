"""What no line of a log may show: passwords in addresses, and the keys and passwords of the settings.

Errors of libraries and of activities quote addresses. So it is the whole line that is looked at, as it is written.
"""

from __future__ import annotations

import json
import re
from typing import Final

from acts_celery.broker_config import Settings
from acts_celery.broker_config.urls import MASK

_PASSWORD: Final = re.compile(r"(?<=://)([^\s/@:\"'<>]*):[^\s/@\"'<>]+(?=@)")


class Masking:
    """Masks what is secret in texts."""

    def __init__(self, settings: Settings | None = None) -> None:
        known = settings.secrets() if settings is not None else frozenset()
        escaped = {json.dumps(secret)[1:-1] for secret in known}
        self._secrets = sorted(known | escaped, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without them."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return _PASSWORD.sub(rf"\1:{MASK}", text) if "://" in text and "@" in text else text
