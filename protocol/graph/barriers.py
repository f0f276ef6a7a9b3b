"""Barriers: many writers of a place as one node, so that many readers may wait for them (SPEC R6.1).

Readers listed one after the other wait for more and more of the same writers, so the barrier of each is built on the
one before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

from acts_celery.protocol.language.messages import ERROR
from acts_celery.protocol.language.references import Reference

from .graph import SPELLED_OUT, Nodes
from .writers import Line, Writers

_Part = tuple[Line, int, int]
"""Some neighbours in a line: from, and up to but without."""


class Barriers:
    """Finds who writes a place, and sets barriers. To be asked in the order the calls are listed.

    `count` is the number of barriers that there are already.
    """

    def __init__(self, writers: Writers, count: int = 0) -> None:
        self.made: dict[int, Nodes] = {}
        """Barrier -> the calls and barriers that have to end before it."""
        self.behind_first: dict[int, None] = {}
        """Those behind the first calls of a line, which are waited for whatever the context holds."""
        self._writers = writers
        self._before = count
        self._known: dict[_Part, int] = {}
        self._longest: dict[Line, tuple[int, int]] = {}

    @property
    def count(self) -> int:
        """How many barriers there are, with those before."""
        return self._before + len(self.made)

    def before(self, place: Reference, *, by: int) -> Nodes:
        """The writers of a place that are listed before its reader."""
        parts = ((line, 0, bisect_left(line.calls, by)) for line in self._writers.lines(place))
        return _nodes(parts, self._barrier_of_first)

    def after(self, place: Reference, *, by: int) -> Nodes:
        """The writers of a place that are listed after its reader; for no error of these is waited (SPEC R3.1)."""
        if place.kind == ERROR:
            return ()
        parts = ((line, bisect_right(line.calls, by), len(line.calls)) for line in self._writers.lines(place))
        return _nodes(parts, self._barrier)

    def _barrier(self, part: _Part) -> int:
        line, start, end = part
        return self._known.get(part) or self._add(part, tuple(line.calls[start:end]))

    def _barrier_of_first(self, part: _Part) -> int:
        """A barrier behind the first calls of a line is built on the one before it."""
        line, _, end = part
        if part in self._known:
            self.behind_first[self._known[part]] = None  # it may have been made for a reader listed before all of them
            return self._known[part]
        covered, before = self._longest.get(line, (0, 0))
        new = line.calls[covered:end]
        barrier = self._add(part, (before, *new) if before else tuple(new))
        self._longest[line] = (end, barrier)
        self.behind_first[barrier] = None
        return barrier

    def _add(self, part: _Part, before: Nodes) -> int:
        barrier = self._known[part] = -1 - self.count
        self.made[barrier] = before
        return barrier


def _nodes(parts: Iterable[_Part], barrier: Callable[[_Part], int]) -> Nodes:
    nodes: list[int] = []
    for line, start, end in parts:
        if end > start:
            nodes += line.calls[start:end] if end - start <= SPELLED_OUT else (barrier((line, start, end)),)
    return tuple(sorted(set(nodes)) if len(nodes) > 1 else nodes)
