"""The catalogue: every finding there is, in one table (SPEC R6.7). From it comes the reference page, too."""

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
_VALUES: Final = {
    "ACT201": Entry(
        "type-misfit",
        "warning",
        "R4.1",
        "A call reads what its writers promise, and nothing of that fits its tool or the signature of its activity.",
        "Read another field, or change one of the two schemas.",
    ),
    "ACT202": Entry(
        "value-misfit",
        "warning",
        "R4.1",
        "A call reads a value of the context that its tool does not admit.",
        "Change the value, or read another place.",
    ),
    "ACT203": Entry(
        "kind-misfit",
        "warning",
        "R4.6",
        "A call writes what the schema of the kind never admits at that place.",
        "Change the path, or one of the two schemas.",
    ),
    "ACT204": Entry(
        "unknown-field",
        "warning",
        "R4.6",
        "A call reads a field that the `_output` of its writer does not have, or does not list beside those it lists.",
        "write †state.var1.name",
    ),
    "ACT205": Entry(
        "wrong-container",
        "warning",
        "R3.5",
        "A path has an index into what is declared an object, or a key into what is declared a list or a scalar.",
        "write †state.var1.0.name to read the first element",
    ),
    "ACT206": Entry(
        "method-misfit",
        "warning",
        "R3.2",
        "A result can never be written by its `_outputMethod`: `assign` takes objects, `concat` lists and strings.",
        "Change the `_outputMethod`.",
    ),
    "ACT207": Entry(
        "delegate-misfit",
        "info",
        "R9.2",
        "A call reads what never fits the input that its delegate declares: the delegate has to bridge the gap.",
        "Read another field, or change one of the two schemas.",
    ),
    "ACT208": Entry(
        "never-written",
        "warning",
        "R4.6",
        "The schema of a kind requires a property that no call writes and the context does not hold.",
        "let a call write †state.total, or do not require it",
    ),
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
