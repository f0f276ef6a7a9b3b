"""Patterns: the regular expressions of JSON Schema, ECMA-262 with Unicode (SPEC R4.1), and what they cost (SPEC R7.1).

Most are matched in time linear in the text (Rust's `regex`), those with look-around or backreferences by going back a
limited number of times (`fancy-regex`); both come with jsonschema-rs. A counted repetition is written out by the
engine, so `(a{0,50}){0,50}` is some 2,500 states large. What a pattern costs is read off its text alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from jsonschema_rs import Draft202012Validator, FancyRegexOptions, ValidationError, ValidationErrorKind

from .dialect import pieces, translated

MOST_STEPS_BACK: Final = 100_000
"""A match that goes back more often is given up, after some milliseconds, and what hinges on it is refused."""
OPTIONS: Final = FancyRegexOptions(backtrack_limit=MOST_STEPS_BACK, size_limit=70 * 1024 * 1024)
"""How every pattern is compiled. One that needs more memory is none."""
_MOST: Final = 10**9
_LOOKING: Final = frozenset({"(?=", "(?!", "(?<=", "(?<!"})


class PatternCost(NamedTuple):
    """What a pattern costs: `states` to compile it, `ways` that are followed at once for each character of a text, and
    whether it may go back in it.
    """

    states: int
    ways: int
    goes_back: bool


@lru_cache(maxsize=4_096)
def cost_of(pattern: str) -> PatternCost:
    """The most that a pattern can cost."""
    groups = [_Group()]
    goes_back = False
    for piece in pieces(pattern):
        if piece[0] == "(":
            groups.append(_Group())
            goes_back = goes_back or piece in _LOOKING
        elif piece == ")" and len(groups) > 1:
            inner = groups.pop()
            groups[-1].add(inner.ways, inner.states, is_fixed=inner.is_fixed)
        elif piece[0] == "{" and len(piece) > 1:
            low, _, high = piece.strip("{}?").partition(",")
            groups[-1].repeat(int(low[:9]), int((high or low)[:9]))
        elif piece in ("*", "+", "?", "|"):
            groups[-1].is_fixed = False
        elif piece not in ("^", "$"):
            goes_back = goes_back or (piece[0] == "\\" and piece[1:2] in "123456789k")
            groups[-1].add(1, _states(piece), is_fixed=True)
    ways = sum(group.ways for group in groups)
    if pattern.startswith("^") and "|" not in pattern:
        ways += 1 - groups[0].longest_run
    return PatternCost(min(_MOST, sum(group.states for group in groups)), ways, goes_back)


@lru_cache(maxsize=256)
def matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern occurs in a text; None where it goes back too often to say. One that is none occurs nowhere."""
    validator = _validator(pattern)
    if validator is None:
        return False
    try:
        validator.validate(text)
    except ValidationError as error:
        return False if isinstance(error.kind, ValidationErrorKind.Pattern) else None
    except UnicodeEncodeError:  # a lone surrogate: no pattern speaks of those
        return False
    return True


@lru_cache(maxsize=64)
def _validator(pattern: str) -> Draft202012Validator | None:
    try:
        return Draft202012Validator({"pattern": translated(pattern)}, pattern_options=OPTIONS)
    except ValueError:
        return None


def _states(piece: str) -> int:
    """How large one character or class is, in tenths of microseconds."""
    if "\\p{" in piece or "\\P{" in piece:
        return 3_000
    return 60 if piece[0] in "[\\." or not piece.isascii() else 5


@dataclass(slots=True)
class _Group:
    """What was read of a group."""

    ways: int = 0
    states: int = 0
    is_fixed: bool = True
    """Whether all that it matches is of one length."""
    last: tuple[int, int] = (0, 0)
    """The ways and states of the last thing in it, which a repetition repeats."""
    is_last_fixed: bool = True
    longest_run: int = 1
    """The ways of what it repeats most, of things of one length: there is one way through it from any place."""

    def add(self, ways: int, states: int, *, is_fixed: bool) -> None:
        self.ways += ways
        self.states += states
        self.last, self.is_last_fixed = (ways, states), is_fixed
        self.is_fixed &= is_fixed

    def repeat(self, low: int, high: int) -> None:
        ways, states = self.last
        times = max(high, 1)
        self.ways = min(_MOST, self.ways + ways * (times - 1))
        self.states = min(_MOST, self.states + states * (times - 1))
        if self.is_last_fixed:
            self.longest_run = max(self.longest_run, min(_MOST, ways * times))
        self.last, self.is_last_fixed = (
            (min(_MOST, ways * times), min(_MOST, states * times)),
            (self.is_last_fixed and low == high),
        )
        self.is_fixed &= low == high
