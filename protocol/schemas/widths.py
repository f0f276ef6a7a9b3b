"""Widths: how many ways through a pattern a match may have to follow at once (SPEC R7.1).

That many steps each character may take, where an engine is linear in the text: it keeps all ways open that may still
lead to a match. Repetitions that are counted are written out by it, so `(a{0,50}){0,50}` is some 2,500 wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from .dialect import pieces

_MOST: Final = 10**9


@dataclass(slots=True)
class _Group:
    """What was read of a group."""

    width: int = 0
    is_fixed: bool = True
    """Whether all that it matches is of one length."""
    last: int = 0
    """The width of the last thing in it, which a repetition repeats."""
    is_last_fixed: bool = True
    longest_run: int = 1
    """The width of what it repeats most, of things of one length: there is one way through it from any place."""

    def add(self, width: int, *, is_fixed: bool) -> None:
        self.width += width
        self.last, self.is_last_fixed = width, is_fixed
        self.is_fixed &= is_fixed

    def repeat(self, low: int, high: int) -> None:
        repeated = self.last * max(high, 1)
        self.width = min(_MOST, self.width - self.last + repeated)
        if self.is_last_fixed:
            self.longest_run = max(self.longest_run, repeated)
        self.is_fixed &= low == high
        self.last, self.is_last_fixed = repeated, self.is_last_fixed and low == high


@lru_cache(maxsize=1_024)
def width(pattern: str) -> int:
    """How wide a pattern is at most."""
    groups = [_Group()]
    for piece in pieces(pattern):
        if piece[0] == "(":
            groups.append(_Group())
        elif piece == ")" and len(groups) > 1:
            inner = groups.pop()
            groups[-1].add(inner.width, is_fixed=inner.is_fixed)
        elif piece[0] == "{" and len(piece) > 1:
            low, _, high = piece.strip("{}?").partition(",")
            groups[-1].repeat(int(low[:9]), int((high or low)[:9]))
        elif piece in ("*", "+", "?", "|"):
            groups[-1].is_fixed = False
        elif piece not in ("^", "$"):
            groups[-1].add(1, is_fixed=True)
    whole = sum(group.width for group in groups)
    begins = pattern.startswith("^") and "|" not in pattern
    return whole - groups[0].longest_run + 1 if begins else whole
