"""The errors of the pure core, as one small tree (SPEC R7).

`ProtocolError` is the root. A `Problem` is one structural error with the place it was found at; `Rejected` carries
all of them at once. The others concern one expression or one path.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Any, ClassVar, Final, TypeVar

T = TypeVar("T")


class ProtocolError(Exception):
    """Root of everything the pure core raises."""

    code: ClassVar[str] = "protocol_error"
    """Names the kind of error for programs; it does not change between versions."""


class ExpressionError(ProtocolError, ValueError):
    """An expression that does not parse (SPEC R2.2).

    `text` is the expression, `position` the offset in it where parsing stopped, `expected` what should be there.
    """

    code = "expression_error"

    def __init__(self, text: str, position: int, expected: str) -> None:
        self.text = text
        self.position = position
        self.expected = expected
        shown, _ = _excerpt(text, position)
        super().__init__(f"{shown!r} does not parse: expected {expected} at position {position}")

    @property
    def caret(self) -> str:
        """Two lines for people: the text, and a caret under the position."""
        return _caret(self.text, self.position)


class Unresolved(ProtocolError, LookupError):
    """A reference to something that is not there (SPEC R2.3)."""

    code = "unresolved"


class Conflict(ProtocolError, TypeError):
    """An operation whose base has the wrong type (SPEC R3.4): push onto a number, a key inside a list.

    `source` names the message.
    """

    code = "conflict"

    def __init__(self, message: str, source: str = "") -> None:
        super().__init__(message)
        self.source = source


class OutputError(ProtocolError, ValueError):
    """A result that may not be written: an undeclared path, or a value its schema forbids (SPEC R4.4-R4.6)."""

    code = "output_error"


class Cause:
    """Cause of a problem as data, from which hints are made without parsing the message."""


@dataclass(frozen=True, slots=True)
class Unparsed(Cause):
    """An expression that does not parse: `position` is the offset in `text` where `expected` should be (SPEC R2.2)."""

    text: str
    position: int
    expected: str


@dataclass(frozen=True, slots=True)
class UnknownName(Cause):
    """A name that is not among the known ones."""

    name: str
    known: tuple[str, ...] = field(repr=False)
    remedy: str = ""
    """Remedy, if no known name is similar."""


def listed(names: object) -> Iterable[str]:
    """Names in a container, if it can list them."""
    return names if isinstance(names, Iterable) else ()


def some_of(items: Collection[T], most: int, write: Callable[[T], str] = str) -> str:
    """List the first few items for a message, and say how many more there are: `a, b and 3 more`."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(write, islice(items, most))) + more


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One structural error: `pointer` is a JSON pointer (RFC 6901) into the submission (SPEC R7.1)."""

    pointer: str
    message: str
    cause: Cause | None = field(default=None, compare=False)

    @property
    def excerpt(self) -> str | None:
        """Two lines for people, where an expression does not parse: the text, and a caret under the position."""
        return _caret(self.cause.text, self.cause.position) if isinstance(self.cause, Unparsed) else None

    def to_dict(self) -> dict[str, str]:
        """Write the error as JSON: its `pointer` and its `message`."""
        return {"pointer": self.pointer, "message": self.message}

    def __str__(self) -> str:
        return f"{self.pointer or '/'}: {self.message}"


def unparsed(error: ExpressionError, *at: str | int) -> Problem:
    """Problem of an expression that does not parse, at its place."""
    return Problem(pointer(*at), str(error), Unparsed(error.text, error.position, error.expected))


class Rejected(ProtocolError):
    """A submission with structural errors; nothing of it runs (SPEC R7.1). `errors` lists all of them."""

    code = "rejected"

    def __init__(self, errors: Iterable[Problem]) -> None:
        self.errors: tuple[Problem, ...] = tuple(errors)
        super().__init__("\n".join(map(str, self.errors)))


def pointer(*segments: str | int) -> str:
    """The JSON pointer of a place, from its keys and indexes (RFC 6901). It can always be printed as UTF-8."""
    text = "".join("/" + str(segment).replace("~", "~0").replace("/", "~1") for segment in segments)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def segments(pointer: str) -> tuple[str, ...]:
    """The keys and indexes of a JSON pointer, as texts."""
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def repeated_key(pairs: Iterable[tuple[Any, Any]]) -> str:
    """Error text for an object with a repeated key; `pairs` are its keys and values as written."""
    return key_repeated(next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1))


def key_repeated(key: Any) -> str:
    """Error text for an object in which this key is repeated."""
    return f"the key {key!r} occurs twice in one object"


def no_json(error: ValueError) -> str:
    """Error text for invalid JSON, from `json`'s error without its advice on long numbers, which is not for users."""
    text = str(error)
    return "a number has too many digits: write it as a string" if "int_max_str_digits" in text else text


def shortened(text: str, most: int = 300) -> str:
    """A text with its middle left out where it is long."""
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-most // 2 :]}"


def _caret(text: str, position: int) -> str:
    shown, column = _excerpt(text, position)
    return f"{shown}\n{' ' * column}^"


def _excerpt(text: str, position: int, around: int = 30) -> tuple[str, int]:
    """The text around a position on one line, and the caret's column in it."""
    start, end = max(0, position - around), position + around
    head = "…" if start > 0 else ""
    tail = "…" if end < len(text) else ""
    line = "".join(character if character.isprintable() else " " for character in text[start:end])
    return head + line + tail, len(head) + position - start


# Spelling: the known name that an unknown one was probably meant to be.

_SIGNS: Final = re.compile(r"[\W_]")
PATIENCE: Final = 2_000_000
"""Steps taken at most over all hints, some tenths of a second: a hostile list of errors is long, its names too."""
_LONGEST: Final = 100
_PER_NAME: Final = 80
"""The number of steps that looking at one name takes."""
_PER_STEP: Final = 16
"""The part of the third power of two names' length, which comparing them takes at most, that is one step."""


def squeezed(name: str) -> str:
    """A name without case and signs: `Order ID`, `order_id` and `orderId` are the same."""
    return _SIGNS.sub("", name).lower()


class Speller:
    """Looks for near names, as long as that does not take too long over all.

    `likeness`, from 0 to 1, is how much a known name has to be like the unknown one.
    """

    def __init__(self, *, likeness: float = 0.6) -> None:
        self._left = PATIENCE
        self._likeness = likeness

    def nearest(self, name: str, names: Collection[str]) -> str | None:
        """The known name that is closest, if one is close."""
        if len(name) > _LONGEST or not self.lasts(_PER_NAME * len(names)):
            return None
        known = [other for other in names if len(other) <= _LONGEST]
        if not self.lasts(len(name) ** 2 * sum(map(len, known)) // _PER_STEP):
            return None
        close = get_close_matches(name, known, n=1, cutoff=self._likeness)
        return close[0] if close else None

    def hint(self, name: str, names: Collection[str]) -> str:
        """`, did you mean 'x'?` where a known name is close, else nothing."""
        near = self.nearest(name, names)
        return f", did you mean {near!r}?" if near is not None else ""

    def lasts(self, steps: int) -> bool:
        """Take `steps` from the time that is left; say whether it was enough."""
        self._left -= steps
        return self._left >= 0


# Characters that cannot be seen, as escapes: what is shown to a person, a terminal or a model hides nothing in a text.
#
# Controls, line ends of Unicode, marks of direction, fillers, tags and whatever else has no width. The two joiners
# stay: they are parts of words and of emoji.

INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def json_text(value: Any, *, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """A value as JSON, on one line unless it is indented; invisible characters in its texts are escaped."""
    lines = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators).split("\n")
    return "\n".join(map(one_line, lines))


def one_line(text: str) -> str:
    """A text with what cannot be seen in it, ends of lines among it, as JSON writes it."""
    return INVISIBLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
