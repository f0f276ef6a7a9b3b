"""Explanations: what a person is told beyond the fact that something is wrong (SPEC R7.1).

A text that does not parse gets an excerpt with a caret. Of a reference that nothing can bring it is told which path
only lacks its dagger to bring it, which instance holds it, which call writes it in another instance, or the nearest
place that its reader can see, where its kind or a key of its path looks misspelt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Final

from protocol.calls.call import Call
from protocol.graph.lanes import Lane
from protocol.graph.writers import Writers
from protocol.language.errors import ExpressionError, Problem, pointer, segments
from protocol.language.references import Expression, is_expression, parse, parse_output_path
from protocol.state.context import Context
from protocol.state.scopes import read_scope
from protocol.submission.submission import Submission

from .spelling import Patience
from .suggestions import PER_READER, Reader
from .views import MOST_NAMES, Views

MOST_EXPLAINED: Final = 100
"""Only so many problems are explained: looking for near names is slow, and a hostile list of errors long."""
_UNSATISFIABLE: Final = "nothing can bring "
_NOT_HELD: Final = ": the context does not hold it"


@dataclass(frozen=True)
class Scene:
    """What a submission was found to be: where its calls run, and on which context."""

    submission: Submission
    context: Context
    lanes: Mapping[str | None, Lane]


def explained(problems: Iterable[Problem], value: Any, scene: Scene | None = None) -> list[Problem]:
    """The problems of a submission, the first of them with excerpts and, where there is a scene, with hints."""
    problems = list(problems)
    hints = _Hints(scene) if scene is not None else None
    return [_explained(problem, value, hints) for problem in problems[:MOST_EXPLAINED]] + problems[MOST_EXPLAINED:]


def _explained(problem: Problem, value: Any, hints: _Hints | None) -> Problem:
    text = _text_at(value, problem.pointer)
    if text is None:
        return problem
    excerpt = next((error.caret for error in _errors(text) if str(error) == problem.message), None)
    if excerpt is not None:
        return replace(problem, excerpt=excerpt)
    if hints is not None and is_expression(text) and problem.message.startswith(_UNSATISFIABLE):
        return replace(problem, message=hints.told(problem, parse(text)))
    return problem


def _errors(text: str) -> Iterable[ExpressionError]:
    for read in (parse, parse_output_path, read_scope):
        try:
            read(text)
        except ExpressionError as error:
            yield error


def _text_at(value: Any, pointer: str) -> str | None:
    """The text a pointer leads to."""
    for key in segments(pointer):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, (list, tuple)) and key.isdecimal() and len(key) < 10 and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value if isinstance(value, str) else None


class _Hints:
    """What is told of expressions that nothing can bring."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._views = Views(scene.lanes, scene.context)
        self._patience = Patience()

    def told(self, problem: Problem, expression: Expression) -> str:
        """The problem's message with what there is to say of it."""
        instance = self._instance(problem)
        reader = Reader(self._views.of(instance), self._call(problem), self._patience)
        if (slip := reader.slip(expression.references)) is not None:
            return f"{problem.message}; {slip}"
        if instance is None and (holder := self._holder(expression)) is not None:
            return f"{_UNSATISFIABLE}{expression}: instance {holder!r} holds it, and the call has no _instance"
        if (elsewhere := self._written_elsewhere(expression, instance, reader.call)) is not None:
            if instance is None:
                return f"{_UNSATISFIABLE}{expression}: {elsewhere}, and the call has no _instance"
            return f"{problem.message} there; {elsewhere}, whose data the call does not see"
        near = reader.nearest(expression.references)
        return problem.message if near is None else f"{problem.message}, did you mean {near}?"

    def _instance(self, problem: Problem) -> str | None:
        """The instance that the problem is told of: a plan's call has one problem in each."""
        _, _, where = problem.message.rpartition(_NOT_HELD)
        return self._instances.get(where.removesuffix(" and no other call writes it"))

    def _call(self, problem: Problem) -> int | None:
        keys = segments(problem.pointer)
        places = (pointer(*keys[:length]) for length in range(len(keys)))
        return next((self._calls[place] for place in places if place in self._calls), None)

    def _holder(self, expression: Expression) -> str | None:
        """The first instance that holds all that one of the alternatives reads."""
        for instance in islice(self._scene.context.instances, MOST_NAMES):
            if not self._patience.lasts(PER_READER * len(expression.references)):
                break
            fold = self._scene.context.fold(instance)
            if any(all(map(fold.exists, group)) for group in expression.alternatives):
                return instance
        return None

    def _written_elsewhere(self, expression: Expression, instance: str | None, reader: int | None) -> str | None:
        """Which call writes in another instance what is read in this one."""
        for place in expression.references:
            for line in self._writers.lines(place):
                for index in line.calls:
                    home = self._by_index[index].instance
                    if index != reader and home not in (None, instance):
                        return f"call {index} writes {place} in instance {home!r}"
        return None

    @cached_property
    def _by_index(self) -> dict[int, Call]:
        return {call.index: call for lane in self._scene.lanes.values() for call in lane.calls}

    @cached_property
    def _writers(self) -> Writers:
        """Who writes where, in whatever instance."""
        return Writers(call for call in self._by_index.values() if call.instance is not None)

    @cached_property
    def _instances(self) -> dict[str, str]:
        return {f" in instance {instance!r}": instance for instance in self._scene.context.instances}

    @cached_property
    def _calls(self) -> dict[str, int]:
        return {pointer(*at): index for index, at, _ in self._scene.submission.numbered}
