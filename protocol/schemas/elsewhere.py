"""Elsewhere: checks that are too heavy for the process that runs the engine, and what came of them in another one.

The core stays pure. Where the caller of the engine has entered `OffloadedChecks`, a heavy check is not made but
asked for, and counts as if nothing were wrong: what was decided meanwhile is worth nothing, is dropped, and is decided
anew when what came of the checks is there. Checks are known by their texts: the same one is never asked for twice.
"""

from __future__ import annotations

import json
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from acts_celery.protocol.language.errors import Problem

_MOST_BYTES: Final = 2**23
"""Of values that are asked for at a time; what else is to be checked is asked for when these verdicts are there."""


class Check(NamedTuple):
    """A value to be held against a schema: all that the verdict hangs on, as three texts of JSON, each of one line."""

    how: str
    """The schema's place in its document, what it can take, where the value stands and which names in it are known."""
    document: str
    value: str


@dataclass(slots=True)
class OffloadedChecks:
    """What is known of heavy checks; in force between `with` and its end, where nothing may be awaited."""

    found: dict[Check, list[Problem]] = field(default_factory=dict)
    asked: dict[Check, None] = field(default_factory=dict)
    """What has to be found before anything counts that was decided."""
    _bytes: int = 0
    _last: tuple[Any, str] = (None, "null")
    _token: Token[OffloadedChecks | None] | None = None

    def __enter__(self) -> None:
        self.asked, self._bytes = {}, 0
        self._token = OFFLOADED.set(self)

    def __exit__(self, *_: object) -> None:
        assert self._token is not None
        OFFLOADED.reset(self._token)
        self._last = None, "null"

    def of(self, how: list[Any], document: str, value: Any) -> list[Problem] | None:
        """What a schema says against a value; None where that has to be found first."""
        if self._last[0] is not value:  # many schemas may be applied to one value
            self._last = value, json.dumps(value)
        check = Check(json.dumps(how), document, self._last[1])
        if (problems := self.found.get(check)) is not None:
            return problems
        if not self.asked or self._bytes + len(check.value) <= _MOST_BYTES:
            self.asked[check] = None
            self._bytes += len(check.value)
        return None


OFFLOADED: Final[ContextVar[OffloadedChecks | None]] = ContextVar("OFFLOADED", default=None)
