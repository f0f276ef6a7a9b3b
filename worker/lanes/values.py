"""Results: what code returns, read as exact JSON values within the limits.

Reading calls code of the value's own where it is lazy (an iterator), or a model with serializers. So it belongs to the
call: it is done in the call's thread and within its timeout, and ends as soon as a limit is exceeded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, Final

from pydantic_core import PydanticSerializationError, to_jsonable_python

from acts_celery.protocol import Limits, Message, Output
from acts_celery.protocol.language.errors import pointer
from acts_celery.protocol.language.limits import exceeded, plain_scalar, scalar_problem, too_many_containers
from acts_celery.worker.errors import CallFailed
from acts_celery.worker.wire.packing import pack

_SMALL: Final = 2**63
_LISTS: Final = (list, tuple, set, frozenset, deque)
_READ_BY: Final = ("tolist", "to_list", "item")
"""Methods by which an array of numpy or what is like one, or a scalar of it, gives plain values."""


class NotPlain(Exception):
    """A result is to be read beside the event loop: code of its own may be called for it."""


def to_json_value(value: Any, limits: Limits, *, is_plain: bool = False) -> Any:
    """Return a copy of the value with exact JSON types: models, dataclasses, dates, tuples, sets, iterators and arrays
    become what they hold. An `Output` or a `Message` stays one.

    With `is_plain` no code of the value's own is called. Raises `NotPlain` where it would have to be; `CallFailed`
    where the value is not serialisable, too deep, too large, or holds a number that msgpack cannot hold.
    """
    if isinstance(value, Output):
        return Output(plain_scalar(value.path), to_json_value(value.value, limits, is_plain=is_plain))
    if isinstance(value, Message):
        content = to_json_value(value.content, limits, is_plain=is_plain)
        if not isinstance(content, dict):
            raise CallFailed("the result is a Message that is no object", retry=False)
        return Message(content)
    try:
        read = _Reader(limits, is_plain=is_plain).read(value, 1)
    except _Unfit as unfit:
        at = f"at {pointer(*reversed(unfit.at))}: " if unfit.at else ""
        raise CallFailed(f"the result is not JSON: {at}{unfit}", retry=False) from unfit.__cause__
    if (size := len(pack(read))) > limits.message_bytes:
        raise _too_large(f"{size} bytes", limits)
    return read


def _too_large(what: str, limits: Limits) -> CallFailed:
    return CallFailed(exceeded(f"the result has {what}", limits, "message_bytes"), retry=False)


class _Unfit(Exception):
    """Something in a value is not JSON. `at` is where, the innermost key first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.at: list[str | int] = []


class _Reader:
    """Reads one value; counts containers and bytes on the way, at least those that it will have as msgpack."""

    def __init__(self, limits: Limits, *, is_plain: bool) -> None:
        self._limits = limits
        self._is_plain = is_plain
        self._bytes = limits.message_bytes
        self._containers = limits.containers

    def read(self, value: Any, depth: int) -> Any:
        """The value as exact JSON types. Raises `_Unfit`, `CallFailed`, `NotPlain`, and what an iterator raises."""
        kind = type(value)
        if kind is dict:
            return self._object(value, depth)
        if kind is list or kind is tuple:
            return self._list(value, depth)
        self._bytes -= len(value) if kind is str else 1
        if self._bytes >= 0 and (
            value is None
            or kind is bool
            or (kind is str and value.isascii())
            or (kind is int and -_SMALL < value < _SMALL)
        ):
            return value
        if not issubclass(kind, (str, int, float, NoneType)):
            if self._is_plain:
                raise NotPlain
            return self._other(value, kind, depth)
        value = plain_scalar(value)
        if self._bytes < 0:
            raise _too_large(f"more than {self._limits.message_bytes} bytes", self._limits)
        if (problem := scalar_problem(value)) is not None:
            raise _Unfit(problem)
        return value

    def _open(self, depth: int) -> None:
        """Count an object or a list."""
        self._bytes -= 1
        self._containers -= 1
        if self._containers < 0:
            raise _Unfit(too_many_containers(self._limits))
        if depth > self._limits.depth:
            raise CallFailed(
                f"the result is nested too deeply or in a circle: {self._limits.depth} levels are allowed "
                "(ACTS_LIMIT_DEPTH)",
                retry=False,
            )

    def _object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        self._open(depth)
        read = {}
        for given, item in value.items():
            key = given if type(given) is str and given.isascii() else self._key(given)
            try:
                read[key] = self.read(item, depth + 1)
            except _Unfit as unfit:
                unfit.at.append(key)
                raise
        return read

    def _list(self, items: Iterable[Any], depth: int) -> list[Any]:
        self._open(depth)
        read: list[Any] = []
        for item in items:
            try:
                read.append(self.read(item, depth + 1))
            except _Unfit as unfit:
                unfit.at.append(len(read))
                raise
        return read

    def _key(self, key: Any) -> str:
        if not issubclass(type(key), str):
            if self._is_plain:
                raise NotPlain
            if hasattr(type(key), "dtype"):
                key = self._array(key, type(key), 1)
            (key,) = _serialised({key: None})
        key = plain_scalar(key)
        self._bytes -= len(key)
        if (problem := scalar_problem(key)) is not None:
            raise _Unfit(problem)
        return str(key)

    def _other(self, value: Any, kind: type, depth: int) -> Any:
        """A value of a type that JSON does not have."""
        if issubclass(kind, dict):
            return self.read(dict(dict.items(value)), depth)
        for each in _LISTS:
            if issubclass(kind, each):
                return self._list(each.__iter__(value), depth)
        if issubclass(kind, Enum):
            return self.read(value.value, depth)
        if hasattr(kind, "__next__"):
            return self._list(value, depth)
        if hasattr(kind, "__pydantic_serializer__"):
            self._refuse_lazy(value)
        elif is_dataclass(kind):
            return self.read({each.name: getattr(value, each.name) for each in fields(kind)}, depth)
        elif hasattr(kind, "dtype"):
            return self._array(value, kind, depth)
        return self.read(_serialised(value), depth)

    def _array(self, value: Any, kind: type, depth: int) -> Any:
        """An array of numbers, a column of a table, or one number of these."""
        size = getattr(value, "size", 0)
        if isinstance(size, int) and size > self._bytes:
            raise _too_large(f"{size} elements", self._limits)
        for name in _READ_BY:
            if callable(getattr(kind, name, None)):
                held = getattr(value, name)()
                if type(held) is not kind:
                    return self.read(held, depth)
        raise _Unfit(scalar_problem(value) or "")

    def _refuse_lazy(self, model: Any) -> None:
        """Raise `_Unfit` for a model that holds an iterator: reading it could not be ended."""
        stack, left = [model], self._bytes
        while stack:
            item = stack.pop()
            left -= 1
            if left < 0:
                raise _too_large(f"more than {self._limits.message_bytes} values", self._limits)
            kind = type(item)
            if hasattr(kind, "__next__"):
                raise _Unfit(f"{type(model).__name__} holds a {kind.__name__}: give it a list instead")
            if issubclass(kind, dict):
                stack += dict.values(item)
            elif issubclass(kind, _LISTS):
                stack += item
            elif hasattr(kind, "__pydantic_serializer__") or is_dataclass(kind):
                stack += getattr(item, "__dict__", {}).values()


def _serialised(value: Any) -> Any:
    """What pydantic makes of a value. Raises `_Unfit`."""
    try:
        return to_jsonable_python(value, inf_nan_mode="constants")
    except (PydanticSerializationError, TypeError) as error:
        known = scalar_problem(value) or ""
        what = known if ": " in known else str(error)
        raise _Unfit(f"{what}; return texts, numbers, lists, objects, dataclasses or models") from error
    except UnicodeDecodeError as error:
        raise _Unfit("holds bytes that are no UTF-8 text: JSON has no bytes") from error
    except (RecursionError, ValueError) as error:
        raise _Unfit(f"is nested too deeply or in a circle: {error}") from error
