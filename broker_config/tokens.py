"""Tokens: who may use one of our servers, and with which rights.

A setting has them as NAME:RIGHTS:TOKEN, separated by commas or lines, or names a file of such lines as @FILE. The name
is the actor, in the audit trail too: two tokens of one name are one principal, so that one can replace the other.
Limits may follow the token, as in NAME:RIGHTS:TOKEN:runs=5+money=2.50.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal, Self, cast

from pydantic import AfterValidator, PrivateAttr, SecretStr

from .addresses import ENVIRONMENT_PREFIX, AddressSettings
from .errors import SettingsError
from .limits import LEAST_CHARACTERS, NAME_CHARACTERS, SHORTEST_KEY

Right = Literal["read", "submit", "decide", "control", "all", "own"]
"""A right of a token: to look; to submit runs; to decide on held calls; to pause, cancel, retry and fork runs; to see
all runs; to see only the runs of its name.
"""
_FILE: Final = "@"
_FORM: Final = "NAME:RIGHTS:TOKEN, such as ann:decide+control:TOKEN"
_COUNT: Final = re.compile(r"\d{1,15}", re.ASCII)
_LIMITS: Final = {
    "runs": _COUNT,
    "calls": _COUNT,
    "tokens": _COUNT,
    "money": re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII),
}
_LIMITS_FORM: Final = "runs=5+calls=1000+tokens=200000+money=2.50"
_MAKE: Final = "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """Limits of an identity: runs at a time, and use on one day (UTC); None is no limit."""

    runs: int | None = None
    """Runs under way at a time."""
    calls: int | None = None
    """Calls in the runs that were started on that day; `tokens` and `money` are counted likewise."""
    tokens: int | None = None
    money: Decimal | None = None
    """US dollars."""

    @property
    def are_of_a_day(self) -> bool:
        """Whether some of the limits count what was started today."""
        return (self.calls, self.tokens, self.money) != (None, None, None)


NO_LIMITS: Final = TokenLimits()


@dataclass(frozen=True, slots=True)
class Identity:
    """A name that a token proves, with its limits."""

    name: str
    limits: TokenLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token: who it admits, and with which rights. Every token may read."""

    name: str
    rights: frozenset[Right]
    text: str = field(repr=False)
    limits: TokenLimits = NO_LIMITS
    is_named: bool = True
    """Whether a setting names it; a token that a server makes at its start identifies nobody."""

    @property
    def identity(self) -> Identity | None:
        """Who shows it; None for a token that identifies nobody."""
        return Identity(self.name, self.limits) if self.is_named else None


class ActingSettings(AddressSettings):
    """Settings under which a server acts for its users."""

    _identity: Identity | None = PrivateAttr(None)

    @property
    def identity(self) -> Identity | None:
        """The identity that a token has proved; no variable, argument or file sets it."""
        return self._identity

    def acting_for(self, name: str, identity: Identity | None) -> Self:
        """Return the settings under which a server acts for somebody, by name and by what their token proves."""
        acting = self.model_copy(update={"actor": name})
        acting._identity = identity
        return acting


def checked_tokens(rights: Sequence[Right]) -> AfterValidator:
    """Return what refuses a setting whose tokens cannot be read, or have other rights; it does not read a file."""

    def check(setting: SecretStr) -> SecretStr:
        if not setting.get_secret_value().startswith(_FILE):
            _read(setting.get_secret_value(), rights)
        return setting

    return AfterValidator(check)


def read_tokens(setting: SecretStr | None, name: str, rights: Sequence[Right]) -> tuple[AccessToken, ...]:
    """Read the tokens of a setting, which may have these rights. Raises `SettingsError`."""
    if setting is None:
        return ()
    text = setting.get_secret_value()
    try:
        if text.startswith(_FILE):
            text = Path(text.removeprefix(_FILE)).read_text(encoding="utf-8")
        return _read(text, rights)
    except (OSError, ValueError) as error:
        raise SettingsError([f"{ENVIRONMENT_PREFIX}{name}: {error}"]) from error


def _read(text: str, rights: Sequence[Right]) -> tuple[AccessToken, ...]:
    """Read tokens. Raises ValueError, which shows none of them."""
    found = tuple(_tokens(text, rights))
    if not found:
        raise ValueError(f"names no token: write {_FORM}")
    if len({token.text for token in found}) < len(found):
        raise ValueError("two of the tokens are the same: the audit trail could not tell whose it was")
    limits = {token.name: token.limits for token in found}
    if odd := next((token.name for token in found if token.limits != limits[token.name]), None):
        raise ValueError(f"the tokens of {odd} have other limits each: write the same behind all of them")
    return found


def _tokens(text: str, admitted: Sequence[Right]) -> Iterator[AccessToken]:
    entries = (part.strip() for line in text.splitlines() for part in line.split(","))
    for number, entry in enumerate(filter(None, entries), 1):
        name, *more = entry.split(":")
        if len(more) not in (2, 3):
            raise ValueError(f"token {number}: should be {_FORM}")
        rights, token = more[0].split("+"), more[1]
        if not name or not name.isprintable() or len(name) > NAME_CHARACTERS:
            raise ValueError(f"token {number}: its name should have 1 to {NAME_CHARACTERS} visible characters")
        if unknown := [right for right in rights if right not in admitted]:
            raise ValueError(f"token {number} ({name}): {unknown[0]!r:.40} is no right: {', '.join(admitted)}")
        if len(token) < LEAST_CHARACTERS or not (token.isascii() and token.isprintable()) or " " in token:
            raise ValueError(
                f"token {number} ({name}): should have {LEAST_CHARACTERS} or more ASCII characters; {_MAKE}"
            )
        limits = _limits(more[2], f"token {number} ({name})") if len(more) > 2 else NO_LIMITS
        yield AccessToken(name, frozenset(cast("list[Right]", ["read", *rights])), token, limits)


def _limits(text: str, where: str) -> TokenLimits:
    found: dict[str, Any] = {}
    for part in text.split("+"):
        name, _, number = part.partition("=")
        if name not in _LIMITS or name in found or not _LIMITS[name].fullmatch(number):
            # It is not shown: it may be the rest of a token.
            raise ValueError(f"{where}: behind a token, which has no colon, only its limits may follow: {_LIMITS_FORM}")
        found[name] = Decimal(number) if name == "money" else int(number)
    return TokenLimits(**found)


# The key that requests to a web hook are signed with, as Standard Webhooks has it.

_PREFIX: Final = "whsec_"


def check_signing_key(secret: SecretStr) -> SecretStr:
    """Return a secret that a key can be made of. Raises `ValueError` as `signing_key` does."""
    signing_key(secret.get_secret_value())
    return secret


def signing_key(secret: str) -> bytes:
    """Return the key that a secret means: `whsec_` and base64, or the text itself.

    Raises `ValueError`, which does not show it, for a short key or wrong base64.
    """
    key = secret.encode()
    if secret.startswith(_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"what follows {_PREFIX} is not base64") from None
    if len(key) < SHORTEST_KEY:
        raise ValueError(f"the key has {len(key)} bytes, where {SHORTEST_KEY} are the fewest")
    return key
