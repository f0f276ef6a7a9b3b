"""Dialect: patterns as ECMA-262 writes them, put so that the engine understands them (SPEC R4.1).

jsonschema-rs translates most of the dialect. Left are what has no counterpart there (`[^]`, `[]`), surrogate pairs, the
escapes `\\0` and, in a class, `\\b`, and groups that are referred to by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Final

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
_NAMED: Final = re.compile(r"\(\?<(?![=!])([^>]+)>")
_PAIR: Final = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_WHOLE_CLASSES: Final = {"[^]": r"[\s\S]", "[]": r"[^\s\S]"}


def pieces(pattern: str) -> Iterator[str]:
    """What a pattern is made of, in order: characters, classes, repetitions, and where groups begin and end."""
    return (match.group() for match in _PIECE.finditer(pattern))


def translated(pattern: str) -> str:
    """The pattern as jsonschema-rs takes it."""
    numbers = _numbers(pattern)
    return "".join(_translated(piece, numbers) for piece in pieces(pattern))


def _numbers(pattern: str) -> dict[str, int]:
    """The number of each group that has a name."""
    following = count(1)
    found: dict[str, int] = {}
    for piece in pieces(pattern):
        if named := _NAMED.fullmatch(piece):
            found[named.group(1)] = next(following)
        elif piece == "(":
            next(following)
    return found


def _translated(piece: str, numbers: dict[str, int]) -> str:
    if piece in _WHOLE_CLASSES:
        return _WHOLE_CLASSES[piece]
    if _NAMED.fullmatch(piece):
        return "("
    if piece.startswith("\\k<") and piece[3:-1] in numbers:
        return rf"(?:\{numbers[piece[3:-1]]})"
    if len(piece) == 1 or piece[0] not in "\\[":
        return piece
    in_class = piece[0] == "["
    return _ESCAPED.sub(lambda escape: _escape(escape, in_class=in_class), _PAIR.sub(_character, piece))


def _escape(escape: re.Match[str], *, in_class: bool) -> str:
    if escape.group(1) == "0":
        return r"\x00"
    return r"\x08" if in_class and escape.group(1) == "b" else escape.group()


def _character(pair: re.Match[str]) -> str:
    high, low = (int(half, 16) for half in pair.groups())
    return rf"\u{{{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):X}}}"
