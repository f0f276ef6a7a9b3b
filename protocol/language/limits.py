"""Limits: how large a submission may be (SPEC R7.1), and the walk that holds a value against them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import msgpack

from .errors import Problem, pointer

_INTEGERS: Final = range(-(2**63), 2**64)


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds; each is named in the error that it causes."""

    depth: int = 64
    """Objects and lists inside each other, in one message, call or schema."""
    message_bytes: int = 1024 * 1024
    """One message, as msgpack."""
    calls: int = 1_000_000
    """Calls executed by one run: those of the solution, or the plan's times the instances."""
    solution_calls: int = 1_000_000
    """Calls listed in one solution or plan."""
    submission_bytes: int = 256 * 1024 * 1024
    """A whole submission, as msgpack."""
    messages: int = 1_000_000
    """Messages in one context."""
    instances: int = 100_000
    """Instances in one context."""
    schema_work: int = 500_000_000
    """Units of work that the schemas of one submission may take: to be read, and to be applied to its calls. One is
    about ten nanoseconds.
    """


def value_problems(value: Any, limits: Limits, *at: str | int) -> Iterator[Problem]:
    """What keeps a value from travelling: too deep, not JSON, beyond what msgpack can hold.

    Walks without recursion, so the depth of a hostile value does not matter.
    """
    stack: list[tuple[Any, tuple[str | int, ...], int]] = [(value, at, 1)]
    while stack:
        item, place, depth = stack.pop()
        if isinstance(item, (dict, list)):
            if depth > limits.depth:
                yield Problem(pointer(*at), f"nested deeper than {limits.depth} levels")
                return
            pairs: Any = item.items() if isinstance(item, dict) else enumerate(item)
            for key, below in pairs:
                if isinstance(item, dict) and (not isinstance(key, str) or not _is_unicode(key)):
                    yield Problem(pointer(*place), "keys must be strings of valid Unicode")
                elif isinstance(below, (dict, list)):
                    stack.append((below, (*place, key), depth + 1))
                elif (problem := _scalar_problem(below)) is not None:
                    yield Problem(pointer(*place, key), problem)
        elif (problem := _scalar_problem(item)) is not None:
            yield Problem(pointer(*place), problem)


def size_of(value: Any) -> int:
    """The size of a value without `value_problems`, as it travels."""
    return len(msgpack.packb(value))


def _scalar_problem(value: Any) -> str | None:
    match value:
        case str():
            return None if _is_unicode(value) else "is not valid Unicode (a lone surrogate)"
        case None:
            return None
        case int():
            return None if value in _INTEGERS else "is beyond 64 bits: write it as a string"
        case float():
            return None if isfinite(value) else "is not a finite number"
    return f"is not a JSON value ({type(value).__name__})"


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
