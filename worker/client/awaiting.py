"""The methods of the asyncio classes, made from those of the plain ones: each is carried out in a thread.

One that has begun is carried out to its end also when its coroutine is cancelled.
"""

from __future__ import annotations

import inspect
from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from itertools import islice
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar

S = TypeVar("S", covariant=True)
T = TypeVar("T")
U = TypeVar("U")
P = ParamSpec("P")

_AT_ONCE: Final = 100
"""How many values of an iterator are read in a thread at a time."""


class Twin(Generic[S]):
    """The asyncio counterpart of a plain object."""

    def __init__(self, plain: S) -> None:
        self._plain = plain


def awaited(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Twin[S], P], Coroutine[Any, Any, T]]:
    """The same method, awaited."""

    @wraps(method)
    async def twin(self: Twin[S], /, *args: P.args, **named: P.kwargs) -> T:
        return await to_thread(method, self._plain, *args, **named)

    return twin


def iterated(
    method: Callable[Concatenate[S, P], Iterator[T]],
) -> Callable[Concatenate[Twin[S], P], AsyncIterator[T]]:
    """The same method, for `async for`."""

    @wraps(method)
    async def twin(self: Twin[S], /, *args: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        async for value in in_threads(await to_thread(method, self._plain, *args, **named)):
            yield value

    return _returning(twin, "Async" + inspect.signature(method).return_annotation)


def converted(
    method: Callable[Concatenate[S, P], T], convert: Callable[[Any, T], U]
) -> Callable[Concatenate[Twin[S], P], Coroutine[Any, Any, U]]:
    """The same method, awaited; `convert(twin, result)` gives the asyncio counterpart of what it returns."""

    @wraps(method)
    async def twin(self: Twin[S], /, *args: P.args, **named: P.kwargs) -> U:
        return convert(self, await to_thread(method, self._plain, *args, **named))

    return _returning(twin, inspect.signature(convert).return_annotation)


async def in_threads(values: Iterator[T]) -> AsyncIterator[T]:
    """What an iterator gives that blocks."""
    while some := await to_thread(list, islice(values, _AT_ONCE)):
        for value in some:
            yield value


def _returning(twin: Callable[P, T], annotation: str) -> Callable[P, T]:
    """The method, saying of itself that it returns this."""
    shown = inspect.signature(twin).replace(return_annotation=annotation)
    twin.__signature__ = shown  # type: ignore[attr-defined]  # asked for by `inspect`
    return twin
