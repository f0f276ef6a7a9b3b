"""Spelling: the known name that an unknown one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

COMPARISONS: Final = 10_000
"""How many names are compared at most over all hints: comparing is slow, and a hostile list of errors long."""
_LONGEST: Final = 100


class Speller:
    """Gives hints for unknown names, as long as comparing them does not take too long.

    `likeness`, from 0 to 1, is how much a known name has to be like the unknown one.
    """

    def __init__(self, names: Iterable[str], *, likeness: float = 0.6) -> None:
        self._names = [name for name in names if len(name) <= _LONGEST]
        self._left = COMPARISONS
        self._likeness = likeness

    def hint(self, name: str) -> str:
        """`, did you mean 'x'?` where a known name is close, else nothing."""
        self._left -= len(self._names)
        if self._left < 0 or len(name) > _LONGEST:
            return ""
        close = get_close_matches(name, self._names, n=1, cutoff=self._likeness)
        return f", did you mean {close[0]!r}?" if close else ""
