"""The catalogue: every finding there is (SPEC R6.7). The reference page and the codes to ignore come from this table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Entry:
    """What a code stands for."""

    name: str
    severity: str
    """`warning`: what is written can hardly be meant. `info`: worth a look. `note`: no reason to change anything."""
    rule: str
    meaning: str
    remedy: str
    """An example of what to do."""


_ORDER: Final = {
    "ACT103": Entry(
        "race",
        "warning",
        "R6.4",
        "Two calls write one place, and neither waits for the other: the last to finish wins.",
        "Let one call read what the other writes.",
    ),
}
_VALUES: Final[dict[str, Entry]] = {
    "ACT299": Entry(
        "incomplete",
        "note",
        "R6.7",
        "The submission is so large that not everything in it was looked at.",
        "Check it in parts.",
    ),
}
_TEXT: Final[dict[str, Entry]] = {}
_SURROUNDINGS: Final[dict[str, Entry]] = {}

CATALOGUE: Final = {**_ORDER, **_VALUES, **_TEXT, **_SURROUNDINGS}
"""Code to entry. ACT1xx: order and data flow; ACT2xx: values and types; ACT3xx: texts and slips; ACT4xx: scopes, tools,
settings and messages.
"""
