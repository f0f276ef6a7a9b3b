"""Lane admission: lanes of one run leave places of a worker for those of others, also in the queue.

A queue is first in, first out, and a run has up to `ACTS_PUBLISH_WINDOW` lanes in it. Where their calls are long, they
would take every place of a worker, and whatever comes behind them would wait for their end. So a lane beyond its run's
share stands aside in this process' memory until a place is given back; once one has stood there for a while, the worker
goes on taking what is behind it. A lane that stands aside is published and not begun: should the process die, the sweep
finds it as it finds any such.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from .fair_semaphore import FairPlaces

STUCK_SECONDS: Final = 0.5
"""So long a lane stands aside before what is behind it is taken."""
MOST_ASIDE: Final = 5_000

Begin = Callable[[Callable[[], None]], object]
"""Begins a lane, and calls what it is given once the lane has ended."""


class _Aside(NamedTuple):
    """A lane that stands aside, since when, and what begins it."""

    lane: str | None
    since: float
    begin: Begin


class LaneAdmission:
    """The lanes that a worker has begun, by run, and those that stand aside. `most` is how many places there are."""

    def __init__(self, most: Callable[[], int], later: Callable[[float, Callable[[], None]], object]) -> None:
        self._later = later
        self._places = FairPlaces[_Aside](most)

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is to be taken: a lane stands aside that may begin soon, or too many do."""
        now = monotonic()
        may_begin_soon = any(now - lane.since < STUCK_SECONDS for lane in self._places.first_of_each())
        return may_begin_soon or self._places.count_waiting() >= MOST_ASIDE

    def take(self, run: str, lane: str | None, begin: Begin, drop: Callable[[], object]) -> None:
        """Begin a lane, or let it stand aside; one that stands there already is dropped.

        Whoever stands aside is looked at first: what was to do so later is lost with a connection to the broker.
        """
        self._serve()
        if self._places.take(run):
            self._begin(run, begin)
        elif self._places.is_waiting(run, lane):
            drop()
        else:
            self._places.wait(run, lane, _Aside(lane, monotonic(), begin))
            self._later(STUCK_SECONDS, _nothing)  # the consumer looks again then

    def leave(self) -> list[tuple[str, str | None]]:
        """Let none stand aside any more; those that did, each with its run."""
        return [(run, lane.lane) for run, lane in self._places.empty()]

    def _begin(self, run: str, begin: Begin) -> None:
        begin(partial(self._give_back, run))

    def _give_back(self, run: str) -> None:
        self._places.give_back(run)
        if self._places.count_waiting():
            self._later(0, self._serve)

    def _serve(self) -> None:
        """Begin what may begin of what stands aside."""
        while (served := self._places.next()) is not None:
            run, lane = served
            self._begin(run, lane.begin)


def _nothing() -> None:
    """Wake the consumer."""
