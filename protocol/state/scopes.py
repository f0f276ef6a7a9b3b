"""Scopes: the allow-list of what a call may see of the context (SPEC R8)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgpack

from ..errors import ExpressionError, Unresolved
from ..limits import MOST_LISTS, Containers, Limits, TooManyContainers
from ..messages import TEXT_TYPES, render_data, shown
from ..paths import MISSING, copied, lookup
from ..references import DAGGER, Expression, Reference, parse
from ..templates import as_text
from .fold import Fold
from .labels import TRUSTED, Labels, Marks


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
        """The given scopes, each replaced by the narrowest named scope that contains it, if there is one."""
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
        yield from islice(holding, MOST_LISTS)


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
    """The narrowest scope that contains a place."""
    lengths = range(len(place), 0, -1) if place is not None else ()
    return next((scopes[place[:length]] for length in lengths if place is not None and place[:length] in scopes), None)


def scoped(fold: Fold, scopes: Sequence[Reference]) -> dict[str, Any]:
    """Read scopes: map each kind to its folded value, as the fold's reader sees it (SPEC R8.2).

    A slice yields its place and nothing next to it. Missing values are left out, and so are texts and system messages,
    which have no value: see `scoped_messages`. Lists reached by an index become objects keyed by it, so that a slice
    never says what is next to it.
    """
    return _slices(scopes, fold.value)


def sliced(values: Mapping[str, Any], scopes: Sequence[Reference]) -> dict[str, Any]:
    """Narrow the values that `scoped` has read to these scopes."""
    return _slices(scopes, lambda scope: lookup(values.get(scope.kind, MISSING), scope.path))


def _slices(scopes: Sequence[Reference], value_of: Callable[[Reference], Any]) -> dict[str, Any]:
    slices: dict[str, Any] = {}
    for scope in sorted(scopes, key=lambda scope: len(scope.path)):
        value = value_of(scope)
        if value is not MISSING:
            slices[scope.kind] = _joined(slices.get(scope.kind, MISSING), scope.path, copied(value))
    return {scope.kind: slices[scope.kind] for scope in scopes if scope.kind in slices}


def scoped_messages(fold: Fold, scopes: Sequence[Reference]) -> list[dict[str, Any]]:
    """Read scopes as messages (SPEC R8.3): texts and system messages as they are, in the order of the log,
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
    its schema and description. What scopes name or name a part of comes last (SPEC R8.3). Some kinds may be left out.
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


# Allowance: how much one call may be given (SPEC R7.1), measured before anything is copied.
#
# A call of a few bytes may read a large value many times over, and each reading is a copy of it.


class TooLarge(Exception):
    """A call would be given more than the limits allow."""


class Allowance:
    """A reader of a fold that measures what one call is given, and keeps to the limits."""

    def __init__(self, reads: Fold | Gathered, limits: Limits) -> None:
        self._reads = reads
        self._limits = limits
        self._bytes = 0
        self._containers = Containers(limits.containers)
        self._uncounted: list[bytes] = []

    def read(self, expression: Expression) -> Any:
        """Read an expression, as a copy. Raises `TooLarge`, `Unresolved` or `Conflict`."""
        value = self._reads.peek(expression)
        self.take(value)
        return copied(value)

    def text(self, expression: Expression) -> str:
        """Read an expression, as a text (SPEC R2.6). Raises as `read` does."""
        value = self._reads.peek(expression)
        if not isinstance(value, str):
            self._require(len(_packed(value)))  # before it is written out
            value = as_text(value)
        self.take(value)
        return str(value)

    def take(self, value: Any) -> None:
        """Count a value that the call is given, if it is there. Raises `TooLarge`."""
        if value is MISSING:
            return
        data = _packed(value)
        self._require(len(data))
        self._bytes += len(data)
        self._uncounted.append(data)
        if self._bytes > self._limits.containers:  # fewer bytes hold fewer objects and lists
            self._count()

    def _require(self, more: int) -> None:
        """Raise `TooLarge` if `more` bytes are too many."""
        if self._bytes + more > self._limits.call_bytes:
            raise TooLarge(f"it is given more than {self._limits.call_bytes} bytes (ACTS_LIMIT_CALL_BYTES)")

    def _count(self) -> None:
        try:
            for data in self._uncounted:
                self._containers.count_in(data)
        except TooManyContainers:
            most = self._limits.containers
            raise TooLarge(f"it is given more than {most} objects and lists (ACTS_LIMIT_CONTAINERS)") from None
        self._uncounted.clear()


def _packed(value: Any) -> bytes:
    """A value as it travels; the core takes all that JSON has, also what cannot travel: it has a size, too."""
    data: bytes = msgpack.packb(value, default=str, unicode_errors="surrogatepass")
    return data


# Gathered values: what a gather call reads, an object from instance name to the value there (SPEC R10.4).

OF_INSTANCES: Final = "of each instance, by its name"
"""Description of gathered values for a model."""


class Gathered:
    """Reads in every instance at once; what no instance has of its own it reads as a global reader does.

    Any of it may have come from `sources` that the folds do not name, or been chosen by them.
    """

    def __init__(self, shared: Fold, folds: Mapping[str, Fold], sources: Labels = TRUSTED) -> None:
        self._shared = shared
        self._folds = folds
        self._unnamed = Marks(sources, sources)

    def read(self, expression: Expression) -> Any:
        """Read an expression, as a copy. Raises `Unresolved`, where no instance has a value, or `Conflict`."""
        return copied(self.peek(expression))

    def peek(self, expression: Expression) -> Any:
        """Read an expression without copying; the value must not be changed. Raises as `read` does."""
        chosen = {name: _chosen(fold, expression) for name, fold in self._folds.items()}
        if not any(self._folds[name].has_own(place) for name, group in chosen.items() for place in group):
            return self._shared.peek(expression)
        values = {}
        for name, fold in self._folds.items():
            try:
                values[name] = fold.peek(expression)
            except Unresolved:
                continue
        if not values:
            raise Unresolved(f"{expression} is not there in any instance")
        return values

    def lacks(self, place: Reference, *, is_last: bool) -> bool:
        """Whether an instance has no value at a place, and reads the next alternative; with the last one it is left
        out.
        """
        return not is_last and not all(fold.exists(place) for fold in self._folds.values())

    def marks(self, place: Reference) -> Marks:
        """Which sources the values of all instances came from. Where one has none, whatever chose anything there may
        have chosen that.
        """
        found = self._unnamed
        for fold in self._folds.values():
            found |= fold.marks(place)
            if (chosen := fold.all_marks.chosen) and not fold.exists(place):
                found |= Marks(chosen, chosen)
        return found

    def absence(self, place: Reference) -> Labels:
        """Which sources may have kept a value from being in some instance: any of them."""
        return self.all_marks.labels

    @property
    def all_marks(self) -> Marks:
        """Which sources anything in any instance came from."""
        found = self._unnamed
        for fold in self._folds.values():
            found |= fold.all_marks
        return found

    def scoped(self, scopes: Sequence[Reference]) -> dict[str, Any]:
        """Read scopes: map each kind to its folded value, or to one for each instance where an instance has its own."""
        found: dict[str, Any] = {}
        for kind in dict.fromkeys(scope.kind for scope in scopes):
            own = [scope for scope in scopes if scope.kind == kind]
            if self._is_own(own):
                each = {name: scoped(fold, own) for name, fold in self._folds.items()}
                found[kind] = {name: values[kind] for name, values in each.items() if kind in values}
            else:
                found.update(scoped(self._shared, own))
        return found

    def places(self, scopes: Sequence[Reference]) -> Iterator[Any]:
        """The value at each place that `scoped` reads; do not change it. Raises `Conflict`."""
        for kind in dict.fromkeys(scope.kind for scope in scopes):
            own = [scope for scope in scopes if scope.kind == kind]
            folds = self._folds.values() if self._is_own(own) else (self._shared,)
            yield from (fold.value(scope) for fold in folds for scope in own)

    def scoped_messages(self, scopes: Sequence[Reference]) -> list[dict[str, Any]]:
        """Read scopes as messages (SPEC R1.5): global texts as they are, then what `scoped` gives."""
        texts = scoped_messages(self._shared, [scope for scope in scopes if scope.kind in TEXT_TYPES])
        return texts + [render_data(kind, value) for kind, value in self.scoped(scopes).items()]

    def all_messages(self, scopes: Sequence[Reference]) -> list[dict[str, Any]]:
        """All that a global reader sees, as messages, and last what `scoped` gives of the instances, which is said to
        be theirs.
        """
        kinds = dict.fromkeys(scope.kind for scope in scopes)
        own = [kind for kind in kinds if self._is_own([scope for scope in scopes if scope.kind == kind])]
        values = self.scoped([scope for scope in scopes if scope.kind in own])
        whole = {scope.kind for scope in scopes if not scope.path and scope.kind in values}
        seen = all_messages(self._shared, scopes, but=whole)
        return seen + [render_data(kind, value, description=OF_INSTANCES) for kind, value in values.items()]

    def _is_own(self, places: Sequence[Reference]) -> bool:
        return any(fold.has_own(place) for fold in self._folds.values() for place in places)


def _chosen(fold: Fold, expression: Expression) -> Sequence[Reference]:
    """The places that an expression is read from: whether others are there makes no difference."""
    return next((group for group in expression.alternatives if all(map(fold.exists, group))), ())
