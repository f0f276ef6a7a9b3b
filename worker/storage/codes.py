"""Codes: which worker carried out the calls of a run, with which version of their code (SPEC R11.9, R17.1).

Many calls have the same one, so an entry that ends a call has its number (field `W`), and the run's hash `codes` has
each once: its bytes, and the number. After so many of a run no more are noted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from redis import Redis

from .keys import Keys

MOST_CODES: Final = 1_000
_BETWEEN: Final = "\x1f"


@dataclass(frozen=True, slots=True)
class Code:
    """A worker, and a version of code."""

    worker: str
    version: str | None
    """None where a model has answered."""

    def pack(self) -> str:
        """As the hash has it."""
        return f"{self.worker}{_BETWEEN}{self.version or ''}"

    @classmethod
    def unpack(cls, text: str) -> Self:
        """The inverse."""
        worker, _, version = text.partition(_BETWEEN)
        return cls(worker, version or None)


def codes_of(found: Any) -> dict[int, Code]:
    """The codes of a run by their numbers, from its hash; without what is none of ours."""
    numbered = ((text.decode("utf-8", "replace"), number.decode()) for text, number in found.items())
    return {int(number): Code.unpack(text) for text, number in numbered if number.isascii() and number.isdecimal()}


def read_codes(redis: Redis, keys: Keys) -> dict[int, Code]:
    """The codes of a run by their numbers. Raises `RedisError`."""
    return codes_of(redis.hgetall(keys.codes))
