"""Explanations: what a rejection says beyond the fact that something is wrong (SPEC R7.1).

A name that is not known gets the nearest known one. A tool declared as in another system gets the way to this one. An
unresolvable reference gets the path that only lacks its dagger, the instance that holds it, the call that writes it in
another instance, or the nearest place that its reader sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Final

from protocol.calls.call import Call
from protocol.calls.tools import NoSchema
from protocol.graph.lanes import Unresolvable
from protocol.graph.writers import Writers
from protocol.language.errors import Problem, Rejected, UnknownName
from protocol.language.references import Expression
from protocol.submission.checking import RejectedCalls, Scene

from .foreign_formats import unwrapping
from .spelling import Patience
from .suggestions import PER_READER, Reader
from .views import MOST_NAMES, Views

MOST_EXPLAINED: Final = 100
"""Only so many problems are explained: looking for near names is slow, and a hostile list of errors long."""


def explained(rejected: Rejected) -> Iterator[Problem]:
    """The problems of a rejection, the first of them with hints."""
    hints = _Hints(rejected.scene if isinstance(rejected, RejectedCalls) else None)
    for number, problem in enumerate(rejected.errors):
        hint = hints.of(problem) if number < MOST_EXPLAINED else ""
        yield replace(problem, message=problem.message + hint) if hint else problem


class _Hints:
    """What follows a problem's message."""

    def __init__(self, scene: Scene | None) -> None:
        self._scene = scene
        self._patience = Patience()

    def of(self, problem: Problem) -> str:
        """The hint for a problem, empty where there is none."""
        match problem.cause:
            case UnknownName(name, known):
                return self._patience.hint(name, known)
            case NoSchema(declaration):
                return "".join(f"; {hint}" for hint in unwrapping(declaration))
            case Unresolvable() as cause if self._scene is not None:
                return self._of_unresolvable(cause, self._scene)
        return ""

    def _of_unresolvable(self, cause: Unresolvable, scene: Scene) -> str:
        assert self._views is not None
        expression, instance = cause.expression, cause.instance
        reader = Reader(self._views.of(instance), cause.call, self._patience)
        if (slip := reader.slip(expression.references)) is not None:
            return f"; {slip}"
        if instance is None and (holder := self._holder(expression, scene)) is not None:
            return f"; instance {holder!r} holds it, and the call has no _instance"
        if (elsewhere := self._written_elsewhere(cause)) is not None:
            return f"; {elsewhere}, " + (
                "and the call has no _instance" if instance is None else "whose data the call does not see"
            )
        near = reader.nearest(expression.references)
        return f", did you mean {near}?" if near is not None else ""

    def _holder(self, expression: Expression, scene: Scene) -> str | None:
        """The first instance that holds all that one of the alternatives reads."""
        for instance in islice(scene.context.instances, MOST_NAMES):
            if not self._patience.lasts(PER_READER * len(expression.references)):
                break
            fold = scene.context.fold(instance)
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

    @cached_property
    def _views(self) -> Views | None:
        return Views(self._scene.lanes, self._scene.context) if self._scene is not None else None

    @cached_property
    def _calls(self) -> dict[int, Call]:
        lanes = self._scene.lanes.values() if self._scene is not None else ()
        return {call.index: call for lane in lanes for call in lane.calls}

    @cached_property
    def _writers(self) -> Writers:
        """Who writes where, in whatever instance."""
        return Writers(call for call in self._calls.values() if call.instance is not None)
