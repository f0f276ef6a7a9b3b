"""Origins: which messages of the log a value came from, and what of each is still there (SPEC R3, R11.2).

The operations of the log are applied once more, to values that know for every part which messages made it. A message
*contributes* as long as some part of the value is its own. Otherwise it was *overwritten*, or it *removes* the value as
the last one of its place, or it is a *conflict* and never counted (R3.4).

What a call had read is found as of the moment before its result was appended. From the same moment is known why nobody
was asked about it, although data of others reaches it (R16.8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Literal, TypeVar

from ..calls.call import Call, places_read_by
from ..calls.tools import Tool
from ..calls.trust import ToolTrust, hosts_among
from ..errors import Conflict, ProtocolError
from ..messages import ERROR, Message, is_written, read_data
from ..paths import MISSING, copied, lookup
from ..references import Expression, Reference
from ..state.fold import Fold
from ..state.labels import TRUSTED, Labels, labels_at
from ..state.operations import Operation, applied, read_operation, touched
from ..trust import endorses, parameter_at

Writer = tuple[str | None, int | None]
"""A call: its instance and its index."""


class Effect(StrEnum):
    """How much of a message's operation is left in the value at a place."""

    CONTRIBUTES = "contributes"
    OVERWRITTEN = "overwritten"
    REMOVES = "removes"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Logged:
    """A message of the log; `call` is the index of the call that wrote it."""

    id: str
    message: Message
    call: int | None = None

    @property
    def instance(self) -> str | None:
        """The instance of the message, None for a global one."""
        return self.message.get("_instance")

    @property
    def writer(self) -> Writer:
        """The call that wrote the message."""
        return self.instance, self.call


@dataclass(frozen=True, slots=True)
class Read:
    """A reference that a parameter of a call had read, and its value then (`MISSING` where there was none)."""

    reference: str
    value: Any
    sources: Labels = TRUSTED
    """Sources of the value (SPEC R16.2)."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A message that made a difference at the place."""

    logged: Logged
    operation: Operation
    effect: Effect
    reads: tuple[Read, ...] = ()
    sources: Labels = TRUSTED
    """Sources that the message names for the place (SPEC R16.2)."""
    unasked: tuple[Waiver, ...] = ()
    """Why nobody was asked about the call that wrote it, although others' data reached it (SPEC R16.8)."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A value and its origins, in the order in which messages are folded: the global ones first (R3.6)."""

    reference: Reference
    value: Any
    """`MISSING` where there is none, or a conflict."""
    conflict: str | None
    origins: tuple[Origin, ...]


def explain(
    reference: Reference,
    log: Sequence[Logged],
    *,
    instance: str | None = None,
    tools: Mapping[str, Tool] | None = None,
    waive: Callable[[Writer, Fold], tuple[Waiver, ...]] = lambda writer, fold: (),
) -> Explanation:
    """The origins of the value at a place, as a reader in the instance sees it; `log` is in log order. `tools` say what
    was filled in of calls (SPEC R4.1), `waive` why nobody was asked about one, by what there was then.
    """
    visible = [logged for logged in log if logged.instance in (None, instance)]
    folded = sorted(visible, key=lambda logged: logged.instance is not None)
    if reference.kind == ERROR and any(_is_own(logged, ERROR) for logged in visible):
        folded = [logged for logged in visible if _is_own(logged, ERROR)]  # its own errors hide the global ones
    history = _History(reference)
    for logged in folded:
        history.append(logged)
    value, conflict = history.value()
    reads = _reads(visible, history.writers, instance, tools or {}, waive)
    origins = tuple(
        Origin(
            logged,
            operation,
            effect,
            (begun := reads.get(logged.writer, ((), ())))[0],
            labels_at(logged.message, operation, reference),
            begun[1],
        )
        for logged, operation, effect in history.steps()
    )
    return Explanation(reference, value, conflict, origins)


def _is_own(logged: Logged, kind: str) -> bool:
    """Whether a message of an instance carries data of a kind."""
    data = read_data(logged.message)
    return logged.instance is not None and data is not None and data.kind == kind


class _History:
    """The operations that made a difference at one place, and the value whose parts know their makers."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._fold = Fold()
        self._root: Any = MISSING
        self._steps: list[tuple[int, Logged, Operation]] = []
        self._conflicts: set[int] = set()
        self._seen = 0

    def append(self, logged: Logged) -> None:
        """The next message."""
        operation = read_operation(logged.message, f"message {logged.id}")
        if operation is None or operation.place.kind != self._reference.kind:
            return
        number = self._seen = self._seen + 1
        try:
            self._fold.verify(operation)
        except Conflict:
            if self._is_near(operation):
                self._conflicts.add(number)
                self._steps.append((number, logged, operation))
        else:
            before = self._made()
            made = operation._replace(value=_made(operation.value, number))
            self._root = applied(self._root, made, partial(_own, maker=number))
            if self._is_at_or_below(operation) or self._made() is not before:
                self._steps.append((number, logged, operation))
        self._fold.apply(operation)

    def value(self) -> tuple[Any, str | None]:
        """The value, or the message of the conflict there."""
        try:
            return copied(self._fold.value(self._reference)), None
        except Conflict as conflict:
            return MISSING, str(conflict)

    def steps(self) -> Iterator[tuple[Logged, Operation, Effect]]:
        """The operations that made a difference, and what is left of each."""
        made = self._made()
        alive = _makers_of_all(made)
        for number, logged, operation in self._steps:
            if number in alive:
                effect = Effect.CONTRIBUTES
            elif number in self._conflicts:
                effect = Effect.CONFLICT
            elif made is MISSING and number == self._steps[-1][0]:
                effect = Effect.REMOVES
            else:
                effect = Effect.OVERWRITTEN
            yield logged, operation, effect

    @property
    def writers(self) -> set[Writer]:
        """The calls that made a difference."""
        return {logged.writer for _, logged, _ in self._steps if logged.call is not None}

    def _made(self) -> Any:
        return lookup(self._root, self._reference.path)

    def _is_at_or_below(self, operation: Operation) -> bool:
        key = self._reference.key
        return any(place[: len(key)] == key for place in touched(operation))

    def _is_near(self, operation: Operation) -> bool:
        key = self._reference.key
        return any(place[: len(key)] == key[: len(place)] for place in touched(operation))


class _Object(dict[str, Any]):
    """An object, and who made it."""

    makers: frozenset[int] = frozenset()


class _List(list[Any]):
    """A list, and who made it."""

    makers: frozenset[int] = frozenset()


class _Text(str):
    """A text, and who made some part of it."""

    makers: frozenset[int] = frozenset()

    def __add__(self, other: str) -> _Text:
        return _by(_Text(super().__add__(other)), self.makers | getattr(other, "makers", frozenset()))


class _Other:
    """A value of any other type, and who made it: no method looks into it."""

    makers: frozenset[int] = frozenset()


M = TypeVar("M", _Object, _List, _Text, _Other)


def _by(made: M, makers: frozenset[int]) -> M:
    made.makers = makers
    return made


def _made(value: Any, maker: int) -> Any:
    """A value that one message made entirely."""
    makers = frozenset((maker,))
    if isinstance(value, dict):
        return _by(_Object((key, _made(item, maker)) for key, item in value.items()), makers)
    if isinstance(value, list):
        return _by(_List(_made(item, maker) for item in value), makers)
    return _by(_Text(value), makers) if isinstance(value, str) else _by(_Other(), makers)


def _own(container: Any, maker: int) -> Any:
    """A container that may be changed in place: all are, except those that an operation begins with."""
    return container if isinstance(container, (_Object, _List)) else _made(container, maker)


def _makers_of_all(made: Any) -> set[int]:
    """The makers of all parts of a value. An object with entries counts by these only, a list also by its order."""
    found: set[int] = set()
    left = [made] if made is not MISSING else []
    while left:
        part = left.pop()
        if not isinstance(part, _Object) or not part:
            found |= part.makers
        if isinstance(part, (_Object, _List)):
            left += part.values() if isinstance(part, _Object) else part
    return found


def _reads(
    log: Iterable[Logged],
    writers: set[Writer],
    instance: str | None,
    tools: Mapping[str, Tool],
    waive: Callable[[Writer, Fold], tuple[Waiver, ...]],
) -> dict[Writer, tuple[tuple[Read, ...], tuple[Waiver, ...]]]:
    """Call -> the values that it had read, and why nobody was asked, as of the moment before its first message."""
    shared = Fold()
    folds: Mapping[str | None, Fold] = {None: shared} | ({instance: Fold(shared)} if instance is not None else {})
    found: dict[Writer, tuple[tuple[Read, ...], tuple[Waiver, ...]]] = {}
    for logged in log:
        fold = folds[logged.instance]
        if logged.writer in writers and logged.writer not in found and is_written(logged.message):
            call = logged.message["_call"]
            tool = tools.get(call.get("_tool", ""))
            read = tuple(_values(tool.inputs.inside.filled(call) if tool is not None else call, fold))
            found[logged.writer] = read, waive(logged.writer, fold)
        fold.append(logged.message, f"message {logged.id}")
    return found


def _values(call: Mapping[str, Any], fold: Fold) -> Iterator[Read]:
    places = (place for expression in places_read_by(call) for place in _taken(expression, fold))
    for place in dict.fromkeys(places):
        try:
            yield Read(str(place), copied(fold.value(place)), fold.marks(place).labels)
        except Conflict:
            yield Read(str(place), MISSING)


def _taken(expression: Expression, fold: Fold) -> Sequence[Reference]:
    """The references of the first alternative that exists (SPEC R2.3)."""
    there = (group for group in expression.alternatives if all(map(fold.exists, group)))
    return next(there, expression.references)


# Waivers: why nobody was asked about a call with effects, although data of others reaches it (SPEC R16.8).


@dataclass(frozen=True, slots=True)
class Waiver:
    """One reason why others' data did not keep a call from starting by itself."""

    why: Literal["content", "endorsed", "field", "host", "proof", "reads"]
    parameter: str | None
    """The parameter, or kind of a scope; None where it is about the whole call."""
    sources: Labels
    text: str

    def to_dict(self) -> dict[str, Any]:
        """The reason in JSON."""
        return {"why": self.why, "parameter": self.parameter, "sources": sorted(self.sources), "text": self.text}


def unasked(
    call: Call,
    fold: Fold,
    calls: Iterable[Call],
    trust: Callable[[Call], ToolTrust],
    *,
    is_of_server: bool = False,
    is_ruled: bool = False,
) -> tuple[Waiver, ...]:
    """Find why nobody was asked about a call that started by itself, from what it read in the fold; nothing where no
    data of others reached it. `calls` may have written what it read; `is_of_server` says that an MCP server has its
    tool, which has effects unless somebody says otherwise, `is_ruled` that a rule of the run let it start.
    """
    if call.gather or not fold.is_marked:
        return ()
    own, read = trust(call), list(_places(call, fold))
    marked = {name: _sources(fold, (place for of, place in read if of == name)) for name, _ in read}
    if not own.effects:
        sources, text = TRUSTED.union(*marked.values()), "it only reads: its server, or who admitted it, says so"
        return (Waiver("reads", None, sources, text),) if is_of_server and sources else ()
    deciding = TRUSTED.union(*(labels for name, labels in marked.items() if name not in own.free))
    found = list(_at_hosts(call, fold, own, deciding)) if deciding else []
    if deciding and not (found or is_ruled):
        return ()  # it has not started by itself with these labels
    for name, labels in marked.items():
        if labels and name in own.proof:
            found.append(Waiver("proof", name, labels, f"{name} comes from {_named(labels)}, and only proves"))
        elif labels and name in own.content:
            found.append(Waiver("content", name, labels, f"{name} comes from {_named(labels)}, and is only content"))
    endorsing = [one for one in calls if endorses(one, trust(one))]
    for name, place in read:
        if not fold.marks(place):
            found += _of_trusted_part(name, place, fold, endorsing)
    return tuple(dict.fromkeys(found))


def _at_hosts(call: Call, fold: Fold, trust: ToolTrust, sources: Labels) -> Iterator[Waiver]:
    """Find the hosts to which a call goes, each with who has named it."""
    with suppress(ProtocolError):  # what it cannot be given any more leads nowhere
        parameters = call.resolved(fold)
        for name, listed in sorted(trust.hosts):
            for host in sorted(hosts_among(frozenset({(name, listed)}), parameters)):
                who = "its tool names" if host in listed else "a message that nobody else wrote names"
                yield Waiver("host", name, sources, f"{name} leads to {host}, a host that {who}")


def _of_trusted_part(name: str, place: Reference, fold: Fold, endorsing: Iterable[Call]) -> Iterator[Waiver]:
    """Find what others wrote beside a value that is trusted, or what an endorsed answer has read."""
    for one in endorsing:
        sources = _sources(fold, (read for _, read in _places(one, fold)))
        if sources and any(map(place.overlaps, one.written)):
            text = f"{name} reads {place}, the endorsed answer of call {one.index} ({one.tool}) to {_named(sources)}"
            yield Waiver("endorsed", name, sources, text)
    if sources := fold.beside_field(place):
        text = f"{name} reads {place}, a field without label of what others wrote to ({_named(sources)})"
        yield Waiver("field", name, sources, text)


def _places(call: Call, fold: Fold) -> Iterator[tuple[str, Reference]]:
    """Places that a call reads, each with the parameter, or the kind of the scope, that shows it."""
    for at, expression in call.reads:
        yield from ((parameter_at(at), place) for place in _taken(expression, fold))
    yield from ((scope.kind, scope) for scope in call.scopes)


def _sources(fold: Fold, places: Iterable[Reference]) -> Labels:
    return TRUSTED.union(*(fold.marks(place).labels for place in places))


def _named(sources: Labels) -> str:
    return " and ".join(sorted(sources))
