"""Visibility: which calls can ever see a value, proven from the submission alone (SPEC R8).

A call is given its parameters and its scopes, and nothing else; the model of a latent call sees all of its instance. It
*sees* a place directly where a parameter reads at, above or below it, or a scope covers any of it. What comes of such a
call may tell of the value, so a call that reads its results or errors, and theirs in turn, is listed apart as
*derived*: also where no code is handed the value because the call's result is written in it, and where a call fails
since what it writes does not go with what is there.

A delegate gets its own messages, those scopes and those parameters (`delegates.delegate_context`); its context is made
of nothing else, and a call inside it reads that context only. So its inner calls can narrow what it was given and never
widen it: what this module says of the call bounds everything the delegate does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from typing import Any, Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.graph.readers import Audience
from acts_celery.protocol.language.errors import ExpressionError
from acts_celery.protocol.language.messages import DATA_TYPES, Message, read_data
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import DAGGER, Reference, parse
from acts_celery.protocol.slips.known_places import KnownPlaces
from acts_celery.protocol.submission.layout import Layout


@dataclass(frozen=True, slots=True)
class Access:
    """A call that can see a value: `how` names the parameters and scopes (or, derived, the results) it comes by."""

    index: int
    tool: str
    executor: Executor
    name: str
    """Under which name the executor is registered."""
    how: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self) | {"executor": self.executor.value, "how": list(self.how)}


@dataclass(frozen=True, slots=True)
class Visibility:
    """Who can see a place: `direct` its value itself, `derived` what was made from it."""

    place: Reference
    direct: tuple[Access, ...]
    derived: tuple[Access, ...]
    note: str | None = None
    """What is wrong with the place, where nothing is ever there: then that no call sees it says nothing."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "path": str(self.place),
            "note": self.note,
            "direct": [sight.to_dict() for sight in self.direct],
            "derived": [sight.to_dict() for sight in self.derived],
        }


_MOST_INSTANCES: Final = 100
"""In so many it is looked for a place that was meant."""
_ERRORS: Final = Reference("error")
"""Where a call that fails says why, in words that may tell of what it was given (SPEC R7.2)."""


def who_sees(plan: Layout, path: str) -> Visibility:
    """The calls that can ever see a value at, above or below a place. Raises `ExpressionError` where it is none.

    A path may go without its `†` where it begins with a kind that anything is of.
    """
    places = KnownPlaces(plan, most_instances=100_000)
    place = _place(path, {*places.kinds(), *DATA_TYPES})
    note = None if place.kind == _ERRORS.kind or places.has(place) else _nothing_there(place, plan)
    found = sights(place, plan.calls, judged_kinds(plan.context.messages), is_template=plan.submission.is_template)
    return replace(found, note=note)


def sights(place: Reference, calls: Iterable[Call], judged: Container[str], *, is_template: bool) -> Visibility:
    """Which of some calls can ever see a value at, above or below a place; `judged` as `judged_kinds` has it."""
    known = {call.index: call for call in calls if not call.is_note}
    direct = {
        index: how
        for index, call in known.items()
        if _is_handed(call) and (how := tuple(dict.fromkeys(_ways(call, place))))
    }
    derived = _Derivation(known, judged, is_template=is_template).readers(place)
    return Visibility(place, _accesses(known, direct), _accesses(known, derived))


def judged_kinds(messages: Iterable[Message]) -> set[str]:
    """The kinds that a schema in the context is for: a result that does not fit it fails."""
    return {data.kind for message in messages if "schema" in message and (data := read_data(message))}


def _place(path: str, kinds: Container[str]) -> Reference:
    """The one place that a path names. Where it has neither dagger nor kind it might be one inside `state` (SPEC R2.5),
    and that no call sees the kind of that name would be no answer.
    """
    expression = parse(path if path.startswith(DAGGER) else DAGGER + path)
    if len(expression.references) != 1:
        raise ExpressionError(path, 0, "one reference")
    place = expression.references[0]
    if not path.startswith(DAGGER) and place.kind not in kinds:
        inside = Reference("state", (place.kind, *place.path))
        raise ExpressionError(path, 0, f"a place that begins with † (did you mean {inside}?)")
    return place


def _nothing_there(place: Reference, plan: Layout) -> str:
    """That nothing is ever at a place, and at which it is that is called nearly so."""
    near = KnownPlaces(plan).nearest(place)
    hint = f", did you mean {near}?" if near is not None else ""
    return f"nothing is ever at {place}: the context does not hold it and no call writes it{hint}"


def _is_handed(call: Call) -> bool:
    """Whether any code is handed what the call reads: not where its result is there already."""
    return call.given is MISSING


def _ways(call: Call, place: Reference) -> Iterator[str]:
    """How a call comes by a place: the value itself, or of one joined by `&&` whether it is there."""
    for at, expression in call.reads:
        if any(group[-1].overlaps(place) for group in expression.alternatives):
            yield f"parameter {at}"
        elif any(reference.overlaps(place) for reference in expression.references):
            yield f"parameter {at} (only whether it is there)"
    for scope in call.scopes:
        if scope.overlaps(place):
            yield f"scope {scope}" if scope.path else f"scope {scope.kind}"
    if call.runner.executor is Executor.LATENT and _is_handed(call):
        yield "the whole context"


class _Derivation:
    """What is made of a value, and who reads that; a step is a call and a place where what comes of it tells."""

    def __init__(self, calls: Mapping[int, Call], judged: Container[str], *, is_template: bool) -> None:
        self._calls = calls
        self._judged = judged
        self._readers = Audience(calls.values(), is_template=is_template)
        self._writers = Audience(calls.values(), is_template=is_template, places=attrgetter("written"))

    def readers(self, place: Reference) -> dict[int, tuple[str, ...]]:
        """The calls that read what is made of a value, and so on; each with the first result it comes by."""
        found: dict[int, tuple[str, ...]] = {}
        reading = {index for index, call in self._calls.items() if any(_ways(call, place))}
        queue = deque(self._first_steps(place, sorted(reading)))
        done: set[tuple[str | None, Reference]] = set()
        hindering: set[tuple[str | None, Reference]] = set()
        while queue:
            index, there = queue.popleft()
            writer = self._calls[index]
            if (writer.instance, there) in done:
                continue
            done.add((writer.instance, there))
            for reader in sorted({*self._readers.of(writer, there)} - reading):
                reading.add(reader)
                if _is_handed(self._calls[reader]):
                    found[reader] = (self._how(writer, there),)
                queue.extend(self._steps(reader))
            if (writer.instance, near := self._judged_with(there)) not in hindering:
                hindering.add((writer.instance, near))
                queue.extend((other, _ERRORS) for other in self._writers.of(writer, near))
        return found

    def _first_steps(self, place: Reference, reading: Iterable[int]) -> Iterator[tuple[int, Reference]]:
        for index in reading:
            yield from self._steps(index)
        near = self._judged_with(place)
        for index, call in self._calls.items():
            if any(map(near.overlaps, call.written)):
                yield index, _ERRORS

    def _steps(self, index: int) -> Iterator[tuple[int, Reference]]:
        """What comes of a call that reads a value."""
        return ((index, place) for place in (*self._calls[index].written, _ERRORS))

    def _judged_with(self, place: Reference) -> Reference:
        """Where a result is written that may be refused for what is at a place: in all of its kind, if that has a
        schema. The error then tells of what is there.
        """
        return Reference(place.kind) if place.kind in self._judged else place

    def _how(self, writer: Call, place: Reference) -> str:
        is_value = place.kind == _ERRORS.kind or _is_handed(writer)
        return f"{place} of call {writer.index}" + ("" if is_value else " (only whether it is there)")


def _accesses(calls: Mapping[int, Call], found: Mapping[int, tuple[str, ...]]) -> tuple[Access, ...]:
    return tuple(
        Access(index, calls[index].tool, calls[index].runner.executor, calls[index].runner.name, found[index])
        for index in sorted(found)
    )
