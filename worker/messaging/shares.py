"""Shares: lanes of one run leave places of a worker for those of others, and do not stand in their way in the queue.

A queue is first in, first out, and a run has up to `ACTS_PUBLISH_WINDOW` lanes in it. Where their calls are long, they
would take every place of a worker, and whatever comes behind them would wait for their end. So a run may hold eight
ninths of the places at most, less where others hold some. A lane beyond its run's share stands aside in this process'
memory until a place is given back; once one has stood there for a while, the worker goes on taking what is behind it.
A lane that stands aside is published and not begun: should the process die, the sweep finds it as it finds any such.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from time import monotonic
from typing import Final

STUCK_SECONDS: Final = 0.5
"""So long a lane stands aside before what is behind it is taken."""
MOST_ASIDE: Final = 5_000

SHARE: Final = 8
"""A run may hold so many times the places that are left free."""
FEW: Final = 16
"""Of fewer places none is kept free."""

Begin = Callable[[Callable[[], None]], object]
"""Begins a lane, and calls what it is given once the lane has ended."""


def may_hold_another(own: int, held: int, most: int) -> bool:
    """Whether who holds `own` of the places held, of so many there are, may have one more."""
    free = most - held
    return free > 0 and (own == 0 or most < FEW or own < SHARE * (free - 1))


class Shares:
    """The lanes that a worker has begun, by run, and those that stand aside. `most` is how many places there are."""

    def __init__(self, most: Callable[[], int], later: Callable[[float, Callable[[], None]], object]) -> None:
        self._most = most
        self._later = later
        self._held: dict[str, int] = {}
        self._in_all = 0
        self._aside: OrderedDict[str, OrderedDict[Hashable, tuple[float, Begin]]] = OrderedDict()
        """Of each run the lanes in the order in which they came, with the time when they did."""
        self._count = 0

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is to be taken: a lane stands aside that may begin soon, or too many do."""
        now = monotonic()
        return bool(self._aside) and (
            self._count >= MOST_ASIDE or any(now - _oldest(lanes) < STUCK_SECONDS for lanes in self._aside.values())
        )

    def take(self, run: str, lane: Hashable, begin: Begin, drop: Callable[[], object]) -> None:
        """Begin a lane, or let it stand aside; one that stands there already is dropped.

        Whoever stands aside is looked at first: what was to do so later is lost with a connection to the broker.
        """
        if self._aside:
            self._serve()
        aside = self._aside.get(run)
        if aside is None and self._may_begin(run):
            self._begin(run, begin)
        elif aside is not None and lane in aside:
            drop()
        else:
            self._aside.setdefault(run, OrderedDict())[lane] = monotonic(), begin
            self._count += 1
            self._later(STUCK_SECONDS, _nothing)  # the consumer looks again then

    def _may_begin(self, run: str) -> bool:
        return may_hold_another(self._held.get(run, 0), self._in_all, self._most())

    def _begin(self, run: str, begin: Begin) -> None:
        self._held[run] = self._held.get(run, 0) + 1
        self._in_all += 1
        begin(partial(self._give_back, run))

    def _give_back(self, run: str) -> None:
        self._in_all -= 1
        self._held[run] -= 1
        if not self._held[run]:
            del self._held[run]
        if self._aside:
            self._later(0, self._serve)

    def _serve(self) -> None:
        """Begin what may begin of what stands aside, the runs in turn."""
        for run in list(self._aside):
            lanes = self._aside[run]
            while lanes and self._may_begin(run):
                _, (_, begin) = lanes.popitem(last=False)
                self._count -= 1
                self._begin(run, begin)
            if not lanes:
                del self._aside[run]


def _oldest(lanes: OrderedDict[Hashable, tuple[float, Begin]]) -> float:
    """When the first of them came."""
    since, _ = next(iter(lanes.values()))
    return since


def _nothing() -> None:
    """Wake the consumer."""
