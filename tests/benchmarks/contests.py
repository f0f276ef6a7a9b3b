"""Measuring: sides do a job in turns, and medians of the rounds are held against a goal."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tests.benchmarks.jobs import Figures
from tests.benchmarks.sides import OURS, Running, Side, SideFailed, running

_WARM: Final = 100

SMALLER_IS_BETTER: Final = frozenset({"ms", "s", "bytes", "MiB"})
"""Units in which the smaller figure is the better one."""


@dataclass(frozen=True)
class Goal:
    """What a figure is to reach: the ratio to the peer's, or without a peer the figure itself."""

    bound: float
    is_strict: bool = False
    """Whether it has to be better than the bound, and not only as good."""
    is_most: bool = False
    """Whether the bound is an upper one."""

    def is_reached(self, value: float) -> bool:
        """Whether a value is good enough."""
        left, right = (value, self.bound) if self.is_most else (self.bound, value)
        return left < right or (left == right and not self.is_strict)

    def __str__(self) -> str:
        sign = "<" if self.is_most else ">"
        return f"{sign if self.is_strict else sign + '='} {self.bound:g}"


@dataclass(frozen=True)
class Line:
    """One comparison: our figure, the peer's if there is one, and the goal."""

    what: str
    unit: str
    ours: float | None = None
    peer: str = ""
    theirs: float | None = None
    goal: Goal | None = None
    failure: str = ""
    """Why there are no figures."""

    @property
    def ratio(self) -> float | None:
        """How many times as good as the peer we are."""
        if self.ours is None or self.theirs is None:
            return None
        better, worse = (self.theirs, self.ours) if self.unit in SMALLER_IS_BETTER else (self.ours, self.theirs)
        return better / worse

    @property
    def is_reached(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        if self.goal is None:
            return None
        value = self.ours if self.theirs is None else self.ratio
        return not self.failure and value is not None and self.goal.is_reached(value)

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "what": self.what,
            "unit": self.unit,
            "ours": self.ours,
            "peer": self.peer,
            "theirs": self.theirs,
            "ratio": self.ratio,
            "goal": None if self.goal is None else str(self.goal),
            "reached": self.is_reached,
            "failure": self.failure,
        }


@dataclass
class Bench:
    """How to measure: how often, how much, beside whom; and what was started for it."""

    rounds: int = 5
    has_peers: bool = True
    is_full: bool = False
    most: int | None = None
    """No job is larger: for tests."""
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)
    started: list[str] = field(default_factory=list)
    """What was started for the latest row."""

    def size(self, wanted: int) -> int:
        """How large a job is that should have a size."""
        return wanted if self.most is None else min(wanted, self.most)

    def repeated(self, what: str, work: Callable[[], Figures]) -> Figures:
        """The medians of some rounds."""
        found = []
        for number in range(self.rounds):
            self.say(f"{what}, round {number + 1} of {self.rounds}")
            found.append(work())
        return medians(found)

    @contextmanager
    def warm(self, side: Side, job: str, size: int, *, delay_seconds: float = 0.0) -> Iterator[Running]:
        """A side that is up and has done a job of up to a size. Raises `SideFailed`."""
        with running(side, delay_seconds=delay_seconds) as up:
            up.do(job, min(size, _WARM))
            self.started.append(up.started)
            yield up


@dataclass(frozen=True)
class Contest:
    """A job that several sides do, each with a server of its own."""

    job: str
    size: int
    goals: Sequence[tuple[Side, str, Goal | None]]
    """Peer, figure, and what the ratio is to be, if anything."""
    units: Mapping[str, str] = field(default_factory=lambda: {"per second": "/s"})
    """The figures of the job."""
    delay_seconds: float = 0.0

    def __call__(self, bench: Bench) -> Iterator[Line]:
        """Let all do the job, in turns; of a peer that fails it is said why. Raises `SideFailed` where we fail."""
        peers = dict.fromkeys(peer for peer, _, _ in self.goals if bench.has_peers)
        found, failures = self._figures(bench, [OURS, *peers])
        if OURS in failures:
            raise failures[OURS]
        for peer, name, goal in self.goals if peers else [(None, name, None) for name in self.units]:
            what, ours = "" if name == "per second" else name, found[OURS][name]
            if peer is None:
                yield Line(what, self.units[name], ours)
            elif peer in failures:
                yield Line(what, self.units[name], ours, peer.name, goal=goal, failure=str(failures[peer]))
            else:
                yield Line(what, self.units[name], ours, peer.name, found[peer][name], goal)

    def _figures(self, bench: Bench, sides: Sequence[Side]) -> tuple[dict[Side, Figures], dict[Side, SideFailed]]:
        figures: dict[Side, list[Figures]] = {side: [] for side in sides}
        failures: dict[Side, SideFailed] = {}
        with ExitStack() as stack:
            up: dict[Side, Running] = {}

            def attempt(side: Side, what: str, work: Callable[[], object]) -> None:
                if side in failures:
                    return
                bench.say(f"{side.name}: {what}")
                try:
                    work()
                except SideFailed as failure:
                    failures[side] = failure

            def start(side: Side) -> None:
                warm = bench.warm(side, self.job, self._size(bench, side), delay_seconds=self.delay_seconds)
                up[side] = stack.enter_context(warm)

            for side in sides:
                attempt(side, "starts", lambda: start(side))  # noqa: B023  # called at once
            for number in range(bench.rounds):
                for side in sides:
                    size = self._size(bench, side)
                    attempt(
                        side,
                        f"round {number + 1} of {bench.rounds}",
                        lambda: figures[side].append(up[side].do(self.job, size)),  # noqa: B023  # called at once
                    )
        return {side: medians(figures[side]) for side in sides if side not in failures}, failures

    def _size(self, bench: Bench, side: Side) -> int:
        return bench.size(min(self.size, side.most))


def medians(rounds: Sequence[Figures]) -> Figures:
    """The median of each figure."""
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}
