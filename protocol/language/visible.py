"""Characters that cannot be seen, as escapes: what is shown to a person, a terminal or a model hides nothing in a text.

Controls, line ends of Unicode, marks of direction, fillers, tags and whatever else has no width. The two joiners stay:
they are parts of words and of emoji.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def json_text(value: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """A value as JSON, on one line where nothing is indented; what cannot be seen in its texts is escaped."""
    lines = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators).split("\n")
    return "\n".join(map(one_line, lines))


def one_line(text: str) -> str:
    """A text with what cannot be seen in it, ends of lines among it, as JSON writes it."""
    return INVISIBLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
