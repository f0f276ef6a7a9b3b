"""What no line of a log may show: passwords in addresses, and the keys and passwords of the settings.

Errors of libraries and of activities quote addresses. So it is the whole line that is looked at, as it is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, SecretStr

from acts_celery.broker_config import Settings
from acts_celery.broker_config.urls import MASK, SecretUrl

_SHORTEST: Final = 4
"""A shorter one is no secret, and would be found where it is none."""
_PASSWORD: Final = re.compile(r"(?<=://)([^\s/@:\"'<>]*):[^\s/@\"'<>]+(?=@)")


class Masking:
    """Masks what is secret in texts."""

    def __init__(self, settings: Settings | None = None) -> None:
        known = set(_secrets(settings)) if settings is not None else set()
        escaped = {json.dumps(secret)[1:-1] for secret in known}
        long_enough = {secret for secret in known | escaped if len(secret) >= _SHORTEST}
        self._secrets = sorted(long_enough, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without them."""
        for secret in self._secrets:
            if secret in text:
                text = text.replace(secret, MASK)
        return _PASSWORD.sub(rf"\1:{MASK}", text) if "://" in text and "@" in text else text


def _secrets(value: Any) -> Iterator[str]:
    """Those of a setting, however deep they are."""
    if isinstance(value, SecretUrl):
        for url in value.get_secret_value().split(";"):
            if password := _password(url):
                yield from (password, unquote(password))
    elif isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        yield from _all(getattr(value, name) for name in type(value).model_fields)
    elif isinstance(value, dict):
        yield from _all(value.values())


def _all(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        yield from _secrets(value)


def _password(url: str) -> str | None:
    try:
        return urlsplit(url).password
    except ValueError:
        return None
