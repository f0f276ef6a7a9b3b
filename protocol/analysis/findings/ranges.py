"""Ranges: what numbers a schema's bounds leave, of a value itself or of how many things it holds (SPEC R4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `low` to `high`; an end that is open does not belong to it."""

    low: float = -inf
    high: float = inf
    is_low_open: bool = False
    is_high_open: bool = False

    def within(self, other: Range) -> Range:
        """What belongs to both."""
        low, is_low_open = max((self.low, self.is_low_open), (other.low, other.is_low_open))
        high, is_high_closed = min((self.high, not self.is_high_open), (other.high, not other.is_high_open))
        return Range(low, high, is_low_open, not is_high_closed)

    @property
    def is_empty(self) -> bool:
        """Whether no number belongs to it."""
        return self.low > self.high or (self.low == self.high and (self.is_low_open or self.is_high_open))

    @property
    def has_integer(self) -> bool:
        """Whether a whole number belongs to it."""
        if self.is_empty:
            return False
        if self.low == -inf or self.high == inf:
            return True
        first, last = ceil(self.low), floor(self.high)
        first += first == self.low and self.is_low_open
        last -= last == self.high and self.is_high_open
        return first <= last

    def __str__(self) -> str:
        """`at least 3 and less than 5`."""
        ends = []
        if self.low != -inf:
            ends.append(f"{'more than' if self.is_low_open else 'at least'} {self.low}")
        if self.high != inf:
            ends.append(f"{'less than' if self.is_high_open else 'at most'} {self.high}")
        return " and ".join(ends) or "any size"


ANY: Final = Range()


def ranges(schema: Mapping[str, Any], type_: str) -> Iterator[Range]:
    """What the keywords of a schema each say of the numbers of a type, or of how many things one of the type holds."""
    match type_:
        case "integer" | "fraction":
            yield from _between(schema, "minimum", "maximum")
            yield from _between(schema, "exclusiveMinimum", "exclusiveMaximum", is_open=True)
        case "string":
            yield from _between(schema, "minLength", "maxLength")
        case "array":
            yield from _between(schema, "minItems", "maxItems")
            if schema.get("items") is False:
                yield Range(high=_size(schema.get("prefixItems")))
        case "object":
            yield from _between(schema, "minProperties", "maxProperties")
            if schema.get("additionalProperties") is False and not schema.get("patternProperties"):
                yield Range(high=_size(schema.get("properties")))


def _between(schema: Mapping[str, Any], low: str, high: str, *, is_open: bool = False) -> Iterator[Range]:
    if _is_number(schema.get(low)):
        yield Range(low=schema[low], is_low_open=is_open)
    if _is_number(schema.get(high)):
        yield Range(high=schema[high], is_high_open=is_open)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _size(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0
