"""Scopes: the allow-list of what a call may see of the context (SPEC R8)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from acts_celery.protocol.language.errors import ExpressionError
from acts_celery.protocol.language.messages import render_data, shown
from acts_celery.protocol.language.paths import MISSING, copied, lookup
from acts_celery.protocol.language.references import DAGGER, Reference, parse

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


class NamedScopes:
    """The scopes, and the lists of scopes, that a tool's schema names; `wider` says what scopes given are part of.

    Scopes may always be narrower than what a tool admits (SPEC R8.1).
    """

    def __init__(self, named: Iterable[Any]) -> None:
        values = list(named)
        self._scopes = _by_place(values)
        self._lists = [(value, _by_place(value)) for value in values if isinstance(value, list)]

    def nearest(self, given: Any) -> Any:
        """The scopes given with the narrowest scope named that holds it in place of each, where there is one."""
        if not isinstance(given, list) or not self._scopes:
            return given
        return [_holding(self._scopes, _place(scope)) or scope for scope in given]

    def wider(self, given: Any) -> Iterator[list[Any]]:
        """Lists of scopes that hold all those given, a few of them: in place of each the narrowest scope named that
        holds it, or its kind; and the lists named that hold all of them.
        """
        if not isinstance(given, list):
            return
        places = [_place(scope) for scope in given]
        kinds = [
            place[0] if place is not None and len(place) > 1 else scope
            for place, scope in zip(places, given, strict=True)
        ]
        daggered = [kind if kind == scope else DAGGER + kind for kind, scope in zip(kinds, given, strict=True)]
        for candidate in (self.nearest(kinds), self.nearest(given), kinds, daggered):
            yield candidate
            yield list({str(scope): scope for scope in candidate}.values())
        holding = (value for value, scopes in self._lists if all(_holding(scopes, place) for place in places))
        yield from islice(holding, _MOST_LISTS)


_MOST_LISTS: Final = 10


def _by_place(scopes: Iterable[Any]) -> dict[tuple[str, ...], str]:
    return {place: scope for scope in scopes if (place := _place(scope)) is not None}


def _place(scope: Any) -> tuple[str, ...] | None:
    """A scope's kind and path; None for what is no scope."""
    try:
        reference = read_scope(scope) if isinstance(scope, str) else None
    except ExpressionError:
        return None
    return (reference.kind, *map(str, reference.path)) if reference is not None else None


def _holding(scopes: Mapping[tuple[str, ...], str], place: tuple[str, ...] | None) -> str | None:
    """The narrowest of the scopes that a place lies in."""
    lengths = range(len(place), 0, -1) if place is not None else ()
    return next((scopes[place[:length]] for length in lengths if place is not None and place[:length] in scopes), None)


def scoped(fold: Fold, scopes: Sequence[Reference]) -> dict[str, Any]:
    """What the scopes yield: kind to folded value, as the fold's reader sees it (SPEC R8.2).

    A slice yields its place and nothing beside it. What is not there is left out, and so are texts and system messages,
    which have no value: see `scoped_messages`. Lists reached by an index become objects keyed by it, so that a slice
    never says what stands beside it.
    """
    return _slices(scopes, fold.value)


def sliced(values: Mapping[str, Any], scopes: Sequence[Reference]) -> dict[str, Any]:
    """What narrower scopes yield of what `scoped` has yielded."""
    return _slices(scopes, lambda scope: lookup(values.get(scope.kind, MISSING), scope.path))


def _slices(scopes: Sequence[Reference], value_of: Callable[[Reference], Any]) -> dict[str, Any]:
    slices: dict[str, Any] = {}
    for scope in sorted(scopes, key=lambda scope: len(scope.path)):
        value = value_of(scope)
        if value is not MISSING:
            slices[scope.kind] = _joined(slices.get(scope.kind, MISSING), scope.path, copied(value))
    return {scope.kind: slices[scope.kind] for scope in scopes if scope.kind in slices}


def scoped_messages(fold: Fold, scopes: Sequence[Reference]) -> list[dict[str, Any]]:
    """What the scopes yield, as messages (SPEC R8.3): texts and system messages as they are, in the order of the log,
    then the values as canonical messages; a whole kind brings its schema and description (SPEC R1.5).
    """
    whole = {scope.kind for scope in scopes if not scope.path}
    texts = [shown(message) for message in fold.texts() if message.get("type") in whole]
    return texts + [
        _rendered(fold, kind, value) if kind in whole else render_data(kind, value)
        for kind, value in scoped(fold, scopes).items()
    ]


def all_messages(fold: Fold, scopes: Sequence[Reference], *, but: Container[str] = ()) -> list[dict[str, Any]]:
    """All that a reader sees, as messages: texts, system and chat messages as they are, then the values, each kind with
    its schema and description. What scopes name or name a part of stands last (SPEC R8.3). Some kinds may be left out.
    """
    texts = [(message.get("type"), shown(message)) for message in fold.texts()]
    kinds = [kind for kind in fold.kinds() if kind not in but]
    found = [*texts, *((kind, _rendered(fold, kind, copied(fold.root(kind)))) for kind in kinds)]
    named = {scope.kind for scope in scopes}
    return [message for is_last in (False, True) for kind, message in found if (kind in named) is is_last]


def _rendered(fold: Fold, kind: str, value: Any) -> dict[str, Any]:
    return render_data(kind, value, schema=fold.schema(kind), description=fold.description(kind))


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
