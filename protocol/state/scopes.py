"""Scopes: the allow-list of what a call may see of the context (SPEC R8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def wider_scopes(given: Any, named: Sequence[Any]) -> Iterator[list[Any]]:
    """Lists that a schema may admit where it does not admit the scopes given, and that hold all of them (SPEC R8.1).

    `named` are the scopes and the lists of scopes that the schema names. In place of each scope stands the narrowest
    one named that holds it, or its kind; and each list named that holds them all is one more.
    """
    if not isinstance(given, list) or not all(isinstance(scope, str) for scope in given):
        return
    known = sorted((scope for scope in named if isinstance(scope, str)), key=len, reverse=True)
    kinds = [scope.kind if (scope := _read(each)) is not None and scope.path else each for each in given]
    daggered = [kind if kind == each else DAGGER + kind for kind, each in zip(kinds, given, strict=True)]
    nearest = [
        next((scope for scope in known if _holds(scope, each)), kind) for each, kind in zip(given, kinds, strict=True)
    ]
    for candidate in (nearest, kinds, daggered):
        yield candidate
        yield list(dict.fromkeys(candidate))
    for scopes in named:
        if isinstance(scopes, list) and all(any(_holds(scope, each) for scope in scopes) for each in given):
            yield scopes


def _holds(wide: Any, narrow: str) -> bool:
    """Whether all that one scope yields lies in what another does."""
    if wide == narrow:
        return True
    outer, inner = _read(wide), _read(narrow)
    if outer is None or inner is None or outer.kind != inner.kind:
        return False
    return list(map(str, inner.path[: len(outer.path)])) == list(map(str, outer.path))


def _read(text: Any) -> Reference | None:
    """A scope; None for what is none."""
    try:
        return read_scope(text) if isinstance(text, str) else None
    except ExpressionError:
        return None


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
