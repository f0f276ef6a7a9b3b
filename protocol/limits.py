"""Limits: how large a submission may be (SPEC R7.1), and the walk that holds a value against them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final, TypeVar

import msgpack

from .errors import Problem, Rejected, pointer

Container = TypeVar("Container")

_BYTES_PER_CONTAINER: Final = 8
_AROUND: Final = 4
"""Levels of a document around the messages, calls and schemas whose depth is limited."""
_LOWEST: Final = -(2**63)
_ABOVE: Final = 2**64

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


def plain(value: Any, limits: Limits) -> Any:
    """Return the value with exact types only: an instance of a subclass of `dict`, `list`, `str`, `int` or `float`,
    such as an `IntEnum`, becomes the plain value that it holds, and none of its own methods is called.

    A value that is plain already is returned as it is. What is no JSON value stays where it is: `value_problems`
    refuses it there. Raises `Rejected` for more values than any submission has.
    """
    return value if _is_plain(value, limits) else _plain_copy(value, limits.depth + _AROUND, _Budget(limits))


def plain_scalar(value: Any) -> Any:
    """Return a string or a number as an exact `str`, `int` or `float`, and anything else as it is."""
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool:
        return value
    if issubclass(kind, int):
        return int.__int__(value)
    if issubclass(kind, str):
        return str.__str__(value)
    return float.__float__(value) if issubclass(kind, float) else value


class _Budget:
    """How many more values are looked at."""

    def __init__(self, limits: Limits) -> None:
        self._most = self._left = limits.submission_bytes + limits.containers_in_all

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            text = f"more than {self._most} values: too large (ACTS_LIMIT_SUBMISSION_BYTES)"
            raise Rejected([Problem("", text)])


def _is_plain(value: Any, limits: Limits) -> bool:
    """Whether `plain` has nothing to change. Level by level, and no deeper than `value_problems` goes."""
    budget, level = _Budget(limits), [value]
    for _ in range(limits.depth + _AROUND):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str or kind is int or item is None or kind is bool or kind is float:
                continue
            if kind is dict:
                budget.take(len(item))
                if any(type(key) is not str for key in item):
                    return False
                below.extend(item.values())
            elif kind is list:
                budget.take(len(item))
                below.extend(item)
            elif issubclass(kind, _BASES):
                return False
        if not below:
            break
        level = below
    return True


_BASES: Final = (dict, list, str, int, float)


def _plain_copy(value: Any, depth: int, budget: _Budget) -> Any:
    """The value with exact types, so many levels deep."""
    kind = type(value)
    if depth == 0 or not issubclass(kind, (dict, list)):
        return plain_scalar(value)
    if issubclass(kind, list):
        budget.take(list.__len__(value))
        return [_plain_copy(item, depth - 1, budget) for item in list.__iter__(value)]
    budget.take(dict.__len__(value))
    if not all(issubclass(type(key), str) for key in dict.__iter__(value)):
        return value  # it is refused, and its keys are not asked for their hashes
    return {plain_scalar(key): _plain_copy(item, depth - 1, budget) for key, item in dict.items(value)}


def value_problems(value: Any, limits: Limits, *at: str | int) -> Iterator[Problem]:
    """What keeps a value from travelling: too deep, too many parts, not JSON, beyond what msgpack can hold.

    Subclasses of the plain types are refused, too: nothing of a value's own code is called (see `plain`). Walks without
    recursion, so the depth of a hostile value does not matter.
    """
    stack: list[tuple[Any, tuple[str | int, ...], int]] = [(value, at, 1)]
    containers = 0
    while stack:
        item, place, depth = stack.pop()
        kind = type(item)
        if kind is dict or kind is list:
            containers += 1
            if containers > limits.containers:
                yield Problem(pointer(*at), too_many_containers(limits))
                return
            if depth > limits.depth:
                yield Problem(pointer(*at), f"nested deeper than {limits.depth} levels (ACTS_LIMIT_DEPTH)")
                return
            pairs: Any = item.items() if kind is dict else enumerate(item)
            for key, below in pairs:
                if kind is dict and (type(key) is not str or not _is_unicode(key)):
                    yield Problem(pointer(*place), "keys must be strings of valid Unicode")
                elif type(below) is dict or type(below) is list:
                    stack.append((below, (*place, key), depth + 1))
                elif (problem := scalar_problem(below)) is not None:
                    yield Problem(pointer(*place, key), problem)
        elif (problem := scalar_problem(item)) is not None:
            yield Problem(pointer(*place), problem)


def one_message_problems(value: Any, limits: Limits, *at: str | int) -> Iterator[Problem]:
    """What keeps a value from travelling in one message: those of `value_problems`, else its size."""
    problems = list(value_problems(value, limits, *at))
    yield from problems
    if not problems and (size := size_of(value)) > limits.message_bytes:
        yield Problem(pointer(*at), exceeded(f"{size} bytes", limits, "message_bytes"))


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


def scalar_problem(value: Any) -> str | None:
    """What keeps a value that is no object and no list from travelling."""
    kind = type(value)
    if kind is str:
        return None if _is_unicode(value) else "is not valid Unicode (a lone surrogate)"
    if value is None or kind is bool:
        return None
    if kind is int:
        return None if _LOWEST <= value < _ABOVE else "is beyond 64 bits: write it as a string"
    if kind is float:
        return None if isfinite(value) else "is not a finite number: write null (None)"
    return f"is not a JSON value ({kind.__name__}){_remedy(kind)}"


def _remedy(kind: type) -> str:
    """What to do about a value of a library of numbers and tables."""
    library = str(kind.__module__).partition(".")[0]
    if library not in ("numpy", "pandas", "polars"):
        return ""
    if "DataFrame" in kind.__name__:
        return ": write frame.to_dicts()" if library == "polars" else ': write frame.to_dict("records")'
    if kind.__name__ in ("NAType", "NaTType"):
        return ": write null (None)"
    return ": write value.to_list()" if library == "polars" else ": write value.tolist()"


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
