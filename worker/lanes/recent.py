"""What was used last and is kept for a while: so many things, of so many bytes, for so long."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from math import inf
from time import monotonic
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key. What was put first goes first."""

    def __init__(self, most: int, *, most_bytes: int, longest_seconds: float = inf) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._longest_seconds = longest_seconds
        self._values: OrderedDict[K, tuple[float, int, V]] = OrderedDict()
        """Each with the time when it was put, and its bytes then."""
        self._bytes = 0

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def get(self, key: K) -> V | None:
        """What is kept of a key."""
        found = self._values.get(key)
        return found[2] if found is not None else None

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value that has so many bytes now, as the one that was used last."""
        self.pop(key)
        self._values[key] = monotonic(), size, value
        self._bytes += size
        while self._values and self._is_one_to_go():
            self.pop(next(iter(self._values)))

    def pop(self, key: K) -> V | None:
        """Keep a value no longer; returns it, where there is one."""
        if (found := self._values.pop(key, None)) is None:
            return None
        self._bytes -= found[1]
        return found[2]

    def _is_one_to_go(self) -> bool:
        since, _, _ = next(iter(self._values.values()))
        too_many = len(self._values) > self._most or self._bytes > self._most_bytes
        return too_many or monotonic() - since > self._longest_seconds
