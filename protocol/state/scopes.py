"""Scopes: the allow-list of what a call may see of the context (SPEC R8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from protocol.language.errors import ExpressionError
from protocol.language.messages import render_data
from protocol.language.paths import MISSING, copied
from protocol.language.references import DAGGER, Reference, parse

from .fold import Fold


def read_scope(text: str) -> Reference:
    """One entry of `_scopes`: a kind (`state`) or a reference for a narrower slice (`†state.user`) (SPEC R8.1)."""
    expression = parse(text if text.startswith(DAGGER) else DAGGER + text)
    references = expression.references
    if len(references) != 1:
        raise ExpressionError(text, 0, "a kind or one reference")
    if references[0].path and not text.startswith(DAGGER):
        raise ExpressionError(text, 0, "a kind, or a reference starting with †")
    return references[0]


def scoped(fold: Fold, scopes: Sequence[Reference]) -> dict[str, Any]:
    """What the scopes yield: kind to folded value, as the fold's reader sees it (SPEC R8.2).

    A slice yields its place and nothing beside it. What is not there is left out. Lists reached by an index become
    objects keyed by it, so that a slice never says what stands beside it.
    """
    slices: dict[str, Any] = {}
    for scope in sorted(scopes, key=lambda scope: len(scope.path)):
        value = fold.value(scope)
        if value is not MISSING:
            slices[scope.kind] = _joined(slices.get(scope.kind, MISSING), scope.path, copied(value))
    return {scope.kind: slices[scope.kind] for scope in scopes if scope.kind in slices}


def scoped_messages(fold: Fold, scopes: Sequence[Reference]) -> list[dict[str, Any]]:
    """What the scopes yield, as canonical messages; a whole kind brings its schema and description (SPEC R1.5)."""
    whole = {scope.kind for scope in scopes if not scope.path}
    return [
        render_data(
            kind,
            value,
            schema=fold.schema(kind) if kind in whole else MISSING,
            description=fold.description(kind) if kind in whole else None,
        )
        for kind, value in scoped(fold, scopes).items()
    ]


def _joined(base: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """The slice with one more place in it; a place inside one that is there already adds nothing."""
    if not path:
        return value
    if base is MISSING:
        base = {}
    if not isinstance(base, dict):
        return base
    key = str(path[0])
    base[key] = _joined(base.get(key, MISSING), path[1:], value)
    return base
