"""Templates: a text in which each `†{path || path}` is replaced by its value (SPEC R2.6); and what a text means.

    template = *( literal / "††" / "†{" expression "}" )

The expression is as in `references`, without daggers; in a key, `}` is quoted. `††` is read from left to right and
means one `†`, in every text; a `†` before anything else is itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol

from . import limits
from .errors import ExpressionError
from .references import DAGGER, Expression, Parser, Reference, is_expression, parse

OPENING: Final = DAGGER + "{"


class Readable(Protocol):
    """Source of the values that expressions read: a fold, or the folds of all instances."""

    def read(self, expression: Expression) -> Any:
        """Read an expression, as a copy. Raises `Unresolved` or `Conflict`."""

    def text(self, expression: Expression) -> str:
        """Read an expression as a text (SPEC R2.6)."""


@dataclass(frozen=True, slots=True)
class Template:
    """Literal texts, and between them what is read; one that does not parse has no parts."""

    parts: tuple[str | Expression, ...]

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Everything it reads, in the order written."""
        return tuple(part for part in self.parts if isinstance(part, Expression))

    def __str__(self) -> str:
        return "".join(escaped(part) if isinstance(part, str) else f"{OPENING}{bare(part)}}}" for part in self.parts)


Meaning = str | Expression | Template
"""The meaning of a text: itself, an expression, or a template."""


def meaning(text: str) -> Meaning:
    """Parse a string parameter (SPEC R2.2, R2.6). Raises `ExpressionError`."""
    if DAGGER not in text:
        return text
    if is_expression(text):
        return parse(text)
    return _kept(text) if len(text) <= limits.TEMPLATES_CACHED else _read(text)


def assumed_meaning(text: str) -> Meaning:
    """Read a string parameter as `meaning` does; a text that does not parse becomes a template without parts."""
    try:
        return meaning(text)
    except ExpressionError:
        return Expression(()) if is_expression(text) else Template(())


def expressions_in(text: str) -> tuple[Expression, ...]:
    """The expressions in a string parameter. Raises `ExpressionError`."""
    found = meaning(text)
    if isinstance(found, Expression):
        return (found,)
    return found.expressions if isinstance(found, Template) else ()


def escaped(text: str) -> str:
    """The string parameter that means this text, whatever it holds."""
    return text.replace(DAGGER, DAGGER * 2)


def bare(expression: Expression) -> str:
    """An expression as it is written in a template."""
    return " || ".join(" && ".join(str(place)[len(DAGGER) :] for place in group) for group in expression.alternatives)


def as_text(value: Any) -> str:
    """A value as part of a text: a text unchanged, any other as compact JSON.

    Keys are sorted: in which order independent calls have written them makes no difference to a text.
    """
    return (
        value
        if isinstance(value, str)
        else json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    )


def evaluated(value: Any, fold: Readable) -> Any:
    """A value with its expressions and templates, at any depth, replaced by what they read (SPEC R2.2-R2.6).

    Raises `Unresolved` or `Conflict`.
    """
    if isinstance(value, str):
        if DAGGER not in value:
            return value
        match meaning(value):
            case Expression() as expression:
                return fold.read(expression)
            case Template(parts):
                return "".join([part if isinstance(part, str) else fold.text(part) for part in parts])
            case text:
                return text
    if isinstance(value, dict):
        return {key: evaluated(item, fold) for key, item in value.items()}
    if isinstance(value, list):
        return [evaluated(item, fold) for item in value]
    return value


def standing_in(value: Any) -> Any:
    """A value with its expressions and templates, at any depth, as objects; what does not parse, too (SPEC R4.1)."""
    match value:
        case str():
            return assumed_meaning(value)
        case dict():
            return {key: standing_in(item) for key, item in value.items()}
        case list():
            return [standing_in(item) for item in value]
    return value


def _read(text: str) -> str | Template:
    parts = tuple(_parts(text))
    if any(isinstance(part, Expression) for part in parts):
        return Template(parts)
    return "".join(part for part in parts if isinstance(part, str))


_kept = lru_cache(maxsize=1_024)(_read)


def _parts(text: str) -> Iterator[str | Expression]:
    """The parts of a text; adjacent literal parts are joined."""
    literal, position = "", 0
    while (at := text.find(DAGGER, position)) >= 0:
        literal += text[position:at]
        if text.startswith(OPENING, at):
            expression, position = _placed(text, at + len(OPENING))
            if literal:
                yield literal
            yield expression
            literal = ""
        else:
            literal += DAGGER
            position = at + (2 if text.startswith(DAGGER * 2, at) else 1)
    if literal := literal + text[position:]:
        yield literal


def _placed(text: str, position: int) -> tuple[Expression, int]:
    """The expression in the braces that are open at a position, and where they end."""
    inside = text[position : text.find("}", position, position + limits.TEMPLATES_SHORT) + 1]
    if inside and '"' not in inside:
        with suppress(ExpressionError):  # it is raised again, with its place in the whole text
            return _inside(inside), position + len(inside)
    parser = _Parser(text, position)
    return parser.expression(), parser.position


@lru_cache(maxsize=16_384)
def _inside(text: str) -> Expression:
    """The expression in braces, up to their end."""
    return _Parser(text).expression()


class _Parser(Parser):
    """Parses the expression inside the braces of a template."""

    bare: ClassVar = re.compile(r"[^\s.\[\]|&†}]+")
    bare_segments: ClassVar = re.compile(rf"(?:\.{bare.pattern})*")

    def place(self) -> Reference:
        """kind *( "." segment / "[" quoted "]" )"""
        if self.text.startswith(DAGGER, self.position):
            self.fail("a path without †, as in †{state.user.name}")
        return self.kind_and_path()

    def end(self) -> None:
        """ "}" """
        if not self.text.startswith("}", self.position):
            self.fail('"." or "[" and a segment, "||", "&&" or "}"')
        self.position += 1
