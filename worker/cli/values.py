"""Values as lines for people: keys and indentation as in YAML, texts as they are where that is unambiguous.

What is long is cut, and says how much is left out; `WHOLE` cuts nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from .output import escaped

INLINE_WIDTH: Final = 88
"""A list of scalars that is not longer stays on one line."""

_LOOKS_LIKE_JSON: Final = re.compile(r"(?:null|true|false|-?\d[\d.eE+-]*)\Z")
_SYNTAX_AT_START: Final = tuple("\"'[]{}|>-#&*!%@`")


@dataclass(frozen=True, slots=True)
class Cut:
    """How much of a value is shown; None is all."""

    characters: int | None = None
    """Of one text."""
    items: int | None = None
    """Of one list or object, and lines of one text."""


WHOLE: Final = Cut()
SHORT: Final = Cut(characters=200, items=20)


def value_lines(value: Any, indent: int = 0, cut: Cut = WHOLE) -> Iterator[str]:
    """A JSON value as indented lines."""
    if isinstance(value, dict) and value:
        for key, item in islice(value.items(), cut.items):
            yield from _entry_lines(f"{_key(key, cut)}:", item, indent, cut)
        yield from _rest(len(value), indent, cut, "key")
    elif isinstance(value, list) and value and not _is_inline(value, indent):
        for item in islice(value, cut.items):
            yield from _entry_lines("-", item, indent, cut)
        yield from _rest(len(value), indent, cut, "element")
    else:
        yield " " * indent + inline(value, cut)


def inline(value: Any, cut: Cut = WHOLE) -> str:
    """A value on one line; a text without quotes where it cannot be taken for anything else."""
    if isinstance(value, str):
        shown, rest = _cut_text(value, cut)
        return (shown if _is_plain(shown) else escaped(json.dumps(shown, ensure_ascii=False))) + rest
    return escaped(json.dumps(value, ensure_ascii=False))


def shortened(text: str, most: int) -> str:
    """At most so many characters of a text."""
    return text if len(text) <= most else text[: most - 1] + "…"


def cut_line(text: str, cut: Cut = WHOLE) -> str:
    """A text on one line, without quotes."""
    shown, rest = _cut_text(text, cut)
    return escaped(shown) + rest


def _rest(number: int, indent: int, cut: Cut, noun: str) -> Iterator[str]:
    if cut.items is not None and (left := number - cut.items) > 0:
        yield f"{' ' * indent}… and {left} {noun}{'' if left == 1 else 's'} more"


def _cut_text(text: str, cut: Cut) -> tuple[str, str]:
    """The beginning of a text, and what says how long it is where that is not all."""
    if cut.characters is None or len(text) <= cut.characters:
        return text, ""
    return text[: cut.characters], f"… ({len(text):,} characters)"


def _entry_lines(label: str, value: Any, indent: int, cut: Cut) -> Iterator[str]:
    margin = " " * indent
    if isinstance(value, str) and _is_block(value[: (cut.characters or len(value)) * 2]):
        lines = value.split("\n")
        yield f"{margin}{label} |"
        for line in islice(lines, cut.items):
            yield f"{margin}  {cut_line(line, cut)}".rstrip()
        yield from _rest(len(lines), indent + 2, cut, "line")
    elif isinstance(value, (dict, list)) and value and not (isinstance(value, list) and _is_inline(value, indent)):
        yield f"{margin}{label}"
        yield from value_lines(value, indent + 2, cut)
    else:
        yield f"{margin}{label} {inline(value, cut)}"


def _is_inline(value: Sequence[Any], indent: int) -> bool:
    if len(value) > INLINE_WIDTH or any(isinstance(item, (dict, list)) for item in value):
        return False
    return len(inline(value)) + indent <= INLINE_WIDTH


def _is_plain(text: str) -> bool:
    return (
        text == text.strip()
        and text != ""
        and escaped(text) == text
        and not text.startswith(_SYNTAX_AT_START)
        and not _LOOKS_LIKE_JSON.match(text)
    )


def _is_block(text: str) -> bool:
    lines = text.split("\n")
    return len(lines) > 1 and all(escaped(line) == line for line in lines)


def _key(key: str, cut: Cut) -> str:
    shown, rest = _cut_text(key, cut)
    return (shown if _is_plain(shown) and ": " not in shown else escaped(json.dumps(shown, ensure_ascii=False))) + rest
