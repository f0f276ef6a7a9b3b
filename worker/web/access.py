"""Access: who enters, by which token, and what that admits.

A token comes in the header `Authorization` alone. A browser adds that to no request by itself, so no other page can
use it, and no log of addresses has it. Tokens are compared by their digests, in the same time whatever they are. Who
tries many wrong ones waits, and keeps nobody out: a right token is looked at first. No token takes all that a server
can do at a time.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from acts_celery.broker_config.tokens import AccessToken, Identity, Right

from .refusals import Refused
from .site import Site

WINDOW_SECONDS: Final = 60.0
WRONG_TOKENS: Final = 20
"""So many different wrong tokens may come from one address in that time; then others are not even called wrong until
the time is over. The same one counts once: a page that was left open goes on asking with the token that it had."""
_LEAST_SHARE: Final = 2
_ADDRESSES: Final = 10_000
_SCHEME: Final = "bearer "
_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}
_SUBNET: Final = 64


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who has entered."""

    name: str
    rights: frozenset[Right]
    identity: Identity | None = None
    """As a token has shown it."""

    @property
    def only(self) -> str | None:
        """The owner whose runs alone are seen; None where all are."""
        return self.name if "own" in self.rights else None

    def require(self, right: Right) -> None:
        """Raise `Refused` where this token does not admit something."""
        if right not in self.rights:
            has = ", ".join(sorted(self.rights))
            raise Refused(
                403, "NotAdmitted", f"this takes the right to {right}, and the token of {self.name} has {has}"
            )


@dataclass(slots=True)
class _Tries:
    """The wrong tokens that have come from one address."""

    since: float
    digests: set[bytes] = field(default_factory=set)


class Shares:
    """How much of something each name has, and may have."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._what = what
        self._taken: Counter[str] = Counter()

    def take(self, name: str) -> None:
        """Raise `Refused` where the name has its share already."""
        if self._taken[name] >= self._most:
            text = f"{name} has {self._most} {self._what}, which is its share: end one, or try again later"
            raise Refused(429, "TooMany", text, {"Retry-After": "10"})
        self._taken[name] += 1

    def give_back(self, name: str) -> None:
        """The name has one less."""
        self._taken[name] -= 1
        if not self._taken[name]:
            del self._taken[name]


class Access:
    """The tokens that are known, and the tries of others."""

    def __init__(self, tokens: Iterable[AccessToken], site: Site, clock: Callable[[], float] = time.monotonic) -> None:
        self._known = [(_digest(token.text), Visitor(token.name, token.rights, token.identity)) for token in tokens]
        self._site = site
        self._clock = clock
        self._tries: OrderedDict[str, _Tries] = OrderedDict()

    def enter(self, header: str | None, address: str) -> Visitor:
        """Who comes with such a header `Authorization`, from an address. Raises `Refused`."""
        if header is None or header[: len(_SCHEME)].lower() != _SCHEME:
            raise Refused(401, "NoToken", f"no token: {self._site.how_to_enter}", _CHALLENGE)
        digest = _digest(header[len(_SCHEME) :].strip())
        found = None
        for known, visitor in self._known:
            # Each is compared, so that the time does not say which one it is.
            found = visitor if hmac.compare_digest(known, digest) else found
        if found is None:
            tries = self._tries_of(address)
            if tries is not None and len(tries.digests) >= WRONG_TOKENS:
                wait = max(1, round(tries.since + WINDOW_SECONDS - self._clock()))
                text = f"too many wrong tokens came from {address}: wait {wait} seconds"
                raise Refused(429, "TooManyTries", text, {"Retry-After": str(wait)})
            self._note(address, digest)
            raise Refused(401, "WrongToken", f"this token is not known: {self._site.where_from}", _CHALLENGE)
        return found

    def shares(self, most: int, what: str) -> Shares:
        """What each name may have of something that is there `most` times: half, or all where nobody else enters."""
        is_alone = len({visitor.name for _, visitor in self._known}) < 2
        return Shares(most if is_alone else max(_LEAST_SHARE, most // 2), what)

    def _tries_of(self, address: str) -> _Tries | None:
        tries = self._tries.get(_place(address))
        if tries is not None and tries.since + WINDOW_SECONDS <= self._clock():
            del self._tries[_place(address)]
            return None
        return tries

    def _note(self, address: str, digest: bytes) -> None:
        tries = self._tries.setdefault(_place(address), _Tries(self._clock()))
        tries.digests.add(digest)
        while len(self._tries) > _ADDRESSES:
            self._tries.popitem(last=False)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _place(address: str) -> str:
    """What tries are counted by: an address, of IPv6 the subnet that one host can take addresses from."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, _SUBNET), strict=False)) if found.version == 6 else address
