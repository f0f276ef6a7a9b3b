"""Patterns: the regular expressions of JSON Schema, ECMA-262 with Unicode, matched in bounded time (SPEC R4.1, R7.1).

Python's `re` speaks another dialect and may need time exponential in the length of a text. Here most patterns take
linear time (Rust's `regex`); those with look-around or backreferences may go back a counted number of times
(`fancy-regex`). Both come with jsonschema-rs, which also translates the dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from jsonschema_rs import (
    Draft202012Validator,
    FancyRegexOptions,
    RegexOptions,
    ValidationErrorKind,
)

from .dialect import translated
from .steps import TooCostly, count
from .widths import width

CHARACTERS: Final = 500
"""As many are looked at in the time of one step."""
_NARROW: Final = 1_000
_WAYS: Final = 50
"""As many are followed for one character in the time of one step."""
_PATIENCE: Final = ((1_000, 20), (100_000, 2_000))
"""How often a pattern may go back in a text, first and at last, and the steps in whose time that is done."""


class _Engine(NamedTuple):
    """One way to match a pattern, and what it may take beside the length of the text."""

    validator: Draft202012Validator
    steps: int


def is_pattern(pattern: str) -> bool:
    """Whether this is a regular expression, and one that can be matched. Raises `TooCostly`."""
    return bool(_engines(pattern))


def occurs(pattern: str, text: str) -> bool:
    """Whether a pattern occurs in a text. One that is none occurs nowhere.

    Counts its steps, and raises `TooCostly` where it would take too many.
    """
    engines = _engines(pattern)
    for engine in engines:
        count(engine.steps + len(text) // CHARACTERS + _steps_for_width(pattern, text))
        try:
            error = next(engine.validator.iter_errors(text), None)
        except UnicodeEncodeError:  # a lone surrogate: no pattern speaks of those
            return False
        if error is None or isinstance(error.kind, ValidationErrorKind.Pattern):
            return error is None
    if engines:
        raise TooCostly(f"the pattern {pattern!r} goes back more than {_PATIENCE[-1][0]} times in one text")
    return False


def matches(pattern: str, text: str) -> bool:
    """The same where nobody waits for the answer: what takes too long does not match."""
    try:
        return occurs(pattern, text)
    except TooCostly:
        return False


def names_matching(patterns: Iterable[str], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of a name and a pattern that occurs in it; see `occurs`."""
    for name in names:
        for pattern in patterns:
            count(1)
            if occurs(pattern, name):
                yield name, pattern


def _steps_for_width(pattern: str, text: str) -> int:
    """What it takes to keep very many ways open; up to a thousand hardly matter."""
    ways = width(pattern)
    return len(text) * ways // _WAYS if ways > _NARROW else 0


def _engines(pattern: str) -> tuple[_Engine, ...]:
    """The ways to match a pattern, the cheapest first; none where it is no pattern."""
    return _small_engines(pattern) or _large_engines(pattern) or _huge_engines(pattern)


@lru_cache(maxsize=256)
def _small_engines(pattern: str) -> tuple[_Engine, ...]:
    count(100)
    return _made(pattern, 128 * 1024)


@lru_cache(maxsize=16)
def _large_engines(pattern: str) -> tuple[_Engine, ...]:
    count(50_000)
    return _made(pattern, 10 * 1024 * 1024)


@lru_cache(maxsize=4)
def _huge_engines(pattern: str) -> tuple[_Engine, ...]:
    count(250_000)
    return _made(pattern, 70 * 1024 * 1024)


def _made(pattern: str, size: int) -> tuple[_Engine, ...]:
    """The ways to match a pattern that take no more than so many bytes, which bounds the time to make them as well."""
    try:
        return (_Engine(_validator(pattern, RegexOptions(size_limit=size)), 0),)
    except ValueError:
        pass
    try:
        return tuple(
            _Engine(_validator(pattern, FancyRegexOptions(backtrack_limit=most, size_limit=size)), steps)
            for most, steps in _PATIENCE
        )
    except ValueError:
        return ()


def _validator(pattern: str, options: RegexOptions | FancyRegexOptions) -> Draft202012Validator:
    return Draft202012Validator({"pattern": translated(pattern)}, pattern_options=options)
