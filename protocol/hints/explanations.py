"""Explanations: what a rejection says beyond the fact that something is wrong (SPEC R7.1).

A name that is not known gets the nearest known one. A tool declared as in another system gets the way to this one. A
parameter that its tool does not admit, since it is a template or lacks its dagger, gets the reference that was meant.
An unresolvable reference gets the path that only lacks its dagger, the instance that holds it, the call that writes it
in another instance or has a misspelt output path, or the nearest place that its reader sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Final

from protocol.analysis.finding import Finding
from protocol.analysis.foreign_formats import unwrapping
from protocol.analysis.texts import slips_of
from protocol.calls.call import Call
from protocol.calls.tools import NoSchema
from protocol.graph.lanes import Unresolvable
from protocol.graph.writers import Writers
from protocol.language.errors import ExpressionError, Problem, Rejected, UnknownName, segments
from protocol.language.references import Expression, Reference, parse_output_path
from protocol.language.spelling import Patience
from protocol.submission.checking import RejectedCalls
from protocol.submission.layout import Layout

from .suggestions import PER_READER, Reader
from .views import MOST_NAMES, Views

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
        self._patience = Patience()

    def of(self, problem: Problem) -> str:
        """The hint for a problem, empty where there is none."""
        match problem.cause:
            case UnknownName(name, known):
                return self._patience.hint(name, known)
            case NoSchema(declaration):
                return "".join(f"; {hint}" for hint in unwrapping(declaration))
            case Unresolvable() as cause if self._layout is not None:
                return self._of_unresolvable(cause, self._layout)
        return f"; {slip.remedy}" if (slip := self._slip_at(problem)) is not None else ""

    def _slip_at(self, problem: Problem) -> Finding | None:
        """What is misspelt at the place of a problem, or in the name of a property there."""
        if problem.pointer in self._slips:
            return self._slips[problem.pointer]
        properties = (slip for at, slip in self._slips.items() if at.rpartition("/")[0] == problem.pointer)
        return next((slip for slip in properties if slip.code in _OF_PROPERTIES), None)

    def _of_unresolvable(self, cause: Unresolvable, layout: Layout) -> str:
        assert self._views is not None
        expression, instance = cause.expression, cause.instance
        reader = Reader(self._views.of(instance), cause.call, self._patience)
        if (slip := reader.slip(expression.references)) is not None:
            return f"; {slip}"
        if instance is None and (holder := self._holder(expression, layout)) is not None:
            return f"; instance {holder!r} holds it, and the call has no _instance"
        if (elsewhere := self._written_elsewhere(cause)) is not None:
            return f"; {elsewhere}, " + (
                "and the call has no _instance" if instance is None else "whose data the call does not see"
            )
        if (unwritten := self._unwritten(expression)) is not None:
            return f"; {unwritten.message}: {unwritten.remedy}"
        near = reader.nearest(expression.references)
        return f", did you mean {near}?" if near is not None else ""

    def _holder(self, expression: Expression, layout: Layout) -> str | None:
        """The first instance that holds all that one of the alternatives reads."""
        for instance in islice(layout.context.instances, MOST_NAMES):
            if not self._patience.lasts(PER_READER * len(expression.references)):
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
                        return f"call {index} writes {place} in instance {home!r}"
        return None

    def _unwritten(self, expression: Expression) -> Finding | None:
        """The misspelt output path of a call that was to write what is read."""
        for slip, place in self._misspelt:
            if any(place.overlaps(read) for read in expression.references):
                return slip
        return None

    @cached_property
    def _misspelt(self) -> list[tuple[Finding, Reference]]:
        """The places that calls name under a misspelt `_outputPath`."""
        found = []
        for at, slip in self._slips.items():
            call = self._calls.get(slip.calls[0]) if slip.remedy == "write _outputPath" else None
            try:
                text = str(call.raw.get(segments(at)[-1])) if call is not None else ""
                found += [(slip, place) for place in parse_output_path(text).references]
            except ExpressionError:
                continue
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

    @cached_property
    def _views(self) -> Views | None:
        return Views(self._layout.lanes, self._layout.context) if self._layout is not None else None

    @cached_property
    def _calls(self) -> dict[int, Call]:
        lanes = self._layout.lanes.values() if self._layout is not None else ()
        return {call.index: call for lane in lanes for call in lane.calls}

    @cached_property
    def _writers(self) -> Writers:
        """Who writes where, in whatever instance."""
        return Writers(call for call in self._calls.values() if call.instance is not None)
