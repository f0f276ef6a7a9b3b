"""Limits: how large a submission may be (SPEC R7.1), and the walk that holds a value against them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final, TypeVar

import msgpack

from .errors import Problem, pointer

Container = TypeVar("Container")

_BYTES_PER_CONTAINER: Final = 8
_INTEGERS: Final = range(-(2**63), 2**64)

MOST: Final = 10**9
"""No number of calls, tokens or seconds is larger: what is reckoned with it has to fit the log, too."""
LONGEST_INSTANCE: Final = 200
"""Characters of an instance's name: it is repeated in the id of each of its calls."""


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
    submission_bytes: int = 16 * 1024 * 1024
    """A whole submission, as msgpack."""
    call_bytes: int = 16 * 1024 * 1024
    """What one call is given, its parameters and its scopes, as msgpack."""
    containers: int = 250_000
    """Objects and lists in one message, in one result, or in what one call is given: each takes some hundred bytes of
    memory, and as little as one byte on its way.
    """
    elements: int = 10_000
    """Elements for each of which one call with `_each` is carried out."""
    messages: int = 1_000_000
    """Messages in one context."""
    instances: int = 100_000
    """Instances in one context."""
    schema_work: int = 500_000_000
    """Units of work that the schemas of one submission may take: to be read, and to be applied to its calls. One is
    about ten nanoseconds.
    """

    @property
    def containers_in_all(self) -> int:
        """Objects and lists in a whole submission: one for each few bytes that it may have."""
        return max(self.containers, self.submission_bytes // _BYTES_PER_CONTAINER)

    @property
    def for_all(self) -> Limits:
        """The limits for what belongs to a submission as a whole."""
        return replace(self, containers=self.containers_in_all)


def exceeded(what: str, limits: Limits, name: str) -> str:
    """The text for a limit that is exceeded; `name` is its field in `Limits`."""
    return f"{what}, where {getattr(limits, name)} are allowed (ACTS_LIMIT_{name.upper()})"


def value_problems(value: Any, limits: Limits, *at: str | int) -> Iterator[Problem]:
    """What keeps a value from travelling: too deep, too many parts, not JSON, beyond what msgpack can hold.

    Walks without recursion, so the depth of a hostile value does not matter.
    """
    stack: list[tuple[Any, tuple[str | int, ...], int]] = [(value, at, 1)]
    containers = 0
    while stack:
        item, place, depth = stack.pop()
        if isinstance(item, (dict, list)):
            containers += 1
            if containers > limits.containers:
                yield Problem(pointer(*at), too_many_containers(limits))
                return
            if depth > limits.depth:
                yield Problem(pointer(*at), f"nested deeper than {limits.depth} levels (ACTS_LIMIT_DEPTH)")
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


def too_many_containers(limits: Limits) -> str:
    """What is wrong with a value of more objects and lists than the limits allow."""
    return f"more than {limits.containers} objects and lists (ACTS_LIMIT_CONTAINERS)"


def size_of(value: Any) -> int:
    """The size of a value without `value_problems`, as it travels."""
    return len(msgpack.packb(value))


class Containers:
    """Counts objects and lists, most of them while a decoder makes them; raises `TooManyContainers`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most

    def made(self, container: Container) -> Container:
        """Count one, and pass it on."""
        self._left -= 1
        if self._left < 0:
            raise TooManyContainers(f"more than {self._most} objects and lists")
        return container

    def count_in(self, data: bytes) -> None:
        """Count those in msgpack of our own."""
        forget = self._forgotten
        msgpack.unpackb(data, list_hook=forget, object_hook=forget, unicode_errors="surrogatepass")

    def _forgotten(self, container: object) -> None:
        self.made(container)


class TooManyContainers(ValueError):
    """A value has more objects and lists than it may have."""


def unpacked(data: bytes, most_containers: int) -> Any:
    """The value of msgpack from outside. They are counted as they are made, so those beyond never take memory.

    Raises `TooManyContainers`, and what msgpack raises.
    """
    if len(data) <= most_containers:  # each takes a byte at least
        return msgpack.unpackb(data, strict_map_key=False)
    made = Containers(most_containers).made
    return msgpack.unpackb(data, strict_map_key=False, list_hook=made, object_hook=made)


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


CONTROL: Final = "a name has no control characters"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def has_control_characters(name: str) -> bool:
    """Whether a name holds what a terminal or a log would take for an order; names are shown as they are."""
    return _CONTROL.search(name) is not None
