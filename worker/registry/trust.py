"""Trust: what a decorator and a signature say of who may decide, as the tool's `_trust` (SPEC R16.1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from acts_celery.protocol.calls.trust import trust_problems
from acts_celery.protocol.language.messages import TRUST
from acts_celery.worker.errors import ActivitiesError


class Content:
    """A parameter that decides nothing: `note: Annotated[str, Content]` may come from anybody (SPEC R16.1)."""


def trust_said(function: Callable[..., Any], *, effects: bool, untrusted: str | Sequence[str]) -> dict[str, Any]:
    """What stands beside the `properties` of an activity's schema. Raises `ActivitiesError`."""
    content = list(_content(function))
    sources = [untrusted] if isinstance(untrusted, str) else list(untrusted)
    said: dict[str, Any] = {
        **({"effects": True} if effects else {}),
        **({"result": sources} if sources else {}),
        **({"content": content} if content else {}),
    }
    if (problem := next(trust_problems(said), None)) is not None:
        name = problem.pointer.removeprefix("/") or TRUST
        raise ActivitiesError(f"activity {function.__name__!r}: {_GIVEN.get(name, name)} {problem.message}")
    return {TRUST: said} if said else {}


_GIVEN = {"result": "untrusted"}


def _content(function: Callable[..., Any]) -> Iterator[str]:
    """The parameters that are marked as content."""
    try:
        hints = inspect.get_annotations(function, eval_str=True)
    except NameError:
        return  # what reads the signature says so
    for name, hint in hints.items():
        marks = getattr(hint, "__metadata__", ())
        if any(mark is Content or isinstance(mark, Content) for mark in marks):
            yield name
