"""Own places: where the result of a call goes that a model has made as a function, and has given no place (SPEC R12.4).

Whoever calls a function expects its result. So such a call is not sent and forgotten: what it brings is written to
`†result.c3`, for the call with the index 3, and shown to the model under that name. A tool that pins its places keeps
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final

from acts_celery.protocol.language.messages import kind_of
from acts_celery.protocol.schemas import CompiledSchema

from .composition import compose
from .request import Request

_KIND: Final = "result"


def own_place(request: Request, index: int) -> str:
    """The place that is given to the call with this index in its run."""
    return f"†{_kind(request)}.c{index}"


def with_places(request: Request, answer: Mapping[str, Any], first: int) -> Mapping[str, Any]:
    """An answer in which each call that needs one has a place; `first` is the index of its first call."""
    calls = answer.get("calls")
    if not request.is_native or not isinstance(calls, list):
        return answer
    given = [
        {**call, "_outputPath": own_place(request, index)} if _needs_one(request, call) else call
        for index, call in enumerate(calls, first)
    ]
    return {**answer, "calls": given}


def given_places(request: Request, calls: Sequence[Any], first: int) -> list[str]:
    """The places that calls were given, in their order; `first` is the index of the first of them."""
    indexed = enumerate(calls, first)
    return [own_place(request, index) for index, call in indexed if as_written(request, call, index) is not call]


def as_written(request: Request, call: Any, index: int) -> Any:
    """A call without the place that it was given."""
    if not isinstance(call, Mapping) or not request.is_native or call.get("_outputPath") != own_place(request, index):
        return call
    return {key: part for key, part in call.items() if key != "_outputPath"}


def _needs_one(request: Request, call: Any) -> bool:
    is_call = isinstance(call, dict) and isinstance(call.get("_tool"), str)
    return is_call and "_outputPath" not in call and call["_tool"] in _free(request)


@lru_cache(maxsize=16)
def _free(request: Request) -> frozenset[str]:
    """The tools whose results may go there."""
    composed, place = compose(request), own_place(request, 0)
    schema, found = CompiledSchema(composed), set()
    for index, name in enumerate(request.tools):
        at = ("properties", "calls", "items", "anyOf", index)
        shown = composed["properties"]["calls"]["items"]["anyOf"][index]["properties"]
        if "_outputPath" in shown and not schema.checker((*at, "properties", "_outputPath")).problems(place):
            found.add(name)
    return frozenset(found)


@lru_cache(maxsize=16)
def _kind(request: Request) -> str:
    """A kind that the context has nothing of."""
    taken = {kind_of(message) for message in request.submission.context if "type" in message}
    names = (f"{_KIND}{number if number > 1 else ''}" for number in count(1))
    return next(name for name in names if name not in taken)
