"""Holds: calls that wait for a person, and what the person said (SPEC R14.2).

A call is held with a snapshot: its resolved parameters, and what its scopes give it. What was shown is what runs, or
less of it: whoever approves may narrow the scopes, and the snapshot with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.language.errors import ExpressionError, Problem, pointer
from acts_celery.protocol.language.messages import render_data
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.state.scopes import read_scope, sliced


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a call was held with."""

    parameters: Mapping[str, Any]
    scopes: Mapping[str, Any]
    """Kind to value, as code gets it."""
    messages: Sequence[Mapping[str, Any]] = ()
    """The same as messages, for a delegate or a model: schemas and texts ride along (SPEC R8.3)."""


class Verdict(StrEnum):
    """What a person says of a held call."""

    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    """It was a question, and this is its result."""
    REPLACED = "replaced"
    """It ends as skipped, and other calls stand in for it."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What was decided of a held call."""

    verdict: Verdict
    parameters: Mapping[str, Any] | None = None
    """Those that it is to run with, where they were changed."""
    scopes: tuple[str, ...] | None = None
    """Those that it is to run with, where they were narrowed."""
    reason: str = ""
    """Why it was rejected."""
    answer: Any = None
    """The result of a question."""
    amendment: Mapping[str, Any] | None = None
    """The calls that stand in for it, as they were handed in."""


def scope_problems(given: Any, call: Call, snapshot: Snapshot) -> Iterator[Problem]:
    """What keeps scopes from being narrower ones for a held call: each is one of its own or lies in one of those, and
    is there in what was shown. What a `_gather` call reads of a kind is given whole or not at all.
    """
    if not isinstance(given, list):
        yield Problem("", "must be a list of kinds and references")
        return
    chosen: list[Reference] = []
    for place, text in enumerate(given):
        try:
            scope = read_scope(text) if isinstance(text, str) else None
        except ExpressionError as error:
            yield Problem(pointer(place), str(error))
            continue
        if scope is None:
            yield Problem(pointer(place), "must be a kind, or a reference for a part of one")
        elif not any(_lies_in(scope, own) for own in call.scopes):
            has = ", ".join(map(str, call.scopes)) or "none"
            yield Problem(pointer(place), f"{scope} is wider than the scopes of the call, which are {has}")
        elif scope not in call.scopes and not call.gather and not sliced(snapshot.scopes, [scope]):
            yield Problem(pointer(place), f"{scope} is not in what was shown: see `acts held`")
        else:
            chosen.append(scope)
    for kind in _parted(call.scopes, chosen) if call.gather else ():
        yield Problem("", f"a call with _gather sees all of what it reads of {kind}, or nothing of it")


def narrowed(snapshot: Snapshot, call: Call, scopes: Sequence[str]) -> Snapshot:
    """What a call was held with, with narrower scopes (see `scope_problems`)."""
    chosen = [read_scope(text) for text in scopes]
    parted = _parted(call.scopes, chosen)
    parts = sliced(snapshot.scopes, [scope for scope in chosen if scope.kind in parted])
    kinds = {scope.kind for scope in chosen}
    values = {kind: value for kind, value in snapshot.scopes.items() if kind in kinds - parted} | parts
    messages = [
        render_data(kind, parts[kind]) if kind in parts else message
        for message in snapshot.messages
        if (kind := message.get("kind", message.get("type"))) in parts or kind in kinds - parted
    ]
    return Snapshot(snapshot.parameters, values, tuple(messages))


def _lies_in(scope: Reference, own: Reference) -> bool:
    return scope.kind == own.kind and scope.path[: len(own.path)] == own.path


def _parted(own: Sequence[Reference], chosen: Sequence[Reference]) -> set[str]:
    """The kinds of which not all is chosen that the call's own scopes give."""
    kinds = {scope.kind for scope in chosen}
    return {scope.kind for scope in own if scope.kind in kinds and scope not in chosen}
