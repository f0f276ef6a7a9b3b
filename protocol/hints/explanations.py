"""Explanations: what a rejection says beyond the fact that something is wrong (SPEC R7.1).

A name that is not known gets the nearest known one. A tool declared as in another system gets the way to this one. A
parameter that its tool does not admit, since it is another system's template or lacks its dagger, gets the reference
that was meant; a template that does not parse gets the one that does.
An unresolvable reference gets the path that only lacks its dagger, the instance that holds it, the call that writes it
in another instance or has a misspelt output path or none, the nearest place that its reader sees, or what is to be
added for it (see `remedies`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice, product
from typing import Final

from acts_celery.protocol.analysis.finding import Finding
from acts_celery.protocol.analysis.surroundings import unwrapping
from acts_celery.protocol.analysis.texts import slips_of
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.declarations import NoSchema
from acts_celery.protocol.graph.lanes import Unresolvable
from acts_celery.protocol.graph.places import MOST_NAMES, PER_READER, Places, WrittenPlaces
from acts_celery.protocol.graph.writers import Writers
from acts_celery.protocol.language.errors import (
    ExpressionError,
    Problem,
    Rejected,
    UnknownName,
    Unparsed,
    segments,
    shortened,
)
from acts_celery.protocol.language.messages import ERROR, EVERYWHERE, TRUST
from acts_celery.protocol.language.references import Expression, Reference, parse_output_path
from acts_celery.protocol.language.spelling import Speller
from acts_celery.protocol.slips.embedded import instead
from acts_celery.protocol.slips.known_places import KnownPlaces
from acts_celery.protocol.submission.checking import RejectedCalls
from acts_celery.protocol.submission.layout import Layout

from .remedies import Remedies, places_of

MOST_EXPLAINED: Final = 100
"""Only so many problems are explained: looking for near names is slow, and a hostile list of errors long."""

_OF_PROPERTIES: Final = frozenset({"ACT303", "ACT304", "ACT310"})
"""Slips in the name of a property: an error at the call itself is often about one."""


def explained(rejected: Rejected) -> Iterator[Problem]:
    """The problems of a rejection, the first of them with hints."""
    hints = _Hints(rejected.layout if isinstance(rejected, RejectedCalls) else None)
    for number, problem in enumerate(rejected.errors):
        hint = hints.of(problem) if number < MOST_EXPLAINED else ""
        yield replace(problem, message=problem.message + hint) if hint else problem


class _Hints:
    """What follows a problem's message."""

    def __init__(self, layout: Layout | None) -> None:
        self._layout = layout
        self._speller = Speller()
        self._written: dict[int, WrittenPlaces] = {}
        self._seen: dict[str | None, Places] = {}
        self._remedies = Remedies(layout) if layout is not None else None

    def of(self, problem: Problem) -> str:
        """The hint for a problem, empty where there is none."""
        match problem.cause:
            case UnknownName(name, known, remedy):
                return self._speller.hint(name, known) or (f"; {remedy}" if remedy else "")
            case NoSchema(declaration):
                return "".join(f"; {hint}" for hint in unwrapping(declaration))
            case Unparsed(text, position) if hint := instead(text, position, self._meant):
                return f"; {hint}"
            case Unresolvable() as cause if self._layout is not None:
                hint = self._of_failure(cause, self._layout) or self._of_unresolvable(cause, self._layout)
                there = self._layout.context.fold(cause.instance).beside(cause.expression)
                return f"{hint}; {there}" if there and not hint.endswith("?") else hint
        return f"; {slip.remedy}" if (slip := self._slip_at(problem)) is not None else ""

    def _meant(self, name: str) -> Reference | None:
        """The place that a text names without a dagger."""
        return self._known.meant(name) if self._known is not None else None

    @cached_property
    def _known(self) -> KnownPlaces | None:
        return KnownPlaces(self._layout) if self._layout is not None else None

    def _slip_at(self, problem: Problem) -> Finding | None:
        """What is misspelt at the place of a problem, or in the name of a property there."""
        if (slip := self._slips.get(problem.pointer)) is not None and slip.code != "ACT307":
            return slip
        properties = (slip for at, slip in self._slips.items() if at.rpartition("/")[0] == problem.pointer)
        return next((slip for slip in properties if slip.code in _OF_PROPERTIES), None)

    def _of_unresolvable(self, cause: Unresolvable, layout: Layout) -> str:
        expression, instance = cause.expression, cause.instance
        if (unwritten := self._unwritten(expression, cause)) is not None:
            return unwritten
        remedies = self._remedies
        assert remedies is not None
        if (missing := remedies.pathless(cause, is_certain=True) or remedies.planned(cause)) is not None:
            return f"; {missing}"
        if instance is None and (holder := self._holder(expression, layout)) is not None:
            if cause.call < 0:
                return f"; instance {holder!r} holds it, and the output reads only what all instances share"
            remedy = f'write that one, or "{EVERYWHERE}" for a call in each instance'
            return f"; instance {holder!r} holds it, and the call has no _instance: {remedy}"
        if (elsewhere := self._written_elsewhere(cause)) is not None:
            return f"; {elsewhere}, " + (
                "and the call has no _instance" if instance is None else "whose data the call does not see"
            )
        places = self._places(instance, layout)
        near = next(filter(None, (places.nearest(place, cause.call) for place in expression.references)), None)
        if near is not None:
            return f", did you mean {near}?"
        likely = remedies.pathless(cause, is_certain=False)
        missing = likely or remedies.promise(cause) or remedies.only_pathless(cause)
        return f"; {missing}" if missing is not None else ""

    def _of_failure(self, cause: Unresolvable, layout: Layout) -> str:
        """The last call that was to write what is read and whose error is in the context."""
        for message in reversed(layout.submission.context):
            error = message.get("data") if message.get("type") == ERROR else None
            call = error.get("call") if isinstance(error, dict) else None
            if (
                isinstance(error, dict)
                and isinstance(call, dict)
                and any(
                    place.overlaps(read)
                    for place in places_of(call.get("_outputPath"))
                    for read in cause.expression.references
                )
            ):
                said = error.get("error")
                why = said.get("message") if isinstance(said, dict) and not message.get(TRUST) else None
                told = f": {shortened(str(why))}" if why is not None else ""
                return f"; {call.get('_tool')}, which was to write it, failed{told}"
        return ""

    def _holder(self, expression: Expression, layout: Layout) -> str | None:
        """The first instance that holds all that one of the alternatives reads."""
        for instance in islice(layout.context.instances, MOST_NAMES):
            if not self._speller.lasts(PER_READER * len(expression.references)):
                break
            fold = layout.context.fold(instance)
            if any(all(map(fold.exists, group)) for group in expression.alternatives):
                return instance
        return None

    def _written_elsewhere(self, cause: Unresolvable) -> str | None:
        """Which call writes in another instance what is read in this one."""
        for place in cause.expression.references:
            for line in self._writers.lines(place):
                for index in line.calls:
                    home = self._calls[index].instance
                    if index != cause.call and home not in (None, cause.instance):
                        where = "in every instance" if home == EVERYWHERE else f"in instance {home!r}"
                        return f"call {index} writes {place} {where}"
        return None

    def _unwritten(self, expression: Expression, cause: Unresolvable) -> str | None:
        """The misspelt output path of another call that the reader sees and that was to write what is read."""
        for read, (slip, place) in product(expression.references, self._misspelt):
            is_seen = self._calls[slip.calls[0]].instance in (None, cause.instance) and slip.calls != (cause.call,)
            if is_seen and place.overlaps(read):
                ending = f", did you mean {place}?" if slip.code == "ACT307" else f": {slip.remedy}"
                return f"; {slip.message}{ending}"
        return None

    @cached_property
    def _misspelt(self) -> list[tuple[Finding, Reference]]:
        """The places that calls were meant to write, where their `_outputPath` or its name is misspelt."""
        found = []
        for at, slip in self._slips.items():
            text = slip.remedy.removeprefix("write ") if slip.remedy and slip.code == "ACT307" else ""
            if slip.remedy == "write _outputPath":
                text = str(self._calls[slip.calls[0]].raw[segments(at)[-1]])
            with suppress(ExpressionError):
                found += [(slip, place) for place in parse_output_path(text).references if text]
        return found

    @cached_property
    def _slips(self) -> dict[str, Finding]:
        """What is misspelt in the calls, by its place."""
        findings = slips_of(self._layout) if self._layout is not None else ()
        found: dict[str, Finding] = {}
        for slip in findings:
            if slip.pointer is not None:
                found.setdefault(slip.pointer, slip)
        return found

    def _places(self, instance: str | None, layout: Layout) -> Places:
        """What the calls of an instance, or the global ones, see. Lanes of the same calls share what is known of it."""
        lanes = [layout.lanes[name] for name in dict.fromkeys((None, instance)) if name in layout.lanes]
        for lane in lanes:
            if id(lane.calls) not in self._written:
                self._written[id(lane.calls)] = WrittenPlaces(lane.calls)
        if instance not in self._seen:
            written = [self._written[id(lane.calls)] for lane in lanes]
            self._seen[instance] = Places([layout.context.fold(instance)], written, self._speller)
        return self._seen[instance]

    @cached_property
    def _calls(self) -> dict[int, Call]:
        lanes = self._layout.lanes.values() if self._layout is not None else ()
        return {call.index: call for lane in lanes for call in lane.calls}

    @cached_property
    def _writers(self) -> Writers:
        """Who writes where, in whatever instance."""
        return Writers(call for call in self._calls.values() if call.instance is not None)
