"""Walks: a question about a schema that is answered by asking it of the schemas that it holds or refers to.

Schemas may share what they refer to, and refer to themselves. Each is asked once: a walk is as long as the schema, and
ends. Where a schema leads back to itself, the answer there is no.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Walk:
    """A question of yes or no. `judge` answers it of one schema, and asks the walk of those in it."""

    def __init__(self, judge: Callable[[Any], bool]) -> None:
        self._judge = judge
        self._known: dict[int, tuple[Any, bool]] = {}
        """By the identity of a schema, which is held so that it lasts."""

    def __call__(self, part: Any) -> bool:
        """The answer for a schema of a document that does not change."""
        if not isinstance(part, dict):
            return self._judge(part)
        known = self._known.get(id(part))
        if known is None:
            self._known[id(part)] = part, False
            known = self._known[id(part)] = part, self._judge(part)
        return known[1]
