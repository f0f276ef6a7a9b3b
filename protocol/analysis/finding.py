"""Findings: what is worth knowing of a valid submission and is no error (SPEC R6.7).

What a code means, how severe it is and which rule it rests on is said once, in the `catalogue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.language.errors import pointer
from acts_celery.protocol.submission.layout import Layout

from .catalogue import CATALOGUE

_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: a code of the catalogue, a sentence, and what to do about it."""

    code: str
    message: str
    calls: tuple[int, ...] = ()
    """The indexes of the calls concerned."""
    pointer: str | None = None
    """JSON pointer into the submission, where the finding is about one place in it."""
    remedy: str | None = None
    """What to do, with the corrected text where there is one."""
    way: Mapping[str, Any] | None = field(default=None, hash=False)
    """Of a finding on trust the `source`, the call with the `effect`, and the calls between, the `way` (SPEC R16.5)."""

    @property
    def name(self) -> str:
        """The code in words, such as `race`."""
        return CATALOGUE[self.code].name

    @property
    def severity(self) -> str:
        """`warning`, `info` or `note`."""
        return CATALOGUE[self.code].severity

    @property
    def rule(self) -> str:
        """The rule of the specification, such as `R6.4`."""
        return CATALOGUE[self.code].rule

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        keys = ("code", "name", "severity", "message", "calls", "pointer", "remedy", "rule")
        return {key: getattr(self, key) for key in keys} | {"calls": list(self.calls), **(self.way or {})}


def on_call(layout: Layout, code: str, call: Call, why: str, remedy: str, *at: str | int) -> Finding:
    """The finding on one call, at a place in it."""
    where = pointer(*layout.submission.place(call.index), *at)
    return Finding(code, f"call {call.index} ({call.tool}) {why}", (call.index,), where, remedy)


def listed(items: Iterable[object]) -> str:
    """The first few of several, and how many more there are."""
    words = list(map(str, items))
    more = f" and {len(words) - _MOST_NAMED} more" if len(words) > _MOST_NAMED else ""
    return ", ".join(words[:_MOST_NAMED]) + more
