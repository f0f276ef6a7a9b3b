"""The settings of `acts ui`: who may look at runs and decide in them, and where their pages are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self, cast
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from acts_celery.broker_config.addresses import ENVIRONMENT_PREFIX, AddressSettings
from acts_celery.broker_config.errors import SettingsError
from acts_celery.broker_config.urls import REDIS_SCHEMES, SecretUrl, check_url, redis_url_of

__all__ = ["RIGHTS", "Right", "UiSettings", "UiToken"]

Right = Literal["read", "decide", "control"]
"""What a token admits: to look; to decide on what is held for a person; to pause, cancel, retry and fork runs."""
RIGHTS: Final[tuple[Right, ...]] = ("read", "decide", "control")
_LEAST_CHARACTERS: Final = 16
_NAME_CHARACTERS: Final = 200
_FILE: Final = "@"
_FORM: Final = "NAME:RIGHTS:TOKEN, such as ann:decide+control:TOKEN"
_MAKE: Final = "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"


@dataclass(frozen=True, slots=True)
class UiToken:
    """Who enters with which token, and what that admits; whoever enters may read."""

    name: str
    rights: frozenset[Right]
    text: str = field(repr=False)


class UiSettings(AddressSettings):
    """The settings of `acts ui`."""

    ui_tokens: SecretStr | None = Field(
        None,
        description="Who may open the pages of `acts ui`: NAME:RIGHTS:TOKEN, separated by commas or lines. RIGHTS are "
        "`read`, `decide` and `control`, with + between them; whoever enters may read. The audit trail has the name. "
        "@FILE reads them from a file. Unset: `acts ui` makes a token for its own machine.",
    )
    ui_redis_url: SecretUrl | None = Field(
        None,
        description="The Redis that `acts ui` reads runs from, such as a replica of the log; what it writes goes to "
        "the log. Unset: the log.",
    )
    ui_url: str | None = Field(
        None,
        description="Where the pages of `acts ui` are, as a browser sees them (http or https): behind a proxy, and "
        "for links to them. Unset: where it listens.",
    )
    ui_viewers: int = Field(100, gt=0, description="How many pages of `acts ui` may follow runs at a time.")

    @field_validator("ui_tokens")
    @classmethod
    def _check_ui_tokens(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(_FILE):
            _read_tokens(value.get_secret_value())
        return value

    @field_validator("ui_redis_url")
    @classmethod
    def _check_ui_redis_url(cls, value: SecretUrl | None) -> SecretUrl | None:
        if value is None:
            return None
        url = value.get_secret_value()
        return SecretUrl(check_url(redis_url_of(url) or url, schemes=REDIS_SCHEMES))

    @field_validator("ui_url")
    @classmethod
    def _check_ui_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("should be http:// or https://, a host, and perhaps a port")
        if parts.path not in ("", "/") or parts.username is not None:
            raise ValueError("the pages are at the root of a host: it has no path, user or password")
        return value.rstrip("/")

    @property
    def for_reading(self) -> Self:
        """The settings with which `acts ui` reads runs."""
        return self if self.ui_redis_url is None else self.model_copy(update={"redis_url": self.ui_redis_url})

    def read_ui_tokens(self) -> tuple[UiToken, ...]:
        """The tokens, read from their file where one is named. Raises `SettingsError`."""
        if self.ui_tokens is None:
            return ()
        text, variable = self.ui_tokens.get_secret_value(), f"{ENVIRONMENT_PREFIX}UI_TOKENS"
        try:
            if text.startswith(_FILE):
                text = Path(text.removeprefix(_FILE)).read_text(encoding="utf-8")
            return _read_tokens(text)
        except (OSError, ValueError) as error:
            raise SettingsError([f"{variable}: {error}"]) from error


def _read_tokens(text: str) -> tuple[UiToken, ...]:
    """Read tokens. Raises ValueError, which shows none of them."""
    found = tuple(_tokens(text))
    if not found:
        raise ValueError(f"names no token: write {_FORM}")
    if len({token.text for token in found}) < len(found):
        raise ValueError("two of the tokens are the same: the audit trail could not tell whose it was")
    return found


def _tokens(text: str) -> Iterator[UiToken]:
    entries = (part.strip() for line in text.splitlines() for part in line.split(","))
    for number, entry in enumerate(filter(None, entries), 1):
        name, *more = entry.split(":")
        if len(more) != 2:
            raise ValueError(f"token {number}: should be {_FORM}")
        rights, token = more[0].split("+"), more[1]
        if not name or not name.isprintable() or len(name) > _NAME_CHARACTERS:
            raise ValueError(f"token {number}: its name should have 1 to {_NAME_CHARACTERS} visible characters")
        if strange := [right for right in rights if right not in RIGHTS]:
            raise ValueError(f"token {number} ({name}): {strange[0]!r:.40} is no right: {', '.join(RIGHTS)}")
        if len(token) < _LEAST_CHARACTERS or not (token.isascii() and token.isprintable()) or " " in token:
            raise ValueError(
                f"token {number} ({name}): should have {_LEAST_CHARACTERS} or more ASCII characters; {_MAKE}"
            )
        yield UiToken(name, frozenset(cast("list[Right]", ["read", *rights])), token)
