"""Names that come from outside and become labels of figures: a bounded number of them, of a bounded form.

What keeps figures has a series for each name. Whoever submits runs can make up names of tools, so what is beyond the
bound has no name of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_NAME: Final = re.compile(r"\w[\w.:/@+-]{0,99}")
_MOST: Final = 200
"""How many names a process gives out, unless another number is given."""


class BoundedNames:
    """The names that were given out: those that are known beforehand, and the first others that were asked for."""

    def __init__(self, most: int = _MOST, known: Iterable[str] = ()) -> None:
        self._given = {name for name in known if _NAME.fullmatch(name)}
        self._most = most + len(self._given)

    def bounded(self, name: str) -> str | None:
        """The name, where it is one of those given out; None where it is too long, too odd or one too many."""
        if name in self._given:
            return name
        if len(self._given) >= self._most or not _NAME.fullmatch(name):
            return None
        self._given.add(name)
        return name
