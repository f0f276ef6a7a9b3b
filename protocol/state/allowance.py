"""Allowance: how much one call may be given (SPEC R7.1), measured before anything is copied.

A call of a few bytes may read a large value many times over, and each reading is a copy of it.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgpack

from acts_celery.protocol.language.limits import Containers, Limits, TooManyContainers
from acts_celery.protocol.language.paths import MISSING, copied
from acts_celery.protocol.language.references import Expression
from acts_celery.protocol.language.templates import as_text


class TooLarge(Exception):
    """A call would be given more than the limits allow."""


class Peeks(Protocol):
    """What expressions are read from: a fold, or those of all instances."""

    def peek(self, expression: Expression) -> Any:
        """What an expression reads, to be looked at and not changed."""


class Allowance:
    """What one call may still be given: it reads as what it stands before does, within the limits."""

    def __init__(self, reads: Peeks, limits: Limits) -> None:
        self._reads = reads
        self._limits = limits
        self._bytes = 0
        self._containers = Containers(limits.containers)
        self._uncounted: list[bytes] = []

    def read(self, expression: Expression) -> Any:
        """What an expression reads, as a copy. Raises `TooLarge`, `Unresolved` or `Conflict`."""
        value = self._reads.peek(expression)
        self.take(value)
        return copied(value)

    def text(self, expression: Expression) -> str:
        """What an expression reads, as it stands in a text (SPEC R2.6). Raises as `read` does."""
        value = self._reads.peek(expression)
        if not isinstance(value, str):
            self._require(len(_packed(value)))  # before it is written out
            value = as_text(value)
        self.take(value)
        return str(value)

    def take(self, value: Any) -> None:
        """Count a value that the call is given, if it is there. Raises `TooLarge`."""
        if value is MISSING:
            return
        data = _packed(value)
        self._require(len(data))
        self._bytes += len(data)
        self._uncounted.append(data)
        if self._bytes > self._limits.containers:  # fewer bytes hold fewer objects and lists
            self._count()

    def _require(self, more: int) -> None:
        """Raise `TooLarge` where so many more bytes are too many."""
        if self._bytes + more > self._limits.call_bytes:
            raise TooLarge(f"it is given more than {self._limits.call_bytes} bytes (ACTS_LIMIT_CALL_BYTES)")

    def _count(self) -> None:
        try:
            for data in self._uncounted:
                self._containers.count_in(data)
        except TooManyContainers:
            most = self._limits.containers
            raise TooLarge(f"it is given more than {most} objects and lists (ACTS_LIMIT_CONTAINERS)") from None
        self._uncounted.clear()


def _packed(value: Any) -> bytes:
    """A value as it travels; the core takes all that JSON has, also what cannot travel: it has a size, too."""
    data: bytes = msgpack.packb(value, default=str, unicode_errors="surrogatepass")
    return data
