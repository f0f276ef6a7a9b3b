r"""Patterns: the regular expressions of JSON Schema, ECMA-262 with Unicode (SPEC R4.1), and what they cost (SPEC R7.1).

jsonschema-rs translates most of the dialect. Left are what has no counterpart there (`[^]`, `[]`), surrogate pairs, the
escapes `\0` and, in a class, `\b`, and groups that are referred to by their names.

Most patterns are matched in time linear in the text (Rust's `regex`), those with look-around or backreferences by going
back a limited number of times (`fancy-regex`). A counted repetition is written out by the engine, so `(a{0,50}){0,50}`
is some 2,500 states large. What a pattern costs is read off its text alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from jsonschema_rs import Draft202012Validator, FancyRegexOptions, ValidationError, ValidationErrorKind

MOST_STEPS_BACK: Final = 100_000
"""A match that goes back more often is given up, after some milliseconds, and what hinges on it is refused."""
OPTIONS: Final = FancyRegexOptions(backtrack_limit=MOST_STEPS_BACK, size_limit=16 * 2**20)
"""How every pattern is compiled. One that needs more memory is none: `\\p{L}{1,255}` fits."""
_MOST: Final = 10**9
_LOOKING: Final = frozenset({"(?=", "(?!", "(?<=", "(?<!"})
_PIECE: Final = re.compile(
    r"(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"  # two escapes of one character
    r"|\\(?:[pPu]\{[^}]*+\}?|k<[^>]*+>?|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}|c[A-Za-z]|[1-9][0-9]*|.)"  # an escape
    r"|\[(?:\\.?|[^\]\\])*+\]?"  # a class of characters
    r"|\((?:\?(?:[:=!]|<[=!]|<[^>]++>?))?"  # a group begins
    r"|\{\d+(?:,\d*)?\}\??"  # a repetition that is counted
    r"|.",
    re.DOTALL,
)
"""What has no end goes to the end of the pattern, which then is none: it is not looked for again and again."""
_PAIR: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
_ESCAPES: Final = {r"\0": r"\x00", r"\b": r"\x08"}
_WHOLE: Final = {"[^]": r"[\s\S]", "[]": r"[^\s\S]", r"\b": r"\b"}


class PatternCost(NamedTuple):
    """What a pattern costs: `states` to compile it, `ways` that are followed at once for each character of a text, and
    whether it may go back in it.
    """

    states: int
    ways: int
    goes_back: bool


class _Item(NamedTuple):
    """Something in a pattern; `is_fixed` says whether all that it matches is of one length."""

    states: int
    ways: int
    is_fixed: bool
    run: int = 1
    """The ways of what a repetition made of a thing of one length: there is one way through it from any place."""

    def repeated(self, low: int, high: int) -> _Item:
        states, ways = (min(_MOST, one * max(high, 1)) for one in (self.states, self.ways))
        return _Item(states, ways, self.is_fixed and low == high, ways if self.is_fixed else 1)


_OF_SOME_ENGINES: Final = ("(?", "\\p", "\\P", "\\b", "\\B", "\\k")


def is_whole_text(pattern: str) -> bool:
    """Whether a pattern is of a whole text, `^…$`, and of what every engine of regular expressions has: it means the
    same where a pattern is looked for in a text and where it has to be all of it.
    """
    pieces, depth = list(_pieces(pattern)), 0
    if len(pieces) < 2 or (pieces[0], pieces[-1]) != ("^", "$"):
        return False
    for piece in pieces[1:-1]:
        depth += (piece[0] == "(") - (piece == ")")
        is_reference = piece[0] == "\\" and piece[1:2] in "123456789"
        if piece in ("^", "$") or (piece == "|" and not depth) or is_reference:
            return False
        if any(each in piece for each in _OF_SOME_ENGINES):
            return False
    return True


def translated(pattern: str) -> str:
    """The pattern as jsonschema-rs takes it. One that looks ahead may refer to groups by their names."""
    return "(?=)" * (r"\k<" in pattern) + "".join(map(_translated, _pieces(pattern)))


@lru_cache(maxsize=4_096)
def cost_of(pattern: str) -> PatternCost:
    """The most that a pattern can cost."""
    groups: list[list[_Item]] = [[]]
    goes_back = False
    for piece in _pieces(pattern):
        group = groups[-1]
        if piece[0] == "(":
            groups.append([])
            goes_back = goes_back or piece in _LOOKING
        elif piece == ")" and len(groups) > 1:
            groups.pop()
            groups[-1].append(_together(group))
        elif piece[0] == "{" and len(piece) > 1 and group:
            low, _, high = piece.strip("{}?").partition(",")
            group[-1] = group[-1].repeated(int(low[:9]), int((high or low)[:9]))
        elif piece in ("*", "+", "?", "|"):
            group.append(_Item(0, 0, is_fixed=False))
        elif piece not in ("^", "$"):
            goes_back = goes_back or (piece[0] == "\\" and piece[1:2] in "123456789k")
            group.append(_Item(_states(piece), 1, is_fixed=True))
    whole = _together(item for group in groups for item in group)
    is_anchored = pattern.startswith("^") and "|" not in pattern
    longest = max((item.run for item in groups[0]), default=1) if is_anchored else 1
    return PatternCost(whole.states, whole.ways + 1 - longest, goes_back)


@lru_cache(maxsize=256)
def matches(pattern: str, text: str) -> bool | None:
    """Whether a pattern occurs in a text; None where it goes back too often to say. One that is none occurs nowhere."""
    try:
        _validator(pattern).validate(text)
    except ValidationError as error:
        return False if isinstance(error.kind, (ValidationErrorKind.Pattern, ValidationErrorKind.Format)) else None
    except UnicodeEncodeError:  # a lone surrogate: no pattern speaks of those
        return False
    return True


@lru_cache(maxsize=64)
def _validator(pattern: str) -> Draft202012Validator:
    return Draft202012Validator({"pattern": translated(pattern)}, pattern_options=OPTIONS)


def _pieces(pattern: str) -> Iterator[str]:
    """What a pattern is made of, in order: characters, classes, repetitions, and where groups begin and end."""
    return (match.group() for match in _PIECE.finditer(pattern))


def _translated(piece: str) -> str:
    if len(piece) == 1 or piece[0] not in "\\[":
        return piece
    paired = _PAIR.sub(lambda pair: str(json.loads(f'"{pair.group()}"')), piece)
    return _WHOLE.get(piece) or _ESCAPED.sub(lambda escape: _ESCAPES.get(escape.group(), escape.group()), paired)


def _together(items: Iterable[_Item]) -> _Item:
    states, ways, fixed, _ = zip((0, 0, True, 1), *items, strict=True)
    return _Item(min(_MOST, sum(states)), min(_MOST, sum(ways)), all(fixed))


def _states(piece: str) -> int:
    """How large one character or class is, in tenths of microseconds."""
    if "\\p{" in piece or "\\P{" in piece:
        return 3_000
    return 60 if piece[0] in "[\\." or not piece.isascii() else 5
