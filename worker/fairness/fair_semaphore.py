"""Places that are shared fairly among keys, such as runs: none takes the last ones, and they are served in turn.

A key that is alone may hold eight ninths of the places, less where others hold some, so who comes finds places free.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

T = TypeVar("T")

SHARE: Final = 8
"""A key may hold so many times the places that are left free."""
FEW: Final = 16
"""Of fewer places none is kept free."""


def may_hold_another(own: int, held: int, most: int) -> bool:
    """Whether who holds `own` of the places held, of so many there are, may have one more."""
    free = most - held
    return free > 0 and (own == 0 or most < FEW or own < SHARE * (free - 1))


class FairPlaces(Generic[T]):
    """Who holds places and who waits for one, with what is kept of each. `most` is how many places there are."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._held = Counter[str]()
        self._held_in_all = 0
        self._waiting: OrderedDict[str, OrderedDict[Hashable, T]] = OrderedDict()
        """Of each key those who wait, in the order in which they came."""

    def take(self, key: str) -> bool:
        """Take a place for a key, where it may have another one and nobody waits for that."""
        return key not in self._waiting and self._take(key)

    def give_back(self, key: str) -> None:
        """Give a place back. Whoever may have it is `next`."""
        self._held_in_all -= 1
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]

    def wait(self, key: str, name: Hashable, waiter: T) -> None:
        """Have someone wait behind those of its key."""
        self._waiting.setdefault(key, OrderedDict())[name] = waiter

    def is_waiting(self, key: str, name: Hashable) -> bool:
        """Whether someone of that name waits already."""
        return name in self._waiting.get(key, ())

    def next(self) -> tuple[str, T] | None:
        """Give a place to the next one who waits and may have it; returns its key, and what was kept of it."""
        for key, line in self._waiting.items():
            if self._take(key):
                _, waiter = line.popitem(last=False)
                self._waiting.move_to_end(key)
                if not line:
                    del self._waiting[key]
                return key, waiter
        return None

    def first_of_each(self) -> Iterator[T]:
        """Of each key who has waited for longest."""
        return (next(iter(line.values())) for line in self._waiting.values())

    def count_waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    def empty(self) -> list[tuple[str, T]]:
        """Let nobody wait any more; what was kept of each, with its key."""
        kept = [(key, waiter) for key, line in self._waiting.items() for waiter in line.values()]
        self._waiting.clear()
        return kept

    def _take(self, key: str) -> bool:
        may = may_hold_another(self._held[key], self._held_in_all, self._most())
        if may:
            self._held[key] += 1
            self._held_in_all += 1
        return may


class FairSemaphore:
    """So many at a time on one event loop, shared fairly among keys."""

    def __init__(self, most: int) -> None:
        self._places = FairPlaces[asyncio.Future[None]](lambda: most)

    @asynccontextmanager
    async def one(self, key: str) -> AsyncIterator[None]:
        """Hold a place for a key; wait for one."""
        if not self._places.take(key):
            await self._wait(key)
        try:
            yield
        finally:
            self._give_back(key)

    async def _wait(self, key: str) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._places.wait(key, waiter, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._give_back(key)
            raise

    def _give_back(self, key: str) -> None:
        self._places.give_back(key)
        while (served := self._places.next()) is not None:
            served_key, waiter = served
            if waiter.cancelled():
                self._places.give_back(served_key)
            else:
                waiter.set_result(None)
