"""References and expressions: the grammar of `†state.user.id || †input.id` (SPEC R2).

    expression  = alternative *( "||" alternative )
    alternative = reference *( "&&" reference )
    reference   = "†" kind *( "." segment / "[" quoted "]" )
    kind        = letter *( letter / digit / "_" / "-" )
    segment     = 1*( any character but whitespace . [ ] | & † )      ; digits index a list
    quoted      = a JSON string

Inside of a template (see `templates`) it is the same without the daggers, and a segment has no `}` either.

A path is a tuple of segments: a bare segment of digits without leading zeros is an `int` (it indexes a list, or
names the key of those digits in an object), everything else is a `str` key. Printing is the inverse of parsing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import ClassVar, Final, Never

from . import limits
from .errors import ExpressionError

DAGGER: Final = "†"
_NO_EXPRESSION: Final = (DAGGER * 2, DAGGER + "{")

Path = tuple[str | int, ...]

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")
_BRACKETED = re.compile(rf"\[({_INDEX.pattern})\]")
_SEVERAL = re.compile(r"\[(?:\*|-?\d*(?::-?\d*){0,2})\]")
"""Elements of a list, as other systems name them: `[*]`, `[]`, `[-1]`, `[0:2]`."""
_BARE = re.compile(r"[^\s.\[\]|&†]+")
_PRINTED_BARE = re.compile(r"[^\s.\[\]|&†}]+")
"""Segments that can be printed without quotes, also in a template."""
_WHITESPACE = re.compile(r"\s*")
_KIND = re.compile(r"[^\W\d_][\w-]*")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reference:
    """One place in the context: a kind and a path inside its value."""

    kind: str
    path: Path = ()
    key: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """Kind and path as plain strings: `.0` and `["0"]` may be one place, so they compare equal here."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.kind, *map(str, self.path)))

    def __hash__(self) -> int:
        return hash(self.key)  # what compares equal has the same key

    def __str__(self) -> str:
        return DAGGER + self.kind + "".join(_print_segment(segment) for segment in self.path)

    def overlaps(self, other: Reference) -> bool:
        """Whether one place is the other, above it or below it (SPEC R6.1)."""
        mine, theirs = self.key, other.key
        shorter = min(len(mine), len(theirs))
        return mine[:shorter] == theirs[:shorter]


@dataclass(frozen=True, slots=True)
class Expression:
    """Alternatives (`||`), each a group of references (`&&`)."""

    alternatives: tuple[tuple[Reference, ...], ...]
    references: tuple[Reference, ...] = field(init=False, repr=False, compare=False)
    """Every reference, in the order written."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        groups = self.alternatives
        references = groups[0] if len(groups) == 1 else tuple(chain.from_iterable(groups))
        object.__setattr__(self, "references", references)
        object.__setattr__(self, "_hash", hash(self.alternatives))

    def __hash__(self) -> int:
        return self._hash  # asked for each of its references, of which there may be many

    def __str__(self) -> str:
        return " || ".join(" && ".join(map(str, group)) for group in self.alternatives)

    def __repr__(self) -> str:
        return repr(str(self))


def is_expression(value: object) -> bool:
    """Whether a parameter's value is an expression, and neither literal data nor a template (SPEC R2.2)."""
    return isinstance(value, str) and value.startswith(DAGGER) and not value.startswith(_NO_EXPRESSION)


@lru_cache(maxsize=16_384)
def parse(text: str) -> Expression:
    """Parse what a parameter reads (SPEC R2). Raises `ExpressionError`."""
    return Parser(text).expression()


def expression_in(text: str) -> Expression | None:
    """The expression that a parameter with this text is; None where it is literal data, or does not parse."""
    try:
        return parse(text) if is_expression(text) else None
    except ExpressionError:
        return None


@lru_cache(maxsize=16_384)
def parse_output_path(text: str) -> Expression:
    """Parse what a call writes: the same grammar, where a path without `†` is inside `state` (SPEC R2.5)."""
    if text.startswith(DAGGER) and "|" not in text and "&" not in text:
        return parse(text)  # one reference: most places that are written are read as well
    return _OutputPathParser(text).expression()


class Parser:
    """Recursive descent over the text, from a position on; each method is one rule of the grammar."""

    bare: ClassVar = _BARE
    """Characters of a segment that is not quoted."""
    bare_segments: ClassVar = re.compile(rf"(?:\.{_BARE.pattern})*")

    def __init__(self, text: str, position: int = 0) -> None:
        self.text = text
        self.position = position
        self.references = 0

    def expression(self) -> Expression:
        """expression = alternative *( "||" alternative )"""
        alternatives = [self.alternative()]
        while self.take("||"):
            alternatives.append(self.alternative())
        self.end()
        return Expression(tuple(alternatives))

    def end(self) -> None:
        """Fail unless the expression ends here."""
        if self.position < len(self.text):
            self.fail('"." or "[" and a segment, "||", "&&" or the end')

    def alternative(self) -> tuple[Reference, ...]:
        """alternative = reference *( "&&" reference )"""
        references = [self.reference()]
        while self.take("&&"):
            references.append(self.reference())
        return tuple(references)

    def reference(self) -> Reference:
        """reference = "†" kind *( "." segment / "[" quoted "]" )"""
        self.skip_whitespace()
        reference = self.place()
        if len(reference.path) > limits.MAX_SEGMENTS:
            self.fail(f"a path of at most {limits.MAX_SEGMENTS} segments")
        self.references += 1
        if self.references > limits.MAX_REFERENCES:
            self.fail(f"an expression of at most {limits.MAX_REFERENCES} references")
        return reference

    def place(self) -> Reference:
        """A reference, as it begins here."""
        if not self.text.startswith(DAGGER, self.position):
            self.fail('a reference starting with "†"')
        self.position += 1
        return self.kind_and_path()

    def kind_and_path(self) -> Reference:
        """kind *( "." segment / "[" quoted "]" )"""
        return Reference(self.kind(), tuple(self.segments()))

    def kind(self) -> str:
        """kind = letter *( letter / digit / "_" / "-" )"""
        match = _KIND.match(self.text, self.position)
        if match is None or not match[0][0].isalpha():
            self.fail("a kind such as state or input, starting with a letter")
        self.position = match.end()
        return match[0]

    def segments(self) -> Iterator[str | int]:
        """*( "." segment / "[" quoted "]" )"""
        match = self.bare_segments.match(self.text, self.position)  # bare ones, which most are, all at once
        assert match is not None
        self.position = match.end()
        yield from map(_segment, match[0].split(".")[1:])
        while self.position < len(self.text):
            if self.text[self.position] == ".":
                self.position += 1
                yield self.segment()
            elif self.text[self.position] == "[":
                yield self.quoted()
            else:
                return

    def segment(self) -> str | int:
        """segment = 1*( any character but whitespace . [ ] | & † )"""
        match = self.bare.match(self.text, self.position)
        if match is None:
            self.fail('a segment (a key with dots or spaces is written ["like this"])')
        self.position = match.end()
        return _segment(match[0])

    def quoted(self) -> str:
        """ "[" quoted "]", where quoted is a JSON string"""
        if (index := _BRACKETED.match(self.text, self.position)) is not None:
            self.fail(f".{index[1]} (an element of a list, not {index[0]})")
        if (several := _SEVERAL.match(self.text, self.position)) is not None:
            self.fail(f"the end (a list is read whole) or .0 (one element of it), not {several[0]}")
        self.position += 1
        match = _QUOTED.match(self.text, self.position)
        if match is None:
            self.fail('a key in double quotes, as in ["a key"]')
        try:
            key = json.loads(match[0])
            key.encode()  # an escape can spell half a surrogate pair, which nothing can store
        except ValueError:
            self.fail("a JSON string of valid Unicode")
        assert isinstance(key, str)
        self.position = match.end()
        if not self.text.startswith("]", self.position):
            self.fail('"]"')
        self.position += 1
        return key

    def take(self, operator: str) -> bool:
        """Step over the operator if it is next; the white space around it is free (SPEC R2.1)."""
        if self.position == len(self.text):
            return False
        self.skip_whitespace()
        if not self.text.startswith(operator, self.position):
            return False
        self.position += len(operator)
        return True

    def skip_whitespace(self) -> None:
        """Step over white space."""
        match = _WHITESPACE.match(self.text, self.position)
        assert match is not None
        self.position = match.end()

    def fail(self, expected: str) -> Never:
        """Raise the `ExpressionError` that something else was expected here."""
        raise ExpressionError(self.text, self.position, expected)


class _OutputPathParser(Parser):
    """Parses output paths: a path without `†` is in the kind `state`."""

    def place(self) -> Reference:
        if self.text.startswith(DAGGER, self.position):
            return super().place()
        first = self.quoted() if self.text.startswith("[", self.position) else self.segment()
        return Reference("state", (first, *self.segments()))


def _segment(bare: str) -> str | int:
    return int(bare) if _INDEX.fullmatch(bare) else bare


def _print_segment(segment: str | int) -> str:
    if isinstance(segment, int):
        return f".{segment}"
    if _PRINTED_BARE.fullmatch(segment) and not _INDEX.fullmatch(segment):
        return f".{segment}"
    return f"[{json.dumps(segment, ensure_ascii=False)}]"
