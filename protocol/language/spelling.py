"""Spelling: the known name that an unknown one was probably meant to be."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

_SIGNS: Final = re.compile(r"[\W_]")
PATIENCE: Final = 2_000_000
"""Steps taken at most over all hints, some tenths of a second: a hostile list of errors is long, its names too."""
_LONGEST: Final = 100
_PER_NAME: Final = 80
"""Steps in whose time a name is looked at."""
_PER_STEP: Final = 16
"""Comparing two names takes time up to the third power of their length, so much of which is a step."""


def squeezed(name: str) -> str:
    """A name without case and signs: `Order ID`, `order_id` and `orderId` are the same."""
    return _SIGNS.sub("", name).lower()


class Speller:
    """Looks for near names, as long as that does not take too long over all.

    `likeness`, from 0 to 1, is how much a known name has to be like the unknown one.
    """

    def __init__(self, *, likeness: float = 0.6) -> None:
        self._left = PATIENCE
        self._likeness = likeness

    def nearest(self, name: str, names: Collection[str]) -> str | None:
        """The known name that is closest, if one is close."""
        if len(name) > _LONGEST or not self.lasts(_PER_NAME * len(names)):
            return None
        known = [other for other in names if len(other) <= _LONGEST]
        if not self.lasts(len(name) ** 2 * sum(map(len, known)) // _PER_STEP):
            return None
        close = get_close_matches(name, known, n=1, cutoff=self._likeness)
        return close[0] if close else None

    def hint(self, name: str, names: Collection[str]) -> str:
        """`, did you mean 'x'?` where a known name is close, else nothing."""
        near = self.nearest(name, names)
        return f", did you mean {near!r}?" if near is not None else ""

    def lasts(self, steps: int) -> bool:
        """Whether there is time for so many steps more, which are then taken."""
        self._left -= steps
        return self._left >= 0
